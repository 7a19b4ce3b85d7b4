/*
 * real: lets loops written for f32 read and write BF16 tensors, a stretch at a time through a
 * buffer that stays in the L1 cache.
 */
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/bf16.h"
#include "kernels/cpu/cpu_internal.h"

CPU_CLONES void cpu_widen(float *restrict out, const uint16_t *restrict in, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        out[i] = bf16_to_f32(in[i]);
    }
}

CPU_CLONES static void
narrow_by_integers(uint16_t *restrict out, const float *restrict in, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        out[i] = bf16_from_f32(in[i]);
    }
}

#if defined(__x86_64__)

/* The same except for denormals, which this instruction flushes to zero, as the device does. */
__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) static void
narrow_by_instruction(uint16_t *restrict out, const float *restrict in, int64_t count) {
    enum { LANES = 16 };
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(in + i));
        memcpy(out + i, &rounded, sizeof rounded);
    }
    for (; i < count; i++) {
        out[i] = bf16_from_f32(in[i]);
    }
}

void cpu_narrow(uint16_t *out, const float *in, int64_t count) {
    if (__builtin_cpu_supports("avx512bf16")) {
        narrow_by_instruction(out, in, count);
    } else {
        narrow_by_integers(out, in, count);
    }
}

#else

void cpu_narrow(uint16_t *out, const float *in, int64_t count) {
    narrow_by_integers(out, in, count);
}

#endif

const float *cpu_read(const struct tensor *t, int64_t at, int64_t count, float *buffer) {
    if (t->dtype == DTYPE_F32) {
        return (const float *)t->data + at;
    }
    cpu_widen(buffer, (const uint16_t *)t->data + at, count);
    return buffer;
}

float *cpu_target(const struct tensor *t, int64_t at, float *buffer) {
    return t->dtype == DTYPE_F32 ? (float *)t->data + at : buffer;
}

float *
cpu_begin(const struct tensor *t, int64_t at, int64_t count, enum write_mode mode, float *buffer) {
    float *sum = cpu_target(t, at, buffer);
    if (mode == WRITE_SET) {
        memset(sum, 0, (size_t)count * sizeof *sum);
    } else {
        (void)cpu_read(t, at, count, buffer);
    }
    return sum;
}

void cpu_store(const struct tensor *t, int64_t at, int64_t count, const float *values) {
    if (t->dtype == DTYPE_BF16) {
        cpu_narrow((uint16_t *)t->data + at, values, count);
    }
}

int64_t cpu_stretch(const struct tensor *t, int64_t count) {
    return t->dtype == DTYPE_F32 || count < CPU_STRETCH ? count : CPU_STRETCH;
}
