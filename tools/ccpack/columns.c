/*
 * A column is read whole when an expression names it.
 */
#include "tools/ccpack/columns.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/tensors/safetensors.h"
#include "tools/cli/npy.h"
#include "train/run/checkpoint.h"

#define STATE_PREFIX "state."
#define SCORE        "score"

enum { MAX_COLUMNS = 16 };

/* Numbers of consecutive ids from 0 on, of one of the two types. */
struct column {
    char name[SAMPLE_STATE_NAME_BYTES];
    float *f32;
    uint64_t *u64;
    uint64_t first, count; /* entries of the dataset's ids */
};

struct columns {
    struct checkpoint *checkpoint; /* NULL: none */
    struct safetensors *file;
    uint64_t id_offset, id_count; /* where the dataset's ids are in the checkpoint */
    struct column items[MAX_COLUMNS];
    int32_t count;
};

void columns_close(struct columns *c) {
    if (c) {
        for (int32_t i = 0; i < c->count; i++) {
            free(c->items[i].f32);
            free(c->items[i].u64);
        }
        safetensors_close(c->file);
        checkpoint_close(c->checkpoint);
        free(c);
    }
}

static enum status
open_checkpoint(struct columns *c, const char *path, const struct manifest *m, struct error *err) {
    TRY(checkpoint_open(&c->checkpoint, file_posix(), path, err));
    TRY(safetensors_open(&c->file, file_posix(), checkpoint_path(c->checkpoint), err));
    const struct train_position *p = checkpoint_position(c->checkpoint);
    for (uint64_t i = 0; i < p->source_count; i++) {
        if (manifest_has_been(m, p->sources[i].fingerprint)) {
            const uint64_t end =
                i + 1 < p->source_count ? p->sources[i + 1].id_offset : p->id_space_count;
            c->id_offset = p->sources[i].id_offset;
            c->id_count = end - c->id_offset;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_MISMATCH,
                     "%s: was not trained on this dataset, whose fingerprint is %016" PRIx64,
                     checkpoint_path(c->checkpoint), m->fingerprint);
}

static enum status
open_scores(struct columns *c, const char *path, const struct manifest *m, struct error *err) {
    struct column *x = &c->items[c->count];
    void *scores = NULL;
    uint64_t columns = 0;
    *x = (struct column){.name = SCORE};
    TRY(npy_read(path, "<f4", &scores, &x->count, &columns, err));
    x->f32 = scores;
    c->count++;
    if (columns != 0 || x->count != m->id_space) {
        return error_set(err, STATUS_MISMATCH,
                         "%s: has %" PRIu64 " scores, the dataset %" PRIu64
                         " ids; 'ccstream-eval score' makes one for each id",
                         path, x->count, m->id_space);
    }
    return STATUS_OK;
}

enum status columns_open(struct columns **out,
                         const char *checkpoint,
                         const char *scores,
                         const struct manifest *dataset,
                         struct error *err) {
    *out = NULL;
    struct columns *c = calloc(1, sizeof(*c));
    if (!c) {
        return error_set(err, STATUS_NOMEM, "out of memory for columns");
    }
    enum status s = scores ? open_scores(c, scores, dataset, err) : STATUS_OK;
    if (s == STATUS_OK && checkpoint) {
        s = open_checkpoint(c, checkpoint, dataset, err);
    }
    if (s != STATUS_OK) {
        columns_close(c);
        return s;
    }
    *out = c;
    return STATUS_OK;
}

/* The checkpoint's column of this name, or the one that has it after its side. NULL: none, or both
 * sides have it. */
static const struct safetensors_info *find_tensor(const struct columns *c, const char *name) {
    const struct safetensors_info *found = NULL;
    int sides = 0;
    for (size_t i = 0; c->file && i < safetensors_count(c->file); i++) {
        const struct safetensors_info *info = safetensors_at(c->file, i);
        if (strncmp(info->name, STATE_PREFIX, strlen(STATE_PREFIX)) != 0) {
            continue;
        }
        const char *full = info->name + strlen(STATE_PREFIX);
        const char *dot = strchr(full, '.');
        if (strcmp(full, name) == 0) {
            return info;
        }
        if (dot && strcmp(dot + 1, name) == 0) {
            found = info;
            sides++;
        }
    }
    return sides == 1 ? found : NULL;
}

static enum status no_column(const struct columns *c, const char *name, struct error *err) {
    char names[300] = "";
    const char *separator = "";
    for (size_t i = 0; c->file && i < safetensors_count(c->file); i++) {
        const char *full = safetensors_at(c->file, i)->name;
        const size_t used = strlen(names);
        if (strncmp(full, STATE_PREFIX, strlen(STATE_PREFIX)) == 0) {
            snprintf(names + used, sizeof(names) - used, "%s%s", separator,
                     full + strlen(STATE_PREFIX));
            separator = ", ";
        }
    }
    if (!c->file) {
        return error_set(err, STATUS_USAGE,
                         "'%.40s' is no fact of a sample; columns of a run need --state RUN, and "
                         "'" SCORE "' needs --score FILE",
                         name);
    }
    return error_set(err, STATUS_USAGE, "'%.40s' is none of the run's columns: %s", name, names);
}

static enum status read_column(struct column *x,
                               const struct columns *c,
                               const struct safetensors_info *info,
                               struct error *err) {
    const char *path = checkpoint_path(c->checkpoint);
    const bool f32 = info->dtype == SAFETENSORS_F32;
    if ((!f32 && info->dtype != SAFETENSORS_U64) || info->dim_count != 1) {
        return error_set(err, STATUS_CORRUPT, "%s: tensor %s is not a column of numbers", path,
                         info->name);
    }
    void *values = malloc((size_t)info->size_bytes + 1);
    if (!values) {
        return error_set(err, STATUS_NOMEM, "%s: no memory for %" PRIu64 " numbers", path,
                         info->element_count);
    }
    x->f32 = f32 ? values : NULL;
    x->u64 = f32 ? NULL : values;
    x->first = c->id_offset;
    x->count = info->element_count > c->id_offset ? info->element_count - c->id_offset : 0;
    x->count = x->count < c->id_count ? x->count : c->id_count;
    return safetensors_read(c->file, info, values, (size_t)info->size_bytes, err);
}

enum status columns_find(int32_t *out, struct columns *c, const char *name, struct error *err) {
    const struct safetensors_info *info = find_tensor(c, name);
    const char *full = info ? info->name + strlen(STATE_PREFIX) : name;
    for (*out = 0; *out < c->count; (*out)++) {
        if (strcmp(c->items[*out].name, full) == 0) {
            return STATUS_OK;
        }
    }
    if (!info) {
        return no_column(c, name, err);
    }
    if (c->count == MAX_COLUMNS || strlen(full) >= sizeof(c->items[0].name)) {
        return error_set(err, STATUS_LIMIT, "more than %d columns", MAX_COLUMNS);
    }
    struct column *x = &c->items[c->count++];
    *x = (struct column){.count = 0};
    memcpy(x->name, full, strlen(full) + 1);
    return read_column(x, c, info, err);
}

double columns_value(const struct columns *c, int32_t column, uint64_t id) {
    const struct column *x = &c->items[column];
    if (id >= x->count) {
        return (double)NAN;
    }
    if (x->f32) {
        return (double)x->f32[x->first + id];
    }
    const uint64_t value = x->u64[x->first + id];
    return value == SAMPLE_STATE_NO_ID ? (double)NAN : (double)value;
}
