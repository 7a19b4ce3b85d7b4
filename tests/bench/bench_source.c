/*
 * bench_source SOURCE [SLOTS [urls]]: how fast one thread reads the rows of a source as the
 * packer's reader does, into SLOTS rows in turn (24: two jobs), without the work of the packing
 * threads. Then how fast it skips them. urls: it is a list for ccpack fetch.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "formats/base/clock.h"
#include "pack/source/source.h"

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void report(const char *what, uint64_t rows, uint64_t bytes, int64_t ns, double cpu) {
    double seconds = (double)ns / 1e9;
    printf("%s: %" PRIu64 " rows, %.0f rows/s, %.0f MB/s of the file, %.2f s, %.2f s of cpu\n",
           what, rows, (double)rows / seconds, (double)bytes / seconds / 1e6, seconds, cpu);
}

int main(int argc, char **argv) {
    struct source_options how = {0};
    struct source *s = NULL;
    struct error err = {0};
    int slots = argc > 2 ? atoi(argv[2]) : 24;
    how.urls = argc > 3;
    how.grouping = how.urls ? SOURCE_GROUP_NEVER : SOURCE_GROUP_AUTO; /* as ccpack fetch */
    if (argc < 2 || slots < 1 || source_open(&s, argv[1], &how, &err) != STATUS_OK) {
        fprintf(stderr, "bench_source SOURCE [SLOTS]: %s\n", err.text);
        return 1;
    }
    struct source_row *rows = calloc((size_t)slots, sizeof(*rows));
    if (!rows) {
        return 1;
    }
    for (int i = 0; i < slots; i++) {
        source_row_init(&rows[i]);
    }
    int64_t begin_ns = clock_now_ns();
    double cpu = cpu_seconds();
    enum status status = STATUS_OK;
    uint64_t count = 0;
    while (status == STATUS_OK) {
        status = source_next(s, &rows[count % (uint64_t)slots], &err);
        count += status == STATUS_OK;
    }
    uint64_t at, size;
    source_position(s, &at, &size);
    report("next", count, size, clock_now_ns() - begin_ns, cpu_seconds() - cpu);
    source_close(s);
    for (int i = 0; i < slots; i++) {
        source_row_fini(&rows[i]);
    }
    free(rows);
    if (status != STATUS_END || source_open(&s, argv[1], &how, &err) != STATUS_OK) {
        fprintf(stderr, "bench_source: %s\n", err.text);
        return 1;
    }
    begin_ns = clock_now_ns();
    cpu = cpu_seconds();
    status = source_skip(s, UINT64_MAX, &count, &err);
    report("skip", count, size, clock_now_ns() - begin_ns, cpu_seconds() - cpu);
    source_close(s);
    if (status != STATUS_END) {
        fprintf(stderr, "bench_source: %s\n", err.text);
        return 1;
    }
    return 0;
}
