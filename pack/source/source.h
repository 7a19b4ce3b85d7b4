/*
 * source: image-text collections read row by row in their own order, whatever they are stored as.
 *
 *   wds    tar files as WebDataset and img2dataset write them, also as .gz and .zst; "-" is such a
 *          tar on standard input. Members that follow each other and share folder and base name up
 *          to its first dot are one row: .txt is the caption (.1.txt, .2.txt, ... beside it are
 *          further ones, as in our own shards), .json travels along, the picture is known by its
 *          content. A repeated name begins another row, and pictures beyond the first are rows that
 *          are not usable.
 *   tsv    lines of caption TAB path in either order, with or without a header line
 *   coco   COCO captions JSON: every entry of "images" is a row with all its captions
 *
 * A row that cannot be used is still a row: it comes with a reason, and it counts.
 *
 * Threading : a source and a row have one owner each; distinct ones are independent.
 *             source_row_load may run on another thread than the source.
 * Ownership : the row owns its buffers; source_next overwrites them, and they stay as large as
 *             they have grown.
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

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SOURCE_MAX_KEY_BYTES = 1024,
    SOURCE_MAX_IMAGE_BYTES = 64 << 20,
    SOURCE_MAX_TEXT_BYTES = 256 << 10, /* of all captions of a row */
    SOURCE_MAX_LINE_BYTES = 512 << 10, /* of a table */
    SOURCE_MAX_JSON_BYTES = 4 << 20,   /* of a .json member */
    SOURCE_MAX_CAPTIONS = 256,         /* of a row */
    SOURCE_MAX_COCO_BYTES = 1 << 30,   /* such a file is read whole */
    SOURCE_MAX_CLASSES = 1 << 20,
    SOURCE_MAX_LIST_BYTES = 256 << 20, /* of the names in a class folder and those around it, or of
                                        * all folders in a tar */
    SOURCE_MAX_FOLDER_DEPTH = 32,
    SOURCE_MAX_NAME_BYTES = 63, /* of a column or a JSON member that options name */
    SOURCE_KEY_BUFFER_BYTES = SOURCE_MAX_KEY_BYTES + 1,
};

enum source_kind {
    SOURCE_AUTO,
    SOURCE_WDS,
    SOURCE_TSV,
    SOURCE_CSV,
    SOURCE_COCO,
    SOURCE_KARPATHY,
    SOURCE_JSON,
    SOURCE_FOLDERS,
    SOURCE_CIFAR,
    SOURCE_KIND_COUNT,
};

/* "auto" "wds" "tsv" "csv" "coco" "karpathy" "json" "folders" "cifar"; "unknown" */
const char *source_kind_name(enum source_kind k);

/* Why a row cannot be used: the words of rejects.jsonl. */
enum source_reason {
    REASON_NONE,
    REASON_IMAGE_MISSING,     /* nothing in the row is a picture */
    REASON_IMAGE_UNREADABLE,  /* its file is not there or cannot be read */
    REASON_IMAGE_UNSUPPORTED, /* not a format that this build decodes */
    REASON_IMAGE_DAMAGED,     /* does not decode */
    REASON_IMAGE_LIMIT,       /* too many bytes or pixels */
    REASON_IMAGE_EXTRA,       /* its row has a picture already */
    REASON_CAPTION_MISSING,
    REASON_CAPTION_EMPTY, /* nothing but white space */
    REASON_CAPTION_NOT_UTF8,
    REASON_CAPTION_LIMIT, /* too long, or too many */
    REASON_ROW_BAD,       /* the row has not the form that its source asks for */
    REASON_KEY_NOT_NUMBER,
    /* The row is good, but the packer's options leave it out. */
    REASON_IMAGE_SMALL,
    REASON_IMAGE_LARGE,
    REASON_IMAGE_ASPECT,
    REASON_CAPTION_LONG,
    REASON_DUPLICATE, /* its picture is in the dataset already */
    REASON_COUNT,
};

const char *source_reason_name(enum source_reason r); /* "image-damaged"; "unknown" */

struct source_row {
    uint64_t row;                /* in its source, from 0 */
    uint64_t offset_bytes;       /* of its first member in the (decompressed) tar; 0 elsewhere */
    uint64_t end_bytes;          /* likewise: where its last member ends, with padding */
    uint64_t image_offset_bytes; /* likewise: of the picture's body. What a sparse member's header
                                  * is followed by is not its content: compare before use */
    char key[SOURCE_KEY_BUFFER_BYTES];
    bool has_number; /* the key's last part is a number */
    uint64_t number;
    int32_t class_index;       /* of source_class_name; -1: the source has no classes */
    struct byte_buffer image;  /* the picture; where `path` is set, filled by source_row_load */
    char path[PATH_MAX_BYTES]; /* of a file still to be read; empty: there is none */
    struct byte_buffer text;   /* the captions end to end */
    uint32_t caption_count;
    uint32_t caption_size_bytes[SOURCE_MAX_CAPTIONS];
    struct byte_buffer json; /* empty: none, or dropped */
    char json_problem[120];  /* why it was dropped, in words; empty: it was not */
    enum source_reason reason;
    char detail[240]; /* in words, empty when `reason` says it all */

    /* What source_row_load has still to do; nobody else looks at these. */
    bool captions_optional; /* a row without caption is a row: it has a class */
    bool image_is_planes;   /* of 32 x 32 pixels: red, green, blue; to be a PNG */
    bool json_unchecked;
    char caption_member[SOURCE_MAX_NAME_BYTES + 1]; /* of the JSON; empty: it holds no caption */
};

void source_row_init(struct source_row *r);
void source_row_fini(struct source_row *r); /* accepts an initialised one */

/* Marks the row as not usable; the first reason stays. */
void source_row_reject(struct source_row *r, enum source_reason reason, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Does what is left to do for a row, which costs more than reading it and may be done on any
 * thread: reads the file at row->path, checks the JSON, takes captions out of it. Before it, only
 * the key, the number and a reason that is there already are final. What goes wrong becomes the
 * row's reason, or json_problem. Returns OK or NOMEM. */
enum status source_row_load(struct source_row *r, struct error *err);

struct source_options {
    enum source_kind kind; /* SOURCE_AUTO: by content */
    const char *images;    /* folder of the paths in tables and JSON files; NULL: the file's own */
    bool (*stop)(void *cookie); /* asked while waiting for standard input; NULL: never stops */
    void *stop_cookie;
    const char *split;          /* karpathy: only pictures of these splits, "train,restval"; NULL:
                                 * of all */
    const char *columns;        /* tsv, csv: names of the columns of a table without header line,
                                 * "caption,_,path"; "_" for one that is not wanted; NULL: found out */
    const char *caption_column; /* tsv, csv: name of a column, or its number from 1. json: name of
                                 * the member, "caption". wds: member of the .json that is the
                                 * caption, a string or a list of them, in place of the .txt.
                                 * NULL: usual names */
    const char *image_column;   /* tsv, csv, json: the same for the picture's path */
    /* wds: gets every byte of the file in order, up to the archive's end and perhaps beyond, so
     * that a file need not be read twice to be hashed; source_skip may then not be used. NULL:
     * nobody does. */
    void (*bytes)(void *cookie, const void *data, size_t size_bytes);
    void *bytes_cookie;
};

struct source;

/* Which kind a file is, by its first bytes: tar (also inside gzip and zstd), a JSON object, or else
 * a table of text. "-" is SOURCE_WDS and not looked at. Returns OK, NOTFOUND, IO or CORRUPT (empty,
 * a folder, or bytes that are none of these). */
enum status source_kind_of(enum source_kind *out, const char *path, struct error *err);

/* Opens and, where the kind asks for it, reads what tells how to read the rest. Returns OK,
 * NOTFOUND, IO, NOMEM, CORRUPT, LIMIT, or USAGE (an option that this kind does not have, or that
 * names what is not there). */
enum status source_open(struct source **out,
                        const char *path,
                        const struct source_options *opt,
                        struct error *err);

/* Fills the next row. Returns OK; END behind the last; IO, CORRUPT (the source itself is damaged
 * from here on), LIMIT, NOMEM or INTERRUPTED. After anything but OK the source is only good for
 * close. */
enum status source_next(struct source *s, struct source_row *row, struct error *err);

/* Passes over `count` rows: the same that source_next would give, also those that are not usable,
 * but without their pictures; large ones in a plain tar are sought over, not read. *skipped is how
 * many it were. Returns OK; END when the source has fewer left; or what source_next returns. After
 * anything but OK the source is only good for its counts and close. */
enum status source_skip(struct source *s, uint64_t count, uint64_t *skipped, struct error *err);

uint64_t source_rows_read(const struct source *s); /* those that were skipped as well */

/* Names of the classes: folders in the order of their bytes, or CIFAR's. All are known once the
 * source is open; 0 where there are none. */
size_t source_class_count(const struct source *s);
const char *source_class_name(const struct source *s, size_t i); /* NULL beyond the last */

/* What has been read so far and belongs to no row: members of a tar that are hidden, have no
 * extension, or are no files; in class folders what is no picture. Folders do not count. */
uint64_t source_ignored(const struct source *s);

/* How far reading has come: bytes of the file and its size; both 0 where that is not known. */
void source_position(const struct source *s, uint64_t *position_bytes, uint64_t *size_bytes);

/* Whether it is a tar that stands in its file uncompressed, so that rows' offsets are the file's.
 */
bool source_is_plain_tar(const struct source *s);
void source_close(struct source *s); /* accepts NULL */

#ifdef __cplusplus
}
#endif

#endif
