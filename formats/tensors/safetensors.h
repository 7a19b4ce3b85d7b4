/*
 * safetensors: named tensors and string metadata in one file: atomic save, verified load.
 *
 * The container is the public safetensors format. Files written here carry one more tensor,
 * "ccstream.xxh64", last in the file, with the hash of the header and of every tensor: it is
 * checked on load where present, and hidden from the caller. formats/CHECKPOINT_FORMAT.md has the
 * bytes.
 *
 * Threading : a writer has one owner. An open reader is immutable: its functions may be called from
 *             several threads.
 * Ownership : the writer owns a draft (file_io.h) until finish; the reader owns its file and
 * everything that its pointers lead to, until close. Untrusted : every byte of the file that is
 * read. Sizes are checked against the limits below and against the file's real size before anything
 * is allocated or used.
 */
#ifndef FORMATS_TENSORS_SAFETENSORS_H
#define FORMATS_TENSORS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/file_io.h"
#include "formats/base/status.h"

enum safetensors_dtype {
    SAFETENSORS_F32 = 1,
    SAFETENSORS_BF16,
    SAFETENSORS_F16,
    SAFETENSORS_F64,
    SAFETENSORS_I32,
    SAFETENSORS_I64,
    SAFETENSORS_U64,
    SAFETENSORS_U32,
    SAFETENSORS_U8,
    SAFETENSORS_I8,
};

enum {
    SAFETENSORS_MAX_DIMS = 8,
    SAFETENSORS_MAX_NAME_BYTES = 1024,       /* of a tensor's name and of a metadata key */
    SAFETENSORS_MAX_TENSORS = 1 << 15,       /* also the limit of metadata entries */
    SAFETENSORS_MAX_HEADER_BYTES = 16 << 20, /* names, shapes and all metadata */
};

/* Bytes of one element; 0 for a number that is no dtype. */
size_t safetensors_dtype_bytes(enum safetensors_dtype dtype);

/* "F32", "BF16", ...; "?" for a number that is no dtype. */
const char *safetensors_dtype_name(enum safetensors_dtype dtype);

/* ---- writing ----------------------------------------------------------------------------------
 * Order of calls: create, metadata and declare in any order, data for every declared tensor in the
 *                 order of declaration (a tensor may be written by several calls), finish, destroy.
 *                 Equal calls give equal bytes. */

struct safetensors_writer;

/* Opens a draft of PATH. Returns OK, NOMEM, IO, NOTFOUND (no such directory) or LIMIT (path too
 * long). `fs` is borrowed. */
enum status safetensors_writer_create(struct safetensors_writer **out,
                                      const struct file_system *fs,
                                      const char *path,
                                      struct error *err);

/* Accepts NULL. Before a successful finish it removes the draft; PATH stays unchanged. */
void safetensors_writer_destroy(struct safetensors_writer *w);

/* For programs that accept no tensor beyond those that they know: a file without hashes, which
 * checkpoint_open refuses. Before the first data. */
void safetensors_writer_omit_hashes(struct safetensors_writer *w);

/* One metadata entry; both strings are copied and must be UTF-8. Returns OK, NOMEM, LIMIT, INVALID
 * (empty or reserved key, not UTF-8, or data was written already) or EXISTS. */
enum status safetensors_writer_metadata(struct safetensors_writer *w,
                                        const char *key,
                                        const char *value,
                                        struct error *err);

/* One tensor of shape[0..dim_count); dim_count 0 is a scalar, an extent of 0 an empty tensor. The
 * name is copied. Returns OK, NOMEM, LIMIT, INVALID (empty or reserved name, not UTF-8, or data
 * was written already) or EXISTS. */
enum status safetensors_writer_declare(struct safetensors_writer *w,
                                       const char *name,
                                       enum safetensors_dtype dtype,
                                       const uint64_t *shape,
                                       uint32_t dim_count,
                                       struct error *err);

/* The next bytes of the tensors' data, in order; a call may not span two tensors. Returns OK, IO,
 * NOMEM, LIMIT or INVALID (more bytes than declared). */
enum status safetensors_writer_data(struct safetensors_writer *w,
                                    const void *data,
                                    size_t size_bytes,
                                    struct error *err);

/* Requires that all data was written. fsync, rename to PATH, fsync of the directory. Returns OK,
 * IO, NOMEM, LIMIT or INVALID (data is missing); on failure PATH is unchanged, unless only the last
 * fsync of the directory failed. */
enum status safetensors_writer_finish(struct safetensors_writer *w, struct error *err);

/* ---- reading ----------------------------------------------------------------------------------
 */

struct safetensors;

struct safetensors_info {
    const char *name;
    enum safetensors_dtype dtype;
    uint32_t dim_count;
    uint64_t shape[SAFETENSORS_MAX_DIMS];
    uint64_t element_count;
    uint64_t size_bytes;
    uint64_t offset_bytes; /* in the file */
};

/* Opens a file and checks its header whole: size, JSON, names, dtypes, shapes, offsets that cover
 * the data exactly once, and the hash of the header where the file has one. Returns OK, NOTFOUND,
 * IO, NOMEM, CORRUPT, LIMIT or UNSUPPORTED (a dtype that is not in the list). `fs` is borrowed
 * until close. */
enum status safetensors_open(struct safetensors **out,
                             const struct file_system *fs,
                             const char *path,
                             struct error *err);
void safetensors_close(struct safetensors *r); /* accepts NULL */

/* Tensors in the order of their data, without the hashes. */
size_t safetensors_count(const struct safetensors *r);
const struct safetensors_info *safetensors_at(const struct safetensors *r, size_t index);

/* NULL when there is none of this name. */
const struct safetensors_info *safetensors_find(const struct safetensors *r, const char *name);

/* PREFIX + NAME and NAME change their names, where the file has both in one shape. Returns how many
 * pairs did. */
size_t safetensors_swap_names(struct safetensors *r, const char *prefix);

size_t safetensors_metadata_count(const struct safetensors *r);
const char *safetensors_metadata_key(const struct safetensors *r, size_t index);

/* The value of `key`, or NULL. */
const char *safetensors_metadata(const struct safetensors *r, const char *key);

/* Whether the file carries hashes. */
bool safetensors_has_hashes(const struct safetensors *r);

/* Reads one tensor whole; size_bytes must be the tensor's. Checks its hash where the file has one.
 * Returns OK, IO, CORRUPT or INVALID (wrong size). */
enum status safetensors_read(const struct safetensors *r,
                             const struct safetensors_info *tensor,
                             void *out,
                             size_t size_bytes,
                             struct error *err);

enum { SAFETENSORS_PIECE_BYTES = 1 << 20 };

/* Reads one tensor in chunks of whole elements, at most SAFETENSORS_PIECE_BYTES each: calls take
 * with each in order, then checks the hash as safetensors_read does. So the data is valid only if
 * this returns OK; else IO, NOMEM or CORRUPT. */
enum status
safetensors_read_pieces(const struct safetensors *r,
                        const struct safetensors_info *tensor,
                        void (*take)(void *cookie, const void *piece, size_t size_bytes),
                        void *cookie,
                        struct error *err);

#endif
