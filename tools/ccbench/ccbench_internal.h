/*
 * ccbench_internal: shared by the commands of ccbench.
 */
#ifndef TOOLS_CCBENCH_CCBENCH_INTERNAL_H
#define TOOLS_CCBENCH_CCBENCH_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "formats/dataset/dataset.h"
#include "kernels/ops.h"
#include "loader/loader.h"
#include "loader/sources.h"
#include "tools/cli/cli.h"

int ccbench_loader(int argc, char **argv);
int ccbench_ops(int argc, char **argv);
int ccbench_step(int argc, char **argv);
int ccbench_loss(int argc, char **argv);

/* Sorts the values and returns the median. Requires count >= 1. */
double bench_median(double *values, size_t count);

/* Opens a device that logs to `log`, which is set here and must outlive it. Returns as
 * device_open_with. */
enum status bench_open_device(struct device **out,
                              const char *name,
                              uint64_t threads,
                              bool autotune,
                              const char *plan_cache,
                              struct log_sink *log,
                              struct error *err);

enum {
    BENCH_MAX_MEMORY_MIB = 1024, /* for the run's first images that fit */
};

/* The loader's limit: the time to make pairs_count samples with the functions of its decoding
 * threads, in a loop over images in memory, taken from step_count batches beginning at global step
 * first_step; outputs are unchanged if there are none. `opt` and `threads`: the loader's. Returns
 * OK, NOMEM, IO, NOTFOUND, CORRUPT, INTERRUPTED, or a failure that is not a damaged sample. */
enum status bench_limit(double *seconds,
                        double *cpu_seconds,
                        const struct loader_options *opt,
                        uint32_t threads,
                        const struct sources *sources,
                        const struct tokenizer *tokenizer,
                        uint64_t first_step,
                        uint64_t step_count,
                        uint64_t pairs_count,
                        struct error *err);

/* A machine's best rates, measured through its operators. */
struct bench_machine {
    double product_flops; /* FLOP/s of a square matrix product */
    int64_t product_side;
    double copy_bytes; /* bytes/s read and written, rows of 4 KB in random order */
};

/* large: a product of side 8192 and a copy of 1 GiB, calls without waiting between them; else 1536
 * and 64 MiB. Each for `seconds`. Returns OK, INTERRUPTED or what the device returns. */
enum status bench_machine(struct bench_machine *out,
                          struct device *dev,
                          enum dtype type,
                          bool large,
                          double seconds,
                          struct error *err);

/* Whether the named device computes before a call returns. */
bool bench_is_host(const char *device);

#endif
