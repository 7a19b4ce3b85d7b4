/*
 * input: a dataset, a shard or a plain tar as one list of samples, sorted by id.
 *
 *   dataset  a directory with dataset.json: reads the indexes, and samples' bytes on demand
 *   shard    a single shard file, without the manifest: reads its own index
 *   tar      a plain WebDataset tar, also .gz and .zst, or "-": no index, read from beginning to
 *            end; ids are row numbers, and a row that cannot be packed has a problem
 *
 * input_next, input_find and input_at choose the current sample; input_caption and input_read read
 * its parts.
 *
 * Threading : single-owner.
 * Ownership : the input owns everything it returns; texts, images and facts are borrowed until
 *             the next call that chooses a sample.
 * Untrusted : every byte; limits as in formats/shard/shard.h and pack/source/source.h.
 */
#ifndef TOOLS_INSPECT_INPUT_H
#define TOOLS_INSPECT_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/json_writer.h"
#include "formats/columns/columns.h"
#include "formats/dataset/manifest.h"
#include "formats/shard/shard.h"

#define INPUT_UNKNOWN UINT64_MAX

enum { INPUT_MAX_KEY_BYTES = 4096 };

enum input_kind { INPUT_DATASET, INPUT_SHARD, INPUT_TAR };

/* Read-only for users. */
struct input {
    enum input_kind kind;
    const struct input_ops *ops;     /* of the kind */
    const struct manifest *manifest; /* of a dataset; NULL for other kinds */
    const char *container;           /* "tar.zst", ...; "webdataset" for a plain tar */
    const char *path;                /* as given to open */
    bool all_numbers; /* of columns of any size, else only the first; set by the caller */
    struct input_columns *columns; /* of a dataset, after input_open_columns */
    uint64_t sample_count;         /* INPUT_UNKNOWN for a tar not read to its end */
    uint64_t next_position;
};

/* A sample's fields in the index; for a tar, computed from its bytes. */
struct sample_facts {
    uint64_t position; /* among all samples, from 0 */
    uint64_t id;
    uint64_t first_text_id; /* INPUT_UNKNOWN in a tar; in a shard counted from its first text */
    uint64_t offset;        /* in `file`, of the image; in a plain tar of the row's first member */
    uint64_t image_hash, caption_hash;
    const char *file; /* name without folder */
    uint32_t caption_count;
    uint32_t image_bytes; /* 0: a row without an image */
    uint32_t width_px, height_px;
    enum image_format format;
    uint32_t flags;
    int32_t label;
    const char *class_name; /* NULL: unknown */
    const char *problem;    /* why a tar's row cannot be packed; NULL: it can */
};

/* The parts of a sample that are not in the index. */
struct sample_content {
    const char *key;
    const struct shard_text *captions; /* (facts.caption_count) */
    struct shard_text json;            /* data NULL: none */
    const uint8_t *image;              /* (facts.image_bytes) */
};

/* The kind of input at `path`. Returns OK, NOTFOUND, IO, or CORRUPT (none of the kinds). */
enum status input_kind_of(enum input_kind *out, const char *path, struct error *err);

/* Whether the file `name` of a directory is a shard, by its last bytes or by an index next to it.
 * False if it cannot be read. */
bool input_is_shard(const char *directory, const char *name);

/* Returns OK, or what input_kind_of and opening that kind return. On failure *out is NULL. `path`
 * is borrowed until close. */
enum status input_open(struct input **out, const char *path, struct error *err);
void input_close(struct input *in); /* accepts NULL */

/* NULL: the class has no name. */
const char *input_class_name(const struct input *in, int32_t label);

/* input_next will return the first sample with id >= `id`. Returns OK, or a failure of reading. */
enum status input_from(struct input *in, uint64_t id, struct error *err);

/* The sample after the current one, initially the first one. Returns OK; END after the last; IO,
 * CORRUPT, NOMEM or LIMIT. */
enum status input_next(struct input *in, struct sample_facts *out, struct error *err);

/* The sample with this id, or at this position. Return OK, NOTFOUND, or as input_next. */
enum status input_find(struct input *in, struct sample_facts *out, uint64_t id, struct error *err);
enum status
input_at(struct input *in, struct sample_facts *out, uint64_t position, struct error *err);

/* Caption k of the current sample; does not read the image if there is an index. Borrowed until the
 * next caption. Requires k < facts.caption_count. Returns OK, CORRUPT, IO or NOMEM. */
enum status input_caption(struct input *in, struct shard_text *out, uint32_t k, struct error *err);

/* The whole current sample, checked against its hashes. Returns OK, IO, CORRUPT, LIMIT or NOMEM. */
enum status input_read(struct input *in, struct sample_content *out, struct error *err);

/* The attached columns of a dataset. */
struct input_columns {
    size_t count;
    struct column_workspace *workspace;
    struct column *items[COLUMNS_MAX]; /* NULL: cannot be opened, and */
    struct error errors[COLUMNS_MAX];  /* why */
    struct column_names names;
};

/* Opens in->columns, unless they are open; NULL for inputs that are not datasets. Returns OK, IO,
 * LIMIT or NOMEM. */
enum status input_open_columns(struct input *in, struct error *err);

/* Writes the field "columns", the values of a sample of a dataset with columns. A column that
 * cannot be read has an "error". Returns OK, IO, LIMIT or NOMEM. */
enum status
input_put_columns(struct input *in, struct json_writer *w, uint64_t id, struct error *err);

/* The sample's key in its source, if the shard could not store it: "key" of its metadata. False if
 * there is none, or the text is not JSON. */
bool sample_original_key(char out[INPUT_MAX_KEY_BYTES], const struct shard_text *json);

#endif
