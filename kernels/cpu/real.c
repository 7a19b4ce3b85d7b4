/*
 * real: how loops written for f32 reach tensors of BF16: a stretch at a time through a buffer that
 * stays in the first-level cache.
 */
#include "kernels/bf16.h"
#include "kernels/cpu/cpu_internal.h"

CPU_CLONES void cpu_widen(float *restrict out, const uint16_t *restrict in, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        out[i] = bf16_to_f32(in[i]);
    }
}

CPU_CLONES void cpu_narrow(uint16_t *restrict out, const float *restrict in, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        out[i] = bf16_from_f32(in[i]);
    }
}

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

void cpu_store(const struct tensor *t, int64_t at, int64_t count, const float *values) {
    if (t->dtype == DTYPE_BF16) {
        cpu_narrow((uint16_t *)t->data + at, values, count);
    }
}

int64_t cpu_stretch(const struct tensor *t, int64_t count) {
    return t->dtype == DTYPE_F32 || count < CPU_STRETCH ? count : CPU_STRETCH;
}
