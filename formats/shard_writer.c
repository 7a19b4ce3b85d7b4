/*
 * Frames to a shard file, and at its end everything that makes it random-access:
 *
 *     frame .. frame | end of tar | skippable( index ) | skippable( seek table )
 *
 * Captions and records are kept until the end, because the index wants them by id and the frames
 * may come in any order. The file has its final name only once all of it is on the disk.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/shard_internal.h"
#include "formats/shard_writer.h"

/* A frame that has been added, with the place of its captions among those kept. */
struct pending {
    struct shard_record record;
    size_t texts_at; /* byte in texts */
    size_t sizes_at; /* byte in sizes */
    size_t texts_bytes;
};

struct shard_writer {
    const struct file_system *fs;
    struct file *file;
    char directory[PATH_MAX_BYTES];
    char path[PATH_MAX_BYTES];
    char temporary[PATH_MAX_BYTES];
    bool temporary_exists;
    enum shard_container container;
    struct shard_summary summary;
    struct zstd_packer *packer;
    struct hasher *hasher; /* of the whole file */
    struct pending *pending;
    size_t pending_capacity;
    uint64_t *keys; /* open addressing over the hashes of keys; 0: free */
    size_t keys_capacity;
    struct byte_buffer texts, sizes; /* captions in the order of adding */
    struct byte_buffer seek;         /* entries of the seek table */
    uint32_t largest_image_bytes;
};

static enum status nomem(const struct shard_writer *w, struct error *err) {
    return error_set(err, STATUS_NOMEM, "%s: out of memory for its index", w->path);
}

static enum status
make_paths(struct shard_writer *w, const char *name, uint32_t number, struct error *err) {
    TRY(shard_file_name(w->summary.name, sizeof(w->summary.name), name, number, w->container, err));
    TRY(path_join(w->path, sizeof(w->path), w->directory, w->summary.name, err));
    int n = snprintf(w->temporary, sizeof(w->temporary), "%s.tmp", w->path);
    if (n < 0 || (size_t)n >= sizeof(w->temporary)) {
        return error_set(err, STATUS_LIMIT, "%s: the path is too long", w->path);
    }
    return STATUS_OK;
}

static enum status begin(struct shard_writer *w,
                         const char *directory,
                         const char *name,
                         uint32_t number,
                         int level,
                         struct error *err) {
    TRY(path_join(w->directory, sizeof(w->directory), directory, "", err));
    TRY(make_paths(w, name, number, err));
    TRY(zstd_packer_create(&w->packer, level, err));
    TRY(hasher_create(&w->hasher, err));
    TRY(w->fs->open(w->fs->context, &w->file, w->temporary, FILE_REPLACE, err));
    w->temporary_exists = true;
    return STATUS_OK;
}

enum status shard_writer_open(struct shard_writer **out,
                              const struct file_system *fs,
                              const char *directory,
                              const char *name,
                              uint32_t number,
                              enum shard_container container,
                              int level,
                              struct error *err) {
    REQUIRE(out && fs && directory && name && shard_name_is_valid(name) && number <= 999999);
    REQUIRE(level >= SHARD_LEVEL_MIN && level <= SHARD_LEVEL_MAX);
    *out = NULL;
    if (container != SHARD_CONTAINER_TAR_ZSTD) {
        return error_set(err, STATUS_UNSUPPORTED, "container %s cannot be written",
                         shard_container_name(container));
    }
    struct shard_writer *w = calloc(1, sizeof(*w));
    if (!w) {
        return error_set(err, STATUS_NOMEM, "out of memory for a shard writer");
    }
    w->fs = fs;
    w->container = container;
    w->summary.first_id = UINT64_MAX;
    byte_buffer_init(&w->texts, SHARD_MAX_CAPTION_COLUMN_BYTES);
    byte_buffer_init(&w->sizes, SHARD_MAX_CAPTION_COLUMN_BYTES);
    byte_buffer_init(&w->seek, 0);
    enum status s = begin(w, directory, name, number, level, err);
    if (s != STATUS_OK) {
        shard_writer_close(w);
        return s;
    }
    *out = w;
    return STATUS_OK;
}

void shard_writer_close(struct shard_writer *w) {
    if (!w) {
        return;
    }
    if (w->file) {
        w->fs->close(w->file);
    }
    if (w->temporary_exists) {
        w->fs->remove(w->fs->context, w->temporary, NULL);
    }
    zstd_packer_destroy(w->packer);
    hasher_destroy(w->hasher);
    byte_buffer_fini(&w->texts);
    byte_buffer_fini(&w->sizes);
    byte_buffer_fini(&w->seek);
    free(w->pending);
    free(w->keys);
    free(w);
}

bool shard_writer_fits(const struct shard_writer *w, const struct shard_frame *f) {
    uint64_t column = (uint64_t)w->texts.size_bytes + w->sizes.size_bytes + f->texts.size_bytes +
                      f->sizes.size_bytes;
    return w->summary.sample_count < SHARD_MAX_SAMPLES && column <= SHARD_MAX_CAPTION_COLUMN_BYTES;
}

uint32_t shard_writer_sample_count(const struct shard_writer *w) {
    return w->summary.sample_count;
}

uint64_t shard_writer_data_bytes(const struct shard_writer *w) {
    return w->summary.size_bytes;
}

uint64_t shard_writer_caption_bytes(const struct shard_writer *w) {
    return w->texts.size_bytes;
}

/* ---- adding -----------------------------------------------------------------------------------
 */

/* Everything that goes into the file goes through here, for the sake of its hash. */
static enum status
put(struct shard_writer *w, const void *data, size_t size_bytes, struct error *err) {
    TRY(w->fs->write(w->file, data, size_bytes, err));
    hasher_update(w->hasher, data, size_bytes);
    w->summary.size_bytes += size_bytes;
    return STATUS_OK;
}

static enum status put_seek_entry(struct shard_writer *w,
                                  uint32_t frame_bytes,
                                  uint32_t content_bytes,
                                  uint32_t check,
                                  struct error *err) {
    TRY(byte_buffer_u32(&w->seek, frame_bytes, err));
    TRY(byte_buffer_u32(&w->seek, content_bytes, err));
    return byte_buffer_u32(&w->seek, check, err);
}

/* The slot of a key, taken or free. */
static uint64_t *key_slot(uint64_t *keys, size_t capacity, uint64_t hash) {
    size_t i = (size_t)hash & (capacity - 1);
    while (keys[i] != 0 && keys[i] != hash) {
        i = (i + 1) & (capacity - 1);
    }
    return &keys[i];
}

static enum status grow_keys(struct shard_writer *w, struct error *err) {
    size_t capacity = w->keys_capacity > 0 ? w->keys_capacity * 2 : 1024;
    uint64_t *keys = calloc(capacity, sizeof(*keys));
    if (!keys) {
        return nomem(w, err);
    }
    for (size_t i = 0; i < w->keys_capacity; i++) {
        if (w->keys[i] != 0) {
            *key_slot(keys, capacity, w->keys[i]) = w->keys[i];
        }
    }
    free(w->keys);
    w->keys = keys;
    w->keys_capacity = capacity;
    return STATUS_OK;
}

static enum status grow_pending(struct shard_writer *w, struct error *err) {
    size_t capacity = w->pending_capacity > 0 ? w->pending_capacity * 2 : 1024;
    struct pending *pending = realloc(w->pending, capacity * sizeof(*pending));
    if (!pending) {
        return nomem(w, err);
    }
    w->pending = pending;
    w->pending_capacity = capacity;
    return STATUS_OK;
}

/* Room for one more, so that nothing can fail between the file and the records but the file. */
static enum status
make_room(struct shard_writer *w, const struct shard_frame *f, struct error *err) {
    if (w->summary.sample_count == w->pending_capacity) {
        TRY(grow_pending(w, err));
    }
    if (w->summary.sample_count >= w->keys_capacity / 2) {
        TRY(grow_keys(w, err));
    }
    TRY(byte_buffer_reserve(&w->texts, f->texts.size_bytes, err));
    TRY(byte_buffer_reserve(&w->sizes, f->sizes.size_bytes, err));
    return byte_buffer_reserve(&w->seek, SEEK_ENTRY_BYTES, err);
}

enum status
shard_writer_add(struct shard_writer *w, const struct shard_frame *f, struct error *err) {
    REQUIRE(w && w->file && f && f->bytes.size_bytes > 0);
    struct shard_summary *sum = &w->summary;
    if (!shard_writer_fits(w, f)) {
        return error_set(err, STATUS_LIMIT, "%s: is full with %u samples", w->path,
                         sum->sample_count);
    }
    TRY(make_room(w, f, err));
    uint64_t hash = f->key_hash != 0 ? f->key_hash : 1;
    uint64_t *slot = key_slot(w->keys, w->keys_capacity, hash);
    bool ascending = sum->sample_count == 0 || f->record.sample_id > sum->last_id;
    if (*slot != 0 || (!ascending && f->record.sample_id == sum->last_id)) {
        return error_set(err, STATUS_EXISTS,
                         "%s: sample %" PRIu64 ": its %s is in the shard "
                         "already",
                         w->path, f->record.sample_id, *slot != 0 ? "key" : "id");
    }
    uint64_t offset = sum->size_bytes;
    TRY(put(w, f->bytes.data, f->bytes.size_bytes, err));
    TRY(put_seek_entry(w, f->record.frame_bytes, f->content_bytes, f->content_check, err));
    *slot = hash;
    struct pending *p = &w->pending[sum->sample_count];
    *p = (struct pending){f->record, w->texts.size_bytes, w->sizes.size_bytes, f->texts.size_bytes};
    p->record.frame_offset += offset;
    p->record.image_offset += offset;
    TRY(byte_buffer_append(&w->texts, f->texts.data, f->texts.size_bytes, err));
    TRY(byte_buffer_append(&w->sizes, f->sizes.data, f->sizes.size_bytes, err));
    sum->sample_count++;
    sum->text_count += f->record.text_count;
    sum->image_bytes += f->record.image_bytes;
    if (f->record.sample_id < sum->first_id) {
        sum->first_id = f->record.sample_id;
    }
    if (ascending) {
        sum->last_id = f->record.sample_id;
    }
    if (f->record.image_bytes > w->largest_image_bytes) {
        w->largest_image_bytes = f->record.image_bytes;
    }
    return STATUS_OK;
}

/* ---- finishing --------------------------------------------------------------------------------
 */

static int by_id(const void *a, const void *b) {
    uint64_t x = ((const struct pending *)a)->record.sample_id;
    uint64_t y = ((const struct pending *)b)->record.sample_id;
    return x < y ? -1 : x > y;
}

/* Ids ascending and each once; numbers the captions. */
static enum status order_records(struct shard_writer *w, struct error *err) {
    uint32_t count = w->summary.sample_count;
    uint32_t texts = 0;
    qsort(w->pending, count, sizeof(*w->pending), by_id);
    for (uint32_t i = 0; i < count; i++) {
        struct shard_record *r = &w->pending[i].record;
        if (i > 0 && w->pending[i - 1].record.sample_id == r->sample_id) {
            return error_set(err, STATUS_EXISTS, "%s: the id %" PRIu64 " comes twice", w->path,
                             r->sample_id);
        }
        r->first_text = texts;
        texts += r->text_count;
    }
    return STATUS_OK;
}

/* The captions of one chunk, appended compressed; `scratch` holds them before. */
static enum status put_chunk(struct shard_writer *w,
                             struct shard_index *x,
                             struct byte_buffer *payload,
                             struct byte_buffer *scratch,
                             uint32_t chunk,
                             struct error *err) {
    uint32_t from = chunk * INDEX_CHUNK_SAMPLES;
    uint32_t to = from + INDEX_CHUNK_SAMPLES;
    if (to > x->sample_count) {
        to = x->sample_count;
    }
    scratch->size_bytes = 0;
    for (uint32_t i = from; i < to; i++) {
        const struct pending *p = &w->pending[i];
        TRY(byte_buffer_append(scratch, w->sizes.data ? w->sizes.data + p->sizes_at : NULL,
                               4 * (size_t)p->record.text_count, err));
    }
    for (uint32_t i = from; i < to; i++) {
        const struct pending *p = &w->pending[i];
        TRY(byte_buffer_append(scratch, w->texts.data ? w->texts.data + p->texts_at : NULL,
                               p->texts_bytes, err));
    }
    if (scratch->size_bytes > x->largest_chunk_bytes) {
        x->largest_chunk_bytes = (uint32_t)scratch->size_bytes;
    }
    return zstd_packer_frame(w->packer, payload, scratch->data, scratch->size_bytes, err);
}

static enum status put_chunks(struct shard_writer *w,
                              struct shard_index *x,
                              struct byte_buffer *payload,
                              size_t directory_at,
                              struct error *err) {
    struct byte_buffer scratch;
    byte_buffer_init(&scratch, INDEX_MAX_CHUNK_BYTES);
    size_t chunks_at = payload->size_bytes;
    enum status s = STATUS_OK;
    for (uint32_t chunk = 0; s == STATUS_OK && chunk < x->chunk_count; chunk++) {
        s = put_chunk(w, x, payload, &scratch, chunk, err);
        store_u32(payload->data + directory_at + 4 * ((size_t)chunk + 1),
                  (uint32_t)(payload->size_bytes - chunks_at));
    }
    byte_buffer_fini(&scratch);
    return s;
}

/* The whole index into `payload`. */
static enum status
make_index(struct shard_writer *w, struct byte_buffer *payload, struct error *err) {
    const struct shard_summary *sum = &w->summary;
    struct shard_index x = {
        .container = SHARD_CONTAINER_TAR_ZSTD,
        .sample_count = sum->sample_count,
        .text_count = sum->text_count,
        .data_bytes = sum->size_bytes,
        .image_bytes = sum->image_bytes,
        .first_id = sum->first_id,
        .last_id = sum->last_id,
        .chunk_count = index_chunk_count(sum->sample_count),
        .largest_image_bytes = w->largest_image_bytes,
    };
    size_t directory_at = INDEX_HEADER_BYTES + (size_t)x.sample_count * INDEX_RECORD_BYTES;
    size_t fixed_bytes = directory_at + 4 * ((size_t)x.chunk_count + 1);
    TRY(byte_buffer_reserve(payload, fixed_bytes, err));
    memset(payload->data, 0, fixed_bytes);
    payload->size_bytes = fixed_bytes;
    for (uint32_t i = 0; i < x.sample_count; i++) {
        shard_index_put_record(payload->data + INDEX_HEADER_BYTES + (size_t)i * INDEX_RECORD_BYTES,
                               &w->pending[i].record);
    }
    TRY(put_chunks(w, &x, payload, directory_at, err));
    x.size_bytes = payload->size_bytes;
    x.body_hash =
        hash64(payload->data + INDEX_HEADER_BYTES, payload->size_bytes - INDEX_HEADER_BYTES);
    shard_index_put_header(payload->data, &x);
    w->summary.index_hash = load_u64(payload->data + INDEX_HEADER_BYTES - 8);
    return STATUS_OK;
}

static enum status put_skippable(struct shard_writer *w,
                                 uint32_t magic,
                                 const struct byte_buffer *payload,
                                 struct error *err) {
    uint8_t header[SKIPPABLE_HEADER_BYTES];
    store_u32(header, magic);
    store_u32(header + 4, (uint32_t)payload->size_bytes);
    TRY(put(w, header, sizeof(header), err));
    return put(w, payload->data, payload->size_bytes, err);
}

/* Everything behind the samples. */
static enum status
put_tail(struct shard_writer *w, const struct byte_buffer *index, struct error *err) {
    uint8_t end[END_FRAME_BYTES];
    end_frame(end);
    TRY(put(w, end, sizeof(end), err));
    TRY(put_seek_entry(w, END_FRAME_BYTES, TAR_END_BYTES,
                       load_u32(end + END_FRAME_BYTES - FRAME_CHECK_BYTES), err));
    TRY(put_skippable(w, SHARD_INDEX_FRAME_MAGIC, index, err));
    TRY(put_seek_entry(w, (uint32_t)index->size_bytes + SKIPPABLE_HEADER_BYTES, 0,
                       (uint32_t)hash64(NULL, 0), err));
    TRY(byte_buffer_u32(&w->seek, w->summary.sample_count + 2, err));
    TRY(byte_buffer_u8(&w->seek, SEEK_DESCRIPTOR_CHECKSUMS, err));
    TRY(byte_buffer_u32(&w->seek, SEEK_FOOTER_MAGIC, err));
    return put_skippable(w, SEEK_FRAME_MAGIC, &w->seek, err);
}

static enum status
publish(struct shard_writer *w, const struct byte_buffer *index, struct error *err) {
    char name[SHARD_MAX_NAME_BYTES + 1];
    char sidecar[PATH_MAX_BYTES];
    TRY(shard_index_name(name, sizeof(name), w->summary.name, err));
    TRY(path_join(sidecar, sizeof(sidecar), w->directory, name, err));
    TRY(w->fs->sync(w->file, err));
    w->fs->close(w->file);
    w->file = NULL;
    TRY(w->fs->rename(w->fs->context, w->temporary, w->path, err));
    w->temporary_exists = false;
    TRY(w->fs->sync_directory(w->fs->context, w->directory, err));
    return file_write_atomic(w->fs, sidecar, index->data, index->size_bytes, err);
}

enum status
shard_writer_finish(struct shard_writer *w, struct shard_summary *out, struct error *err) {
    REQUIRE(w && w->file && out && w->summary.sample_count > 0);
    struct byte_buffer index;
    byte_buffer_init(&index, (size_t)UINT32_MAX - SKIPPABLE_HEADER_BYTES);
    enum status s = order_records(w, err);
    if (s == STATUS_OK) {
        s = make_index(w, &index, err);
    }
    if (s == STATUS_OK) {
        s = put_tail(w, &index, err);
    }
    if (s == STATUS_OK) {
        s = publish(w, &index, err);
    }
    byte_buffer_fini(&index);
    if (s == STATUS_OK) {
        w->summary.hash = hasher_value(w->hasher);
        *out = w->summary;
    }
    return s;
}
