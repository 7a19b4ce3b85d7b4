/*
 * Shards whose ids run through each other, or of which samples were removed, as one list by id. All
 * ids are sorted by digits, which reads and writes them in long runs; a merge of many shards would
 * look at one record of each in turn, and so at all pages of all indexes at once:
 *
 *     records of each shard --> (id, place)* --digit 0--> --digit 1--> .. --> places, first_texts
 *
 * Pages of an index are given back when its shard is done, so that the whole of a large dataset is
 * never resident.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/dataset/dataset_internal.h"

enum { DIGIT_BITS = 10, DIGIT_VALUES = 1 << DIGIT_BITS };

/* Where a record is and how many captions it has, in one number. */
enum { COUNT_BITS = 11, INDEX_BITS = 21 };

_Static_assert(SHARD_MAX_CAPTIONS < 1 << COUNT_BITS, "captions of a sample");
_Static_assert(SHARD_MAX_SAMPLES <= 1 << INDEX_BITS, "samples of a shard");
_Static_assert((uint64_t)MANIFEST_MAX_SHARDS < UINT64_C(1) << (64 - COUNT_BITS - INDEX_BITS),
               "shards");

struct entry {
    uint64_t id; /* above the smallest */
    uint64_t place;
};

static uint64_t place_of(uint32_t shard, uint32_t index, uint32_t text_count) {
    return (uint64_t)shard << (INDEX_BITS + COUNT_BITS) | (uint64_t)index << COUNT_BITS |
           text_count;
}

static struct dataset_place unpack(uint64_t place) {
    return (struct dataset_place){
        .shard = (uint32_t)(place >> (INDEX_BITS + COUNT_BITS)),
        .index = (uint32_t)(place >> COUNT_BITS & ((1U << INDEX_BITS) - 1)),
    };
}

/* The pages stay in the cache of the system, but are no longer this process's. */
static void give_pages_back(const struct file_map *m) {
    if (m->mapped) {
        madvise(m->mapped, (size_t)m->size_bytes, MADV_DONTNEED);
    }
}

/* Skips samples that were removed; *count gets the number of the others. */
static enum status read_ids(const struct dataset *d,
                            struct entry *out,
                            uint64_t *first_id,
                            uint64_t *count,
                            struct error *err) {
    const struct manifest_removed *removed = &d->manifest.removed;
    uint64_t n = 0;
    uint64_t skipped = 0;
    *first_id = d->shard_count > 0 ? d->shards[d->ranks[0]].index.first_id : 0;
    for (uint32_t k = 0; k < d->shard_count; k++) {
        const struct dataset_shard *shard = &d->shards[k];
        for (uint32_t i = 0; i < shard->index.sample_count; i++) {
            struct shard_record r;
            TRY(shard_index_record(&shard->index, i, &r, err));
            if (removed->samples > 0 && manifest_is_removed(&d->manifest, r.sample_id)) {
                skipped++;
                continue;
            }
            out[n++] = (struct entry){r.sample_id - *first_id, place_of(k, i, r.text_count)};
        }
        give_pages_back(&shard->mapping);
    }
    *count = n;
    return skipped == removed->samples
               ? STATUS_OK
               : error_set(err, STATUS_CORRUPT,
                           MANIFEST_NAME " records %" PRIu64
                                         " removed samples in the shards, there are %" PRIu64,
                           removed->samples, skipped);
}

/* One stable pass: `from` by the digit at `shift` into `to`; false, and nothing is done, where all
 * have the same digit. */
static bool sort_digit(struct entry *to, const struct entry *from, uint64_t count, unsigned shift) {
    uint64_t starts[DIGIT_VALUES] = {0};
    for (uint64_t i = 0; i < count; i++) {
        starts[from[i].id >> shift & (DIGIT_VALUES - 1)]++;
    }
    uint64_t sum = 0;
    for (size_t v = 0; v < DIGIT_VALUES; v++) {
        uint64_t n = starts[v];
        if (n == count) {
            return false;
        }
        starts[v] = sum;
        sum += n;
    }
    for (uint64_t i = 0; i < count; i++) {
        to[starts[from[i].id >> shift & (DIGIT_VALUES - 1)]++] = from[i];
    }
    return true;
}

/* Sorts by id with a second array of the same size; returns the one of both that is sorted. */
static struct entry *sort(struct entry *a, struct entry *b, uint64_t count) {
    uint64_t all = 0;
    for (uint64_t i = 0; i < count; i++) {
        all |= a[i].id;
    }
    for (unsigned shift = 0; shift < 64 && all >> shift != 0; shift += DIGIT_BITS) {
        if (sort_digit(b, a, count, shift)) {
            struct entry *t = a;
            a = b;
            b = t;
        }
    }
    return a;
}

static enum status
make_tables(struct dataset *d, const struct entry *sorted, uint64_t first_id, struct error *err) {
    uint64_t count = d->manifest.samples;
    uint64_t text = 0;
    d->places = malloc((size_t)(count + 1) * sizeof(*d->places));
    d->first_texts = malloc((size_t)(count + 1) * sizeof(*d->first_texts));
    TRY_MEMORY(d->places && d->first_texts, err, "out of memory for the dataset's tables");
    for (uint64_t i = 0; i < count; i++) {
        d->places[i] = unpack(sorted[i].place);
        d->first_texts[i] = text;
        text += sorted[i].place & ((1U << COUNT_BITS) - 1);
        FAIL_IF(i > 0 && sorted[i].id == sorted[i - 1].id, err, STATUS_EXISTS,
                "%s: sample %" PRIu64 " is in two shards", d->shards[d->places[i].shard].path,
                first_id + sorted[i].id);
    }
    return STATUS_OK;
}

enum status dataset_merge(struct dataset *d, struct error *err) {
    uint64_t count = d->manifest.samples;
    uint64_t first_id = 0;
    struct entry *a = malloc((size_t)count * sizeof(*a));
    struct entry *b = malloc((size_t)count * sizeof(*b));
    enum status s = a && b ? read_ids(d, a, &first_id, &count, err)
                           : error_set(err, STATUS_NOMEM, "out of memory to sort the ids");
    if (s == STATUS_OK) {
        d->manifest.samples = count;
        struct entry *sorted = sort(a, b, count);
        if (sorted == b) {
            b = a;
            a = sorted;
        }
        free(b); /* before the tables are made */
        b = NULL;
        s = make_tables(d, a, first_id, err);
    }
    free(a);
    free(b);
    return s;
}
