/*
 * ccbench_internal: what the parts of ccbench share.
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

/* Sorts the values; returns the one in the middle. Requires count >= 1. */
double bench_median(double *values, size_t count);

/* Opens a device whose messages, such as the engines that cuDNN chooses, go to `log`, which is set
 * here and must stay. Returns as device_open_with. */
enum status bench_open_device(struct device **out,
                              const char *name,
                              uint64_t threads,
                              bool autotune,
                              const char *plan_cache,
                              struct log_sink *log,
                              struct error *err);

enum {
    BENCH_MAX_MEMORY_MIB = 1024, /* for the images: the first ones of the run that fit */
};

/* The limit of the loader: the time to make pairs_count samples with the functions that its
 * decoding threads call, in a loop over images in memory: those of step_count batches from global
 * step first_step on; unchanged if there are none. `opt` and `threads` are those of the loader.
 * Returns OK, NOMEM, IO, NOTFOUND, CORRUPT, INTERRUPTED, or a failure that is not a damaged
 * sample. */
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

/* What a machine does at best, measured through its operators. */
struct bench_machine {
    double product_flops; /* per second, of a square matrix product */
    int64_t product_side;
    double copy_bytes; /* per second, read and written, of rows of 4 KB in random order */
};

/* large: a product of 8192 and a copy of 1 GiB, calls in a row without a wait; else of 1536 and
 * 64 MiB. Each for `seconds`. Returns OK, INTERRUPTED or what the device says. */
enum status bench_machine(struct bench_machine *out,
                          struct device *dev,
                          enum dtype type,
                          bool large,
                          double seconds,
                          struct error *err);

/* Whether a name is that of a device whose calls compute before they return. */
bool bench_is_host(const char *device);

#endif
