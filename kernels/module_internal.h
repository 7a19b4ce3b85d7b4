/*
 * module: the interface of a backend that is a shared library (libccstream_cuda.so).
 *
 * Module and program must come from one build: version, sizes and BACKEND_MODULE_ABI are compared
 * before any other call.
 *
 * Threading : the functions may be called by one thread at a time.
 * Ownership : the struct is static; a device is closed by its own close.
 */
#ifndef KERNELS_MODULE_INTERNAL_H
#define KERNELS_MODULE_INTERNAL_H

#include "kernels/ops.h"

/* Increased whenever this struct or one of ops.h or of a device's optional parts changes. */
enum { BACKEND_MODULE_ABI = 11 };

struct backend_module {
    uint32_t abi;             /* BACKEND_MODULE_ABI */
    uint32_t ops_size_bytes;  /* sizeof(struct ops) */
    const char *version;      /* of ccstream */
    const char *requirements; /* "CUDA 13.0, cuDNN 9.19, cuBLASLt 13.1": what it was built with */
    const struct ops *ops;    /* the table of every device it opens, complete */

    /* Counts the usable devices. Returns OK with at least one, or DEVICE with the reason (no
     * driver, driver too old, no device, a library missing or too old). */
    enum status (*count)(int32_t *out, struct error *err);
    /* Writes one line about device `index` (name, memory, architecture). Returns OK or DEVICE. */
    enum status (*describe)(int32_t index, char *out, size_t out_size, struct error *err);
    /* Opens device `index`. Returns as device_open_with, without INVALID. */
    enum status (*open)(struct device **out,
                        int32_t index,
                        const struct device_options *opt,
                        struct error *err);
};

typedef const struct backend_module *backend_module_entry(void);
#define BACKEND_MODULE_SYMBOL "ccstream_backend_module"

/* Loads the CUDA module once and keeps it; may be called by any thread. On failure err->text is one
 * line with the reason: no module in this build, no driver, a missing library, or a module of
 * another build. Returns OK or UNSUPPORTED. */
enum status cuda_module(const struct backend_module **out, struct error *err);

/* The checks of cuda_module on a file at `path`, which is not kept. For tests. */
enum status
cuda_module_load(const struct backend_module **out, const char *path, struct error *err);

#endif
