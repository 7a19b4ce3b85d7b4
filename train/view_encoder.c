/*
 * One tower, one head, one memory plan. The head's first half is a convolution of 1 x 1 pixels with
 * batch norm and ReLU, which is the one operator that has a linear layer with batch norm:
 *
 *   parameters   the table's blocks
 *   kept         image tower | head
 *   scratch      of the tower
 *   input        the views
 */
#include "train/view_encoder.h"

#include <math.h>
#include <stdlib.h>

#include "train/carve_internal.h"

struct view_encoder {
    struct view_encoder_options opt;
    struct params *params;
    struct resnet *image;
    int32_t feature_count;
    int32_t hidden_weight, gamma, beta, running_mean, running_var; /* (H, F), (H) */
    int32_t weight, bias;                                          /* (E, H), (E) */
    struct dual_encoder_memory memory;

    struct device *dev; /* NULL when only planned */
    void *kept, *scratch, *input;
    struct tensor images;            /* (max_batch, S, S, 3) u8 */
    struct tensor features;          /* (N, F) of the last forward, in the tower's memory */
    struct tensor pre, hidden;       /* (max_batch, 1, 1, H) */
    struct tensor mean, rstd;        /* (H) */
    struct tensor z, out, norm;      /* (max_batch, E), (max_batch, E), (max_batch) */
    struct tensor dpre, dhidden;     /* as pre and hidden */
    struct tensor dfeatures;         /* (max_batch, F) */
    struct conv_bn_params hidden_op; /* .training is set by each pass */
};

/* ---- description and plan ---- */

static enum status add_vector(struct view_encoder *m,
                              int32_t *index,
                              const char *name,
                              enum param_kind kind,
                              enum param_init init,
                              struct error *err) {
    const struct param_spec spec = {
        .name = name, .ndim = 1, .shape = {m->opt.hidden_dim}, .kind = kind, .init = init};
    return params_add(m->params, index, &spec, err);
}

static enum status add_head(struct view_encoder *m, struct error *err) {
    const struct view_encoder_options *o = &m->opt;
    const struct param_spec hidden = {.name = "proj.0.weight",
                                      .ndim = 2,
                                      .shape = {o->hidden_dim, m->feature_count},
                                      .init = PARAM_INIT_UNIFORM,
                                      .init_scale = 1.0 / sqrt((double)m->feature_count)};
    const struct param_spec weight = {.name = "proj.3.weight",
                                      .ndim = 2,
                                      .shape = {o->embed_dim, o->hidden_dim},
                                      .init = PARAM_INIT_UNIFORM,
                                      .init_scale = 1.0 / sqrt((double)o->hidden_dim)};
    const struct param_spec bias = {.name = "proj.3.bias",
                                    .ndim = 1,
                                    .shape = {o->embed_dim},
                                    .init = PARAM_INIT_UNIFORM,
                                    .init_scale = weight.init_scale};
    TRY(params_add(m->params, &m->hidden_weight, &hidden, err));
    TRY(add_vector(m, &m->gamma, "proj.1.weight", PARAM_TRAINED, PARAM_INIT_ONES, err));
    TRY(add_vector(m, &m->beta, "proj.1.bias", PARAM_TRAINED, PARAM_INIT_ZEROS, err));
    TRY(add_vector(m, &m->running_mean, "proj.1.running_mean", PARAM_BUFFER, PARAM_INIT_ZEROS,
                   err));
    TRY(add_vector(m, &m->running_var, "proj.1.running_var", PARAM_BUFFER, PARAM_INIT_ONES, err));
    TRY(params_add(m->params, &m->weight, &weight, err));
    return params_add(m->params, &m->bias, &bias, err);
}

static void place_head(struct view_encoder *m, struct carve *kept) {
    const struct view_encoder_options *o = &m->opt;
    const int64_t n = o->max_batch;
    m->pre = carve_take(kept, tensor_4d(NULL, o->dtype, n, 1, 1, o->hidden_dim));
    m->hidden = carve_take(kept, m->pre);
    m->mean = carve_take(kept, tensor_1d(NULL, o->dtype, o->hidden_dim));
    m->rstd = carve_take(kept, m->mean);
    m->z = carve_take(kept, tensor_2d(NULL, o->dtype, n, o->embed_dim));
    m->out = carve_take(kept, m->z);
    m->norm = carve_take(kept, tensor_1d(NULL, o->dtype, n));
    if (o->training) {
        m->dpre = carve_take(kept, m->pre);
        m->dhidden = carve_take(kept, m->pre);
        m->dfeatures = carve_take(kept, tensor_2d(NULL, o->dtype, n, m->feature_count));
    }
}

static void place_input(struct view_encoder *m, struct carve *input) {
    const int64_t px = m->opt.image.image_px;
    m->images = carve_take(input, tensor_4d(NULL, DTYPE_U8, m->opt.max_batch, px, px, 3));
}

static void plan_memory(struct view_encoder *m) {
    const struct params_bytes p = params_plan(m->params, m->opt.dtype, m->opt.training);
    struct dual_encoder_memory *u = &m->memory;
    struct carve head = {0};
    struct carve input = {0};
    size_t tower_bytes;
    resnet_memory(m->image, m->opt.dtype, &tower_bytes, &u->scratch_bytes);
    place_head(m, &head);
    place_input(m, &input);
    u->values_bytes = p.value_bytes;
    u->gradients_bytes = p.grad_bytes;
    u->moments_bytes = p.moments_bytes;
    u->activations_bytes = tower_bytes + head.used_bytes;
    u->input_bytes = input.used_bytes;
    u->total_bytes = u->values_bytes + u->gradients_bytes + u->moments_bytes +
                     u->activations_bytes + u->scratch_bytes + u->input_bytes;
    u->parameter_count = params_element_count(m->params, PARAM_TRAINED);
}

/* Everything but device memory. */
static enum status
describe(struct view_encoder **out, const struct view_encoder_options *opt, struct error *err) {
    *out = NULL;
    if (opt->embed_dim < 1 || opt->embed_dim > 1 << 16 || opt->hidden_dim < 1 ||
        opt->hidden_dim > 1 << 16) {
        return error_set(err, STATUS_USAGE,
                         "embedding size %d or that of the hidden layer, %d, is not in 1-65536",
                         (int)opt->embed_dim, (int)opt->hidden_dim);
    }
    REQUIRE(opt->moments == 1 || opt->moments == 2);
    enum status s = STATUS_OK;
    struct view_encoder *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for the model");
    }
    m->opt = *opt;
    m->opt.image.max_batch = opt->max_batch;
    m->opt.image.training = opt->training;
    m->hidden_op = (struct conv_bn_params){
        .stride = 1, .act = ACTIVATION_RELU, .eps = 1e-5f, .momentum = 0.1f};
    TRY_OR_FAIL(s, params_create(&m->params, err));
    params_set_moments(m->params, opt->moments);
    TRY_OR_FAIL(s, params_set_prefix(m->params, "image.", err));
    TRY_OR_FAIL(s, resnet_create(&m->image, m->params, &m->opt.image, err));
    TRY_OR_FAIL(s, params_set_prefix(m->params, "", err));
    m->feature_count = resnet_feature_count(m->image);
    TRY_OR_FAIL(s, add_head(m, err));
    plan_memory(m);
    *out = m;
    return STATUS_OK;
fail:
    view_encoder_destroy(m);
    return s;
}

enum status view_encoder_plan(struct dual_encoder_memory *out,
                              const struct view_encoder_options *opt,
                              struct error *err) {
    struct view_encoder *m = NULL;
    TRY(describe(&m, opt, err));
    *out = m->memory;
    view_encoder_destroy(m);
    return STATUS_OK;
}

static enum status take_memory(struct view_encoder *m, struct device *dev, struct error *err) {
    size_t tower_bytes;
    size_t scratch_bytes;
    m->dev = dev;
    TRY(params_alloc(m->params, dev, m->opt.dtype, m->opt.training, err));
    TRY(dev->ops->alloc(dev, m->memory.activations_bytes, &m->kept, err));
    TRY(dev->ops->alloc(dev, m->memory.scratch_bytes, &m->scratch, err));
    TRY(dev->ops->alloc(dev, m->memory.input_bytes, &m->input, err));
    resnet_memory(m->image, m->opt.dtype, &tower_bytes, &scratch_bytes);
    resnet_attach(m->image, dev, m->opt.dtype, m->kept, m->scratch);
    struct carve head = {.base = (uint8_t *)m->kept + tower_bytes};
    struct carve input = {.base = m->input};
    place_head(m, &head);
    place_input(m, &input);
    return STATUS_OK;
}

enum status view_encoder_create(struct view_encoder **out,
                                struct device *dev,
                                const struct view_encoder_options *opt,
                                struct error *err) {
    struct view_encoder *m = NULL;
    *out = NULL;
    TRY(describe(&m, opt, err));
    const enum status s = take_memory(m, dev, err);
    if (s != STATUS_OK) {
        view_encoder_destroy(m);
        return s;
    }
    *out = m;
    return STATUS_OK;
}

void view_encoder_destroy(struct view_encoder *m) {
    if (m == NULL) {
        return;
    }
    if (m->dev != NULL) {
        m->dev->ops->free(m->dev, m->input);
        m->dev->ops->free(m->dev, m->scratch);
        m->dev->ops->free(m->dev, m->kept);
    }
    resnet_destroy(m->image);
    params_destroy(m->params);
    free(m);
}

struct params *view_encoder_params(struct view_encoder *m) {
    return m->params;
}

const struct view_encoder_options *view_encoder_get_options(const struct view_encoder *m) {
    return &m->opt;
}

int32_t view_encoder_feature_count(const struct view_encoder *m) {
    return m->feature_count;
}

struct dual_encoder_memory view_encoder_memory_used(const struct view_encoder *m) {
    return m->memory;
}

/* ---- passes ---- */

/* A matrix (N, C) as images of one pixel (N, 1, 1, C), or a weight likewise. */
static struct tensor as_pixels(const struct tensor *t) {
    return tensor_4d(t->data, t->dtype, t->shape[0], 1, 1, t->shape[1]);
}

static struct tensor as_rows(const struct tensor *t) {
    return tensor_2d(t->data, t->dtype, t->shape[0], t->shape[3]);
}

/* The first n images through tower and head -> *x (n, E). */
static enum status
run(struct view_encoder *m, struct tensor *x, int32_t n, bool training, struct error *err) {
    const struct ops *ops = m->dev->ops;
    const struct tensor images = first_rows(m->images, n);
    TRY(resnet_forward(m->image, &m->features, &images, training, err));
    const struct tensor flat = params_tensor(m->params, m->hidden_weight);
    const struct tensor hidden_weight = as_pixels(&flat);
    const struct tensor gamma = params_tensor(m->params, m->gamma);
    const struct tensor beta = params_tensor(m->params, m->beta);
    const struct tensor running_mean = params_tensor(m->params, m->running_mean);
    const struct tensor running_var = params_tensor(m->params, m->running_var);
    const struct tensor in = as_pixels(&m->features);
    const struct tensor pre = first_rows(m->pre, n);
    const struct tensor hidden = first_rows(m->hidden, n);
    m->hidden_op.training = training;
    TRY(ops->conv_bn(m->dev, &hidden, &pre, &m->mean, &m->rstd, &running_mean, &running_var, &in,
                     &hidden_weight, &gamma, &beta, &NOT_WANTED, &m->hidden_op, err));
    const struct tensor rows = as_rows(&hidden);
    const struct tensor weight = params_tensor(m->params, m->weight);
    const struct tensor bias = params_tensor(m->params, m->bias);
    const struct tensor z = first_rows(m->z, n);
    const struct tensor norm = first_rows(m->norm, n);
    *x = first_rows(m->out, n);
    TRY(ops->linear(m->dev, &z, &NOT_WANTED, &rows, &weight, &bias, ACTIVATION_NONE, err));
    return ops->l2_normalize(m->dev, x, &norm, &z, err);
}

enum status view_encoder_forward(struct view_encoder *m,
                                 struct tensor *x,
                                 const uint8_t *first,
                                 const uint8_t *second,
                                 int32_t count,
                                 struct error *err) {
    REQUIRE(m->opt.training && count >= 1 && 2 * count <= m->opt.max_batch);
    const struct ops *ops = m->dev->ops;
    const struct tensor half = first_rows(m->images, count);
    const size_t half_bytes = tensor_size_bytes(&half);
    TRY(ops->upload(m->dev, half.data, first, half_bytes, err));
    TRY(ops->upload(m->dev, (uint8_t *)half.data + half_bytes, second, half_bytes, err));
    return run(m, x, 2 * count, true, err);
}

enum status view_encoder_encode(struct view_encoder *m,
                                struct tensor *x,
                                struct tensor *features,
                                const uint8_t *images,
                                int32_t count,
                                struct error *err) {
    REQUIRE(count >= 1 && count <= m->opt.max_batch);
    const struct tensor in = first_rows(m->images, count);
    TRY(m->dev->ops->upload(m->dev, in.data, images, tensor_size_bytes(&in), err));
    TRY(run(m, x, count, false, err));
    if (features != NULL) {
        *features = m->features;
    }
    return STATUS_OK;
}

enum status view_encoder_backward(struct view_encoder *m,
                                  const struct tensor *dx,
                                  enum write_mode mode,
                                  struct error *err) {
    const int64_t n = dx->shape[0];
    REQUIRE(m->opt.training && n == m->features.shape[0]);
    const struct ops *ops = m->dev->ops;
    const struct tensor out = first_rows(m->out, n);
    const struct tensor norm = first_rows(m->norm, n);
    const struct tensor dz = first_rows(m->z, n); /* z is not needed any more */
    const struct tensor hidden = first_rows(m->hidden, n);
    const struct tensor dhidden = first_rows(m->dhidden, n);
    const struct tensor rows = as_rows(&hidden);
    const struct tensor drows = as_rows(&dhidden);
    const struct tensor weight = params_tensor(m->params, m->weight);
    const struct tensor dweight = params_grad(m->params, m->weight);
    const struct tensor dbias = params_grad(m->params, m->bias);
    TRY(ops->l2_normalize_bwd(m->dev, &dz, dx, &out, &norm, err));
    TRY(ops->linear_bwd(m->dev, &drows, WRITE_SET, &dweight, &dbias, mode, &NOT_WANTED, &dz, &rows,
                        &weight, &NOT_WANTED, ACTIVATION_NONE, err));

    const struct tensor flat = params_tensor(m->params, m->hidden_weight);
    const struct tensor dflat = params_grad(m->params, m->hidden_weight);
    const struct tensor hidden_weight = as_pixels(&flat);
    const struct tensor dhidden_weight = as_pixels(&dflat);
    const struct tensor gamma = params_tensor(m->params, m->gamma);
    const struct tensor dgamma = params_grad(m->params, m->gamma);
    const struct tensor dbeta = params_grad(m->params, m->beta);
    const struct tensor in = as_pixels(&m->features);
    const struct tensor dfeatures = first_rows(m->dfeatures, n);
    const struct tensor din = as_pixels(&dfeatures);
    const struct tensor pre = first_rows(m->pre, n);
    const struct tensor dpre = first_rows(m->dpre, n);
    m->hidden_op.training = true;
    TRY(ops->conv_bn_bwd(m->dev, &din, WRITE_SET, &NOT_WANTED, WRITE_SET, &dhidden_weight, &dgamma,
                         &dbeta, mode, &dpre, &dhidden, &hidden, &pre, &m->mean, &m->rstd, &in,
                         &hidden_weight, &gamma, &m->hidden_op, err));
    return resnet_backward(m->image, &dfeatures, mode, err);
}
