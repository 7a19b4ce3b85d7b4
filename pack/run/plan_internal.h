/*
 * plan: where a run begins and ends, decided by its options and by what its directory holds.
 *
 * Threading : made by the caller's thread before the others start. Afterwards the reader owns
 *             `opened`, adds to `classes` and samples a file in `sources` before it adds a row of
 *             it; the committing thread owns `manifest` and the rest of `sources`, `stop` belongs
 * to all, and the rest does not change.
 */
#ifndef PACK_RUN_PLAN_INTERNAL_H
#define PACK_RUN_PLAN_INTERNAL_H

#include <stdatomic.h>

#include "formats/base/bytes.h"
#include "formats/dataset/manifest.h"
#include "pack/pack.h"
#include "pack/run/classes_internal.h"

struct dedup;

/* A place between two rows, and what is known of all rows before it. Their shards and classes are
 * in the manifest. */
struct pack_point {
    size_t source; /* of the next row; the number of sources: there is none */
    uint64_t row;
    uint64_t content;          /* source_content of the source up to the row */
    struct source_place place; /* of the row; without an offset it is reached by skipping rows */
    uint64_t rejects_bytes;    /* size of the list of rejects up to here */
    uint64_t rejected_by[REASON_COUNT];
    uint64_t json_dropped;
    char json_example[240];
    struct source_ignored ignored; /* in the sources before this one */
};

/* source_open. A run without sources does without it, and so without the libraries that it needs.
 */
typedef enum status pack_open_source(struct source **out,
                                     const char *path,
                                     const struct source_options *opt,
                                     struct error *err);

enum pack_start {
    PACK_START_NEW,      /* from the first row */
    PACK_START_RESUME,   /* from where the journal ends */
    PACK_START_FINISHED, /* the dataset is complete; only a journal may have to be removed */
};

struct pack_plan {
    const struct pack_options *opt;
    pack_open_source *open_source; /* NULL: the run has no sources */
    /* Called when the rows before this one are in shards on the disk. NULL: not without a fetch. */
    void (*committed)(struct fetch *f, uint64_t row);
    enum pack_start start;
    struct manifest manifest; /* with append the old dataset, then the shards of the journal */
    uint32_t old_shards;      /* shards of the old dataset */
    uint32_t next_number;     /* of the next shard's file */
    bool tars;                /* shard-NNNNNN.tar in the directory is the packer's */
    uint64_t old_rows;        /* of all sources of the old dataset */
    struct pack_point point;  /* where this process begins */
    struct pack_point first;  /* source and row where the run began, in whichever process */
    struct pack_point end;    /* the row after the run's last one */
    struct manifest_source
        *sources; /* of the run, with the rows that have been committed; no names */
    struct manifest_source *totals;   /* with all rows; NULL: they were not counted */
    char **notes;                     /* source_note of those that have ended; NULL: none */
    char columns[PACK_COLUMNS_BYTES]; /* see struct pack_summary */
    uint64_t part_rows;               /* rows of the part, where totals are known */
    struct dedup *dedup;              /* see dedup_internal.h; NULL: without --dedup */
    struct pack_classes classes;
    struct byte_buffer head;  /* the journal's first line */
    uint64_t journal_bytes;   /* size of its undamaged lines */
    struct byte_buffer names; /* of the files in the directory */
    bool existed;             /* the directory, before the run */
    struct file *lock;        /* of the directory; NULL: not there yet, or it cannot be locked */
    struct source *opened; /* the first source to read, at the point, until the reader takes it */
    atomic_bool stop;      /* the run has failed; no other data depends on it, so relaxed */
};

/* Whether the run was interrupted or has failed. `plan` is a struct pack_plan. */
bool pack_plan_must_stop(void *plan);
void pack_plan_source_options(struct source_options *out, struct pack_plan *p);

/* Keeps the source's note. Returns OK or NOMEM. */
enum status pack_plan_note(struct pack_plan *p, size_t index, const char *note, struct error *err);

/* Adds source_columns to p->columns, unless the same was said of a source before. */
void pack_plan_columns(struct pack_plan *p, size_t index, const char *columns);

/* The id of row 0 of a source, with ids by row. Requires that all sources before it are read. */
uint64_t pack_plan_base(const struct pack_plan *p, size_t source);

/* Whether a part takes whole sources, whose rows are not counted: remote tars. */
bool pack_part_is_whole(const struct pack_options *o);

/* Finds where the part begins and ends, from p->totals unless it takes whole sources. */
void pack_part_locate(struct pack_plan *p);

#endif
