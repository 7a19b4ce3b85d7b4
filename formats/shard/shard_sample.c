/*
 * One sample of a shard: one read, in container tar.zst one decompression, and a check of all that
 * is known about it. Of our own shards the tar members must be exactly those that the writer makes
 * of the record: headers are made again and compared, not interpreted. Members of foreign tars are
 * in shard_foreign.c.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_reader.h"
#include "formats/shard/shard_writer.h"

struct shard_sample shard_sample_of(const struct sample_view *v) {
    return (struct shard_sample){
        .sample_id = v->record.sample_id,
        .key = v->key,
        .image = v->image,
        .image_bytes = v->image_bytes,
        .format = v->record.format,
        .width_px = v->record.width_px,
        .height_px = v->record.height_px,
        .flags = v->record.flags,
        .label = v->record.label,
        .captions = v->captions,
        .caption_count = v->caption_count,
        .json = v->json,
    };
}

enum status shard_sample_bad(const struct shard_reader *r,
                             const struct shard_record *record,
                             const char *what,
                             struct error *err) {
    return error_set(err, STATUS_CORRUPT, "%s: sample %" PRIu64 " (frame at byte %" PRIu64 "): %s",
                     r->path, record->sample_id, record->frame_offset, what);
}

enum status
shard_sample_reserve_captions(struct shard_reader *r, uint32_t count, struct error *err) {
    if (count > r->captions_capacity) {
        struct shard_text *captions = realloc(r->captions, count * sizeof(*r->captions));
        TRY_MEMORY(captions, err, "%s: out of memory for captions", r->path);
        r->captions = captions;
        r->captions_capacity = count;
    }
    return STATUS_OK;
}

/* The record's bytes of the file. */
static enum status read_bytes(struct shard_reader *r,
                              struct byte_buffer *out,
                              const struct shard_record *record,
                              struct error *err) {
    size_t got = 0;
    out->size_bytes = 0;
    TRY(byte_buffer_reserve(out, record->frame_bytes, err));
    TRY(r->fs->pread(r->file, out->data, &got, record->frame_bytes, record->frame_offset, err));
    out->size_bytes = got;
    RETURN_IF(got != record->frame_bytes,
              shard_sample_bad(r, record, "the file ends inside it", err));
    return STATUS_OK;
}

/* Reads the sample's members, which are uncompressed in the file, into r->content. */
static enum status read_members(struct shard_reader *r,
                                uint32_t index,
                                const struct shard_record *record,
                                struct error *err) {
    TRY(read_bytes(r, &r->content, record, err));
    RETURN_IF(!shard_index_has_bytes(&r->index, index, r->content.data, r->content.size_bytes),
              shard_sample_bad(r, record, "its members do not match their checksum", err));
    return STATUS_OK;
}

/* The content of the frame in r->frame into r->content. */
static enum status
unpack_frame(struct shard_reader *r, const struct shard_record *record, struct error *err) {
    uint32_t content_bytes = 0;
    RETURN_IF(!frame_content_bytes(r->frame.data, r->frame.size_bytes, &content_bytes),
              shard_sample_bad(r, record, "not a frame of a shard", err));
    uint64_t head =
        (uint64_t)content_bytes - record->image_bytes - tar_padding(record->image_bytes);
    RETURN_IF(content_bytes < record->image_bytes || head > SHARD_MAX_HEAD_BYTES,
              shard_sample_bad(r, record, "its content does not fit its image", err));
    r->content.size_bytes = 0;
    TRY(byte_buffer_reserve(&r->content, content_bytes, err));
    struct error why = {0};
    enum status s = zstd_unpack(r->chunk.unpacker, r->content.data, content_bytes, r->frame.data,
                                r->frame.size_bytes, "zstd", &why);
    RETURN_IF(s != STATUS_OK, shard_sample_bad(r, record, why.text, err));
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
    if (!header || !tar_read_octal(&size, header + TAR_SIZE_AT, TAR_SIZE_BYTES - 1)) {
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
    RETURN_IF(c.size_bytes < TAR_BLOCK_BYTES || !take_key(r),
              shard_sample_bad(r, record, "no tar header with a usable key", err));
    TRY(shard_sample_reserve_captions(r, record->text_count, err));
    for (uint32_t k = 0; k < record->text_count; k++) {
        RETURN_IF(!take_member(&c, &r->captions[k], r->key, TAR_CAPTION, k, record->format),
                  shard_sample_bad(r, record, "a caption's tar member is malformed", err));
    }
    if (!take_member(&c, &v->json, r->key, TAR_JSON, 0, record->format)) {
        v->json = (struct shard_text){NULL, 0};
    }
    RETURN_IF(!take_member(&c, &image, r->key, TAR_IMAGE, 0, record->format) ||
                  cursor_left(&c) != 0 || image.size_bytes != record->image_bytes,
              shard_sample_bad(r, record, "the image's tar member is malformed", err));
    v->key = r->key;
    v->captions = r->captions;
    v->caption_count = record->text_count;
    v->image = (const uint8_t *)image.data;
    v->image_bytes = image.size_bytes;
    return STATUS_OK;
}

/* The content against the record. */
static enum status
check_members(struct shard_reader *r, const struct sample_view *v, struct error *err) {
    const struct shard_record *record = &v->record;
    RETURN_IF(hash64(v->image, v->image_bytes) != record->image_hash,
              shard_sample_bad(r, record, "the image does not match its hash", err));
    RETURN_IF(caption_hash_with(r->chunk.hasher, v->captions, v->caption_count) !=
                  record->caption_hash,
              shard_sample_bad(r, record, "the captions do not match their hash", err));
    struct error why = {0};
    enum status s = shard_check_captions(v->captions, v->caption_count, &why);
    if (s == STATUS_OK && v->json.data) {
        s = shard_check_json(&v->json, &why);
    }
    return s == STATUS_OK ? STATUS_OK : shard_sample_bad(r, record, why.text, err);
}

/* Against the way that reads the image without looking at anything else. */
static enum status
check_span(struct shard_reader *r, const struct sample_view *v, struct error *err) {
    const struct shard_record *record = &v->record;
    size_t start = (size_t)(record->image_offset - record->frame_offset);
    bool there;
    if (r->index.container == SHARD_CONTAINER_TAR_ZSTD) {
        uint8_t *span = r->frame.data + start;
        uint32_t span_bytes = shard_image_span_bytes(r->index.container, record->image_bytes);
        there = shard_image_compact(span, span_bytes, record->image_bytes, NULL) == STATUS_OK &&
                memcmp(span, v->image, v->image_bytes) == 0;
    } else {
        there = v->image == r->content.data + start;
    }
    return there ? STATUS_OK
                 : shard_sample_bad(r, record, "the image is not where the index says", err);
}

enum status shard_reader_get(struct shard_reader *r,
                             uint32_t index,
                             struct sample_view *view,
                             struct error *err) {
    REQUIRE(r && view && index < r->index.sample_count);
    struct sample_view v = {0};
    memset(view, 0, sizeof(*view));
    TRY(shard_index_record(&r->index, index, &v.record, err));
    switch (r->index.container) {
    case SHARD_CONTAINER_TAR_ZSTD:
        TRY(read_bytes(r, &r->frame, &v.record, err));
        TRY(unpack_frame(r, &v.record, err));
        TRY(take_members(r, &v, err));
        break;
    case SHARD_CONTAINER_TAR:
        TRY(read_members(r, index, &v.record, err));
        TRY(take_members(r, &v, err));
        break;
    case SHARD_CONTAINER_TAR_FOREIGN:
        TRY(read_members(r, index, &v.record, err));
        TRY(shard_foreign_take(r, index, &v, err));
        break;
    }
    TRY(check_members(r, &v, err));
    TRY(check_span(r, &v, err));
    *view = v;
    return STATUS_OK;
}
