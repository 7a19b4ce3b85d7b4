/*
 * state_remap: the old datasets' hashes, sorted, and one search for every sample of the new ones.
 */
#include "train/state/state_remap.h"

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

/* (*count) all samples of the datasets, by hash. */
static enum status list_known(struct known **out,
                              uint64_t *count,
                              const struct state_remap_data *before,
                              uint32_t before_count,
                              struct error *err) {
    uint64_t all_count = 0;
    for (uint32_t d = 0; d < before_count; d++) {
        all_count += dataset_sample_count(before[d].dataset);
    }
    struct known *all = calloc((size_t)all_count + 1, sizeof *all);
    TRY_MEMORY(all != NULL, err, "no memory for the hashes of %llu images",
               (unsigned long long)all_count);
    enum status s = STATUS_OK;
    uint64_t at = 0;
    for (uint32_t d = 0; d < before_count && s == STATUS_OK; d++) {
        const uint64_t samples = dataset_sample_count(before[d].dataset);
        for (uint64_t i = 0; i < samples && s == STATUS_OK; i++) {
            struct dataset_sample sample;
            s = dataset_sample_at(before[d].dataset, i, &sample, err);
            if (s == STATUS_OK) {
                all[at++] = (struct known){.hash = sample.image_hash,
                                           .id = before[d].id_offset + sample.sample_id};
            }
        }
    }
    if (s != STATUS_OK) {
        free(all);
        return s;
    }
    qsort(all, (size_t)all_count, sizeof *all, by_hash);
    *out = all;
    *count = all_count;
    return STATUS_OK;
}

static enum status match(uint64_t *old_ids,
                         struct state_remap_counts *counts,
                         const struct state_remap_data *now,
                         struct known *all,
                         uint64_t all_count,
                         struct error *err) {
    for (uint64_t i = 0; i < dataset_sample_count(now->dataset); i++) {
        struct dataset_sample sample;
        TRY(dataset_sample_at(now->dataset, i, &sample, err));
        struct known *k = find(all, all_count, sample.image_hash);
        if (k != NULL) {
            old_ids[now->id_offset + sample.sample_id] = k->id;
            k->taken = true;
            counts->matched_count++;
        } else {
            counts->unmatched_count++;
        }
    }
    return STATUS_OK;
}

enum status state_remap_ids(uint64_t *old_ids,
                            uint64_t id_space_count,
                            struct state_remap_counts *counts,
                            const struct state_remap_data *now,
                            uint32_t now_count,
                            const struct state_remap_data *before,
                            uint32_t before_count,
                            struct error *err) {
    REQUIRE(old_ids != NULL && counts != NULL && now != NULL && before != NULL);
    struct known *all = NULL;
    uint64_t all_count = 0;
    *counts = (struct state_remap_counts){0};
    TRY(list_known(&all, &all_count, before, before_count, err));
    for (uint64_t i = 0; i < id_space_count; i++) {
        old_ids[i] = SAMPLE_STATE_NO_ID;
    }
    enum status s = STATUS_OK;
    for (uint32_t d = 0; d < now_count && s == STATUS_OK; d++) {
        s = match(old_ids, counts, &now[d], all, all_count, err);
    }
    for (uint64_t i = 0; i < all_count; i++) {
        counts->forgotten_count += all[i].taken ? 0 : 1;
    }
    free(all);
    return s;
}
