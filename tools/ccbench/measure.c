/*
 * Shared by measurements: a median, and the device.
 */
#include <stdlib.h>

#include "formats/base/sort.h"
#include "tools/ccbench/ccbench_internal.h"

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
