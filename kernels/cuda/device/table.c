/*
 * table: the CUDA backend's operators. Most are one launcher; those that use cuDNN and cuBLASLt are
 * in ops_conv.c and ops_linear.c. Token ids, rows and captions are in device memory: the kernels
 * check their values, and the next sync, download or wait reports the faults that they found.
 */
#include "kernels/cuda/device/cuda_internal.h"

#define PLAIN(name)                                                                                \
    enum status cuda_##name(struct device *dev, const struct name *op, struct error *err) {        \
        struct launch_on on;                                                                       \
        TRY(cuda_launch_on(cuda_of(dev), 0, &on, err));                                            \
        return launched(cuda_of(dev), launch_##name(&on, op), #name, err);                         \
    }
#define WITH_WORKSPACE(name)                                                                       \
    enum status cuda_##name(struct device *dev, const struct name *op, struct error *err) {        \
        struct launch_on on;                                                                       \
        TRY(cuda_launch_on(cuda_of(dev), name##_workspace_bytes(op), &on, err));                   \
        return launched(cuda_of(dev), launch_##name(&on, op), #name, err);                         \
    }
PLAIN_LAUNCHERS(PLAIN)
WORKSPACE_LAUNCHERS(WITH_WORKSPACE)

#define CHECKED(name) OPS_CHECKED(cuda, name, false)
OPS_EVERYWHERE_LIST(CHECKED)

const struct ops *ops_cuda(void) {
    static const struct ops table = {.name = "cuda",
                                     .alloc = cuda_alloc,
                                     .free = cuda_free,
                                     .upload = cuda_upload,
                                     .download = cuda_download,
                                     .sync = cuda_sync,
                                     .supports = cuda_supports,
                                     OPS_EVERYWHERE_LIST(OPS_ENTRY)};
    return &table;
}
