/*
 * backend_internal: how device_open_with opens the CPU backends.
 */
#ifndef KERNELS_BACKEND_INTERNAL_H
#define KERNELS_BACKEND_INTERNAL_H

#include "kernels/ops.h"

/* Each allocates a device with `ops` and `close` filled in. Requires threads_count >= 1, which
 * cpu-ref ignores. Returns OK, NOMEM or DEVICE (oneDNN). */
enum status cpu_open(struct device **out, int32_t threads_count, struct error *err);
enum status cpu_ref_open(struct device **out, int32_t threads_count, struct error *err);

#endif
