/*
 * table: the reference backend: plain loops in double, the specification of every op.
 */
#include <stdlib.h>

#include "kernels/backend_internal.h"
#include "kernels/cpu_ref/ref_internal.h"

const struct ops *ops_cpu_ref(void) {
    static const struct ops table = {
        .name = "cpu-ref",
        .alloc = ref_alloc,
        .free = ref_free,
        .upload = ref_upload,
        .download = ref_download,
        .sync = ref_sync,
        .supports = ref_supports,
        .fill = ref_fill,
        .cast = ref_cast,
        .normalize_u8 = ref_normalize_u8,
        .conv_bn = ref_conv_bn,
        .conv_bn_bwd = ref_conv_bn_bwd,
        .maxpool = ref_maxpool,
        .maxpool_bwd = ref_maxpool_bwd,
        .avgpool = ref_avgpool,
        .avgpool_bwd = ref_avgpool_bwd,
        .global_avgpool = ref_global_avgpool,
        .global_avgpool_bwd = ref_global_avgpool_bwd,
        .linear = ref_linear,
        .linear_bwd = ref_linear_bwd,
        .matmul = ref_matmul,
        .embedding = ref_embedding,
        .embedding_bwd = ref_embedding_bwd,
        .layernorm = ref_layernorm,
        .layernorm_bwd = ref_layernorm_bwd,
        .attention = ref_attention,
        .attention_bwd = ref_attention_bwd,
        .dropout = ref_dropout,
        .segment_mean = ref_segment_mean,
        .segment_mean_bwd = ref_segment_mean_bwd,
        .gather_rows = ref_gather_rows,
        .scatter_rows = ref_scatter_rows,
        .l2_normalize = ref_l2_normalize,
        .l2_normalize_bwd = ref_l2_normalize_bwd,
        .add = ref_add,
        .sum_squares = ref_sum_squares,
        .grad_scale = ref_grad_scale,
        .adamw = ref_adamw,
        .sgdm = ref_sgdm,
    };
    return &table;
}

static void cpu_ref_close(struct device *dev) {
    free(dev);
}

enum status cpu_ref_open(struct device **out, int32_t threads_count, struct error *err) {
    (void)threads_count; /* the specification is one thread */
    struct device *dev = calloc(1, sizeof *dev);
    if (dev == NULL) {
        return error_set(err, STATUS_NOMEM, "cpu-ref: no memory for the device");
    }
    dev->ops = ops_cpu_ref();
    dev->close = cpu_ref_close;
    *out = dev;
    return STATUS_OK;
}
