/*
 * Reads samples whole, or their captions alone.
 */
#include <stdlib.h>
#include <string.h>

#include "bindings/c/api_entry_internal.h"
#include "bindings/c/dataset_internal.h"
#include "formats/dataset/dataset_reader.h"

struct ccs_reader {
    const struct ccs_dataset *dataset;
    struct dataset_reader *samples;
    struct caption_reader *captions;
    struct ccs_record record; /* of the last sample, and what of it is borrowed */
    struct ccs_sample sample;
    struct ccs_text texts[SHARD_MAX_CAPTIONS];
    char text_bytes[SHARD_MAX_TEXT_BYTES]; /* captions alone: each is copied from its piece */
};

static enum status
open_reader(struct ccs_reader **out, const struct ccs_dataset *d, struct error *err) {
    CHECK_ARGUMENT(out != NULL, err, "out is NULL");
    *out = NULL;
    CHECK_ARGUMENT(d != NULL, err, "the dataset is NULL");
    struct ccs_reader *r = calloc(1, sizeof(*r));
    TRY_MEMORY(r, err, "out of memory for a reader");
    enum status s;
    r->dataset = d;
    TRY_OR_FAIL(s, dataset_reader_create(&r->samples, d->dataset, err));
    TRY_OR_FAIL(s, caption_reader_create(&r->captions, d->dataset, err));
    *out = r;
    return STATUS_OK;
fail:
    ccs_reader_close(r);
    return s;
}

int32_t
ccs_reader_open(struct ccs_reader **out, const struct ccs_dataset *d, struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, open_reader(out, d, &e), &e);
}

void ccs_reader_close(struct ccs_reader *r) {
    if (r != NULL) {
        dataset_reader_destroy(r->samples);
        caption_reader_destroy(r->captions);
        free(r);
    }
}

static enum status get_sample(struct ccs_reader *r,
                              uint64_t position,
                              const struct ccs_sample **out,
                              struct error *err) {
    CHECK_ARGUMENT(out != NULL, err, "out is NULL");
    *out = NULL;
    CHECK_ARGUMENT(r != NULL, err, "the reader is NULL");
    struct dataset_sample sample;
    struct sample_view view;
    TRY(dataset_sample_of(r->dataset, position, &sample, err));
    TRY(dataset_reader_get(r->samples, &sample, &view, err));
    r->record.struct_size = sizeof(r->record);
    dataset_record_of(&r->record, &sample);
    for (size_t k = 0; k < view.caption_count; k++) {
        r->texts[k] = (struct ccs_text){view.captions[k].data, view.captions[k].size_bytes};
    }
    r->sample = (struct ccs_sample){
        .struct_size = sizeof(r->sample),
        .record = &r->record,
        .key = view.key,
        .image = view.image,
        .captions = r->texts,
        .metadata = {view.json.data, view.json.size_bytes},
    };
    *out = &r->sample;
    return STATUS_OK;
}

int32_t ccs_reader_get(struct ccs_reader *r,
                       uint64_t position,
                       const struct ccs_sample **out,
                       struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, get_sample(r, position, out, &e), &e);
}

static enum status get_captions(struct ccs_reader *r,
                                uint64_t position,
                                const struct ccs_text **out,
                                uint32_t *count,
                                struct error *err) {
    CHECK_ARGUMENT(out != NULL && count != NULL, err, "out or count is NULL");
    *out = NULL;
    *count = 0;
    CHECK_ARGUMENT(r != NULL, err, "the reader is NULL");
    struct dataset_sample sample;
    size_t used = 0;
    TRY(dataset_sample_of(r->dataset, position, &sample, err));
    for (uint32_t k = 0; k < sample.text_count; k++) {
        struct shard_text text;
        TRY(caption_reader_get(r->captions, &sample, k, &text, err));
        FAIL_IF(k >= SHARD_MAX_CAPTIONS || text.size_bytes > sizeof(r->text_bytes) - used, err,
                STATUS_CORRUPT, "%s: the captions exceed the format's limits", r->dataset->path);
        memcpy(r->text_bytes + used, text.data, text.size_bytes);
        r->texts[k] = (struct ccs_text){r->text_bytes + used, text.size_bytes};
        used += text.size_bytes;
    }
    *out = r->texts;
    *count = sample.text_count;
    return STATUS_OK;
}

int32_t ccs_reader_captions(struct ccs_reader *r,
                            uint64_t position,
                            const struct ccs_text **out,
                            uint32_t *count,
                            struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, get_captions(r, position, out, count, &e), &e);
}
