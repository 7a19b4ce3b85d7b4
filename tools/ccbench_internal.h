/*
 * ccbench_internal: what the parts of ccbench share.
 */
#ifndef TOOLS_CCBENCH_INTERNAL_H
#define TOOLS_CCBENCH_INTERNAL_H

#include <stdint.h>

#include "formats/base/status.h"
#include "loader/loader.h"
#include "tools/cli.h"

int ccbench_loader(int argc, char **argv);

/* Images in memory, and the functions that the loader's decoding threads call, in a loop: what a
 * loader that cost nothing would reach. */
struct bench_limit; /* opaque */

enum {
    BENCH_MAX_MEMORY_MIB = 1024, /* for the images; the first ones of the order that fit */
};

/* Reads the images, in the order of epoch 0. `opt` and `threads` as the loader has them; dataset
 * and tokenizer are borrowed. Returns OK, NOMEM, IO, NOTFOUND, CORRUPT or INTERRUPTED. */
enum status bench_limit_create(struct bench_limit **out,
                               const struct loader_options *opt,
                               uint32_t threads,
                               const struct dataset *dataset,
                               const struct tokenizer *tokenizer,
                               struct error *err);
void bench_limit_destroy(struct bench_limit *b); /* accepts NULL */

/* Runs all threads, drops what is done in the first `warm_ns`, counts for `measure_ns`. Returns OK,
 * NOMEM, or what the functions gave for a reason other than a damaged sample. */
enum status bench_limit_run(struct bench_limit *b,
                            double *pairs_per_s,
                            int64_t warm_ns,
                            int64_t measure_ns,
                            struct error *err);

#endif
