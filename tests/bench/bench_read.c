/*
 * bench_read FILE... : both reading engines of the loader alone, without decoding
 *
 * Random pieces of 16 KiB, as images are, of the files named (a dataset's shards, best far larger
 * than the disk's own cache), with as many threads and requests in flight as the loader gives each
 * engine: from the page cache, every page touched before, and past it (O_DIRECT). Prints pieces and
 * megabytes a second, and what a piece costs the processors.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/rng.h"
#include "loader/read_engine_internal.h"

enum {
    PIECE_BYTES = 16384,
    ALIGN_BYTES = 4096,
    IN_FLIGHT = 64,
    MAX_FILES = 4096,
    MAX_THREADS = 64
};

static const int64_t run_ns = INT64_C(2000) * 1000 * 1000;

static struct {
    int fd;
    uint64_t piece_count; /* places where one fits */
} files[MAX_FILES];
static int file_count;

struct worker {
    const struct read_engine_ops *ops;
    uint32_t depth;
    uint64_t seed;
    uint64_t pieces;
    pthread_t thread;
};

static void fail(const char *what, int e) {
    fprintf(stderr, "bench_read: %s: %s\n", what, strerror(e));
    exit(1);
}

static double cpu_s(void) {
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void submit(struct worker *w,
                   struct read_engine *e,
                   struct rng *r,
                   struct iovec *parts,
                   uint8_t *memory,
                   uint32_t slot) {
    const uint32_t f = rng_below(r, (uint32_t)file_count);
    const uint64_t at = rng_below(r, (uint32_t)files[f].piece_count);
    parts[slot] = (struct iovec){memory + (size_t)slot * PIECE_BYTES, PIECE_BYTES};
    const struct read_request request = {.fd = files[f].fd,
                                         .slot = slot,
                                         .offset = at * ALIGN_BYTES,
                                         .parts = &parts[slot],
                                         .part_count = 1};
    w->ops->submit(e, &request);
}

static void *work(void *arg) {
    struct worker *w = arg;
    struct error err = {0};
    struct read_engine *e = NULL;
    struct iovec parts[IN_FLIGHT];
    struct read_completion done[IN_FLIGHT];
    struct rng r;
    rng_init(&r, w->seed, RNG_CAPTION, 0, 0);
    uint8_t *memory = aligned_alloc(ALIGN_BYTES, (size_t)w->depth * PIECE_BYTES);
    if (memory == NULL || w->ops->create(&e, w->depth, &err) < STATUS_OK) {
        fail(memory == NULL ? "memory" : err.text, ENOMEM);
    }
    const int64_t end_ns = clock_now_ns() + run_ns;
    uint32_t flying = 0;
    for (; flying < w->depth; flying++) {
        submit(w, e, &r, parts, memory, flying);
    }
    while (flying > 0) {
        const uint32_t n = w->ops->reap(e, done, IN_FLIGHT);
        const bool on = clock_now_ns() < end_ns;
        for (uint32_t i = 0; i < n; i++) {
            if (done[i].result != PIECE_BYTES) {
                fail("a read", done[i].result < 0 ? -done[i].result : EIO);
            }
            w->pieces++;
            flying--;
            if (on) {
                submit(w, e, &r, parts, memory, done[i].slot);
                flying++;
            }
        }
    }
    (void)w->ops->destroy(e, 1000);
    free(memory);
    return NULL;
}

static void measure(const struct read_engine_ops *ops, const char *how) {
    static struct worker workers[MAX_THREADS];
    const uint32_t threads = ops->max_threads;
    const uint32_t depth =
        IN_FLIGHT / threads < ops->max_depth ? IN_FLIGHT / threads : ops->max_depth;
    const double cpu_before_s = cpu_s();
    const int64_t begin_ns = clock_now_ns();
    for (uint32_t i = 0; i < threads; i++) {
        workers[i] = (struct worker){.ops = ops, .depth = depth, .seed = i + 1};
        const int e = pthread_create(&workers[i].thread, NULL, work, &workers[i]);
        if (e != 0) {
            fail("a thread", e);
        }
    }
    uint64_t pieces = 0;
    for (uint32_t i = 0; i < threads; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        pieces += workers[i].pieces;
    }
    const double elapsed_s = (double)(clock_now_ns() - begin_ns) * 1e-9;
    printf("%-9s %-8s %2u x %-3u %9.0f reads/s %8.0f MB/s %7.2f us of the processor each\n",
           ops->name, how, threads, depth, (double)pieces / elapsed_s,
           (double)pieces * PIECE_BYTES / elapsed_s / 1e6,
           (cpu_s() - cpu_before_s) * 1e6 / (double)pieces);
}

/* Opens all files, and reads them once where they are to be cached. */
static void open_files(char **paths, int count, bool direct) {
    static uint8_t buffer[1 << 20];
    file_count = 0;
    for (int i = 0; i < count && i < MAX_FILES; i++) {
        struct stat st;
        const int fd = open(paths[i], O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
        if (fd < 0 || fstat(fd, &st) != 0) {
            fail(paths[i], errno);
        }
        if (st.st_size < PIECE_BYTES) {
            close(fd);
            continue;
        }
        while (!direct && read(fd, buffer, sizeof buffer) > 0) {
        }
        files[file_count].fd = fd;
        files[file_count++].piece_count = (uint64_t)(st.st_size - PIECE_BYTES) / ALIGN_BYTES + 1;
    }
    if (file_count == 0) {
        fail("no file of 16 KiB or more", ENOENT);
    }
}

static void close_files(void) {
    for (int i = 0; i < file_count; i++) {
        close(files[i].fd);
    }
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: bench_read FILE...\n");
        return 64;
    }
    for (int direct = 0; direct < 2; direct++) {
        open_files(argv + 1, argc - 1, direct == 1);
        measure(read_engine_uring(), direct == 1 ? "O_DIRECT" : "cached");
        measure(read_engine_pread(), direct == 1 ? "O_DIRECT" : "cached");
        close_files();
    }
    return 0;
}
