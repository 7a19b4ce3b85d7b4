/*
 * table: the reference backend, which is the specification of every op: plain loops in double.
 */
#include <stdlib.h>

#include "kernels/backend_internal.h"
#include "kernels/cpu_ref/ref_internal.h"

#define CHECKED(name) OPS_CHECKED(ref, name, true)
OPS_LIST(CHECKED)

const struct ops *ops_cpu_ref(void) {
    static const struct ops table = {.name = "cpu-ref",
                                     .alloc = ref_alloc,
                                     .free = ref_free,
                                     .upload = ref_upload,
                                     .download = ref_download,
                                     .sync = ref_sync,
                                     .supports = ref_supports,
                                     OPS_LIST(OPS_ENTRY)};
    return &table;
}

static void cpu_ref_close(struct device *dev) {
    free(dev);
}

enum status cpu_ref_open(struct device **out, int32_t threads_count, struct error *err) {
    (void)threads_count; /* the specification uses one thread */
    struct device *dev = calloc(1, sizeof *dev);
    TRY_MEMORY(dev, err, "cpu-ref: no memory for the device");
    dev->ops = ops_cpu_ref();
    dev->close = cpu_ref_close;
    *out = dev;
    return STATUS_OK;
}
