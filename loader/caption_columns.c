/*
 * Captions from columns: "raw:0.3,long:0.7" draws one of the sample's own captions, or one of a
 * column's, by weight among those that the sample has; then one of a row's by the weights there.
 * "raw+long": each of a sample's rows in a batch has a column of its own.
 */
#include "loader/caption_columns_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "loader/sources.h"

enum { MAX_SLOTS = 8 };

struct caption_columns {
    uint32_t count;
    bool all; /* + */
    uint64_t hash;
    double weights[MAX_SLOTS];
    struct column *columns[MAX_SLOTS][LOADER_MAX_SOURCES]; /* NULL: "raw" */
};

void caption_columns_close(struct caption_columns *c) {
    for (uint32_t i = 0; c != NULL && i < c->count * LOADER_MAX_SOURCES; i++) {
        column_close(c->columns[i / LOADER_MAX_SOURCES][i % LOADER_MAX_SOURCES]);
    }
    free(c);
}

static enum status add_slot(struct caption_columns *c,
                            const char *text,
                            size_t size_bytes,
                            const struct sources *sources,
                            struct error *err) {
    char name[COLUMN_MAX_NAME_BYTES + 1] = "";
    char end = '\0';
    char item[80] = "";
    FAIL_IF(c->count == MAX_SLOTS, err, STATUS_LIMIT, "captions of more than %d columns",
            MAX_SLOTS);
    double *weight = &c->weights[c->count];
    *weight = 1.0;
    memcpy(item, text, size_bytes < sizeof(item) ? size_bytes : 0);
    const int found = sscanf(item, "%32[^:]:%lf%c", name, weight, &end);
    FAIL_IF(found < 1 || found > 2 || (found == 1 && strcmp(item, name) != 0) || !(*weight > 0) ||
                *weight > LOADER_MAX_WEIGHT || (c->all && found == 2),
            err, STATUS_USAGE, "'%.*s' is neither a column NAME%s nor raw", (int)size_bytes, text,
            c->all ? "" : " or NAME:WEIGHT");
    c->count++;
    for (uint32_t i = 0; strcmp(name, "raw") != 0 && i < sources->count; i++) {
        struct column **x = &c->columns[c->count - 1][i];
        const char *directory = sources->items[i].directory;
        TRY(column_open(x, file_system_of(directory), directory, name,
                        dataset_manifest(sources->items[i].dataset), err));
        FAIL_IF(column_info(*x)->kind != COLUMN_CAPTIONS, err, STATUS_USAGE,
                "%s: column '%s' is %s, not captions", directory, name,
                column_kind_name(column_info(*x)->kind));
        const uint64_t both[2] = {c->hash, column_info(*x)->hash};
        c->hash = hash64(both, sizeof(both));
    }
    return STATUS_OK;
}

enum status caption_columns_open(struct caption_columns **out,
                                 const char *text,
                                 uint32_t positives,
                                 const struct sources *sources,
                                 struct error *err) {
    struct caption_columns *c = calloc(1, sizeof(*c));
    TRY_MEMORY(c != NULL, err, "out of memory for caption columns");
    enum status s = STATUS_OK;
    c->hash = hash64(text, strlen(text));
    c->all = strchr(text, '+') != NULL;
    for (const char *at = text; s == STATUS_OK && at != NULL;) {
        const char *end = strchr(at, c->all ? '+' : ',');
        s = add_slot(c, at, end != NULL ? (size_t)(end - at) : strlen(at), sources, err);
        at = end != NULL ? end + 1 : NULL;
    }
    if (s == STATUS_OK && c->all && c->count != positives) {
        s = error_set(err, STATUS_USAGE,
                      "captions '%s' are %u texts of an image in every step, which --positives %u "
                      "(nuclr, dcl) delivers; it is %u here",
                      text, (unsigned)c->count, (unsigned)c->count, (unsigned)positives);
    }
    RETURN_CREATED(s, out, c, caption_columns_close);
}

void loader_caption_column_names(char out[LOADER_CAPTION_NAMES_BYTES], const char *text) {
    size_t used = 0;
    out[0] = '\0';
    for (const char *at = text; at != NULL && *at != '\0';) {
        const size_t size = strcspn(at, ":,+");
        if (!(size == 3 && memcmp(at, "raw", 3) == 0) &&
            used + size + 2 < LOADER_CAPTION_NAMES_BYTES) {
            used += (size_t)snprintf(out + used, LOADER_CAPTION_NAMES_BYTES - used, "%s%.*s",
                                     used > 0 ? "," : "", (int)size, at);
        }
        at = strpbrk(at, ",+");
        at = at != NULL ? at + 1 : NULL;
    }
}

uint64_t caption_columns_hash(const struct caption_columns *c) {
    return c != NULL ? c->hash : 0;
}

/* By weight; all of the row's captions have one, and not all are 0. */
static struct shard_text draw_of_row(const uint8_t *row, size_t row_bytes, struct rng *r) {
    struct column_caption c = {0};
    struct shard_text out = {"", 0};
    double total = 0.0;
    while (column_next_caption(&c, row, row_bytes)) {
        total += (double)c.weight;
    }
    double left = rng_uniform(r) * total;
    c = (struct column_caption){0};
    while (left >= 0.0 && column_next_caption(&c, row, row_bytes)) {
        const size_t size = /* of more, the tokens would not fit in a row anyway */
            c.size_bytes < SHARD_MAX_TEXT_BYTES ? c.size_bytes : SHARD_MAX_TEXT_BYTES;
        out = c.weight > 0.0F ? (struct shard_text){c.text, size} : out;
        left -= (double)c.weight;
    }
    return out;
}

enum status caption_columns_draw(const struct caption_columns *c,
                                 struct shard_text *out,
                                 struct column_workspace *workspace,
                                 uint32_t source,
                                 uint64_t id,
                                 uint32_t positive,
                                 bool has_raw,
                                 struct rng *r,
                                 uint32_t *caption,
                                 struct error *err) {
    double weights[MAX_SLOTS];
    double total = 0.0;
    uint32_t slot = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        const struct column *x = c->columns[i][source];
        weights[i] = (x != NULL ? column_has(x, id) : has_raw) ? c->weights[i] : 0.0;
        total += weights[i];
    }
    double left = rng_uniform(r) * total;
    if (c->all && weights[positive] > 0.0) {
        slot = positive;
        left = -1.0;
    }
    for (uint32_t i = 0; i < c->count && left >= 0.0; i++) {
        slot = weights[i] > 0.0 ? i : slot;
        left -= weights[i];
    }
    const uint8_t *row = NULL;
    size_t row_bytes = 0;
    *out = (struct shard_text){NULL, 0};
    if (total == 0.0 || c->columns[slot][source] == NULL) {
        return STATUS_OK;
    }
    *caption = LOADER_COLUMN_CAPTION;
    for (uint32_t i = 0; i < slot; i++) {
        *caption += c->columns[i][source] != NULL;
    }
    TRY(column_get(c->columns[slot][source], workspace, id, &row, &row_bytes, err));
    *out = draw_of_row(row, row_bytes, r);
    return STATUS_OK;
}
