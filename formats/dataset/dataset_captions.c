/*
 * Captions of any sample: one chunk of 64 samples' captions is kept decompressed, so that captions
 * in order cost next to nothing and one at random costs one small decompression.
 */
#include <stdlib.h>

#include "formats/dataset/dataset_internal.h"

struct caption_reader {
    const struct dataset *dataset;
    struct caption_chunk chunk;
};

enum status
caption_reader_create(struct caption_reader **out, const struct dataset *d, struct error *err) {
    REQUIRE(out && d);
    *out = NULL;
    struct caption_reader *r = calloc(1, sizeof(*r));
    TRY_MEMORY(r, err, "out of memory for a caption reader");
    r->dataset = d;
    enum status s = caption_chunk_init(&r->chunk, d->max_chunk_bytes, err);
    if (s != STATUS_OK) {
        free(r);
        return s;
    }
    *out = r;
    return STATUS_OK;
}

void caption_reader_destroy(struct caption_reader *r) {
    if (r) {
        caption_chunk_fini(&r->chunk);
        free(r);
    }
}

enum status caption_reader_get(struct caption_reader *r,
                               const struct dataset_sample *sample,
                               uint32_t k,
                               struct shard_text *out,
                               struct error *err) {
    REQUIRE(r && sample && out && sample->shard < r->dataset->shard_count);
    const struct shard_index *x = &r->dataset->shards[sample->shard].index;
    struct shard_record record;
    REQUIRE(sample->index_in_shard < x->sample_count);
    TRY(shard_index_record(x, sample->index_in_shard, &record, err));
    REQUIRE(k < record.text_count);
    return caption_chunk_get(&r->chunk, x, sample->index_in_shard, &record, k, out, err);
}
