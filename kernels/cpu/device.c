/*
 * device: the table of the fast CPU backend, and its device. Memory is the reference's: the host's.
 *
 * Denormals are flushed to zero on every thread of the pool: samples with tiny gradients would
 * otherwise cost a hundred times more than others.
 */
#include <omp.h>
#include <stdlib.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "kernels/backend_internal.h"
#include "kernels/contrast.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu_ref/ref_internal.h"

#define CHECKED(name) OPS_CHECKED(cpu, name, true)
OPS_LIST(CHECKED)

const struct ops *ops_cpu(void) {
    static const struct ops table = {.name = "cpu",
                                     .alloc = ref_alloc,
                                     .free = ref_free,
                                     .upload = ref_upload,
                                     .download = ref_download,
                                     .sync = ref_sync,
                                     .supports = cpu_supports,
                                     OPS_LIST(OPS_ENTRY)};
    return &table;
}

/* Called once per step: the reference is fast enough. */
enum status cpu_grad_scale(struct device *dev, const struct grad_scale *op, struct error *err) {
    return ref_grad_scale(dev, op, err);
}

static bool has_bf16(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512bf16") != 0;
#else
    return false;
#endif
}

enum status cpu_supports(struct device *dev, enum dtype dtype, struct error *err) {
    if (dtype == DTYPE_F32 || (dtype == DTYPE_BF16 && has_bf16())) {
        return STATUS_OK;
    }
    const char *reason = dtype == DTYPE_BF16
                             ? "this processor has no bf16 instructions (avx512_bf16)"
                             : "computes in f32 and bf16";
    return error_set(err, STATUS_UNSUPPORTED, "device cpu: %s", reason);
}

static void cpu_close(struct device *dev) {
    struct cpu_device *cpu = cpu_device_of(dev);
    onednn_destroy(cpu->onednn);
    free(cpu->workspace);
    free(cpu);
}

enum status cpu_open(struct device **out, int32_t threads_count, struct error *err) {
    struct cpu_device *cpu = calloc(1, sizeof *cpu);
    TRY_MEMORY(cpu, err, "device cpu: out of memory");
    cpu->base.ops = ops_cpu();
    cpu->base.close = cpu_close;
    cpu->base.contrasts = &cpu_contrasts;
    omp_set_num_threads(threads_count);
#ifdef __SSE2__
#pragma omp parallel
    {
        _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
        _mm_setcsr(_mm_getcsr() | 0x0040); /* denormal inputs are zero */
    }
#endif
    const enum status s = onednn_create(&cpu->onednn, err);
    RETURN_CREATED(s, out, &cpu->base, cpu_close);
}
