/*
 * encoder_internal: one list of what a model's memory is, for planning and for taking.
 */
#include "train/model/encoder_internal.h"

#include "kernels/device_stream.h"
#include "train/comm/comm_device.h"

/* Weight of a micro-batch, as PyTorch's. */
static const float momentum = 0.1f;

/* Rows of batches of part_count micro-batches on each rank. */
static int64_t running_rows(const struct comm *comm, int32_t part_count) {
    return (int64_t)part_count * (comm != NULL ? comm_world(comm) : 1);
}

static enum status running_init(struct running *r,
                                struct params *p,
                                struct device *dev,
                                struct comm *comm,
                                int32_t part_count,
                                struct error *err) {
    const struct tensor values = params_buffers(p);
    const int64_t rows = running_rows(comm, part_count);
    void *data;
    *r = (struct running){.params = p, .dev = dev, .comm = comm};
    TRY(dev->ops->alloc(dev, (size_t)rows * tensor_size_bytes(&values), &data, err));
    r->rows = tensor_2d(data, values.dtype, rows, values.shape[0]);
    return STATUS_OK;
}

static void running_fini(struct running *r) {
    if (r->dev != NULL) {
        r->dev->ops->free(r->dev, r->rows.data);
    }
}

static struct tensor row(const struct running *r, int64_t index) {
    const struct tensor first = tensor_1d(r->rows.data, r->rows.dtype, r->rows.shape[1]);
    return tensor_1d((char *)first.data + (size_t)index * tensor_size_bytes(&first), first.dtype,
                     first.shape[0]);
}

void running_begin(struct running *r, int32_t part_count) {
    r->own_count = part_count;
    r->part = -1;
}

void running_part(struct running *r) {
    const int64_t rank = r->comm != NULL ? comm_rank(r->comm) : 0;
    r->part++;
    params_redirect_buffers(r->params, row(r, rank * r->own_count + r->part).data);
}

enum status running_end(struct running *r, struct error *err) {
    const int64_t count = running_rows(r->comm, r->own_count);
    const struct tensor one = row(r, 0);
    params_redirect_buffers(r->params, NULL);
    if (count > r->own_count) {
        const size_t own_bytes = (size_t)r->own_count * tensor_size_bytes(&one);
        TRY(comm_device_gather(r->comm, r->dev, r->rows.data,
                               row(r, (int64_t)comm_rank(r->comm) * r->own_count).data, own_bytes,
                               err));
    }
    const struct tensor values = params_buffers(r->params);
    for (int64_t i = 0; i < count && values.shape[0] > 0; i++) {
        const struct tensor part = row(r, i);
        const struct add difference = {.out = part, .in = values, .alpha = -1.0f};
        const struct add move = {.out = values, .in = part, .alpha = momentum};
        TRY(r->dev->ops->add(r->dev, &difference, err));
        TRY(r->dev->ops->add(r->dev, &move, err));
    }
    return STATUS_OK;
}

void encoder_plan(struct encoder_blocks *b,
                  struct dual_encoder_memory *m,
                  const struct encoder_carves *used,
                  bool host_memory) {
    const struct params_bytes bytes = params_plan(b->params, b->dtype, b->training);
    b->sum_blocks = b->training && host_memory ? gradients_block_count(b->parts) : 0;
    m->values_bytes = bytes.value_bytes + bytes.working_bytes;
    if (b->training) {
        m->values_bytes += (size_t)running_rows(b->comm, b->parts) * bytes.buffer_bytes;
    }
    m->gradients_bytes = bytes.grad_bytes * (1 + (size_t)b->sum_blocks);
    m->moments_bytes = bytes.moments_bytes;
    m->activations_bytes = used->kept.used_bytes;
    m->scratch_bytes = used->scratch.used_bytes;
    m->input_bytes = used->input.used_bytes;
    m->total_bytes = m->values_bytes + m->gradients_bytes + m->moments_bytes +
                     m->activations_bytes + m->scratch_bytes + m->input_bytes;
    m->parameter_count = params_element_count(b->params, PARAM_TRAINED);
}

enum status encoder_blocks_take(struct encoder_blocks *b,
                                struct encoder_carves *out,
                                struct device *dev,
                                const struct dual_encoder_memory *m,
                                struct error *err) {
    TRY(params_alloc(b->params, dev, b->dtype, b->training, err));
    if (b->training) {
        TRY(gradients_init(&b->sums, b->params, dev, b->sum_blocks, err));
        TRY(running_init(&b->running, b->params, dev, b->comm, b->parts, err));
    }
    TRY(dev->ops->alloc(dev, m->activations_bytes, &b->kept, err));
    TRY(dev->ops->alloc(dev, m->scratch_bytes, &b->scratch, err));
    TRY(dev->ops->alloc(dev, m->input_bytes, &b->input, err));
    *out = (struct encoder_carves){
        .kept.base = b->kept, .scratch.base = b->scratch, .input.base = b->input};
    return STATUS_OK;
}

void encoder_blocks_free(struct encoder_blocks *b, struct device *dev) {
    if (dev == NULL) {
        return;
    }
    dev->ops->free(dev, b->input);
    dev->ops->free(dev, b->scratch);
    dev->ops->free(dev, b->kept);
    running_fini(&b->running);
    gradients_fini(&b->sums);
}

enum status encoder_copy(struct device *dev,
                         int32_t slot,
                         const struct tensor *to,
                         const void *from,
                         struct error *err) {
    return (slot > 0 ? dev->stream->copy_in : dev->ops->upload)(dev, to->data, from,
                                                                tensor_size_bytes(to), err);
}
