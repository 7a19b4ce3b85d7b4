/*
 * The index: a header with its own hash, fixed records each with a check of its own, and the
 * captions in independent zstd frames of 64 samples. Nothing here looks at more bytes than the
 * question needs, so that a mapped index of any size opens at once.
 *
 *     header 128 | records 64 each | [checks u32 each] | chunk offsets u32 each, one more than
 * chunks | chunks
 */
#include <string.h>

#include <stdlib.h>

#include "formats/shard/shard_internal.h"

const char index_magic[8] = {'C', 'C', 'S', 'I', 'N', 'D', 'E', 'X'};

enum {
    RECORD_CHECKED_BYTES = 60,
    HEADER_HASHED_BYTES = 120,
    RESERVED_AT = 80,
    RESERVED_BYTES = 32
};

static void store_u16(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v & 0xFFu);
    p[1] = (uint8_t)(v >> 8 & 0xFFu);
}

static uint32_t load_u16(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

void shard_index_put_header(uint8_t out[INDEX_HEADER_BYTES], const struct shard_index *x) {
    memset(out, 0, INDEX_HEADER_BYTES);
    memcpy(out, index_magic, sizeof(index_magic));
    store_u32(out + 8, SHARD_VERSION);
    store_u16(out + 12, (uint32_t)x->container);
    store_u16(out + 14, INDEX_RECORD_BYTES);
    store_u64(out + 16, x->size_bytes);
    store_u32(out + 24, x->sample_count);
    store_u32(out + 28, x->text_count);
    store_u64(out + 32, x->data_bytes);
    store_u64(out + 40, x->image_bytes);
    store_u64(out + 48, x->first_id);
    store_u64(out + 56, x->last_id);
    store_u32(out + 64, INDEX_CHUNK_SAMPLES);
    store_u32(out + 68, x->chunk_count);
    store_u32(out + 72, x->largest_chunk_bytes);
    store_u32(out + 76, x->largest_image_bytes);
    store_u64(out + 112, x->body_hash);
    store_u64(out + 120, hash64(out, HEADER_HASHED_BYTES));
}

static enum status corrupt(const struct shard_index *x, struct error *err, const char *what) {
    return error_set(err, STATUS_CORRUPT, "%s: index: %s", x->name, what);
}

static enum status check_header(const struct shard_index *x, struct error *err) {
    static const uint8_t zeros[RESERVED_BYTES];
    RETURN_IF(memcmp(x->bytes + RESERVED_AT, zeros, sizeof(zeros)) != 0,
              corrupt(x, err, "reserved bytes are not zero"));
    RETURN_IF(load_u16(x->bytes + 14) != INDEX_RECORD_BYTES ||
                  load_u32(x->bytes + 64) != INDEX_CHUNK_SAMPLES,
              corrupt(x, err, "record or chunk size is not this version's"));
    RETURN_IF(load_u64(x->bytes + 16) != x->size_bytes,
              corrupt(x, err, "its size differs from the recorded one"));
    RETURN_IF(x->sample_count < 1 || x->sample_count > SHARD_MAX_SAMPLES ||
                  x->text_count > x->sample_count * (uint64_t)SHARD_MAX_CAPTIONS,
              corrupt(x, err, "impossible count of samples or captions"));
    RETURN_IF(x->first_id > x->last_id || x->last_id - x->first_id < x->sample_count - 1 ||
                  x->last_id > SHARD_MAX_ID,
              corrupt(x, err, "impossible range of ids"));
    RETURN_IF(x->chunk_count != index_chunk_count(x->sample_count) ||
                  x->largest_chunk_bytes > INDEX_MAX_CHUNK_BYTES || x->largest_image_bytes < 1 ||
                  x->largest_image_bytes > SHARD_MAX_IMAGE_BYTES,
              corrupt(x, err, "impossible chunks or image sizes"));
    RETURN_IF(x->data_bytes > (uint64_t)INT64_MAX / 2 || x->image_bytes > x->data_bytes,
              corrupt(x, err, "impossible size of the samples"));
    return STATUS_OK;
}

enum status shard_index_parse(struct shard_index *out,
                              const char *name,
                              const void *bytes,
                              uint64_t size_bytes,
                              struct error *err) {
    REQUIRE(out && name && (bytes || size_bytes == 0));
    struct shard_index x = {.name = name, .bytes = bytes, .size_bytes = size_bytes};
    memset(out, 0, sizeof(*out));
    RETURN_IF(size_bytes < INDEX_HEADER_BYTES ||
                  memcmp(bytes, index_magic, sizeof(index_magic)) != 0,
              corrupt(&x, err, "not a shard index"));
    uint32_t version = load_u32(x.bytes + 8);
    FAIL_IF(version != SHARD_VERSION, err, STATUS_VERSION,
            "%s: index: version %u, this program reads version %d", name, version, SHARD_VERSION);
    x.hash = load_u64(x.bytes + 120);
    RETURN_IF(x.hash != hash64(x.bytes, HEADER_HASHED_BYTES),
              corrupt(&x, err, "the header does not match its hash"));
    uint32_t container = load_u16(x.bytes + 12);
    FAIL_IF(container < SHARD_CONTAINER_TAR_ZSTD || container > SHARD_CONTAINER_TAR_FOREIGN, err,
            STATUS_VERSION, "%s: index: unknown container %u", name, container);
    x.container = (enum shard_container)container;
    x.sample_count = load_u32(x.bytes + 24);
    x.text_count = load_u32(x.bytes + 28);
    x.data_bytes = load_u64(x.bytes + 32);
    x.image_bytes = load_u64(x.bytes + 40);
    x.first_id = load_u64(x.bytes + 48);
    x.last_id = load_u64(x.bytes + 56);
    x.chunk_count = load_u32(x.bytes + 68);
    x.largest_chunk_bytes = load_u32(x.bytes + 72);
    x.largest_image_bytes = load_u32(x.bytes + 76);
    x.body_hash = load_u64(x.bytes + 112);
    TRY(check_header(&x, err));
    /* Counts are bounded by now, so nothing below can overflow. */
    uint64_t records = (uint64_t)x.sample_count * INDEX_RECORD_BYTES;
    uint64_t checks = (uint64_t)x.sample_count * index_check_bytes(x.container);
    uint64_t directory = ((uint64_t)x.chunk_count + 1) * 4;
    RETURN_IF(size_bytes - INDEX_HEADER_BYTES < records + checks + directory ||
                  size_bytes > UINT32_MAX,
              corrupt(&x, err, "it is too short for its samples, or too long"));
    x.records = x.bytes + INDEX_HEADER_BYTES;
    x.checks = checks > 0 ? x.records + records : NULL;
    x.directory = x.records + records + checks;
    x.chunks = x.directory + directory;
    x.chunks_bytes = size_bytes - INDEX_HEADER_BYTES - records - checks - directory;
    RETURN_IF(load_u32(x.directory) != 0 ||
                  load_u32(x.directory + 4 * (size_t)x.chunk_count) != x.chunks_bytes,
              corrupt(&x, err, "the caption chunks do not fill it"));
    *out = x;
    return STATUS_OK;
}

uint64_t shard_index_file_bytes(const struct shard_index *x) {
    uint64_t frames = (uint64_t)x->sample_count + 2; /* the end of the tar and the index */
    switch (x->container) {
    case SHARD_CONTAINER_TAR_ZSTD:
        return x->data_bytes + END_FRAME_BYTES + SKIPPABLE_HEADER_BYTES + x->size_bytes +
               SKIPPABLE_HEADER_BYTES + frames * SEEK_ENTRY_BYTES + SEEK_FOOTER_BYTES;
    case SHARD_CONTAINER_TAR:
        return x->data_bytes + TAR_BLOCK_BYTES + tar_index_member_bytes(x->size_bytes) +
               TAR_END_BYTES;
    case SHARD_CONTAINER_TAR_FOREIGN:
        break;
    }
    return x->data_bytes;
}

enum status shard_index_check_body(const struct shard_index *x, struct error *err) {
    RETURN_IF(hash64(x->records, (size_t)x->size_bytes - INDEX_HEADER_BYTES) != x->body_hash,
              corrupt(x, err, "records or captions do not match their hash"));
    return STATUS_OK;
}

/* ---- records ----------------------------------------------------------------------------------
 */

void shard_index_put_record(uint8_t out[INDEX_RECORD_BYTES], const struct shard_record *r) {
    store_u64(out, r->sample_id);
    store_u64(out + 8, r->frame_offset);
    store_u64(out + 16, r->image_hash);
    store_u64(out + 24, r->caption_hash);
    store_u32(out + 32, r->frame_bytes);
    store_u32(out + 36, (uint32_t)(r->image_offset - r->frame_offset));
    store_u32(out + 40, r->image_bytes);
    store_u32(out + 44, r->first_text);
    store_u32(out + 48, (uint32_t)r->label);
    store_u16(out + 52, r->text_count);
    store_u16(out + 54, r->width_px);
    store_u16(out + 56, r->height_px);
    out[58] = (uint8_t)r->format;
    out[59] = (uint8_t)r->flags;
    store_u32(out + RECORD_CHECKED_BYTES, (uint32_t)hash64(out, RECORD_CHECKED_BYTES));
}

static enum image_format format_of(uint8_t v) {
    return v <= IMAGE_FORMAT_GIF ? (enum image_format)v : IMAGE_FORMAT_UNKNOWN;
}

enum status shard_index_record(const struct shard_index *x,
                               uint32_t i,
                               struct shard_record *out,
                               struct error *err) {
    REQUIRE(x && out && i < x->sample_count);
    const uint8_t *p = x->records + (size_t)i * INDEX_RECORD_BYTES;
    uint32_t image_start = load_u32(p + 36);
    uint32_t label = load_u32(p + 48);
    *out = (struct shard_record){
        .sample_id = load_u64(p),
        .frame_offset = load_u64(p + 8),
        .image_hash = load_u64(p + 16),
        .caption_hash = load_u64(p + 24),
        .frame_bytes = load_u32(p + 32),
        .image_bytes = load_u32(p + 40),
        .first_text = load_u32(p + 44),
        .label = label <= INT32_MAX ? (int32_t)label : SHARD_NO_LABEL,
        .text_count = load_u16(p + 52),
        .width_px = load_u16(p + 54),
        .height_px = load_u16(p + 56),
        .format = format_of(p[58]),
        .flags = p[59],
    };
    out->image_offset = out->frame_offset + image_start;
    const char *wrong = NULL;
    if (load_u32(p + RECORD_CHECKED_BYTES) != (uint32_t)hash64(p, RECORD_CHECKED_BYTES)) {
        wrong = "does not match its checksum";
    } else if (out->sample_id < x->first_id || out->sample_id > x->last_id) {
        wrong = "has an id outside the shard's range";
    } else if (out->frame_offset > x->data_bytes ||
               out->frame_bytes > x->data_bytes - out->frame_offset) {
        wrong = "has its frame outside the shard";
    } else if (out->image_bytes < 1 || out->image_bytes > x->largest_image_bytes ||
               image_start > out->frame_bytes ||
               shard_image_span_bytes(x->container, out->image_bytes) >
                   out->frame_bytes - image_start) {
        wrong = "has its image outside its frame";
    } else if (out->text_count > SHARD_MAX_CAPTIONS || out->first_text > x->text_count ||
               out->text_count > x->text_count - out->first_text) {
        wrong = "has more captions than there are";
    } else if (p[58] > IMAGE_FORMAT_GIF || p[59] > SHARD_FLAGS_ALL ||
               (label > INT32_MAX && label != UINT32_MAX)) {
        wrong = "has an unknown image format, flag or label";
    }
    FAIL_IF(wrong, err, STATUS_CORRUPT, "%s: index record %u (id %llu) %s", x->name, i,
            (unsigned long long)out->sample_id, wrong);
    return STATUS_OK;
}

bool shard_index_has_bytes(const struct shard_index *x,
                           uint32_t i,
                           const void *data,
                           size_t size_bytes) {
    return load_u32(x->checks + 4 * (size_t)i) == (uint32_t)hash64(data, size_bytes);
}

/* ---- captions ---------------------------------------------------------------------------------
 */

enum status
caption_chunk_init(struct caption_chunk *c, uint32_t largest_chunk_bytes, struct error *err) {
    memset(c, 0, sizeof(*c));
    enum status s = zstd_unpacker_create(&c->unpacker, err);
    THEN(s, hasher_create(&c->hasher, err));
    if (s == STATUS_OK) {
        c->capacity_bytes = largest_chunk_bytes;
        c->data = malloc(largest_chunk_bytes > 0 ? largest_chunk_bytes : 1);
        if (!c->data) {
            s = error_set(err, STATUS_NOMEM, "out of memory for %u bytes of captions",
                          largest_chunk_bytes);
        }
    }
    if (s != STATUS_OK) {
        caption_chunk_fini(c);
    }
    return s;
}

void caption_chunk_fini(struct caption_chunk *c) {
    zstd_unpacker_destroy(c->unpacker);
    hasher_destroy(c->hasher);
    free(c->data);
    memset(c, 0, sizeof(*c));
}

/* Turns the sizes at the chunk's front into ends, so that any caption is found at once. */
static enum status
sizes_to_ends(struct caption_chunk *c, uint64_t size_bytes, const char *name, struct error *err) {
    uint64_t end = 0;
    uint64_t room = size_bytes - 4 * (uint64_t)c->text_count;
    for (uint32_t k = 0; k < c->text_count; k++) {
        end += load_u32(c->data + 4 * (size_t)k);
        if (end > room) {
            break;
        }
        store_u32(c->data + 4 * (size_t)k, (uint32_t)end);
    }
    FAIL_IF(end != room, err, STATUS_CORRUPT, "%s: the captions do not fill their chunk", name);
    return STATUS_OK;
}

static enum status load_chunk(struct caption_chunk *c,
                              const struct shard_index *x,
                              uint32_t number,
                              struct error *err) {
    struct shard_record first;
    struct shard_record next = {.first_text = x->text_count};
    uint32_t next_sample = (number + 1) * INDEX_CHUNK_SAMPLES;
    c->index = NULL;
    TRY(shard_index_record(x, number * INDEX_CHUNK_SAMPLES, &first, err));
    if (next_sample < x->sample_count) {
        TRY(shard_index_record(x, next_sample, &next, err));
    }
    const uint8_t *entry = x->directory + 4 * (size_t)number;
    uint32_t begin = load_u32(entry);
    uint32_t end = load_u32(entry + 4);
    uint64_t size = 0;
    FAIL_IF(begin > end || end > x->chunks_bytes || first.first_text > next.first_text ||
                !zstd_content_size(x->chunks + begin, end - begin, &size) ||
                size > c->capacity_bytes || size > x->largest_chunk_bytes ||
                (next.first_text - first.first_text) > size / 4,
            err, STATUS_CORRUPT, "%s: index: caption chunk %u is damaged", x->name, number);
    TRY(zstd_unpack(c->unpacker, c->data, (size_t)size, x->chunks + begin, end - begin, x->name,
                    err));
    c->number = number;
    c->first_text = first.first_text;
    c->text_count = next.first_text - first.first_text;
    TRY(sizes_to_ends(c, size, x->name, err));
    c->index = x;
    return STATUS_OK;
}

/* Caption `k` of the chunk. */
static struct shard_text chunk_text(const struct caption_chunk *c, uint32_t k) {
    const uint8_t *texts = c->data + 4 * (size_t)c->text_count;
    uint32_t begin = k == 0 ? 0 : load_u32(c->data + 4 * (size_t)(k - 1));
    uint32_t end = load_u32(c->data + 4 * (size_t)k);
    return (struct shard_text){(const char *)texts + begin, end - begin};
}

enum status caption_chunk_get(struct caption_chunk *c,
                              const struct shard_index *x,
                              uint32_t i,
                              const struct shard_record *r,
                              uint32_t k,
                              struct shard_text *out,
                              struct error *err) {
    REQUIRE(c && x && r && out && i < x->sample_count && k < r->text_count);
    uint32_t number = i / INDEX_CHUNK_SAMPLES;
    *out = (struct shard_text){NULL, 0};
    if (c->index != x || c->number != number) {
        TRY(load_chunk(c, x, number, err));
    }
    FAIL_IF(r->first_text < c->first_text || r->first_text - c->first_text > c->text_count ||
                r->text_count > c->text_count - (r->first_text - c->first_text),
            err, STATUS_CORRUPT,
            "%s: index: the captions of record %u are not in "
            "their chunk",
            x->name, i);
    uint32_t from = r->first_text - c->first_text;
    hasher_reset(c->hasher);
    for (uint32_t j = 0; j < r->text_count; j++) {
        struct shard_text text = chunk_text(c, from + j);
        uint8_t size[4];
        store_u32(size, (uint32_t)text.size_bytes);
        hasher_update(c->hasher, size, sizeof(size));
        hasher_update(c->hasher, text.data, text.size_bytes);
    }
    FAIL_IF(hasher_value(c->hasher) != r->caption_hash, err, STATUS_CORRUPT,
            "%s: the captions of sample %llu do not match their hash", x->name,
            (unsigned long long)r->sample_id);
    *out = chunk_text(c, from + k);
    return STATUS_OK;
}
