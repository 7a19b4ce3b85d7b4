/*
 * filter: which samples take part in a run.
 *
 * Threading : pure functions.
 * Untrusted : the samples, which are what an index says.
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

/* Whether the sizes of captions count. */
bool filter_wants_captions(const struct loader_filter *f);

/* 0 for one that lets everything pass. */
uint64_t filter_hash(const struct loader_filter *f);

/* Everything but the sizes of captions. */
bool filter_takes_record(const struct loader_filter *f, const struct dataset_sample *s);

/* One caption; a sample without captions has one of 0 bytes. */
bool filter_takes_caption_bytes(const struct loader_filter *f, size_t size_bytes);

#endif
