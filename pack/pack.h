/*
 * pack: sources to a dataset directory of indexed shards.
 *
 *     one thread           jobs threads                    the caller's thread
 *     source_next  ------> check, resize, frame  --------> shards, rejects.jsonl, dataset.json
 *                  ring of slots                 in order
 *
 * Every row gets its id where it is read and is committed in that order, so that the bytes are the
 * same for any number of jobs.
 *
 * Threading : pack_run starts its threads and has joined them when it returns. The callbacks are
 *             called on the caller's thread, `interrupted` also on the one that reads.
 * Ownership : the options are borrowed for the call.
 * Memory    : 8 * (jobs + 1) rows and their frames, a decoder per job, the index of one shard.
 */
#ifndef PACK_PACK_H
#define PACK_PACK_H

#include "formats/base/file_io.h"
#include "formats/shard.h"
#include "pack/source.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PACK_SHARD_NAME     "shard"
#define PACK_REJECTS_NAME   "rejects.jsonl"
#define PACK_TOKENIZER_NAME "tokenizer.model" /* made from the dataset afterwards */

enum {
    PACK_MAX_JOBS = 256,
    PACK_MIN_RESIZE_PX = 16,
    PACK_MAX_RESIZE_PX = 8192,
    PACK_PERCENT_AFTER_ROWS = 1000, /* a share of bad rows counts from here on, and at the end */
};

enum pack_ids {
    PACK_IDS_ROW, /* rows of all sources before it + row: a bad row leaves a hole */
    PACK_IDS_KEY, /* the number that the key is; one that comes twice ends the run */
};

/* How many bad rows a run may meet. */
struct pack_max_bad {
    uint64_t rows;  /* where percent is negative */
    double percent; /* of all rows */
};

/* "20" or "2.5%". Returns OK or USAGE. */
enum status pack_parse_max_bad(struct pack_max_bad *out, const char *text, struct error *err);

struct pack_progress {
    uint64_t rows, samples, rejected;
    uint64_t bytes; /* written to shards */
    double done;    /* share of the sources' bytes that is behind us; negative: not known */
};

struct pack_options {
    const struct file_system *fs; /* all that is written goes there; file_posix(). Sources are the
                                   * operating system's files in any case. */
    const char *directory;        /* made when it is not there; its parent must be */
    const char *const *sources;
    size_t source_count;
    enum source_kind kind;   /* SOURCE_AUTO */
    const char *images;      /* folder of the pictures of tables and COCO files; NULL: the file's */
    enum pack_ids ids;       /* PACK_IDS_ROW */
    int32_t resize_short_px; /* 0: the source's bytes as they are */
    int32_t quality;         /* of JPEGs made by a resize, [1, 100]; 90 */
    int level;     /* zstd, of text and JSON; 3: 9 gives 0.2 % fewer bytes in 10 % more time */
    uint32_t jobs; /* threads that check and build, [1, PACK_MAX_JOBS]; 1 */
    uint32_t shard_samples;            /* [1, SHARD_MAX_SAMPLES]; 10000 */
    uint64_t shard_size_bytes;         /* a shard takes no sample that makes it larger; 1 GiB */
    bool overwrite;                    /* an existing dataset is replaced; other files stay */
    struct pack_max_bad max_bad;       /* 10 % */
    const char *created_by;            /* for the manifest, "ccpack 0.1.0" */
    bool (*interrupted)(void *cookie); /* asked often; NULL: never */
    void (*progress)(void *cookie, const struct pack_progress *p); /* NULL: none */
    void *cookie;                                                  /* of both */
};

void pack_options_default(struct pack_options *opt);

struct pack_summary {
    uint64_t rows, samples, rejected, texts;
    uint64_t rejected_by[REASON_COUNT];
    uint64_t json_dropped;  /* samples that are packed without their JSON, which is none */
    char json_example[240]; /* the first of them: source, row, what is wrong */
    uint64_t ignored;       /* members of tars that belong to no row, see source_ignored */
    uint64_t bytes;         /* of the shards */
    uint64_t fingerprint;
    uint32_t shards;
    bool is_dataset; /* dataset.json was written: after a failure too, where that could be done */
};

/* Packs. Rows that cannot be used are listed in rejects.jsonl and counted. When there are too many
 * of them, a source turns out to be damaged or unreadable, or the run is interrupted, the samples
 * before that are made a valid dataset, marked as partial, and the failure is returned. Returns OK;
 * EXISTS (the directory is not empty); CORRUPT (too many bad rows, no good one, a damaged source,
 * an id twice); INTERRUPTED; USAGE, NOTFOUND, IO, LIMIT or NOMEM. `out` is filled in any case. */
enum status pack_run(const struct pack_options *opt, struct pack_summary *out, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
