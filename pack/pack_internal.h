/*
 * pack_internal: the halves of the packer: what a worker does with a row, and what is done with the
 * results in their order.
 */
#ifndef PACK_PACK_INTERNAL_H
#define PACK_PACK_INTERNAL_H

#include "formats/base/json_writer.h"
#include "formats/manifest.h"
#include "formats/shard_writer.h"
#include "pack/pack.h"

/* A row on its way. */
struct pack_item {
    size_t source; /* index in options.sources */
    uint64_t id;
    uint64_t position_bytes; /* of the source, once this row was read */
    struct source_row row;
    struct byte_buffer resized; /* the new JPEG, where there is one */
    struct shard_frame frame;
    char key[SHARD_MAX_KEY_BYTES + 1]; /* safe; may yet be taken in its shard */
    struct shard_sample sample;        /* borrows from row, resized and the captions below */
    struct shard_text captions[SOURCE_MAX_CAPTIONS];
    enum status status; /* anything but OK ends the run */
    struct error error;
};

void pack_item_init(struct pack_item *item);
void pack_item_fini(struct pack_item *item);

/* What one worker needs. */
struct pack_worker;

enum status
pack_worker_create(struct pack_worker **out, const struct pack_options *opt, struct error *err);
void pack_worker_destroy(struct pack_worker *w); /* accepts NULL */

/* Loads, checks, resizes and builds the frame. A row that cannot be used gets its reason; anything
 * else that goes wrong is in item->status. */
void pack_worker_run(struct pack_worker *w, struct pack_item *item);

/* The source's key with every byte that a shard does not take made '_', and only its end when it is
 * too long. */
void pack_safe_key(char out[SHARD_MAX_KEY_BYTES + 1], const char *key);

/* Makes the directory. One that holds anything is refused, or, to be overwritten, cleared of what
 * the packer itself writes; nothing else in it is ever removed. Returns OK, EXISTS, USAGE (a source
 * is a file that would be replaced), NOTFOUND, IO or NOMEM. */
enum status pack_directory_prepare(const struct pack_options *opt, struct error *err);

/* The ordered end. */
struct pack_commit {
    const struct pack_options *opt;
    const struct file_system *fs;
    struct pack_summary *summary;
    struct manifest manifest;
    struct shard_writer *writer; /* NULL between shards */
    struct shard_frame_builder *builder;
    struct file *rejects; /* under its temporary name; NULL once published */
    struct json_writer line;
    uint64_t finished_bytes; /* of the shards before this one */
    uint64_t finished_samples;
};

/* Refuses or clears the directory, makes it, and begins rejects.jsonl. */
enum status pack_commit_open(struct pack_commit *c,
                             const struct pack_options *opt,
                             struct pack_summary *summary,
                             struct error *err);

/* Takes the next row in order. Returns OK; CORRUPT when there are too many bad rows or an id comes
 * twice; LIMIT, IO or NOMEM. */
enum status pack_commit_add(struct pack_commit *c, struct pack_item *item, struct error *err);

/* After the last row: is the share of bad ones small enough? Returns OK or CORRUPT. */
enum status pack_commit_judge(const struct pack_commit *c, struct error *err);

/* Finishes the shard and writes dataset.json. `rows` are those taken of each source; `partial`:
 * there may be more, and dataset.json says so. */
enum status pack_commit_finish(struct pack_commit *c,
                               const uint64_t *rows,
                               size_t sources,
                               bool partial,
                               struct error *err);

/* Removes what was not finished. Accepts an all-zero one. */
void pack_commit_close(struct pack_commit *c);

#endif
