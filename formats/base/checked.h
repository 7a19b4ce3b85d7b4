/*
 * checked: arithmetic and narrowing of untrusted numbers, with overflow checks.
 *
 * Threading : pure functions. Every function returns true on success and leaves *out untouched
 * on overflow, so a caller cannot use a wrapped number by accident.
 */
#ifndef FORMATS_BASE_CHECKED_H
#define FORMATS_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool checked_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

static inline bool checked_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

static inline bool checked_mul_size(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

static inline bool checked_u32(uint64_t v, uint32_t *out) {
    if (v > UINT32_MAX) {
        return false;
    }
    *out = (uint32_t)v;
    return true;
}

static inline bool checked_size(uint64_t v, size_t *out) {
    if (v > SIZE_MAX) {
        return false;
    }
    *out = (size_t)v;
    return true;
}

#endif
