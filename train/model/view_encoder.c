/*
 * One tower, one head, one memory plan. The head's first half is a convolution of 1 x 1 pixels with
 * batch norm and ReLU, which is the one operator that has a linear layer with batch norm:
 *
 *   parameters   the table's blocks, and more of gradients (gradients.h)
 *   kept         image tower | head
 *   scratch      of the tower
 *   input        the views; whole batches in slots
 *
 * all for the views of one micro-batch, but for the embeddings, which are those of the whole batch:
 * a part's first views go to the embeddings' first half, its second ones to the second. The order
 * of the passes is dual_encoder's.
 */
#include "train/model/view_encoder.h"

#include <math.h>
#include <stdlib.h>

#include "formats/base/hash.h"
#include "train/model/conv_unit_internal.h"
#include "train/model/encoder_internal.h"

struct view_encoder {
    struct view_encoder_options opt;
    struct params *params;
    struct resnet *image;
    int32_t feature_count;
    int32_t held_count; /* H: images that the tower holds, both views counted */
    struct unit_owner units;
    struct unit hidden;   /* F to D, of one pixel; its weight is (D, F) in the table */
    int32_t weight, bias; /* (E, D), (E) */
    struct dual_encoder_memory memory;

    struct device *dev; /* NULL when only planned */
    struct encoder_blocks blocks;
    struct {
        struct tensor images; /* u8: slot 0 (H, S, S, 3), one part at a time; others (max_batch, S,
                                 S, 3), a whole batch, see put */
        int32_t count;        /* images of view_encoder_put, each in two views; 0: none */
    } slots[1 + DUAL_ENCODER_MAX_SLOTS];
    struct tensor features;  /* (n, F) of the last forward, in the tower's memory */
    struct tensor z, norm;   /* (H, E), (H) */
    struct tensor out;       /* (max_batch, E) */
    struct tensor dhidden;   /* (H, 1, 1, D) */
    struct tensor dfeatures; /* (H, F) */
};

/* ---- description and plan ---- */

static enum status add_head(struct view_encoder *m, struct error *err) {
    const struct view_encoder_options *o = &m->opt;
    const struct param_spec hidden = {.name = "proj.0.weight",
                                      .shape = {o->hidden_dim, m->feature_count},
                                      .init = PARAM_INIT_UNIFORM,
                                      .init_scale = 1.0 / sqrt((double)m->feature_count)};
    const struct param_spec weight = {.name = "proj.3.weight",
                                      .shape = {o->embed_dim, o->hidden_dim},
                                      .init = PARAM_INIT_UNIFORM,
                                      .init_scale = 1.0 / sqrt((double)o->hidden_dim)};
    struct param_spec bias = weight;
    bias.name = "proj.3.bias";
    bias.shape[1] = 0;
    m->units = (struct unit_owner){
        .params = m->params, .norm = o->image.norm_layers, .group = o->image.bn_group};
    m->hidden = (struct unit){.in_channels = m->feature_count,
                              .out_channels = o->hidden_dim,
                              .kernel = 1,
                              .stride = 1,
                              .in_px = 1,
                              .out_px = 1,
                              .act = ACTIVATION_RELU};
    TRY(params_add(m->params, &m->hidden.weight, &hidden, err));
    TRY(unit_add_norm(&m->hidden, &m->units, "proj.1", PARAM_INIT_ONES, err));
    TRY(params_add(m->params, &m->weight, &weight, err));
    return params_add(m->params, &m->bias, &bias, err);
}

static void place_head(struct view_encoder *m, struct carve *kept) {
    const struct view_encoder_options *o = &m->opt;
    const enum dtype exact = statistics_dtype(o->dtype);
    const int64_t n = m->held_count;
    struct unit *u = &m->hidden;
    u->out = carve_take(kept, tensor_4d(NULL, o->dtype, n, 1, 1, o->hidden_dim));
    if (o->image.norm_layers != RESNET_NORM_NONE) {
        u->pre = carve_take(kept, u->out);
        u->mean = carve_take(kept, unit_statistics(&m->units, o->dtype, n, o->hidden_dim));
        u->rstd = carve_take(kept, u->mean);
    }
    m->z = carve_take(kept, tensor_2d(NULL, o->dtype, n, o->embed_dim));
    m->out = carve_take(kept, tensor_2d(NULL, exact, o->max_batch, o->embed_dim));
    m->norm = carve_take(kept, tensor_1d(NULL, exact, n));
    if (o->training) {
        m->units.dpre = carve_take(kept, u->out);
        m->dhidden = carve_take(kept, u->out);
        m->dfeatures = carve_take(kept, tensor_2d(NULL, o->dtype, n, m->feature_count));
    }
}

static void place_input(struct view_encoder *m, struct carve *input) {
    const int64_t px = m->opt.image.image_px;
    for (int32_t i = 0; i <= m->opt.slots; i++) {
        const int64_t n = i == 0 ? m->held_count : m->opt.max_batch;
        m->slots[i].images = carve_take(input, tensor_4d(NULL, DTYPE_U8, n, px, px, 3));
    }
}

static void place(struct view_encoder *m, struct encoder_carves *c) {
    resnet_place(m->image, m->dev, m->opt.dtype, &c->kept, &c->scratch);
    place_head(m, &c->kept);
    place_input(m, &c->input);
}

static void plan_memory(struct view_encoder *m, bool host_memory) {
    struct encoder_carves used = {0};
    place(m, &used);
    const int32_t most = m->held_count / 2;
    m->blocks.params = m->params;
    m->blocks.dtype = m->opt.dtype;
    m->blocks.training = m->opt.training;
    m->blocks.comm = m->opt.comm;
    m->blocks.parts = most > 0 ? (m->opt.max_batch / 2 + most - 1) / most : 1;
    encoder_plan(&m->blocks, &m->memory, &used, host_memory);
}

/* Everything but device memory. */
static enum status describe(struct view_encoder **out,
                            const struct view_encoder_options *opt,
                            bool host_memory,
                            struct error *err) {
    *out = NULL;
    FAIL_IF(opt->embed_dim < 1 || opt->embed_dim > 1 << 16 || opt->hidden_dim < 1 ||
                opt->hidden_dim > 1 << 16,
            err, STATUS_USAGE,
            "embedding size %d or that of the hidden layer, %d, is not in 1-65536",
            (int)opt->embed_dim, (int)opt->hidden_dim);
    REQUIRE(opt->moments == 1 || opt->moments == 2);
    REQUIRE(!opt->raw || opt->dtype != DTYPE_BF16);
    REQUIRE(opt->slots >= 0 && opt->slots <= DUAL_ENCODER_MAX_SLOTS);
    FAIL_IF(opt->micro_batch < 0 || opt->micro_batch > opt->max_batch / 2, err, STATUS_USAGE,
            "--micro-batch %d is larger than --batch-size %d", (int)opt->micro_batch,
            (int)(opt->max_batch / 2));
    enum status s = STATUS_OK;
    struct view_encoder *m = calloc(1, sizeof *m);
    TRY_MEMORY(m != NULL, err, "out of memory for the model");
    m->opt = *opt;
    m->held_count = opt->micro_batch == 0 ? opt->max_batch : 2 * opt->micro_batch;
    m->opt.image.max_batch = m->held_count;
    m->opt.image.training = opt->training;
    TRY_OR_FAIL(s, params_create(&m->params, err));
    params_set_moments(m->params, opt->moments);
    TRY_OR_FAIL(s, params_set_prefix(m->params, "image.", err));
    TRY_OR_FAIL(s, resnet_create(&m->image, m->params, &m->opt.image, err));
    TRY_OR_FAIL(s, params_set_prefix(m->params, "", err));
    m->feature_count = resnet_feature_count(m->image);
    TRY_OR_FAIL(s, add_head(m, err));
    plan_memory(m, host_memory);
fail:
    RETURN_CREATED(s, out, m, view_encoder_destroy);
}

enum status view_encoder_plan(struct dual_encoder_memory *out,
                              const struct view_encoder_options *opt,
                              struct error *err) {
    struct view_encoder *m = NULL;
    TRY(describe(&m, opt, opt->slots == 0, err));
    *out = m->memory;
    view_encoder_destroy(m);
    return STATUS_OK;
}

enum status view_encoder_create(struct view_encoder **out,
                                struct device *dev,
                                const struct view_encoder_options *opt,
                                struct error *err) {
    struct view_encoder *m = NULL;
    struct encoder_carves carves;
    *out = NULL;
    REQUIRE(opt->slots == 0 || dev->stream != NULL);
    TRY(dev->ops->supports(dev, opt->dtype, err));
    TRY(describe(&m, opt, dev->stream == NULL, err));
    m->dev = dev;
    m->units.dev = dev;
    const enum status s = encoder_blocks_take(&m->blocks, &carves, dev, &m->memory, err);
    if (s != STATUS_OK) {
        view_encoder_destroy(m);
        return s;
    }
    place(m, &carves);
    *out = m;
    return STATUS_OK;
}

void view_encoder_destroy(struct view_encoder *m) {
    if (m == NULL) {
        return;
    }
    encoder_blocks_free(&m->blocks, m->dev);
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
static struct tensor as_pixels(struct tensor t) {
    return tensor_4d(t.data, t.dtype, t.shape[0], 1, 1, t.shape[1]);
}

static struct tensor as_rows(struct tensor t) {
    return tensor_2d(t.data, t.dtype, t.shape[0], t.shape[3]);
}

/* One micro-batch of a batch. */
struct part {
    int32_t start, count; /* its images */
    int32_t view_count;   /* of each: 2, or 1 for evaluation */
    int32_t whole_count;  /* images of the batch */
    int32_t slot;
    enum resnet_pass pass;
};

static struct part part_of(const struct view_encoder *m,
                           const struct view_encoder_batch *whole,
                           int32_t start,
                           enum resnet_pass pass) {
    const int32_t left = whole->count - start;
    const int32_t most = m->held_count / 2;
    return (struct part){.start = start,
                         .count = left < most ? left : most,
                         .view_count = 2,
                         .whole_count = whole->count,
                         .slot = whole->slot,
                         .pass = pass};
}

/* The part's rows of one view in a tensor of all embeddings. */
static struct tensor view_rows(const struct part *p, const struct tensor *whole, int32_t view) {
    return rows_from(*whole, (int64_t)view * p->whole_count + p->start, p->count);
}

/* The part's views in its slot: the first views, then the second ones. */
static struct tensor views_of(const struct view_encoder *m, const struct part *p) {
    const int64_t at = p->slot > 0 ? 2 * (int64_t)p->start : 0;
    return rows_from(m->slots[p->slot].images, at, p->count * p->view_count);
}

static enum status copy_views(struct view_encoder *m,
                              const struct view_encoder_batch *batch,
                              const struct part *p,
                              struct error *err) {
    const uint8_t *const views[2] = {batch->first, batch->second};
    const struct tensor both = views_of(m, p);
    const size_t image_bytes = tensor_size_bytes(&both) / (size_t)both.shape[0];
    for (int32_t v = 0; v < p->view_count; v++) {
        const struct tensor to = rows_from(both, v * p->count, p->count);
        TRY(encoder_copy(m->dev, p->slot, &to, views[v] + (size_t)p->start * image_bytes, err));
    }
    return STATUS_OK;
}

/* The part's views, which slot 0 copies first, through tower and head -> its rows of m->out, of
 * length 1 but with `raw` */
static enum status part_forward(struct view_encoder *m,
                                const struct view_encoder_batch *batch,
                                const struct part *p,
                                struct error *err) {
    const struct ops *ops = m->dev->ops;
    const int32_t n = p->count * p->view_count;
    const struct tensor images = views_of(m, p);
    TRY(p->slot == 0 ? copy_views(m, batch, p, err) : STATUS_OK);
    TRY(resnet_forward(m->image, &m->features, &images, p->pass, err));
    m->units.pass = p->pass;
    TRY(unit_forward(&m->units, &m->hidden, as_pixels(m->features), NOT_WANTED, err));
    struct linear project = {.out = first_rows(m->z, n),
                             .in = as_rows(first_rows(m->hidden.out, n)),
                             .weight = params_tensor(m->params, m->weight),
                             .bias = params_tensor(m->params, m->bias)};
    for (int32_t v = 0; v < p->view_count && m->opt.raw; v++) {
        project.out = view_rows(p, &m->out, v);
        project.in = as_rows(rows_from(m->hidden.out, v * p->count, p->count));
        TRY(ops->linear(m->dev, &project, err));
    }
    if (m->opt.raw) {
        return STATUS_OK;
    }
    TRY(ops->linear(m->dev, &project, err));
    for (int32_t v = 0; v < p->view_count; v++) {
        const struct l2_normalize normalize = {.out = view_rows(p, &m->out, v),
                                               .norm = rows_from(m->norm, v * p->count, p->count),
                                               .in = rows_from(m->z, v * p->count, p->count)};
        TRY(ops->l2_normalize(m->dev, &normalize, err));
    }
    return STATUS_OK;
}

enum status view_encoder_put(struct view_encoder *m,
                             const struct view_encoder_batch *batch,
                             struct error *err) {
    REQUIRE(batch->slot >= 1 && batch->slot <= m->opt.slots);
    REQUIRE(batch->count >= 1 && 2 * batch->count <= m->opt.max_batch);
    m->slots[batch->slot].count = batch->count;
    for (int32_t start = 0; start < batch->count; start += m->held_count / 2) {
        const struct part p = part_of(m, batch, start, RESNET_TRAINING);
        TRY(copy_views(m, batch, &p, err));
    }
    return STATUS_OK;
}

uint64_t view_encoder_shape(const struct view_encoder *m, int32_t slot) {
    const uint64_t numbers[2] = {(uint64_t)slot, (uint64_t)m->slots[slot].count};
    return hash64(numbers, sizeof numbers);
}

enum status view_encoder_forward(struct view_encoder *m,
                                 struct tensor *x,
                                 const struct view_encoder_batch *batch,
                                 struct error *err) {
    REQUIRE(m->opt.training && batch->count >= 1 && 2 * batch->count <= m->opt.max_batch);
    REQUIRE(!batch->beside || batch->slot == 0);
    const int32_t most = m->held_count / 2;
    running_begin(&m->blocks.running, (batch->count + most - 1) / most);
    for (int32_t start = 0; start < batch->count; start += most) {
        const struct part p =
            part_of(m, batch, start, batch->beside ? RESNET_REPLAY : RESNET_TRAINING);
        if (!batch->beside) {
            running_part(&m->blocks.running);
        }
        TRY(part_forward(m, batch, &p, err));
    }
    TRY(batch->beside ? STATUS_OK : running_end(&m->blocks.running, err));
    *x = first_rows(m->out, 2 * batch->count);
    return STATUS_OK;
}

enum status view_encoder_encode(struct view_encoder *m,
                                struct tensor *x,
                                struct tensor *features,
                                const uint8_t *images,
                                int32_t count,
                                struct error *err) {
    REQUIRE(count >= 1 && count <= m->held_count);
    REQUIRE(features == NULL || m->opt.dtype != DTYPE_BF16);
    const struct view_encoder_batch batch = {.count = count, .first = images};
    const struct part p = {
        .count = count, .view_count = 1, .whole_count = count, .pass = RESNET_INFERENCE};
    TRY(part_forward(m, &batch, &p, err));
    *x = first_rows(m->out, count);
    if (features != NULL) {
        *features = m->features;
    }
    return STATUS_OK;
}

/* dX -> m->dhidden (n, 1, 1, D), and the gradients of the second linear layer. */
static enum status output_backward(struct view_encoder *m,
                                   const struct tensor *dx,
                                   const struct part *p,
                                   enum write_mode mode,
                                   struct error *err) {
    const struct ops *ops = m->dev->ops;
    const int64_t n = 2 * p->count;
    struct linear_bwd project = {.dweight = params_grad(m->params, m->weight),
                                 .dbias = params_grad(m->params, m->bias),
                                 .weight = params_tensor(m->params, m->weight),
                                 .param_mode = mode};
    for (int32_t v = 0; v < 2 && m->opt.raw; v++) {
        project.din = as_rows(rows_from(m->dhidden, v * p->count, p->count));
        project.dout = view_rows(p, dx, v);
        project.in = as_rows(rows_from(m->hidden.out, v * p->count, p->count));
        TRY(ops->linear_bwd(m->dev, &project, err));
        project.param_mode = WRITE_ADD;
    }
    if (m->opt.raw) {
        return STATUS_OK;
    }
    for (int32_t v = 0; v < 2; v++) { /* over z, which is not needed any more */
        const struct l2_normalize_bwd normalize = {.din = rows_from(m->z, v * p->count, p->count),
                                                   .dout = view_rows(p, dx, v),
                                                   .out = view_rows(p, &m->out, v),
                                                   .norm =
                                                       rows_from(m->norm, v * p->count, p->count)};
        TRY(ops->l2_normalize_bwd(m->dev, &normalize, err));
    }
    project.din = as_rows(first_rows(m->dhidden, n));
    project.dout = first_rows(m->z, n);
    project.in = as_rows(first_rows(m->hidden.out, n));
    return ops->linear_bwd(m->dev, &project, err);
}

/* Backward of the part whose forward was the last one. */
static enum status part_backward(struct view_encoder *m,
                                 const struct tensor *dx,
                                 const struct part *p,
                                 enum write_mode mode,
                                 struct error *err) {
    const int64_t n = 2 * p->count;
    TRY(output_backward(m, dx, p, mode, err));
    const struct tensor dfeatures = first_rows(m->dfeatures, n);
    m->units.mode = mode;
    TRY(unit_backward(&m->units, &m->hidden, as_pixels(m->features), as_pixels(dfeatures),
                      WRITE_SET, NOT_WANTED, first_rows(m->dhidden, n), err));
    TRY(gradients_final(&m->blocks.sums, m->hidden.weight, err));
    return resnet_backward(m->image, &dfeatures, mode, &m->blocks.sums, err);
}

enum status view_encoder_backward(struct view_encoder *m,
                                  const struct tensor *dx,
                                  const struct view_encoder_batch *batch,
                                  enum write_mode mode,
                                  const struct gradient_ready *ready,
                                  struct error *err) {
    REQUIRE(m->opt.training && batch->count >= 1 && 2 * batch->count <= m->opt.max_batch);
    REQUIRE(dx->shape[0] == 2 * (int64_t)batch->count);
    struct gradients *sums = &m->blocks.sums;
    const int32_t most = m->held_count / 2;
    const int32_t last = (batch->count - 1) / most;
    gradients_begin(sums, last + 1, mode, ready);
    for (int32_t i = last; i >= 0; i--) {
        const bool again = i < last || batch->beside;
        const struct part p = part_of(m, batch, i * most, again ? RESNET_REPLAY : RESNET_TRAINING);
        if (again) {
            TRY(part_forward(m, batch, &p, err));
        }
        TRY(part_backward(m, dx, &p, gradients_part(sums, i), err));
        TRY(gradients_part_end(sums, err));
    }
    return STATUS_OK;
}
