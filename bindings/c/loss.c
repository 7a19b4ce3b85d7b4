/*
 * A loss of train/loss with a sample state of its own, on one rank and on the host.
 */
#include "train/loss/loss.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/c/api_entry_internal.h"
#include "bindings/c/column_internal.h"
#include "train/loss/loss_row.h"
#include "train/run/checkpoint.h"

struct ccs_loss {
    const struct loss_row *row;
    struct loss *loss;
    struct sample_state *state;
    uint64_t samples;
    uint32_t max_batch, positives;
};

/* ---- options ----------------------------------------------------------------------------------
 */

/* Finds the row and sets the given options, which it must read. */
static enum status take_options(struct loss_options *o,
                                const struct loss_row **row,
                                bool given[LOSS_OPTION_COUNT],
                                const char *const *options,
                                uint32_t count,
                                struct error *err) {
    TRY(loss_find_row(row, o, err));
    for (uint32_t i = 0; i < count; i++) {
        enum loss_option which = LOSS_OPTION_NONE;
        CHECK_ARGUMENT(options[i] != NULL, err, "an option is NULL");
        const struct api_numbers n = api_enter_numbers();
        const enum status s = loss_option_parse(o, &which, options[i], err);
        api_leave_numbers(n);
        TRY(s);
        given[which] = true;
    }
    for (int i = LOSS_OPTION_NONE + 1; i < LOSS_OPTION_COUNT; i++) {
        FAIL_IF(given[i] && !loss_reads(*row, o, (enum loss_option)i), err, STATUS_USAGE,
                "loss %s does not read %s", (*row)->name, loss_option_rows[i].name);
    }
    return STATUS_OK;
}

/* What the trainer derives from its own options has no default here. */
static enum status check_option(const struct loss_row *row,
                                const struct loss_options *o,
                                enum loss_option which,
                                bool given,
                                struct error *err) {
    const char *name = loss_option_rows[which].name;
    const bool by_step = (which == LOSS_ZETA_LR && o->zeta_lr != LOSS_AUTO) ||
                         which == LOSS_ZETA_LR_IMAGE_RATIO ||
                         (which == LOSS_ZETA_FREEZE_EPOCHS && !o->zeta_by_visit);
    const bool by_epochs = which == LOSS_GAMMA_EPOCHS || which == LOSS_BETA_EPOCHS;
    FAIL_IF(given && by_step, err, STATUS_USAGE,
            "loss %s: pass zeta_lr_image and zeta_lr_text per step instead of %s", row->name, name);
    FAIL_IF(loss_reads(row, o, which) && by_epochs &&
                loss_option_value(o, &loss_option_rows[which]) == 0.0,
            err, STATUS_USAGE, "loss %s: %s must be given, at least 1", row->name, name);
    return STATUS_OK;
}

static enum status option_at(const char *name,
                             bool views,
                             const char *const *options,
                             uint32_t count,
                             uint32_t at,
                             struct ccs_loss_option *out,
                             struct error *err) {
    const struct loss_row *row = NULL;
    bool given[LOSS_OPTION_COUNT] = {false};
    struct loss_options o;
    CHECK_ARGUMENT(out != NULL && name != NULL && (options != NULL || count == 0), err,
                   "out, name or options is NULL");
    loss_options_default(&o);
    o.name = name;
    o.views = views;
    TRY(take_options(&o, &row, given, options, count, err));
    TRY(loss_complete_options(&o, row, err));
    for (int i = LOSS_OPTION_NONE + 1; i < LOSS_OPTION_COUNT; i++) {
        if (!loss_reads(row, &o, (enum loss_option)i) || at-- > 0) {
            continue;
        }
        const struct loss_option_row *option = &loss_option_rows[i];
        struct ccs_loss_option mine = {.name = option->name,
                                       .value = loss_option_value(&o, option)};
        if (option->choices != NULL) {
            mine.choice = option->choices[(int)mine.value];
        } else if (option->automatic && mine.value == LOSS_AUTO) {
            mine.choice = "auto";
        }
        return api_give(out, &mine, sizeof(mine), err);
    }
    return error_set(err, STATUS_NOTFOUND, "loss %s reads fewer options", row->name);
}

int32_t ccs_loss_option(const char *name,
                        bool views,
                        const char *const *options,
                        uint32_t option_count,
                        uint32_t i,
                        struct ccs_loss_option *out,
                        struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, option_at(name, views, options, option_count, i, out, &e), &e);
}

static enum status
check_sizes(uint64_t samples, uint64_t id_space, uint32_t max_batch, struct error *err) {
    CHECK_ARGUMENT(samples >= 2 && samples <= id_space, err,
                   "samples must be at least 2, and no more than id_space");
    CHECK_ARGUMENT(max_batch >= 2 && max_batch <= LOSS_MAX_WHOLE, err,
                   "max_batch must be from 2 to 32768");
    return STATUS_OK;
}

/* ---- open and close ---------------------------------------------------------------------------
 */

static enum status
create(struct ccs_loss *l, const struct loss_options *o, uint64_t id_space, struct error *err) {
    TRY(sample_state_create(&l->state, id_space, NULL, err));
    TRY(loss_create(&l->loss, o, l->state, l->samples, l->max_batch, err));
    l->positives = loss_positives(o);
    return STATUS_OK;
}

int32_t ccs_loss_open(struct ccs_loss **out,
                      const char *name,
                      bool views,
                      const char *const *options,
                      uint32_t option_count,
                      uint64_t samples,
                      uint64_t id_space,
                      uint32_t max_batch,
                      struct ccs_error *err) {
    struct error e = {0};
    struct ccs_loss *l = NULL;
    struct loss_options o;
    const struct loss_row *row = NULL;
    bool given[LOSS_OPTION_COUNT] = {false};
    enum status s = STATUS_INVALID;
    if (out != NULL) {
        *out = NULL;
    }
    if (out == NULL || name == NULL || (options == NULL && option_count > 0)) {
        return api_result(err, error_set(&e, s, "out, name or options is NULL"), &e);
    }
    loss_options_default(&o);
    o.name = name;
    o.views = views;
    s = check_sizes(samples, id_space, max_batch, &e);
    s = s == STATUS_OK ? take_options(&o, &row, given, options, option_count, &e) : s;
    o.zeta_by_visit = given[LOSS_ZETA_LR];
    for (int i = LOSS_OPTION_NONE + 1; s == STATUS_OK && i < LOSS_OPTION_COUNT; i++) {
        s = check_option(row, &o, (enum loss_option)i, given[i], &e);
    }
    if (s == STATUS_OK && (l = calloc(1, sizeof(*l))) == NULL) {
        s = error_set(&e, STATUS_NOMEM, "out of memory for a loss");
    }
    if (s == STATUS_OK) {
        *l = (struct ccs_loss){.row = row, .samples = samples, .max_batch = max_batch};
        o.name = row->name;
        s = create(l, &o, id_space, &e);
    }
    if (s == STATUS_OK) {
        *out = l;
    } else {
        ccs_loss_close(l);
    }
    return api_result(err, s, &e);
}

void ccs_loss_close(struct ccs_loss *l) {
    if (l != NULL) {
        loss_destroy(l->loss);
        sample_state_destroy(l->state);
        free(l);
    }
}

static enum status
check_batch(const struct ccs_loss *l, const uint64_t *ids, uint32_t batch, struct error *err) {
    FAIL_IF(batch < 2 || batch > l->max_batch || batch % l->positives != 0, err, STATUS_INVALID,
            "batch %" PRIu32 ": must be from 2 to %" PRIu32 " and a multiple of %" PRIu32, batch,
            l->max_batch, l->positives);
    for (uint32_t i = 0; i < batch; i++) {
        FAIL_IF(ids[i] >= sample_state_id_space(l->state), err, STATUS_INVALID,
                "id %" PRIu64 " is not below the id space, %" PRIu64, ids[i],
                sample_state_id_space(l->state));
    }
    return STATUS_OK;
}

/* ---- samples beyond the batch -----------------------------------------------------------------
 */

static int32_t beyond(const struct ccs_loss *l) {
    return !loss_carries(l->loss)              ? CCS_BEYOND_NONE
           : loss_cache_refresh(l->loss) > 0.0 ? CCS_BEYOND_DRAWN
                                               : CCS_BEYOND_NAMED;
}

int32_t ccs_loss_beyond(const struct ccs_loss *l) {
    return l != NULL ? beyond(l) : CCS_BEYOND_NONE;
}

static enum status
carried(struct ccs_loss *l, uint64_t *out, const uint64_t *ids, uint32_t batch, struct error *err) {
    CHECK_ARGUMENT(l != NULL && out != NULL && ids != NULL, err, "the loss, out or ids is NULL");
    FAIL_IF(beyond(l) != CCS_BEYOND_NAMED, err, STATUS_UNSUPPORTED,
            "loss %s uses no off-batch samples", l->row->name);
    TRY(check_batch(l, ids, batch, err));
    return loss_carried(l->loss, out, NULL, ids, batch, err);
}

int32_t ccs_loss_carried(struct ccs_loss *l,
                         uint64_t *out,
                         const uint64_t *ids,
                         uint32_t batch,
                         struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, carried(l, out, ids, batch, &e), &e);
}

/* The batch is checked already. */
static enum status check_carried(const struct ccs_loss *l,
                                 const struct ccs_loss_input *in,
                                 const struct ccs_loss_output *out,
                                 struct error *err) {
    const uint64_t id_space = sample_state_id_space(l->state);
    if (beyond(l) == CCS_BEYOND_NONE) {
        CHECK_ARGUMENT(in->carried_ids == NULL && in->carried_similarity == NULL &&
                           out->carried_gradient == NULL,
                       err, "this loss uses no off-batch samples");
        return STATUS_OK;
    }
    CHECK_ARGUMENT(in->carried_ids != NULL && in->carried_similarity != NULL &&
                       out->carried_gradient != NULL,
                   err,
                   "this loss requires off-batch samples: pass carried_ids, carried_similarity and "
                   "carried_gradient");
    for (uint32_t i = 0; i < 2 * in->batch_size; i++) {
        const uint64_t id = in->carried_ids[i];
        FAIL_IF(id != SAMPLE_STATE_NO_ID && id >= id_space, err, STATUS_INVALID,
                "carried id %" PRIu64 " is not below the id space, %" PRIu64, id, id_space);
    }
    return STATUS_OK;
}

/* ---- a step -----------------------------------------------------------------------------------
 */

static enum status check_step(const struct ccs_loss *l,
                              const struct ccs_loss_input *in,
                              const struct ccs_loss_output *out,
                              struct error *err) {
    CHECK_ARGUMENT(in->similarity != NULL && in->ids != NULL && out->gradient != NULL, err,
                   "similarity, ids or gradient is NULL");
    if (loss_uses_self(l->loss)) {
        CHECK_ARGUMENT(in->image_similarity != NULL && in->text_similarity != NULL &&
                           out->image_gradient != NULL && out->text_gradient != NULL,
                       err, "this loss requires similarities of images and of texts");
    } else {
        CHECK_ARGUMENT(in->image_similarity == NULL && in->text_similarity == NULL &&
                           out->image_gradient == NULL && out->text_gradient == NULL,
                       err, "this loss reads no similarities of images or of texts");
    }
    TRY(check_batch(l, in->ids, in->batch_size, err));
    TRY(check_carried(l, in, out, err));
    CHECK_ARGUMENT(isfinite(in->lr) && isfinite(in->zeta_lr_image) && isfinite(in->zeta_lr_text),
                   err, "a learning rate is not finite");
    return STATUS_OK;
}

/* Moves the entries of the batch's samples between the columns and `room` (columns, batch). */
static void move_entries(struct ccs_loss *l,
                         uint64_t *room,
                         const uint64_t *ids,
                         uint32_t batch,
                         bool into_columns) {
    for (int32_t c = 0; c < sample_state_count(l->state); c++) {
        const bool f32 = sample_state_kind(l->state, c) == SAMPLE_STATE_F32;
        const size_t size = f32 ? sizeof(float) : sizeof(uint64_t);
        const char *own = sample_state_values(l->state, c, &(size_t){0});
        for (uint32_t i = 0; i < batch; i++, room++) {
            if (into_columns) {
                sample_state_put(l->state, c, ids[i], room, 1);
            } else {
                memcpy(room, own + (size_t)ids[i] * size, size);
            }
        }
    }
}

/* loss_step that leaves the state as it was. */
static enum status frozen_step(struct ccs_loss *l,
                               const struct loss_input *in,
                               struct loss_output *out,
                               struct error *err) {
    const struct loss_scalar *scalars = NULL;
    const int32_t count = loss_scalars(l->loss, &scalars);
    double kept[LOSS_MAX_SCALARS];
    const uint32_t batch = (uint32_t)in->batch_count;
    uint64_t *room = calloc((size_t)sample_state_count(l->state) * batch, sizeof *room);
    TRY_MEMORY(room, err, "out of memory for the state of a batch");
    for (int32_t i = 0; i < count; i++) {
        kept[i] = *scalars[i].value;
    }
    move_entries(l, room, in->sample_ids, batch, false);
    const enum status s = loss_step(l->loss, in, out, err);
    move_entries(l, room, in->sample_ids, batch, true);
    for (int32_t i = 0; i < count; i++) {
        *scalars[i].value = kept[i];
    }
    free(room);
    return s;
}

static enum status step(struct ccs_loss *l,
                        const struct ccs_loss_input *theirs,
                        struct ccs_loss_output *out,
                        struct error *err) {
    struct ccs_loss_input in = {0};
    struct ccs_loss_output to = {0};
    CHECK_ARGUMENT(l != NULL && theirs != NULL && out != NULL, err, "the loss, in or out is NULL");
    TRY(api_take(&in, sizeof(in), theirs, err));
    TRY(api_take(&to, sizeof(to), out, err));
    TRY(check_step(l, &in, &to, err));
    const struct loss_input mine = {
        .similarity = in.similarity,
        .image_similarity = in.image_similarity,
        .text_similarity = in.text_similarity,
        .sample_ids = in.ids,
        .carried_ids = in.carried_ids,
        .carried_similarity = in.carried_similarity,
        .batch_count = in.batch_size,
        .step = in.step,
        .epoch = in.epoch,
        .lr = in.lr,
        .zeta_lr_text = in.zeta_lr_text,
        .zeta_lr_image = in.zeta_lr_image,
    };
    struct loss_output result = {
        .gradient = to.gradient,
        .image_gradient = to.image_gradient,
        .text_gradient = to.text_gradient,
        .carried_gradient = to.carried_gradient,
    };
    TRY(in.frozen != 0 ? frozen_step(l, &mine, &result, err)
                       : loss_step(l->loss, &mine, &result, err));
    to.value = result.value;
    to.objective = result.objective;
    to.tau = result.tau;
    return api_give(out, &to, sizeof(to), err);
}

int32_t ccs_loss_step(struct ccs_loss *l,
                      const struct ccs_loss_input *in,
                      struct ccs_loss_output *out,
                      struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, step(l, in, out, &e), &e);
}

/* ---- columns ----------------------------------------------------------------------------------
 */

static enum status
column_at(const struct ccs_loss *l, uint32_t i, struct ccs_column *out, struct error *err) {
    CHECK_ARGUMENT(l != NULL && out != NULL, err, "the loss or out is NULL");
    FAIL_IF(i >= (uint32_t)sample_state_count(l->state), err, STATUS_NOTFOUND,
            "there is no column %" PRIu32, i);
    const struct ccs_column mine = {
        .name = sample_state_name(l->state, (int32_t)i),
        .ids = sample_state_id_space(l->state),
        .kind = (int32_t)sample_state_kind(l->state, (int32_t)i),
    };
    return api_give(out, &mine, sizeof(mine), err);
}

int32_t ccs_loss_column(const struct ccs_loss *l,
                        uint32_t i,
                        struct ccs_column *out,
                        struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, column_at(l, i, out, &e), &e);
}

/* Finds a column and checks a range of it. */
static enum status find(const struct ccs_loss *l,
                        const char *name,
                        const void *values,
                        uint64_t first,
                        uint64_t count,
                        int32_t *column,
                        struct error *err) {
    CHECK_ARGUMENT(l != NULL && name != NULL, err, "the loss or the name is NULL");
    CHECK_ARGUMENT(values != NULL || count == 0, err, "values is NULL");
    *column = sample_state_find(l->state, name);
    FAIL_IF(*column < 0, err, STATUS_NOTFOUND, "loss %s has no column %.100s", l->row->name, name);
    return column_check_range(name, sample_state_id_space(l->state), first, count, err);
}

static enum status read_column(const struct ccs_loss *l,
                               const char *name,
                               void *values,
                               uint64_t first,
                               uint64_t count,
                               struct error *err) {
    int32_t column = -1;
    TRY(find(l, name, values, first, count, &column, err));
    const bool f32 = sample_state_kind(l->state, column) == SAMPLE_STATE_F32;
    const size_t entry_bytes = f32 ? sizeof(float) : sizeof(uint64_t);
    const char *own = sample_state_values(l->state, column, &(size_t){0});
    if (count > 0) {
        memcpy(values, own + (size_t)first * entry_bytes, (size_t)count * entry_bytes);
    }
    return STATUS_OK;
}

int32_t ccs_loss_read(const struct ccs_loss *l,
                      const char *column,
                      void *values,
                      uint64_t first,
                      uint64_t count,
                      struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, read_column(l, column, values, first, count, &e), &e);
}

static enum status write_column(struct ccs_loss *l,
                                const char *name,
                                const void *values,
                                uint64_t first,
                                uint64_t count,
                                struct error *err) {
    int32_t column = -1;
    TRY(find(l, name, values, first, count, &column, err));
    const bool ids = sample_state_kind(l->state, column) == SAMPLE_STATE_ID;
    for (uint64_t i = 0; ids && i < count; i++) {
        const uint64_t id = ((const uint64_t *)values)[i];
        FAIL_IF(id != SAMPLE_STATE_NO_ID && id >= sample_state_id_space(l->state), err,
                STATUS_INVALID, "column %s: id %" PRIu64 " is not below %" PRIu64, name, id,
                sample_state_id_space(l->state));
    }
    sample_state_put(l->state, column, first, values, count);
    return STATUS_OK;
}

int32_t ccs_loss_write(struct ccs_loss *l,
                       const char *column,
                       const void *values,
                       uint64_t first,
                       uint64_t count,
                       struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, write_column(l, column, values, first, count, &e), &e);
}

/* ---- scalars ----------------------------------------------------------------------------------
 */

const char *ccs_loss_scalar_name(const struct ccs_loss *l, uint32_t i) {
    const struct loss_scalar *scalars = NULL;
    return l != NULL && i < (uint32_t)loss_scalars(l->loss, &scalars) ? scalars[i].name : NULL;
}

/* Where the loss keeps it. */
static enum status
find_scalar(const struct ccs_loss *l, const char *name, double **out, struct error *err) {
    CHECK_ARGUMENT(l != NULL && name != NULL, err, "the loss or the name is NULL");
    const struct loss_scalar *scalars = NULL;
    const int32_t count = loss_scalars(l->loss, &scalars);
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(scalars[i].name, name) == 0) {
            *out = scalars[i].value;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_NOTFOUND, "loss %s has no scalar %.100s", l->row->name, name);
}

int32_t ccs_loss_get_scalar(const struct ccs_loss *l,
                            const char *name,
                            double *value,
                            struct ccs_error *err) {
    struct error e = {0};
    double *own = NULL;
    enum status s = find_scalar(l, name, &own, &e);
    if (s == STATUS_OK && value == NULL) {
        s = error_set(&e, STATUS_INVALID, "value is NULL");
    }
    if (s == STATUS_OK) {
        *value = *own;
    }
    return api_result(err, s, &e);
}

int32_t
ccs_loss_set_scalar(struct ccs_loss *l, const char *name, double value, struct ccs_error *err) {
    struct error e = {0};
    double *own = NULL;
    enum status s = find_scalar(l, name, &own, &e);
    if (s == STATUS_OK && !isfinite(value)) {
        s = error_set(&e, STATUS_INVALID, "scalar %s: the value is not finite", name);
    }
    if (s == STATUS_OK) {
        *own = value;
    }
    return api_result(err, s, &e);
}

/* ---- files ------------------------------------------------------------------------------------
 */

/* Only a file that ccs_loss_save made is replaced. */
static enum status check_place(const char *path, struct error *err) {
    struct checkpoint *c = NULL;
    bool exists = false;
    TRY(file_posix()->exists(file_posix()->context, path, &exists, err));
    const bool own = exists && checkpoint_open_state(&c, file_posix(), path, NULL) == STATUS_OK &&
                     strcmp(checkpoint_path(c), path) == 0 &&
                     checkpoint_model(c)->image_tower[0] == '\0' &&
                     checkpoint_model(c)->text_tower[0] == '\0';
    checkpoint_close(c);
    FAIL_IF(exists && !own, err, STATUS_EXISTS,
            "%.200s exists and is not a saved loss state; save to another file", path);
    return STATUS_OK;
}

static enum status save(const struct ccs_loss *l,
                        const char *path,
                        uint64_t fingerprint,
                        uint64_t done,
                        struct error *err) {
    CHECK_ARGUMENT(l != NULL && path != NULL, err, "the loss or the path is NULL");
    TRY(check_place(path, err));
    const struct train_position position = {
        .step = done,
        .fingerprint = fingerprint,
        .samples_count = l->samples,
        .id_space_count = sample_state_id_space(l->state),
        .source_count = 1,
    };
    struct checkpoint_content content = {
        .position = &position,
        .loss_name = l->row->name,
        .tau = loss_temperature_now(l->loss),
        .state = l->state,
    };
    content.scalar_count = loss_scalars(l->loss, &content.scalars);
    return checkpoint_save(file_posix(), path, &content, NULL, err);
}

int32_t ccs_loss_save(const struct ccs_loss *l,
                      const char *path,
                      uint64_t fingerprint,
                      uint64_t step,
                      struct ccs_error *err) {
    struct error e = {0};
    const struct api_numbers n = api_enter_numbers();
    const enum status s = save(l, path, fingerprint, step, &e);
    api_leave_numbers(n);
    return api_result(err, s, &e);
}

static enum status load(struct ccs_loss *l, const struct checkpoint *c, struct error *err) {
    const struct loss_scalar *scalars = NULL;
    const int32_t count = loss_scalars(l->loss, &scalars);
    FAIL_IF(strcmp(checkpoint_loss_name(c), l->row->name) != 0, err, STATUS_MISMATCH,
            "%s: belongs to loss %.60s, not to %s", checkpoint_path(c), checkpoint_loss_name(c),
            l->row->name);
    return checkpoint_load_state(c, l->state, scalars, count, err);
}

int32_t ccs_loss_load(struct ccs_loss *l, const char *path, struct ccs_error *err) {
    struct error e = {0};
    struct checkpoint *c = NULL;
    enum status s = STATUS_INVALID;
    if (l == NULL || path == NULL) {
        return api_result(err, error_set(&e, s, "the loss or the path is NULL"), &e);
    }
    const struct api_numbers n = api_enter_numbers();
    s = checkpoint_open_state(&c, file_posix(), path, &e);
    THEN(s, load(l, c, &e));
    api_leave_numbers(n);
    checkpoint_close(c);
    return api_result(err, s, &e);
}
