/*
 * One shard from its own bytes alone. The way in is from the end:
 *
 *     last 9 bytes: seek table footer -> last table entry: size of the index frame -> index
 *
 * A sample is then one read and one decompression, and its tar members must be exactly those that
 * the writer makes of the record: headers are made again and compared, not interpreted.
 */
#include "formats/shard_reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/utf8.h"
#include "formats/shard_internal.h"
#include "formats/shard_reader_internal.h"

enum status shard_tail_find(const struct file_system *fs,
                            struct file *f,
                            const char *path,
                            uint64_t file_bytes,
                            uint64_t *index_offset,
                            uint32_t *index_bytes,
                            struct error *err) {
    enum { TAIL_BYTES = SEEK_ENTRY_BYTES + SEEK_FOOTER_BYTES };
    uint8_t tail[TAIL_BYTES];
    uint8_t header[SKIPPABLE_HEADER_BYTES];
    size_t got = 0;
    if (file_bytes < TAIL_BYTES + 2 * SKIPPABLE_HEADER_BYTES) {
        return error_set(err, STATUS_CORRUPT, "%s: has %" PRIu64 " bytes, too few for a shard",
                         path, file_bytes);
    }
    TRY(fs->pread(f, tail, &got, sizeof(tail), file_bytes - sizeof(tail), err));
    if (got != sizeof(tail) || load_u32(tail + TAIL_BYTES - 4) != SEEK_FOOTER_MAGIC) {
        return error_set(err, STATUS_CORRUPT,
                         "%s: does not end with a seek table: unfinished, cut off or no shard",
                         path);
    }
    uint64_t frames = load_u32(tail + SEEK_ENTRY_BYTES);
    uint64_t table = SKIPPABLE_HEADER_BYTES + frames * SEEK_ENTRY_BYTES + SEEK_FOOTER_BYTES;
    uint64_t frame = load_u32(tail);
    if (tail[SEEK_ENTRY_BYTES + 4] != SEEK_DESCRIPTOR_CHECKSUMS || frames < 3 ||
        frames > SHARD_MAX_SAMPLES + 2 || table > file_bytes || frame > file_bytes - table ||
        frame < SKIPPABLE_HEADER_BYTES) {
        return error_set(err, STATUS_CORRUPT, "%s: its seek table does not fit the file", path);
    }
    uint64_t offset = file_bytes - table - frame;
    TRY(fs->pread(f, header, &got, sizeof(header), offset, err));
    if (got != sizeof(header) || load_u32(header) != SHARD_INDEX_FRAME_MAGIC ||
        load_u32(header + 4) != frame - SKIPPABLE_HEADER_BYTES) {
        return error_set(err, STATUS_CORRUPT,
                         "%s: no index in front of the seek table (byte %" PRIu64 ")", path,
                         offset);
    }
    *index_offset = offset + SKIPPABLE_HEADER_BYTES;
    *index_bytes = (uint32_t)(frame - SKIPPABLE_HEADER_BYTES);
    return STATUS_OK;
}

enum status shard_reader_recognise(bool *out,
                                   const struct file_system *fs,
                                   const char *path,
                                   struct error *err) {
    REQUIRE(out && fs && path);
    *out = false;
    struct file *f = NULL;
    uint64_t file_bytes = 0;
    uint64_t index_offset = 0;
    uint32_t index_bytes = 0;
    TRY(fs->open(fs->context, &f, path, FILE_READ, err));
    enum status s = fs->size(f, &file_bytes, err);
    if (s == STATUS_OK) {
        struct error why = {0};
        s = shard_tail_find(fs, f, path, file_bytes, &index_offset, &index_bytes, &why);
        *out = s == STATUS_OK;
        if (s == STATUS_CORRUPT) {
            s = STATUS_OK;
        } else if (s != STATUS_OK && err) {
            *err = why;
        }
    }
    fs->close(f);
    return s;
}

static enum status read_index(struct shard_reader *r, struct error *err) {
    size_t got = 0;
    TRY(r->fs->open(r->fs->context, &r->file, r->path, FILE_READ, err));
    TRY(r->fs->size(r->file, &r->file_bytes, err));
    TRY(shard_tail_find(r->fs, r->file, r->path, r->file_bytes, &r->index_offset, &r->index_bytes,
                        err));
    r->index_data = malloc(r->index_bytes > 0 ? r->index_bytes : 1);
    if (!r->index_data) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory for an index of %u bytes", r->path,
                         r->index_bytes);
    }
    TRY(r->fs->pread(r->file, r->index_data, &got, r->index_bytes, r->index_offset, err));
    if (got != r->index_bytes) {
        return error_set(err, STATUS_CORRUPT, "%s: ends inside its index", r->path);
    }
    TRY(shard_index_parse(&r->index, r->path, r->index_data, r->index_bytes, err));
    if (shard_index_file_bytes(&r->index) != r->file_bytes) {
        return error_set(err, STATUS_CORRUPT, "%s: has %" PRIu64 " bytes, its index says %" PRIu64,
                         r->path, r->file_bytes, shard_index_file_bytes(&r->index));
    }
    return shard_index_check_body(&r->index, err);
}

enum status shard_reader_open(struct shard_reader **out,
                              const struct file_system *fs,
                              const char *path,
                              struct error *err) {
    REQUIRE(out && fs && path);
    *out = NULL;
    struct shard_reader *r = calloc(1, sizeof(*r));
    if (!r) {
        return error_set(err, STATUS_NOMEM, "out of memory for a shard reader");
    }
    r->fs = fs;
    byte_buffer_init(&r->frame, (size_t)SHARD_MAX_IMAGE_BYTES + 2 * SHARD_MAX_HEAD_BYTES);
    byte_buffer_init(&r->content, (size_t)SHARD_MAX_IMAGE_BYTES + 2 * SHARD_MAX_HEAD_BYTES);
    enum status s = path_join(r->path, sizeof(r->path), "", path, err);
    if (s == STATUS_OK) {
        s = read_index(r, err);
    }
    if (s == STATUS_OK) {
        s = caption_chunk_init(&r->chunk, r->index.largest_chunk_bytes, err);
    }
    if (s != STATUS_OK) {
        shard_reader_close(r);
        return s;
    }
    *out = r;
    return STATUS_OK;
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

enum status
shard_reader_find(struct shard_reader *r, uint64_t sample_id, uint32_t *index, struct error *err) {
    REQUIRE(r && index);
    *index = shard_index_lower_bound(&r->index, sample_id);
    if (*index == r->index.sample_count || shard_index_id(&r->index, *index) != sample_id) {
        return error_set(err, STATUS_NOTFOUND, "%s: has no sample %" PRIu64, r->path, sample_id);
    }
    return STATUS_OK;
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

/* ---- one sample -------------------------------------------------------------------------------
 */

static enum status bad_sample(const struct shard_reader *r,
                              const struct shard_record *record,
                              const char *what,
                              struct error *err) {
    return error_set(err, STATUS_CORRUPT, "%s: sample %" PRIu64 " (frame at byte %" PRIu64 "): %s",
                     r->path, record->sample_id, record->frame_offset, what);
}

/* The frame into r->frame, its content into r->content. */
static enum status
read_frame(struct shard_reader *r, const struct shard_record *record, struct error *err) {
    size_t got = 0;
    uint32_t content_bytes = 0;
    r->frame.size_bytes = 0;
    TRY(byte_buffer_reserve(&r->frame, record->frame_bytes, err));
    TRY(r->fs->pread(r->file, r->frame.data, &got, record->frame_bytes, record->frame_offset, err));
    r->frame.size_bytes = got;
    if (got != record->frame_bytes || !frame_content_bytes(r->frame.data, got, &content_bytes)) {
        return bad_sample(r, record, "no frame as shards have it", err);
    }
    uint64_t head =
        (uint64_t)content_bytes - record->image_bytes - tar_padding(record->image_bytes);
    if (content_bytes < record->image_bytes || head > SHARD_MAX_HEAD_BYTES) {
        return bad_sample(r, record, "its content does not fit its image", err);
    }
    r->content.size_bytes = 0;
    TRY(byte_buffer_reserve(&r->content, content_bytes, err));
    struct error why = {0};
    enum status s = zstd_unpack(r->chunk.unpacker, r->content.data, content_bytes, r->frame.data,
                                got, "zstd", &why);
    if (s != STATUS_OK) {
        return bad_sample(r, record, why.text, err);
    }
    r->content.size_bytes = content_bytes;
    return STATUS_OK;
}

/* The key from the first member's name. */
static bool take_key(struct shard_reader *r) {
    const char *name = (const char *)r->content.data;
    size_t n = 0;
    while (n <= SHARD_MAX_KEY_BYTES && name[n] != '.' && name[n] != '\0') {
        r->key[n] = name[n];
        n++;
    }
    if (n > SHARD_MAX_KEY_BYTES) {
        return false;
    }
    r->key[n] = '\0';
    return shard_key_is_valid(r->key);
}

/* Eleven octal digits and a NUL. */
static bool header_size(const uint8_t *header, uint64_t *out) {
    *out = 0;
    for (size_t i = 124; i < 135; i++) {
        if (header[i] < '0' || header[i] > '7') {
            return false;
        }
        *out = *out * 8 + (uint64_t)(header[i] - '0');
    }
    return true;
}

/* The member at c's position: false, with the cursor unchanged, when it is not this one. */
static bool take_member(struct cursor *c,
                        struct shard_text *body,
                        const char *key,
                        enum tar_member member,
                        uint32_t k,
                        enum image_format format) {
    uint8_t expected[TAR_BLOCK_BYTES];
    char name[TAR_NAME_BYTES];
    uint64_t size = 0;
    struct cursor at = *c;
    const uint8_t *header = cursor_take(&at, TAR_BLOCK_BYTES);
    if (!header || !header_size(header, &size)) {
        return false;
    }
    tar_member_name(name, key, member, k, format);
    tar_header(expected, name, size);
    if (memcmp(header, expected, sizeof(expected)) != 0 || size > cursor_left(&at)) {
        return false;
    }
    body->data = (const char *)cursor_take(&at, (size_t)size);
    body->size_bytes = (size_t)size;
    const uint8_t *padding = cursor_take(&at, tar_padding(size));
    for (uint32_t i = 0; padding && i < tar_padding(size); i++) {
        if (padding[i] != 0) {
            return false;
        }
    }
    if (!cursor_ok(&at)) {
        return false;
    }
    *c = at;
    return true;
}

static enum status take_members(struct shard_reader *r, struct sample_view *v, struct error *err) {
    const struct shard_record *record = &v->record;
    struct cursor c;
    struct shard_text image;
    cursor_init(&c, r->content.data, r->content.size_bytes);
    if (c.size_bytes < TAR_BLOCK_BYTES || !take_key(r)) {
        return bad_sample(r, record, "no tar header with a usable key", err);
    }
    if (record->text_count > r->captions_capacity) {
        struct shard_text *captions =
            realloc(r->captions, record->text_count * sizeof(*r->captions));
        if (!captions) {
            return error_set(err, STATUS_NOMEM, "%s: out of memory for captions", r->path);
        }
        r->captions = captions;
        r->captions_capacity = record->text_count;
    }
    for (uint32_t k = 0; k < record->text_count; k++) {
        if (!take_member(&c, &r->captions[k], r->key, TAR_CAPTION, k, record->format)) {
            return bad_sample(r, record, "a caption's tar member is not as it must be", err);
        }
    }
    if (!take_member(&c, &v->json, r->key, TAR_JSON, 0, record->format)) {
        v->json = (struct shard_text){NULL, 0};
    }
    if (!take_member(&c, &image, r->key, TAR_IMAGE, 0, record->format) || cursor_left(&c) != 0 ||
        image.size_bytes != record->image_bytes) {
        return bad_sample(r, record, "the image's tar member is not as it must be", err);
    }
    v->key = r->key;
    v->captions = r->captions;
    v->caption_count = record->text_count;
    v->image = (const uint8_t *)image.data;
    v->image_bytes = image.size_bytes;
    v->tar = r->content.data;
    v->tar_bytes = r->content.size_bytes;
    return STATUS_OK;
}

/* Against the record, and against the way that reads the image without decompressing. */
static enum status
check_members(struct shard_reader *r, const struct sample_view *v, struct error *err) {
    const struct shard_record *record = &v->record;
    if (hash64(v->image, v->image_bytes) != record->image_hash) {
        return bad_sample(r, record, "the image does not have its hash", err);
    }
    if (caption_hash_with(r->chunk.hasher, v->captions, v->caption_count) != record->caption_hash) {
        return bad_sample(r, record, "the captions do not have their hash", err);
    }
    for (size_t k = 0; k < v->caption_count; k++) {
        const struct shard_text *text = &v->captions[k];
        if (utf8_valid_prefix(text->data, text->size_bytes) != text->size_bytes) {
            return bad_sample(r, record, "a caption is not UTF-8", err);
        }
    }
    uint8_t *span = r->frame.data + (record->image_offset - record->frame_offset);
    uint32_t span_bytes = shard_image_span_bytes(r->index.container, record->image_bytes);
    if (shard_image_compact(span, span_bytes, record->image_bytes, NULL) != STATUS_OK ||
        memcmp(span, v->image, v->image_bytes) != 0) {
        return bad_sample(r, record, "the image is not where the index says", err);
    }
    return STATUS_OK;
}

enum status shard_reader_get(struct shard_reader *r,
                             uint32_t index,
                             struct sample_view *view,
                             struct error *err) {
    REQUIRE(r && view && index < r->index.sample_count);
    struct sample_view v = {0};
    memset(view, 0, sizeof(*view));
    TRY(shard_index_record(&r->index, index, &v.record, err));
    TRY(read_frame(r, &v.record, err));
    TRY(take_members(r, &v, err));
    TRY(check_members(r, &v, err));
    *view = v;
    return STATUS_OK;
}

enum status
shard_reader_summary(struct shard_reader *r, struct shard_summary *out, struct error *err) {
    REQUIRE(r && out);
    memset(out, 0, sizeof(*out));
    const char *slash = strrchr(r->path, '/');
    const char *name = slash ? slash + 1 : r->path;
    if (strlen(name) > SHARD_MAX_NAME_BYTES) {
        return error_set(err, STATUS_LIMIT, "%s: its name is longer than %d bytes", r->path,
                         SHARD_MAX_NAME_BYTES);
    }
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
