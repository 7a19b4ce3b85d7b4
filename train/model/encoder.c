/*
 * encoder: one list of a model's memory, for planning and for allocating; the order of
 * micro-batches; heads.
 */
#include "train/model/encoder_internal.h"

#include <math.h>

#include "kernels/device_stream.h"
#include "train/comm/comm_device.h"

/* Weight of a micro-batch, as PyTorch's. */
static const float momentum = 0.1f;

/* ---- description and memory ---- */

enum status encoder_init(struct encoder *e,
                         int32_t micro_batch,
                         int32_t moments,
                         int32_t slots,
                         struct error *err) {
    const int32_t most = e->max_rows / e->views;
    FAIL_IF(e->embed_dim < 1 || e->embed_dim > 1 << 16, err, STATUS_USAGE,
            "embedding size %d is not in 1-65536", (int)e->embed_dim);
    REQUIRE(moments == 1 || moments == 2);
    REQUIRE(!e->raw || e->dtype != DTYPE_BF16);
    REQUIRE(slots >= 0 && slots <= DUAL_ENCODER_MAX_SLOTS);
    FAIL_IF(micro_batch < 0 || micro_batch > most, err, STATUS_USAGE,
            "--micro-batch %d is larger than --batch-size %d", (int)micro_batch, (int)most);
    e->held_rows = micro_batch == 0 ? e->max_rows : e->views * micro_batch;
    TRY(params_create(&e->params, err));
    params_set_moments(e->params, moments);
    return STATUS_OK;
}

int32_t encoder_micro_batch(const struct encoder *e) {
    return e->held_rows / e->views;
}

int32_t encoder_part_count(const struct encoder *e, int32_t count) {
    const int32_t most = encoder_micro_batch(e);
    return most > 0 ? (count + most - 1) / most : 1;
}

/* Rows of statistics: part_count micro-batches per rank. */
static int64_t running_rows(const struct encoder *e, int32_t part_count) {
    return (int64_t)part_count * (e->comm != NULL ? comm_world(e->comm) : 1);
}

void encoder_plan(struct encoder *e, const struct encoder_carves *used, bool host_memory) {
    const struct params_bytes bytes = params_plan(e->params, e->dtype, e->training);
    struct dual_encoder_memory *m = &e->memory;
    e->parts = encoder_part_count(e, e->max_rows / e->views);
    e->sum_blocks = e->training && host_memory ? gradients_block_count(e->parts) : 0;
    m->values_bytes = bytes.value_bytes + bytes.working_bytes + bytes.average_bytes;
    if (e->training) {
        m->values_bytes += (size_t)running_rows(e, e->parts) * bytes.buffer_bytes;
    }
    m->gradients_bytes = bytes.grad_bytes * (1 + (size_t)e->sum_blocks);
    m->moments_bytes = bytes.moments_bytes;
    m->activations_bytes = used->kept.used_bytes;
    m->workspace_bytes = used->workspace.used_bytes;
    m->input_bytes = used->input.used_bytes;
    m->total_bytes = m->values_bytes + m->gradients_bytes + m->moments_bytes +
                     m->activations_bytes + m->workspace_bytes + m->input_bytes;
    m->parameter_count = params_element_count(e->params, PARAM_TRAINED);
}

enum status
encoder_take(struct encoder *e, struct encoder_carves *out, struct device *dev, struct error *err) {
    e->dev = dev;
    TRY(params_alloc(e->params, dev, e->dtype, e->training, err));
    if (e->training) {
        const struct tensor values = params_buffers(e->params);
        const int64_t rows = running_rows(e, e->parts);
        void *data;
        TRY(gradients_init(&e->sums, e->params, dev, e->sum_blocks, err));
        TRY(dev->ops->alloc(dev, (size_t)rows * tensor_size_bytes(&values), &data, err));
        e->running = tensor_2d(data, values.dtype, rows, values.shape[0]);
    }
    TRY(dev->ops->alloc(dev, e->memory.activations_bytes, &e->kept, err));
    TRY(dev->ops->alloc(dev, e->memory.workspace_bytes, &e->workspace, err));
    TRY(dev->ops->alloc(dev, e->memory.input_bytes, &e->input, err));
    *out = (struct encoder_carves){
        .kept.base = e->kept, .workspace.base = e->workspace, .input.base = e->input};
    return STATUS_OK;
}

void encoder_fini(struct encoder *e) {
    if (e->dev != NULL) {
        e->dev->ops->free(e->dev, e->input);
        e->dev->ops->free(e->dev, e->workspace);
        e->dev->ops->free(e->dev, e->kept);
        e->dev->ops->free(e->dev, e->running.data);
        gradients_fini(&e->sums);
    }
    params_destroy(e->params);
}

enum status encoder_copy(struct device *dev,
                         int32_t slot,
                         const struct tensor *to,
                         const void *from,
                         struct error *err) {
    return (slot > 0 ? dev->stream->copy_in : dev->ops->upload)(dev, to->data, from,
                                                                tensor_size_bytes(to), err);
}

/* ---- batches ---- */

struct encoder_part
encoder_part(const struct encoder *e, int32_t count, int32_t start, enum resnet_pass pass) {
    const int32_t left = count - start;
    const int32_t most = encoder_micro_batch(e);
    return (struct encoder_part){.start = start,
                                 .count = left < most ? left : most,
                                 .views = e->views,
                                 .whole_count = count,
                                 .pass = pass};
}

static struct tensor running_row(const struct encoder *e, int64_t index) {
    const struct tensor row = rows_from(e->running, index, 1);
    return tensor_1d(row.data, row.dtype, row.shape[1]);
}

/* Called after all micro-batches of a batch, own_count per rank. Collective. */
static enum status move_running(struct encoder *e, int32_t own_count, struct error *err) {
    const int64_t count = running_rows(e, own_count);
    const struct tensor values = params_buffers(e->params);
    params_redirect_buffers(e->params, NULL);
    if (count > own_count) {
        const struct tensor own =
            rows_from(e->running, (int64_t)comm_rank(e->comm) * own_count, own_count);
        TRY(comm_device_gather(e->comm, e->dev, e->running.data, own.data, tensor_size_bytes(&own),
                               err));
    }
    for (int64_t i = 0; i < count && values.shape[0] > 0; i++) {
        const struct tensor part = running_row(e, i);
        const struct add difference = {.out = part, .in = values, .alpha = -1.0f};
        const struct add move = {.out = values, .in = part, .alpha = momentum};
        TRY(e->dev->ops->add(e->dev, &difference, err));
        TRY(e->dev->ops->add(e->dev, &move, err));
    }
    return STATUS_OK;
}

enum status encoder_forward(struct encoder *e,
                            const struct encoder_batch *b,
                            enum resnet_pass pass,
                            struct error *err) {
    const int32_t parts = encoder_part_count(e, b->count);
    const int64_t rank = e->comm != NULL ? comm_rank(e->comm) : 0;
    for (int32_t i = 0; i < parts; i++) {
        const struct encoder_part p = encoder_part(e, b->count, i * encoder_micro_batch(e), pass);
        if (pass == RESNET_TRAINING &&
            !e->fixed_statistics) { /* params_tensor returns views of the row from now on */
            params_redirect_buffers(e->params, running_row(e, rank * parts + i).data);
        }
        TRY(b->forward(b->model, b->batch, &p, err));
    }
    return pass == RESNET_TRAINING && !e->fixed_statistics ? move_running(e, parts, err)
                                                           : STATUS_OK;
}

enum status encoder_backward(struct encoder *e,
                             const struct encoder_batch *b,
                             const struct tensor *const dout[2],
                             enum write_mode mode,
                             const struct gradient_ready *ready,
                             struct error *err) {
    const int32_t last = encoder_part_count(e, b->count) - 1;
    gradients_begin(&e->sums, last + 1, mode, ready);
    for (int32_t i = last; i >= 0; i--) {
        const bool again = i < last || b->beside;
        const struct encoder_part p = encoder_part(e, b->count, i * encoder_micro_batch(e),
                                                   again ? RESNET_REPLAY : RESNET_TRAINING);
        TRY(again ? b->forward(b->model, b->batch, &p, err) : STATUS_OK);
        TRY(b->backward(b->model, b->batch, dout, &p, gradients_part(&e->sums, i), err));
        TRY(gradients_part_end(&e->sums, err));
    }
    return STATUS_OK;
}

/* ---- heads ---- */

enum status head_add(struct head *h,
                     const struct encoder *e,
                     const char *module,
                     int32_t feature_count,
                     struct error *err) {
    h->feature_count = feature_count;
    const struct param_spec weight = {.module = module,
                                      .name = "weight",
                                      .shape = {e->embed_dim, feature_count},
                                      .init = h->normal ? PARAM_INIT_NORMAL : PARAM_INIT_UNIFORM,
                                      .init_scale = 1.0 / sqrt((double)feature_count)};
    struct param_spec bias = weight;
    bias.name = "bias";
    bias.shape[1] = 0;
    bias.init = h->fixed_bias || h->zero_bias ? PARAM_INIT_ZEROS : PARAM_INIT_UNIFORM;
    TRY(params_add(e->params, &h->weight, &weight, err));
    return params_add(e->params, &h->bias, &bias, err);
}

enum status head_add_plain(struct head *h,
                           const struct encoder *e,
                           const char *name,
                           int32_t feature_count,
                           struct error *err) {
    const struct param_spec weight = {.name = name,
                                      .shape = {e->embed_dim, feature_count},
                                      .transposed = true,
                                      .init = PARAM_INIT_NORMAL,
                                      .init_scale = 1.0 / sqrt((double)feature_count)};
    h->feature_count = feature_count;
    h->bias = -1;
    return params_add(e->params, &h->weight, &weight, err);
}

void head_add_none(struct head *h, int32_t feature_count) {
    h->feature_count = feature_count;
    h->weight = h->bias = -1;
}

void head_place(struct head *h, const struct encoder *e, struct carve *kept) {
    const enum dtype exact = statistics_dtype(e->dtype);
    h->out = carve_take(kept, tensor_2d(NULL, exact, e->max_rows, e->embed_dim));
    h->norm = carve_take(kept, tensor_1d(NULL, exact, e->held_rows));
    if (e->training) {
        h->dfeatures = carve_take(kept, tensor_2d(NULL, e->dtype, e->held_rows, h->feature_count));
    }
}

/* The part's rows of one view in a tensor of the whole batch, and in one of the part alone. */
static struct tensor
whole_rows(const struct encoder_part *p, const struct tensor *whole, int32_t view) {
    return rows_from(*whole, (int64_t)view * p->whole_count + p->start, p->count);
}

static struct tensor part_rows(const struct encoder_part *p, const struct tensor *t, int32_t view) {
    return rows_from(*t, (int64_t)view * p->count, p->count);
}

enum status head_forward(const struct head *h,
                         const struct encoder *e,
                         const struct encoder_part *p,
                         struct error *err) {
    const struct ops *ops = e->dev->ops;
    const bool none = h->weight < 0;
    struct linear project = {.out = first_rows(e->z, (int64_t)p->count * p->views),
                             .in = h->features,
                             .weight = none ? NOT_WANTED : params_tensor(e->params, h->weight)};
    if (h->bias >= 0) {
        project.bias = params_tensor(e->params, h->bias);
    }
    TRY(e->raw || none ? STATUS_OK : ops->linear(e->dev, &project, err));
    for (int32_t v = 0; v < p->views; v++) {
        const struct l2_normalize normalize = {.out = whole_rows(p, &h->out, v),
                                               .norm = part_rows(p, &h->norm, v),
                                               .in = part_rows(p, none ? &h->features : &e->z, v)};
        project.out = normalize.out;
        project.in = part_rows(p, &h->features, v);
        TRY(e->raw ? ops->linear(e->dev, &project, err)
                   : ops->l2_normalize(e->dev, &normalize, err));
    }
    return STATUS_OK;
}

enum status head_backward(const struct head *h,
                          const struct encoder *e,
                          struct tensor *dfeatures,
                          const struct tensor *dout,
                          const struct encoder_part *p,
                          enum write_mode mode,
                          struct error *err) {
    const struct ops *ops = e->dev->ops;
    const int64_t n = (int64_t)p->count * p->views;
    const bool none = h->weight < 0;
    struct linear_bwd project = {.param_mode = mode};
    if (!none) {
        project.dweight = params_grad(e->params, h->weight);
        project.weight = params_tensor(e->params, h->weight);
    }
    if (!h->fixed_bias && h->bias >= 0) {
        project.dbias = params_grad(e->params, h->bias);
    }
    *dfeatures = first_rows(h->dfeatures, n);
    for (int32_t v = 0; v < p->views; v++) { /* overwrites z, which is no longer needed */
        const struct l2_normalize_bwd normalize = {.din = part_rows(p, none ? dfeatures : &e->z, v),
                                                   .dout = whole_rows(p, dout, v),
                                                   .out = whole_rows(p, &h->out, v),
                                                   .norm = part_rows(p, &h->norm, v)};
        project.din = part_rows(p, dfeatures, v);
        project.dout = normalize.dout;
        project.in = part_rows(p, &h->features, v);
        TRY(e->raw ? ops->linear_bwd(e->dev, &project, err)
                   : ops->l2_normalize_bwd(e->dev, &normalize, err));
        project.param_mode = e->raw ? WRITE_ADD : mode;
    }
    project.din = *dfeatures;
    project.dout = first_rows(e->z, n);
    project.in = h->features;
    return e->raw || none ? STATUS_OK : ops->linear_bwd(e->dev, &project, err);
}
