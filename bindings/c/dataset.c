/*
 * The dataset by its index: counts, records, ids. Samples themselves are read in reader.c.
 */
#include "bindings/c/dataset_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/c/api_entry_internal.h"
#include "formats/dataset/dataset_tokenizer.h"

_Static_assert((int)CCS_IMAGE_JPEG == (int)IMAGE_FORMAT_JPEG &&
                   (int)CCS_IMAGE_PNG == (int)IMAGE_FORMAT_PNG &&
                   (int)CCS_IMAGE_WEBP == (int)IMAGE_FORMAT_WEBP &&
                   (int)CCS_IMAGE_GIF == (int)IMAGE_FORMAT_GIF,
               "formats of images have the same numbers");

static enum status open_dataset(struct ccs_dataset **out, const char *path, struct error *err) {
    CHECK_ARGUMENT(out != NULL, err, "out is NULL");
    *out = NULL;
    CHECK_ARGUMENT(path != NULL, err, "path is NULL");
    struct ccs_dataset *d = calloc(1, sizeof(*d));
    enum status s = STATUS_OK;
    if (d == NULL || (d->path = strdup(path)) == NULL) {
        s = error_set(err, STATUS_NOMEM, "%s: out of memory", path);
        goto fail;
    }
    TRY_OR_FAIL(s, api_open_remote(path, err));
    TRY_OR_FAIL(s, dataset_open(&d->dataset, path, NULL, err));
    *out = d;
    return STATUS_OK;
fail:
    ccs_dataset_close(d);
    return s;
}

int32_t ccs_dataset_open(struct ccs_dataset **out, const char *path, struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, open_dataset(out, path, &e), &e);
}

void ccs_dataset_close(struct ccs_dataset *d) {
    if (d != NULL) {
        dataset_close(d->dataset);
        free(d->path);
        free(d);
    }
}

static enum status has_tokenizer(const struct ccs_dataset *d, bool *out, struct error *err) {
    const struct file_system *fs = file_system_of(d->path);
    char path[PATH_MAX_BYTES];
    *out = dataset_manifest(d->dataset)->tokenizer.file != NULL;
    if (*out) {
        return STATUS_OK;
    }
    TRY(path_join(path, sizeof(path), d->path, DATASET_TOKENIZER_NAME, err));
    return fs->exists(fs->context, path, out, err);
}

static enum status
get_info(const struct ccs_dataset *d, struct ccs_dataset_info *info, struct error *err) {
    CHECK_ARGUMENT(d != NULL && info != NULL, err, "the dataset or info is NULL");
    const struct manifest *m = dataset_manifest(d->dataset);
    bool tokenizer = false;
    TRY(has_tokenizer(d, &tokenizer, err));
    struct ccs_dataset_info mine = {
        .samples = dataset_sample_count(d->dataset),
        .captions = dataset_text_count(d->dataset),
        .id_space = dataset_id_space(d->dataset),
        .image_bytes = m->image_bytes,
        .fingerprint = dataset_fingerprint(d->dataset),
        .shards = dataset_shard_count(d->dataset),
        .classes = (uint32_t)m->class_count,
        .tokenizer = tokenizer,
    };
    return api_give(info, &mine, sizeof(mine), err);
}

int32_t ccs_dataset_get_info(const struct ccs_dataset *d,
                             struct ccs_dataset_info *info,
                             struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, get_info(d, info, &e), &e);
}

const char *ccs_dataset_class(const struct ccs_dataset *d, uint32_t label) {
    const struct manifest *m = d != NULL ? dataset_manifest(d->dataset) : NULL;
    return m != NULL && label < m->class_count ? m->classes[label] : NULL;
}

enum status dataset_sample_of(const struct ccs_dataset *d,
                              uint64_t position,
                              struct dataset_sample *out,
                              struct error *err) {
    const uint64_t samples = dataset_sample_count(d->dataset);
    FAIL_IF(position >= samples, err, STATUS_NOTFOUND,
            "%s: position %" PRIu64 " does not exist: there are %" PRIu64 " sample%s", d->path,
            position, samples, samples == 1 ? "" : "s");
    return dataset_sample_at(d->dataset, position, out, err);
}

void dataset_record_of(struct ccs_record *out, const struct dataset_sample *sample) {
    *out = (struct ccs_record){
        .struct_size = out->struct_size,
        .id = sample->sample_id,
        .position = sample->position,
        .image_hash = sample->image_hash,
        .caption_hash = sample->caption_hash,
        .image_bytes = sample->image_bytes,
        .captions = sample->text_count,
        .width_px = sample->width_px,
        .height_px = sample->height_px,
        .shard = sample->shard,
        .label = sample->label,
        .format = (int32_t)sample->format,
        .reencoded = (sample->flags & SHARD_FLAG_REENCODED) != 0,
    };
}

static enum status
give_record(struct ccs_record *out, const struct dataset_sample *sample, struct error *err) {
    struct ccs_record mine = {0};
    dataset_record_of(&mine, sample);
    return api_give(out, &mine, sizeof(mine), err);
}

static enum status record_at(const struct ccs_dataset *d,
                             uint64_t position,
                             struct ccs_record *out,
                             struct error *err) {
    CHECK_ARGUMENT(d != NULL && out != NULL, err, "the dataset or out is NULL");
    struct dataset_sample sample;
    TRY(dataset_sample_of(d, position, &sample, err));
    return give_record(out, &sample, err);
}

int32_t ccs_dataset_record(const struct ccs_dataset *d,
                           uint64_t position,
                           struct ccs_record *out,
                           struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, record_at(d, position, out, &e), &e);
}

static enum status
find(const struct ccs_dataset *d, uint64_t id, struct ccs_record *out, struct error *err) {
    CHECK_ARGUMENT(d != NULL && out != NULL, err, "the dataset or out is NULL");
    struct dataset_sample sample;
    TRY(dataset_find(d->dataset, id, &sample, err));
    return give_record(out, &sample, err);
}

int32_t ccs_dataset_find(const struct ccs_dataset *d,
                         uint64_t id,
                         struct ccs_record *out,
                         struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, find(d, id, out, &e), &e);
}

static enum status list_ids(const struct ccs_dataset *d,
                            uint64_t *out,
                            uint64_t first,
                            uint64_t count,
                            struct error *err) {
    CHECK_ARGUMENT(d != NULL && (out != NULL || count == 0), err, "the dataset or out is NULL");
    const uint64_t samples = dataset_sample_count(d->dataset);
    FAIL_IF(first > samples || count > samples - first, err, STATUS_NOTFOUND,
            "%s: positions %" PRIu64 " to %" PRIu64 " are not among %" PRIu64 " samples", d->path,
            first, first + count - 1, samples);
    for (uint64_t i = 0; i < count; i++) {
        struct dataset_sample sample;
        TRY(dataset_sample_at(d->dataset, first + i, &sample, err));
        out[i] = sample.sample_id;
    }
    return STATUS_OK;
}

int32_t ccs_dataset_ids(const struct ccs_dataset *d,
                        uint64_t *out,
                        uint64_t first,
                        uint64_t count,
                        struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, list_ids(d, out, first, count, &e), &e);
}
