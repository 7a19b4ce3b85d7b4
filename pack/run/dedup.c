/*
 * Captions of rows with equal images. A row counts as it will in the run: not if it is bad, or if
 * its captions or its key exclude it. Whether the image decodes and is within the limits is the
 * same for equal images, so that is not checked here.
 */
#include "pack/run/dedup_internal.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/hash_map.h"
#include "pack/run/filter_internal.h"

/* A row as the value of a map: its source and number. */
enum { ROW_BITS = 40 };

struct caption {
    uint64_t at; /* in the text */
    uint32_t size_bytes;
    uint32_t next; /* of the same row; 0 after the last, else its number from 1 */
};

struct dedup {
    struct hash_map *first; /* the first row with an image, by its hash */
    struct hash_map *added; /* its captions, by that row: first << 32 | last, from 1 */
    struct byte_buffer text, captions;
};

static uint64_t place_of(size_t source, const struct source_row *row) {
    return (uint64_t)source << ROW_BITS | (row->row & ((UINT64_C(1) << ROW_BITS) - 1));
}

static struct caption *caption_at(const struct dedup *e, uint64_t number) {
    return (struct caption *)(void *)e->captions.data + (number - 1);
}

static enum status add_caption(struct dedup *e,
                               uint64_t place,
                               const uint8_t *text,
                               uint32_t size_bytes,
                               struct error *err) {
    struct caption caption = {e->text.size_bytes, size_bytes, 0};
    TRY(byte_buffer_append(&e->text, text, size_bytes, err));
    TRY(byte_buffer_append(&e->captions, &caption, sizeof(caption), err));
    uint64_t number = e->captions.size_bytes / sizeof(caption);
    uint64_t list = hash_map_get(e->added, place);
    if (list == HASH_MAP_NONE) {
        return hash_map_put(e->added, place, number << 32 | number, err);
    }
    caption_at(e, list & UINT32_MAX)->next = (uint32_t)number;
    return hash_map_put(e->added, place, list >> 32 << 32 | number, err);
}

/* Takes a row that was read. */
static enum status take_row(struct dedup *e,
                            const struct pack_options *o,
                            size_t source,
                            struct source_row *row,
                            struct error *err) {
    TRY(source_row_load(row, err));
    pack_filter_captions(row, &o->filter);
    if (row->reason != REASON_NONE || (o->ids == PACK_IDS_KEY && !row->has_number)) {
        return STATUS_OK;
    }
    uint64_t hash = hash64(row->image.data, row->image.size_bytes);
    uint64_t first = hash_map_get(e->first, hash);
    if (first == HASH_MAP_NONE) {
        return hash_map_put(e->first, hash, place_of(source, row), err);
    }
    const uint8_t *text = row->text.data;
    for (uint32_t i = 0; i < row->caption_count; i++) {
        TRY(add_caption(e, first, text, row->caption_size_bytes[i], err));
        text += row->caption_size_bytes[i];
    }
    return STATUS_OK;
}

/* Reads a source. Returns OK at its end; END where it ends as damaged. */
static enum status read_source(struct dedup *e,
                               struct pack_plan *p,
                               size_t index,
                               struct source_row *row,
                               struct error *err) {
    struct source *s = NULL;
    struct source_options how;
    pack_plan_source_options(&how, p);
    enum status status = p->open_source(&s, p->opt->sources[index], &how, NULL);
    enum status taken = STATUS_OK;
    while (status == STATUS_OK && taken == STATUS_OK) {
        status = pack_plan_must_stop(p) ? STATUS_INTERRUPTED : source_next(s, row, NULL);
        taken = status == STATUS_OK ? take_row(e, p->opt, index, row, NULL) : STATUS_OK;
    }
    source_close(s);
    FAIL_IF(taken == STATUS_LIMIT, err, taken,
            "--dedup exact: more than 1 GiB of captions to merge");
    status = taken == STATUS_OK ? status : taken;
    switch (status) {
    case STATUS_END:
        return STATUS_OK;
    case STATUS_INTERRUPTED:
        return error_set(err, status, "stopped on request");
    case STATUS_NOMEM:
        return error_set(err, status, "out of memory for captions of equal images");
    default:
        return STATUS_END;
    }
}

enum status dedup_find(struct dedup **out, struct pack_plan *p, struct error *err) {
    struct dedup *e = calloc(1, sizeof(*e));
    struct source_row *row = malloc(sizeof(*row));
    *out = e;
    if (!e || !row) {
        free(row);
        return error_set(err, STATUS_NOMEM, "out of memory for captions of equal images");
    }
    source_row_init(row);
    byte_buffer_init(&e->text, 0);
    byte_buffer_init(&e->captions, 0);
    enum status s = hash_map_create(&e->first, err);
    THEN(s, hash_map_create(&e->added, err));
    for (size_t i = 0; i < p->opt->source_count && s == STATUS_OK; i++) {
        s = strcmp(p->opt->sources[i], "-") == 0 ? STATUS_END : read_source(e, p, i, row, err);
    }
    source_row_fini(row);
    free(row);
    hash_map_destroy(e->first);
    e->first = NULL;
    return s == STATUS_END ? STATUS_OK : s;
}

void dedup_destroy(struct dedup *e) {
    if (e) {
        hash_map_destroy(e->first);
        hash_map_destroy(e->added);
        byte_buffer_fini(&e->text);
        byte_buffer_fini(&e->captions);
        free(e);
    }
}

static bool has_caption(const struct source_row *row, const uint8_t *text, uint32_t size_bytes) {
    const uint8_t *at = row->text.data;
    for (uint32_t i = 0; i < row->caption_count; i++) {
        if (row->caption_size_bytes[i] == size_bytes && memcmp(at, text, size_bytes) == 0) {
            return true;
        }
        at += row->caption_size_bytes[i];
    }
    return false;
}

enum status
dedup_add(const struct dedup *e, size_t source, struct source_row *row, struct error *err) {
    uint64_t list = e && row->reason == REASON_NONE ? hash_map_get(e->added, place_of(source, row))
                                                    : HASH_MAP_NONE;
    uint64_t number = list == HASH_MAP_NONE ? 0 : list >> 32;
    while (number > 0 && row->caption_count < SOURCE_MAX_CAPTIONS) {
        const struct caption *c = caption_at(e, number);
        const uint8_t *text = e->text.data + c->at;
        if (c->size_bytes <= SOURCE_MAX_TEXT_BYTES - row->text.size_bytes &&
            !has_caption(row, text, c->size_bytes)) {
            TRY(byte_buffer_append(&row->text, text, c->size_bytes, err));
            row->caption_size_bytes[row->caption_count++] = c->size_bytes;
        }
        number = c->next;
    }
    return STATUS_OK;
}
