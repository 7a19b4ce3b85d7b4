/*
 * tally: counts exactly how often each number occurs; computes quantiles and a histogram with round
 * edges.
 *
 * Memory grows with the number of distinct values: the widths or caption lengths of twelve million
 * samples have a few thousand.
 *
 * Threading : single-owner.
 * Ownership : the caller's storage; tally_fini frees its memory.
 */
#ifndef TOOLS_CCDUMP_TALLY_H
#define TOOLS_CCDUMP_TALLY_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/hash_map.h"
#include "formats/base/status.h"

struct tally_entry {
    uint64_t value, count;
};

struct tally {
    struct tally_entry *entries; /* (used); once sorted, by ascending value */
    struct hash_map *places;     /* positions of values in `entries`; NULL: none yet */
    size_t capacity, used;
    uint64_t count; /* numbers added */
    double sum;
};

enum { TALLY_MAX_BITS = 53 }; /* of a value */

/* The tally is all zero before the first number. Requires value < 2^TALLY_MAX_BITS; not after
 * tally_sort. Returns OK or NOMEM. */
enum status tally_add(struct tally *t, uint64_t value, struct error *err);
void tally_fini(struct tally *t);

/* Call after the last number: sorts entries[0 .. used) by value. */
void tally_sort(struct tally *t);

/* The quantile `share`, in [0, 1]: 0 min, 1 max, 0.5 the lower median. Requires a sorted tally with
 * count > 0. */
uint64_t tally_quantile(const struct tally *t, double share);

enum { TALLY_MAX_BINS = 24 };

/* Bin i counts the numbers in [edges[i], edges[i + 1]). Bins have equal width, except the first and
 * the last, which include outliers, so that a few of them do not squeeze the rest into one bin.
 */
struct tally_histogram {
    uint64_t edges[TALLY_MAX_BINS + 1]; /* multiples of the width; the last is above all */
    uint64_t counts[TALLY_MAX_BINS];
    size_t bin_count; /* 0 for an empty tally */
};

/* The histogram of a sorted tally: about `wanted_bins` bins, at most TALLY_MAX_BINS, with edges at
 * multiples of 1, 2 or 5 times a power of ten. Requires 1 <= wanted_bins <= TALLY_MAX_BINS - 4. */
void tally_histogram(struct tally_histogram *out, const struct tally *t, size_t wanted_bins);

#endif
