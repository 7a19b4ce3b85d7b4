/*
 * COCO captions: {"images": [{"id", "file_name"}], "annotations": [{"image_id", "caption"}]}.
 * The file is read whole, and parsed entry by entry. The rows are the entries of "images" in their
 * order, each with its captions in the order of "annotations", and with name and URL of its
 * license, where the file has "licenses". An annotation that is not valid JSON or is of an image
 * that is not listed belongs to no row and is counted: a file may list a part of a split.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pack/source/text_internal.h"

struct listed {
    uint64_t id;
    size_t image; /* index in "images" */
};

struct source_coco {
    struct source base;
    struct byte_buffer text;
    struct json_parts images, annotations, licenses;
    struct listed *listed; /* by id; images that have one */
    size_t listed_count;
    uint32_t *first; /* annotation of each image, counted from 1; 0: it has none */
    uint32_t *next;  /* likewise, of the same image after each annotation */
};

static int by_id(const void *a, const void *b) {
    const struct listed *x = a;
    const struct listed *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The member `name` of an entry as a number. Returns OK, NOTFOUND (no number, or the entry is not
 * valid JSON) or NOMEM. */
static enum status number_in(uint64_t *out,
                             const struct source_coco *c,
                             const struct json_part *part,
                             const char *name) {
    struct json_document *document = NULL;
    enum status s = json_part_parse(&document, &c->text, part, NULL);
    if (s != STATUS_OK) {
        return s == STATUS_NOMEM ? s : STATUS_NOTFOUND;
    }
    bool found = json_value_u64(json_value_get(json_document_root(document), name), out);
    json_document_destroy(document);
    return found ? STATUS_OK : STATUS_NOTFOUND;
}

static enum status no_memory(const struct source_coco *c, struct error *err) {
    return error_set(err, STATUS_NOMEM, "%s: out of memory for its entries", c->base.path);
}

static enum status list_images(struct source_coco *c, struct error *err) {
    for (size_t i = 0; i < c->images.count; i++) {
        uint64_t id = 0;
        enum status s = number_in(&id, c, &c->images.items[i], "id");
        if (s == STATUS_NOMEM) {
            return no_memory(c, err);
        }
        if (s == STATUS_OK) {
            c->listed[c->listed_count++] = (struct listed){id, i};
        }
    }
    qsort(c->listed, c->listed_count, sizeof(*c->listed), by_id);
    for (size_t i = 1; i < c->listed_count; i++) {
        FAIL_IF(c->listed[i].id == c->listed[i - 1].id, err, STATUS_CORRUPT,
                "%s: the image id %" PRIu64 " is repeated", c->base.path, c->listed[i].id);
    }
    return STATUS_OK;
}

/* Links the annotations of each image in their order, from the last one to the first. A file of 1
 * GiB has less than 2^32 of them. */
static enum status link_annotations(struct source_coco *c, struct error *err) {
    for (size_t i = c->annotations.count; i > 0; i--) {
        struct listed wanted = {0};
        enum status s = number_in(&wanted.id, c, &c->annotations.items[i - 1], "image_id");
        if (s == STATUS_NOMEM) {
            return no_memory(c, err);
        }
        const struct listed *l =
            s == STATUS_OK ? bsearch(&wanted, c->listed, c->listed_count, sizeof(wanted), by_id)
                           : NULL;
        if (l) {
            c->next[i] = c->first[l->image];
            c->first[l->image] = (uint32_t)i;
        } else {
            c->base.ignored.by[IGNORED_ANNOTATION]++;
        }
    }
    return STATUS_OK;
}

static enum status take_caption(const struct source_coco *c,
                                struct source_row *row,
                                const struct json_part *part,
                                struct error *err) {
    struct json_document *document = NULL;
    TRY(json_part_parse(&document, &c->text, part, err)); /* was parsed before */
    size_t size_bytes = 0;
    const char *text =
        json_value_string(json_value_get(json_document_root(document), "caption"), &size_bytes);
    enum status s = STATUS_OK;
    if (text) {
        s = source_row_add_caption(row, text, size_bytes, err);
    } else {
        source_row_reject(row, REASON_ROW_BAD, "a caption of image %s is not text", row->key);
    }
    json_document_destroy(document);
    return s;
}

/* Adds the name and the URL of the image's license to the JSON, which has its id. */
static enum status add_license(struct source_coco *c,
                               struct source_row *row,
                               const struct json_value *image,
                               struct error *err) {
    static const char *const names[][2] = {{"name", "license_name"}, {"url", "license_url"}};
    uint64_t wanted = 0, id = 0;
    size_t i = json_value_u64(json_value_get(image, "license"), &wanted) &&
                       source_keeps(&c->base, "license")
                   ? 0
                   : c->licenses.count;
    while (i < c->licenses.count &&
           (number_in(&id, c, &c->licenses.items[i], "id") != STATUS_OK || id != wanted)) {
        i++;
    }
    if (i == c->licenses.count) {
        return STATUS_OK;
    }
    struct json_document *license = NULL;
    TRY(json_part_parse(&license, &c->text, &c->licenses.items[i], err)); /* was parsed before */
    struct json_writer *w = &c->base.json;
    json_writer_reset(w);
    json_open_object(w, NULL);
    for (size_t k = 0; k < 2; k++) {
        const struct json_value *v = json_value_get(json_document_root(license), names[k][0]);
        const char *text = json_value_string(v, NULL);
        if (text && !json_value_get(image, names[k][1])) {
            json_string(w, names[k][1], text);
        }
    }
    json_document_destroy(license);
    json_close_object(w);
    TRY(json_writer_status(w, err));
    if (w->out.size_bytes > 2) { /* {"license":4} and {"license_name":...} become one */
        row->json.data[row->json.size_bytes - 1] = ',';
        return byte_buffer_append(&row->json, w->out.data + 1, w->out.size_bytes - 1, err);
    }
    return STATUS_OK;
}

/* Sets key, path and metadata. */
static enum status take_image(struct source_coco *c,
                              struct source_row *row,
                              size_t i,
                              const struct json_value *image,
                              struct error *err) {
    uint64_t id;
    size_t name_bytes = 0;
    const struct json_value *id_value = json_value_get(image, "id");
    const char *name = json_value_string(json_value_get(image, "file_name"), &name_bytes);
    if (json_value_string(id_value, NULL)) {
        source_row_reject(
            row, REASON_ROW_BAD,
            "the id of entry %zu of \"images\" is the string \"%.60s\"; COCO's ids are "
            "numbers",
            i, json_value_string(id_value, NULL));
    } else if (!json_value_u64(id_value, &id)) {
        source_row_reject(row, REASON_ROW_BAD, "entry %zu of \"images\" has no id", i);
    } else if (!name) {
        source_row_reject(row, REASON_ROW_BAD, "entry %zu of \"images\" has no file_name", i);
    } else {
        source_row_set_number_key(row, id);
        source_row_set_path(row, &c->base, name, name_bytes);
        TRY(source_row_keep_members(row, &c->base, image, "id,file_name", err));
        return add_license(c, row, image, err);
    }
    return STATUS_OK;
}

static enum status coco_next(struct source *s, struct source_row *row, struct error *err) {
    struct source_coco *c = (struct source_coco *)s;
    if (s->rows == c->images.count) {
        return STATUS_END;
    }
    size_t i = (size_t)s->rows;
    s->position_bytes =
        (uint64_t)((double)s->size_bytes * (double)(i + 1) / (double)c->images.count);
    struct json_document *document = NULL;
    TRY(json_parts_parse_row(&document, row, &c->text, &c->images, i, err));
    if (!document) {
        return STATUS_OK;
    }
    enum status status = take_image(c, row, i, json_document_root(document), err);
    json_document_destroy(document);
    TRY(status);
    for (uint32_t k = c->first[i]; k > 0 && row->reason == REASON_NONE; k = c->next[k]) {
        TRY(take_caption(c, row, &c->annotations.items[k - 1], err));
    }
    if (c->first[i] == 0) {
        source_row_reject(row, REASON_CAPTION_MISSING, "no annotation names image %s", row->key);
    }
    return STATUS_OK;
}

static void coco_close(struct source *s) {
    struct source_coco *c = (struct source_coco *)s;
    byte_buffer_fini(&c->text);
    json_parts_fini(&c->images);
    json_parts_fini(&c->annotations);
    json_parts_fini(&c->licenses);
    free(c->listed);
    free(c->first);
    free(c->next);
}

static enum status
coco_open(struct source *s, const struct source_options *opt, struct error *err) {
    (void)opt;
    struct source_coco *c = (struct source_coco *)s;
    TRY(file_read_all(file_posix(), &c->text, s->path, SOURCE_MAX_WHOLE_BYTES, err));
    s->size_bytes = c->text.size_bytes;
    enum status status = json_parts_find(&c->images, s->path, &c->text, "images", err);
    THEN(status, json_parts_find(&c->annotations, s->path, &c->text, "annotations", err));
    FAIL_IF(status == STATUS_NOTFOUND, err, STATUS_CORRUPT,
            "%s: not COCO captions: the lists \"images\" and \"annotations\" are required",
            s->path);
    TRY(status);
    status = json_parts_find(&c->licenses, s->path, &c->text, "licenses", err);
    RETURN_IF(status != STATUS_OK && status != STATUS_NOTFOUND, status);
    c->listed = calloc(c->images.count + 1, sizeof(*c->listed));
    c->first = calloc(c->images.count + 1, sizeof(*c->first));
    c->next = calloc(c->annotations.count + 1, sizeof(*c->next));
    if (!c->listed || !c->first || !c->next) {
        return no_memory(c, err);
    }
    struct json_document *first = NULL;
    if (c->images.count > 0 &&
        json_part_parse(&first, &c->text, c->images.items, NULL) == STATUS_OK) {
        source_say_members(s, json_document_root(first), "file_name", "", "id");
    }
    json_document_destroy(first);
    TRY(list_images(c, err));
    return link_annotations(c, err);
}

/* Accepts a single object with unknown keys too, so that the message names the missing lists. */
static bool coco_detect(const struct source_head *h) {
    const struct source_json_keys *k = &h->keys;
    bool object = h->text_bytes > 0 && h->text[0] == '{';
    return object && (k->annotations || k->images || (!k->more && !k->image_or_caption));
}

const struct source_type source_type_coco = {
    .options = SOURCE_HAS_KEEP,
    .struct_bytes = sizeof(struct source_coco),
    .detect = coco_detect,
    .open = coco_open,
    .next = coco_next,
    .close = coco_close,
};
