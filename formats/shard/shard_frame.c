/*
 * Turns one sample into its bytes in a shard. The tar members come in this order. Container tar
 * stores them unchanged; tar.zst compresses only what comes before the image:
 *
 *     tar      KEY.txt .. KEY.json ..  header of KEY.jpg |  image            | zeros to 512
 *     zstd     one compressed block (or raw blocks)      |  raw blocks       | one RLE block
 *
 * so that the file holds the bytes of the image unchanged.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_writer.h"

struct shard_frame_builder {
    enum shard_container container;
    struct zstd_packer *packer;
    struct hasher *hasher;
    struct byte_buffer head; /* what precedes the image, uncompressed */
};

void shard_frame_fini(struct shard_frame *f) {
    if (f) {
        byte_buffer_fini(&f->bytes);
        byte_buffer_fini(&f->texts);
        byte_buffer_fini(&f->sizes);
        memset(f, 0, sizeof(*f));
    }
}

enum status shard_frame_builder_create(struct shard_frame_builder **out,
                                       enum shard_container container,
                                       int level,
                                       struct error *err) {
    REQUIRE(out && level >= SHARD_LEVEL_MIN && level <= SHARD_LEVEL_MAX);
    REQUIRE(container == SHARD_CONTAINER_TAR_ZSTD || container == SHARD_CONTAINER_TAR);
    *out = NULL;
    struct shard_frame_builder *b = calloc(1, sizeof(*b));
    TRY_MEMORY(b, err, "out of memory for a frame builder");
    b->container = container;
    byte_buffer_init(&b->head, SHARD_MAX_HEAD_BYTES);
    enum status s = zstd_packer_create(&b->packer, level, err);
    THEN(s, hasher_create(&b->hasher, err));
    RETURN_CREATED(s, out, b, shard_frame_builder_destroy);
}

void shard_frame_builder_destroy(struct shard_frame_builder *b) {
    if (b) {
        zstd_packer_destroy(b->packer);
        hasher_destroy(b->hasher);
        byte_buffer_fini(&b->head);
        free(b);
    }
}

static enum status over_limit(const struct shard_sample *s,
                              const char *what,
                              uint64_t got,
                              uint64_t limit,
                              struct error *err) {
    return error_set(err, STATUS_LIMIT,
                     "sample %" PRIu64 ": %s of %" PRIu64 ", the limit is %" PRIu64, s->sample_id,
                     what, got, limit);
}

static enum status check_texts(const struct shard_sample *s, struct error *err) {
    struct error why = {0};
    enum status status = shard_check_captions(s->captions, s->caption_count, &why);
    if (status == STATUS_OK && s->json.data) {
        status = shard_check_json(&s->json, &why);
    }
    return status == STATUS_OK
               ? STATUS_OK
               : error_set(err, status, "sample %" PRIu64 ": %s", s->sample_id, why.text);
}

static enum status check_sample(const struct shard_sample *s, struct error *err) {
    REQUIRE(s->key && s->image && (s->captions || s->caption_count == 0));
    REQUIRE(s->sample_id <= SHARD_MAX_ID && s->flags <= SHARD_FLAGS_ALL);
    REQUIRE(s->label >= SHARD_NO_LABEL && s->format <= IMAGE_FORMAT_GIF);
    FAIL_IF(!shard_key_is_valid(s->key), err, STATUS_INVALID,
            "sample %" PRIu64 ": key '%.80s' cannot be a file "
            "name in a shard",
            s->sample_id, s->key);
    RETURN_IF(s->image_bytes < 1 || s->image_bytes > SHARD_MAX_IMAGE_BYTES,
              over_limit(s, "image with a size", s->image_bytes, SHARD_MAX_IMAGE_BYTES, err));
    RETURN_IF(s->width_px > UINT16_MAX || s->height_px > UINT16_MAX,
              over_limit(s, "image with a side",
                         s->width_px > s->height_px ? s->width_px : s->height_px, UINT16_MAX, err));
    return check_texts(s, err);
}

/* A tar member with its padding, into the head. */
static enum status put_member(struct byte_buffer *head,
                              const char *name,
                              const struct shard_text *body,
                              struct error *err) {
    static const uint8_t zeros[TAR_BLOCK_BYTES];
    uint8_t header[TAR_BLOCK_BYTES];
    tar_header(header, name, body->size_bytes);
    TRY(byte_buffer_append(head, header, sizeof(header), err));
    TRY(byte_buffer_append(head, body->data, body->size_bytes, err));
    return byte_buffer_append(head, zeros, tar_padding(body->size_bytes), err);
}

static enum status
put_head(struct byte_buffer *head, const struct shard_sample *s, struct error *err) {
    char name[TAR_NAME_BYTES];
    uint8_t header[TAR_BLOCK_BYTES];
    head->size_bytes = 0;
    for (uint32_t k = 0; k < s->caption_count; k++) {
        tar_member_name(name, s->key, TAR_CAPTION, k, s->format);
        TRY(put_member(head, name, &s->captions[k], err));
    }
    if (s->json.data) {
        tar_member_name(name, s->key, TAR_JSON, 0, s->format);
        TRY(put_member(head, name, &s->json, err));
    }
    tar_member_name(name, s->key, TAR_IMAGE, 0, s->format);
    tar_header(header, name, s->image_bytes);
    return byte_buffer_append(head, header, sizeof(header), err);
}

enum status
shard_sample_tar(struct byte_buffer *out, const struct shard_sample *sample, struct error *err) {
    static const uint8_t zeros[TAR_BLOCK_BYTES];
    REQUIRE(out && sample);
    TRY(check_sample(sample, err));
    TRY(put_head(out, sample, err));
    TRY(byte_buffer_append(out, sample->image, sample->image_bytes, err));
    return byte_buffer_append(out, zeros, tar_padding((uint32_t)sample->image_bytes), err);
}

/* Raw blocks over `data`, none of them the frame's last. */
static enum status
put_raw(struct byte_buffer *out, const uint8_t *data, size_t size_bytes, struct error *err) {
    for (size_t done = 0; done < size_bytes;) {
        size_t piece =
            size_bytes - done < SHARD_BLOCK_BYTES ? size_bytes - done : SHARD_BLOCK_BYTES;
        uint8_t header[SHARD_BLOCK_HEADER_BYTES];
        block_header(header, false, BLOCK_RAW, (uint32_t)piece);
        TRY(byte_buffer_append(out, header, sizeof(header), err));
        TRY(byte_buffer_append(out, data + done, piece, err));
        done += piece;
    }
    return STATUS_OK;
}

static enum status
put_head_blocks(struct shard_frame_builder *b, struct byte_buffer *out, struct error *err) {
    static const uint8_t room[SHARD_BLOCK_HEADER_BYTES];
    const struct byte_buffer *head = &b->head;
    if (head->size_bytes <= SHARD_BLOCK_BYTES) {
        size_t at = out->size_bytes;
        size_t block_bytes = 0;
        TRY(byte_buffer_append(out, room, sizeof(room), err));
        TRY(zstd_packer_block(b->packer, out, &block_bytes, head->data, head->size_bytes, err));
        if (block_bytes > 0) {
            block_header(out->data + at, false, BLOCK_ZSTD, (uint32_t)block_bytes);
            return STATUS_OK;
        }
        out->size_bytes = at;
    }
    return put_raw(out, head->data, head->size_bytes, err);
}

/* The header of the raw block that holds the image from `offset` on: the frame's last block if
 * nothing follows the image. */
static void image_block_header(uint8_t *out, size_t image_bytes, size_t offset) {
    size_t left = image_bytes - offset;
    bool last = left <= SHARD_BLOCK_BYTES;
    block_header(out, last && tar_padding(image_bytes) == 0, BLOCK_RAW,
                 last ? (uint32_t)left : SHARD_BLOCK_BYTES);
}

/* Of all members. */
static uint64_t content_hash(const struct shard_frame_builder *b, const struct shard_sample *s) {
    static const uint8_t zeros[TAR_BLOCK_BYTES];
    hasher_reset(b->hasher);
    hasher_update(b->hasher, b->head.data, b->head.size_bytes);
    hasher_update(b->hasher, s->image, s->image_bytes);
    hasher_update(b->hasher, zeros, tar_padding(s->image_bytes));
    return hasher_value(b->hasher);
}

static enum status put_frame(struct shard_frame_builder *b,
                             struct shard_frame *out,
                             const struct shard_sample *s,
                             struct error *err) {
    struct byte_buffer *bytes = &out->bytes;
    uint8_t header[FRAME_MAX_HEADER_BYTES];
    uint32_t padding = tar_padding(s->image_bytes);
    TRY(byte_buffer_append(bytes, header, frame_header(header, out->content_bytes), err));
    TRY(put_head_blocks(b, bytes, err));
    image_block_header(header, s->image_bytes, 0);
    TRY(byte_buffer_append(bytes, header, SHARD_BLOCK_HEADER_BYTES, err));
    out->image_at = bytes->size_bytes;
    if (padding > 0) {
        uint8_t block[SHARD_BLOCK_HEADER_BYTES + 1] = {0};
        block_header(block, true, BLOCK_RLE, padding);
        TRY(byte_buffer_append(bytes, block, sizeof(block), err));
    }
    return byte_buffer_u32(bytes, out->content_check, err);
}

static enum status put_members(struct shard_frame_builder *b,
                               struct shard_frame *out,
                               const struct shard_sample *s,
                               struct error *err) {
    static const uint8_t zeros[TAR_BLOCK_BYTES];
    TRY(byte_buffer_append(&out->bytes, b->head.data, b->head.size_bytes, err));
    out->image_at = out->bytes.size_bytes;
    return byte_buffer_append(&out->bytes, zeros, tar_padding(s->image_bytes), err);
}

/* Head, image block, then header and image block repeatedly, then what follows the image. */
bool shard_frame_piece(const struct shard_frame *f, size_t i, struct shard_piece *out) {
    bool blocks = f->container == SHARD_CONTAINER_TAR_ZSTD;
    size_t image_bytes = f->record.image_bytes;
    size_t last = blocks ? 2 * ((image_bytes - 1) / SHARD_BLOCK_BYTES + 1) : 2;
    size_t offset = blocks ? i / 2 * SHARD_BLOCK_BYTES : 0;
    size_t left = image_bytes - (i < last ? offset : 0);
    if (i == 0) {
        out->data = f->bytes.data;
        out->size_bytes = f->image_at;
    } else if (i == last) {
        out->data = f->bytes.data + f->image_at;
        out->size_bytes = f->bytes.size_bytes - f->image_at;
    } else if (i % 2 == 1) {
        out->data = f->image + offset;
        out->size_bytes = blocks && left > SHARD_BLOCK_BYTES ? SHARD_BLOCK_BYTES : left;
    } else {
        image_block_header(out->header, image_bytes, offset);
        out->data = out->header;
        out->size_bytes = SHARD_BLOCK_HEADER_BYTES;
    }
    return i <= last;
}

static enum status
put_captions(struct shard_frame *out, const struct shard_sample *s, struct error *err) {
    out->texts.size_bytes = 0;
    out->sizes.size_bytes = 0;
    for (size_t k = 0; k < s->caption_count; k++) {
        TRY(byte_buffer_append(&out->texts, s->captions[k].data, s->captions[k].size_bytes, err));
        TRY(byte_buffer_u32(&out->sizes, (uint32_t)s->captions[k].size_bytes, err));
    }
    return STATUS_OK;
}

enum status shard_frame_build(struct shard_frame_builder *b,
                              struct shard_frame *out,
                              const struct shard_sample *sample,
                              struct error *err) {
    REQUIRE(b && out && sample);
    TRY(check_sample(sample, err));
    out->record = (struct shard_record){
        .sample_id = sample->sample_id,
        .image_hash = hash64(sample->image, sample->image_bytes),
        .caption_hash = caption_hash_with(b->hasher, sample->captions, sample->caption_count),
        .image_bytes = (uint32_t)sample->image_bytes,
        .text_count = (uint32_t)sample->caption_count,
        .width_px = sample->width_px,
        .height_px = sample->height_px,
        .format = sample->format,
        .flags = sample->flags,
        .label = sample->label,
    };
    out->key_hash = hash64(sample->key, strlen(sample->key));
    TRY(put_head(&b->head, sample, err));
    TRY(put_captions(out, sample, err));
    out->container = b->container;
    out->content_bytes =
        (uint32_t)(b->head.size_bytes + sample->image_bytes + tar_padding(sample->image_bytes));
    out->content_check = (uint32_t)content_hash(b, sample);
    out->bytes.size_bytes = 0;
    TRY(b->container == SHARD_CONTAINER_TAR ? put_members(b, out, sample, err)
                                            : put_frame(b, out, sample, err));
    out->image = sample->image;
    out->record.image_offset = out->image_at;
    out->record.frame_bytes = (uint32_t)out->bytes.size_bytes +
                              shard_image_span_bytes(b->container, out->record.image_bytes);
    return STATUS_OK;
}
