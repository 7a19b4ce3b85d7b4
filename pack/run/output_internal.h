/*
 * output: the directory of a new dataset that is made of others (merge, subset): locked, taken only
 * if it is free or holds the beginning of the same work, with a journal until the work is complete.
 *
 *     fill head --> look --> [begin --> files, dataset.json --> end]
 *
 * Threading : single-owner.
 * Ownership : what the first five fields point at is borrowed for the work.
 */
#ifndef PACK_RUN_OUTPUT_INTERNAL_H
#define PACK_RUN_OUTPUT_INTERNAL_H

#include "formats/base/json_writer.h"
#include "formats/dataset/manifest.h"
#include "pack/run/directory_internal.h"

struct pack_output {
    const struct file_system *fs;
    const char *directory; /* created if needed; its parent must exist */
    const char *kind;      /* of the journal: "merge" */
    bool overwrite;        /* as in struct pack_options */
    enum shard_container container;
    struct json_writer head; /* a JSON object that identifies the work: what it is made of. Its
                              * members "journal" and "version" are pack_output_head's */
    struct file *lock;       /* NULL: not there yet, or it cannot be locked */
    struct byte_buffer names;
    bool existed;     /* the directory, before the work */
    bool tars;        /* shard-NNNNNN.tar there is the packer's */
    bool has_journal; /* of this work, or of one that it replaces */
    bool resumes;     /* the directory holds the beginning of this work, */
    bool finished;    /* or all of it: at most the journal has to be removed */
};

void pack_output_init(struct pack_output *o,
                      const struct file_system *fs,
                      const char *directory,
                      const char *kind);
void pack_output_fini(struct pack_output *o); /* also unlocks */

/* Opens the object in o->head; the caller adds members and closes it. */
void pack_output_head(struct pack_output *o, const char *created_by);

/* Locks the directory if it is there, and finds out what it holds. is_same: whether a complete
 * dataset there is what this work makes. Returns OK, EXISTS (another process, or something else),
 * or what reading returns. */
enum status pack_output_look(struct pack_output *o,
                             bool (*is_same)(const void *cookie, const struct manifest *there),
                             const void *cookie,
                             struct error *err);

/* Unless it resumes: makes or clears the directory, and begins the journal. */
enum status pack_output_begin(struct pack_output *o, struct error *err);

/* After dataset.json: removes the journal. */
enum status pack_output_end(struct pack_output *o, struct error *err);

#endif
