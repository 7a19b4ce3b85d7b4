/*
 * COCO captions: {"images": [{"id", "file_name"}], "annotations": [{"image_id", "caption"}]}.
 * The file is read whole. The rows are the entries of "images" in their order, each with its
 * captions in the order of "annotations". Captions of pictures that are not listed are ignored,
 * because a file may list a part of a split.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pack/source/source_internal.h"

struct listed {
    uint64_t id;
    size_t image; /* index in "images" */
};

struct source_coco {
    struct source base;
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
            return error_set(err, STATUS_CORRUPT, "%s: the image id %" PRIu64 " is repeated",
                             c->base.path, c->listed[i].id);
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
    source_row_set_number_key(row, id);
    source_row_set_path(row, s, name, name_bytes);
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
}

static enum status
coco_open(struct source *s, const struct source_options *opt, struct error *err) {
    (void)opt;
    struct source_coco *c = (struct source_coco *)s;
    static const char expected[] =
        "not COCO captions: the lists \"images\" and \"annotations\" are required";
    TRY(source_parse_images(s, &c->document, &c->images, expected, err));
    const struct json_value *annotations =
        json_value_get(json_document_root(c->document), "annotations");
    if (!json_value_is_array(annotations)) {
        return error_set(err, STATUS_CORRUPT, "%s: %s", s->path, expected);
    }
    c->image_count = json_value_count(c->images);
    c->listed = calloc(c->image_count + 1, sizeof(*c->listed));
    c->first = calloc(c->image_count + 2, sizeof(*c->first));
    c->captions = calloc(json_value_count(annotations) + 1, sizeof(*c->captions));
    if (!c->listed || !c->first || !c->captions) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory for its lists", s->path);
    }
    TRY(list_images(c, err));
    group_captions(c, annotations);
    return STATUS_OK;
}

/* Accepts a single object with unknown keys too, so that the message names the missing lists. */
static bool coco_detect(const struct source_head *h) {
    const struct source_json_keys *k = &h->keys;
    bool object = h->text_bytes > 0 && h->text[0] == '{';
    return object && (k->annotations || k->images || (!k->more && !k->image_or_caption));
}

const struct source_type source_type_coco = {
    .struct_bytes = sizeof(struct source_coco),
    .detect = coco_detect,
    .open = coco_open,
    .next = coco_next,
    .close = coco_close,
};
