/*
 * cpu_internal: the fast CPU device and what its files share.
 */
#ifndef KERNELS_CPU_CPU_INTERNAL_H
#define KERNELS_CPU_CPU_INTERNAL_H

#include "kernels/dropout_mask.h"
#include "kernels/operands.h"

struct onednn; /* kernels/cpu/onednn.h */

struct cpu_device {
    struct device base;
    struct onednn *onednn;
    /* Workspace of the ops; it only grows. */
    void *workspace;
    size_t workspace_bytes;
};

static inline struct cpu_device *cpu_device_of(struct device *dev) {
    return (struct cpu_device *)dev;
}

/* Workspace of at least size_bytes, 64-byte aligned, contents undefined, valid until the next call.
 * Returns OK or NOMEM. */
enum status cpu_workspace(struct device *dev, size_t size_bytes, void **out, struct error *err);

/* Loops over fewer elements use one thread. */
enum { PARALLEL_MIN_COUNT = 16384 };

/* Functions compiled for wider vectors too; the best version is chosen at program start. Not with
 * the thread sanitizer, which the choice would call before it is initialised, nor with clang: other
 * files do not find the versions that clang 14 makes. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define CPU_CLONES __attribute__((target_clones("avx512f", "arch=x86-64-v3", "default")))
#else
#define CPU_CLONES
#endif

/* ---- f32 views of F32 and BF16 tensors; `at` and `count` are elements ---- */

enum { CPU_STRETCH = 1024 }; /* floats of a buffer: a few buffers fit into the L1 cache */

/* `count` values: the tensor's own memory if it is F32, else `buffer`, filled. */
const float *cpu_read(const struct tensor *t, int64_t at, int64_t count, float *buffer);
/* Where to compute values for element `at` on: in place, or in `buffer`, which cpu_store then
 * rounds into the tensor (it does nothing for F32). */
float *cpu_target(const struct tensor *t, int64_t at, float *buffer);
/* The same, filled with the initial value of a sum: zeros, or with WRITE_ADD the old values. */
float *
cpu_begin(const struct tensor *t, int64_t at, int64_t count, enum write_mode mode, float *buffer);
void cpu_store(const struct tensor *t, int64_t at, int64_t count, const float *values);
/* How many of `count` elements to handle at once: all for F32, at most CPU_STRETCH for BF16. */
int64_t cpu_stretch(const struct tensor *t, int64_t count);
void cpu_widen(float *out, const uint16_t *in, int64_t count);
void cpu_narrow(uint16_t *out, const float *in, int64_t count);

/* out = or += scale in (F32, of equal count) */
void cpu_scale_into(const struct tensor *out,
                    enum write_mode mode,
                    const struct tensor *in,
                    float scale);

/* Zeros in the rows of t (R, ...) outside captions. Values of seg have been checked. */
void cpu_clear_other_rows(const struct tensor *t, const struct segments *seg);

/* factors[i] = 0 where element first_element + i of the sample is dropped, else `kept`.
 * first_element is a multiple of 4. */
void cpu_dropout_factors(float *factors,
                         const struct dropout_stream *s,
                         uint64_t sample_id,
                         uint32_t first_element,
                         int64_t count,
                         uint32_t threshold,
                         float kept);

enum status cpu_supports(struct device *dev, enum dtype dtype, struct error *err);

#define CPU_DECLARE(name) OPS_DECLARE(cpu, name)
OPS_LIST(CPU_DECLARE)
#undef CPU_DECLARE

#endif
