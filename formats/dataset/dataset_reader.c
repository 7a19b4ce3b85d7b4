/*
 * dataset_reader: a shard is opened when one of its samples is read, in place of the one that was
 * not used for the longest time. Captions alone need no shard: one chunk of 64 samples' captions is
 * kept decompressed, so that captions in order cost next to nothing and one at random costs one
 * small decompression.
 */
#include "formats/dataset/dataset_reader.h"

#include <stdlib.h>

#include "formats/dataset/dataset_internal.h"

enum { OPEN_SHARDS = 16 }; /* each keeps its index in memory */

struct open_shard {
    struct shard_reader *reader; /* NULL: free */
    uint32_t shard;
    uint64_t used; /* value of `clock` at the last use */
};

struct dataset_reader {
    const struct dataset *dataset;
    struct open_shard open[OPEN_SHARDS];
    uint64_t clock;
};

enum status
dataset_reader_create(struct dataset_reader **out, const struct dataset *d, struct error *err) {
    REQUIRE(out && d);
    *out = calloc(1, sizeof(**out));
    TRY_MEMORY(*out, err, "out of memory for a reader");
    (*out)->dataset = d;
    return STATUS_OK;
}

void dataset_reader_destroy(struct dataset_reader *r) {
    for (size_t i = 0; r && i < OPEN_SHARDS; i++) {
        shard_reader_close(r->open[i].reader);
    }
    free(r);
}

static enum status
reader_of(struct dataset_reader *r, struct shard_reader **out, uint32_t shard, struct error *err) {
    struct open_shard *slot = &r->open[0];
    for (size_t i = 0; i < OPEN_SHARDS; i++) {
        struct open_shard *o = &r->open[i];
        if (o->reader && o->shard == shard) {
            o->used = ++r->clock;
            *out = o->reader;
            return STATUS_OK;
        }
        slot = o->used < slot->used ? o : slot;
    }
    shard_reader_close(slot->reader);
    *slot = (struct open_shard){.shard = shard};
    const struct dataset_shard *s = &r->dataset->shards[shard];
    TRY(shard_reader_open_foreign(&slot->reader,
                                  s->index_path ? file_system_of(s->path) : r->dataset->fs, s->path,
                                  s->index_path, err));
    slot->used = ++r->clock;
    *out = slot->reader;
    return STATUS_OK;
}

enum status dataset_reader_get(struct dataset_reader *r,
                               const struct dataset_sample *sample,
                               struct sample_view *out,
                               struct error *err) {
    REQUIRE(r && sample && out);
    struct shard_reader *shard = NULL;
    TRY(reader_of(r, &shard, sample->shard, err));
    if (sample->index_in_shard < shard_reader_sample_count(shard)) {
        TRY(shard_reader_get(shard, sample->index_in_shard, out, err));
        if (out->record.sample_id == sample->sample_id &&
            out->record.image_hash == sample->image_hash &&
            out->record.caption_hash == sample->caption_hash) {
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_CORRUPT,
                     "%s: the index in the shard and the sidecar differ: remove the sidecar",
                     dataset_shard_path(r->dataset, sample->shard));
}

/* ---- captions of any sample ---- */

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
    RETURN_CREATED(s, out, r, free);
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
