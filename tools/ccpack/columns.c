/*
 * A column is read completely when an expression uses it.
 */
#include "tools/ccpack/columns.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/columns/columns.h"
#include "tools/inspect/state_column.h"

#define ATTACHED "col."

enum { MAX_COLUMNS = 16 };

struct columns {
    struct checkpoint *checkpoint; /* NULL: none */
    struct state_ids ids;          /* of the dataset in it */
    struct state_column items[MAX_COLUMNS];
    int32_t count;
    const char *directory; /* the dataset's, with attached columns col.NAME */
    const struct manifest *dataset;
    struct column *attached[MAX_COLUMNS]; /* by item; NULL: not attached */
    char names[MAX_COLUMNS][COLUMN_MAX_NAME_BYTES + 8];
};

void columns_close(struct columns *c) {
    if (c) {
        for (int32_t i = 0; i < c->count; i++) {
            column_close(c->attached[i]);
            state_column_fini(&c->items[i]);
        }
        checkpoint_close(c->checkpoint);
        free(c);
    }
}

enum status columns_open(struct columns **out,
                         const char *checkpoint,
                         const char *directory,
                         const struct manifest *dataset,
                         struct error *err) {
    enum status s = STATUS_OK;
    *out = NULL;
    struct columns *c = calloc(1, sizeof(*c));
    TRY_MEMORY(c, err, "out of memory for columns");
    c->directory = directory;
    c->dataset = dataset;
    if (checkpoint) {
        TRY_OR_FAIL(s, checkpoint_open(&c->checkpoint, file_posix(), checkpoint, err));
        TRY_OR_FAIL(s, state_ids_find(&c->ids, c->checkpoint, dataset, "this dataset", err));
    }
fail:
    RETURN_CREATED(s, out, c, columns_close);
}

/* Reads the whole column, so that damage is found now. */
static enum status find_attached(struct columns *c, const char *name, struct error *err) {
    struct column **x = &c->attached[c->count];
    char *copy = c->names[c->count];
    (void)snprintf(copy, sizeof(c->names[0]), "%s", name);
    c->items[c->count++] = (struct state_column){.name = copy, .kind = SAMPLE_STATE_F32};
    TRY(column_open(x, file_system_of(c->directory), c->directory, name + strlen(ATTACHED),
                    c->dataset, err));
    const struct column_info *i = column_info(*x);
    FAIL_IF(i->values != 1, err, STATUS_USAGE,
            "column '%s' is %s of %" PRIu32 ": conditions need one number", i->name,
            column_kind_name(i->kind), i->values);
    return column_verify(*x, err);
}

enum status columns_find(int32_t *out, struct columns *c, const char *name, struct error *err) {
    for (*out = 0; *out < c->count; (*out)++) {
        if (strcmp(c->items[*out].name, name) == 0) {
            return STATUS_OK;
        }
    }
    FAIL_IF(c->count == MAX_COLUMNS, err, STATUS_LIMIT, "more than %d columns", MAX_COLUMNS);
    if (strncmp(name, ATTACHED, strlen(ATTACHED)) == 0) {
        return find_attached(c, name, err);
    }
    FAIL_IF(!c->checkpoint, err, STATUS_USAGE,
            "unknown field '%.40s'; per-sample state needs --state RUN, and a column col.NAME",
            name);
    return state_column_find(&c->items[c->count++], c->checkpoint, name, err);
}

double columns_value(const struct columns *c, int32_t column, uint64_t id) {
    const uint8_t *row = NULL;
    size_t row_bytes = 0;
    if (c->attached[column]) {
        return column_get(c->attached[column], NULL, id, &row, &row_bytes, NULL) == STATUS_OK
                   ? column_number(c->attached[column], row, 0)
                   : (double)NAN;
    }
    return id < c->ids.count ? state_column_value(&c->items[column], c->ids.first + id)
                             : (double)NAN;
}

bool columns_has(const struct columns *c, int32_t column, uint64_t id) {
    return c->attached[column] && column_has(c->attached[column], id);
}
