/*
 * memory: the host's, so every copy is a memcpy and nothing waits.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu_ref/ref_internal.h"

enum { ALIGNMENT_BYTES = 64 };

enum status ref_supports(struct device *dev, enum dtype dtype, struct error *err) {
    return dtype == DTYPE_F32 || dtype == DTYPE_F64 || dtype == DTYPE_BF16
               ? STATUS_OK
               : error_set(err, STATUS_UNSUPPORTED, "device cpu-ref computes in f32, f64 and bf16");
}

enum status ref_alloc(struct device *dev, size_t size_bytes, void **out, struct error *err) {
    *out = NULL;
    FAIL_IF(size_bytes > SIZE_MAX - ALIGNMENT_BYTES, err, STATUS_LIMIT,
            "device memory: %zu bytes cannot be addressed", size_bytes);
    const size_t rounded = (size_bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
    void *data = aligned_alloc(ALIGNMENT_BYTES, rounded > 0 ? rounded : ALIGNMENT_BYTES);
    TRY_MEMORY(data, err, "device memory: %zu bytes requested; try a smaller batch", size_bytes);
    memset(data, 0, rounded > 0 ? rounded : ALIGNMENT_BYTES);
    *out = data;
    return STATUS_OK;
}

void ref_free(struct device *dev, void *data) {
    free(data);
}

enum status
ref_upload(struct device *dev, void *dst, const void *host, size_t size_bytes, struct error *err) {
    if (size_bytes > 0 && dst != host) {
        memcpy(dst, host, size_bytes);
    }
    return STATUS_OK;
}

enum status ref_download(struct device *dev,
                         void *host,
                         const void *src,
                         size_t size_bytes,
                         struct error *err) {
    return ref_upload(dev, host, src, size_bytes, err);
}

enum status ref_sync(struct device *dev, struct error *err) {
    return STATUS_OK;
}

enum status ref_fill(struct device *dev, const struct fill *op, struct error *err) {
    const int64_t count = tensor_count(&op->out);
    for (int64_t i = 0; i < count; i++) {
        put(&op->out, i, op->value);
    }
    return STATUS_OK;
}

enum status ref_cast(struct device *dev, const struct cast *op, struct error *err) {
    const int64_t count = tensor_count(&op->in);
    for (int64_t i = 0; i < count; i++) {
        put(&op->out, i, get(&op->in, i));
    }
    return STATUS_OK;
}
