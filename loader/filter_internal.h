/*
 * filter: selects the samples of a run.
 *
 * Threading : pure functions.
 * Untrusted : the samples, which come from an index.
 */
#ifndef LOADER_FILTER_INTERNAL_H
#define LOADER_FILTER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/loader.h"

struct dataset_sample; /* formats/dataset/dataset.h */

/* Whether everything passes. */
bool filter_is_open(const struct loader_filter *f);

/* Whether the filter depends on the sizes of captions. */
bool filter_needs_captions(const struct loader_filter *f);

/* 0 for a filter that everything passes. */
uint64_t filter_hash(const struct loader_filter *f);

/* Checks everything except the sizes of captions. */
bool filter_passes_record(const struct loader_filter *f, const struct dataset_sample *s);

/* Checks the size of one caption; a sample without captions counts as one of 0 bytes. */
bool filter_passes_caption_bytes(const struct loader_filter *f, size_t size_bytes);

#endif
