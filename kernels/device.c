/*
 * device: from a name to an open device.
 */
#include <omp.h>
#include <string.h>

#include "kernels/backend_internal.h"

static const struct {
    const char *name;
    enum status (*open)(struct device **out, int32_t threads_count, struct error *err);
} backends[] = {
    {"cpu", cpu_open},
    {"cpu-ref", cpu_ref_open},
};

enum status
device_open(struct device **out, const char *name, int32_t threads_count, struct error *err) {
    REQUIRE(out != NULL && name != NULL && threads_count >= 0);
    *out = NULL;
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        if (strcmp(name, backends[i].name) == 0) {
            return backends[i].open(out, threads_count > 0 ? threads_count : omp_get_num_procs(),
                                    err);
        }
    }
    return error_set(err, STATUS_UNSUPPORTED,
                     "there is no device '%s'; this build has cpu and cpu-ref", name);
}

void device_close(struct device *dev) {
    if (dev != NULL) {
        dev->close(dev);
    }
}
