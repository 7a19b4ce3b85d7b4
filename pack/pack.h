/*
 * pack: sources to a dataset directory of indexed shards.
 *
 *     one thread           jobs threads                    the caller's thread
 *     source_next  ------> check, resize, frame  --------> shards, rejects.jsonl, dataset.json
 *                  ring of slots                 in order
 *
 * Every row gets its id when it is read, and rows are committed in that order, so the bytes are the
 * same for any number of jobs. A journal records the committed rows at the end of each shard, so
 * that an interrupted run can be resumed.
 *
 * Threading : pack_run starts its threads and has joined them when it returns. The callbacks are
 *             called on the caller's thread, `interrupted` also on the one that reads.
 * Ownership : the options are borrowed for the call.
 * Memory    : at most 256 MiB plus 64 MiB per job for any input; in addition a JSON file that is
 *             read whole, and 22 bytes per sample each with dedup (and the captions that it merges,
 *             at most 1 GiB) and with ids by key.
 */
#ifndef PACK_PACK_H
#define PACK_PACK_H

#include "formats/base/file_io.h"
#include "formats/shard/shard.h"
#include "pack/source/source.h"

#define PACK_SHARD_NAME   "shard"
#define PACK_REJECTS_NAME "rejects.jsonl"
#define PACK_JOURNAL_NAME "pack.journal" /* exists until a run is complete */

enum {
    PACK_MAX_JOBS = 256,
    PACK_MIN_RESIZE_PX = 16,
    PACK_MAX_RESIZE_PX = 8192,
    PACK_MAX_PARTS = 100000,
    PACK_MAX_PIXELS = 128 << 20,
    PACK_COLUMNS_BYTES = 1024,
    PACK_PERCENT_AFTER_ROWS =
        1000, /* percentages of bad rows are checked from here on, and at the end */
};

enum pack_ids {
    PACK_IDS_ROW, /* rows of all sources before it + row: a bad row leaves a hole */
    PACK_IDS_KEY, /* the number in the key; a repeated one ends the run */
};

enum pack_dedup {
    PACK_DEDUP_NONE,
    PACK_DEDUP_EXACT, /* keep the first of byte-identical stored images, with the captions of all as
                         defined in SOURCES.md */
};

enum pack_on_bad {
    PACK_ON_BAD_SKIP, /* counted and listed, within max_bad */
    PACK_ON_BAD_FAIL, /* the first one ends the run */
};

/* The number of bad rows that a run accepts. Rows that the options exclude (pack_reason_is_choice)
 * are not bad. */
struct pack_max_bad {
    uint64_t rows;  /* where percent is negative */
    double percent; /* of all rows */
};

enum pack_resize_kind {
    PACK_RESIZE_NONE,  /* the source's bytes, unchanged */
    PACK_RESIZE_SHORT, /* the shorter side down to width_px */
    PACK_RESIZE_LONG,  /* the longer side down to width_px */
    PACK_RESIZE_EXACT, /* squashed to width_px by height_px */
};

/* No side is ever enlarged. */
struct pack_resize {
    enum pack_resize_kind kind;
    int32_t width_px, height_px; /* [PACK_MIN_RESIZE_PX, PACK_MAX_RESIZE_PX] */
};

/* Limits on the source's images and captions; other rows are rejected. */
struct pack_filter {
    uint32_t min_side_px;       /* of the shorter side; default 0 */
    double max_aspect;          /* longer side to shorter side, at least 1; 0: any */
    uint64_t max_pixels;        /* width * height; default PACK_MAX_PIXELS */
    uint32_t max_caption_bytes; /* of each caption; default SOURCE_MAX_TEXT_BYTES */
};

/* Part `number` of `count`: the rows of all sources, as one sequence, are split into `count` parts
 * of equal size. */
struct pack_part {
    uint32_t number, count; /* from 1; count 0: everything */
};

/* "20" or "2.5%". Returns OK or USAGE, as the others. */
enum status pack_parse_max_bad(struct pack_max_bad *out, const char *text, struct error *err);
/* "none", "short:256", "long:512", "exact:224x224" */
enum status pack_parse_resize(struct pack_resize *out, const char *text, struct error *err);
/* "3/8" */
enum status pack_parse_part(struct pack_part *out, const char *text, struct error *err);

/* Whether a row with this reason is a good one that an option excludes. */
bool pack_reason_is_choice(enum source_reason r);

struct pack_progress {
    uint64_t rows, samples, rejected;
    uint64_t resumed; /* samples that existed when the run began */
    uint64_t bytes;   /* written to shards by this run */
    double done;      /* processed fraction of the sources' bytes; negative: unknown */
};

struct pack_options {
    const struct file_system *fs; /* for everything written; file_posix(). Sources are always files
                                   * of the operating system. */
    const char *directory;        /* created if needed; its parent must exist */
    struct fetch *fetch; /* not NULL: the only source is a list of URLs, whose images it fetches
                            (pack/fetch/fetch.h); requires PACK_IDS_KEY and no part; it performs
                            dedup itself */
    const char *const *sources;
    size_t source_count;
    enum source_kind kind; /* SOURCE_AUTO */
    const char *images;    /* this and the next seven as in struct source_options; default NULL */
    const char *split;
    const char *columns;
    const char *delimiter;
    const char *caption_column;
    const char *image_column;
    const char *keep_columns;
    enum source_grouping grouping;      /* SOURCE_GROUP_AUTO */
    enum source_lines lines;            /* SOURCE_LINES_AUTO */
    enum source_name_split split_names; /* SOURCE_SPLIT_FIRST_DOT */
    bool follow_links;                  /* false; see struct source_options */
    enum pack_ids ids;                  /* PACK_IDS_ROW */
    struct pack_part part;              /* all rows; else every source must be a file or folder */
    bool check;                /* decode every image; true. False: read only its headers; not with
                                * resize */
    struct pack_filter filter; /* none */
    enum pack_dedup dedup;     /* PACK_DEDUP_NONE; not with parts */
    struct pack_resize resize; /* PACK_RESIZE_NONE */
    int32_t quality;           /* of JPEGs made by a resize, [1, 100]; default 90 */
    bool phash;                /* stores a perceptual hash of every image in its JSON, as "phash":
                                * 16 hexadecimal digits (pack/SOURCES.md); only with check */
    enum shard_container container; /* SHARD_CONTAINER_TAR_ZSTD */
    int level; /* zstd level of text and JSON, [SHARD_LEVEL_MIN, SHARD_LEVEL_MAX]; default 3. Level
                  9 saves 0.2 % of the bytes and takes 10 % more time */
    uint32_t jobs;             /* threads that check and build, [1, PACK_MAX_JOBS]; default 1 */
    uint32_t shard_samples;    /* [1, SHARD_MAX_SAMPLES]; default 10000 */
    uint64_t shard_size_bytes; /* maximum size of a shard with several samples; default 1 GiB */
    bool overwrite;            /* replaces an existing dataset as soon as a row can be packed; other
                                * files stay */
    bool append;               /* adds to an existing dataset; not with overwrite or part */
    bool allow_repeat; /* accepts sources that the dataset already has, or that are given twice */
    bool new_settings; /* an append's settings may differ from the dataset's */
    bool resume;       /* continues an unfinished run with these options, does nothing
                        * after a finished one; not with overwrite */
    enum pack_on_bad on_bad;           /* PACK_ON_BAD_SKIP */
    struct pack_max_bad max_bad;       /* 10 % */
    const char *created_by;            /* for the manifest, "ccpack 0.1.0" */
    bool (*interrupted)(void *cookie); /* polled; NULL: never */
    void (*progress)(void *cookie, const struct pack_progress *p); /* NULL: none */
    void *cookie;                                                  /* of both */
};

void pack_options_default(struct pack_options *opt);

struct manifest;

/* Names of options that an append copies from the dataset, terminated by NULL. The first must equal
 * the dataset's; the next too, unless new_settings; the others may differ. */
enum { PACK_FIXED_SETTINGS = 3, PACK_SHARED_SETTINGS = 10 };
extern const char *const pack_append_settings[];
/* Likewise for a retry of the same list of URLs; all but the last must be unchanged. */
extern const char *const pack_list_settings[];

/* The value that the dataset's latest run recorded for an option; NULL: none or the default. */
const char *pack_manifest_in_force(const struct manifest *m, const char *name);
/* The value that its first run recorded. */
const char *pack_manifest_option(const struct manifest *m, const char *name);

struct pack_summary {
    uint64_t rows, samples, rejected, texts; /* of this run and the one that it resumes */
    uint64_t rejected_by[REASON_COUNT];
    char reject_example[480];    /* the first bad row of this process; empty: none */
    uint64_t missing_in_folders; /* in this run: rows rejected as caption-missing whose tar member
                                    is in a folder, perhaps a class folder */
    uint64_t absent;             /* in this run: rows whose image file does not exist */
    char absent_example[240];    /* the first of these files */
    uint64_t json_dropped;       /* samples packed without their JSON, which is invalid */
    char json_example[240];      /* the first of them: source, row, fault */
    uint64_t notes; /* sources that may have lost rows: a tar without an end mark, or followed by
                       other data */
    char note[240]; /* about the first of them */
    char columns[PACK_COLUMNS_BYTES]; /* lines "SOURCE: source_columns"; repeated texts, and lines
                                         that do not fit, are omitted. Empty: none */
    struct source_ignored ignored;    /* files and entries that do not belong to a row */
    uint64_t bytes;                   /* of the shards */
    uint64_t fingerprint;             /* of the dataset; with append it includes the old samples */
    uint64_t id_space, ids; /* likewise: its largest id + 1, and how many samples have one */
    uint32_t shards;
    uint64_t next_bytes;    /* where the next row begins in a remote tar; 0: not known */
    uint64_t resumed;       /* samples that an earlier run had packed */
    uint64_t resumed_bytes; /* likewise, of shards */
    bool is_dataset;        /* dataset.json was written, perhaps after a failure */
    bool was_finished;      /* resume: there was nothing left to do; the counts are the dataset's */
    bool has_journal;       /* after a failure: the run can be resumed */
    const char *resume_with; /* likewise: options that the same command needs with --resume, or
                              * fails again. Empty: no option helps; NULL: none is needed */
    bool keeps_dataset;      /* after a failed append: the dataset is unchanged */
    bool unchanged;          /* after a failure: nothing in the directory was changed */
};

/* Whether most bad rows look like images in class folders, which have no captions. */
bool pack_summary_looks_like_folders(const struct pack_summary *s);

/* Packs. Rows that cannot be used are counted and listed in rejects.jsonl. If there are too many of
 * them, a source is damaged or unreadable, or the run is interrupted, the failure is returned. The
 * samples before it become a valid dataset, marked as partial; with append the dataset stays
 * unchanged. Both can be resumed. Without any sample the directory stays unchanged. Returns OK;
 * EXISTS (the directory is not empty, or another process writes to it); MISMATCH (append or resume
 * with options or sources that do not match the directory, or an append of a source that it already
 * has); CORRUPT (too many bad rows, no good one, a damaged source or journal, a repeated id);
 * INTERRUPTED; USAGE, NOTFOUND, IO, LIMIT or NOMEM. `out` is always filled. */
enum status pack_run(const struct pack_options *opt, struct pack_summary *out, struct error *err);

#endif
