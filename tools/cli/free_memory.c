/*
 * free_memory: /proc/meminfo, and the limit of the control group as a container sees it.
 */
#include "tools/cli/free_memory.h"

#include <inttypes.h>
#include <stdio.h>

/* A file with one number; a missing file or "max" leaves *bytes as it is. */
static void apply_limit(uint64_t *bytes, const char *path) {
    uint64_t limit;
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return;
    }
    if (fscanf(f, "%" SCNu64, &limit) == 1 && limit < *bytes) {
        *bytes = limit;
    }
    (void)fclose(f);
}

uint64_t free_memory_bytes(void) {
    char line[128];
    uint64_t bytes = 0;
    uint64_t kib;
    FILE *f = fopen("/proc/meminfo", "re");
    if (f == NULL) {
        return 0;
    }
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1 ||
            sscanf(line, "SwapFree: %" SCNu64, &kib) == 1) {
            bytes += kib * 1024;
        }
    }
    (void)fclose(f);
    apply_limit(&bytes, "/sys/fs/cgroup/memory.max");
    apply_limit(&bytes, "/sys/fs/cgroup/memory/memory.limit_in_bytes");
    return bytes;
}
