/*
 * columns: the rows of attached columns, widened to f32, one column after the other for each
 * sample.
 */
#include "loader/pipeline_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "formats/base/hash.h"

void loader_columns_close(struct loader_columns *c) {
    for (uint32_t i = 0; i < LOADER_MAX_COLUMNS * LOADER_MAX_SOURCES; i++) {
        column_close(c->columns[i / LOADER_MAX_SOURCES][i % LOADER_MAX_SOURCES]);
    }
}

static enum status add_column(struct loader_columns *c, const char *name, struct error *err) {
    FAIL_IF(c->count == LOADER_MAX_COLUMNS, err, STATUS_LIMIT, "more than %d columns",
            LOADER_MAX_COLUMNS);
    struct loader_column *item = &c->items[c->count];
    for (uint32_t i = 0; i < c->sources->count; i++) {
        struct column **x = &c->columns[c->count][i];
        const char *directory = c->sources->items[i].directory;
        TRY(column_open(x, file_system_of(directory), directory, name,
                        dataset_manifest(c->sources->items[i].dataset), err));
        const struct column_info *info = column_info(*x);
        FAIL_IF(info->values == 0 ||
                    (i > 0 && (info->values != item->values || info->vectors != item->vectors)),
                err, STATUS_USAGE,
                "%s: column '%s' is %s[%" PRIu32
                "]; expected numbers of the same length in all datasets",
                directory, name, column_kind_name(info->kind), info->values);
        strcpy(item->name, info->name);
        item->values = info->values;
        item->vectors = info->vectors;
        const uint64_t both[2] = {c->hash, info->hash};
        c->hash = hash64(both, sizeof(both));
    }
    item->first = c->values;
    c->values += item->values;
    c->count++;
    return STATUS_OK;
}

static enum status lacks(const struct loader_columns *c,
                         uint32_t column,
                         uint32_t source,
                         uint64_t id,
                         const char *what,
                         struct error *err) {
    return error_set(err, STATUS_USAGE,
                     "%s: column '%s' has %s for sample %" PRIu64
                     "; every sample needs a number: use 'ccpack attach --replace', or exclude "
                     "samples with 'ccpack subset'",
                     c->sources->items[source].directory, c->items[column].name, what, id);
}

/* Every live sample has a row of every column. */
static enum status check_complete(const struct loader_columns *c, struct error *err) {
    for (uint32_t i = 0; i < c->sources->count && c->required; i++) {
        for (uint64_t k = 0; k < c->sources->live_counts[i]; k++) {
            struct source_sample s;
            struct error why = {0}; /* a damaged sample is replaced */
            const bool known = sources_sample_at(c->sources, i, k, &s, &why) == STATUS_OK;
            const uint64_t id = s.sample.sample_id - c->sources->items[i].id_offset;
            for (uint32_t column = 0; known && column < c->count; column++) {
                RETURN_IF(!column_has(c->columns[column][i], id),
                          lacks(c, column, i, id, "no value", err));
            }
        }
    }
    return STATUS_OK;
}

enum status loader_columns_open(struct loader_columns *c,
                                const struct loader_options *opt,
                                const struct sources *sources,
                                struct error *err) {
    char names[LOADER_MAX_COLUMNS * (COLUMN_MAX_NAME_BYTES + 2)];
    char *rest = names;
    FAIL_IF(strlen(opt->columns) >= sizeof(names), err, STATUS_USAGE,
            "'%.80s' is not a list of columns", opt->columns);
    strcpy(names, opt->columns);
    c->required = opt->columns_required;
    c->sources = sources;
    for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        TRY(add_column(c, name, err));
    }
    return check_complete(c, err);
}

enum status loader_columns_read(const struct loader_columns *c,
                                float *out,
                                uint8_t *present,
                                uint32_t source,
                                uint64_t id,
                                struct error *err) {
    for (uint32_t i = 0; i < c->count; i++) {
        const uint8_t *row = NULL;
        size_t row_bytes = 0;
        bool finite = true;
        const enum status s = column_get(c->columns[i][source], NULL, id, &row, &row_bytes, err);
        RETURN_IF(s != STATUS_NOTFOUND && s != STATUS_OK, s);
        present[i] = s == STATUS_OK;
        const uint32_t values = c->items[i].values;
        if (present[i]) {
            column_floats(c->columns[i][source], row, out);
        } else {
            memset(out, 0, values * sizeof(*out));
        }
        for (uint32_t k = 0; k < values && c->required; k++) {
            finite = finite && isfinite(out[k]);
        }
        out += values;
        RETURN_IF(c->required && (!present[i] || !finite),
                  lacks(c, i, source, id, finite ? "no value" : "NaN or infinity", err));
    }
    return STATUS_OK;
}
