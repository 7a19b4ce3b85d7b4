/*
 * source: reads a collection of images with captions row by row, whatever it is stored as. The
 * rules of each kind are in its file and in pack/SOURCES.md.
 *
 * A row that cannot be used is still a row: it has a number and a reason.
 *
 * Threading : a source and a row have one owner each; distinct ones are independent.
 *             source_row_load may run on another thread than the source.
 * Ownership : the row owns its buffers; source_next overwrites them, and they keep their capacity.
 * Untrusted : everything. Limits are below.
 */
#ifndef PACK_SOURCE_SOURCE_H
#define PACK_SOURCE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/bytes.h"
#include "formats/base/file_io.h"
#include "formats/base/status.h"

enum {
    SOURCE_MAX_KEY_BYTES = 1024,
    SOURCE_MAX_IMAGE_BYTES = 64 << 20,
    SOURCE_MAX_TEXT_BYTES = 256 << 10, /* of all captions of a row */
    SOURCE_MAX_LINE_BYTES = 512 << 10, /* of a table */
    SOURCE_MAX_JSON_BYTES = 4 << 20,   /* of a .json member */
    SOURCE_MAX_CAPTIONS = 256,         /* of a row */
    SOURCE_MAX_WHOLE_BYTES = 1 << 30,  /* of a JSON file that is read whole */
    SOURCE_MAX_CLASSES = 1 << 20,
    SOURCE_MAX_LIST_BYTES = 256 << 20, /* of the names in a class folder and its parents, or of all
                                        * folders in a tar */
    SOURCE_MAX_FOLDER_DEPTH = 32,
    SOURCE_MAX_NAME_BYTES = 63,   /* of a column or JSON field named by an option */
    SOURCE_MAX_NAMES_BYTES = 255, /* of several, with commas between them */
    SOURCE_COLUMNS_BYTES = 480,   /* of the text of source_columns */
    SOURCE_HASHED_BYTES = 64,     /* of an image in an archive, in source_content */
    SOURCE_KEY_BUFFER_BYTES = SOURCE_MAX_KEY_BYTES + 1,
};

/* One line per kind: the enum's name and the name that --from accepts. The enum, the list of names
 * and the table of types in source.c are generated from it. Detection tries the kinds in this
 * order.
 */
#define SOURCE_KIND_LIST(X)                                                                        \
    X(WDS, wds)                                                                                    \
    X(CIFAR, cifar)                                                                                \
    X(IMAGEFOLDER, imagefolder)                                                                    \
    X(PAIRS, pairs)                                                                                \
    X(FOLDERS, folders)                                                                            \
    X(PARQUET, parquet)                                                                            \
    X(KARPATHY, karpathy)                                                                          \
    X(COCO, coco)                                                                                  \
    X(JSON, json)                                                                                  \
    X(CSV, csv)                                                                                    \
    X(TSV, tsv)

enum source_kind {
    SOURCE_AUTO,
#define X(name, type) SOURCE_##name,
    SOURCE_KIND_LIST(X)
#undef X
        SOURCE_KIND_COUNT,
};

/* "auto", the names above, and NULL. */
extern const char *const source_kind_names[SOURCE_KIND_COUNT + 1];

/* Which records of a table with the same path become one row. */
enum source_grouping {
    SOURCE_GROUP_AUTO,     /* as adjacent; sources of other kinds accept only this */
    SOURCE_GROUP_NEVER,    /* none */
    SOURCE_GROUP_ADJACENT, /* consecutive ones, where bad records between them do not count */
    SOURCE_GROUP_ALL,      /* all; paths and captions are kept in memory, at most 1 GiB and 80 bytes
                            * a record */
};

/* "auto", "never", "adjacent", "all", and NULL. */
extern const char *const source_grouping_names[];

/* How a .txt with several lines is read. */
enum source_lines {
    SOURCE_LINES_AUTO,  /* as each if dataset_type.txt beside the archive or above its folder says
                         * "retrieval", or if the first SOURCE_LINES_LOOKED texts have the same
                         * number  of lines, two or more; else as join, and the note counts them */
    SOURCE_LINES_JOIN,  /* one caption */
    SOURCE_LINES_EACH,  /* a caption each */
    SOURCE_LINES_FIRST, /* only the first is a caption */
};

enum { SOURCE_LINES_LOOKED = 100 };

extern const char *const source_lines_names[]; /* "auto", "join", "each", "first", and NULL */

/* Where the key in a tar member's name ends. */
enum source_name_split { SOURCE_SPLIT_FIRST_DOT, SOURCE_SPLIT_LAST_DOT };

extern const char *const source_name_split_names[]; /* "first", "last", and NULL */

/* Why a row cannot be used: the words of rejects.jsonl. */
enum source_reason {
    REASON_NONE,
    REASON_IMAGE_MISSING,     /* the row has no image */
    REASON_IMAGE_UNREADABLE,  /* its file does not exist or cannot be read */
    REASON_IMAGE_UNSUPPORTED, /* a format that this build does not decode */
    REASON_IMAGE_DAMAGED,     /* does not decode */
    REASON_IMAGE_LIMIT,       /* too many bytes or pixels */
    REASON_IMAGE_EXTRA,       /* the row before has its image */
    REASON_CAPTION_MISSING,
    REASON_CAPTION_EMPTY, /* nothing but white space */
    REASON_CAPTION_NOT_UTF8,
    REASON_CAPTION_LIMIT, /* too long, or too many */
    REASON_ROW_BAD,       /* malformed */
    REASON_KEY_NOT_NUMBER,
    REASON_OUTSIDE,      /* a file of the row is outside of the source's folder */
    REASON_FETCH_FAILED, /* its image could not be downloaded */
    /* The row is good, but the packer's options exclude it. */
    REASON_IMAGE_SMALL,
    REASON_IMAGE_LARGE,
    REASON_IMAGE_ASPECT,
    REASON_CAPTION_LONG,
    REASON_DUPLICATE,      /* its image is in the dataset already */
    REASON_FETCH_EXCLUDED, /* robots.txt, X-Robots-Tag or the opt-out list forbids its download */
    REASON_COUNT,
};

const char *source_reason_name(enum source_reason r); /* "image-damaged"; "unknown" */

/* Why a file or entry does not belong to a row. */
enum source_ignored_kind {
    IGNORED_HIDDEN,       /* its name, or a folder's, begins with a dot */
    IGNORED_NO_EXTENSION, /* a tar member without an extension */
    IGNORED_NOT_FILE,     /* a link in an archive or to a folder, a device */
    IGNORED_UNUSED,       /* neither image nor caption nor JSON of a row */
    IGNORED_NO_CLASS,     /* in a source of class folders, but not in one of them */
    IGNORED_ANNOTATION,   /* of COCO: not valid JSON, or of no listed image */
    IGNORED_KINDS,
};

struct source_ignored {
    uint64_t by[IGNORED_KINDS];
};

const char *source_ignored_name(enum source_ignored_kind kind); /* "no-extension" */
void source_ignored_add(struct source_ignored *sum, const struct source_ignored *counts);
uint64_t source_ignored_total(const struct source_ignored *counts);

struct source_row {
    uint64_t row;                /* in its source, from 0 */
    uint64_t offset_bytes;       /* of its first member in the (decompressed) tar; 0 elsewhere */
    uint64_t end_bytes;          /* likewise: where its last member ends, with padding */
    uint64_t image_offset_bytes; /* likewise: of the image's body. In a sparse member the bytes
                                    there are not the image: compare before use */
    char key[SOURCE_KEY_BUFFER_BYTES];
    bool has_number; /* the key's last part is a number */
    uint64_t number;
    int32_t class_index;       /* of source_class_name; -1: the source has no classes */
    struct byte_buffer image;  /* the image; source_row_load fills it when `path` is set */
    char path[PATH_MAX_BYTES]; /* of the image's file, to be read; with source_options.urls the
                                * image's URL; empty: none */
    struct byte_buffer text;   /* the captions end to end */
    uint32_t caption_count;
    uint32_t caption_size_bytes[SOURCE_MAX_CAPTIONS];
    struct byte_buffer json; /* empty: none, or dropped */
    char json_problem[120];  /* why it was dropped; empty: it was not */
    bool absent;             /* the image's file does not exist; source_row_load finds out */
    enum source_reason reason;
    char detail[240]; /* explains `reason`; may be empty */

    /* Private to the sources and source_row_load. */
    bool captions_optional;  /* the row needs no caption: it has a class */
    uint32_t planes_side_px; /* of a square image as planes of red, green and blue, to become a PNG;
                                0: it is none */
    bool json_unchecked;
    uint64_t member_bytes; /* size of the image's tar member; 0: none */
    const void *raw;       /* the row's text in the source, instead of all fields; NULL: none */
    size_t raw_bytes;
    char caption_member[SOURCE_MAX_NAMES_BYTES + 1]; /* of the JSON, comma-separated; empty: no
                                                      * caption in it */
};

void source_row_init(struct source_row *r);
void source_row_fini(struct source_row *r); /* accepts an initialised one */

/* Marks the row as not usable; the first reason stays. */
void source_row_reject(struct source_row *r, enum source_reason reason, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Completes a row on any thread: reads the file at row->path, checks the JSON, extracts captions
 * from it. Before this, only the key, the number and a reason that is set are final. A failure
 * becomes the row's reason or json_problem. Returns OK or NOMEM. */
enum status source_row_load(struct source_row *r, struct error *err);

/* A position between two rows of a remote tar from which reading can continue, with the counts of
 * the rows before it. */
struct source_place {
    uint64_t offset_bytes; /* where to continue; 0: not possible here */
    uint64_t rows, members;
    uint64_t joined;  /* texts of several lines, with SOURCE_LINES_AUTO */
    uint64_t content; /* source_content */
    struct source_ignored ignored;
};

struct fetch;

struct source_options {
    enum source_kind kind; /* SOURCE_AUTO: by content */
    const char *images;    /* folder that paths in tables and JSON files are relative to; NULL: the
                            * file's own */
    bool (*stop)(void *cookie); /* polled while waiting for standard input; NULL: never stops */
    void *stop_cookie;
    const char *split;          /* karpathy: only images of these splits, "train,restval"; NULL:
                                 * of all */
    const char *columns;        /* tsv, csv: names of the columns of a table without header line,
                                 * "caption,_,path"; "_" for an unused one; NULL: detected */
    const char *delimiter;      /* tsv, csv: one ASCII character between cells, or "tab"; NULL: the
                                 * TAB of a TSV; of a CSV detected */
    const char *caption_column; /* comma-separated names, whose captions a row gets in this order.
                                 * tsv, csv: of columns, or their numbers from 1. json: of members,
                                 * a string or a list of strings. wds: of members of the .json,
                                 * instead of the .txt. NULL: the first usual name that is there */
    const char *image_column;   /* tsv, csv, json: one name of the image's path, likewise */
    const char *keep_columns;   /* tsv, csv, json, coco, karpathy: comma-separated names of columns
                                   (tsv, csv: or numbers) or fields to keep in a sample's JSON, or
                                   "none"; NULL: all that are not used otherwise */
    enum source_grouping grouping;      /* tsv, csv */
    enum source_name_split split_names; /* wds */
    enum source_lines lines;            /* wds, pairs, folders */
    bool follow_links; /* also read files outside of the source's folder (of `images`), to which
                        * links, absolute names or ".." lead; others are rejected */
    bool urls; /* tsv, csv: the images are URLs, not files; a table of one column has no captions
                */
    /* wds: receives every byte of the file in order, so that a file can be hashed while it is read;
     * source_skip must not be used then. NULL: off. */
    void (*bytes)(void *cookie, const void *data, size_t size_bytes);
    void *bytes_cookie;
    const struct source_place *from; /* of source_place, of the same file; NULL: from its beginning.
                                      * Rows and counts continue */
    struct fetch *fetch;             /* for fetch_open_source; source_open does not use it */
};

struct source;

/* Detects the kind of a file by its first bytes, or of a folder by its contents. "-" is SOURCE_WDS.
 * Returns OK, NOTFOUND, IO or CORRUPT (empty, or an unknown kind). */
enum status source_kind_of(enum source_kind *out, const char *path, struct error *err);

/* Opens a source. Returns OK, NOTFOUND, IO, NOMEM, CORRUPT, LIMIT, or USAGE (an option that this
 * kind does not have, or that names something the source does not have). */
enum status source_open(struct source **out,
                        const char *path,
                        const struct source_options *opt,
                        struct error *err);

/* Fills the next row. Returns OK; END after the last; IO, CORRUPT (the source itself is damaged
 * from here on), LIMIT, NOMEM or INTERRUPTED. After anything but OK the source is only good for
 * close. */
enum status source_next(struct source *s, struct source_row *row, struct error *err);

/* Skips `count` rows, usable or not, without their images; in a plain tar only the first bytes of
 * images are read. *skipped is the number of skipped rows. Returns OK; END if fewer were left; or
 * what source_next returns. After any result except OK only the counters and close may be
 * called. */
enum status source_skip(struct source *s, uint64_t count, uint64_t *skipped, struct error *err);

uint64_t source_rows_read(const struct source *s); /* skipped ones included */

/* A hash of the rows read so far, whether they were skipped or not: keys, paths relative to the
 * folder of images, captions, JSON, and of images in an archive the size and the first
 * SOURCE_HASHED_BYTES. It depends on no folder, and so identifies the source on every machine. It
 * is never 0. */
uint64_t source_content(const struct source *s);

/* The position after the last row that was read. */
struct source_place source_place(const struct source *s);

/* Names of the classes, all known once the source is open; 0 where there are none. */
size_t source_class_count(const struct source *s);
const char *source_class_name(const struct source *s, size_t i); /* NULL beyond the last */

/* Files and entries so far that do not belong to a row, not counting folders. */
struct source_ignored source_ignored(const struct source *s);

/* After END, a warning about the source as a whole, such as a tar without an end mark. Empty: none.
 */
const char *source_note(const struct source *s);

/* The columns of a table, or fields of the first JSON object, chosen for captions and paths, if
 * others were possible: one line. Empty: there was no choice. */
const char *source_columns(const struct source *s);

/* Progress: bytes of the file read so far, and its size; both 0 where that is not known. */
void source_position(const struct source *s, uint64_t *position_bytes, uint64_t *size_bytes);

/* Whether it is an uncompressed tar, so that rows' offsets are offsets in its file. */
bool source_is_plain_tar(const struct source *s);

/* The ETag of a remote file, once a row was read; else "". Valid until source_close. */
const char *source_etag(const struct source *s);
void source_close(struct source *s); /* accepts NULL */

#endif
