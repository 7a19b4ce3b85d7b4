/*
 * rejects: rejects.jsonl, one JSON object a line for each row that was rejected. Until the run has
 * ended it is rejects.jsonl.tmp.
 *
 * Threading : one owner; pack_rejects_sync may run on another thread meanwhile.
 */
#ifndef PACK_RUN_REJECTS_INTERNAL_H
#define PACK_RUN_REJECTS_INTERNAL_H

#include "formats/base/json_writer.h"
#include "pack/pack.h"

#define PACK_REJECTS_TEMPORARY PACK_REJECTS_NAME ".tmp"

struct pack_rejects {
    const struct file_system *fs;
    const char *directory;
    struct file *file; /* under its temporary name; NULL before it is opened and once published */
    uint64_t size_bytes;
    struct byte_buffer waiting; /* lines added before it is opened */
    struct json_writer line;
};

/* A list that has `size_bytes` bytes so far. Changes no file. */
void pack_rejects_init(struct pack_rejects *r,
                       const struct file_system *fs,
                       const char *directory,
                       uint64_t size_bytes);

/* Opens the list under its temporary name, truncated to the size it was initialised with: the
 * temporary file where there is one, else a copy of the published list (`keep`), else the published
 * list. Writes the lines that wait. */
enum status pack_rejects_open(struct pack_rejects *r, bool keep, struct error *err);

/* Replaces the content of `w` by the line of a row. */
void pack_rejects_line(struct json_writer *w, const char *source, const struct source_row *row);
enum status pack_rejects_add(struct pack_rejects *r,
                             const char *source,
                             const struct source_row *row,
                             struct error *err);
enum status pack_rejects_sync(struct pack_rejects *r, struct error *err);

/* Gives the complete list its final name, and closes it. */
enum status pack_rejects_publish(struct pack_rejects *r, struct error *err);
void pack_rejects_close(struct pack_rejects *r); /* accepts an all-zero one */

#endif
