/*
 * state_remap: the old dataset's hashes, sorted, and one search for every sample of the new one.
 */
#include "train/state_remap.h"

#include <stdbool.h>
#include <stdlib.h>

struct known {
    uint64_t hash, id;
    bool taken;
};

static int by_hash(const void *a, const void *b) {
    const struct known *x = a;
    const struct known *y = b;
    if (x->hash != y->hash) {
        return x->hash < y->hash ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The first of those with this hash, which has the lowest id; NULL: none. */
static struct known *find(struct known *all, uint64_t count, uint64_t hash) {
    uint64_t low = 0;
    uint64_t high = count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (all[middle].hash < hash) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && all[low].hash == hash ? &all[low] : NULL;
}

enum status state_remap_ids(uint64_t *old_ids,
                            struct state_remap_counts *counts,
                            const struct dataset *now,
                            const struct dataset *before,
                            struct error *err) {
    REQUIRE(old_ids != NULL && counts != NULL && now != NULL && before != NULL);
    const uint64_t old_count = dataset_sample_count(before);
    *counts = (struct state_remap_counts){0};
    struct known *all = calloc((size_t)old_count + 1, sizeof *all);
    if (all == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for the hashes of %llu images",
                         (unsigned long long)old_count);
    }
    enum status s = STATUS_OK;
    struct dataset_sample sample;
    for (uint64_t i = 0; i < old_count && s == STATUS_OK; i++) {
        s = dataset_sample_at(before, i, &sample, err);
        all[i] = (struct known){.hash = sample.image_hash, .id = sample.sample_id};
    }
    qsort(all, (size_t)old_count, sizeof *all, by_hash);
    for (uint64_t i = 0; i < dataset_id_space(now); i++) {
        old_ids[i] = SAMPLE_STATE_NO_ID;
    }
    for (uint64_t i = 0; i < dataset_sample_count(now) && s == STATUS_OK; i++) {
        s = dataset_sample_at(now, i, &sample, err);
        struct known *k = s == STATUS_OK ? find(all, old_count, sample.image_hash) : NULL;
        if (k != NULL) {
            old_ids[sample.sample_id] = k->id;
            k->taken = true;
            counts->matched_count++;
        } else {
            counts->unmatched_count++;
        }
    }
    for (uint64_t i = 0; i < old_count; i++) {
        counts->forgotten_count += all[i].taken ? 0 : 1;
    }
    free(all);
    return s;
}
