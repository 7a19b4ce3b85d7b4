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
 * Errors    : a function that can fail returns an int32_t of enum ccs_status: 0 is success, a
 *             positive value an outcome that the function names, a negative one a failure. Then
 *             *err has one sentence: what is wrong (file, row or byte) and what to do. err may be
 *             NULL. After a failure, pointers that are returned are NULL and other results are
 *             unchanged. Besides the statuses that a function names, each may return INVALID (an
 *             argument is wrong) and NOMEM.
 * Threading : a handle is used by one thread at a time, distinct handles by different threads at
 *             once, unless a type or function allows more. No function prints, exits, or installs
 *             signal handlers.
 * Fork      : the child may use all but loaders, their batches and writers, which stay with the
 *             parent: in the child, functions that can fail return FORKED, others do nothing. A
 *             child reads remote datasets over connections of its own.
 * Ownership : X_open returns a handle; X_close frees it and accepts NULL. Texts and options that
 *             are passed in are copied; results are borrowed as stated.
 * Growth    : structs begin with struct_size. The caller sets it, or the _init function where there
 *             is one, to the size of the struct. Later versions append fields, never change one,
 *             and accept the structs of earlier versions; of structs that they fill, only the
 *             fields that the caller has. Structs without it never change, nor do numbers.
 * Texts     : UTF-8. Paths and names end with a NUL; other texts have a size.
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

/* "0.1.0": of the library that is loaded. */
CCS_API const char *ccs_version(void);

/* ---- status ------------------------------------------------------------------------------- */

enum ccs_status {
    CCS_END = 1,                 /* nothing follows */
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
    CCS_ERROR_TIMEOUT = -14,     /* a bounded wait ran out; may be tried again */
    CCS_ERROR_FORKED = -15       /* the handle belongs to the parent process */
};

enum { CCS_ERROR_TEXT_BYTES = 504 };

struct ccs_error {
    int32_t status; /* as returned */
    uint32_t reserved;
    char text[CCS_ERROR_TEXT_BYTES]; /* ends with a NUL; empty after success */
};

/* One plain sentence for a status. */
CCS_API const char *ccs_status_text(int32_t status);

/* A text of known size, not NUL-terminated; data may be NULL when size is 0. */
struct ccs_text {
    const char *data;
    size_t size;
};

/* ---- remote datasets ---------------------------------------------------------------------- */

/* Every path of a dataset may be a location: https://HOST/PATH, s3://BUCKET/PREFIX,
 * hf://datasets/OWNER/NAME. libcurl (7.85 or newer) is loaded when the first one is opened; S3 keys
 * are those of the environment and the files of the AWS tools. Images are checked against their
 * hashes, a shard that is replaced is an error, and requests that may succeed later are
 * repeated. */
struct ccs_remote_options {
    uint64_t struct_size;
    const char
        *endpoint;     /* URL of the S3 server; NULL: AWS_ENDPOINT_URL_S3, the profile's, Amazon */
    const char *cache; /* folder for pieces of 8 MiB, shared by processes; NULL: none */
    uint64_t cache_bytes;       /* its limit, at least 256 MiB; 0: 64 GiB */
    uint32_t instance_metadata; /* 1: may ask the machine's metadata service for keys */
    uint32_t allow_private;     /* 1: names and redirects may lead to private addresses */
};

/* Sets the options of the process, before the first remote dataset is opened; otherwise all are 0.
 * Any thread. Returns CCS_OK, EXISTS (one was opened, or they were set before), USAGE or IO (the
 * cache). */
CCS_API int32_t ccs_remote_configure(const struct ccs_remote_options *opt, struct ccs_error *err);

/* One file at a server, from front to back, 8 MiB at a time ahead of the reader. */
struct ccs_remote_file; /* opaque */

/* Requires a location of a file. Returns CCS_OK, USAGE (no location, or one with a query or user
 * name) or UNSUPPORTED (no libcurl); what the server answers is known when it is read. */
CCS_API int32_t ccs_remote_file_open(struct ccs_remote_file **out,
                                     const char *location,
                                     struct ccs_error *err);

/* Waits for up to 100 ms. *got: bytes at `buffer`, 1 to size. Returns CCS_OK, CCS_END, TIMEOUT
 * (nothing came yet), NOTFOUND, IO or CORRUPT (the file was replaced). */
CCS_API int32_t ccs_remote_file_read(struct ccs_remote_file *f,
                                     void *buffer,
                                     size_t size,
                                     size_t *got,
                                     struct ccs_error *err);
CCS_API void ccs_remote_file_close(struct ccs_remote_file *f);

/* ---- dataset ------------------------------------------------------------------------------ */

/* A directory that ccpack made, or a location. Positions run from 0 to samples - 1 in id order; an
 * id never changes, positions do when the dataset grows or loses samples. Any number of threads may
 * use one dataset at once, and so may the child after a fork. */
struct ccs_dataset;

/* Returns CCS_OK, NOTFOUND, IO, CORRUPT, EXISTS (an id in two shards), VERSION or LIMIT. */
CCS_API int32_t ccs_dataset_open(struct ccs_dataset **out, const char *path, struct ccs_error *err);

/* Before this, close its readers. */
CCS_API void ccs_dataset_close(struct ccs_dataset *d);

struct ccs_dataset_info {
    uint64_t struct_size; /* set by the caller */
    uint64_t samples;     /* live ones */
    uint64_t captions;    /* of all samples */
    uint64_t id_space;    /* greater than every sample id */
    uint64_t image_bytes; /* compressed, of all samples */
    uint64_t fingerprint; /* of ids, images and captions; independent of paths and shard sizes */
    uint32_t shards;
    uint32_t classes;   /* named ones; label i is class i */
    uint32_t tokenizer; /* 1: the directory has one */
    uint32_t reserved;  /* 0 */
};

CCS_API int32_t ccs_dataset_get_info(const struct ccs_dataset *d,
                                     struct ccs_dataset_info *info,
                                     struct ccs_error *err);

/* The name of a class, borrowed until close; NULL where there is none. */
CCS_API const char *ccs_dataset_class(const struct ccs_dataset *d, uint32_t label);

enum ccs_image_format {
    CCS_IMAGE_JPEG = 1,
    CCS_IMAGE_PNG = 2,
    CCS_IMAGE_WEBP = 3,
    CCS_IMAGE_GIF = 4
};

/* What the index says about one sample, without reading it. */
struct ccs_record {
    uint64_t struct_size; /* set by the caller */
    uint64_t id;
    uint64_t position;
    uint64_t image_hash;   /* XXH64 of the stored image */
    uint64_t caption_hash; /* XXH64 over its captions */
    uint32_t image_bytes;
    uint32_t captions;
    uint32_t width_px, height_px; /* upright; 0: unknown */
    uint32_t shard;
    int32_t label;      /* -1: none */
    int32_t format;     /* enum ccs_image_format */
    uint32_t reencoded; /* 1: the packer made the image's bytes; 0: the source's own */
};

/* The sample at a position, and the one with an id, which is searched. Return CCS_OK, NOTFOUND (no
 * such position, no live sample with this id) or CORRUPT. */
CCS_API int32_t ccs_dataset_record(const struct ccs_dataset *d,
                                   uint64_t position,
                                   struct ccs_record *out,
                                   struct ccs_error *err);
CCS_API int32_t ccs_dataset_find(const struct ccs_dataset *d,
                                 uint64_t id,
                                 struct ccs_record *out,
                                 struct ccs_error *err);

/* Fills out (count) with the ids at positions first, first + 1, ... Returns CCS_OK, NOTFOUND (some
 * are beyond the end; out is unchanged) or CORRUPT. */
CCS_API int32_t ccs_dataset_ids(const struct ccs_dataset *d,
                                uint64_t *out,
                                uint64_t first,
                                uint64_t count,
                                struct ccs_error *err);

/* ---- columns ----------------------------------------------------------------------------------
 * Values that were joined to samples by id: DATASET/columns. */

/* Names in order, at a server those in its columns/names.txt; borrowed until the next call with
 * index 0 or close; NULL after the last. */
CCS_API const char *ccs_dataset_column(struct ccs_dataset *d, uint32_t index);

struct ccs_attached_info {
    uint64_t struct_size; /* set by the caller */
    uint64_t rows;        /* which column_open sets, as the next two; 0 when writing */
    uint64_t hash;        /* of ids and values */
    uint64_t fingerprint; /* of the dataset when it was attached */
    const char *kind;     /* "f32", "f64", "f16", "bf16", "i8", ...; "captions", "text", "json" */
    const char *source;   /* a JSON object: how it was made */
    uint32_t values;      /* numbers in a row; 0: texts */
    uint32_t vectors;     /* of equal length, which they are; 0: texts */
};

/* Opens a column for reading, by one thread at a time. What it holds stays readable when the column
 * is replaced. Returns CCS_OK, NOTFOUND, MISMATCH (attached to another dataset), USAGE (no name of
 * a column), CORRUPT, VERSION, IO or LIMIT. */
struct ccs_attached;
CCS_API int32_t ccs_attached_open(struct ccs_attached **out,
                                  const struct ccs_dataset *d,
                                  const char *name,
                                  struct ccs_error *err);
CCS_API void ccs_attached_close(struct ccs_attached *c);
CCS_API int32_t ccs_attached_get_info(const struct ccs_attached *c,
                                      struct ccs_attached_info *info,
                                      struct ccs_error *err);

/* Fills out (count) with the ids of rows first, first + 1, ...: ascending. NOTFOUND: beyond them.
 */
CCS_API int32_t ccs_attached_ids(const struct ccs_attached *c,
                                 uint64_t *out,
                                 uint64_t first,
                                 uint64_t count,
                                 struct ccs_error *err);

/* The row of a sample, borrowed until the next call: numbers, or texts (captions: u16 count, with
 * 0x8000 if (count) f32 weights follow and 0x4000 if (count) u8 sources do; then each text and a
 * byte 0). Returns CCS_OK, NOTFOUND (it has none) or CORRUPT. */
CCS_API int32_t ccs_attached_get(struct ccs_attached *c,
                                 uint64_t id,
                                 struct ccs_text *row,
                                 struct ccs_error *err);

/* Writes a column of a local dataset, whose lock it holds from open to close. `info`: kind, source,
 * values and vectors. Returns CCS_OK, EXISTS (there is one of this name, and not `replace`; another
 * process writes; a run is unfinished), NOTFOUND, USAGE, IO, CORRUPT, VERSION or LIMIT. */
struct ccs_attached_writer;
CCS_API int32_t ccs_attached_writer_open(struct ccs_attached_writer **out,
                                         const char *dataset,
                                         const char *name,
                                         const struct ccs_attached_info *info,
                                         bool replace,
                                         struct ccs_error *err);

/* Rows of `count` samples, whose ids ascend and are larger than those before; `sizes` (count) in
 * bytes, NULL: numbers. The file depends on how rows are grouped to calls. Returns CCS_OK, USAGE
 * (order or size, or bytes that are not a row of its kind), NOTFOUND (an id of no sample), IO or
 * LIMIT. */
CCS_API int32_t ccs_attached_writer_add(struct ccs_attached_writer *w,
                                        const uint64_t *ids,
                                        uint64_t count,
                                        const void *rows,
                                        const uint64_t *sizes,
                                        struct ccs_error *err);

/* Completes the column; before, nothing has changed. Returns CCS_OK or IO. */
CCS_API int32_t ccs_attached_writer_finish(struct ccs_attached_writer *w, struct ccs_error *err);
CCS_API void ccs_attached_writer_close(struct ccs_attached_writer *w);

/* Deletes a column. Returns CCS_OK, NOTFOUND, EXISTS (another process writes), USAGE or IO. */
CCS_API int32_t ccs_attached_remove(const char *dataset, const char *name, struct ccs_error *err);

/* Reads samples of one dataset. The child after a fork may use it too. */
struct ccs_reader;

CCS_API int32_t ccs_reader_open(struct ccs_reader **out,
                                const struct ccs_dataset *d,
                                struct ccs_error *err);
CCS_API void ccs_reader_close(struct ccs_reader *r);

struct ccs_sample {
    uint64_t struct_size; /* set by the library */
    const struct ccs_record *record;
    const char *key;                 /* its name in the shard; ends with a NUL */
    const uint8_t *image;            /* (record->image_bytes): the compressed bytes as stored */
    const struct ccs_text *captions; /* (record->captions) */
    struct ccs_text metadata;        /* JSON; size 0: none */
};

/* The sample at a position, read and checked against its hashes; *out and all in it is borrowed
 * until the next call on this reader. Returns CCS_OK, NOTFOUND (no such position; a shard is
 * missing), IO, CORRUPT, VERSION or LIMIT. */
CCS_API int32_t ccs_reader_get(struct ccs_reader *r,
                               uint64_t position,
                               const struct ccs_sample **out,
                               struct ccs_error *err);

/* The captions alone, which is faster: (*count) of them, borrowed likewise. Returns CCS_OK,
 * NOTFOUND (no such position) or CORRUPT. */
CCS_API int32_t ccs_reader_captions(struct ccs_reader *r,
                                    uint64_t position,
                                    const struct ccs_text **out,
                                    uint32_t *count,
                                    struct ccs_error *err);

/* ---- loader ------------------------------------------------------------------------------- */

/* Batches of one or several datasets, in an order computed from the seed: the same seed gives the
 * same samples, crops and captions for any number of threads, ranks and restarts. Its threads work
 * ahead. */
struct ccs_loader;

/* Memory for batches, as from cudaHostAlloc. Both functions may be called from any thread, and
 * release as long as a batch is held. All NULL: ordinary memory. */
struct ccs_allocator {
    void *(*alloc)(void *cookie, size_t size); /* 64-byte aligned; NULL on failure */
    void (*release)(void *cookie, void *data);
    void *cookie;
};

struct ccs_loader_options {
    uint64_t struct_size;   /* set by ccs_loader_options_init, as all defaults */
    uint32_t batch_size;    /* rows of all ranks together, [1, 1048576]; default 512 */
    uint32_t rank, world;   /* this process delivers part `rank` of `world` of each batch; 0, 1 */
    uint32_t image_size_px; /* side of the delivered images, [8, 2048]; default 256 */
    /* crop (default), paper, simclr, clip; eval-squash, eval-crop, eval-clip or eval-longest */
    const char *augment;
    uint32_t views;      /* of each image, at most 2; 0: images are not decoded, and read only with
                            encoded; default 1 */
    uint32_t positives;  /* rows of a batch that are one sample, [1, 8], with one view; default 1 */
    const char *order;   /* "global", "sequential", "block:SIZE:WINDOW"; "global" */
    const char *filter;  /* as --filter of ccstream-train; NULL: everything; default NULL */
    bool captions;       /* deliver tokens of a caption; default true */
    bool drop_last;      /* omit a last batch that is not full; default true */
    bool clean_captions; /* the paper's cleaning before the tokenizer, not CLIP's; default true */
    bool verify_images;  /* compare every image with its stored hash; default true */
    uint32_t max_tokens; /* of a row of tokens, [2, 4096]; default 30 */
    uint64_t seed;       /* of order, crops and captions; default 0 */
    uint64_t epochs;     /* CCS_END after this many; 0: never; default 0 */
    uint32_t threads;    /* that decode, at most 1024; 0: one per CPU; default 0 */
    uint32_t prefetch;   /* batches made ahead, [1, 64]; default 3 */
    uint64_t max_corrupt;  /* damaged samples that are replaced before the run fails, at most 4096;
                              1000 */
    const void *tokenizer; /* bytes of a model, read by open only; NULL: the first dataset's; no
                              tokens without one; default NULL */
    size_t tokenizer_size;
    struct ccs_allocator allocator;
    void (*log)(void *cookie, const char *line); /* from any thread until close; NULL: silent */
    void *log_cookie;
    const char *caption_columns; /* captions from attached columns, as --caption-columns of
                                    ccstream-train: "raw:0.3,long:0.7", or "raw+long" with positives
                                    2; default NULL: own captions */
    int32_t caption; /* this one of a sample's own captions, from 0, modulo their number, with one
                        positive; -1, the default: drawn */
    bool tokens;     /* deliver captions as tokens; default true */
    bool texts;      /* deliver captions as texts too; default false */
    bool encoded;    /* deliver images as they are stored too, without views alone; default false */
    bool planar;     /* images are (count, 3, S, S) instead of (count, S, S, 3); default false */
    bool normalized; /* values are (x / 255 - mean) / deviation; default false: x of uint8, x / 255
                        of floats */
    const char *pixels; /* "uint8", "float16", "bfloat16" or "float32"; default "uint8", which is
                           not normalized */
    float mean[3], deviation[3]; /* of red, green, blue, with normalized; deviations above 0 */
    double crop_min, crop_max;   /* share of the area that a random crop shows, 0 < min <= max <= 1;
                                    0, 0, the default: the augmentation's own */
    const char *interpolation;   /* "bilinear", "bicubic", "lanczos"; NULL, the default: the
                                    augmentation's own */
    const uint64_t *ids; /* (id_count) ids as delivered, ascending: an epoch has those samples that
                            pass the filter too, each as often as its id comes, with the same crop
                            and caption. Part of the position, as the filter is. Read by open only;
                            NULL, the default: all */
    uint64_t id_count;
    const char *tokenizer_path; /* as of ccs_tokenizer_load, without `tokenizer`; default NULL */
};

/* Sets every field that a struct of this size has. */
CCS_API void ccs_loader_options_init(struct ccs_loader_options *opt, uint64_t struct_size);

/* Opens one dataset and starts to read. opt may be NULL: defaults. Returns CCS_OK, USAGE (an
 * option, or fewer samples than a batch with drop_last), NOTFOUND (an id of no sample), MISMATCH
 * (the tokenizer is not the one that the dataset names), UNSUPPORTED, or what ccs_dataset_open
 * returns. */
CCS_API int32_t ccs_loader_open(struct ccs_loader **out,
                                const char *dataset,
                                const struct ccs_loader_options *opt,
                                struct ccs_error *err);

enum { CCS_MAX_SOURCES = 16 };

/* Several datasets, each "DIR" or "DIR:WEIGHT", as --data of ccstream-train: ids of a dataset
 * follow those of the ones before it. count in [1, CCS_MAX_SOURCES]. Also USAGE: weights for some
 * datasets and not for others. */
CCS_API int32_t ccs_loader_open_mix(struct ccs_loader **out,
                                    const char *const *datasets,
                                    uint32_t count,
                                    const struct ccs_loader_options *opt,
                                    struct ccs_error *err);

/* Stops the threads, from any state within a minute, usually at once. Batches that are still held
 * stay valid until their own release. */
CCS_API void ccs_loader_close(struct ccs_loader *l);

struct ccs_loader_info {
    uint64_t struct_size; /* set by the caller */
    uint64_t samples;     /* of an epoch */
    uint64_t captions;    /* of all datasets */
    uint64_t id_space;    /* greater than every sample id */
    uint64_t fingerprint; /* of the dataset; of several: a hash of theirs and their ids */
    uint64_t steps;       /* batches of an epoch */
    uint32_t max_count;   /* most rows of a batch of this rank */
    uint32_t vocabulary;  /* tokens; 0: no tokenizer */
    uint32_t threads;     /* that decode */
    uint32_t sources;     /* datasets */
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

/* A batch. Rows of one sample are at the same place in every array. */
struct ccs_batch {
    uint64_t struct_size;  /* set by the library */
    uint32_t count;        /* rows of this rank; may be 0 in a last batch that is kept */
    uint32_t side_px;      /* S */
    uint32_t max_tokens;   /* T */
    uint32_t replaced;     /* rows whose own sample is damaged and was replaced by another one */
    uint64_t epoch, step;  /* step: the batch in the epoch, from 0 */
    uint8_t *images;       /* (count, S, S, 3) RGB: the first view, of the type and order that
                              `pixels` and `planar` name; NULL without views */
    uint8_t *images2;      /* the second view; NULL with one */
    int32_t *tokens;       /* (count, T), padded at the end of each row; NULL without captions or
                              tokenizer */
    int32_t *lengths;      /* (count) tokens before the padding; NULL likewise */
    uint64_t *ids;         /* (count) of samples */
    uint64_t *caption_ids; /* (count) the caption's number among those of all samples by id;
                              UINT64_MAX: none. Changes when the dataset does */
    int32_t *labels;       /* (count); -1: none */
    uint32_t *captions;    /* (count) which of its sample's captions it is, from 0; of a caption
                              from a column 65536 + the column's number in caption_columns, from 0,
                              where raw does not count */
    const struct ccs_text *texts;   /* (count) captions as stored; NULL without option texts */
    const struct ccs_text *encoded; /* (count) images as stored; NULL without option encoded */
    int32_t pixels;                 /* enum ccs_pixels: the type of images */
    int32_t planar;                 /* 1: images are (count, 3, S, S) */
};

/* Waits at most timeout_ms (0: does not wait) for the next batch, which is held until
 * ccs_batch_release. Up to `prefetch` + 1 may be held. Returns CCS_OK, CCS_END after the last
 * epoch, TIMEOUT (the message names the stage that is late), INVALID (a batch must be released
 * first), FORKED, or the failure that ended the run, which every later call repeats: IO, CORRUPT
 * (too many damaged samples, or a shard changed), NOTFOUND. */
CCS_API int32_t ccs_loader_next(struct ccs_loader *l,
                                const struct ccs_batch **out,
                                int64_t timeout_ms,
                                struct ccs_error *err);

/* Gives the batch's memory back, which becomes invalid. From any thread, while others use the
 * loader, and after ccs_loader_close. Until then the caller may write to the arrays, which nothing
 * reads. Accepts NULL. */
CCS_API void ccs_batch_release(const struct ccs_batch *b);

/* The position of a run: the next batch, as plain numbers to be stored anywhere. The same on every
 * rank; valid for any number of ranks and threads, and the same batch size. */
struct ccs_loader_state {
    uint64_t struct_size; /* set by the caller */
    uint64_t fingerprint, seed, epoch, step;
    uint64_t filter, order, mix; /* hashes of these options; 0: the default */
    uint32_t batch_size, sources;
    uint64_t source_fingerprints[CCS_MAX_SOURCES];
    uint64_t source_id_offsets[CCS_MAX_SOURCES];
};

/* The position after the last batch that next returned. */
CCS_API int32_t ccs_loader_get_state(const struct ccs_loader *l,
                                     struct ccs_loader_state *out,
                                     struct ccs_error *err);

/* Continues there, also after CCS_END. No batch may be held. Returns CCS_OK, MISMATCH (it belongs
 * to another run; the message names the difference; nothing changes), INVALID, TIMEOUT (reads hang:
 * the loader can only be closed), FORKED. */
CCS_API int32_t ccs_loader_seek(struct ccs_loader *l,
                                const struct ccs_loader_state *state,
                                struct ccs_error *err);

/* Counters since open or seek. */
struct ccs_loader_stats {
    uint64_t struct_size; /* set by the caller */
    uint64_t samples;     /* delivered */
    uint64_t batches;
    uint64_t read_bytes, read_requests;
    uint64_t replaced;      /* rows, see struct ccs_batch */
    uint64_t corrupt;       /* different damaged samples, since open */
    int64_t elapsed_ns;     /* since open or seek */
    int64_t stall_ns;       /* inside next, without the first batch */
    int64_t first_batch_ns; /* from open or seek to the first batch; 0 before it */
};

/* From any thread. */
CCS_API int32_t ccs_loader_get_stats(struct ccs_loader *l,
                                     struct ccs_loader_stats *out,
                                     struct ccs_error *err);

/* ---- writer ------------------------------------------------------------------------------- */

/* Makes a dataset from samples in memory, by the rules of ccpack: the same samples with the same
 * ids and keys give its fingerprint, and in the same order its shards. The directory is a dataset
 * from finish on; after close without finish, or a crash, a new writer with `overwrite` starts
 * again. The child after a fork may not use it. */
struct ccs_writer;

struct ccs_writer_options {
    uint64_t struct_size;
    uint64_t shard_bytes;   /* a shard takes no sample that makes it larger; 1 GiB */
    uint32_t shard_samples; /* of a shard at most, [1, 1048576]; default 10000 */
    int32_t level;          /* of zstd, [1, 19]; default 3 */
    bool check;             /* decode every image; false: read its headers only; default true */
    bool overwrite;         /* replace a dataset, once a sample is accepted; other files stay */
    bool append;            /* add to a dataset, with ids after its own; not with overwrite */
    const char *container;  /* "tar.zst" or "tar"; "tar.zst" */
};
CCS_API void ccs_writer_options_init(struct ccs_writer_options *opt, uint64_t struct_size);

/* Makes the directory where needed, and locks it until close. opt may be NULL: defaults. Returns
 * CCS_OK; EXISTS (it is not empty, or another process writes to it); NOTFOUND or MISMATCH (append:
 * there is no dataset, or one that is incomplete, resized, or in another container); USAGE, IO,
 * CORRUPT, VERSION or LIMIT. */
CCS_API int32_t ccs_writer_open(struct ccs_writer **out,
                                const char *directory,
                                const struct ccs_writer_options *opt,
                                struct ccs_error *err);

#define CCS_NEXT_ID UINT64_MAX

struct ccs_new_sample {
    uint64_t struct_size;
    uint64_t id;       /* CCS_NEXT_ID: one more than the largest so far; CCS_NEXT_ID */
    const char *key;   /* its name in the shard, 1 to 80 bytes of printable ASCII but space . / \;
                          NULL: the id's digits. Of all samples of a writer, or of none; default
                          NULL */
    const void *image; /* (image_size) a JPEG, PNG, WebP or GIF of at most 64 MiB */
    size_t image_size;
    const struct ccs_text *captions; /* (caption_count), at most 256 of together 256 KiB; stored
                                        without white space around; empty ones are not stored */
    uint32_t caption_count;
    int32_t label;            /* class, -1: none; default -1 */
    struct ccs_text metadata; /* a JSON object of at most 4 MiB; size 0: none */
};
CCS_API void ccs_new_sample_init(struct ccs_new_sample *s, uint64_t struct_size);

/* Adds one sample; everything is copied. Any number of threads may add at once: they decode
 * together and store one after the other, in the order in which they get there; one thread alone
 * gives the same shards each time. A sample that is refused (CORRUPT: image, UTF-8 or JSON;
 * UNSUPPORTED: kind of image; EXISTS: the id or key is taken; LIMIT; INVALID: also a label beyond
 * the classes, where they have names) leaves the writer as it was.
 * A failure to store one, as IO, ends it: later calls repeat it. *id (may be NULL) receives the id.
 */
CCS_API int32_t ccs_writer_add(struct ccs_writer *w,
                               const struct ccs_new_sample *sample,
                               uint64_t *id,
                               struct ccs_error *err);

/* Names of the labels from 0 on, once; with append, those of the dataset first. Without it labels
 * have no names. Returns CCS_OK, INVALID (a name comes twice, or is not the dataset's, or a sample
 * has a label beyond them) or LIMIT. */
CCS_API int32_t ccs_writer_set_classes(struct ccs_writer *w,
                                       const char *const *names,
                                       uint32_t count,
                                       struct ccs_error *err);

/* Publishes the dataset; what it then is goes to info, which may be NULL. Returns CCS_OK; INVALID
 * (no sample), after which more may be added; or IO or LIMIT, which end the writer. */
CCS_API int32_t ccs_writer_finish(struct ccs_writer *w,
                                  struct ccs_dataset_info *info,
                                  struct ccs_error *err);

/* Without finish before it: removes the files that this writer wrote; with append the dataset is as
 * it was. */
CCS_API void ccs_writer_close(struct ccs_writer *w);

/* ---- tokenizer ---------------------------------------------------------------------------- */

/* Texts to token ids. Any number of threads may use one tokenizer at once, and so may the child
 * after a fork. */
struct ccs_tokenizer;

/* From the bytes of a SentencePiece model, a WordPiece vocabulary, CLIP's merges or a
 * tokenizer.json of byte-level BPE, which are copied. Returns CCS_OK, CORRUPT, LIMIT, or
 * UNSUPPORTED (a model without an end piece, or a tokenizer.json of another kind). */
CCS_API int32_t ccs_tokenizer_open(struct ccs_tokenizer **out,
                                   const void *model,
                                   size_t size,
                                   struct ccs_error *err);

/* From a file in any of these forms. "clip", where
 * no file has this name, is CLIP's tokenizer, which is built in. Also NOTFOUND and IO. */
CCS_API int32_t ccs_tokenizer_load(struct ccs_tokenizer **out,
                                   const char *path,
                                   struct ccs_error *err);

/* The one in a dataset's directory. Also NOTFOUND (there is none), MISMATCH (it is not the one that
 * the dataset names) and IO. */
CCS_API int32_t ccs_tokenizer_of_dataset(struct ccs_tokenizer **out,
                                         const struct ccs_dataset *d,
                                         struct ccs_error *err);
CCS_API void ccs_tokenizer_close(struct ccs_tokenizer *t);

/* Ids are below it. */
CCS_API uint32_t ccs_tokenizer_vocabulary(const struct ccs_tokenizer *t);
/* The id that fills a row. */
CCS_API int32_t ccs_tokenizer_pad(const struct ccs_tokenizer *t);
/* The ids before and after the pieces of a text; begin below 0: there is none. */
CCS_API int32_t ccs_tokenizer_begin(const struct ccs_tokenizer *t);
CCS_API int32_t ccs_tokenizer_end(const struct ccs_tokenizer *t);

/* Fills tokens (count, max_tokens), each row padded at its end, and lengths (count), the tokens
 * before the padding. Texts may be any bytes; wrong UTF-8 counts as U+FFFD, and only the first 64
 * KiB of a text count. clean: as clean_captions of the loader, which
 * has no effect on CLIP's tokenizer: it cleans by its own rules. Returns CCS_OK, USAGE (max_tokens
 * is not 2 to 4096), or CORRUPT (a damaged model). */
CCS_API int32_t ccs_tokenizer_encode(const struct ccs_tokenizer *t,
                                     int32_t *tokens,
                                     int32_t *lengths,
                                     const struct ccs_text *texts,
                                     uint64_t count,
                                     uint32_t max_tokens,
                                     bool clean,
                                     struct ccs_error *err);

/* ---- the numbers that a checkpoint keeps per sample ----------------------------------------- */

/* Columns by sample id: zeta, log_u, visits and others; see formats/CHECKPOINT_FORMAT.md. */
struct ccs_state;

enum ccs_column_kind {
    CCS_COLUMN_F32 = 0,   /* float; NaN: no step has written it yet */
    CCS_COLUMN_COUNT = 1, /* uint64_t; 0: likewise */
    CCS_COLUMN_ID = 2     /* uint64_t, a sample's id; UINT64_MAX: none */
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
    const char *loss;     /* its name; borrowed */
    uint64_t step;        /* steps done */
    uint64_t fingerprint; /* of the dataset */
    uint64_t samples, id_space;
    /* (id_space + 1), borrowed: columns of texts ("text.") have entries for captions, of id i from
     * [i] to [i + 1] - 1. NULL: they have one for each id, as all others. */
    const uint64_t *first_caption;
};

/* path: a checkpoint of ccstream-train, its run directory, or a file of ccs_loss_save. Returns
 * CCS_OK, NOTFOUND, IO, CORRUPT, VERSION or LIMIT. */
CCS_API int32_t ccs_state_open(struct ccs_state **out, const char *path, struct ccs_error *err);
CCS_API void ccs_state_close(struct ccs_state *s);

CCS_API int32_t ccs_state_get_info(const struct ccs_state *s,
                                   struct ccs_state_info *info,
                                   struct ccs_error *err);

/* Column i, from 0. Returns CCS_OK, NOTFOUND (there are fewer) or CORRUPT. */
CCS_API int32_t ccs_state_column(const struct ccs_state *s,
                                 uint32_t i,
                                 struct ccs_column *out,
                                 struct ccs_error *err);

/* Copies entries first to first + count - 1 of a column to values: floats or uint64_t by its kind.
 * Reads the whole column and checks it. Returns CCS_OK, NOTFOUND (no such column, or beyond its
 * end), CORRUPT or IO. */
CCS_API int32_t ccs_state_read(const struct ccs_state *s,
                               const char *column,
                               void *values,
                               uint64_t first,
                               uint64_t count,
                               struct ccs_error *err);

/* ---- losses ------------------------------------------------------------------------------- */

/* An option that a loss reads, and its value. */
struct ccs_loss_option {
    uint64_t struct_size; /* set by the caller */
    const char *name;     /* as in the options of ccs_loss_open: "tau-max" */
    const char *choice;   /* "cosine", of an option with named values; "auto"; NULL: a number */
    double value;         /* of a number */
};

/* Option i, from 0, that loss `name` reads if these options are given, and its value: given, or the
 * loss's own. name, views and options: as of ccs_loss_open, and zeta-lr, zeta-lr-image-ratio and
 * zeta-freeze-epochs too; gamma-epochs and beta-epochs are 0 unless given. Returns CCS_OK, NOTFOUND
 * (there are fewer), or USAGE (name or options). */
CCS_API int32_t ccs_loss_option(const char *name,
                                bool views,
                                const char *const *options,
                                uint32_t option_count,
                                uint32_t i,
                                struct ccs_loss_option *out,
                                struct ccs_error *err);

/* A contrastive loss over host arrays, with its state by sample id. */
struct ccs_loss;

/* name: as --loss of ccstream-train. views: two views of images instead of pairs. options:
 * (option_count) texts as "tau=0.01", with the names, ranges and defaults of ccstream-train's, of
 * those that the loss reads; gamma-epochs and beta-epochs have no default; instead of zeta-lr,
 * zeta-lr-image-ratio and zeta-freeze-epochs are the step sizes of each step, which with
 * zeta-lr=auto (and there zeta-freeze-epochs) are 1, or 0 in frozen epochs. samples: live ones of
 * the dataset, at least 2; id_space: greater than every id. max_batch: pairs of a step at most, [2,
 * 32768]. Returns CCS_OK, USAGE (name or options) or NOMEM. */
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

/* Samples beyond the batch, one for each anchor, which the caller encodes with today's model. */
enum ccs_loss_beyond {
    CCS_BEYOND_NONE = 0,  /* the loss needs none */
    CCS_BEYOND_NAMED = 1, /* emc2: those that ccs_loss_carried names */
    CCS_BEYOND_DRAWN = 2  /* negcache: the caller draws them, sample j with probability proportional
                             to exp(similarity / tau), from features that it keeps of all samples;
                             option cache-refresh has no effect */
};
CCS_API int32_t ccs_loss_beyond(const struct ccs_loss *l);

/* Fills out (2, batch), images then texts or first views then second ones, with the id of the
 * sample that each anchor of the batch with these ids needs in its next step; UINT64_MAX: none.
 * Returns CCS_OK, or UNSUPPORTED (a loss that names none). */
CCS_API int32_t ccs_loss_carried(struct ccs_loss *l,
                                 uint64_t *out,
                                 const uint64_t *ids,
                                 uint32_t batch,
                                 struct ccs_error *err);

struct ccs_loss_input {
    uint64_t struct_size; /* set by the caller */
    /* (B, B) image i with text j, of L2-normalised embeddings; with two views (2B, 2B) of all views
     * with all, rows 0 to B - 1 the first views. */
    const float *similarity;
    const float *image_similarity, *text_similarity; /* (B, B) each; of cyclip alone, else NULL */
    const uint64_t *ids;                             /* (B), below the id space */
    uint64_t step, epoch;                            /* from 0 */
    double lr;                          /* of the model in this step: learned scalars follow it */
    double zeta_lr_image, zeta_lr_text; /* nuclr: step sizes of zeta in this step; 0: frozen */
    uint32_t batch_size; /* B, [2, max_batch]; with option positives a multiple of it */
    uint32_t reserved;
    /* (2, B) of a loss with samples beyond the batch, else NULL: the samples, UINT64_MAX where an
     * anchor has none (it cannot be read any more), and the similarity of each with its anchor. */
    const uint64_t *carried_ids;
    const float *carried_similarity;
    uint32_t frozen;    /* 1: the state stays as it is; 0: the step brings it up to date */
    uint32_t reserved2; /* 0 */
};

struct ccs_loss_output {
    uint64_t struct_size;                  /* set by the caller, and these three: */
    float *gradient;                       /* as similarity; written */
    float *image_gradient, *text_gradient; /* (B, B) each; of cyclip alone, else NULL; written */
    double value;            /* what the gradient is the gradient of; weights count as constants */
    double objective;        /* an estimate of the loss over the whole dataset */
    double tau;              /* the temperature of this step */
    float *carried_gradient; /* set by the caller: as carried_similarity; written; else NULL */
};

/* Value, gradient, and the state of the batch's samples brought up to date, unless in->frozen.
 * Returns CCS_OK, or CORRUPT (a similarity is not finite; the state is as it was). */
CCS_API int32_t ccs_loss_step(struct ccs_loss *l,
                              const struct ccs_loss_input *in,
                              struct ccs_loss_output *out,
                              struct ccs_error *err);

/* The state by sample id: columns as of ccs_state. Reading and writing return CCS_OK, NOTFOUND (no
 * such column, or beyond its end), or INVALID (an id that is not below the id space). */
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

/* The rest of the state, such as "image.xi": see CHECKPOINT_FORMAT.md, loss.state.NAME. Name i,
 * from 0; NULL: there are fewer. Get and set return CCS_OK or NOTFOUND; values are finite. */
CCS_API const char *ccs_loss_scalar_name(const struct ccs_loss *l, uint32_t i);
CCS_API int32_t ccs_loss_get_scalar(const struct ccs_loss *l,
                                    const char *name,
                                    double *value,
                                    struct ccs_error *err);
CCS_API int32_t ccs_loss_set_scalar(struct ccs_loss *l,
                                    const char *name,
                                    double value,
                                    struct ccs_error *err);

/* Writes the state as a checkpoint without a model, atomically: ccs_state_open, `ccdump state` and
 * `ccdump popularity` read it. fingerprint: of the dataset; step: steps done. Returns CCS_OK, IO,
 * or EXISTS (there is something at path that ccs_loss_save did not make). */
CCS_API int32_t ccs_loss_save(const struct ccs_loss *l,
                              const char *path,
                              uint64_t fingerprint,
                              uint64_t step,
                              struct ccs_error *err);

/* Reads what ccs_loss_save or ccstream-train wrote for the same loss; ids that it lacks keep their
 * values. Returns as ccs_state_open, or MISMATCH (of another loss, or for more ids). After a
 * failure other than these two the state is undefined until a load succeeds. */
CCS_API int32_t ccs_loss_load(struct ccs_loss *l, const char *path, struct ccs_error *err);

#ifdef __cplusplus
}
#endif

#endif
