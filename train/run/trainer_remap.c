/*
 * trainer_remap: per-sample state if a run resumes with other data than its checkpoint's: the same
 * datasets with samples added or removed, or any others, whose images are looked up in the old
 * ones. In each case the result is a list: for every sample id, the old id:
 *
 *   before   A [0, 96)    B [96, 160)
 *   now      A' [0, 128)       B' [128, 200)     id 130 of now was id 98, ids 96 to 127 were none
 *
 * With several ranks each holds the whole old state and list while it fills its part.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "formats/base/file_io.h"
#include "formats/dataset/dataset.h"
#include "train/run/trainer_internal.h"
#include "train/state/sample_state.h"

/* ---- by image hash: the old datasets' hashes, sorted, and one search for every sample of the new
 * ones ---- */

struct state_remap_counts {
    uint64_t matched_count;   /* samples in both the new and the old datasets */
    uint64_t unmatched_count; /* samples only in the new datasets */
    uint64_t forgotten_count; /* samples only in the old datasets */
};

/* A dataset; id_offset is added to its sample ids in the state. */
struct state_remap_data {
    const struct dataset *dataset;
    uint64_t id_offset;
};

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

/* The entry with this hash and the lowest id; NULL: none. */
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

/* (*count) all samples of the datasets, sorted by hash. */
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

/* Fills old_ids (id_space_count, of `now`) for sample_state_remap: the id in `before` of the sample
 * with the same image, the lowest if there are several; SAMPLE_STATE_NO_ID if there is none.
 * Returns OK, NOMEM or CORRUPT (an index record is damaged). */
static enum status state_remap_ids(uint64_t *old_ids,
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

enum trainer_data trainer_compare_data(const struct trainer *t, const struct train_position *p) {
    if (p->fingerprint == t->data.fingerprint) {
        return TRAINER_DATA_SAME;
    }
    if (t->options.remap_count > 0) {
        return TRAINER_DATA_REMAPPED;
    }
    bool grown = p->source_count == t->options.source_count;
    for (uint32_t i = 0; grown && i < t->options.source_count; i++) {
        grown = manifest_has_been(dataset_manifest(loader_dataset(t->loader, i)),
                                  p->sources[i].fingerprint);
    }
    return grown ? TRAINER_DATA_GROWN : TRAINER_DATA_OTHER;
}

/* Fills `state`, of samples or of captions, from the checkpoint's, which has `count` entries in the
 * same columns; old: as in sample_state_remap. */
static enum status remap(struct sample_state *state,
                         const struct checkpoint *c,
                         uint64_t count,
                         const uint64_t *old_entries,
                         struct error *err) {
    struct sample_state *old = NULL;
    TRY(sample_state_create(&old, count, NULL, err));
    enum status s = STATUS_OK;
    for (int32_t i = 0; i < sample_state_count(state) && s == STATUS_OK; i++) {
        const enum sample_state_kind kind = sample_state_kind(state, i);
        const char *name = sample_state_name(state, i);
        int32_t column;
        s = sample_state_add(old, name, kind, SAMPLE_STATE_UNVISITED, &column, err);
    }
    THEN(s, checkpoint_load_state(c, old, NULL, 0, err));
    THEN(s, sample_state_remap(state, old, old_entries, err));
    sample_state_destroy(old);
    return s;
}

/* The same for the captions of samples that had other ids. */
static enum status remap_captions(const struct trainer *t,
                                  const struct checkpoint *c,
                                  const uint64_t *old_ids,
                                  struct error *err) {
    const uint64_t count = checkpoint_captions(c)[checkpoint_position(c)->id_space_count];
    uint64_t *old = malloc((size_t)(t->first_caption[t->data.id_space] + 1) * sizeof *old);
    TRY_MEMORY(old != NULL, err, "no memory to renumber captions");
    trainer_remap_captions(old, t, c, old_ids);
    const enum status s = remap(t->captions, c, count, old, err);
    free(old);
    return s;
}

/* One past the last id of dataset `i` in the checkpoint. */
static uint64_t old_end(const struct train_position *p, uint32_t i) {
    return i + 1 < p->source_count ? p->sources[i + 1].id_offset : p->id_space_count;
}

/* ---- datasets that have grown or shrunk: the same ids after other offsets ---- */

static enum status grown_ids(uint64_t *old_ids,
                             const struct trainer *t,
                             const struct checkpoint *c,
                             struct error *err) {
    const struct train_position *p = checkpoint_position(c);
    const struct loader_state now = loader_state(t->loader);
    (void)err;
    for (uint64_t i = 0; i < t->data.id_space; i++) {
        old_ids[i] = SAMPLE_STATE_NO_ID;
    }
    for (uint32_t i = 0; i < now.source_count; i++) {
        const uint64_t first = p->sources[i].id_offset;
        const uint64_t end = old_end(p, i);
        const uint64_t space = dataset_id_space(loader_dataset(t->loader, i));
        for (uint64_t k = 0; k < end - first && k < space; k++) {
            old_ids[now.sources[i].id_offset + k] = first + k;
        }
    }
    log_write(t->options.log, LOG_LEVEL_INFO, "%s has %s from %" PRIu64 " to %" PRIu64 " samples",
              now.source_count > 1 ? "the mix" : t->options.sources[0].directory,
              t->data.sample_count < p->samples_count ? "shrunk" : "grown", p->samples_count,
              t->data.sample_count);
    return STATUS_OK;
}

/* ---- other datasets: ids by the hashes of images ---- */

static enum status check_old_data(const struct trainer *t,
                                  const struct checkpoint *c,
                                  const struct state_remap_data *before,
                                  uint32_t index,
                                  struct error *err) {
    const struct train_position *p = checkpoint_position(c);
    const uint64_t found = dataset_fingerprint(before[index].dataset);
    if (found == p->sources[index].fingerprint) {
        const uint64_t space = dataset_id_space(before[index].dataset);
        return space <= old_end(p, index) - before[index].id_offset
                   ? STATUS_OK
                   : error_set(err, STATUS_CORRUPT, "%s has fewer sample ids than %s",
                               checkpoint_path(c), t->options.remap_state[index]);
    }
    return error_set(err, STATUS_MISMATCH,
                     "%s was trained on dataset %016" PRIx64 ", --remap-state %s is %016" PRIx64
                     "; name the dataset that the run was trained on%s",
                     checkpoint_path(c), p->sources[index].fingerprint,
                     t->options.remap_state[index], found,
                     p->source_count > 1 ? " (for a mix, each one in the same order)" : "");
}

static enum status image_ids(uint64_t *old_ids,
                             const struct trainer *t,
                             const struct checkpoint *c,
                             struct error *err) {
    const struct train_position *p = checkpoint_position(c);
    const struct loader_state place = loader_state(t->loader);
    struct state_remap_data before[LOADER_MAX_SOURCES] = {0};
    struct state_remap_data now[LOADER_MAX_SOURCES] = {0};
    struct dataset *opened[LOADER_MAX_SOURCES] = {0};
    struct state_remap_counts counts;
    FAIL_IF(t->options.remap_count != p->source_count, err, STATUS_USAGE,
            "%s was trained on %" PRIu64 " datasets, --remap-state names %u: name each "
            "of them, in the order of the run",
            checkpoint_path(c), p->source_count, (unsigned)t->options.remap_count);
    enum status s = STATUS_OK;
    for (uint32_t i = 0; i < t->options.remap_count && s == STATUS_OK; i++) {
        s = dataset_open(&opened[i], t->options.remap_state[i], NULL, err);
        if (s == STATUS_OK) {
            before[i] = (struct state_remap_data){opened[i], p->sources[i].id_offset};
            s = check_old_data(t, c, before, i, err);
        }
    }
    for (uint32_t i = 0; i < place.source_count; i++) {
        now[i] =
            (struct state_remap_data){loader_dataset(t->loader, i), place.sources[i].id_offset};
    }
    THEN(s, state_remap_ids(old_ids, t->data.id_space, &counts, now, place.source_count, before,
                            t->options.remap_count, err));
    if (s == STATUS_OK) {
        log_write(t->options.log, LOG_LEVEL_INFO,
                  "per-sample state: %" PRIu64 " matched by image hash, %" PRIu64
                  " initialised, %" PRIu64 " of %s%s dropped",
                  counts.matched_count, counts.unmatched_count, counts.forgotten_count,
                  t->options.remap_state[0], p->source_count > 1 ? " and the others" : "");
    }
    for (uint32_t i = 0; i < LOADER_MAX_SOURCES; i++) {
        dataset_close(opened[i]);
    }
    return s;
}

enum status trainer_remap_state(struct trainer *t, const struct checkpoint *c, struct error *err) {
    const enum trainer_data data = trainer_compare_data(t, checkpoint_position(c));
    const uint64_t old_count = checkpoint_position(c)->id_space_count;
    uint64_t *old_ids = malloc((size_t)t->data.id_space * sizeof *old_ids);
    TRY_MEMORY(old_ids != NULL, err, "no memory to renumber samples");
    enum status s = (data == TRAINER_DATA_GROWN ? grown_ids : image_ids)(old_ids, t, c, err);
    THEN(s, remap(t->state, c, old_count, old_ids, err));
    THEN(s, t->captions != NULL ? remap_captions(t, c, old_ids, err) : STATUS_OK);
    if (s == STATUS_OK && t->resumes) {
        log_write(t->options.log, LOG_LEVEL_INFO, "epoch %" PRIu64 " restarts",
                  checkpoint_position(c)->epoch + 1);
    }
    free(old_ids);
    return s;
}
