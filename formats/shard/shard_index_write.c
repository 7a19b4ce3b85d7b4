/*
 * An index in the making. Frames come in any order of ids, so records and captions are kept as they
 * come, and ordered at the end:
 *
 *     pending:  record | where its captions are in texts and sizes      sorted by id at the end
 *     texts:    all captions end to end        sizes:  u32 of each      stay where they are
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/sort.h"
#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_writer.h"

struct pending_record {
    struct shard_record record;
    size_t texts_at; /* byte in texts */
    size_t sizes_at; /* byte in sizes */
    size_t texts_bytes;
    uint32_t check; /* of the sample's bytes in the file */
};

enum status
index_builder_init(struct index_builder *b, const char *name, int level, struct error *err) {
    memset(b, 0, sizeof(*b));
    b->name = name;
    b->totals.first_id = UINT64_MAX;
    byte_buffer_init(&b->texts, SHARD_MAX_CAPTION_COLUMN_BYTES);
    byte_buffer_init(&b->sizes, SHARD_MAX_CAPTION_COLUMN_BYTES);
    return zstd_packer_create(&b->packer, level, err);
}

void index_builder_fini(struct index_builder *b) {
    zstd_packer_destroy(b->packer);
    byte_buffer_fini(&b->texts);
    byte_buffer_fini(&b->sizes);
    free(b->pending);
    memset(b, 0, sizeof(*b));
}

bool index_builder_fits(const struct index_builder *b, const struct shard_frame *f) {
    uint64_t column = (uint64_t)b->texts.size_bytes + b->sizes.size_bytes + f->texts.size_bytes +
                      f->sizes.size_bytes;
    return b->totals.sample_count < SHARD_MAX_SAMPLES && column <= SHARD_MAX_CAPTION_COLUMN_BYTES;
}

enum status
index_builder_reserve(struct index_builder *b, const struct shard_frame *f, struct error *err) {
    if (b->totals.sample_count == b->pending_capacity) {
        size_t capacity = b->pending_capacity > 0 ? b->pending_capacity * 2 : 1024;
        struct pending_record *pending = realloc(b->pending, capacity * sizeof(*pending));
        TRY_MEMORY(pending, err, "%s: out of memory for its index", b->name);
        b->pending = pending;
        b->pending_capacity = capacity;
    }
    TRY(byte_buffer_reserve(&b->texts, f->texts.size_bytes, err));
    return byte_buffer_reserve(&b->sizes, f->sizes.size_bytes, err);
}

void index_builder_add(struct index_builder *b,
                       const struct shard_frame *f,
                       const struct shard_record *record,
                       uint32_t check) {
    struct shard_summary *sum = &b->totals;
    struct pending_record *p = &b->pending[sum->sample_count];
    *p = (struct pending_record){*record, b->texts.size_bytes, b->sizes.size_bytes,
                                 f->texts.size_bytes, check};
    byte_buffer_append(&b->texts, f->texts.data, f->texts.size_bytes, NULL);
    byte_buffer_append(&b->sizes, f->sizes.data, f->sizes.size_bytes, NULL);
    sum->first_id = record->sample_id < sum->first_id ? record->sample_id : sum->first_id;
    if (sum->sample_count == 0 || record->sample_id > sum->last_id) {
        sum->last_id = record->sample_id;
    }
    if (record->image_bytes > b->largest_image_bytes) {
        b->largest_image_bytes = record->image_bytes;
    }
    sum->sample_count++;
    sum->text_count += record->text_count;
    sum->image_bytes += record->image_bytes;
}

/* ---- finishing --------------------------------------------------------------------------------
 */

/* Ids ascending and each once; numbers the captions. */
static enum status order_records(struct index_builder *b, uint64_t add_to_ids, struct error *err) {
    uint32_t texts = 0;
    FAIL_IF(add_to_ids > SHARD_MAX_ID || b->totals.last_id > SHARD_MAX_ID - add_to_ids, err,
            STATUS_LIMIT, "%s: an id above the limit of %" PRIu64, b->name, SHARD_MAX_ID);
    b->totals.first_id += add_to_ids;
    b->totals.last_id += add_to_ids;
    qsort(b->pending, b->totals.sample_count, sizeof(*b->pending), compare_u64);
    for (uint32_t i = 0; i < b->totals.sample_count; i++) {
        struct shard_record *r = &b->pending[i].record;
        r->sample_id += add_to_ids;
        FAIL_IF(i > 0 && b->pending[i - 1].record.sample_id == r->sample_id, err, STATUS_EXISTS,
                "%s: the id %" PRIu64 " is repeated", b->name, r->sample_id);
        r->first_text = texts;
        texts += r->text_count;
    }
    return STATUS_OK;
}

/* The captions of one chunk, appended compressed; `workspace` holds them before. */
static enum status put_chunk(struct index_builder *b,
                             struct shard_index *x,
                             struct byte_buffer *payload,
                             struct byte_buffer *workspace,
                             uint32_t chunk,
                             struct error *err) {
    uint32_t from = chunk * INDEX_CHUNK_SAMPLES;
    uint32_t to = from + INDEX_CHUNK_SAMPLES;
    to = to > x->sample_count ? x->sample_count : to;
    workspace->size_bytes = 0;
    for (uint32_t i = from; i < to; i++) {
        const struct pending_record *p = &b->pending[i];
        TRY(byte_buffer_append(workspace, b->sizes.data ? b->sizes.data + p->sizes_at : NULL,
                               4 * (size_t)p->record.text_count, err));
    }
    for (uint32_t i = from; i < to; i++) {
        const struct pending_record *p = &b->pending[i];
        TRY(byte_buffer_append(workspace, b->texts.data ? b->texts.data + p->texts_at : NULL,
                               p->texts_bytes, err));
    }
    if (workspace->size_bytes > x->largest_chunk_bytes) {
        x->largest_chunk_bytes = (uint32_t)workspace->size_bytes;
    }
    return zstd_packer_frame(b->packer, payload, workspace->data, workspace->size_bytes, err);
}

static enum status put_chunks(struct index_builder *b,
                              struct shard_index *x,
                              struct byte_buffer *payload,
                              size_t directory_at,
                              struct error *err) {
    struct byte_buffer workspace;
    byte_buffer_init(&workspace, INDEX_MAX_CHUNK_BYTES);
    size_t chunks_at = payload->size_bytes;
    enum status s = STATUS_OK;
    for (uint32_t chunk = 0; s == STATUS_OK && chunk < x->chunk_count; chunk++) {
        s = put_chunk(b, x, payload, &workspace, chunk, err);
        store_u32(payload->data + directory_at + 4 * ((size_t)chunk + 1),
                  (uint32_t)(payload->size_bytes - chunks_at));
    }
    byte_buffer_fini(&workspace);
    return s;
}

enum status index_builder_finish(struct index_builder *b,
                                 struct byte_buffer *out,
                                 enum shard_container container,
                                 uint64_t data_bytes,
                                 uint64_t add_to_ids,
                                 struct error *err) {
    TRY(order_records(b, add_to_ids, err));
    struct shard_summary *sum = &b->totals;
    struct shard_index x = {
        .container = container,
        .sample_count = sum->sample_count,
        .text_count = sum->text_count,
        .data_bytes = data_bytes,
        .image_bytes = sum->image_bytes,
        .first_id = sum->first_id,
        .last_id = sum->last_id,
        .chunk_count = index_chunk_count(sum->sample_count),
        .largest_image_bytes = b->largest_image_bytes,
    };
    size_t checks_at = INDEX_HEADER_BYTES + (size_t)x.sample_count * INDEX_RECORD_BYTES;
    size_t directory_at = checks_at + (size_t)x.sample_count * index_check_bytes(container);
    size_t fixed_bytes = directory_at + 4 * ((size_t)x.chunk_count + 1);
    byte_buffer_init(out, (size_t)UINT32_MAX - SKIPPABLE_HEADER_BYTES);
    TRY(byte_buffer_reserve(out, fixed_bytes, err));
    memset(out->data, 0, fixed_bytes);
    out->size_bytes = fixed_bytes;
    for (uint32_t i = 0; i < x.sample_count; i++) {
        shard_index_put_record(out->data + INDEX_HEADER_BYTES + (size_t)i * INDEX_RECORD_BYTES,
                               &b->pending[i].record);
        if (index_check_bytes(container) > 0) {
            store_u32(out->data + checks_at + 4 * (size_t)i, b->pending[i].check);
        }
    }
    TRY(put_chunks(b, &x, out, directory_at, err));
    x.size_bytes = out->size_bytes;
    x.body_hash = hash64(out->data + INDEX_HEADER_BYTES, out->size_bytes - INDEX_HEADER_BYTES);
    shard_index_put_header(out->data, &x);
    sum->index_hash = load_u64(out->data + INDEX_HEADER_BYTES - 8);
    return STATUS_OK;
}
