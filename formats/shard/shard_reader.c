/*
 * One shard from its own bytes alone, or a foreign tar and the index beside it: opening, searching,
 * captions out of the index. How one sample is read is in shard_sample.c.
 */
#include "formats/shard/shard_reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/shard/shard_internal.h"

/* Reads r->index_bytes of `f` at r->index_offset. */
static enum status load_index(struct shard_reader *r,
                              const struct file_system *fs,
                              struct file *f,
                              struct error *err) {
    size_t got = 0;
    r->index_data = malloc(r->index_bytes > 0 ? r->index_bytes : 1);
    TRY_MEMORY(r->index_data, err, "%s: out of memory for an index of %u bytes", r->path,
               r->index_bytes);
    TRY(fs->pread(f, r->index_data, &got, r->index_bytes, r->index_offset, err));
    FAIL_IF(got != r->index_bytes, err, STATUS_CORRUPT, "%s: ends inside its index", r->path);
    return shard_index_parse(&r->index, r->path, r->index_data, r->index_bytes, err);
}

/* The index of a foreign tar, which is beside it or where the dataset has it. OK and no
 * r->index_data where there is no such index. */
static enum status load_foreign_index(struct shard_reader *r, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct file *f = NULL;
    uint64_t size = 0;
    bool exists = false;
    const struct file_system *fs = r->beside ? file_system_of(r->beside) : r->fs;
    TRY(r->beside ? path_join(path, sizeof(path), "", r->beside, err)
                  : shard_index_name(path, sizeof(path), r->path, err));
    TRY(fs->exists(fs->context, path, &exists, err));
    if (!exists) {
        return STATUS_OK;
    }
    TRY(fs->open(fs->context, &f, path, FILE_READ, err));
    enum status s = fs->size(f, &size, err);
    if (s == STATUS_OK && size > UINT32_MAX - SKIPPABLE_HEADER_BYTES) {
        s = error_set(err, STATUS_CORRUPT, "%s: is larger than an index can be", path);
    }
    if (s == STATUS_OK) {
        r->index_bytes = (uint32_t)size;
        s = load_index(r, fs, f, err);
    }
    fs->close(f);
    if (s == STATUS_OK && r->index.container != SHARD_CONTAINER_TAR_FOREIGN) {
        free(r->index_data); /* a copy of what the shard itself has, or had */
        r->index_data = NULL;
    }
    return s;
}

static enum status read_index(struct shard_reader *r, struct error *err) {
    struct shard_tail tail;
    struct error why = {0};
    TRY(r->fs->open(r->fs->context, &r->file, r->path, FILE_READ, err));
    TRY(r->fs->size(r->file, &r->file_bytes, err));
    enum status s = r->beside
                        ? error_set(&why, STATUS_CORRUPT, "%s: has no index", r->path)
                        : shard_tail_find(r->fs, r->file, r->path, r->file_bytes, &tail, &why);
    if (s == STATUS_OK) {
        r->index_offset = tail.index_offset;
        r->index_bytes = tail.index_bytes;
        TRY(load_index(r, r->fs, r->file, err));
    } else if (s == STATUS_CORRUPT) {
        TRY(load_foreign_index(r, err));
    }
    if (!r->index_data) {
        return error_pass(err, s, &why);
    }
    FAIL_IF(s == STATUS_OK && r->index.container != tail.container, err, STATUS_CORRUPT,
            "%s: its index belongs to another container", r->path);
    FAIL_IF(shard_index_file_bytes(&r->index) != r->file_bytes, err, STATUS_CORRUPT,
            "%s: has %" PRIu64 " bytes, its index says %" PRIu64 "%s", r->path, r->file_bytes,
            shard_index_file_bytes(&r->index), shard_container_changed(r->index.container));
    return shard_index_check_body(&r->index, err);
}

enum status shard_reader_open(struct shard_reader **out,
                              const struct file_system *fs,
                              const char *path,
                              struct error *err) {
    return shard_reader_open_foreign(out, fs, path, NULL, err);
}

enum status shard_reader_open_foreign(struct shard_reader **out,
                                      const struct file_system *fs,
                                      const char *path,
                                      const char *index,
                                      struct error *err) {
    REQUIRE(out && fs && path);
    *out = NULL;
    struct shard_reader *r = calloc(1, sizeof(*r));
    TRY_MEMORY(r, err, "out of memory for a shard reader");
    r->fs = fs;
    r->beside = index;
    byte_buffer_init(&r->frame, SHARD_MAX_FRAME_BYTES);
    byte_buffer_init(&r->content, SHARD_MAX_FRAME_BYTES);
    enum status s = path_join(r->path, sizeof(r->path), "", path, err);
    THEN(s, read_index(r, err));
    THEN(s, caption_chunk_init(&r->chunk, r->index.largest_chunk_bytes, err));
    RETURN_CREATED(s, out, r, shard_reader_close);
}

void shard_reader_close(struct shard_reader *r) {
    if (r) {
        if (r->file) {
            r->fs->close(r->file);
        }
        caption_chunk_fini(&r->chunk);
        byte_buffer_fini(&r->frame);
        byte_buffer_fini(&r->content);
        free(r->index_data);
        free(r->captions);
        free(r);
    }
}

uint32_t shard_reader_sample_count(const struct shard_reader *r) {
    return r->index.sample_count;
}

enum shard_container shard_reader_container(const struct shard_reader *r) {
    return r->index.container;
}

enum status shard_reader_record(struct shard_reader *r,
                                uint32_t index,
                                struct shard_record *out,
                                struct error *err) {
    REQUIRE(r && out && index < r->index.sample_count);
    return shard_index_record(&r->index, index, out, err);
}

enum status shard_reader_caption(struct shard_reader *r,
                                 uint32_t index,
                                 uint32_t k,
                                 struct shard_text *out,
                                 struct error *err) {
    REQUIRE(r && out && index < r->index.sample_count);
    struct shard_record record;
    TRY(shard_index_record(&r->index, index, &record, err));
    REQUIRE(k < record.text_count);
    return caption_chunk_get(&r->chunk, &r->index, index, &record, k, out, err);
}

const void *shard_reader_index(const struct shard_reader *r, size_t *size_bytes) {
    *size_bytes = r->index_bytes;
    return r->index_data;
}

enum status
shard_reader_summary(struct shard_reader *r, struct shard_summary *out, struct error *err) {
    REQUIRE(r && out);
    memset(out, 0, sizeof(*out));
    const char *slash = strrchr(r->path, '/');
    const char *name = slash ? slash + 1 : r->path;
    FAIL_IF(strlen(name) > SHARD_MAX_NAME_BYTES, err, STATUS_LIMIT,
            "%s: its name is longer than %d bytes", r->path, SHARD_MAX_NAME_BYTES);
    memcpy(out->name, name, strlen(name));
    out->size_bytes = r->file_bytes;
    out->index_hash = r->index.hash;
    out->image_bytes = r->index.image_bytes;
    out->first_id = r->index.first_id;
    out->last_id = r->index.last_id;
    out->sample_count = r->index.sample_count;
    out->text_count = r->index.text_count;
    return shard_file_hash(r->fs, r->file, r->path, &out->hash, NULL, NULL, err);
}

enum status shard_file_hash(const struct file_system *fs,
                            struct file *f,
                            const char *path,
                            uint64_t *out,
                            bool (*progress)(void *cookie, uint64_t bytes),
                            void *cookie,
                            struct error *err) {
    enum { PIECE_BYTES = 1 << 20 };
    struct hasher *h = NULL;
    uint8_t *piece = malloc(PIECE_BYTES);
    enum status s = piece ? hasher_create(&h, err)
                          : error_set(err, STATUS_NOMEM, "%s: out of memory to hash it", path);
    uint64_t offset = 0;
    size_t got = PIECE_BYTES;
    while (s == STATUS_OK && got == PIECE_BYTES) {
        s = fs->pread(f, piece, &got, PIECE_BYTES, offset, err);
        if (s == STATUS_OK) {
            hasher_update(h, piece, got);
            offset += got;
            if (progress && !progress(cookie, got)) {
                s = error_set(err, STATUS_INTERRUPTED, "stopped in %s", path);
            }
        }
    }
    if (s == STATUS_OK) {
        *out = hasher_value(h);
    }
    hasher_destroy(h);
    free(piece);
    return s;
}
