/*
 * The columns of a checkpoint, read on request.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/c/api_entry_internal.h"
#include "bindings/c/column_internal.h"
#include "train/run/checkpoint.h"

_Static_assert((int)CCS_COLUMN_F32 == (int)SAMPLE_STATE_F32 &&
                   (int)CCS_COLUMN_COUNT == (int)SAMPLE_STATE_COUNT &&
                   (int)CCS_COLUMN_ID == (int)SAMPLE_STATE_ID,
               "kinds of columns have the same numbers");

struct ccs_state {
    struct checkpoint *checkpoint;
};

static enum status open_state(struct ccs_state **out, const char *path, struct error *err) {
    CHECK_ARGUMENT(out != NULL, err, "out is NULL");
    *out = NULL;
    CHECK_ARGUMENT(path != NULL, err, "path is NULL");
    struct ccs_state *s = calloc(1, sizeof(*s));
    TRY_MEMORY(s, err, "%s: out of memory", path);
    const struct api_numbers n = api_enter_numbers();
    const enum status status = checkpoint_open_state(&s->checkpoint, file_posix(), path, err);
    api_leave_numbers(n);
    if (status != STATUS_OK) {
        free(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

int32_t ccs_state_open(struct ccs_state **out, const char *path, struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, open_state(out, path, &e), &e);
}

void ccs_state_close(struct ccs_state *s) {
    if (s != NULL) {
        checkpoint_close(s->checkpoint);
        free(s);
    }
}

static enum status
get_info(const struct ccs_state *s, struct ccs_state_info *info, struct error *err) {
    CHECK_ARGUMENT(s != NULL && info != NULL, err, "the state or info is NULL");
    const struct train_position *p = checkpoint_position(s->checkpoint);
    const struct ccs_state_info mine = {
        .loss = checkpoint_loss_name(s->checkpoint),
        .step = p->step,
        .fingerprint = p->fingerprint,
        .samples = p->samples_count,
        .id_space = p->id_space_count,
        .first_caption = checkpoint_captions(s->checkpoint),
    };
    return api_give(info, &mine, sizeof(mine), err);
}

int32_t
ccs_state_get_info(const struct ccs_state *s, struct ccs_state_info *info, struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, get_info(s, info, &e), &e);
}

static enum status
column_at(const struct ccs_state *s, uint32_t i, struct ccs_column *out, struct error *err) {
    CHECK_ARGUMENT(s != NULL && out != NULL, err, "the state or out is NULL");
    struct checkpoint_column column;
    const enum status found = checkpoint_column(s->checkpoint, i, &column, err);
    FAIL_IF(found == STATUS_END, err, STATUS_NOTFOUND, "there is no column %" PRIu32, i);
    TRY(found);
    const struct ccs_column mine = {
        .name = column.name, .ids = column.ids, .kind = (int32_t)column.kind};
    return api_give(out, &mine, sizeof(mine), err);
}

int32_t ccs_state_column(const struct ccs_state *s,
                         uint32_t i,
                         struct ccs_column *out,
                         struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, column_at(s, i, out, &e), &e);
}

enum status column_check_range(const char *name,
                               uint64_t ids,
                               uint64_t first,
                               uint64_t count,
                               struct error *err) {
    FAIL_IF(first > ids || count > ids - first, err, STATUS_NOTFOUND,
            "column %s: %" PRIu64 " entries from %" PRIu64 " on are beyond its %" PRIu64, name,
            count, first, ids);
    return STATUS_OK;
}

static enum status find(const struct ccs_state *s,
                        const char *name,
                        struct checkpoint_column *out,
                        struct error *err) {
    for (uint32_t i = 0;; i++) {
        const enum status found = checkpoint_column(s->checkpoint, i, out, err);
        FAIL_IF(found == STATUS_END, err, STATUS_NOTFOUND, "there is no column %.100s", name);
        TRY(found);
        if (strcmp(out->name, name) == 0) {
            return STATUS_OK;
        }
    }
}

static enum status read_column(const struct ccs_state *s,
                               const char *name,
                               void *values,
                               uint64_t first,
                               uint64_t count,
                               struct error *err) {
    CHECK_ARGUMENT(s != NULL && name != NULL, err, "the state or the name is NULL");
    CHECK_ARGUMENT(values != NULL || count == 0, err, "values is NULL");
    struct checkpoint_column column;
    TRY(find(s, name, &column, err));
    TRY(column_check_range(name, column.ids, first, count, err));
    return checkpoint_read_column(s->checkpoint, &column, values, first, count, err);
}

int32_t ccs_state_read(const struct ccs_state *s,
                       const char *column,
                       void *values,
                       uint64_t first,
                       uint64_t count,
                       struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, read_column(s, column, values, first, count, &e), &e);
}
