/*
 * loss_device: converts a struct loss of the host to the kernels' struct, and owns its memory.
 */
#include "train/loss/loss_device.h"

#include <stdlib.h>
#include <string.h>

#include "train/comm/comm.h"
#include "train/loss/loss_internal.h"

struct loss_device {
    struct loss *loss;
    struct sample_state *state;
    struct device *dev;
    struct device_loss step; /* all pointers are this struct's or the state's */
    struct loss_device_matrix matrices[LOSS_DEVICE_MATRIX_COUNT];
    uint64_t *sample_ids;
};

/* The device's names of the f32 columns and the scalars. */
static const char *const device_columns[DEVICE_LOSS_COLUMN_COUNT] = {
    [DEVICE_LOSS_LOG_U] = "log_u",
    [DEVICE_LOSS_ZETA] = "zeta",
    [DEVICE_LOSS_ZETA_MOMENTUM] = "zeta_momentum",
    [DEVICE_LOSS_TAU] = "tau",
    [DEVICE_LOSS_TAU_GRADIENT] = "tau_gradient",
    [DEVICE_LOSS_TAU_SQUARE] = "tau_square",
    [DEVICE_LOSS_CHAIN] = "chain_log_score",
};
static const struct {
    const char *name;
    size_t offset; /* of a double in struct device_loss_scalars */
} device_scalars[] = {
    {"log_scale", offsetof(struct device_loss_scalars, scale.value)},
    {"log_scale.m", offsetof(struct device_loss_scalars, scale.m)},
    {"log_scale.v", offsetof(struct device_loss_scalars, scale.v)},
    {"learned_steps", offsetof(struct device_loss_scalars, learned_steps)},
    {"bias", offsetof(struct device_loss_scalars, bias.value)},
    {"bias.m", offsetof(struct device_loss_scalars, bias.m)},
    {"bias.v", offsetof(struct device_loss_scalars, bias.v)},
    {"image.xi", offsetof(struct device_loss_scalars, xi[DEVICE_LOSS_IMAGE])},
    {"text.xi", offsetof(struct device_loss_scalars, xi[DEVICE_LOSS_TEXT])},
};

bool loss_device_offered(const struct loss *l, const struct device *dev, struct error *why) {
    if (dev->losses == NULL) {
        (void)error_set(why, STATUS_UNSUPPORTED, "the device %s computes no losses itself",
                        dev->ops->name);
        return false;
    }
    return loss_has_kernels(l, why);
}

bool loss_has_kernels(const struct loss *l, struct error *why) {
    if (l->row->device == DEVICE_LOSS_NONE) {
        (void)error_set(why, STATUS_UNSUPPORTED,
                        l->row->parity == LOSS_PARITY_REFERENCE
                            ? "the published code of loss %s (--variant code) runs on the host "
                              "alone"
                            : "loss %s runs on the host alone",
                        l->options.name);
        return false;
    }
    if (l->options.xi != LOSS_XI_SIGNED) {
        (void)error_set(why, STATUS_UNSUPPORTED, "--xi %s runs on the host alone",
                        loss_option_rows[LOSS_XI].choices[l->options.xi]);
        return false;
    }
    if (loss_rows_each(l) > 1) {
        (void)error_set(why, STATUS_UNSUPPORTED, "--positives above 1 runs on the host alone");
        return false;
    }
    if (l->states[SIDE_TEXT] != l->state) {
        (void)error_set(why, STATUS_UNSUPPORTED, "--text-state caption runs on the host alone");
        return false;
    }
    if (loss_carries(l)) {
        (void)error_set(why, STATUS_UNSUPPORTED,
                        "--emc2-off-batch view and encode run on the host alone");
        return false;
    }
    if (l->options.beta_stairs > 0) {
        (void)error_set(why, STATUS_UNSUPPORTED, "--beta-anneal-steps runs on the host alone");
        return false;
    }
    return true;
}

static struct device_loss_constants constants_of(const struct loss *l) {
    const struct loss_options *o = &l->options;
    return (struct device_loss_constants){
        .samples_count = (double)l->samples_count,
        .tau = o->tau,
        .tau_min = o->tau_min,
        .tau_max = o->tau_max,
        .tau_lr = o->tau_lr,
        .tau_momentum = o->tau_momentum,
        .rho = o->rho,
        .gamma = o->gamma,
        .gamma_epochs = o->gamma_schedule != LOSS_GAMMA_COSINE ? 0
                        : o->gamma_epochs > 0                  ? o->gamma_epochs
                                                               : 1,
        .gamma_log_alpha = o->gamma_log_alpha,
        .gamma_slope = o->gamma_slope,
        .u_eps = o->u_eps,
        .slow_tau = l->row->slow_tau,
        .own_tau =
            l->row->device == DEVICE_LOSS_FASTCLIP && o->temperature == LOSS_TEMPERATURE_INDIVIDUAL,
        .times_tau = l->row->times_tau,
        .anchor_gamma = l->row->anchor_gamma,
        .zeta_momentum = o->zeta_momentum,
        .zeta_freeze_epochs = o->zeta_freeze_epochs,
        .tau_plus = o->tau_plus,
        .beta = o->beta,
        .q = o->q,
        .lambda = o->lambda,
        .cyclic_self = o->cyclic_self,
        .cyclic_cross = o->cyclic_cross,
        .burn_in = o->burn_in,
        .seed = o->seed,
        .adam_beta1 = o->beta1,
        .adam_beta2 = o->beta2,
        .adam_eps = o->eps,
        .global_tau = o->temperature == LOSS_TEMPERATURE_GLOBAL,
        .zeta_unbiased = o->zeta_gradient == LOSS_ZETA_UNBIASED,
        .zeta_by_visit = o->zeta_by_visit,
        .zeta_frozen = l->row->zeta_frozen,
        .own_xi = l->row->own_xi,
    };
}

/* Assigns every column of the row to the field with its name. */
static void put_columns(struct loss_device *d) {
    const struct loss *l = d->loss;
    const struct loss_column *c = l->row->columns;
    for (int k = 0; c != NULL && c[k].name != NULL; k++) {
        for (int side = 0; side < loss_side_count(l); side++) {
            void *at = sample_state_on_device(d->state, l->columns[k][side]);
            if (c[k].kind == SAMPLE_STATE_ID) {
                d->step.chain_id[side] = at;
            }
            for (int i = 0; i < DEVICE_LOSS_COLUMN_COUNT; i++) {
                if (strcmp(device_columns[i], c[k].name) == 0) {
                    d->step.columns[i][side] = at;
                }
            }
        }
    }
    d->step.visits = sample_state_on_device(d->state, l->visits[SIDE_IMAGE]);
}

static int matrix_count(const struct loss *l) {
    return loss_uses_self(l) ? LOSS_DEVICE_MATRIX_COUNT : 1;
}

size_t loss_device_planned_bytes(const struct loss *l, int64_t batch_count) {
    const int64_t rows = l->options.views ? 2 * batch_count : batch_count;
    return 2 * (size_t)matrix_count(l) * (size_t)(rows * rows) * sizeof(float) +
           (size_t)batch_count * sizeof(uint64_t) + sizeof(struct device_loss_scalars) +
           sizeof(int32_t);
}

size_t loss_device_bytes(const struct loss_device *d) {
    return loss_device_planned_bytes(d->loss, d->step.batch_count) +
           d->dev->losses->workspace_bytes(&d->step);
}

static enum status take(struct loss_device *d, size_t size_bytes, void **out, struct error *err) {
    return d->dev->ops->alloc(d->dev, size_bytes, out, err);
}

static enum status take_matrices(struct loss_device *d, int64_t rows, struct error *err) {
    const int count = matrix_count(d->loss);
    const size_t size_bytes = (size_t)(rows * rows) * sizeof(float);
    for (int i = 0; i < count; i++) {
        struct loss_device_matrix *m = &d->matrices[i];
        void *data;
        TRY(take(d, size_bytes, &data, err));
        m->similarity = tensor_2d(data, DTYPE_F32, rows, rows);
        TRY(take(d, size_bytes, &data, err));
        m->gradient = tensor_2d(data, DTYPE_F32, rows, rows);
    }
    d->step.similarity = d->matrices[LOSS_DEVICE_CROSS].similarity.data;
    d->step.gradient = d->matrices[LOSS_DEVICE_CROSS].gradient.data;
    d->step.image_similarity = d->matrices[LOSS_DEVICE_IMAGES].similarity.data;
    d->step.image_gradient = d->matrices[LOSS_DEVICE_IMAGES].gradient.data;
    d->step.text_similarity = d->matrices[LOSS_DEVICE_TEXTS].similarity.data;
    d->step.text_gradient = d->matrices[LOSS_DEVICE_TEXTS].gradient.data;
    return STATUS_OK;
}

static enum status take_memory(struct loss_device *d, struct error *err) {
    const int64_t b = d->step.batch_count;
    void *data;
    TRY(take_matrices(d, d->step.views ? 2 * b : b, err));
    TRY(take(d, (size_t)b * sizeof *d->sample_ids, &data, err));
    d->sample_ids = data;
    TRY(take(d, sizeof *d->step.scalars, &data, err));
    d->step.scalars = data;
    TRY(take(d, sizeof *d->step.fault, &data, err));
    d->step.fault = data;
    TRY(take(d, d->dev->losses->workspace_bytes(&d->step), &d->step.workspace, err));
    d->step.sample_ids = d->sample_ids;
    return STATUS_OK;
}

enum status loss_device_create(struct loss_device **out,
                               struct loss *l,
                               struct sample_state *state,
                               struct device *dev,
                               enum sample_state_place place,
                               int64_t batch_count,
                               struct step_values *values,
                               struct error *err) {
    REQUIRE(out != NULL && l != NULL && state != NULL && dev != NULL && values != NULL);
    REQUIRE(batch_count >= 2 && batch_count <= l->max_batch_count);
    REQUIRE(loss_device_offered(l, dev, NULL));
    *out = NULL;
    struct loss_device *d = calloc(1, sizeof *d);
    TRY_MEMORY(d, err, "loss %s: out of memory", l->options.name);
    d->loss = l;
    d->state = state;
    d->dev = dev;
    d->step = (struct device_loss){.kind = l->row->device,
                                   .views = l->options.views,
                                   .batch_count = batch_count,
                                   .id_space = sample_state_id_space(state),
                                   .constants = constants_of(l),
                                   .values = values};
    const struct comm *comm = sample_state_comm(state);
    d->step.rank = comm != NULL ? comm_rank(comm) : 0;
    d->step.world = comm != NULL ? comm_world(comm) : 1;
    enum status s;
    TRY_OR_FAIL(s, take_memory(d, err));
    TRY_OR_FAIL(s, sample_state_place(state, dev, place, err));
    put_columns(d);
    TRY_OR_FAIL(s, loss_device_send(d, err));
fail:
    RETURN_CREATED(s, out, d, loss_device_destroy);
}

void loss_device_destroy(struct loss_device *d) {
    if (d == NULL) {
        return;
    }
    const struct ops *ops = d->dev->ops;
    for (int i = 0; i < LOSS_DEVICE_MATRIX_COUNT; i++) {
        ops->free(d->dev, d->matrices[i].similarity.data);
        ops->free(d->dev, d->matrices[i].gradient.data);
    }
    ops->free(d->dev, d->sample_ids);
    ops->free(d->dev, d->step.scalars);
    ops->free(d->dev, d->step.fault);
    ops->free(d->dev, d->step.workspace);
    free(d);
}

const struct loss_device_matrix *loss_device_matrix(const struct loss_device *d,
                                                    enum loss_device_matrix_kind kind) {
    return &d->matrices[kind];
}

enum status
loss_device_put_ids(struct loss_device *d, const uint64_t *sample_ids, struct error *err) {
    REQUIRE(d != NULL && sample_ids != NULL);
    const size_t size_bytes = (size_t)d->step.batch_count * sizeof *sample_ids;
    return d->dev->ops->upload(d->dev, d->sample_ids, sample_ids, size_bytes, err);
}

enum status loss_device_step(struct loss_device *d, struct error *err) {
    REQUIRE(d != NULL);
    return d->dev->losses->step(d->dev, &d->step, err);
}

enum status loss_device_fault(struct loss_device *d, struct error *err) {
    int32_t fault;
    REQUIRE(d != NULL);
    TRY(d->dev->ops->download(d->dev, &fault, d->step.fault, sizeof fault, err));
    const char *what = fault == DEVICE_LOSS_SOUND    ? NULL
                       : fault == DEVICE_LOSS_BAD_ID ? "a sample's id is outside the dataset"
                       : fault == DEVICE_LOSS_BAD_SIMILARITY ? "a similarity is not finite; lower "
                                                               "the learning rate"
                                                             : "its value or gradient is not "
                                                               "finite; lower the learning rate";
    return what == NULL
               ? STATUS_OK
               : error_set(err, STATUS_CORRUPT, "loss %s: %s", d->loss->options.name, what);
}

/* ---- state and scalars ---- */

/* The device's copy of a scalar of the loss; NULL: none. */
static double *device_scalar(struct device_loss_scalars *scalars, const char *name) {
    for (size_t i = 0; i < sizeof device_scalars / sizeof device_scalars[0]; i++) {
        if (strcmp(device_scalars[i].name, name) == 0) {
            return (double *)(void *)((char *)scalars + device_scalars[i].offset);
        }
    }
    return NULL;
}

enum status loss_device_send(struct loss_device *d, struct error *err) {
    struct device_loss_scalars scalars = {0};
    const struct loss_scalar *own;
    const int32_t count = loss_scalars(d->loss, &own);
    for (int32_t i = 0; i < count; i++) {
        double *place = device_scalar(&scalars, own[i].name);
        REQUIRE(place != NULL);
        *place = *own[i].value;
    }
    TRY(d->dev->ops->upload(d->dev, d->step.scalars, &scalars, sizeof scalars, err));
    return sample_state_send(d->state, err);
}

enum status loss_device_fetch(struct loss_device *d, struct error *err) {
    struct device_loss_scalars scalars;
    const struct loss_scalar *own;
    const int32_t count = loss_scalars(d->loss, &own);
    TRY(d->dev->ops->download(d->dev, &scalars, d->step.scalars, sizeof scalars, err));
    for (int32_t i = 0; i < count; i++) {
        *own[i].value = *device_scalar(&scalars, own[i].name);
    }
    return sample_state_fetch(d->state, err);
}
