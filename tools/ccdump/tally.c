#include "tools/ccdump/tally.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/sort.h"

enum {
    FIRST_CAPACITY = 256,
    OUTLIER_SHARE = 200 /* one in so many at each end does not affect the edges */
};

static enum status add_value(struct tally *t, uint64_t value, struct error *err) {
    if (t->used == t->capacity) {
        const size_t capacity = t->capacity > 0 ? 2 * t->capacity : FIRST_CAPACITY;
        struct tally_entry *entries = realloc(t->entries, capacity * sizeof(*entries));
        TRY_MEMORY(entries, err, "out of memory to count %zu different numbers", t->used);
        t->entries = entries;
        t->capacity = capacity;
    }
    t->entries[t->used] = (struct tally_entry){.value = value};
    return hash_map_put(t->places, value, t->used++, err);
}

enum status tally_add(struct tally *t, uint64_t value, struct error *err) {
    TRY(t->places ? STATUS_OK : hash_map_create(&t->places, err));
    if (hash_map_get(t->places, value) == HASH_MAP_NONE) {
        TRY(add_value(t, value, err));
    }
    t->entries[hash_map_get(t->places, value)].count++;
    t->count++;
    t->sum += (double)value;
    return STATUS_OK;
}

void tally_fini(struct tally *t) {
    hash_map_destroy(t->places);
    free(t->entries);
    memset(t, 0, sizeof(*t));
}

void tally_sort(struct tally *t) {
    if (t->used > 1) {
        qsort(t->entries, t->used, sizeof(*t->entries), compare_u64);
    }
}

/* Requires rank < count. */
static uint64_t value_at(const struct tally *t, uint64_t rank) {
    uint64_t seen = 0;
    for (size_t i = 0; i < t->used; i++) {
        seen += t->entries[i].count;
        if (rank < seen) {
            return t->entries[i].value;
        }
    }
    return t->entries[t->used - 1].value;
}

uint64_t tally_quantile(const struct tally *t, double share) {
    return value_at(t, (uint64_t)(share * (double)(t->count - 1)));
}

/* The smallest of 1, 2, 5, 10, 20, ... that is >= `width`. */
static uint64_t round_width(uint64_t width) {
    uint64_t power = 1;
    while (power < width && power <= UINT64_MAX / 100) {
        if (width <= 2 * power) {
            return 2 * power;
        }
        if (width <= 5 * power) {
            return 5 * power;
        }
        power *= 10;
    }
    return power;
}

void tally_histogram(struct tally_histogram *out, const struct tally *t, size_t wanted_bins) {
    *out = (struct tally_histogram){.bin_count = 0};
    if (t->count == 0) {
        return;
    }
    uint64_t least = t->entries[0].value;
    uint64_t greatest = t->entries[t->used - 1].value;
    uint64_t tail = (t->count - 1) / OUTLIER_SHARE;
    uint64_t low = value_at(t, tail);
    uint64_t high = value_at(t, t->count - 1 - tail);
    uint64_t width = round_width((high - low) / wanted_bins + ((high - low) % wanted_bins != 0));
    uint64_t edge = low - low % width;
    size_t bins = 1;
    out->edges[0] = least < edge ? least - least % width : edge;
    while (edge <= high - high % width && bins < TALLY_MAX_BINS) {
        edge += width;
        out->edges[bins++] = edge;
    }
    out->bin_count = bins - 1;
    if (out->edges[out->bin_count] <= greatest) {
        out->edges[out->bin_count] = greatest - greatest % width + width;
    }
    size_t bin = 0;
    for (size_t i = 0; i < t->used; i++) {
        while (t->entries[i].value >= out->edges[bin + 1]) {
            bin++;
        }
        out->counts[bin] += t->entries[i].count;
    }
}
