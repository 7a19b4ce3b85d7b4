/*
 * The only file that includes zstd's header. The public API compresses whole frames, and a shard
 * needs single blocks. The first block of a frame depends on nothing before it (no history, no
 * repeat offsets), so zstd_packer_block takes it from one frame for use at the start of another:
 *
 *     magic | frame header | block header | block            <- made by ZSTD_compress2
 *                                           `-- taken
 */
#include "formats/shard/zstd_codec_internal.h"

#include <stdlib.h>
#include <string.h>

#include <zstd.h>

enum {
    BLOCK_COMPRESSED = 2,
    BLOCK_HEADER_BYTES = 3,
    /* Strategies greedy to lazy2 with windows above 16 KiB search a table whose hash may depend on
     * what the context compressed before (zstd 1.5.5 and later). These levels use the next stronger
     * strategy, which does not. */
    LEVEL_LAZY_MIN = 5,
    LEVEL_LAZY_MAX = 15,
    /* Levels 2 to 4 are not worth their time for single blocks: for 3,600 heads of 3 KiB, level 1
     * takes 8.7 us and 491 bytes, level 2 9.3 us and 493, level 3 10.8 us and 487, level 4 18.5 us
     * and 491. Other table sizes, windows and minimum matches of level 1 were no better. */
    LEVEL_BLOCK_FAST = 1,
    LEVEL_BLOCK_FAST_MAX = 4,
    LEVEL_ONE_BLOCK =
        3, /* strong levels may split their input into several blocks; this does not */
};

/* What the context is set to; level 0: nothing yet. */
struct parameters {
    int level;
    bool checksum;
};

struct zstd_packer {
    ZSTD_CCtx *context;
    int level;
    struct parameters set;
};

struct zstd_unpacker {
    ZSTD_DCtx *context;
};

enum status zstd_packer_create(struct zstd_packer **out, int level, struct error *err) {
    REQUIRE(out);
    *out = NULL;
    FAIL_IF(level < 1 || level > ZSTD_maxCLevel(), err, STATUS_INVALID, "zstd has no level %d",
            level);
    struct zstd_packer *p = calloc(1, sizeof(*p));
    if (!p || !(p->context = ZSTD_createCCtx())) {
        free(p);
        return error_set(err, STATUS_NOMEM, "out of memory for a compressor");
    }
    p->level = level;
    *out = p;
    return STATUS_OK;
}

void zstd_packer_destroy(struct zstd_packer *p) {
    if (p) {
        ZSTD_freeCCtx(p->context);
        free(p);
    }
}

/* Returns the library's error code, or its success value. */
static size_t set_all(ZSTD_CCtx *c, const struct parameters *want) {
    size_t got = ZSTD_CCtx_reset(c, ZSTD_reset_session_and_parameters);
    if (!ZSTD_isError(got)) {
        got = ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, want->level);
    }
    if (!ZSTD_isError(got) && want->level >= LEVEL_LAZY_MIN && want->level <= LEVEL_LAZY_MAX) {
        got = ZSTD_CCtx_setParameter(c, ZSTD_c_strategy, ZSTD_btlazy2);
    }
    return ZSTD_isError(got)
               ? got
               : ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, want->checksum ? 1 : 0);
}

/* Sets the parameters if they differ from the last frame's; resets the session in any case. */
static size_t set_parameters(struct zstd_packer *p, int level, bool checksum) {
    const struct parameters want = {.level = level, .checksum = checksum};
    if (p->set.level == want.level && p->set.checksum == want.checksum) {
        return ZSTD_CCtx_reset(p->context, ZSTD_reset_session_only);
    }
    p->set.level = 0;
    size_t got = set_all(p->context, &want);
    if (!ZSTD_isError(got)) {
        p->set = want;
    }
    return got;
}

/* Writes one frame after the bytes of `out`, whose size stays as it is. */
static enum status make_frame(struct zstd_packer *p,
                              int level,
                              bool checksum,
                              struct byte_buffer *out,
                              size_t *frame_bytes,
                              const void *data,
                              size_t size_bytes,
                              struct error *err) {
    size_t room = ZSTD_compressBound(size_bytes);
    TRY(byte_buffer_reserve(out, room, err));
    size_t got = set_parameters(p, level, checksum);
    if (!ZSTD_isError(got)) {
        got = ZSTD_compress2(p->context, out->data + out->size_bytes, room, data, size_bytes);
    }
    FAIL_IF(ZSTD_isError(got), err, STATUS_NOMEM, "zstd cannot compress %zu bytes: %s", size_bytes,
            ZSTD_getErrorName(got));
    *frame_bytes = got;
    return STATUS_OK;
}

enum status zstd_packer_frame(struct zstd_packer *p,
                              struct byte_buffer *out,
                              const void *data,
                              size_t size_bytes,
                              struct error *err) {
    REQUIRE(p && out && (data || size_bytes == 0));
    size_t frame_bytes = 0;
    TRY(make_frame(p, p->level, true, out, &frame_bytes, data, size_bytes, err));
    out->size_bytes += frame_bytes;
    return STATUS_OK;
}

/* Offset of the first block's header, computed from the frame header descriptor. */
static size_t first_block(const uint8_t *frame, size_t frame_bytes) {
    static const size_t dictionary_bytes[4] = {0, 1, 2, 4};
    static const size_t content_bytes[4] = {0, 2, 4, 8};
    if (frame_bytes < 5) {
        return frame_bytes;
    }
    unsigned descriptor = frame[4];
    bool single_segment = (descriptor & 0x20u) != 0;
    size_t at = 5 + dictionary_bytes[descriptor & 3u] + content_bytes[descriptor >> 6];
    at += single_segment ? (descriptor >> 6 == 0 ? 1 : 0) : 1;
    return at;
}

/* The one compressed block of a frame, or NULL. */
static const uint8_t *only_block(const uint8_t *frame, size_t frame_bytes, size_t *block_bytes) {
    size_t at = first_block(frame, frame_bytes);
    if (frame_bytes < BLOCK_HEADER_BYTES || at > frame_bytes - BLOCK_HEADER_BYTES) {
        return NULL;
    }
    uint32_t header =
        (uint32_t)frame[at] | (uint32_t)frame[at + 1] << 8 | (uint32_t)frame[at + 2] << 16;
    bool last = (header & 1u) != 0;
    *block_bytes = header >> 3;
    at += BLOCK_HEADER_BYTES;
    if (!last || (header >> 1 & 3u) != BLOCK_COMPRESSED || *block_bytes != frame_bytes - at) {
        return NULL;
    }
    return frame + at;
}

/* zstd_packer_block with one level. */
static enum status try_block(struct zstd_packer *p,
                             int level,
                             struct byte_buffer *out,
                             size_t *block_bytes,
                             const void *data,
                             size_t size_bytes,
                             struct error *err) {
    size_t frame_bytes = 0;
    TRY(make_frame(p, level, false, out, &frame_bytes, data, size_bytes, err));
    uint8_t *to = out->data + out->size_bytes;
    size_t size = 0;
    const uint8_t *block = only_block(to, frame_bytes, &size);
    if (block && size < size_bytes) {
        memmove(to, block, size);
        out->size_bytes += size;
        *block_bytes = size;
    }
    return STATUS_OK;
}

enum status zstd_packer_block(struct zstd_packer *p,
                              struct byte_buffer *out,
                              size_t *block_bytes,
                              const void *data,
                              size_t size_bytes,
                              struct error *err) {
    REQUIRE(p && out && block_bytes && data && size_bytes <= 128 * 1024);
    int level = p->level <= LEVEL_BLOCK_FAST_MAX ? LEVEL_BLOCK_FAST : p->level;
    *block_bytes = 0;
    TRY(try_block(p, level, out, block_bytes, data, size_bytes, err));
    if (*block_bytes == 0 && level > LEVEL_ONE_BLOCK) {
        TRY(try_block(p, LEVEL_ONE_BLOCK, out, block_bytes, data, size_bytes, err));
    }
    return STATUS_OK;
}

enum status zstd_unpacker_create(struct zstd_unpacker **out, struct error *err) {
    REQUIRE(out);
    *out = NULL;
    struct zstd_unpacker *u = calloc(1, sizeof(*u));
    if (!u || !(u->context = ZSTD_createDCtx())) {
        free(u);
        return error_set(err, STATUS_NOMEM, "out of memory for a decompressor");
    }
    *out = u;
    return STATUS_OK;
}

void zstd_unpacker_destroy(struct zstd_unpacker *u) {
    if (u) {
        ZSTD_freeDCtx(u->context);
        free(u);
    }
}

bool zstd_content_size(const void *frame, size_t frame_bytes, uint64_t *out) {
    unsigned long long size = ZSTD_getFrameContentSize(frame, frame_bytes);
    if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR) {
        return false;
    }
    *out = size;
    return true;
}

enum status zstd_unpack(struct zstd_unpacker *u,
                        void *out,
                        size_t size_bytes,
                        const void *frame,
                        size_t frame_bytes,
                        const char *name,
                        struct error *err) {
    REQUIRE(u && (out || size_bytes == 0) && frame);
    /* ZSTD_decompressDCtx would continue with the frames after the first. */
    size_t first = ZSTD_findFrameCompressedSize(frame, frame_bytes);
    FAIL_IF(ZSTD_isError(first) || first != frame_bytes, err, STATUS_CORRUPT, "%s: %s", name,
            ZSTD_isError(first) ? ZSTD_getErrorName(first) : "the zstd frame ends early");
    size_t got = ZSTD_decompressDCtx(u->context, out, size_bytes, frame, frame_bytes);
    FAIL_IF(ZSTD_isError(got) || got != size_bytes, err, STATUS_CORRUPT, "%s: %s", name,
            ZSTD_isError(got) ? ZSTD_getErrorName(got)
                              : "the zstd frame holds fewer bytes than its header states");
    return STATUS_OK;
}

size_t zstd_unpack_begin(struct zstd_unpacker *u,
                         void *out,
                         size_t size_bytes,
                         const void *frame,
                         size_t frame_bytes) {
    ZSTD_inBuffer in = {frame, frame_bytes, 0};
    ZSTD_outBuffer to = {out, size_bytes, 0};
    size_t left = 1;
    size_t before = 1;
    ZSTD_DCtx_reset(u->context, ZSTD_reset_session_only);
    while (left != 0 && !ZSTD_isError(left) && to.pos < to.size && before != in.pos + to.pos) {
        before = in.pos + to.pos;
        left = ZSTD_decompressStream(u->context, &to, &in);
    }
    return to.pos;
}
