/*
 * batches: what tests of the loader do with batches: open, take, hash all that is in them.
 *
 * Threading : single-owner.
 */
#ifndef TESTS_SUPPORT_BATCHES_H
#define TESTS_SUPPORT_BATCHES_H

#include "loader/loader.h"

enum { BATCHES_SIDE = 32, BATCHES_TOKENS = 12 };

/* Small images and rows, two threads, the seed of the test. */
struct loader_options batches_options(uint32_t batch);

/* Skips the case when io_uring is asked for by name and the kernel has none; else it must open. */
struct loader *batches_open_mix(const struct loader_source *sources,
                                uint32_t source_count,
                                const struct loader_options *opt);
struct loader *batches_open(const char *dir, const struct loader_options *opt);

/* Everything that was delivered for one sample, and for a batch in order. */
uint64_t
batches_hash_sample(const struct loader_batch *b, const struct loader_options *opt, uint32_t i);
uint64_t batches_hash(const struct loader_batch *b, const struct loader_options *opt);

/* Acquires, hashes, releases. */
uint64_t batches_next(struct loader *l, const struct loader_options *opt);

/* The hashes of the first `steps` batches of a fresh loader. */
void batches_of(uint64_t *out,
                uint32_t steps,
                const struct loader_source *sources,
                uint32_t source_count,
                const struct loader_options *opt);

#endif
