/*
 * columns: values attached to a dataset's samples by id after packing: captions, vectors, numbers,
 * texts. Each column is one file, DATASET/columns/NAME.ccc (see COLUMNS_FORMAT.md). It is replaced
 * atomically; readers keep the version that they have opened.
 *
 * Threading : an open column is immutable: any number of threads may read it, each with its own
 *             workspace. A block and a writer have one owner each.
 * Ownership : a row of numbers is borrowed from the column until column_close, a text from the
 *             workspace until its next use.
 * Untrusted : every byte. Each row has a checksum that covers its id.
 */
#ifndef FORMATS_COLUMNS_COLUMNS_H
#define FORMATS_COLUMNS_COLUMNS_H

#include "formats/base/file_io.h"
#include "formats/dataset/manifest.h"
#include "formats/tensors/safetensors.h"

#define COLUMNS_FOLDER   "columns"
#define COLUMN_LIST_NAME COLUMNS_FOLDER "/names.txt"

enum {
    COLUMNS_VERSION = 2,
    COLUMNS_MAX = 64, /* of a dataset */
    COLUMN_MAX_NAME_BYTES = 32,
    COLUMN_MAX_ROW_BYTES = 1 << 17,  /* of numbers */
    COLUMN_MAX_TEXT_BYTES = 4 << 20, /* of a row of texts */
    COLUMN_MAX_CAPTIONS = 1024,      /* of a row */
};

/* Kinds of texts; kinds of numbers are enum safetensors_dtype. */
enum { COLUMN_CAPTIONS = 32, COLUMN_TEXT, COLUMN_JSON };

struct column_info {
    char name[COLUMN_MAX_NAME_BYTES + 1]; /* of a-z 0-9 _ */
    int kind;
    uint32_t values;      /* numbers per row; 0: texts */
    uint32_t vectors;     /* vectors of equal length that a row consists of; 0: texts */
    uint64_t rows;        /* set by the writer, as hash */
    uint64_t hash;        /* XXH64 of everything before the info: identifies the column */
    uint64_t fingerprint; /* of the dataset that it was attached to */
    char *source;         /* how it was made, as a JSON object */
};

/* "f32", "captions". find returns 0 for an unknown kind. */
const char *column_kind_name(int kind);
int column_kind_find(const char *name);
uint32_t column_row_bytes(const struct column_info *c); /* 0: texts */

/* DATASET/columns/NAME.ccc. Returns OK, USAGE (not a valid column name) or LIMIT. */
enum status
column_path(char out[PATH_MAX_BYTES], const char *directory, const char *name, struct error *err);

/* Names of a dataset's columns, sorted: the files of the folder, or for a remote dataset, whose
 * folder cannot be listed, the lines of COLUMN_LIST_NAME. Empty if there is neither. Returns OK,
 * IO, LIMIT, NOMEM or CORRUPT.
 */
struct column_names {
    char items[COLUMNS_MAX][COLUMN_MAX_NAME_BYTES + 1];
    size_t count;
};
enum status column_names_read(struct column_names *out,
                              const struct file_system *fs,
                              const char *directory,
                              struct error *err);

/* ---- reading --------------------------------------------------------------------------------- */

struct column;           /* opaque */
struct column_workspace; /* opaque: the last decompressed texts */

/* Maps the file. `dataset` NULL: does not check which dataset it belongs to. Returns OK, NOTFOUND,
 * MISMATCH (attached to another dataset), CORRUPT, VERSION, USAGE, IO, LIMIT or NOMEM. */
enum status column_open(struct column **out,
                        const struct file_system *fs,
                        const char *directory,
                        const char *name,
                        const struct manifest *dataset,
                        struct error *err);
void column_close(struct column *c); /* accepts NULL */
const struct column_info *column_info(const struct column *c);

enum status column_workspace_create(struct column_workspace **out,
                                    struct error *err);    /* OK, NOMEM */
void column_workspace_destroy(struct column_workspace *s); /* accepts NULL */

uint64_t column_row_id(const struct column *c, uint64_t row); /* ascending */
bool column_has(const struct column *c, uint64_t id);

/* The row of a sample; `workspace` may be NULL for numbers. Returns OK, NOTFOUND without a message
 * (the sample has no row), CORRUPT or NOMEM. */
enum status column_get(const struct column *c,
                       struct column_workspace *workspace,
                       uint64_t id,
                       const uint8_t **row,
                       size_t *row_bytes,
                       struct error *err);

/* Number i of a row of numbers. */
double column_number(const struct column *c, const uint8_t *row, uint32_t i);

/* Converts all numbers of a row to out (info.values). */
void column_floats(const struct column *c, const uint8_t *row, float *out);

/* Iterates over the captions of a row, from a zeroed struct; false: no more. */
struct column_caption {
    const char *text; /* borrowed from the row */
    size_t size_bytes;
    uint32_t source; /* index of the table's column that it comes from */
    float weight;
    uint32_t next; /* of the row */
};
bool column_next_caption(struct column_caption *c, const uint8_t *row, size_t row_bytes);

/* Reads and checks every byte. Returns OK, CORRUPT or NOMEM. */
enum status column_verify(const struct column *c, struct error *err);

/* ---- writing, with the lock of the dataset's directory --------------------------------------- */

/* Rows in memory, before they are written. Zero-initialise. */
struct column_block {
    struct byte_buffer data, ids, checks, frames, frame;
    uint64_t rows;
    struct zstd_packer *packer;
};
void column_block_fini(struct column_block *b);

/* Appends a row; ids must ascend. Returns OK, NOMEM, LIMIT (too long) or USAGE (not a valid row of
 * captions, or a text with a NUL byte). */
enum status column_block_add(struct column_block *b,
                             const struct column_info *info,
                             uint64_t id,
                             const void *row,
                             size_t row_bytes,
                             struct error *err);

struct column_writer; /* opaque */

/* Removes drafts of this column left by killed processes, and opens a new one. `info` is borrowed.
 * Returns OK, NOMEM, USAGE, LIMIT or IO. */
enum status column_writer_create(struct column_writer **out,
                                 const struct file_system *fs,
                                 const char *directory,
                                 struct column_info *info,
                                 struct error *err);
void column_writer_destroy(struct column_writer *w); /* accepts NULL; removes the draft */

/* Writes the block's rows and empties it. The file's bytes depend on the division into blocks.
 * Returns OK, IO or NOMEM. */
enum status column_writer_put(struct column_writer *w, struct column_block *b, struct error *err);

/* Adds the column to the list, then publishes it: if the process is killed in between, the list
 * names a column too many, never one too few. Returns OK, IO, LIMIT or NOMEM. */
enum status column_writer_finish(struct column_writer *w, struct error *err);

struct column_copy {
    const struct file_system *from_fs, *fs;
    const char *const *from; /* directories of datasets with disjoint ids */
    size_t from_count;
    const char *to;       /* may be the only one of `from`: then columns that lose no row stay */
    uint64_t fingerprint; /* of the new columns; 0: they keep theirs */
    bool (*keep)(const void *cookie, uint64_t id); /* NULL: all */
    const void *cookie;
};

/* Checks that COLUMN_LIST_NAME lists the columns of the folder and, unless NULL, `more`; with
 * `write` it is rewritten if not. Returns OK, NOTFOUND (no list, as in datasets of older versions),
 * MISMATCH, LIMIT (too many columns), IO or NOMEM. */
enum status column_list_mend(const struct file_system *fs,
                             const char *directory,
                             const char *more,
                             bool write,
                             struct error *err);

/* Deletes all columns. Returns OK or IO. */
enum status
column_remove_all(const struct file_system *fs, const char *directory, struct error *err);

/* Copies the rows to keep of all columns. Returns OK, MISMATCH (columns of one name that differ in
 * kind), or what reading and writing return. */
enum status column_copy_all(const struct column_copy *how, struct error *err);

#endif
