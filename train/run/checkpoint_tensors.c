/*
 * checkpoint_tensors: tensors of a checkpoint on request: weights, columns, feature caches; each
 * checked against the shape that the caller expects, against its hash, and for numbers that are not
 * finite.
 */
#include "train/run/checkpoint.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tensors/safetensors.h"
#include "train/run/checkpoint_internal.h"

static bool is_under(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* ---- numbers that are not finite ---- */

enum status checkpoint_check_numbers(const char *path,
                                     const char *name,
                                     const float *values,
                                     uint64_t first,
                                     uint64_t count,
                                     bool unset_ok,
                                     struct error *err) {
    const bool weights = !is_under(name, "adamw.") && !is_under(name, "sgdm.") &&
                         !is_under(name, TENSOR_STATE) && !is_under(name, "cache.");
    const float most = weights ? 0x1p63f : FLT_MAX;
    for (uint64_t i = 0; i < count; i++) {
        const float v = values[i];
        if (!(fabsf(v) <= most) && !(unset_ok && isnan(v))) {
            return error_set(err, STATUS_CORRUPT,
                             "%s: tensor %s has the value %g at %" PRIu64
                             "; training diverged: lower the learning rate",
                             path, name, isnan(v) ? (double)NAN : (double)v, first + i);
        }
    }
    return STATUS_OK;
}

struct numbers_check {
    const struct checkpoint *c;
    const char *name;
    bool unset_ok;
    uint64_t at;
    enum status status;
    struct error why;
};

static void check_piece(void *cookie, const void *piece, size_t size_bytes) {
    struct numbers_check *k = cookie;
    const uint64_t count = size_bytes / sizeof(float);
    THEN(k->status,
         checkpoint_check_numbers(k->c->path, k->name, piece, k->at, count, k->unset_ok, &k->why));
    k->at += count;
}

enum status checkpoint_check_finite(const struct checkpoint *c, struct error *err) {
    REQUIRE(c != NULL);
    for (size_t i = 0; i < safetensors_count(c->file) && !c->foreign; i++) { /* as it is loaded */
        const struct safetensors_info *info = safetensors_at(c->file, i);
        struct numbers_check k = {.c = c,
                                  .name = info->name,
                                  .unset_ok = is_under(info->name, TENSOR_STATE) ||
                                              is_under(info->name, "cache.")};
        if (info->dtype == SAFETENSORS_F32) {
            TRY(safetensors_read_pieces(c->file, info, check_piece, &k, err));
            FAIL_IF(k.status != STATUS_OK, err, k.status, "%s", k.why.text);
        }
    }
    return STATUS_OK;
}

enum status checkpoint_swap_average(struct safetensors *file, const char *path, struct error *err) {
    return safetensors_swap_names(file, PREFIX_AVERAGE) > 0
               ? STATUS_OK
               : error_set(err, STATUS_USAGE,
                           "--ema: %s has no averages of its weights; it was trained without --ema",
                           path);
}

enum status checkpoint_use_average(struct checkpoint *c, struct error *err) {
    return checkpoint_swap_average(c->file, c->path, err);
}

/* ---- tensors ---- */

static enum status load_param(const struct checkpoint *c,
                              struct params *p,
                              int32_t index,
                              enum param_slot slot,
                              float *host,
                              struct error *err) {
    const struct param_info info = params_info(p, index);
    char name[CHECKPOINT_NAME_BYTES];
    checkpoint_param_name(name, p, &info, slot);
    const struct safetensors_info *found = safetensors_find(c->file, name);
    bool same =
        found != NULL && found->dtype == SAFETENSORS_F32 && found->dim_count == (uint32_t)info.ndim;
    for (int32_t d = 0; same && d < info.ndim; d++) {
        same = found->shape[d] == (uint64_t)info.shape[d];
    }
    FAIL_IF(!same, err, STATUS_MISMATCH,
            "%s: tensor %s is %s; the model was built with other options", c->path, name,
            found == NULL ? "missing" : "of another shape");
    const size_t size_bytes = (size_t)info.count * sizeof *host;
    TRY(safetensors_read(c->file, found, host, size_bytes, err));
    TRY(checkpoint_check_numbers(c->path, name, host, 0, (uint64_t)info.count, false, err));
    return params_write(p, index, slot, host, size_bytes, err);
}

/* Memory for the table's largest tensor; NULL: out of memory. */
static float *room_for_largest(const struct params *p) {
    int64_t largest = 1;
    for (int32_t i = 0; i < params_count(p); i++) {
        const int64_t count = params_info(p, i).count;
        largest = count > largest ? count : largest;
    }
    return malloc((size_t)largest * sizeof(float));
}

enum status checkpoint_load_params(const struct checkpoint *c,
                                   struct params *p,
                                   bool moments,
                                   struct error *err) {
    REQUIRE(c != NULL && p != NULL && params_dtype(p) == DTYPE_F32);
    if (c->foreign || (!moments && c->model.open_clip[0] != '\0')) {
        return pretrained_load_model(p, c->names, c->foreign, c->file, c->path, err);
    }
    float *host = room_for_largest(p);
    TRY_MEMORY(host != NULL, err, "%s: no memory to read the model", c->path);
    enum status s = STATUS_OK;
    for (size_t k = 0; k < CHECKPOINT_SLOT_COUNT && (k == 0 || moments); k++) {
        for (int32_t i = 0; s == STATUS_OK && i < params_count(p); i++) {
            if (checkpoint_has_slot(p, i, checkpoint_slots[k])) {
                s = load_param(c, p, i, checkpoint_slots[k], host, err);
            }
        }
    }
    free(host);
    return s;
}

/* ---- columns ---- */

enum status checkpoint_column(const struct checkpoint *c,
                              uint32_t index,
                              struct checkpoint_column *out,
                              struct error *err) {
    REQUIRE(c != NULL && out != NULL);
    const struct safetensors_info *info = NULL;
    for (size_t i = 0; i < safetensors_count(c->file) && info == NULL; i++) {
        const struct safetensors_info *one = safetensors_at(c->file, i);
        const bool is_column = strncmp(one->name, TENSOR_STATE, strlen(TENSOR_STATE)) == 0;
        info = is_column && index-- == 0 ? one : NULL;
    }
    if (info == NULL) {
        return STATUS_END;
    }
    FAIL_IF((info->dtype != SAFETENSORS_F32 && info->dtype != SAFETENSORS_U64) ||
                info->dim_count != 1,
            err, STATUS_CORRUPT, "%s: tensor %s is not a column of numbers", c->path, info->name);
    out->name = info->name + strlen(TENSOR_STATE);
    out->ids = info->element_count;
    const bool of_texts = is_under(out->name, "text.");
    const char *name = of_texts ? out->name + strlen("text.") : out->name;
    out->kind = info->dtype == SAFETENSORS_F32 ? SAMPLE_STATE_F32
                : strcmp(name, "visits") == 0  ? SAMPLE_STATE_COUNT
                                               : SAMPLE_STATE_ID;
    out->by_caption = of_texts && c->captions != NULL;
    FAIL_IF(out->by_caption && out->ids != c->captions[c->position.id_space_count], err,
            STATUS_CORRUPT, "%s: tensor %s is not of the captions that the file counts", c->path,
            info->name);
    return STATUS_OK;
}

struct range {
    unsigned char *out;
    uint64_t begin, end; /* requested bytes of the column */
    uint64_t at;
};

static void copy_range(void *cookie, const void *piece, size_t size_bytes) {
    struct range *r = cookie;
    const uint64_t from = r->at > r->begin ? r->at : r->begin;
    const uint64_t to = r->at + size_bytes < r->end ? r->at + size_bytes : r->end;
    if (from < to) {
        memcpy(r->out + (from - r->begin), (const unsigned char *)piece + (from - r->at),
               (size_t)(to - from));
    }
    r->at += size_bytes;
}

enum status checkpoint_read_column(const struct checkpoint *c,
                                   const struct checkpoint_column *column,
                                   void *values,
                                   uint64_t first,
                                   uint64_t count,
                                   struct error *err) {
    REQUIRE(c != NULL && column != NULL && (values != NULL || count == 0));
    REQUIRE(first <= column->ids && count <= column->ids - first);
    char name[CHECKPOINT_NAME_BYTES];
    (void)snprintf(name, sizeof name, TENSOR_STATE "%s", column->name);
    const struct safetensors_info *info = safetensors_find(c->file, name);
    REQUIRE(info != NULL);
    const uint64_t entry_bytes = safetensors_dtype_bytes(info->dtype);
    struct range r = {values, first * entry_bytes, (first + count) * entry_bytes, 0};
    TRY(safetensors_read_pieces(c->file, info, copy_range, &r, err));
    return column->kind == SAMPLE_STATE_F32
               ? checkpoint_check_numbers(c->path, name, values, first, count, true, err)
               : STATUS_OK;
}

struct column_place {
    struct sample_state *state;
    int32_t column;
    uint64_t id; /* of the next entry */
    size_t entry_bytes;
    struct numbers_check check;
};

static void put_piece(void *cookie, const void *piece, size_t size_bytes) {
    struct column_place *to = cookie;
    const uint64_t count = size_bytes / to->entry_bytes;
    if (sample_state_kind(to->state, to->column) == SAMPLE_STATE_F32) {
        check_piece(&to->check, piece, size_bytes);
    }
    sample_state_put(to->state, to->column, to->id, piece, count);
    to->id += count;
}

static enum status load_column(const struct checkpoint *c,
                               struct sample_state *state,
                               int32_t column,
                               struct error *err) {
    char name[CHECKPOINT_NAME_BYTES];
    (void)snprintf(name, sizeof name, TENSOR_STATE "%s", sample_state_name(state, column));
    const struct safetensors_info *found = safetensors_find(c->file, name);
    if (found == NULL && c->version == 1 && sample_state_kind(state, column) != SAMPLE_STATE_F32) {
        return STATUS_OK; /* there were none of u64 */
    }
    FAIL_IF(found == NULL || found->dtype != checkpoint_column_dtype(state, column) ||
                found->dim_count != 1,
            err, STATUS_MISMATCH, "%s: no state %s; the run was made with loss %s", c->path, name,
            c->loss_name);
    FAIL_IF(found->shape[0] > sample_state_id_space(state), err, STATUS_MISMATCH,
            "%s: state %s is for %" PRIu64 " ids, the dataset has %" PRIu64, c->path, name,
            found->shape[0], sample_state_id_space(state));
    struct column_place to = {
        .state = state,
        .column = column,
        .entry_bytes = safetensors_dtype_bytes(found->dtype),
        .check = {.c = c, .name = name, .unset_ok = isnan(sample_state_initial(state, column))}};
    TRY(safetensors_read_pieces(c->file, found, put_piece, &to, err));
    FAIL_IF(to.check.status != STATUS_OK, err, to.check.status, "%s", to.check.why.text);
    return STATUS_OK;
}

enum status checkpoint_load_state(const struct checkpoint *c,
                                  struct sample_state *state,
                                  const struct loss_scalar *scalars,
                                  int32_t scalar_count,
                                  struct error *err) {
    REQUIRE(c != NULL && state != NULL);
    for (int32_t i = 0; i < sample_state_count(state); i++) {
        TRY(load_column(c, state, i, err));
    }
    return checkpoint_load_scalars(c, scalars, scalar_count, err);
}

static enum status load_cache(const struct checkpoint *c,
                              const char *name,
                              struct feature_cache *cache,
                              struct error *err) {
    const struct safetensors_info *found = safetensors_find(c->file, name);
    if (cache == NULL || found == NULL) {
        return STATUS_OK;
    }
    const struct feature_cache_options *o = feature_cache_shape(cache);
    FAIL_IF(found->dtype != SAFETENSORS_F32 || found->dim_count != 2 ||
                found->shape[0] != o->id_count || found->shape[1] != (uint64_t)o->dim,
            err, STATUS_MISMATCH, "%s: tensor %s is not of %" PRIu64 " ids by %lld", c->path, name,
            o->id_count, (long long)o->dim);
    TRY(safetensors_read(c->file, found, feature_cache_rows(cache), (size_t)found->size_bytes,
                         err));
    TRY(checkpoint_check_numbers(c->path, name, feature_cache_rows(cache), 0, found->element_count,
                                 true, err));
    feature_cache_set_filled(cache);
    return STATUS_OK;
}

enum status checkpoint_load_cache(const struct checkpoint *c,
                                  struct feature_cache *image_cache,
                                  struct feature_cache *text_cache,
                                  struct error *err) {
    REQUIRE(c != NULL);
    TRY(load_cache(c, TENSOR_IMAGE_CACHE, image_cache, err));
    return load_cache(c, TENSOR_TEXT_CACHE, text_cache, err);
}
