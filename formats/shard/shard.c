/*
 * Names, hashes and framing that writer and readers share. How an image of 300,000 bytes lies in
 * its frame, H being a block header of three bytes:
 *
 *     H 131072 bytes  H 131072 bytes  H 37856 bytes  H (padding)
 *       |---------------- span ---------------|
 *       image_offset
 */
#include "formats/shard/shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/utf8.h"
#include "formats/shard/shard_internal.h"

static const char zst_extension[] = ".tar.zst";
static const char tar_extension[] = ".tar";

const char *shard_container_name(enum shard_container c) {
    switch (c) {
    case SHARD_CONTAINER_TAR_ZSTD:
        return "tar.zst";
    case SHARD_CONTAINER_TAR:
        return "tar";
    case SHARD_CONTAINER_TAR_FOREIGN:
        return "tar-foreign";
    }
    return "unknown";
}

const char *shard_container_changed(enum shard_container c) {
    return c == SHARD_CONTAINER_TAR_FOREIGN
               ? ": it was changed after it was indexed; index the tars again"
               : "";
}

bool shard_container_of_name(enum shard_container *out, const char *name) {
    for (int c = SHARD_CONTAINER_TAR_ZSTD; c <= SHARD_CONTAINER_TAR_FOREIGN; c++) {
        *out = (enum shard_container)c;
        if (strcmp(name, shard_container_name(*out)) == 0) {
            return true;
        }
    }
    return false;
}

uint64_t caption_hash_with(struct hasher *h, const struct shard_text *captions, size_t count) {
    hasher_reset(h);
    for (size_t i = 0; i < count; i++) {
        uint8_t size[4];
        store_u32(size, (uint32_t)captions[i].size_bytes);
        hasher_update(h, size, sizeof(size));
        hasher_update(h, captions[i].data, captions[i].size_bytes);
    }
    return hasher_value(h);
}

enum status shard_caption_hash(uint64_t *out,
                               const struct shard_text *captions,
                               size_t caption_count,
                               struct error *err) {
    REQUIRE(out && (captions || caption_count == 0));
    struct hasher *h = NULL;
    TRY(hasher_create(&h, err));
    *out = caption_hash_with(h, captions, caption_count);
    hasher_destroy(h);
    return STATUS_OK;
}

/* ---- texts, keys and names --------------------------------------------------------------------
 */

static enum status check_text(const char *what,
                              const struct shard_text *text,
                              uint64_t total_bytes,
                              uint64_t max_bytes,
                              struct error *err) {
    FAIL_IF(total_bytes > max_bytes, err, STATUS_LIMIT,
            "%s of %" PRIu64 " bytes, the limit is %" PRIu64, what, total_bytes, max_bytes);
    size_t valid = utf8_valid_prefix(text->data, text->size_bytes);
    return valid == text->size_bytes
               ? STATUS_OK
               : error_set(err, STATUS_CORRUPT, "%s not in UTF-8 at byte %zu", what, valid);
}

enum status shard_check_json(const struct shard_text *json, struct error *err) {
    FAIL_IF(json->size_bytes == 0, err, STATUS_LIMIT, "JSON of 0 bytes, it must have at least 1");
    return check_text("JSON", json, json->size_bytes, SHARD_MAX_JSON_BYTES, err);
}

enum status
shard_check_captions(const struct shard_text *captions, size_t count, struct error *err) {
    uint64_t total_bytes = 0;
    FAIL_IF(count > SHARD_MAX_CAPTIONS, err, STATUS_LIMIT, "%zu captions, the limit is %d", count,
            SHARD_MAX_CAPTIONS);
    for (size_t k = 0; k < count; k++) {
        total_bytes += captions[k].size_bytes;
        TRY(check_text("captions", &captions[k], total_bytes, SHARD_MAX_TEXT_BYTES, err));
    }
    return STATUS_OK;
}

static bool is_key_byte(char c) {
    return c > ' ' && c < 0x7F && c != '.' && c != '/' && c != '\\';
}

bool shard_key_is_valid(const char *key) {
    size_t n = 0;
    while (n <= SHARD_MAX_KEY_BYTES && key[n] != '\0' && is_key_byte(key[n])) {
        n++;
    }
    return n > 0 && n <= SHARD_MAX_KEY_BYTES && key[n] == '\0';
}

void shard_safe_key(char out[SHARD_MAX_KEY_BYTES + 1], const char *key, size_t size_bytes) {
    if (size_bytes > SHARD_MAX_KEY_BYTES) { /* names differ at their end */
        key += size_bytes - SHARD_MAX_KEY_BYTES;
        size_bytes = SHARD_MAX_KEY_BYTES;
    }
    for (size_t i = 0; i < size_bytes; i++) {
        out[i] = is_key_byte(key[i]) ? key[i] : '_';
    }
    if (size_bytes == 0) {
        out[size_bytes++] = '_';
    }
    out[size_bytes] = '\0';
}

bool shard_name_is_valid(const char *name) {
    size_t n = 0;
    for (; name[n] != '\0'; n++) {
        char c = name[n];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '_' || c == '-' || c == '+';
        if (n == SHARD_MAX_NAME_BYTES || !(plain || (c == '.' && n > 0))) {
            return false;
        }
    }
    return n > 0 && name[n - 1] != '.';
}

enum status shard_file_name(char *out,
                            size_t out_size_bytes,
                            const char *name,
                            uint32_t number,
                            enum shard_container container,
                            struct error *err) {
    REQUIRE(out && out_size_bytes > 0 && name);
    REQUIRE(container == SHARD_CONTAINER_TAR_ZSTD || container == SHARD_CONTAINER_TAR);
    const char *extension = container == SHARD_CONTAINER_TAR ? tar_extension : zst_extension;
    int n = snprintf(out, out_size_bytes, "%s-%06u%s", name, number, extension);
    FAIL_IF(n < 0 || (size_t)n >= out_size_bytes || (size_t)n > SHARD_MAX_NAME_BYTES, err,
            STATUS_LIMIT,
            "name '%.40s...' makes a file name of %d bytes, the "
            "limit is %d",
            name, n, SHARD_MAX_NAME_BYTES);
    return STATUS_OK;
}

/* True if `name` ends with `ending` and has at least one byte before it. */
static bool ends_with(const char *name, const char *ending) {
    size_t size = strlen(name);
    size_t tail = strlen(ending);
    return size > tail && strcmp(name + size - tail, ending) == 0;
}

enum status
shard_index_name(char *out, size_t out_size_bytes, const char *shard_name, struct error *err) {
    REQUIRE(out && out_size_bytes > 0 && shard_name);
    size_t size = strlen(shard_name);
    if (ends_with(shard_name, zst_extension)) {
        size -= sizeof(zst_extension) - 1;
    } else if (ends_with(shard_name, tar_extension)) {
        size -= sizeof(tar_extension) - 1;
    }
    FAIL_IF(size >= out_size_bytes || strlen(SHARD_INDEX_EXTENSION) >= out_size_bytes - size, err,
            STATUS_LIMIT, "name of %zu bytes is too long", size);
    memcpy(out, shard_name, size);
    memcpy(out + size, SHARD_INDEX_EXTENSION, sizeof(SHARD_INDEX_EXTENSION));
    return STATUS_OK;
}

/* ---- names of members -------------------------------------------------------------------------
 */

void tar_member_name(char out[TAR_NAME_BYTES],
                     const char *key,
                     enum tar_member member,
                     uint32_t k,
                     enum image_format format) {
    /* Three for every sample: printf would take as long as all else about a header. */
    size_t n = strnlen(key, SHARD_MAX_KEY_BYTES);
    memcpy(out, key, n);
    out[n++] = '.';
    if (member == TAR_CAPTION && k > 0) {
        snprintf(out + n, TAR_NAME_BYTES - n, "%u.txt", k);
        return;
    }
    const char *extension = member == TAR_CAPTION ? "txt"
                            : member == TAR_JSON  ? "json"
                                                  : image_format_extension(format);
    memcpy(out + n, extension, strlen(extension) + 1);
}

/* ---- zstd framing ---------------------------------------------------------------------------- */

void block_header(uint8_t out[SHARD_BLOCK_HEADER_BYTES], bool last, int type, uint32_t size) {
    uint32_t v = (last ? 1u : 0u) | (uint32_t)type << 1 | size << 3;
    out[0] = (uint8_t)(v & 0xFFu);
    out[1] = (uint8_t)(v >> 8 & 0xFFu);
    out[2] = (uint8_t)(v >> 16 & 0xFFu);
}

size_t frame_header(uint8_t out[FRAME_MAX_HEADER_BYTES], uint32_t content_bytes) {
    size_t at = 5;
    store_u32(out, (uint32_t)ZSTD_FRAME_MAGIC);
    if (content_bytes <= FRAME_SHORT_MAX_BYTES) {
        uint32_t above = content_bytes - FRAME_SHORT_MIN_BYTES;
        out[4] = FRAME_DESCRIPTOR_SHORT;
        out[5] = (uint8_t)(above & 0xFFu);
        out[6] = (uint8_t)(above >> 8);
        return 7;
    }
    if (content_bytes <= FRAME_SINGLE_MAX_BYTES) {
        out[4] = FRAME_DESCRIPTOR_SINGLE;
    } else {
        out[4] = FRAME_DESCRIPTOR_WINDOWED;
        out[at++] = FRAME_WINDOW_128K;
    }
    store_u32(out + at, content_bytes);
    return at + 4;
}

bool frame_content_bytes(const uint8_t *frame, size_t frame_bytes, uint32_t *out) {
    uint8_t expected[FRAME_MAX_HEADER_BYTES];
    if (frame_bytes < FRAME_MAX_HEADER_BYTES) {
        return false;
    }
    uint32_t content = load_u32(frame + (frame[4] == FRAME_DESCRIPTOR_WINDOWED ? 6 : 5));
    if (frame[4] == FRAME_DESCRIPTOR_SHORT) {
        content = (content & 0xFFFFu) + FRAME_SHORT_MIN_BYTES;
    } else if (content < FRAME_SHORT_MIN_BYTES) {
        return false;
    }
    if (memcmp(frame, expected, frame_header(expected, content)) != 0) {
        return false;
    }
    *out = content;
    return true;
}

void end_frame(uint8_t out[END_FRAME_BYTES]) {
    static const uint8_t zeros[TAR_END_BYTES];
    size_t at = frame_header(out, TAR_END_BYTES);
    block_header(out + at, true, BLOCK_RLE, TAR_END_BYTES);
    out[at + SHARD_BLOCK_HEADER_BYTES] = 0;
    store_u32(out + at + SHARD_BLOCK_HEADER_BYTES + 1, (uint32_t)hash64(zeros, sizeof(zeros)));
}

uint32_t shard_image_span_bytes(enum shard_container container, uint32_t image_bytes) {
    return image_bytes == 0 || container != SHARD_CONTAINER_TAR_ZSTD
               ? image_bytes
               : image_bytes + (image_bytes - 1) / SHARD_BLOCK_BYTES * SHARD_BLOCK_HEADER_BYTES;
}

enum status
shard_image_compact(void *span, size_t span_bytes, size_t image_bytes, struct error *err) {
    REQUIRE(span && image_bytes >= 1 && image_bytes <= SHARD_MAX_IMAGE_BYTES);
    uint32_t framed_bytes = shard_image_span_bytes(SHARD_CONTAINER_TAR_ZSTD, (uint32_t)image_bytes);
    REQUIRE(span_bytes == image_bytes || span_bytes == framed_bytes);
    if (span_bytes == image_bytes) {
        return STATUS_OK;
    }
    uint8_t *bytes = span;
    for (size_t done = SHARD_BLOCK_BYTES; done < image_bytes; done += SHARD_BLOCK_BYTES) {
        size_t left = image_bytes - done;
        size_t piece = left < SHARD_BLOCK_BYTES ? left : SHARD_BLOCK_BYTES;
        uint8_t *header = bytes + done + (done / SHARD_BLOCK_BYTES - 1) * SHARD_BLOCK_HEADER_BYTES;
        uint8_t expected[SHARD_BLOCK_HEADER_BYTES];
        bool last = piece == left && tar_padding(image_bytes) == 0; /* else the padding is */
        block_header(expected, last, BLOCK_RAW, (uint32_t)piece);
        FAIL_IF(memcmp(header, expected, sizeof(expected)) != 0, err, STATUS_CORRUPT,
                "no raw block of %zu bytes at byte %zu of an image of %zu bytes", piece, done,
                image_bytes);
        memmove(bytes + done, header + SHARD_BLOCK_HEADER_BYTES, piece);
    }
    return STATUS_OK;
}
