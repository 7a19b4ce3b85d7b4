/*
 * ccstream.h: the C library libccstream: packed image-text datasets, their loader and
 * writer, tokenizers, and global contrastive losses with their state.
 *
 *     struct ccs_error err;
 *     struct ccs_loader_options opt;
 *     struct ccs_loader *l = NULL;
 *     const struct ccs_batch *b = NULL;
 *     ccs_loader_options_init(&opt, sizeof opt);
 *     opt.batch_size = 256;
 *     if (ccs_loader_open(&l, "cc3m", &opt, &err) != CCS_OK) {
 *         puts(err.text);
 *     }
 *     while (ccs_loader_next(l, &b, 60000, &err) == CCS_OK) {
 *         use(b->images, b->tokens, b->ids);
 *         ccs_batch_release(b);
 *     }
 *     ccs_loader_close(l);
 *
 * Errors    : a function that can fail returns an int32_t, one of enum ccs_status: 0 is success, a
 *             positive value is an outcome that the function's comment lists, and a negative value
 *             is a failure. After a failure *err holds one sentence: what is wrong (with file, row
 *             or byte) and what to do; returned pointers are NULL, and other results are unchanged.
 *             err may be NULL. Besides the statuses in its comment, every such function may return
 *             INVALID (a wrong argument) and NOMEM.
 * Threading : one thread at a time may use a handle, unless its type or the function allows more;
 *             different threads may use different handles at once. No function prints, exits, or
 *             installs signal handlers.
 * Fork      : a child process may use every handle except loaders, their batches, writers and
 *             remote files, which belong to the parent: in the child, their functions return FORKED
 *             or, if they cannot fail, do nothing. A child reads remote datasets over its own
 *             connections.
 * Ownership : X_open returns a handle; X_close frees it and accepts NULL. Strings and options
 *             passed in are copied. Returned pointers are borrowed: they belong to the library and
 *             stay valid as long as the comment says.
 * Growth    : most structs begin with struct_size, which the caller, or the struct's _init
 *             function, sets to sizeof the struct. Later versions only append fields. They accept
 *             the shorter structs of earlier versions, and fill only the fields that the caller's
 *             struct has. Structs without struct_size, and the numbers of enums, never change.
 * Texts     : UTF-8. Paths and names end with a NUL; other texts have a size. `(count)` or `(B, T)`
 *             in a comment is the shape of an array: dense and row-major.
 */
#ifndef CCSTREAM_H
#define CCSTREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CCS_API __attribute__((visibility("default")))
#else
#define CCS_API
#endif

/* The version of the loaded library, "0.1.0". */
CCS_API const char *ccs_version(void);

/* ---- status ------------------------------------------------------------------------------- */

enum ccs_status {
    CCS_END = 1,                 /* no more items */
    CCS_OK = 0,                  /* success */
    CCS_ERROR_INVALID = -1,      /* the caller broke the function's contract */
    CCS_ERROR_NOMEM = -2,        /* out of memory */
    CCS_ERROR_IO = -3,           /* the operating system reported an I/O error */
    CCS_ERROR_CORRUPT = -4,      /* stored bytes contradict the format */
    CCS_ERROR_VERSION = -5,      /* format version not supported */
    CCS_ERROR_LIMIT = -6,        /* a value exceeds a documented limit */
    CCS_ERROR_UNSUPPORTED = -8,  /* not available in this build or on this machine */
    CCS_ERROR_NOTFOUND = -9,     /* no such file or entry */
    CCS_ERROR_EXISTS = -10,      /* the target exists already */
    CCS_ERROR_MISMATCH = -11,    /* two things that must belong together do not */
    CCS_ERROR_USAGE = -12,       /* an option is wrong */
    CCS_ERROR_INTERRUPTED = -13, /* stopped on request */
    CCS_ERROR_TIMEOUT = -14,     /* a bounded wait ran out; the call may be repeated */
    CCS_ERROR_FORKED = -15       /* the handle belongs to the parent process */
};

enum { CCS_ERROR_TEXT_BYTES = 504 };

struct ccs_error {
    int32_t status; /* the status that was returned */
    uint32_t reserved;
    char text[CCS_ERROR_TEXT_BYTES]; /* ends with a NUL; empty after success */
};

/* One sentence that describes a status; never NULL or freed. */
CCS_API const char *ccs_status_text(int32_t status);

/* A text of known size, not NUL-terminated; data may be NULL when size is 0. */
struct ccs_text {
    const char *data;
    size_t size;
};

/* ---- remote datasets ---------------------------------------------------------------------- */

/* The path of a dataset that is only read may be a location: https://HOST/PATH, s3://BUCKET/PREFIX
 * or hf://datasets/OWNER/NAME. libcurl (7.85 or newer) is loaded when the first location is opened.
 * S3 keys come from the environment or the configuration files of the AWS tools. Images are checked
 * against their hashes, a shard replaced on the server is an error, and transient failures are
 * retried. */
struct ccs_remote_options {
    uint64_t struct_size;
    const char *endpoint; /* URL of the S3 server; NULL: AWS_ENDPOINT_URL_S3, else the AWS
                             profile's, else Amazon */
    const char *cache;    /* local cache folder (8 MiB chunks, shared by all processes that use it);
                             NULL: no cache */
    uint64_t cache_bytes; /* size limit of the cache, at least 256 MiB; 0: 64 GiB */
    uint32_t instance_metadata; /* 1: S3 keys may come from the instance metadata service */
    uint32_t allow_private;     /* 1: host names and redirects may lead to private IP addresses */
};

/* Sets the options of the whole process. Call it at most once, before the first remote dataset is
 * opened; without a call all options are 0 and NULL. Any thread may call it. Returns CCS_OK, EXISTS
 * (a remote dataset was opened, or options were set before), USAGE (cache_bytes) or IO (the cache
 * folder). */
CCS_API int32_t ccs_remote_configure(const struct ccs_remote_options *opt, struct ccs_error *err);

/* One remote file, read sequentially from its first byte. A background thread reads ahead in chunks
 * of 8 MiB. */
struct ccs_remote_file; /* opaque */

/* `location` names a file. Returns CCS_OK, USAGE (not a location, or one with a query or user name)
 * or UNSUPPORTED (no libcurl). Errors of the server, such as a missing file, are returned by the
 * first read. */
CCS_API int32_t ccs_remote_file_open(struct ccs_remote_file **out,
                                     const char *location,
                                     struct ccs_error *err);

/* Reads up to `size` bytes, size >= 1, to `buffer` and waits at most 100 ms for the first. *got is
 * the number of bytes read, 1 to size. Returns CCS_OK, CCS_END (end of file, *got is 0), TIMEOUT
 * (nothing arrived yet; call again), NOTFOUND, IO, CORRUPT (the file was replaced on the server) or
 * FORKED. */
CCS_API int32_t ccs_remote_file_read(struct ccs_remote_file *f,
                                     void *buffer,
                                     size_t size,
                                     size_t *got,
                                     struct ccs_error *err);
CCS_API void ccs_remote_file_close(struct ccs_remote_file *f);

/* ---- dataset ------------------------------------------------------------------------------ */

/* A packed dataset, open for reading: a directory written by ccpack or ccs_writer, or a location.
 * Samples are found by position, 0 to samples - 1 in the order of their ids, or by id. The id of a
 * sample never changes; its position changes when samples are added or removed. Any number of
 * threads may use one dataset at once, except for ccs_dataset_column, and so may a child
 * process. */
struct ccs_dataset;

/* Returns CCS_OK, NOTFOUND, IO, CORRUPT, EXISTS (an id occurs in two shards), VERSION, LIMIT, or
 * for a location USAGE or UNSUPPORTED (no libcurl). */
CCS_API int32_t ccs_dataset_open(struct ccs_dataset **out, const char *path, struct ccs_error *err);

/* Close the dataset's readers first. Loaders, columns and tokenizers do not depend on it. */
CCS_API void ccs_dataset_close(struct ccs_dataset *d);

struct ccs_dataset_info {
    uint64_t struct_size; /* set by the caller */
    uint64_t samples;     /* not counting removed ones */
    uint64_t captions;    /* of all samples */
    uint64_t id_space;    /* larger than every sample id */
    uint64_t image_bytes; /* total size of the compressed images */
    uint64_t fingerprint; /* hash of ids, images and captions, independent of paths and shards */
    uint32_t shards;
    uint32_t classes;   /* named classes; label i is class i */
    uint32_t tokenizer; /* 1: the directory has one */
    uint32_t reserved;  /* 0 */
};

CCS_API int32_t ccs_dataset_get_info(const struct ccs_dataset *d,
                                     struct ccs_dataset_info *info,
                                     struct ccs_error *err);

/* The name of class `label`, borrowed until close; NULL if it has none. */
CCS_API const char *ccs_dataset_class(const struct ccs_dataset *d, uint32_t label);

enum ccs_image_format {
    CCS_IMAGE_JPEG = 1,
    CCS_IMAGE_PNG = 2,
    CCS_IMAGE_WEBP = 3,
    CCS_IMAGE_GIF = 4
};

/* The index entry of one sample. The sample itself is not read for it. */
struct ccs_record {
    uint64_t struct_size; /* set by the caller */
    uint64_t id;
    uint64_t position;
    uint64_t image_hash;   /* XXH64 of the stored image */
    uint64_t caption_hash; /* XXH64 of its captions */
    uint32_t image_bytes;
    uint32_t captions;
    uint32_t width_px, height_px; /* after the EXIF rotation; 0: unknown */
    uint32_t shard;
    int32_t label;      /* -1: none */
    int32_t format;     /* enum ccs_image_format */
    uint32_t reencoded; /* 1: encoded by the packer; 0: the source's bytes, unchanged */
};

/* Fills *out with the record of the sample at a position, or of the sample with an id (binary
 * search). Return CCS_OK, NOTFOUND (no such position; no sample with this id) or CORRUPT. */
CCS_API int32_t ccs_dataset_record(const struct ccs_dataset *d,
                                   uint64_t position,
                                   struct ccs_record *out,
                                   struct ccs_error *err);
CCS_API int32_t ccs_dataset_find(const struct ccs_dataset *d,
                                 uint64_t id,
                                 struct ccs_record *out,
                                 struct ccs_error *err);

/* Fills out (count) with the ids at positions first, first + 1, ... Returns CCS_OK, NOTFOUND (some
 * positions are beyond the end; out is unchanged) or CORRUPT. */
CCS_API int32_t ccs_dataset_ids(const struct ccs_dataset *d,
                                uint64_t *out,
                                uint64_t first,
                                uint64_t count,
                                struct ccs_error *err);

/* ---- columns ----------------------------------------------------------------------------------
 * Values attached to samples by id after packing: captions, vectors, numbers or texts. Each column
 * is a file in DATASET/columns. */

/* The name of column `index`, from 0, in alphabetical order; NULL after the last. Index 0 reads the
 * list again: from the folder, or for a location from columns/names.txt. A name is borrowed until
 * the next call with index 0, or close. One thread at a time. */
CCS_API const char *ccs_dataset_column(struct ccs_dataset *d, uint32_t index);

struct ccs_attached_info {
    uint64_t struct_size; /* set by the caller */
    uint64_t rows; /* samples that have a value. Set by the library, as the next two; ignored by the
                      writer */
    uint64_t hash; /* XXH64 of ids and values */
    uint64_t fingerprint; /* the dataset's, when the column was written */
    const char *kind;   /* numbers: "f32", "f64", "f16", "bf16", "i8", "i32", "i64", "u8", "u32" or
                           "u64"; texts: "captions", "text" or "json" */
    const char *source; /* how it was made, as a JSON object; NULL when writing: {} */
    uint32_t values;    /* numbers per row; 0: texts */
    uint32_t vectors;   /* vectors of equal length that a row consists of, >= 1; 0: texts */
};

/* A column, open for reading. It stays readable if the column is replaced or deleted. Returns
 * CCS_OK, NOTFOUND, MISMATCH (attached to another dataset), USAGE (not a valid column name),
 * CORRUPT, VERSION, IO or LIMIT. */
struct ccs_attached;
CCS_API int32_t ccs_attached_open(struct ccs_attached **out,
                                  const struct ccs_dataset *d,
                                  const char *name,
                                  struct ccs_error *err);
CCS_API void ccs_attached_close(struct ccs_attached *c);
CCS_API int32_t ccs_attached_get_info(const struct ccs_attached *c,
                                      struct ccs_attached_info *info,
                                      struct ccs_error *err);

/* Fills out (count) with the sample ids of rows first, first + 1, ..., which ascend. Returns CCS_OK
 * or NOTFOUND (beyond the last row). */
CCS_API int32_t ccs_attached_ids(const struct ccs_attached *c,
                                 uint64_t *out,
                                 uint64_t first,
                                 uint64_t count,
                                 struct ccs_error *err);

/* The row of the sample with this id, borrowed until the next call: `values` numbers of the
 * column's kind, or the bytes of a text or JSON value. A row of captions is: u16 count n, plus
 * 0x8000 if n f32 weights follow, plus 0x4000 if then n u8 sources follow; then n texts, each
 * followed by a zero byte. All little-endian. Returns CCS_OK, NOTFOUND (the sample has no row) or
 * CORRUPT. */
CCS_API int32_t ccs_attached_get(struct ccs_attached *c,
                                 uint64_t id,
                                 struct ccs_text *row,
                                 struct ccs_error *err);

/* Writes a column of a local dataset and holds the lock of the dataset's directory from open to
 * close. Of `info` it reads kind, source, values and vectors. Returns CCS_OK, EXISTS (a column of
 * this name exists and `replace` is false; another process is writing to the dataset; a packing run
 * is unfinished), NOTFOUND (not a dataset), USAGE, IO, CORRUPT, VERSION or LIMIT. */
struct ccs_attached_writer;
CCS_API int32_t ccs_attached_writer_open(struct ccs_attached_writer **out,
                                         const char *dataset,
                                         const char *name,
                                         const struct ccs_attached_info *info,
                                         bool replace,
                                         struct ccs_error *err);

/* Appends the rows of `count` samples, one after another in `rows`, in the form of
 * ccs_attached_get. ids (count) ascend and are larger than those of earlier calls. sizes (count):
 * bytes of each text; NULL for numbers. The file's bytes depend on how rows are grouped into calls.
 * Returns CCS_OK, USAGE (ids do not ascend, a row is not valid for its kind, or finish was called),
 * NOTFOUND (no sample has this id), IO or LIMIT. */
CCS_API int32_t ccs_attached_writer_add(struct ccs_attached_writer *w,
                                        const uint64_t *ids,
                                        uint64_t count,
                                        const void *rows,
                                        const uint64_t *sizes,
                                        struct ccs_error *err);

/* Publishes the column atomically; until then the dataset is unchanged, and close without finish
 * discards the rows. Returns CCS_OK, USAGE (called twice), IO or LIMIT (too many columns). */
CCS_API int32_t ccs_attached_writer_finish(struct ccs_attached_writer *w, struct ccs_error *err);
CCS_API void ccs_attached_writer_close(struct ccs_attached_writer *w);

/* Deletes a column of a local dataset. Returns CCS_OK, NOTFOUND, EXISTS (another process is writing
 * to the dataset, or a packing run is unfinished), USAGE or IO. */
CCS_API int32_t ccs_attached_remove(const char *dataset, const char *name, struct ccs_error *err);

/* Reads samples of one dataset, which must stay open as long as the reader. One thread at a time:
 * open a reader per thread. A child process may use it too. */
struct ccs_reader;

CCS_API int32_t ccs_reader_open(struct ccs_reader **out,
                                const struct ccs_dataset *d,
                                struct ccs_error *err);
CCS_API void ccs_reader_close(struct ccs_reader *r);

struct ccs_sample {
    uint64_t struct_size; /* set by the library */
    const struct ccs_record *record;
    const char *key;      /* its file name in the shard, without extension; ends with a NUL */
    const uint8_t *image; /* (record->image_bytes) compressed bytes, as stored */
    const struct ccs_text *captions; /* (record->captions) */
    struct ccs_text metadata;        /* JSON; size 0: none */
};

/* Reads the sample at a position and checks it against its hashes. *out and everything it points to
 * are borrowed until the next call on this reader. Returns CCS_OK, NOTFOUND (no such position; a
 * shard is missing), IO, CORRUPT, VERSION or LIMIT. */
CCS_API int32_t ccs_reader_get(struct ccs_reader *r,
                               uint64_t position,
                               const struct ccs_sample **out,
                               struct ccs_error *err);

/* Reads only the captions of a sample, which is faster: *out (*count), borrowed likewise. Returns
 * CCS_OK, NOTFOUND (no such position) or CORRUPT. */
CCS_API int32_t ccs_reader_captions(struct ccs_reader *r,
                                    uint64_t position,
                                    const struct ccs_text **out,
                                    uint32_t *count,
                                    struct ccs_error *err);

/* ---- loader ------------------------------------------------------------------------------- */

/* Delivers batches of one or several datasets in an order computed from the seed: the same seed
 * gives the same samples, crops and captions for any number of threads, ranks and restarts.
 * Background threads read, decode and augment the next batches. One thread at a time calls next,
 * seek and close; get_stats and ccs_batch_release may be called from any thread. */
struct ccs_loader;

/* Allocates the memory of batches, for example with cudaHostAlloc. Any thread may call both
 * functions; release is called until the last batch is released, even after ccs_loader_close. All
 * NULL: ordinary memory. */
struct ccs_allocator {
    void *(*alloc)(void *cookie, size_t size); /* 64-byte aligned; NULL on failure */
    void (*release)(void *cookie, void *data);
    void *cookie;
};

struct ccs_loader_options {
    uint64_t struct_size; /* set by ccs_loader_options_init, which sets all defaults */
    uint32_t batch_size;  /* global batch size (rows of all ranks), [1, 1048576]; default 512 */
    uint32_t rank, world; /* this process delivers part `rank` of `world` of each batch; defaults 0
                             and 1, world at most 65536 */
    uint32_t image_size_px; /* S, the side of the delivered square images, [8, 2048]; default 256 */
    /* Training: "crop" (default), "paper", "simclr", "clip". Evaluation, without randomness:
     * "eval-squash", "eval-crop", "eval-clip", "eval-longest". */
    const char *augment;
    uint32_t views; /* augmented views per image, at most 2; 0: images are not decoded, and are read
                       only if `encoded` is set; default 1 */
    uint32_t positives; /* consecutive rows of a batch that show one sample, [1, 8], a divisor of
                           batch_size; above 1 requires one view; default 1 */
    const char *order; /* "global": full shuffle; "sequential"; "block:SIZE" or "block:SIZE:WINDOW":
                          blocks of SIZE samples, shuffled within WINDOW blocks; default "global" */
    const char *filter; /* as --filter of ccstream-train: "min-side=64,captions=1..5"; default NULL:
                           all samples */
    bool captions;      /* deliver a caption per row; default true */
    bool drop_last;     /* omit the last batch of an epoch if it is not full; default true */
    bool clean_captions;  /* apply the paper's caption cleaning before the tokenizer; no effect on
                             CLIP's tokenizer, which has its own; default true */
    bool verify_images;   /* compare every image with its stored hash; default true */
    uint32_t max_tokens;  /* T, the length of a row of tokens, [2, 4096]; default 30 */
    uint64_t seed;        /* random seed of order, crops and captions; default 0 */
    uint64_t epochs;      /* CCS_END after this many; 0: never; default 0 */
    uint32_t threads;     /* decoding threads, at most 1024; 0: one per CPU; default 0 */
    uint32_t prefetch;    /* batches prepared in advance, [1, 64]; default 3 */
    uint64_t max_corrupt; /* different damaged samples that are replaced by others before the loader
                             fails with CORRUPT, at most 4096; default 1000 */
    const void *tokenizer; /* (tokenizer_size) bytes of a tokenizer model, as of ccs_tokenizer_open;
                              read by open only. Default NULL: the tokenizer of the first dataset;
                              no tokens if it has none */
    size_t tokenizer_size;
    struct ccs_allocator allocator;
    void (*log)(void *cookie, const char *line); /* receives log lines, from any thread, until close
                                                    returns; default NULL: silent */
    void *log_cookie;
    const char *caption_columns; /* columns that captions come from, as --caption-columns of
                                    ccstream-train: "raw:0.3,long:0.7" samples among them by weight;
                                    "raw+long" with positives 2 uses one per row. "raw" is the
                                    sample's own captions; default NULL: only those */
    int32_t caption; /* index of the caption to deliver, from 0, modulo the sample's number of
                        captions; requires positives 1; default -1: a random one */
    bool tokens;     /* deliver captions as token ids; default true */
    bool texts;      /* also deliver captions as texts; default false */
    bool encoded;    /* also deliver the compressed images as stored, or with views 0 only those;
                        default false */
    bool planar; /* channels first: images are (count, 3, S, S) instead of (count, S, S, 3); default
                    false */
    bool normalized; /* values are (x / 255 - mean) / deviation, for the float types; default false:
                        floats are x / 255, uint8 is x */
    const char *pixels; /* element type: "uint8" (default), "float16", "bfloat16" or "float32" */
    float mean[3], deviation[3]; /* per channel (R, G, B), read if `normalized`; deviation is the
                                    standard deviation, above 0 */
    double crop_min, crop_max; /* fraction of the area that a random crop covers, 0 < min <= max <=
                                  1; default 0, 0: as `augment` defines */
    const char
        *interpolation;  /* "bilinear", "bicubic", "lanczos"; default NULL: that of `augment` */
    const uint64_t *ids; /* (id_count) ids as in ccs_batch, ascending. An epoch consists of these
                            samples, if they also pass the filter. A repeated id repeats the sample,
                            with the same crop and caption. A state (ccs_loader_get_state) is valid
                            only for the same list. Read by open only; default NULL: all samples */
    uint64_t id_count;
    const char *tokenizer_path; /* as of ccs_tokenizer_load, instead of `tokenizer`; default NULL */
};

/* Sets struct_size, and every field of a struct of this size to its default. */
CCS_API void ccs_loader_options_init(struct ccs_loader_options *opt, uint64_t struct_size);

/* Opens one dataset and starts to read. opt NULL: all defaults. Returns CCS_OK, USAGE (a wrong
 * option, or fewer samples than batch_size with drop_last), NOTFOUND (no sample has an id of
 * `ids`), MISMATCH (the dataset's tokenizer file is not the one recorded in dataset.json),
 * UNSUPPORTED, or what ccs_dataset_open returns. */
CCS_API int32_t ccs_loader_open(struct ccs_loader **out,
                                const char *dataset,
                                const struct ccs_loader_options *opt,
                                struct ccs_error *err);

enum { CCS_MAX_SOURCES = 16 };

/* Opens `count` datasets, 1 to CCS_MAX_SOURCES, each "DIR" or "DIR:WEIGHT" as --data of
 * ccstream-train. Ids in batches are a dataset's own ids plus the id spaces of the datasets before
 * it. Returns also USAGE if only some datasets have weights. */
CCS_API int32_t ccs_loader_open_mix(struct ccs_loader **out,
                                    const char *const *datasets,
                                    uint32_t count,
                                    const struct ccs_loader_options *opt,
                                    struct ccs_error *err);

/* Stops the threads, usually at once and always within a minute. Batches that are still held stay
 * valid until they are released. */
CCS_API void ccs_loader_close(struct ccs_loader *l);

struct ccs_loader_info {
    uint64_t struct_size; /* set by the caller */
    uint64_t samples;     /* per epoch */
    uint64_t captions;    /* in all datasets */
    uint64_t id_space;    /* greater than every sample id */
    uint64_t fingerprint; /* the dataset's; for several datasets a hash of their fingerprints and id
                             offsets */
    uint64_t steps;       /* batches per epoch */
    uint32_t max_count;   /* largest number of rows of a batch on this rank */
    uint32_t vocabulary;  /* token ids are below it; 0: no tokenizer */
    uint32_t threads;     /* that decode, as chosen */
    uint32_t sources;     /* number of datasets */
    const char *engine;   /* "io_uring" or "pread"; never freed */
};

CCS_API int32_t ccs_loader_get_info(const struct ccs_loader *l,
                                    struct ccs_loader_info *info,
                                    struct ccs_error *err);

enum ccs_pixels {
    CCS_PIXELS_UINT8 = 0,
    CCS_PIXELS_FLOAT16 = 1,
    CCS_PIXELS_BFLOAT16 = 2,
    CCS_PIXELS_FLOAT32 = 3
};

/* A batch. Row i of every array belongs to the same sample. */
struct ccs_batch {
    uint64_t struct_size; /* set by the library */
    uint32_t count;       /* rows of this rank; may be 0 in an incomplete last batch */
    uint32_t side_px;     /* S */
    uint32_t max_tokens;  /* T */
    uint32_t replaced;    /* rows whose sample is damaged and was replaced by another one */
    uint64_t epoch, step; /* both from 0; step: number of the batch in the epoch */
    uint8_t *images; /* (count, S, S, 3) RGB, the first view; element type and layout as the options
                        `pixels` and `planar` select, so cast it to that type. NULL without views */
    uint8_t *images2; /* the second view, likewise; NULL with one view */
    int32_t *tokens;  /* (count, T), rows padded at the end; NULL without captions or tokenizer */
    int32_t *lengths; /* (count) number of tokens before the padding; NULL likewise */
    uint64_t *ids;    /* (count) sample ids */
    uint64_t *caption_ids; /* (count) number of the caption among the captions of all samples in id
                              order; UINT64_MAX: none. Changes when samples are added or removed */
    int32_t *labels;       /* (count) class labels; -1: none */
    uint32_t *captions; /* (count) index of the caption among its sample's captions, from 0. For a
                           caption from a column: 65536 plus the column's index in caption_columns,
                           from 0, not counting raw */
    const struct ccs_text *texts; /* (count) captions as stored; NULL without option texts */
    const struct ccs_text
        *encoded;   /* (count) compressed images as stored; NULL without option encoded */
    int32_t pixels; /* enum ccs_pixels: element type of images and images2 */
    int32_t planar; /* 1: images are (count, 3, S, S) */
};

/* Waits at most timeout_ms (0: does not wait) for the next batch, which the caller holds until
 * ccs_batch_release. At most `prefetch` + 1 batches can be held at once. Returns CCS_OK, CCS_END
 * (after the last epoch), TIMEOUT (the message names the slow stage; call again), INVALID (too many
 * batches are held), FORKED, or a permanent failure, which every later call repeats: IO, CORRUPT
 * (too many damaged samples, or a shard changed) or NOTFOUND (a shard is missing). */
CCS_API int32_t ccs_loader_next(struct ccs_loader *l,
                                const struct ccs_batch **out,
                                int64_t timeout_ms,
                                struct ccs_error *err);

/* Releases a batch; its arrays become invalid. Any thread may call it, while others use the loader
 * or after ccs_loader_close. The caller may write to the arrays of a held batch. Accepts NULL. */
CCS_API void ccs_batch_release(const struct ccs_batch *b);

/* The position of a loader, that is its next batch, as plain numbers that can be stored anywhere.
 * It is the same on every rank. It is valid for any number of ranks and threads, but only for the
 * same datasets, options of the order, and batch size. */
struct ccs_loader_state {
    uint64_t struct_size; /* set by the caller */
    uint64_t fingerprint, seed, epoch, step;
    uint64_t filter, order,
        mix; /* hashes of filter and ids, of order, and of weights; 0: the default */
    uint32_t batch_size, sources;
    uint64_t source_fingerprints[CCS_MAX_SOURCES];
    uint64_t source_id_offsets[CCS_MAX_SOURCES];
};

/* The position after the last batch that ccs_loader_next returned. Returns CCS_OK or FORKED. */
CCS_API int32_t ccs_loader_get_state(const struct ccs_loader *l,
                                     struct ccs_loader_state *out,
                                     struct ccs_error *err);

/* Continues at this position, also after CCS_END. Requires that no batch is held. Returns CCS_OK,
 * MISMATCH (the state belongs to other data or options; the message names the difference, and
 * nothing changes), INVALID (a batch is held), TIMEOUT (reads hang: the loader can only be closed)
 * or FORKED. */
CCS_API int32_t ccs_loader_seek(struct ccs_loader *l,
                                const struct ccs_loader_state *state,
                                struct ccs_error *err);

/* Counters since open or seek. */
struct ccs_loader_stats {
    uint64_t struct_size; /* set by the caller */
    uint64_t samples;     /* delivered */
    uint64_t batches;
    uint64_t read_bytes, read_requests;
    uint64_t replaced;      /* rows whose sample was replaced, see struct ccs_batch */
    uint64_t corrupt;       /* different damaged samples, since open */
    int64_t elapsed_ns;     /* since open or seek */
    int64_t stall_ns;       /* time that ccs_loader_next waited, excluding the first batch */
    int64_t first_batch_ns; /* from open or seek to the first batch; 0 before it */
};

/* Any thread may call it. Returns CCS_OK or FORKED. */
CCS_API int32_t ccs_loader_get_stats(struct ccs_loader *l,
                                     struct ccs_loader_stats *out,
                                     struct ccs_error *err);

/* ---- writer ------------------------------------------------------------------------------- */

/* Writes a dataset from samples in memory, by the rules of ccpack: the same samples with the same
 * ids and keys give the same fingerprint as ccpack, and in the same order the same shards. The
 * directory becomes a dataset at ccs_writer_finish. After close without finish, or a crash, a new
 * writer with `overwrite` starts over. Any number of threads may call ccs_writer_add at once; the
 * other functions belong to one thread. */
struct ccs_writer;

struct ccs_writer_options {
    uint64_t struct_size;   /* set by ccs_writer_options_init, which sets all defaults */
    uint64_t shard_bytes;   /* maximum size; a larger sample gets its own shard; default 1 GiB */
    uint32_t shard_samples; /* most samples per shard, [1, 1048576]; default 10000 */
    int32_t level;          /* zstd compression level of the texts, [1, 19]; default 3 */
    bool check;             /* decode every image; false: check only its headers; default true */
    bool overwrite; /* replace an existing dataset, once the first sample is accepted; files that
                       are not part of it stay; default false */
    bool append; /* add to an existing dataset, with ids above its own; not with overwrite; default
                    false */
    const char *container; /* "tar.zst" or "tar"; default "tar.zst" */
};
CCS_API void ccs_writer_options_init(struct ccs_writer_options *opt, uint64_t struct_size);

/* Creates the directory if it is missing, and locks it until close. opt NULL: all defaults. Returns
 * CCS_OK; EXISTS (it is not empty, or another process is writing to it); with append NOTFOUND (no
 * dataset) or MISMATCH (an incomplete dataset, or one with resized images or another container);
 * USAGE, IO, CORRUPT, VERSION or LIMIT. */
CCS_API int32_t ccs_writer_open(struct ccs_writer **out,
                                const char *directory,
                                const struct ccs_writer_options *opt,
                                struct ccs_error *err);

#define CCS_NEXT_ID UINT64_MAX

struct ccs_new_sample {
    uint64_t struct_size; /* set by ccs_new_sample_init, which sets all defaults */
    uint64_t id;          /* default CCS_NEXT_ID: one more than the largest so far */
    const char *key;   /* file name in the shard, 1 to 80 bytes of printable ASCII without space . /
                          and backslash; default NULL: the digits of the id. Either all samples of a
                          writer have a key, or none */
    const void *image; /* (image_size) a JPEG, PNG, WebP or GIF of at most 64 MiB */
    size_t image_size;
    const struct ccs_text
        *captions; /* (caption_count), at most 256 captions and 256 KiB in total; stored without
                      leading and trailing white space; empty ones are dropped */
    uint32_t caption_count;
    int32_t label;            /* class label, at least 0; default -1: none */
    struct ccs_text metadata; /* a JSON object of at most 4 MiB; size 0: none */
};
CCS_API void ccs_new_sample_init(struct ccs_new_sample *s, uint64_t struct_size);

/* Adds one sample; everything is copied. *id (may be NULL) receives its id. Any number of threads
 * may add at once: they decode in parallel and store in the order in which they finish decoding, so
 * only a single thread gives identical shards each time. A refused sample leaves the writer
 * unchanged: CORRUPT (image, UTF-8 or JSON), UNSUPPORTED (image format), EXISTS (the id or key is
 * taken), LIMIT, or INVALID (also a key for some samples only, or a label beyond named classes). If
 * storing a sample fails, for example with IO, the writer is unusable and later calls return the
 * same failure. */
CCS_API int32_t ccs_writer_add(struct ccs_writer *w,
                               const struct ccs_new_sample *sample,
                               uint64_t *id,
                               struct ccs_error *err);

/* Names the classes of labels 0 to count - 1. At most one call. With append the names begin with
 * those of the dataset. Without a call labels have no names. Returns CCS_OK, INVALID (a repeated
 * name, one that differs from the dataset's, or a sample with a label beyond them) or LIMIT. */
CCS_API int32_t ccs_writer_set_classes(struct ccs_writer *w,
                                       const char *const *names,
                                       uint32_t count,
                                       struct ccs_error *err);

/* Publishes the dataset atomically and describes it in *info, which may be NULL. Returns CCS_OK;
 * INVALID (no sample; samples may still be added); or IO or LIMIT, after which the writer is
 * unusable. */
CCS_API int32_t ccs_writer_finish(struct ccs_writer *w,
                                  struct ccs_dataset_info *info,
                                  struct ccs_error *err);

/* Without a successful finish, removes the files that this writer wrote; with append the dataset
 * stays as it was. */
CCS_API void ccs_writer_close(struct ccs_writer *w);

/* ---- tokenizer ---------------------------------------------------------------------------- */

/* Converts texts to token ids. Any number of threads may use one tokenizer at once, and so may a
 * child process. */
struct ccs_tokenizer;

/* Opens a tokenizer from the `size` bytes of a SentencePiece model, a WordPiece vocabulary, CLIP's
 * merges file, or a tokenizer.json of byte-level BPE. The bytes are copied. Returns CCS_OK,
 * CORRUPT, LIMIT, or UNSUPPORTED (a model without an end-of-text token, or a tokenizer.json of
 * another kind). */
CCS_API int32_t ccs_tokenizer_open(struct ccs_tokenizer **out,
                                   const void *model,
                                   size_t size,
                                   struct ccs_error *err);

/* Opens a tokenizer from a file in one of these formats. "clip" is the built-in CLIP tokenizer,
 * unless a file has this name. Returns also NOTFOUND and IO. */
CCS_API int32_t ccs_tokenizer_load(struct ccs_tokenizer **out,
                                   const char *path,
                                   struct ccs_error *err);

/* Opens the dataset's own tokenizer. Returns also NOTFOUND (it has none), MISMATCH (the file is not
 * the one recorded in dataset.json) and IO. */
CCS_API int32_t ccs_tokenizer_of_dataset(struct ccs_tokenizer **out,
                                         const struct ccs_dataset *d,
                                         struct ccs_error *err);
CCS_API void ccs_tokenizer_close(struct ccs_tokenizer *t);

/* Token ids are below it. */
CCS_API uint32_t ccs_tokenizer_vocabulary(const struct ccs_tokenizer *t);
/* The padding id. */
CCS_API int32_t ccs_tokenizer_pad(const struct ccs_tokenizer *t);
/* The ids before and after the tokens of a text; a begin id below 0: there is none. */
CCS_API int32_t ccs_tokenizer_begin(const struct ccs_tokenizer *t);
CCS_API int32_t ccs_tokenizer_end(const struct ccs_tokenizer *t);

/* Tokenizes texts (count). Fills tokens (count, max_tokens), each row padded at its end, and
 * lengths (count), the number of tokens before the padding. A text may be any bytes: invalid UTF-8
 * is read as U+FFFD, and only the first 64 KiB are used. clean: as clean_captions of the loader; no
 * effect on CLIP's tokenizer, which has its own cleaning. Returns CCS_OK, USAGE (max_tokens is not
 * in [2, 4096]), or CORRUPT (a damaged model). */
CCS_API int32_t ccs_tokenizer_encode(const struct ccs_tokenizer *t,
                                     int32_t *tokens,
                                     int32_t *lengths,
                                     const struct ccs_text *texts,
                                     uint64_t count,
                                     uint32_t max_tokens,
                                     bool clean,
                                     struct ccs_error *err);

/* ---- per-sample state of a checkpoint ------------------------------------------------------ */

/* The per-sample state in a checkpoint, read-only: columns indexed by sample id, such as zeta,
 * log_u and visits. formats/CHECKPOINT_FORMAT.md lists them. */
struct ccs_state;

enum ccs_column_kind {
    CCS_COLUMN_F32 = 0,   /* float; NaN: not yet written by any step */
    CCS_COLUMN_COUNT = 1, /* uint64_t; 0: likewise */
    CCS_COLUMN_ID = 2     /* uint64_t, a sample id; UINT64_MAX: none */
};

struct ccs_column {
    uint64_t struct_size; /* set by the caller */
    const char *name;     /* "image.log_u", "visits"; borrowed from the state or loss */
    uint64_t ids;         /* entries */
    int32_t kind;         /* enum ccs_column_kind */
    int32_t reserved;     /* 0 */
};

struct ccs_state_info {
    uint64_t struct_size; /* set by the caller */
    const char *loss;     /* name of the loss; borrowed until close, as first_caption */
    uint64_t step;        /* completed steps */
    uint64_t fingerprint; /* of the dataset that it was trained on */
    uint64_t samples, id_space;
    /* (id_space + 1) or NULL. Not NULL: columns "text...." have one entry per caption; those of
     * sample id i are first_caption[i] to first_caption[i + 1] - 1. NULL: they have one entry per
     * sample id, as all other columns. */
    const uint64_t *first_caption;
};

/* path: a checkpoint of ccstream-train, a run directory (its newest checkpoint), or a file written
 * by ccs_loss_save. Returns CCS_OK, NOTFOUND, IO, CORRUPT, VERSION or LIMIT. */
CCS_API int32_t ccs_state_open(struct ccs_state **out, const char *path, struct ccs_error *err);
CCS_API void ccs_state_close(struct ccs_state *s);

CCS_API int32_t ccs_state_get_info(const struct ccs_state *s,
                                   struct ccs_state_info *info,
                                   struct ccs_error *err);

/* Describes column i, from 0. Returns CCS_OK, NOTFOUND (there are fewer) or CORRUPT. */
CCS_API int32_t ccs_state_column(const struct ccs_state *s,
                                 uint32_t i,
                                 struct ccs_column *out,
                                 struct ccs_error *err);

/* Copies entries first to first + count - 1 of a column to values (count), float or uint64_t as its
 * kind says. Every call reads and checks the whole column. Returns CCS_OK, NOTFOUND (no such
 * column, or beyond its end), CORRUPT or IO. */
CCS_API int32_t ccs_state_read(const struct ccs_state *s,
                               const char *column,
                               void *values,
                               uint64_t first,
                               uint64_t count,
                               struct ccs_error *err);

/* ---- losses ------------------------------------------------------------------------------- */

/* An option of a loss, and its value. */
struct ccs_loss_option {
    uint64_t struct_size; /* set by the caller */
    const char *name;     /* as in the options of ccs_loss_open: "tau-max" */
    const char *choice;   /* the value if it is a word: "cosine", "auto"; NULL: a number */
    double value;         /* the value if choice is NULL */
};

/* Fills *out with option i, from 0, of those that loss `name` reads, and its value: as given in
 * `options`, else the loss's default. name, views and options are as of ccs_loss_open; zeta-lr,
 * zeta-lr-image-ratio and zeta-freeze-epochs are also accepted and listed, and gamma-epochs and
 * beta-epochs are 0 unless given. Returns CCS_OK, NOTFOUND (there are fewer), or USAGE (name or
 * options). */
CCS_API int32_t ccs_loss_option(const char *name,
                                bool views,
                                const char *const *options,
                                uint32_t option_count,
                                uint32_t i,
                                struct ccs_loss_option *out,
                                struct ccs_error *err);

/* A contrastive loss over similarity matrices in host memory, with its per-sample state. */
struct ccs_loss;

/* Opens a loss with its initial state.
 *
 * name           : as --loss of ccstream-train.
 * views          : true: two views of images; false: image-text pairs.
 * options        : (option_count) strings like "tau=0.01", with the names, ranges and defaults of
 *                  ccstream-train; only options that the loss reads. gamma-epochs and beta-epochs
 *                  have no default here: losses that read them require them. zeta-lr,
 *                  zeta-lr-image-ratio and zeta-freeze-epochs are refused: pass zeta_lr_image and
 *                  zeta_lr_text to each step instead. Exception: zeta-lr=auto, which accepts
 *                  zeta-freeze-epochs; then pass 1 to each step, or 0 in frozen epochs.
 * samples        : number of samples of the dataset, at least 2 and at most id_space.
 * id_space       : larger than every sample id. The state takes a few numbers per id.
 * max_batch      : largest batch_size of a step, [2, 32768].
 *
 * Returns CCS_OK, USAGE (name or options), INVALID (a size is out of range) or NOMEM. */
CCS_API int32_t ccs_loss_open(struct ccs_loss **out,
                              const char *name,
                              bool views,
                              const char *const *options,
                              uint32_t option_count,
                              uint64_t samples,
                              uint64_t id_space,
                              uint32_t max_batch,
                              struct ccs_error *err);
CCS_API void ccs_loss_close(struct ccs_loss *l);

/* Off-batch samples: one extra sample per anchor that some losses need. The caller encodes it with
 * the current model. */
enum ccs_loss_beyond {
    CCS_BEYOND_NONE = 0,  /* the loss uses no off-batch samples */
    CCS_BEYOND_NAMED = 1, /* emc2: the samples that ccs_loss_carried returns */
    CCS_BEYOND_DRAWN = 2  /* negcache: the caller samples them from its own cached features of all
                             samples, sample j with probability proportional to exp(similarity /
                             tau); option cache-refresh has no effect */
};
/* One of enum ccs_loss_beyond. */
CCS_API int32_t ccs_loss_beyond(const struct ccs_loss *l);

/* Fills out (2, batch) with the id of the off-batch sample that each anchor of a batch with these
 * ids (batch) needs in its next step; UINT64_MAX: none. Row 0: images or first views as anchors;
 * row 1: texts or second views. Returns CCS_OK, or UNSUPPORTED (not a loss with
 * CCS_BEYOND_NAMED). */
CCS_API int32_t ccs_loss_carried(struct ccs_loss *l,
                                 uint64_t *out,
                                 const uint64_t *ids,
                                 uint32_t batch,
                                 struct ccs_error *err);

struct ccs_loss_input {
    uint64_t struct_size; /* set by the caller */
    /* (B, B) inner products of the L2-normalised embeddings: row i is image i, column j is text j.
     * With two views (2B, 2B), all views with all: rows and columns 0 to B - 1 are the first views,
     * B to 2B - 1 the second views. */
    const float *similarity;
    const float *image_similarity, *text_similarity; /* (B, B), images with images and texts with
                                                        texts; cyclip only, else NULL */
    const uint64_t *ids;  /* (B) sample ids, below the id space; of a repeated id only the first
                             occurrence counts */
    uint64_t step, epoch; /* both from 0 */
    double lr;            /* the model's learning rate in this step, for learned scalars too */
    double zeta_lr_image, zeta_lr_text; /* nuclr: learning rates of zeta in this step; 0: frozen */
    uint32_t batch_size; /* B, in [2, max_batch]; with option positives a multiple of it */
    uint32_t reserved;
    /* (2, B) each; NULL if the loss uses no off-batch samples. The off-batch sample of each anchor
     * (UINT64_MAX: none, because it is not needed or can no longer be read), and its similarity
     * with the anchor. */
    const uint64_t *carried_ids;
    const float *carried_similarity;
    uint32_t frozen;    /* 1: the state stays unchanged; 0: the step updates it */
    uint32_t reserved2; /* 0 */
};

struct ccs_loss_output {
    uint64_t struct_size; /* set by the caller, as all pointers: its own arrays */
    float *gradient;      /* d value / d similarity, of the same shape; all written */
    float *image_gradient, *text_gradient; /* (B, B), likewise; cyclip only, else NULL */
    double value; /* the loss of this batch, to backpropagate; weights computed from the state are
                     constants in its gradient */
    double objective; /* estimate of the loss over the whole dataset; without moving averages:
                         value, or for emc2 and negcache the batch's loss */
    double tau;       /* temperature of this step; if per sample, the mean over the batch */
    float *carried_gradient; /* (2, B) d value / d carried_similarity; NULL without off-batch
                                samples */
};

/* Computes value and gradient, and updates the state of the batch's samples unless in->frozen.
 * Returns CCS_OK, or CORRUPT (a similarity is not finite; the state is unchanged). */
CCS_API int32_t ccs_loss_step(struct ccs_loss *l,
                              const struct ccs_loss_input *in,
                              struct ccs_loss_output *out,
                              struct ccs_error *err);

/* The loss's per-sample state, in columns as those of ccs_state: describe column i, read entries,
 * and write entries first to first + count - 1 with values (count). Return CCS_OK, NOTFOUND (no
 * such column, or beyond its end), or INVALID (write: an id that is not below the id space). */
CCS_API int32_t ccs_loss_column(const struct ccs_loss *l,
                                uint32_t i,
                                struct ccs_column *out,
                                struct ccs_error *err);
CCS_API int32_t ccs_loss_read(const struct ccs_loss *l,
                              const char *column,
                              void *values,
                              uint64_t first,
                              uint64_t count,
                              struct ccs_error *err);
CCS_API int32_t ccs_loss_write(struct ccs_loss *l,
                               const char *column,
                               const void *values,
                               uint64_t first,
                               uint64_t count,
                               struct ccs_error *err);

/* State that is not per sample, such as "image.xi": see CHECKPOINT_FORMAT.md, loss.state.NAME. The
 * name of scalar i, from 0, borrowed until close; NULL: there are fewer. Get and set return CCS_OK,
 * NOTFOUND, or INVALID (set: the value is not finite). */
CCS_API const char *ccs_loss_scalar_name(const struct ccs_loss *l, uint32_t i);
CCS_API int32_t ccs_loss_get_scalar(const struct ccs_loss *l,
                                    const char *name,
                                    double *value,
                                    struct ccs_error *err);
CCS_API int32_t ccs_loss_set_scalar(struct ccs_loss *l,
                                    const char *name,
                                    double value,
                                    struct ccs_error *err);

/* Writes the state atomically as a checkpoint without a model, which ccs_state_open, `ccdump state`
 * and `ccdump popularity` read. fingerprint: the dataset's; step: number of completed steps. An
 * older file of ccs_loss_save at path is replaced. Returns CCS_OK, IO, or EXISTS (path exists and
 * is not such a file). */
CCS_API int32_t ccs_loss_save(const struct ccs_loss *l,
                              const char *path,
                              uint64_t fingerprint,
                              uint64_t step,
                              struct ccs_error *err);

/* Loads state written by ccs_loss_save or ccstream-train for the same loss; sample ids that it
 * lacks keep their values. Returns what ccs_state_open returns, or MISMATCH (another loss, or a
 * larger id space). A failure may leave the state partly loaded: then it is undefined until a load
 * succeeds. */
CCS_API int32_t ccs_loss_load(struct ccs_loss *l, const char *path, struct ccs_error *err);

#ifdef __cplusplus
}
#endif

#endif
