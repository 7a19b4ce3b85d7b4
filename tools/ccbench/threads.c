/*
 * What measurements share: images read from shards, a function run on several threads, a median,
 * the device.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/base/sort.h"
#include "tools/ccbench/ccbench_internal.h"

enum status bench_read_span(uint8_t **out,
                            const char *path,
                            const struct dataset_sample *sample,
                            struct error *err) {
    const struct file_system *fs = file_system_of(path);
    struct file *f = NULL;
    size_t got = 0;
    *out = malloc(sample->image_span_bytes);
    TRY_MEMORY(*out, err, "out of memory for the images");
    TRY(fs->open(fs->context, &f, path, FILE_READ, err));
    enum status s = fs->pread(f, *out, &got, sample->image_span_bytes, sample->image_offset, err);
    fs->close(f);
    TRY(s);
    FAIL_IF(got != sample->image_span_bytes, err, STATUS_CORRUPT,
            "%s: the file ends inside an image", path);
    return STATUS_OK;
}

enum status bench_run_threads(void *items,
                              size_t item_bytes,
                              uint32_t count,
                              void *(*work)(void *item),
                              struct error *err) {
    enum status s = STATUS_OK;
    uint32_t started = 0;
    for (; started < count && s == STATUS_OK; started++) {
        struct bench_worker *w = (struct bench_worker *)((char *)items + started * item_bytes);
        w->status = STATUS_OK;
        int e = pthread_create(&w->thread, NULL, work, w);
        if (e != 0) {
            s = error_set(err, STATUS_NOMEM, "cannot start a thread: %s", strerror(e));
            break;
        }
    }
    for (uint32_t i = 0; i < started; i++) {
        struct bench_worker *w = (struct bench_worker *)((char *)items + i * item_bytes);
        pthread_join(w->thread, NULL);
        if (s == STATUS_OK && w->status < STATUS_OK) {
            s = w->status;
            *err = w->err;
        }
    }
    if (s == STATUS_OK && cli_interrupted()) {
        s = error_set(err, STATUS_INTERRUPTED, "interrupted");
    }
    return s;
}

double bench_median(double *values, size_t count) {
    qsort(values, count, sizeof values[0], compare_double);
    return values[count / 2];
}

enum status bench_open_device(struct device **out,
                              const char *name,
                              uint64_t threads,
                              bool autotune,
                              const char *plan_cache,
                              struct log_sink *log,
                              struct error *err) {
    struct device_options how;
    device_options_default(&how);
    how.threads_count = (int32_t)threads;
    how.autotune = autotune;
    how.plan_cache = plan_cache;
    *log = log_stderr("ccbench", LOG_LEVEL_DEBUG);
    how.log = log;
    return device_open_with(out, name, &how, err);
}
