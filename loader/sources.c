/*
 * sources: opens the datasets and assigns each its range of ids and shards:
 *
 *   sample ids   0 ...... space of 0 | ...... space of 1 | ...    offsets: sums of id spaces
 *   text ids     0 ...... texts of 0 | ...... texts of 1 | ...
 *   shards       0 ..... shards of 0 | ..... shards of 1 | ...
 *
 * With a filter, open finds the live positions of each dataset.
 */
#include "loader/sources.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/checked.h"
#include "formats/base/hash.h"
#include "loader/caption_columns_internal.h"
#include "loader/filter_internal.h"
#include "loader/live_internal.h"

/* --- the filter --- */

struct filter_pass {
    const struct dataset *dataset;
    const struct loader_filter *filter;
    struct caption_reader *captions; /* NULL: the filter ignores their sizes */
};

static enum status
captions_pass(struct filter_pass *p, const struct dataset_sample *s, bool *ok, struct error *err) {
    *ok = s->text_count > 0 || filter_passes_caption_bytes(p->filter, 0);
    for (uint32_t k = 0; k < s->text_count && *ok; k++) {
        struct shard_text text;
        TRY(caption_reader_get(p->captions, s, k, &text, err));
        *ok = filter_passes_caption_bytes(p->filter, text.size_bytes);
    }
    return STATUS_OK;
}

static enum status passes(void *cookie, uint64_t position, bool *is_live, struct error *err) {
    struct filter_pass *p = cookie;
    struct dataset_sample sample;
    TRY(dataset_sample_at(p->dataset, position, &sample, err));
    *is_live = filter_passes_record(p->filter, &sample);
    if (*is_live && p->captions != NULL) {
        TRY(captions_pass(p, &sample, is_live, err));
    }
    return STATUS_OK;
}

/* Fails at a damaged record: whether a sample passes must not depend on the state of this machine's
 * copy, or ranks would use different orders. */
static enum status
find_live(struct source *d, const struct loader_filter *filter, struct error *err) {
    struct filter_pass pass = {.dataset = d->dataset, .filter = filter};
    if (filter_needs_captions(filter)) {
        TRY(caption_reader_create(&pass.captions, d->dataset, err));
    }
    struct error why = {0};
    enum status s = live_create(&d->live, dataset_sample_count(d->dataset), passes, &pass, &why);
    caption_reader_destroy(pass.captions);
    FAIL_IF(s == STATUS_CORRUPT, err, s, "%s: a filter requires an intact index: %s", d->directory,
            why.text);
    return s < STATUS_OK ? error_pass(err, s, &why) : s;
}

/* The positions of the listed samples that pass the filter. */
static enum status
find_listed(struct source *d, const struct loader_filter *filter, uint64_t end, struct error *err) {
    struct filter_pass pass = {.dataset = d->dataset, .filter = filter};
    uint64_t *list = malloc((filter->id_count + 1) * sizeof(*list));
    TRY_MEMORY(list != NULL, err, "out of memory for a list of samples");
    enum status s = STATUS_OK;
    uint64_t count = 0;
    if (filter_needs_captions(filter)) {
        s = caption_reader_create(&pass.captions, d->dataset, err);
    }
    for (uint64_t i = 0; i < filter->id_count && s == STATUS_OK; i++) {
        const uint64_t id = filter->ids[i];
        struct dataset_sample sample;
        bool is_live = false;
        if (id >= d->id_offset && id < end) {
            s = dataset_find(d->dataset, id - d->id_offset, &sample, err);
            THEN(s, passes(&pass, sample.position, &is_live, err));
            list[count] = is_live ? sample.position : 0;
            count += is_live;
        }
    }
    caption_reader_destroy(pass.captions);
    if (s != STATUS_OK) {
        free(list);
        return s;
    }
    return live_of_list(&d->live, list, count, err);
}

/* --- open --- */

static enum status
check_ids(const struct sources *s, const struct loader_filter *f, struct error *err) {
    for (uint64_t i = 0; f->ids != NULL && i < f->id_count; i++) {
        FAIL_IF(i > 0 && f->ids[i] < f->ids[i - 1], err, STATUS_USAGE,
                "the listed samples are not in ascending order: %" PRIu64 " follows %" PRIu64,
                f->ids[i], f->ids[i - 1]);
        FAIL_IF(f->ids[i] >= s->id_space, err, STATUS_NOTFOUND,
                "there is no sample %" PRIu64 ": all ids are below %" PRIu64, f->ids[i],
                s->id_space);
    }
    return STATUS_OK;
}

static enum status check_list(const struct loader_source *list, uint32_t count, struct error *err) {
    for (uint32_t i = 0; i < count; i++) {
        REQUIRE(list[i].directory != NULL && list[i].weight >= 0 &&
                list[i].weight <= LOADER_MAX_WEIGHT);
        FAIL_IF((list[i].weight > 0) != (list[0].weight > 0), err, STATUS_USAGE,
                "%s has a weight and %s has none: give weights to all datasets or to none",
                list[list[0].weight > 0 ? 0 : i].directory,
                list[list[0].weight > 0 ? i : 0].directory);
        for (uint32_t k = 0; k < i; k++) {
            FAIL_IF(strcmp(list[i].directory, list[k].directory) == 0, err, STATUS_USAGE,
                    "%s is given twice; to sample it more often, give it a larger weight",
                    list[i].directory);
        }
    }
    return STATUS_OK;
}

static enum status add_source(struct sources *s,
                              const struct loader_source *source,
                              const struct loader_filter *filter,
                              struct error *err) {
    struct source *d = &s->items[s->count++];
    d->directory = strdup(source->directory);
    FAIL_IF(d->directory == NULL, err, STATUS_NOMEM, "out of memory for the datasets");
    TRY(dataset_open(&d->dataset, source->directory, NULL, err));
    d->id_offset = s->id_space;
    d->text_offset = s->text_count;
    d->first_shard = s->shard_count;
    uint64_t shards = (uint64_t)s->shard_count + dataset_shard_count(d->dataset);
    FAIL_IF(!checked_add_u64(s->id_space, dataset_id_space(d->dataset), &s->id_space) ||
                s->id_space > SHARD_MAX_ID || !checked_u32(shards, &s->shard_count) ||
                !checked_add_u64(s->text_count, dataset_text_count(d->dataset), &s->text_count),
            err, STATUS_LIMIT, "%s: the ids of the mix would exceed %" PRIu64, d->directory,
            (uint64_t)SHARD_MAX_ID);
    if (filter->ids != NULL) {
        TRY(find_listed(d, filter, s->id_space, err));
    } else if (!filter_is_open(filter)) {
        TRY(find_live(d, filter, err));
    }
    s->live_counts[s->count - 1] =
        d->live != NULL ? live_count(d->live) : dataset_sample_count(d->dataset);
    s->weights[s->count - 1] = source->weight;
    s->weighted = source->weight > 0;
    return STATUS_OK;
}

enum status sources_open(struct sources **out,
                         const struct loader_source *list,
                         uint32_t count,
                         const struct loader_filter *filter,
                         struct error *err) {
    REQUIRE(out != NULL && list != NULL && count >= 1 && count <= LOADER_MAX_SOURCES);
    *out = NULL;
    TRY(check_list(list, count, err));
    struct sources *s = calloc(1, sizeof(*s));
    TRY_MEMORY(s != NULL, err, "out of memory for the datasets");
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < count && status == STATUS_OK; i++) {
        status = add_source(s, &list[i], filter, err);
    }
    THEN(status, check_ids(s, filter, err));
    RETURN_CREATED(status, out, s, sources_close);
}

void sources_close(struct sources *s) {
    if (s == NULL) {
        return;
    }
    caption_columns_close(s->captions);
    for (uint32_t i = 0; i < s->count; i++) {
        live_destroy(s->items[i].live);
        dataset_close(s->items[i].dataset);
        free(s->items[i].directory);
    }
    free(s);
}

/* --- getters --- */

uint64_t sources_fingerprint(const struct sources *s) {
    uint8_t bytes[LOADER_MAX_SOURCES * 16];
    if (s->count == 1) {
        return dataset_fingerprint(s->items[0].dataset);
    }
    for (uint32_t i = 0; i < s->count; i++) {
        store_u64(bytes + i * 16, dataset_fingerprint(s->items[i].dataset));
        store_u64(bytes + i * 16 + 8, s->items[i].id_offset);
    }
    return hash64(bytes, (size_t)s->count * 16);
}

uint64_t sources_mix_hash(const struct sources *s) {
    uint8_t bytes[LOADER_MAX_SOURCES * 8];
    if (!s->weighted || s->count == 1) {
        return 0;
    }
    for (uint32_t i = 0; i < s->count; i++) {
        uint64_t bits = 0;
        memcpy(&bits, &s->weights[i], sizeof(bits));
        store_u64(bytes + i * 8, bits);
    }
    return hash64(bytes, (size_t)s->count * 8);
}

uint32_t sources_max_span_bytes(const struct sources *s) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t span = dataset_max_image_span_bytes(s->items[i].dataset);
        most = span > most ? span : most;
    }
    return most;
}

const char *sources_shard_path(const struct sources *s, uint32_t shard) {
    uint32_t i = s->count - 1;
    while (i > 0 && s->items[i].first_shard > shard) {
        i--;
    }
    return dataset_shard_path(s->items[i].dataset, shard - s->items[i].first_shard);
}

/* What a dataset has of a sample, as delivered. */
static void
set_sample(struct source_sample *out, const struct source *d, const struct dataset_sample *sample) {
    out->sample = *sample;
    out->sample.sample_id += d->id_offset;
    out->sample.first_text_id += d->text_offset;
    out->shard = d->first_shard + sample->shard;
}

enum status sources_sample_at(const struct sources *s,
                              uint32_t source,
                              uint64_t ordinal,
                              struct source_sample *out,
                              struct error *err) {
    REQUIRE(source < s->count && ordinal < s->live_counts[source]);
    const struct source *d = &s->items[source];
    *out = (struct source_sample){
        .position = d->live != NULL ? live_position(d->live, ordinal) : ordinal,
        .source = source,
        .text_offset = d->text_offset,
        .sample = {.sample_id = LOADER_NO_SAMPLE},
    };
    struct dataset_sample sample;
    TRY(dataset_sample_at(d->dataset, out->position, &sample, err));
    set_sample(out, d, &sample);
    return STATUS_OK;
}

enum status sources_find(const struct sources *s,
                         uint64_t sample_id,
                         struct source_sample *out,
                         struct error *err) {
    FAIL_IF(sample_id >= s->id_space, err, STATUS_NOTFOUND,
            "there is no sample %" PRIu64 ": all ids are below %" PRIu64, sample_id, s->id_space);
    uint32_t i = s->count - 1;
    while (s->items[i].id_offset > sample_id) {
        i--;
    }
    const struct source *d = &s->items[i];
    struct dataset_sample sample;
    TRY(dataset_find(d->dataset, sample_id - d->id_offset, &sample, err));
    *out = (struct source_sample){.source = i, .text_offset = d->text_offset};
    set_sample(out, d, &sample);
    return STATUS_OK;
}
