/*
 * device: the table of the fast CPU backend, and its device. Memory is the reference's: the host's.
 *
 * Denormals are flushed to zero on every thread of the pool: gradients of muted samples would
 * otherwise cost a hundred times more than others.
 */
#include <omp.h>
#include <stdlib.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "kernels/backend_internal.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/onednn.h"

const struct ops *ops_cpu(void) {
    static struct ops table;
    if (table.name == NULL) {
        struct ops t = *ops_cpu_ref(); /* memory and order */
        t.supports = cpu_supports;
        t.fill = cpu_fill;
        t.cast = cpu_cast;
        t.normalize_u8 = cpu_normalize_u8;
        t.conv_bn = cpu_conv_bn;
        t.conv_bn_bwd = cpu_conv_bn_bwd;
        t.maxpool = cpu_maxpool;
        t.maxpool_bwd = cpu_maxpool_bwd;
        t.avgpool = cpu_avgpool;
        t.avgpool_bwd = cpu_avgpool_bwd;
        t.global_avgpool = cpu_global_avgpool;
        t.global_avgpool_bwd = cpu_global_avgpool_bwd;
        t.linear = cpu_linear;
        t.linear_bwd = cpu_linear_bwd;
        t.matmul = cpu_matmul;
        t.embedding = cpu_embedding;
        t.embedding_bwd = cpu_embedding_bwd;
        t.layernorm = cpu_layernorm;
        t.layernorm_bwd = cpu_layernorm_bwd;
        t.attention = cpu_attention;
        t.attention_bwd = cpu_attention_bwd;
        t.dropout = cpu_dropout;
        t.segment_mean = cpu_segment_mean;
        t.segment_mean_bwd = cpu_segment_mean_bwd;
        t.gather_rows = cpu_gather_rows;
        t.scatter_rows = cpu_scatter_rows;
        t.l2_normalize = cpu_l2_normalize;
        t.l2_normalize_bwd = cpu_l2_normalize_bwd;
        t.add = cpu_add;
        t.sum_squares = cpu_sum_squares;
        t.adamw = cpu_adamw;
        t.sgdm = cpu_sgdm;
        t.name = "cpu";
        table = t;
    }
    return &table;
}

static bool has_bf16(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512bf16") != 0;
#else
    return false;
#endif
}

enum status cpu_supports(struct device *dev, enum dtype dtype, struct error *err) {
    (void)dev;
    if (dtype == DTYPE_F32 || (dtype == DTYPE_BF16 && has_bf16())) {
        return STATUS_OK;
    }
    const char *reason = dtype == DTYPE_BF16
                             ? "this processor has no bf16 instructions (avx512_bf16)"
                             : "computes in f32 and bf16";
    return error_set(err, STATUS_UNSUPPORTED, "device cpu: %s", reason);
}

enum status cpu_real(const char *op, const struct tensor *t, struct error *err) {
    if (t == NULL || (t->dtype != DTYPE_F32 && !(t->dtype == DTYPE_BF16 && has_bf16()))) {
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: device cpu computes in f32, and in bf16 where the processor has "
                         "avx512_bf16",
                         op);
    }
    if (t->data == NULL) {
        return error_set(err, STATUS_INVALID, "%s: a tensor without data", op);
    }
    return STATUS_OK;
}

enum status cpu_scratch(struct device *dev, size_t size_bytes, void **out, struct error *err) {
    struct cpu_device *cpu = cpu_device_of(dev);
    if (size_bytes > cpu->scratch_bytes) {
        const size_t rounded = (size_bytes + 4095) / 4096 * 4096;
        void *grown = aligned_alloc(64, rounded);
        if (grown == NULL) {
            return error_set(err, STATUS_NOMEM, "device cpu: no memory for %zu bytes of scratch",
                             rounded);
        }
        free(cpu->scratch);
        cpu->scratch = grown;
        cpu->scratch_bytes = rounded;
    }
    *out = cpu->scratch;
    return STATUS_OK;
}

static void cpu_close(struct device *dev) {
    struct cpu_device *cpu = cpu_device_of(dev);
    onednn_destroy(cpu->onednn);
    free(cpu->scratch);
    free(cpu);
}

enum status cpu_open(struct device **out, int32_t threads_count, struct error *err) {
    struct cpu_device *cpu = calloc(1, sizeof *cpu);
    if (cpu == NULL) {
        return error_set(err, STATUS_NOMEM, "device cpu: out of memory");
    }
    cpu->base.ops = ops_cpu();
    cpu->base.close = cpu_close;
    omp_set_num_threads(threads_count);
#ifdef __SSE2__
#pragma omp parallel
    {
        _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
        _mm_setcsr(_mm_getcsr() | 0x0040); /* denormal inputs are zero */
    }
#endif
    const enum status s = onednn_create(&cpu->onednn, err);
    if (s != STATUS_OK) {
        cpu_close(&cpu->base);
        return s;
    }
    *out = &cpu->base;
    return STATUS_OK;
}
