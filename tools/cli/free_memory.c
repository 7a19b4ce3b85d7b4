#include "tools/cli/free_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 4096 };

/* A file with one number; a missing file or "max" does not change *bytes. */
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

/* The limits of a group and of all above it. In a container the path may be that of the host, of
 * which only the last part is mounted: a missing file is not a limit. */
static void
apply_limits(uint64_t *bytes, const char *root, const char *mount, char *group, const char *name) {
    char path[3 * LINE_BYTES];
    for (char *end = group + strlen(group); end != NULL; end = strrchr(group, '/')) {
        *end = '\0';
        (void)snprintf(path, sizeof path, "%s%s%s/%s", root, mount, group, name);
        apply_limit(bytes, path);
    }
}

/* Lines are 0::/GROUP in version 2, and NUMBER:CONTROLLERS:/GROUP in version 1. */
static void apply_groups(uint64_t *bytes, const char *root) {
    char line[LINE_BYTES];
    char path[LINE_BYTES];
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) {
            continue;
        }
        *group++ = '\0';
        char *list = ++controllers;
        if (list[0] == '\0') {
            apply_limits(bytes, root, "/sys/fs/cgroup", group, "memory.max");
        }
        for (char *one; (one = strsep(&list, ",")) != NULL;) {
            if (strcmp(one, "memory") == 0) {
                apply_limits(bytes, root, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
            }
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
}

uint64_t free_memory_bytes(const char *root) {
    char line[128];
    char path[LINE_BYTES];
    char none[] = "";
    uint64_t bytes = 0;
    uint64_t kib;
    (void)snprintf(path, sizeof path, "%s/proc/meminfo", root);
    FILE *f = fopen(path, "re");
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
    /* Also if /proc/self/cgroup cannot be read. */
    apply_limits(&bytes, root, "/sys/fs/cgroup", none, "memory.max");
    apply_limits(&bytes, root, "/sys/fs/cgroup/memory", none, "memory.limit_in_bytes");
    apply_groups(&bytes, root);
    return bytes;
}
