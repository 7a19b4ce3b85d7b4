/*
 * workspace: the device's memory for partial sums and rearranged tensors. It only grows.
 */
#include <stdlib.h>

#include "kernels/cpu/cpu_internal.h"

enum status cpu_workspace(struct device *dev, size_t size_bytes, void **out, struct error *err) {
    struct cpu_device *cpu = cpu_device_of(dev);
    if (size_bytes > cpu->workspace_bytes) {
        const size_t rounded = (size_bytes + 4095) / 4096 * 4096;
        void *grown = aligned_alloc(64, rounded);
        TRY_MEMORY(grown, err, "device cpu: out of memory for %zu bytes of workspace", rounded);
        free(cpu->workspace);
        cpu->workspace = grown;
        cpu->workspace_bytes = rounded;
    }
    *out = cpu->workspace;
    return STATUS_OK;
}
