/*
 * Frames to a shard file, and at its end everything that makes it random-access:
 *
 *     tar.zst  frame .. frame     | end of tar | skippable( index ) | skippable( seek table )
 *     tar      members .. members | header, index, zeros, trailer   | end of tar
 *
 * The file has its final name only once all of it is on the disk.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash_map.h"
#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_writer.h"

/* Frames go to the file in pieces of this size: a system call for each would cost as much again as
 * what it copies, and a piece is still in the cache when its hash is taken. */
enum { STAGE_BYTES = 64 << 10 };

struct shard_writer {
    const struct file_system *fs;
    struct file_draft out;
    char directory[PATH_MAX_BYTES];
    enum shard_container container;
    struct shard_summary summary; /* name, size and, when it is finished, hash */
    struct index_builder index;
    struct hasher *hasher;   /* of the whole file */
    struct hash_map *keys;   /* hashes of those that are in the shard */
    struct byte_buffer seek; /* entries of the seek table, in container tar.zst */
    struct byte_buffer
        stage; /* STAGE_BYTES: the end of what is in the shard, not yet in the file */
};

static enum status begin(struct shard_writer *w,
                         const char *directory,
                         const char *name,
                         uint32_t number,
                         int level,
                         struct error *err) {
    char path[PATH_MAX_BYTES];
    TRY(path_join(w->directory, sizeof(w->directory), directory, "", err));
    TRY(shard_file_name(w->summary.name, sizeof(w->summary.name), name, number, w->container, err));
    TRY(path_join(path, sizeof(path), directory, w->summary.name, err));
    TRY(file_draft_open(&w->out, w->fs, path, err));
    TRY(index_builder_init(&w->index, w->out.path, level, err));
    TRY(hasher_create(&w->hasher, err));
    TRY(hash_map_create(&w->keys, err));
    return byte_buffer_reserve(&w->stage, STAGE_BYTES, err);
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
    REQUIRE(container == SHARD_CONTAINER_TAR_ZSTD || container == SHARD_CONTAINER_TAR);
    *out = NULL;
    struct shard_writer *w = calloc(1, sizeof(*w));
    TRY_MEMORY(w, err, "out of memory for a shard writer");
    w->fs = fs;
    w->container = container;
    byte_buffer_init(&w->seek, 0);
    byte_buffer_init(&w->stage, STAGE_BYTES);
    enum status s = begin(w, directory, name, number, level, err);
    RETURN_CREATED(s, out, w, shard_writer_close);
}

void shard_writer_close(struct shard_writer *w) {
    if (!w) {
        return;
    }
    file_draft_close(&w->out, STATUS_INTERRUPTED, NULL);
    index_builder_fini(&w->index);
    hasher_destroy(w->hasher);
    byte_buffer_fini(&w->seek);
    byte_buffer_fini(&w->stage);
    hash_map_destroy(w->keys);
    free(w);
}

bool shard_writer_fits(const struct shard_writer *w, const struct shard_frame *f) {
    return index_builder_fits(&w->index, f);
}

uint32_t shard_writer_sample_count(const struct shard_writer *w) {
    return w->index.totals.sample_count;
}

uint64_t shard_writer_data_bytes(const struct shard_writer *w) {
    return w->summary.size_bytes;
}

uint64_t shard_writer_caption_bytes(const struct shard_writer *w) {
    return w->index.texts.size_bytes;
}

/* ---- adding -----------------------------------------------------------------------------------
 */

static enum status
write_out(struct shard_writer *w, const void *data, size_t size_bytes, struct error *err) {
    TRY(w->fs->write(w->out.file, data, size_bytes, err));
    hasher_update(w->hasher, data, size_bytes);
    return STATUS_OK;
}

static enum status flush_stage(struct shard_writer *w, struct error *err) {
    if (w->stage.size_bytes > 0) {
        TRY(write_out(w, w->stage.data, w->stage.size_bytes, err));
    }
    w->stage.size_bytes = 0;
    return STATUS_OK;
}

/* Everything that goes into the file goes through here. The stage is filled to its last byte, so
 * that most of what is written begins and ends with a page. */
static enum status
put(struct shard_writer *w, const void *data, size_t size_bytes, struct error *err) {
    const uint8_t *from = data;
    size_t left = size_bytes;
    while (left > 0) {
        size_t room = STAGE_BYTES - w->stage.size_bytes;
        size_t piece = left < room ? left : room;
        if (piece == STAGE_BYTES) { /* large enough alone */
            TRY(write_out(w, from, left, err));
            break;
        }
        memcpy(w->stage.data + w->stage.size_bytes, from, piece);
        w->stage.size_bytes += piece;
        from += piece;
        left -= piece;
        if (piece == room) {
            TRY(flush_stage(w, err));
        }
    }
    w->summary.size_bytes += size_bytes;
    return STATUS_OK;
}

static enum status
put_frame(struct shard_writer *w, const struct shard_frame *f, struct error *err) {
    struct shard_piece piece;
    for (size_t i = 0; shard_frame_piece(f, i, &piece); i++) {
        TRY(put(w, piece.data, piece.size_bytes, err));
    }
    return STATUS_OK;
}

static enum status put_seek_entry(struct shard_writer *w,
                                  uint32_t frame_bytes,
                                  uint32_t content_bytes,
                                  struct error *err) {
    TRY(byte_buffer_u32(&w->seek, frame_bytes, err));
    return byte_buffer_u32(&w->seek, content_bytes, err);
}

/* Room for one more, so that nothing can fail between the file and the records but the file. */
static enum status
make_room(struct shard_writer *w, const struct shard_frame *f, struct error *err) {
    TRY(index_builder_reserve(&w->index, f, err));
    TRY(byte_buffer_reserve(&w->seek, SEEK_ENTRY_BYTES, err));
    return hash_map_put(w->keys, f->key_hash, 0, err);
}

enum status
shard_writer_add(struct shard_writer *w, const struct shard_frame *f, struct error *err) {
    REQUIRE(w && w->out.file && f && f->bytes.size_bytes > 0 && f->container == w->container);
    const struct shard_summary *sum = &w->index.totals;
    FAIL_IF(!shard_writer_fits(w, f), err, STATUS_LIMIT, "%s: is full with %u samples", w->out.path,
            sum->sample_count);
    bool same_key = hash_map_get(w->keys, f->key_hash) != HASH_MAP_NONE;
    bool same_id = sum->sample_count > 0 && f->record.sample_id == sum->last_id;
    FAIL_IF(same_key || same_id, err, STATUS_EXISTS,
            "%s: sample %" PRIu64 ": its %s is in the shard "
            "already",
            w->out.path, f->record.sample_id, same_key ? "key" : "id");
    TRY(make_room(w, f, err));
    struct shard_record record = f->record;
    record.frame_offset += w->summary.size_bytes;
    record.image_offset += w->summary.size_bytes;
    TRY(put_frame(w, f, err));
    if (w->container == SHARD_CONTAINER_TAR_ZSTD) {
        TRY(put_seek_entry(w, f->record.frame_bytes, f->content_bytes, err));
    }
    index_builder_add(&w->index, f, &record, f->content_check);
    return STATUS_OK;
}

/* ---- finishing --------------------------------------------------------------------------------
 */

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

/* Everything after the samples of a tar.zst. */
static enum status
put_zst_tail(struct shard_writer *w, const struct byte_buffer *index, struct error *err) {
    uint8_t end[END_FRAME_BYTES];
    end_frame(end);
    TRY(put(w, end, sizeof(end), err));
    TRY(put_seek_entry(w, END_FRAME_BYTES, TAR_END_BYTES, err));
    TRY(put_skippable(w, SHARD_INDEX_FRAME_MAGIC, index, err));
    TRY(put_seek_entry(w, (uint32_t)index->size_bytes + SKIPPABLE_HEADER_BYTES, 0, err));
    TRY(byte_buffer_u32(&w->seek, w->index.totals.sample_count + 2, err));
    TRY(byte_buffer_u8(&w->seek, SEEK_DESCRIPTOR, err));
    TRY(byte_buffer_u32(&w->seek, SEEK_FOOTER_MAGIC, err));
    return put_skippable(w, SEEK_FRAME_MAGIC, &w->seek, err);
}

/* Everything after the samples of a plain tar. */
static enum status
put_tar_tail(struct shard_writer *w, const struct byte_buffer *index, struct error *err) {
    static const uint8_t zeros[TAR_END_BYTES];
    uint8_t header[TAR_BLOCK_BYTES];
    uint8_t trailer[TRAILER_BYTES];
    uint64_t member_bytes = tar_index_member_bytes(index->size_bytes);
    uint64_t index_offset = w->summary.size_bytes + sizeof(header);
    tar_header(header, TAR_INDEX_NAME, member_bytes);
    tar_trailer(trailer, index_offset, index->size_bytes,
                index_offset + member_bytes + TAR_END_BYTES);
    TRY(put(w, header, sizeof(header), err));
    TRY(put(w, index->data, index->size_bytes, err));
    TRY(put(w, zeros, tar_padding(index->size_bytes), err));
    TRY(put(w, trailer, sizeof(trailer), err));
    return put(w, zeros, TAR_END_BYTES, err);
}

static enum status
publish(struct shard_writer *w, const struct byte_buffer *index, struct error *err) {
    char name[SHARD_MAX_NAME_BYTES + 1];
    char sidecar[PATH_MAX_BYTES];
    TRY(shard_index_name(name, sizeof(name), w->summary.name, err));
    TRY(path_join(sidecar, sizeof(sidecar), w->directory, name, err));
    TRY(flush_stage(w, err));
    TRY(file_draft_close(&w->out, STATUS_OK, err));
    return file_write_atomic(w->fs, sidecar, index->data, index->size_bytes, err);
}

/* The counts of what was added join the name, size and hash of the file. */
static void summarise(const struct shard_writer *w, struct shard_summary *out) {
    *out = w->index.totals;
    memcpy(out->name, w->summary.name, sizeof(out->name));
    out->size_bytes = w->summary.size_bytes;
    out->hash = hasher_value(w->hasher);
}

enum status
shard_writer_finish(struct shard_writer *w, struct shard_summary *out, struct error *err) {
    REQUIRE(w && w->out.file && out && w->index.totals.sample_count > 0);
    struct byte_buffer index = {0};
    enum status s =
        index_builder_finish(&w->index, &index, w->container, w->summary.size_bytes, 0, err);
    THEN(s, w->container == SHARD_CONTAINER_TAR ? put_tar_tail(w, &index, err)
                                                : put_zst_tail(w, &index, err));
    THEN(s, publish(w, &index, err));
    byte_buffer_fini(&index);
    if (s == STATUS_OK) {
        summarise(w, out);
    }
    return s;
}
