/*
 * backend_internal: what a backend gives to device_open.
 */
#ifndef KERNELS_BACKEND_INTERNAL_H
#define KERNELS_BACKEND_INTERNAL_H

#include "kernels/ops.h"

/* Each allocates a device with `ops` and `close` filled in. threads_count is at least 1. */
enum status cpu_open(struct device **out, int32_t threads_count, struct error *err);
enum status cpu_ref_open(struct device **out, int32_t threads_count, struct error *err);

#endif
