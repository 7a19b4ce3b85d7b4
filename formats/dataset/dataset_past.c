/*
 * dataset_past: which samples an earlier generation had. Ids are never used again, so of those
 * below its id space it had
 *
 *   all that there are now, and those that were removed after it,
 *
 * unless later samples got lower ids (numeric keys), or a subset dropped some without a record. The
 * first can only make more and the second is recorded, so the right count proves that they are
 * these.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset_internal.h"

static size_t find_generation(const struct manifest *m, uint64_t fingerprint) {
    size_t g = m->generation_count;
    while (g > 0 && m->generations[g - 1].fingerprint != fingerprint) {
        g--;
    }
    return g; /* counted from 1; 0: there is none */
}

/* The last generation of which this one is a subset, or a subset of it; 0: there is none. */
static size_t find_subset(const struct manifest *m) {
    for (size_t i = 0; i < m->option_count; i++) {
        const char *of = strstr(m->options[i].value, " of ");
        if (strcmp(m->options[i].name, "subset") == 0 && of != NULL) {
            return find_generation(m, strtoull(of + 4, NULL, 16));
        }
    }
    return 0;
}

/* Whether removed sample i belonged to generation g; `maybe`: if that is not known. */
static bool was_there(const struct manifest *m, size_t i, size_t g, bool maybe) {
    const struct manifest_removed *r = &m->removed;
    return r->ids[i] < m->generations[g - 1].id_space && (r->at[i] == 0 ? maybe : r->at[i] >= g);
}

static enum status merge(const struct dataset *d,
                         uint64_t *ids,
                         uint64_t live,
                         size_t g,
                         bool maybe,
                         struct error *err) {
    const struct manifest *m = &d->manifest;
    uint64_t n = 0;
    size_t i = 0;
    for (uint64_t k = 0; k <= live; k++) {
        struct dataset_sample sample = {.sample_id = UINT64_MAX};
        TRY(k < live ? dataset_sample_at(d, k, &sample, err) : STATUS_OK);
        for (; i < m->removed.count && m->removed.ids[i] < sample.sample_id; i++) {
            if (was_there(m, i, g, maybe)) {
                ids[n++] = m->removed.ids[i];
            }
        }
        if (k < live) {
            ids[n++] = sample.sample_id;
        }
    }
    return STATUS_OK;
}

/* How many of the samples have ids below the end. */
static enum status
count_below(const struct dataset *d, uint64_t end, uint64_t *out, struct error *err) {
    uint64_t low = 0;
    uint64_t high = dataset_sample_count(d);
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        struct dataset_sample sample;
        TRY(dataset_sample_at(d, middle, &sample, err));
        low = sample.sample_id < end ? middle + 1 : low;
        high = sample.sample_id < end ? high : middle;
    }
    *out = low;
    return STATUS_OK;
}

enum status dataset_past_ids(const struct dataset *d,
                             uint64_t fingerprint,
                             uint64_t **ids,
                             uint64_t *count,
                             uint64_t *id_space,
                             struct error *err) {
    const struct manifest *m = &d->manifest;
    const size_t g = find_generation(m, fingerprint);
    uint64_t live = 0;
    uint64_t sure = 0;
    uint64_t all = 0;
    FAIL_IF(g == 0, err, STATUS_NOTFOUND, "the dataset has no generation %016" PRIx64, fingerprint);
    *count = m->generations[g - 1].samples;
    *id_space = m->generations[g - 1].id_space;
    TRY(count_below(d, *id_space, &live, err));
    for (size_t i = 0; i < m->removed.count; i++) {
        sure += was_there(m, i, g, false);
        all += was_there(m, i, g, true);
    }
    FAIL_IF(find_subset(m) >= g || (live + sure != *count && live + all != *count), err,
            STATUS_UNSUPPORTED,
            "the dataset does not record which samples its generation %016" PRIx64 " had",
            fingerprint);
    *ids = malloc((size_t)(*count + 1) * sizeof(**ids));
    TRY_MEMORY(*ids != NULL, err, "no memory for %" PRIu64 " ids", *count);
    const enum status s = merge(d, *ids, live, g, live + sure != *count, err);
    if (s != STATUS_OK) {
        free(*ids);
        *ids = NULL;
    }
    return s;
}
