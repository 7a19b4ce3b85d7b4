/*
 * ccstream.h: the C library libccstream: packed image-text datasets.
 *
 *     struct ccs_error err;
 *     struct ccs_dataset *d = NULL;
 *     struct ccs_reader *r = NULL;
 *     const struct ccs_sample *s = NULL;
 *     if (ccs_dataset_open(&d, "cc3m", &err) != CCS_OK ||
 *         ccs_reader_open(&r, d, &err) != CCS_OK || ccs_reader_get(r, 0, &s, &err) != CCS_OK) {
 *         puts(err.text);
 *     }
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
 * Ownership : X_open gives a handle that X_close ends, which accepts NULL. Texts and options that
 *             are passed in are copied; results are borrowed as stated.
 * Growth    : structs begin with struct_size. The caller sets it, or the _init function where
 *             there is one, to the size of the struct. Later versions append fields, never change
 *             one, and accept the structs of earlier versions; of structs that they fill, only the
 *             fields that the caller has. Numbers of enums never change.
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

/* ---- dataset ------------------------------------------------------------------------------ */

/* A directory that ccpack made. Positions run from 0 to samples - 1 in id order; an id never
 * changes, positions do when the dataset grows or loses samples. Any number of threads may use one
 * dataset at once, and so may the child after a fork. */
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

#ifdef __cplusplus
}
#endif

#endif
