/*
 * COCO captions: {"images": [{"id", "file_name"}], "annotations": [{"image_id", "caption"}]}.
 * The file is read whole; its entries of "images", in their order, are the rows, and each gets its
 * captions in the order of "annotations". Captions of pictures that are not listed are left out, as
 * they are when somebody lists a part of a split.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json/json_reader.h"
#include "pack/source/source_internal.h"

struct listed {
    uint64_t id;
    size_t image; /* index in "images" */
};

struct source_coco {
    struct source base;
    char path[PATH_MAX_BYTES];
    char images_folder[PATH_MAX_BYTES];
    struct json_document *document;
    const struct json_value *images;
    size_t image_count;
    struct listed *listed; /* by id; pictures that have one */
    size_t listed_count;
    /* Captions of image i: captions[first[i]] .. captions[first[i + 1]]. */
    size_t *first;
    const struct json_value **captions;
};

static int by_id(const void *a, const void *b) {
    const struct listed *x = a;
    const struct listed *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static enum status list_images(struct source_coco *c, struct error *err) {
    for (size_t i = 0; i < c->image_count; i++) {
        uint64_t id;
        if (json_value_u64(json_value_get(json_value_at(c->images, i), "id"), &id)) {
            c->listed[c->listed_count++] = (struct listed){id, i};
        }
    }
    qsort(c->listed, c->listed_count, sizeof(*c->listed), by_id);
    for (size_t i = 1; i < c->listed_count; i++) {
        if (c->listed[i].id == c->listed[i - 1].id) {
            return error_set(err, STATUS_CORRUPT, "%s: the image id %" PRIu64 " comes twice",
                             c->path, c->listed[i].id);
        }
    }
    return STATUS_OK;
}

/* Index in "images" of an annotation's picture; image_count when it is not listed. */
static size_t image_of(const struct source_coco *c, const struct json_value *annotation) {
    struct listed wanted = {0};
    if (!json_value_u64(json_value_get(annotation, "image_id"), &wanted.id)) {
        return c->image_count;
    }
    const struct listed *l = bsearch(&wanted, c->listed, c->listed_count, sizeof(wanted), by_id);
    return l ? l->image : c->image_count;
}

/* A counting sort, so that every picture's captions keep their order. */
static void group_captions(struct source_coco *c, const struct json_value *annotations) {
    size_t count = json_value_count(annotations);
    for (size_t i = 0; i < count; i++) {
        size_t image = image_of(c, json_value_at(annotations, i));
        if (image < c->image_count) {
            c->first[image + 1]++;
        }
    }
    for (size_t i = 0; i < c->image_count; i++) {
        c->first[i + 1] += c->first[i];
    }
    size_t total = c->first[c->image_count];
    for (size_t i = count; i-- > 0;) {
        const struct json_value *annotation = json_value_at(annotations, i);
        size_t image = image_of(c, annotation);
        if (image < c->image_count) {
            c->captions[--c->first[image + 1]] = json_value_get(annotation, "caption");
        }
    }
    /* first[i + 1] is now where image i begins; move the ends back in place. */
    memmove(c->first, c->first + 1, c->image_count * sizeof(*c->first));
    c->first[c->image_count] = total;
}

static enum status coco_next(struct source *s, struct source_row *row, struct error *err) {
    struct source_coco *c = (struct source_coco *)s;
    if (s->rows == c->image_count) {
        return STATUS_END;
    }
    size_t i = (size_t)s->rows;
    s->position_bytes =
        (uint64_t)((double)s->size_bytes * (double)(i + 1) / (double)c->image_count);
    const struct json_value *image = json_value_at(c->images, i);
    uint64_t id;
    size_t name_bytes = 0;
    const char *name = json_value_string(json_value_get(image, "file_name"), &name_bytes);
    if (!json_value_u64(json_value_get(image, "id"), &id) || !name) {
        source_row_reject(row, REASON_ROW_BAD, "entry %zu of \"images\" has no id or file_name", i);
        return STATUS_OK;
    }
    char key[24];
    int key_bytes = snprintf(key, sizeof(key), "%" PRIu64, id);
    source_row_set_key(row, key, (size_t)key_bytes);
    source_row_set_path(row, c->images_folder, name, name_bytes);
    for (size_t k = c->first[i]; k < c->first[i + 1]; k++) {
        size_t size_bytes = 0;
        const char *text = json_value_string(c->captions[k], &size_bytes);
        if (!text) {
            source_row_reject(row, REASON_ROW_BAD, "a caption of image %" PRIu64 " is not text",
                              id);
            return STATUS_OK;
        }
        TRY(source_row_add_caption(row, text, size_bytes, err));
    }
    if (c->first[i] == c->first[i + 1]) {
        source_row_reject(row, REASON_CAPTION_MISSING, "no annotation names image %" PRIu64, id);
    }
    return STATUS_OK;
}

static void coco_close(struct source *s) {
    struct source_coco *c = (struct source_coco *)s;
    json_document_destroy(c->document);
    free(c->listed);
    free(c->first);
    free(c->captions);
    free(c);
}

static const struct source_ops coco_ops = {coco_next, NULL, coco_close};

static enum status parse(struct source_coco *c, const char *path, struct error *err) {
    struct byte_buffer text = {0};
    TRY(file_read_all(file_posix(), &text, path, SOURCE_MAX_COCO_BYTES, err));
    c->base.size_bytes = text.size_bytes;
    enum status s = json_document_parse(&c->document, path, text.data, text.size_bytes, err);
    byte_buffer_fini(&text);
    return s;
}

static enum status open_coco(struct source_coco *c,
                             const char *path,
                             const struct source_options *opt,
                             struct error *err) {
    TRY(path_join(c->path, sizeof(c->path), "", path, err));
    TRY(source_images_folder(c->images_folder, sizeof(c->images_folder), path, opt, err));
    TRY(parse(c, path, err));
    const struct json_value *root = json_document_root(c->document);
    const struct json_value *annotations = json_value_get(root, "annotations");
    c->images = json_value_get(root, "images");
    if (!json_value_is_array(c->images) || !json_value_is_array(annotations)) {
        return error_set(err, STATUS_CORRUPT,
                         "%s: not COCO captions: lists \"images\" and \"annotations\" are wanted",
                         path);
    }
    c->image_count = json_value_count(c->images);
    c->listed = calloc(c->image_count + 1, sizeof(*c->listed));
    c->first = calloc(c->image_count + 2, sizeof(*c->first));
    c->captions = calloc(json_value_count(annotations) + 1, sizeof(*c->captions));
    if (!c->listed || !c->first || !c->captions) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory for its lists", path);
    }
    TRY(list_images(c, err));
    group_captions(c, annotations);
    return STATUS_OK;
}

enum status source_open_coco(struct source **out,
                             const char *path,
                             const struct source_options *opt,
                             struct error *err) {
    struct source_coco *c = calloc(1, sizeof(*c));
    if (!c) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory", path);
    }
    c->base.ops = &coco_ops;
    enum status s = open_coco(c, path, opt, err);
    if (s != STATUS_OK) {
        coco_close(&c->base);
        return s;
    }
    *out = &c->base;
    return STATUS_OK;
}
