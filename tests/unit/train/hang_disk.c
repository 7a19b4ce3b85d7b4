/*
 * hang_disk: preloaded into a rank, reads and writes of files never return once there is
 *
 *   $HANG_UNDER/hang-files.RANK   of files below $HANG_UNDER, without those of heartbeats
 *   $HANG_UNDER/hang-disk.RANK    of all files below it
 *
 * as on a network disk whose server is gone. Only tests use it.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

static bool is_there(const char *under, const char *kind) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/hang-%s.%s", under, kind, rank != NULL ? rank : "0");
    return access(path, F_OK) == 0;
}

static void hang_if(int fd) {
    const char *under = getenv("HANG_UNDER");
    char link[64], path[4096];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = under != NULL ? readlink(link, path, sizeof path - 1) : -1;
    if (n <= 0) {
        return;
    }
    path[n] = '\0';
    const bool below = strncmp(path, under, strlen(under)) == 0 && strstr(path, ".txt") == NULL;
    const bool heartbeat = strstr(path, "/ranks/") != NULL;
    while (below && (is_there(under, "disk") || (!heartbeat && is_there(under, "files")))) {
        (void)sleep(1000);
    }
}

EXPORTED ssize_t write(int fd, const void *data, size_t n);
EXPORTED ssize_t pread(int fd, void *out, size_t n, off_t offset);
EXPORTED ssize_t pwrite(int fd, const void *data, size_t n, off_t offset);
EXPORTED int fsync(int fd);

#define REAL(name) (*(__typeof__(&name) *)&(void *){dlsym(RTLD_NEXT, #name)})

ssize_t write(int fd, const void *data, size_t n) {
    hang_if(fd);
    return REAL(write)(fd, data, n);
}

ssize_t pread(int fd, void *out, size_t n, off_t offset) {
    hang_if(fd);
    return REAL(pread)(fd, out, n, offset);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t offset) {
    hang_if(fd);
    return REAL(pwrite)(fd, data, n, offset);
}

int fsync(int fd) {
    hang_if(fd);
    return REAL(fsync)(fd);
}
