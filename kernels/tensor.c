/*
 * tensor: types, views and their sizes.
 */
#include "kernels/ops.h"

size_t dtype_size_bytes(enum dtype t) {
    switch (t) {
    case DTYPE_F32:
    case DTYPE_I32:
        return 4;
    case DTYPE_F64:
    case DTYPE_U64:
        return 8;
    case DTYPE_BF16:
        return 2;
    case DTYPE_U8:
        return 1;
    }
    return 0;
}

const char *dtype_name(enum dtype t) {
    switch (t) {
    case DTYPE_F32:
        return "f32";
    case DTYPE_F64:
        return "f64";
    case DTYPE_I32:
        return "i32";
    case DTYPE_U64:
        return "u64";
    case DTYPE_U8:
        return "u8";
    case DTYPE_BF16:
        return "bf16";
    }
    return "unknown type";
}

enum dtype param_dtype(enum dtype real) {
    return real == DTYPE_BF16 ? DTYPE_F32 : real;
}

bool tensor_present(const struct tensor *t) {
    return t->data != NULL;
}

int64_t tensor_count(const struct tensor *t) {
    int64_t count = 1;
    for (int32_t i = 0; i < t->ndim; i++) {
        count *= t->shape[i];
    }
    return count;
}

size_t tensor_size_bytes(const struct tensor *t) {
    return (size_t)tensor_count(t) * dtype_size_bytes(t->dtype);
}

struct tensor tensor_view(void *data, enum dtype dtype, int32_t ndim, const int64_t *shape) {
    struct tensor t = {.data = data, .dtype = dtype, .ndim = ndim};
    for (int32_t i = 0; i < ndim; i++) {
        t.shape[i] = shape[i];
    }
    return t;
}

struct tensor tensor_1d(void *data, enum dtype dtype, int64_t a) {
    return tensor_view(data, dtype, 1, (const int64_t[]){a});
}

struct tensor tensor_2d(void *data, enum dtype dtype, int64_t a, int64_t b) {
    return tensor_view(data, dtype, 2, (const int64_t[]){a, b});
}

struct tensor tensor_3d(void *data, enum dtype dtype, int64_t a, int64_t b, int64_t c) {
    return tensor_view(data, dtype, 3, (const int64_t[]){a, b, c});
}

struct tensor tensor_4d(void *data, enum dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d) {
    return tensor_view(data, dtype, 4, (const int64_t[]){a, b, c, d});
}
