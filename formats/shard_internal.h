/*
 * shard_internal: the bytes of a shard that are neither image nor text: tar headers, zstd framing,
 * the index. Shared by the writer, the readers and the dataset; see formats/SHARD_FORMAT.md.
 *
 * Threading : pure functions over the caller's storage; a parsed index is immutable.
 * Untrusted : what shard_index_*, shard_tail_* and tar_* read.
 */
#ifndef FORMATS_SHARD_INTERNAL_H
#define FORMATS_SHARD_INTERNAL_H

#include "formats/base/bytes.h"
#include "formats/base/file_io.h"
#include "formats/base/hash.h"
#include "formats/shard.h"
#include "formats/zstd_codec_internal.h"

/* ---- tar ------------------------------------------------------------------------------------- */

enum {
    TAR_BLOCK_BYTES = 512,
    TAR_NAME_BYTES = 100,
    TAR_END_BYTES = 1024,           /* two zero blocks */
    SHARD_MAX_HEAD_BYTES = 8 << 20, /* of a sample: everything in front of its image */
};

/* Bytes of padding behind a member's body. */
static inline uint32_t tar_padding(uint64_t size_bytes) {
    return (uint32_t)((TAR_BLOCK_BYTES - size_bytes % TAR_BLOCK_BYTES) % TAR_BLOCK_BYTES);
}

/* A plain file's header; everything in it follows from name and size. Requires strlen(name) <
 * TAR_NAME_BYTES and size_bytes < 2^33. */
void tar_header(uint8_t out[TAR_BLOCK_BYTES], const char *name, uint64_t size_bytes);

/* Name of caption `k`, of the JSON (format and k ignored), of the image of a sample. */
enum tar_member { TAR_CAPTION, TAR_JSON, TAR_IMAGE };
void tar_member_name(char out[TAR_NAME_BYTES],
                     const char *key,
                     enum tar_member member,
                     uint32_t k,
                     enum image_format format);

/* ---- zstd framing ---------------------------------------------------------------------------- */

enum {
    ZSTD_FRAME_MAGIC = (int)0xFD2FB528u,
    FRAME_DESCRIPTOR_SINGLE = 0xA4,   /* single segment, 4-byte content size, checksum */
    FRAME_DESCRIPTOR_WINDOWED = 0x84, /* the same with a window byte */
    FRAME_WINDOW_128K = 0x38,
    FRAME_SINGLE_MAX_BYTES = 8 << 20, /* what every decoder must take without a window */
    FRAME_MAX_HEADER_BYTES = 10,
    FRAME_CHECK_BYTES = 4,
    BLOCK_RAW = 0,
    BLOCK_RLE = 1,
    BLOCK_ZSTD = 2,
    END_FRAME_BYTES = 17, /* the frame of TAR_END_BYTES zeros */
    SKIPPABLE_HEADER_BYTES = 8,
    SEEK_ENTRY_BYTES = 12,
    SEEK_FOOTER_BYTES = 9,
    SEEK_DESCRIPTOR_CHECKSUMS = 0x80,
};

#define SHARD_INDEX_FRAME_MAGIC UINT32_C(0x184D2A5C)
#define SEEK_FRAME_MAGIC        UINT32_C(0x184D2A5E)
#define SEEK_FOOTER_MAGIC       UINT32_C(0x8F92EAB1)

/* Writes a block header: size is what the block regenerates for RLE, what it holds otherwise. */
void block_header(uint8_t out[SHARD_BLOCK_HEADER_BYTES], bool last, int type, uint32_t size);

/* Writes magic and header of a frame; returns their size. */
size_t frame_header(uint8_t out[FRAME_MAX_HEADER_BYTES], uint32_t content_bytes);

/* Content size of a frame that begins as frame_header writes it; false for any other. */
bool frame_content_bytes(const uint8_t *frame, size_t frame_bytes, uint32_t *out);

/* The frame that ends the tar. */
void end_frame(uint8_t out[END_FRAME_BYTES]);

/* ---- index ----------------------------------------------------------------------------------- */

enum {
    INDEX_HEADER_BYTES = 128,
    INDEX_RECORD_BYTES = 64,
    INDEX_CHUNK_SAMPLES = 64, /* samples whose captions are compressed together */
    /* Content of a caption chunk: its texts and a u32 for each. */
    INDEX_MAX_CHUNK_BYTES = INDEX_CHUNK_SAMPLES * (SHARD_MAX_TEXT_BYTES + 4 * SHARD_MAX_CAPTIONS),
};

extern const char index_magic[8];

struct shard_index {
    const char *name;     /* borrowed, for messages */
    const uint8_t *bytes; /* borrowed, the whole of it */
    uint64_t size_bytes;
    enum shard_container container;
    uint32_t sample_count;
    uint32_t text_count;
    uint64_t data_bytes; /* of the sample frames */
    uint64_t image_bytes;
    uint64_t first_id, last_id;
    uint32_t chunk_count;
    uint32_t largest_chunk_bytes;
    uint32_t largest_image_bytes;
    uint64_t body_hash; /* of what follows the header */
    uint64_t hash;      /* of the header, so of everything */
    const uint8_t *records;
    const uint8_t *directory;
    const uint8_t *chunks;
    uint64_t chunks_bytes;
};

static inline uint32_t index_chunk_count(uint32_t sample_count) {
    return (sample_count + INDEX_CHUNK_SAMPLES - 1) / INDEX_CHUNK_SAMPLES;
}

/* Checks the header and the sizes; reads neither records nor captions. Returns OK, CORRUPT or
 * VERSION. */
enum status shard_index_parse(struct shard_index *out,
                              const char *name,
                              const void *bytes,
                              uint64_t size_bytes,
                              struct error *err);

/* Size of the shard file that this index belongs to. */
uint64_t shard_index_file_bytes(const struct shard_index *x);

/* The whole content against its hash. Returns OK or CORRUPT. */
enum status shard_index_check_body(const struct shard_index *x, struct error *err);

/* Checks the record by itself and against the header. Requires i < sample_count. Returns OK or
 * CORRUPT. */
enum status shard_index_record(const struct shard_index *x,
                               uint32_t i,
                               struct shard_record *out,
                               struct error *err);

/* The id at `i`, unchecked: for searching. */
static inline uint64_t shard_index_id(const struct shard_index *x, uint32_t i) {
    return load_u64(x->records + (size_t)i * INDEX_RECORD_BYTES);
}

/* Index of the first record whose id is not below sample_id; sample_count when there is none. */
uint32_t shard_index_lower_bound(const struct shard_index *x, uint64_t sample_id);

void shard_index_put_record(uint8_t out[INDEX_RECORD_BYTES], const struct shard_record *r);
void shard_index_put_header(uint8_t out[INDEX_HEADER_BYTES], const struct shard_index *x);

/* ---- captions -------------------------------------------------------------------------------- */

/* One decompressed chunk of captions: filled when a caption of another chunk is asked for. */
struct caption_chunk {
    struct zstd_unpacker *unpacker;
    struct hasher *hasher;
    uint8_t *data; /* (text_count) u32 ends, then the texts */
    size_t capacity_bytes;
    const struct shard_index *index; /* which chunk is in it; NULL: none */
    uint32_t number;
    uint32_t first_text, text_count;
};

/* Room for chunks of up to largest_chunk_bytes. Returns OK or NOMEM. */
enum status
caption_chunk_init(struct caption_chunk *c, uint32_t largest_chunk_bytes, struct error *err);
void caption_chunk_fini(struct caption_chunk *c);

/* Caption k of record i: checked against the record's hash. Requires k < r->text_count. Returns OK
 * or CORRUPT. */
enum status caption_chunk_get(struct caption_chunk *c,
                              const struct shard_index *x,
                              uint32_t i,
                              const struct shard_record *r,
                              uint32_t k,
                              struct shard_text *out,
                              struct error *err);

/* shard_caption_hash with the caller's hasher. */
uint64_t caption_hash_with(struct hasher *h, const struct shard_text *captions, size_t count);

/* ---- the end of a shard file ------------------------------------------------------------------
 */

/* Where the index stands, from the seek table's last bytes. Returns OK, IO or CORRUPT. */
enum status shard_tail_find(const struct file_system *fs,
                            struct file *f,
                            const char *path,
                            uint64_t file_bytes,
                            uint64_t *index_offset,
                            uint32_t *index_bytes,
                            struct error *err);

#endif
