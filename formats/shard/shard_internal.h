/*
 * shard_internal: the bytes of a shard that are neither image nor text: members, zstd framing,
 * the index. Shared by the writer, the readers and the dataset; see formats/SHARD_FORMAT.md.
 *
 * Threading : pure functions over the caller's storage; a parsed index is immutable.
 * Untrusted : what shard_index_*, shard_tail_* and tar_* read.
 */
#ifndef FORMATS_SHARD_SHARD_INTERNAL_H
#define FORMATS_SHARD_SHARD_INTERNAL_H

#include "formats/base/bytes.h"
#include "formats/base/file_io.h"
#include "formats/base/hash.h"
#include "formats/shard/shard.h"
#include "formats/shard/shard_reader.h"
#include "formats/shard/tar.h"
#include "formats/shard/zstd_codec_internal.h"

/* ---- texts ----------------------------------------------------------------------------------- */

/* The rule for the texts of a sample, used by writers to refuse them and by readers to report them.
 * JSON: 1 byte to SHARD_MAX_JSON_BYTES of UTF-8; it need not be valid JSON. Returns OK, LIMIT or
 * CORRUPT. */
enum status shard_check_json(const struct shard_text *json, struct error *err);

/* Captions: at most SHARD_MAX_CAPTIONS of SHARD_MAX_TEXT_BYTES together, each UTF-8 and perhaps
 * empty. Returns OK, LIMIT or CORRUPT. */
enum status
shard_check_captions(const struct shard_text *captions, size_t count, struct error *err);

/* ---- tar ------------------------------------------------------------------------------------- */

enum {
    SHARD_MAX_HEAD_BYTES = 8 << 20, /* of a sample: everything before its image */
};

/* The last member of a plain tar shard: index, zeros, trailer. WebDataset readers skip names of
 * this form. */
#define TAR_INDEX_NAME "__ccstream-index__"

enum {
    /* At the end of such a shard, before the two zero blocks. */
    TRAILER_BYTES = TAR_BLOCK_BYTES,
};

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
    FRAME_DESCRIPTOR_SHORT = 0x64,    /* single segment, 2-byte content size, checksum */
    FRAME_DESCRIPTOR_SINGLE = 0xA4,   /* the same with a 4-byte content size */
    FRAME_DESCRIPTOR_WINDOWED = 0x84, /* that with a window byte and no single segment */
    FRAME_SHORT_MIN_BYTES = 256,      /* what a 2-byte content size counts from */
    FRAME_SHORT_MAX_BYTES = FRAME_SHORT_MIN_BYTES + 0xFFFF,
    FRAME_WINDOW_128K = 0x38,
    FRAME_SINGLE_MAX_BYTES = 8 << 20, /* what every decoder must take without a window */
    FRAME_MAX_HEADER_BYTES = 10,
    BLOCK_RAW = 0,
    BLOCK_RLE = 1,
    BLOCK_ZSTD = 2,
    END_FRAME_BYTES = 15, /* the frame of TAR_END_BYTES zeros */
    SKIPPABLE_HEADER_BYTES = 8,
    SEEK_ENTRY_BYTES = 8, /* no check: frames have their own */
    SEEK_FOOTER_BYTES = 9,
    SEEK_DESCRIPTOR = 0, /* entries without checks */
};

#define SHARD_INDEX_FRAME_MAGIC UINT32_C(0x184D2A5C)
#define SEEK_FRAME_MAGIC        UINT32_C(0x184D2A5E)
#define SEEK_FOOTER_MAGIC       UINT32_C(0x8F92EAB1)

/* Writes a block header: size is what the block regenerates for RLE, what it holds otherwise. */
void block_header(uint8_t out[SHARD_BLOCK_HEADER_BYTES], bool last, int type, uint32_t size);

/* Writes magic and header of a frame; returns their size. Requires content_bytes >= 256. */
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
    uint64_t data_bytes; /* of the samples: everything before the end of the tar */
    uint64_t image_bytes;
    uint64_t first_id, last_id;
    uint32_t chunk_count;
    uint32_t largest_chunk_bytes;
    uint32_t largest_image_bytes;
    uint64_t body_hash; /* of what follows the header */
    uint64_t hash;      /* of the header, so of everything */
    const uint8_t *records;
    const uint8_t *checks; /* u32 of each record; NULL in container tar.zst */
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

/* Size of the shard file that this index belongs to. A foreign tar's is data_bytes. */
uint64_t shard_index_file_bytes(const struct shard_index *x);

/* The whole content against its hash. Returns OK or CORRUPT. */
enum status shard_index_check_body(const struct shard_index *x, struct error *err);

/* Checks the record by itself and against the header. Requires i < sample_count. Returns OK or
 * CORRUPT. */
enum status shard_index_record(const struct shard_index *x,
                               uint32_t i,
                               struct shard_record *out,
                               struct error *err);

/* Bytes of check that the container asks for with each record, beside its own. */
static inline size_t index_check_bytes(enum shard_container c) {
    return c == SHARD_CONTAINER_TAR_ZSTD ? 0 : 4; /* there each frame has its own */
}

/* Whether these are the bytes of record i as they are in the file: in containers that have no
 * frames with checks. */
bool shard_index_has_bytes(const struct shard_index *x,
                           uint32_t i,
                           const void *data,
                           size_t size_bytes);

void shard_index_put_record(uint8_t out[INDEX_RECORD_BYTES], const struct shard_record *r);
void shard_index_put_header(uint8_t out[INDEX_HEADER_BYTES], const struct shard_index *x);

/* ---- captions -------------------------------------------------------------------------------- */

/* One decompressed chunk of captions, replaced when a caption of another chunk is requested. */
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

/* ---- an index in the making ----------------------------------------------------------------- */

struct shard_frame;
struct pending_record;

/* Records and captions until all are there, because an index has them by id. */
struct index_builder {
    const char *name;               /* borrowed, for messages */
    struct pending_record *pending; /* (totals.sample_count) in the order of adding */
    size_t pending_capacity;
    struct byte_buffer texts, sizes; /* captions in the order of adding */
    struct zstd_packer *packer;
    uint32_t largest_image_bytes;
    struct shard_summary totals; /* counts and ids of what was added; the rest is not touched */
};

/* Returns OK or NOMEM; on failure there is nothing to free. */
enum status
index_builder_init(struct index_builder *b, const char *name, int level, struct error *err);
void index_builder_fini(struct index_builder *b); /* accepts an all-zero one */

/* Whether one more stays within the format's limits. */
bool index_builder_fits(const struct index_builder *b, const struct shard_frame *f);

/* Makes room for one more, so that adding it cannot fail. Returns OK or NOMEM. */
enum status
index_builder_reserve(struct index_builder *b, const struct shard_frame *f, struct error *err);

/* Takes the frame's captions, `record`, which says where the sample is in the file, and `check`,
 * the low half of XXH64 of its bytes there. Requires room. */
void index_builder_add(struct index_builder *b,
                       const struct shard_frame *f,
                       const struct shard_record *record,
                       uint32_t check);

/* The whole index into `out`, records by id and with `add_to_ids` on each; totals get the same.
 * Requires at least one record. Returns OK, EXISTS (an id twice), LIMIT or NOMEM. */
enum status index_builder_finish(struct index_builder *b,
                                 struct byte_buffer *out,
                                 enum shard_container container,
                                 uint64_t data_bytes,
                                 uint64_t add_to_ids,
                                 struct error *err);

/* ---- the end of a shard file ------------------------------------------------------------------
 */

/* What the end of a file says: which container, and where its index is. */
struct shard_tail {
    enum shard_container container;
    uint64_t index_offset;
    uint32_t index_bytes;
};

/* Reads the end of a file. Returns OK, IO or CORRUPT (also for foreign tars, which have no such
 * end). */
enum status shard_tail_find(const struct file_system *fs,
                            struct file *f,
                            const char *path,
                            uint64_t file_bytes,
                            struct shard_tail *out,
                            struct error *err);

/* The trailer of a plain tar shard. */
void tar_trailer(uint8_t out[TRAILER_BYTES],
                 uint64_t index_offset,
                 uint64_t index_bytes,
                 uint64_t file_bytes);

/* Size of the member that holds index and trailer. */
static inline uint64_t tar_index_member_bytes(uint64_t index_bytes) {
    return index_bytes + tar_padding(index_bytes) + TRAILER_BYTES;
}

/* ---- the reader's inside, which the check of a whole shard also needs ---- */

struct shard_reader {
    const struct file_system *fs;
    struct file *file;
    char path[PATH_MAX_BYTES];
    const char *beside; /* where a foreign tar's index is; NULL: beside it */
    uint64_t file_bytes;
    uint64_t index_offset;
    uint32_t index_bytes;
    uint8_t *index_data;
    struct shard_index index;
    struct caption_chunk chunk;
    struct byte_buffer frame;   /* the last zstd frame as it is in the file */
    struct byte_buffer content; /* the tar members of the last sample */
    char key[SHARD_MAX_KEY_BYTES + 1];
    struct shard_text *captions;
    size_t captions_capacity;
};

/* CORRUPT, with the sample's id and place. */
enum status shard_sample_bad(const struct shard_reader *r,
                             const struct shard_record *record,
                             const char *what,
                             struct error *err);

/* Room for so many in r->captions. Returns OK or NOMEM. */
enum status
shard_sample_reserve_captions(struct shard_reader *r, uint32_t count, struct error *err);

/* Fills the view of sample `index` from the members of a user's tar in r->content and the captions
 * of the index. Returns OK, CORRUPT or NOMEM. */
enum status shard_foreign_take(struct shard_reader *r,
                               uint32_t index,
                               struct sample_view *v,
                               struct error *err);

/* XXH64 of a whole file. `progress` as in struct shard_verify. */
enum status shard_file_hash(const struct file_system *fs,
                            struct file *f,
                            const char *path,
                            uint64_t *out,
                            bool (*progress)(void *cookie, uint64_t bytes),
                            void *cookie,
                            struct error *err);

#endif
