/*
 * gradient_net: linear maps over the operators, or train's view_encoder.
 */
#include "tools/ccstudy/gradient_net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/image_norm.h"
#include "tools/ccstudy/gradient_whiten.h"
#include "train/model/view_encoder.h"

enum { COMPONENTS = 64, LINEAR_DIM = 32, RESNET_DIM = 512, RESNET_HELD_IMAGES = 16 };

struct gradient_net {
    struct gradient_net_options o;
    struct device *dev;
    struct params *params;
    struct params *own_params;  /* of linear */
    struct view_encoder *views; /* of resnet18 */
    struct step_values values;  /* a CPU device reads host memory */
    /* linear */
    struct tensor bytes, in;       /* (N, S, S, 3) u8 and f32 */
    struct tensor whitening, mean; /* (K, 3 S S), (K): constant */
    struct tensor components;      /* (N, K) */
    struct tensor z, norm, x;      /* (N, E), (N), (N, E) */
    struct tensor dz, dx;          /* (N, E); dx of resnet18 too */
};

int64_t gradient_net_dim(const struct gradient_net *n) {
    return n->o.network == GRADIENT_LINEAR ? LINEAR_DIM : RESNET_DIM;
}

int64_t gradient_net_parameter_count(const struct gradient_net *n) {
    return params_element_count(n->params, PARAM_TRAINED);
}

/* ---- life ---- */

static enum status take(struct gradient_net *n, struct tensor *t, struct error *err) {
    return n->dev->ops->alloc(n->dev, tensor_size_bytes(t), &t->data, err);
}

static struct tensor first_rows(struct tensor t, int32_t rows) {
    t.shape[0] = rows;
    return t;
}

static struct tensor flat(const struct tensor *in, int64_t rows) {
    return tensor_2d(in->data, DTYPE_F32, rows, in->shape[1] * in->shape[2] * in->shape[3]);
}

/* n->in from pixels. */
static enum status
normalize(struct gradient_net *n, const uint8_t *pixels, int32_t rows, struct error *err) {
    const struct normalize_u8 op = {.out = first_rows(n->in, rows),
                                    .in = first_rows(n->bytes, rows),
                                    .norm = &IMAGE_NORMS[IMAGE_NORM_CLIP]};
    TRY(n->dev->ops->upload(n->dev, n->bytes.data, pixels, tensor_size_bytes(&op.in), err));
    return n->dev->ops->normalize_u8(n->dev, &op, err);
}

/* A CPU device has its memory in the host's. */
static enum status
find_components(struct gradient_net *n, const uint8_t *pixels, struct error *err) {
    TRY(normalize(n, pixels, n->o.max_rows, err));
    return gradient_whiten(n->whitening.data, n->mean.data, COMPONENTS, n->in.data,
                           (size_t)n->o.max_rows, (size_t)n->whitening.shape[1], err);
}

static enum status open_linear(struct gradient_net *n, const uint8_t *pixels, struct error *err) {
    const int64_t rows = n->o.max_rows;
    const int64_t px = n->o.size_px;
    const struct param_spec weight = {.name = "weight",
                                      .ndim = 2,
                                      .shape = {LINEAR_DIM, COMPONENTS},
                                      .init = PARAM_INIT_NORMAL,
                                      .init_scale = 1.0 / sqrt(COMPONENTS)};
    struct tensor *const all[] = {&n->bytes, &n->in,   &n->whitening, &n->mean, &n->components,
                                  &n->z,     &n->norm, &n->x,         &n->dz};
    int32_t index = 0;
    TRY(params_create(&n->own_params, err));
    n->params = n->own_params;
    params_set_moments(n->params, optimizer_moments(n->o.optimizer.kind));
    TRY(params_add(n->params, &index, &weight, err));
    TRY(params_alloc(n->params, n->dev, DTYPE_F32, true, err));
    n->bytes = tensor_4d(NULL, DTYPE_U8, rows, px, px, 3);
    n->in = tensor_4d(NULL, DTYPE_F32, rows, px, px, 3);
    n->whitening = tensor_2d(NULL, DTYPE_F32, COMPONENTS, 3 * px * px);
    n->mean = tensor_1d(NULL, DTYPE_F32, COMPONENTS);
    n->components = tensor_2d(NULL, DTYPE_F32, rows, COMPONENTS);
    n->z = tensor_2d(NULL, DTYPE_F32, rows, LINEAR_DIM);
    n->norm = tensor_1d(NULL, DTYPE_F32, rows);
    n->x = n->z;
    n->dz = n->z;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        TRY(take(n, all[i], err));
    }
    return find_components(n, pixels, err);
}

static enum status open_resnet(struct gradient_net *n, struct error *err) {
    struct view_encoder_options o = {.hidden_dim = RESNET_DIM,
                                     .embed_dim = RESNET_DIM,
                                     .max_batch = n->o.max_rows,
                                     .training = true,
                                     .moments = optimizer_moments(n->o.optimizer.kind),
                                     .dtype = DTYPE_F32};
    if (n->o.max_rows > 2 * RESNET_HELD_IMAGES) {
        o.micro_batch = RESNET_HELD_IMAGES;
    }
    TRY(resnet_preset(&o.image, "resnet18", err));
    o.image.image_px = n->o.size_px;
    o.image.norm_layers = n->o.norm;
    TRY(view_encoder_create(&n->views, n->dev, &o, err));
    n->params = view_encoder_params(n->views);
    return STATUS_OK;
}

enum status gradient_net_create(struct gradient_net **out,
                                struct device *dev,
                                const struct gradient_net_options *o,
                                const uint8_t *pixels,
                                struct error *err) {
    struct gradient_net *n = calloc(1, sizeof *n);
    *out = NULL;
    if (n == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for the model");
    }
    n->o = *o;
    n->dev = dev;
    enum status s =
        o->network == GRADIENT_LINEAR ? open_linear(n, pixels, err) : open_resnet(n, err);
    if (s == STATUS_OK) {
        n->dx = tensor_2d(NULL, DTYPE_F32, o->max_rows, gradient_net_dim(n));
        s = take(n, &n->dx, err);
    }
    if (s == STATUS_OK) {
        s = gradient_net_restart(n, err);
    }
    if (s != STATUS_OK) {
        gradient_net_destroy(n);
        return s;
    }
    *out = n;
    return STATUS_OK;
}

void gradient_net_destroy(struct gradient_net *n) {
    if (n == NULL) {
        return;
    }
    struct tensor *const all[] = {&n->bytes, &n->in,   &n->whitening, &n->mean, &n->components,
                                  &n->z,     &n->norm, &n->x,         &n->dz,   &n->dx};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        n->dev->ops->free(n->dev, all[i]->data);
    }
    params_destroy(n->own_params);
    view_encoder_destroy(n->views);
    free(n);
}

enum status gradient_net_restart(struct gradient_net *n, struct error *err) {
    n->values = (struct step_values){.sound = 1};
    return params_init(n->params, n->o.seed, err);
}

/* ---- passes ---- */

static struct view_encoder_batch
batch_of(const struct gradient_net *n, const uint8_t *pixels, int32_t rows) {
    const size_t half_bytes = (size_t)rows / 2 * (size_t)n->o.size_px * (size_t)n->o.size_px * 3;
    return (struct view_encoder_batch){
        .count = rows / 2, .first = pixels, .second = pixels + half_bytes};
}

static enum status
forward_linear(struct gradient_net *n, const uint8_t *pixels, int32_t rows, struct error *err) {
    const struct ops *ops = n->dev->ops;
    const struct linear whiten = {.out = first_rows(n->components, rows),
                                  .in = flat(&n->in, rows),
                                  .weight = n->whitening,
                                  .bias = n->mean};
    const struct linear linear = {
        .out = first_rows(n->z, rows), .in = whiten.out, .weight = params_tensor(n->params, 0)};
    const struct l2_normalize unit = {
        .out = first_rows(n->x, rows), .norm = first_rows(n->norm, rows), .in = linear.out};
    TRY(normalize(n, pixels, rows, err));
    TRY(ops->linear(n->dev, &whiten, err));
    TRY(ops->linear(n->dev, &linear, err));
    return ops->l2_normalize(n->dev, &unit, err);
}

enum status gradient_net_forward(struct gradient_net *n,
                                 float *x,
                                 const uint8_t *pixels,
                                 int32_t rows,
                                 struct error *err) {
    REQUIRE(rows % 2 == 0 && rows <= n->o.max_rows);
    struct tensor out = n->x;
    if (n->views != NULL) {
        const struct view_encoder_batch batch = batch_of(n, pixels, rows);
        TRY(view_encoder_forward(n->views, &out, &batch, err));
    } else {
        TRY(forward_linear(n, pixels, rows, err));
        out = first_rows(n->x, rows);
    }
    return n->dev->ops->download(n->dev, x, out.data, tensor_size_bytes(&out), err);
}

static enum status backward_linear(struct gradient_net *n, int32_t rows, struct error *err) {
    const struct ops *ops = n->dev->ops;
    const struct l2_normalize_bwd unit = {.din = first_rows(n->dz, rows),
                                          .dout = first_rows(n->dx, rows),
                                          .out = first_rows(n->x, rows),
                                          .norm = first_rows(n->norm, rows)};
    const struct linear_bwd linear = {.dweight = params_grad(n->params, 0),
                                      .dout = unit.din,
                                      .in = first_rows(n->components, rows),
                                      .weight = params_tensor(n->params, 0)};
    TRY(ops->l2_normalize_bwd(n->dev, &unit, err));
    return ops->linear_bwd(n->dev, &linear, err);
}

enum status gradient_net_backward(struct gradient_net *n,
                                  const float *dx,
                                  const uint8_t *pixels,
                                  int32_t rows,
                                  struct error *err) {
    const struct tensor to = first_rows(n->dx, rows);
    TRY(n->dev->ops->upload(n->dev, to.data, dx, tensor_size_bytes(&to), err));
    if (n->views == NULL) {
        return backward_linear(n, rows, err);
    }
    const struct view_encoder_batch batch = batch_of(n, pixels, rows);
    return view_encoder_backward(n->views, &to, &batch, WRITE_SET, NULL, err);
}

/* ---- parameters ---- */

enum status gradient_net_read(const struct gradient_net *n,
                              enum param_slot slot,
                              float *out,
                              struct error *err) {
    for (int32_t i = 0; i < params_count(n->params); i++) {
        const struct tensor t = params_slot(n->params, i, slot);
        TRY(n->dev->ops->download(n->dev, out, t.data, tensor_size_bytes(&t), err));
        out += tensor_count(&t);
    }
    return STATUS_OK;
}

enum status gradient_net_step(struct gradient_net *n, double lr, uint64_t step, struct error *err) {
    n->values.lr = lr;
    n->values.step = step;
    return optimizer_step(n->params, n->dev, &n->values, &n->o.optimizer, err);
}
