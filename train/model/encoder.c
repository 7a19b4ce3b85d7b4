/*
 * encoder_internal: one list of what a model's memory is, for planning and for taking.
 */
#include "train/model/encoder_internal.h"

#include "kernels/device_stream.h"

void encoder_plan(struct encoder_blocks *b, struct dual_encoder_memory *m, bool host_memory) {
    const struct params_bytes bytes = params_plan(b->params, b->dtype, b->training);
    b->sum_blocks = b->training && host_memory ? gradients_block_count(b->parts) : 0;
    m->values_bytes = bytes.value_bytes + bytes.working_bytes;
    if (b->training) {
        m->values_bytes += (size_t)running_rows(b->comm, b->parts) * bytes.buffer_bytes;
    }
    m->gradients_bytes = bytes.grad_bytes * (1 + (size_t)b->sum_blocks);
    m->moments_bytes = bytes.moments_bytes;
    m->total_bytes = m->values_bytes + m->gradients_bytes + m->moments_bytes +
                     m->activations_bytes + m->scratch_bytes + m->input_bytes;
    m->parameter_count = params_element_count(b->params, PARAM_TRAINED);
}

enum status encoder_blocks_take(struct encoder_blocks *b,
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
    return dev->ops->alloc(dev, m->input_bytes, &b->input, err);
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
