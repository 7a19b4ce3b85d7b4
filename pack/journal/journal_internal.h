/*
 * journal: pack.journal, from which --resume continues.
 *
 *     head     everything that decides the bytes: options, sources, the dataset before an append
 *     begin    size of rejects.jsonl at the start; rows of the sources, where they were counted
 *     shard    what dataset.json will say about it, and the point after it: next row, counts, the
 *              hash of the rows before it, and what identifies the sources that have ended
 *     shard    ...
 *
 * Threading : one owner at a time; the finishing thread adds lines.
 * Untrusted : the file. Every line carries its hash, so a torn line is recognised.
 */
#ifndef PACK_JOURNAL_JOURNAL_INTERNAL_H
#define PACK_JOURNAL_JOURNAL_INTERNAL_H

#include "formats/base/json_writer.h"
#include "formats/shard/shard_writer.h"
#include "pack/run/plan_internal.h"

enum { PACK_JOURNAL_VERSION = 2, PACK_JOURNAL_MAX_BYTES = 512 << 20 };

/* The kind of a journal that nothing resumes from: of a pack_writer. It shows which files in the
 * directory are the writer's. */
#define PACK_JOURNAL_WRITE "write"

/* The JSON of the first line: everything that decides the bytes. Runs with equal heads give equal
 * bytes. With append, `old` and its first `generations` are the dataset that the append was begun
 * on. Returns OK, NOMEM or LIMIT. */
enum status pack_journal_head(struct byte_buffer *out,
                              const struct pack_options *opt,
                              const struct manifest *old,
                              size_t generations,
                              struct error *err);

/* Reads the journal: compares its head with p->head and moves p->point to its last line. Returns
 * OK, MISMATCH (the message names what differs), CORRUPT, NOTFOUND, IO, LIMIT or NOMEM. */
enum status pack_journal_read(struct pack_plan *p, struct error *err);

/* Only compares the head. Returns as pack_journal_read. */
enum status pack_journal_compare(struct pack_plan *p, struct error *err);

/* pack_journal_read from memory; `name` is for messages. */
enum status pack_journal_parse(struct pack_plan *p,
                               const char *name,
                               const uint8_t *text,
                               size_t size_bytes,
                               struct error *err);

/* What kind of run a journal belongs to. */
struct pack_journal_kind {
    char name[16];        /* "pack", "write", "append" or "merge" */
    uint64_t generations; /* of the dataset before an append */
    bool tars;            /* its shards are .tar */
    char part[24];        /* "3/8"; empty: of no part */
};

/* Returns OK, CORRUPT (no journal), VERSION, or as pack_journal_read. */
enum status pack_journal_kind(struct pack_journal_kind *out,
                              const struct file_system *fs,
                              const char *directory,
                              struct error *err);

/* Whether the journal of a directory has this head. */
enum status pack_journal_has_head(bool *out,
                                  const struct file_system *fs,
                                  const char *directory,
                                  const struct byte_buffer *head,
                                  struct error *err);

/* Writes a new journal atomically: its head and, where `p` is given, the begin line, after which
 * p->journal_bytes is its size. */
enum status pack_journal_begin(const struct file_system *fs,
                               const char *directory,
                               const struct byte_buffer *head,
                               struct pack_plan *p,
                               struct error *err);

/* Appends a line: the JSON and its hash. */
enum status pack_journal_wrap(struct byte_buffer *out,
                              const uint8_t *text,
                              size_t size_bytes,
                              struct error *err);

/* Finds the JSON in a line without its line feed. False: the line is damaged. */
bool pack_journal_unwrap(const uint8_t **json,
                         size_t *json_bytes,
                         const uint8_t *line,
                         size_t size_bytes);

struct json_value;

struct pack_journal {
    const struct pack_plan *plan;
    struct file *file; /* NULL: not open */
    struct json_writer line;
    size_t source;      /* the sources before this one are in the journal */
    size_t class_count; /* so many of the manifest's classes are in it */
};

enum status pack_journal_open(struct pack_journal *j, const struct pack_plan *p, struct error *err);
void pack_journal_close(struct pack_journal *j); /* accepts an all-zero one */

/* Members "rejected" and "ignored" of the open object. */
void pack_journal_put_counts(struct json_writer *w,
                             const uint64_t rejected_by[REASON_COUNT],
                             const struct source_ignored *ignored);
/* Reads them. False: they are missing or wrong. */
bool pack_journal_get_counts(uint64_t rejected_by[REASON_COUNT],
                             struct source_ignored *ignored,
                             const struct json_value *v);

/* Replaces the content of `w` by the point as JSON, with the `sources` that have ended and the
 * classes of `m` that are not in the journal yet. */
enum status pack_journal_point(struct pack_journal *j,
                               struct json_writer *w,
                               const struct manifest *m,
                               const struct pack_point *p,
                               const struct manifest_source *sources,
                               struct error *err);

/* Adds a line with a shard (NULL: none) and the point after it. The line is on the disk when this
 * returns OK. */
enum status pack_journal_add(struct pack_journal *j,
                             const struct shard_summary *shard,
                             const struct json_writer *point,
                             struct error *err);

#endif
