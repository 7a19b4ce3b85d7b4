/*
 * One tower, one head, one memory plan. The head's first half is a convolution of 1 x 1 pixels with
 * batch norm and ReLU, the only operator for a linear layer with batch norm:
 *
 *   parameters   the table's blocks, and more of gradients (gradients.h)
 *   kept         image tower | head
 *   workspace      of the tower
 *   input        the views; whole batches in slots
 *
 * all for the views of one micro-batch, except the embeddings, which are the whole batch's: a
 * part's first views go to the embeddings' first half, its second views to the second. The order of
 * the passes is dual_encoder's.
 */
#include "train/model/view_encoder.h"

#include <math.h>
#include <stdlib.h>

#include "formats/base/hash.h"
#include "train/model/conv_unit_internal.h"
#include "train/model/encoder_internal.h"
#include "train/model/image_tower.h"

struct view_encoder {
    struct view_encoder_options opt;
    struct encoder e;
    struct image_tower image;
    int32_t feature_count;
    struct unit_owner units;
    struct unit hidden; /* F to D, of one pixel; its weight is (D, F) in the table */
    struct head head;   /* D to E */
    struct {
        struct tensor images; /* u8: slot 0 (H, S, S, 3), one part at a time; others (max_batch, S,
                                 S, 3), a whole batch, see put. H = encoder.held_rows */
        int32_t count;        /* images of view_encoder_put, two views each; 0: none */
    } slots[1 + DUAL_ENCODER_MAX_SLOTS];
    struct tensor features;  /* (n, F) of the last forward, in the tower's memory */
    struct tensor dfeatures; /* (H, F) */
};

/* ---- description and plan ---- */

static enum status add_head(struct view_encoder *m, struct error *err) {
    const struct view_encoder_options *o = &m->opt;
    const struct param_spec hidden = {.name = "proj.0.weight",
                                      .shape = {o->hidden_dim, m->feature_count},
                                      .init = PARAM_INIT_UNIFORM,
                                      .init_scale = 1.0 / sqrt((double)m->feature_count)};
    m->units = (struct unit_owner){
        .params = m->e.params, .norm = o->image.norm_layers, .group = o->image.bn_group};
    m->hidden = (struct unit){.in_channels = m->feature_count,
                              .out_channels = o->hidden_dim,
                              .kernel = 1,
                              .stride = 1,
                              .in_px = 1,
                              .out_px = 1,
                              .act = ACTIVATION_RELU};
    TRY(params_add(m->e.params, &m->hidden.weight, &hidden, err));
    TRY(unit_add_norm(&m->hidden, &m->units, "proj.1", PARAM_INIT_ONES, err));
    return head_add(&m->head, &m->e, "proj.3", o->hidden_dim, err);
}

static void place_head(struct view_encoder *m, struct carve *kept) {
    const struct view_encoder_options *o = &m->opt;
    const int64_t n = m->e.held_rows;
    struct unit *u = &m->hidden;
    u->out = carve_take(kept, tensor_4d(NULL, o->dtype, n, 1, 1, o->hidden_dim));
    if (o->image.norm_layers != RESNET_NORM_NONE) {
        u->pre = carve_take(kept, u->out);
        u->mean = carve_take(kept, unit_statistics(&m->units, o->dtype, n, o->hidden_dim));
        u->rstd = carve_take(kept, u->mean);
    }
    m->e.z = carve_take(kept, tensor_2d(NULL, o->dtype, n, o->embed_dim));
    head_place(&m->head, &m->e, kept);
    if (o->training) {
        m->units.dpre = carve_take(kept, u->out);
        m->dfeatures = carve_take(kept, tensor_2d(NULL, o->dtype, n, m->feature_count));
    }
}

static void place_input(struct view_encoder *m, struct carve *input) {
    const int64_t px = m->opt.image.image_px;
    for (int32_t i = 0; i <= m->opt.slots; i++) {
        const int64_t n = i == 0 ? m->e.held_rows : m->opt.max_batch;
        m->slots[i].images = carve_take(input, tensor_4d(NULL, DTYPE_U8, n, px, px, 3));
    }
}

static void place(struct view_encoder *m, struct encoder_carves *c) {
    image_tower_place(&m->image, m->e.dev, m->opt.dtype, &c->kept, &c->workspace);
    place_head(m, &c->kept);
    place_input(m, &c->input);
}

/* Everything but device memory. */
static enum status describe(struct view_encoder **out,
                            const struct view_encoder_options *opt,
                            bool host_memory,
                            struct error *err) {
    enum status s = STATUS_OK;
    struct encoder_carves used = {0};
    *out = NULL;
    FAIL_IF(opt->hidden_dim < 1 || opt->hidden_dim > 1 << 16, err, STATUS_USAGE,
            "size of the hidden layer, %d, is not in 1-65536", (int)opt->hidden_dim);
    struct view_encoder *m = calloc(1, sizeof *m);
    TRY_MEMORY(m != NULL, err, "out of memory for the model");
    m->opt = *opt;
    m->e = (struct encoder){.dtype = opt->dtype,
                            .training = opt->training,
                            .raw = opt->raw,
                            .comm = opt->comm,
                            .embed_dim = opt->embed_dim,
                            .max_rows = opt->max_batch,
                            .views = 2};
    TRY_OR_FAIL(s, encoder_init(&m->e, opt->micro_batch, opt->moments, opt->slots, err));
    params_keep_average(m->e.params, opt->average);
    m->opt.image.max_batch = m->e.held_rows;
    m->opt.image.training = opt->training;
    TRY_OR_FAIL(s, params_set_prefix(m->e.params, "image.", err));
    TRY_OR_FAIL(s, image_tower_create(&m->image, m->e.params, &m->opt.image, &m->opt.vit, err));
    if (m->image.vit != NULL) {
        vit_set_backward(m->image.vit, 0, blocks_keep_of(opt->recompute, host_memory));
    }
    TRY_OR_FAIL(s, params_set_prefix(m->e.params, "", err));
    m->feature_count = image_tower_feature_count(&m->image);
    TRY_OR_FAIL(s, add_head(m, err));
    place(m, &used);
    encoder_plan(&m->e, &used, host_memory);
fail:
    RETURN_CREATED(s, out, m, view_encoder_destroy);
}

enum status view_encoder_plan(struct dual_encoder_memory *out,
                              const struct view_encoder_options *opt,
                              struct error *err) {
    struct view_encoder *m = NULL;
    TRY(describe(&m, opt, opt->slots == 0, err));
    *out = m->e.memory;
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
    m->units.dev = dev;
    enum status s = encoder_take(&m->e, &carves, dev, err);
    if (s != STATUS_OK) {
        view_encoder_destroy(m);
        return s;
    }
    place(m, &carves);
    s = image_tower_ready(&m->image, err);
    RETURN_CREATED(s, out, m, view_encoder_destroy);
}

void view_encoder_destroy(struct view_encoder *m) {
    if (m == NULL) {
        return;
    }
    image_tower_destroy(&m->image);
    encoder_fini(&m->e);
    free(m);
}

struct params *view_encoder_params(struct view_encoder *m) {
    return m->e.params;
}

const struct view_encoder_options *view_encoder_get_options(const struct view_encoder *m) {
    return &m->opt;
}

int32_t view_encoder_feature_count(const struct view_encoder *m) {
    return m->feature_count;
}

struct dual_encoder_memory view_encoder_memory_used(const struct view_encoder *m) {
    return m->e.memory;
}

/* ---- passes ---- */

/* A matrix (N, C) as images of one pixel (N, 1, 1, C), or a weight likewise. */
static struct tensor as_pixels(struct tensor t) {
    return tensor_4d(t.data, t.dtype, t.shape[0], 1, 1, t.shape[1]);
}

static struct tensor as_rows(struct tensor t) {
    return tensor_2d(t.data, t.dtype, t.shape[0], t.shape[3]);
}

/* The part's views in their slot: the first views, then the second ones. */
static struct tensor
views_of(const struct view_encoder *m, int32_t slot, const struct encoder_part *p) {
    const int64_t at = slot > 0 ? 2 * (int64_t)p->start : 0;
    return rows_from(m->slots[slot].images, at, p->count * p->views);
}

static enum status copy_views(struct view_encoder *m,
                              const struct view_encoder_batch *batch,
                              const struct encoder_part *p,
                              struct error *err) {
    const uint8_t *const views[2] = {batch->first, batch->second};
    const struct tensor both = views_of(m, batch->slot, p);
    const size_t image_bytes = tensor_size_bytes(&both) / (size_t)both.shape[0];
    for (int32_t v = 0; v < p->views; v++) {
        const struct tensor to = rows_from(both, v * p->count, p->count);
        TRY(encoder_copy(m->e.dev, batch->slot, &to, views[v] + (size_t)p->start * image_bytes,
                         err));
    }
    return STATUS_OK;
}

/* Runs the part's views, which slot 0 copies first, through tower and head. */
static enum status
part_forward(void *model, const void *views, const struct encoder_part *p, struct error *err) {
    struct view_encoder *m = model;
    const struct view_encoder_batch *batch = views;
    const struct tensor images = views_of(m, batch->slot, p);
    TRY(batch->slot == 0 ? copy_views(m, batch, p, err) : STATUS_OK);
    TRY(image_tower_forward(&m->image, &m->features, &images, NOT_WANTED, p->pass, err));
    m->units.pass = p->pass;
    TRY(unit_forward(&m->units, &m->hidden, as_pixels(m->features), NOT_WANTED, err));
    m->head.features = as_rows(first_rows(m->hidden.out, images.shape[0]));
    return head_forward(&m->head, &m->e, p, err);
}

static enum status part_backward(void *model,
                                 const void *views,
                                 const struct tensor *const dout[2],
                                 const struct encoder_part *p,
                                 enum write_mode mode,
                                 struct error *err) {
    (void)views;
    struct view_encoder *m = model;
    struct tensor dhidden;
    TRY(head_backward(&m->head, &m->e, &dhidden, dout[0], p, mode, err));
    const struct tensor dfeatures = first_rows(m->dfeatures, dhidden.shape[0]);
    m->units.mode = mode;
    TRY(unit_backward(&m->units, &m->hidden, as_pixels(m->features), as_pixels(dfeatures),
                      WRITE_SET, NOT_WANTED, as_pixels(dhidden), err));
    TRY(gradients_final(&m->e.sums, m->hidden.weight, err));
    return image_tower_backward(&m->image, &dfeatures, mode, &m->e.sums, err);
}

static struct encoder_batch whole_of(struct view_encoder *m,
                                     const struct view_encoder_batch *batch) {
    return (struct encoder_batch){.model = m,
                                  .batch = batch,
                                  .count = batch->count,
                                  .beside = batch->beside,
                                  .forward = part_forward,
                                  .backward = part_backward};
}

enum status view_encoder_put(struct view_encoder *m,
                             const struct view_encoder_batch *batch,
                             struct error *err) {
    REQUIRE(batch->slot >= 1 && batch->slot <= m->opt.slots);
    REQUIRE(batch->count >= 1 && 2 * batch->count <= m->opt.max_batch);
    m->slots[batch->slot].count = batch->count;
    for (int32_t start = 0; start < batch->count; start += encoder_micro_batch(&m->e)) {
        const struct encoder_part p = encoder_part(&m->e, batch->count, start, RESNET_TRAINING);
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
    const struct encoder_batch whole = whole_of(m, batch);
    TRY(encoder_forward(&m->e, &whole, batch->beside ? RESNET_REPLAY : RESNET_TRAINING, err));
    *x = first_rows(m->head.out, 2 * batch->count);
    return STATUS_OK;
}

enum status view_encoder_encode(struct view_encoder *m,
                                struct tensor *x,
                                struct tensor *features,
                                const uint8_t *images,
                                int32_t count,
                                struct error *err) {
    REQUIRE(count >= 1 && count <= m->e.held_rows);
    const struct view_encoder_batch batch = {.count = count, .first = images};
    const struct encoder_part p = {
        .count = count, .views = 1, .whole_count = count, .pass = RESNET_INFERENCE};
    TRY(part_forward(m, &batch, &p, err));
    *x = first_rows(m->head.out, count);
    if (features != NULL) {
        *features = m->features;
    }
    return STATUS_OK;
}

enum status view_encoder_backward(struct view_encoder *m,
                                  const struct tensor *dx,
                                  const struct view_encoder_batch *batch,
                                  enum write_mode mode,
                                  const struct gradient_ready *ready,
                                  struct error *err) {
    REQUIRE(m->opt.training && batch->count >= 1 && 2 * batch->count <= m->opt.max_batch);
    REQUIRE(dx->shape[0] == 2 * (int64_t)batch->count);
    const struct tensor *const dout[2] = {dx, NULL};
    const struct encoder_batch whole = whole_of(m, batch);
    return encoder_backward(&m->e, &whole, dout, mode, ready, err);
}
