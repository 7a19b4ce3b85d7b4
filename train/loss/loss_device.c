/*
 * loss_device: from a struct loss of the host to the struct that kernels take, and the memory
 * beside it.
 */
#include "train/loss/loss_device.h"

#include <stdlib.h>
#include <string.h>

#include "train/loss/loss_internal.h"

struct loss_device {
    struct loss *loss;
    struct sample_state *state;
    struct device *dev;
    struct device_loss step; /* every pointer is this struct's or the state's */
    struct loss_device_matrix matrices[LOSS_DEVICE_MATRIX_COUNT];
    uint64_t *sample_ids;
};

static const struct {
    const struct loss_method *method;
    enum device_loss_kind kind;
} known[] = {
    {&loss_method_clip, DEVICE_LOSS_CLIP},
    {&loss_method_simclr, DEVICE_LOSS_CLIP},
    {&loss_method_siglip, DEVICE_LOSS_SIGLIP},
    {&loss_method_cyclip, DEVICE_LOSS_CYCLIP},
    {&loss_method_dcl, DEVICE_LOSS_DEBIASED},
    {&loss_method_hcl, DEVICE_LOSS_DEBIASED},
    {&loss_method_rince, DEVICE_LOSS_RINCE},
    {&loss_method_sogclr, DEVICE_LOSS_SOGCLR},
    {&loss_method_isogclr, DEVICE_LOSS_ISOGCLR},
    {&loss_method_nuclr, DEVICE_LOSS_NUCLR},
    {&loss_method_nuclr_frozen, DEVICE_LOSS_NUCLR},
    {&loss_method_nuclr_noxi, DEVICE_LOSS_NUCLR},
    {&loss_method_emc2, DEVICE_LOSS_EMC2},
    {&loss_method_fastclip_v0, DEVICE_LOSS_FASTCLIP},
    {&loss_method_fastclip_v1, DEVICE_LOSS_FASTCLIP},
    {&loss_method_fastclip_v2, DEVICE_LOSS_FASTCLIP},
    {&loss_method_fastclip_v3, DEVICE_LOSS_FASTCLIP},
};
enum { KNOWN_COUNT = sizeof known / sizeof known[0] };

/* Index into `known`; KNOWN_COUNT: the loss runs on the host alone. */
static int find_kind(const struct loss *l) {
    int i = 0;
    while (i < KNOWN_COUNT && known[i].method != l->method) {
        i++;
    }
    return i;
}

bool loss_device_offered(const struct loss *l, const struct device *dev, struct error *why) {
    if (dev->losses == NULL) {
        (void)error_set(why, STATUS_UNSUPPORTED, "the device %s computes no losses itself",
                        dev->ops->name);
        return false;
    }
    if (find_kind(l) == KNOWN_COUNT) {
        (void)error_set(why, STATUS_UNSUPPORTED,
                        "the published code of loss %s (--parity reference) runs on the host alone",
                        l->options.name);
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
        .slow_tau = l->method->slow_tau,
        .own_tau = l->method == &loss_method_fastclip_v2,
        .times_tau = l->method == &loss_method_fastclip_v3,
        .zeta_momentum = o->zeta_momentum,
        .tau_plus = o->tau_plus,
        .beta = l->method == &loss_method_dcl ? 0.0 : o->beta,
        .q = o->q,
        .lambda = o->lambda,
        .cyclic_self = o->cyclic_self,
        .cyclic_cross = o->cyclic_cross,
        .burn_in = o->burn_in,
        .seed = o->seed,
        .global_tau = o->temperature == LOSS_TEMPERATURE_GLOBAL,
        .zeta_unbiased = o->zeta_unbiased,
        .zeta_frozen = l->method == &loss_method_nuclr_frozen,
        .own_xi = l->method == &loss_method_nuclr_noxi,
    };
}

/* Which columns the kind keeps, and the loss's own numbers of them. */
static void put_columns(struct loss_device *d) {
    const struct loss *l = d->loss;
    const struct sample_state *s = d->state;
    struct device_loss *step = &d->step;
    const bool estimates = step->kind == DEVICE_LOSS_SOGCLR || step->kind == DEVICE_LOSS_ISOGCLR ||
                           step->kind == DEVICE_LOSS_NUCLR || step->kind == DEVICE_LOSS_FASTCLIP;
    const bool own_tau = step->kind == DEVICE_LOSS_ISOGCLR || step->constants.own_tau;
    for (int side = 0; side < loss_side_count(l); side++) {
        if (estimates) {
            step->columns[DEVICE_LOSS_LOG_U][side] = sample_state_on_device(s, l->log_u[side]);
        }
        if (own_tau) {
            step->columns[DEVICE_LOSS_TAU][side] = sample_state_on_device(s, l->tau[side]);
            step->columns[DEVICE_LOSS_TAU_GRADIENT][side] =
                sample_state_on_device(s, l->tau_gradient[side]);
        }
        if (step->constants.own_tau) {
            step->columns[DEVICE_LOSS_TAU_SQUARE][side] =
                sample_state_on_device(s, l->tau_square[side]);
        }
        if (step->kind == DEVICE_LOSS_NUCLR) {
            step->columns[DEVICE_LOSS_ZETA][side] = sample_state_on_device(s, l->zeta[side]);
            step->columns[DEVICE_LOSS_ZETA_MOMENTUM][side] =
                sample_state_on_device(s, l->zeta_momentum[side]);
        }
        if (step->kind == DEVICE_LOSS_EMC2) {
            step->columns[DEVICE_LOSS_CHAIN][side] = sample_state_on_device(s, l->chain[side]);
            step->chain_id[side] = sample_state_on_device(s, l->chain_id[side]);
        }
    }
    step->visits = sample_state_on_device(s, l->visits);
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
    if (d == NULL) {
        return error_set(err, STATUS_NOMEM, "loss %s: out of memory", l->options.name);
    }
    d->loss = l;
    d->state = state;
    d->dev = dev;
    d->step = (struct device_loss){.kind = known[find_kind(l)].kind,
                                   .views = l->options.views,
                                   .batch_count = batch_count,
                                   .id_space = sample_state_id_space(state),
                                   .constants = constants_of(l),
                                   .values = values};
    enum status s;
    TRY_OR_FAIL(s, take_memory(d, err));
    TRY_OR_FAIL(s, sample_state_place(state, dev, place, err));
    put_columns(d);
    TRY_OR_FAIL(s, loss_device_send(d, err));
    *out = d;
    return STATUS_OK;
fail:
    loss_device_destroy(d);
    return s;
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

static void learned_to_device(struct device_loss_learned *out, const struct loss_learned *in) {
    *out = (struct device_loss_learned){in->value, in->m, in->v};
}

static void learned_to_host(struct loss_learned *out, const struct device_loss_learned *in) {
    *out = (struct loss_learned){in->value, in->m, in->v};
}

enum status loss_device_send(struct loss_device *d, struct error *err) {
    const struct loss *l = d->loss;
    struct device_loss_scalars scalars = {.learned_steps = l->learned_steps,
                                          .xi = {l->xi[SIDE_IMAGE], l->xi[SIDE_TEXT]}};
    learned_to_device(&scalars.scale, &l->scale);
    learned_to_device(&scalars.bias, &l->bias);
    TRY(d->dev->ops->upload(d->dev, d->step.scalars, &scalars, sizeof scalars, err));
    return sample_state_send(d->state, err);
}

enum status loss_device_fetch(struct loss_device *d, struct error *err) {
    struct loss *l = d->loss;
    struct device_loss_scalars scalars;
    TRY(d->dev->ops->download(d->dev, &scalars, d->step.scalars, sizeof scalars, err));
    learned_to_host(&l->scale, &scalars.scale);
    learned_to_host(&l->bias, &scalars.bias);
    l->learned_steps = scalars.learned_steps;
    for (int side = 0; side < SIDE_COUNT; side++) {
        l->xi[side] = scalars.xi[side];
    }
    return sample_state_fetch(d->state, err);
}
