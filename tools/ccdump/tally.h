/*
 * tally: how often each number occurs, exactly, and what follows from it: least, mean,
 * median, greatest, and a histogram with round edges.
 *
 * Memory goes with the distinct numbers, not with how many are added: widths or caption lengths of
 * twelve million samples are a few thousand.
 *
 * Threading : single-owner.
 * Ownership : the caller's storage; tally_fini releases what it points at.
 */
#ifndef TOOLS_CCDUMP_TALLY_H
#define TOOLS_CCDUMP_TALLY_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

struct tally_entry {
    uint64_t value, count; /* count 0: a free place */
};

struct tally {
    struct tally_entry *entries; /* (capacity) hashed; (used) by ascending value once sorted */
    size_t capacity, used;
    uint64_t count; /* numbers added */
    double sum;
};

enum { TALLY_MAX_BITS = 53 }; /* of a number */

/* Zero-initialise before the first one. Requires value < 2^TALLY_MAX_BITS, and that tally_sort was
 * not called. Returns OK or NOMEM. */
enum status tally_add(struct tally *t, uint64_t value, struct error *err);
void tally_fini(struct tally *t);

/* Ends the adding: entries[0 .. used) are by ascending value. */
void tally_sort(struct tally *t);

/* The lower median. Requires a sorted tally with count > 0. */
uint64_t tally_median(const struct tally *t);

enum { TALLY_MAX_BINS = 24 };

/* Bin i counts the numbers in [edges[i], edges[i + 1]); all are of one width but the first and the
 * last, which also take what lies beyond the round edges, so that a few far outliers do not squeeze
 * the rest into one bin. */
struct tally_histogram {
    uint64_t edges[TALLY_MAX_BINS + 1]; /* edges[0] the least number, the last one beyond all */
    uint64_t counts[TALLY_MAX_BINS];
    size_t bin_count; /* 0 for an empty tally */
};

/* Of a sorted tally: about `wanted_bins` bins, at most TALLY_MAX_BINS, whose edges are multiples of
 * 1, 2 or 5 times a power of ten. Requires 1 <= wanted_bins <= TALLY_MAX_BINS - 4. */
void tally_histogram(struct tally_histogram *out, const struct tally *t, size_t wanted_bins);

#endif
