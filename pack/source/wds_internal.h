/*
 * wds_internal: the state of a WebDataset source, and its captions (wds_captions.c).
 *
 * Threading : as the source.
 */
#ifndef PACK_SOURCE_WDS_INTERNAL_H
#define PACK_SOURCE_WDS_INTERNAL_H

#include "pack/source/archive_internal.h"
#include "pack/source/folders_internal.h"
#include "pack/source/source_internal.h"

struct source_wds {
    struct source base;
    struct source_archive *archive;
    const struct source_member *pending; /* first member of the next row; NULL: none yet */
    uint64_t entry_bytes; /* where the entry after the last pending one begins, or the archive ends
                           */
    bool at_end;
    bool last_dot; /* see split_names */
    /* of the .json; empty: the .txt is the caption */
    char caption_member[SOURCE_MAX_NAMES_BYTES + 1];
    struct byte_buffer text;       /* the .txt being read */
    struct byte_buffer member;     /* the image being read; swapped with the row's */
    struct byte_buffer key;        /* of the row being read, and of its extras; no NUL */
    struct byte_buffer image_name; /* name of the row's image; ends with a NUL */
    struct byte_buffer text_name;  /* of the row's first text that is no caption; likewise */
    struct byte_buffer links[2]; /* name and target, each followed by a NUL, of the last link in the
                                  * row, and of the last one in a later row */
    struct byte_buffer extras;   /* names, each followed by a NUL */
    size_t extras_at;            /* those before it have become rows */
    struct byte_buffer nameless; /* offsets, as uint64_t, of members without a name */
    size_t nameless_at;          /* those before it have become rows */
    struct source_names classes;
};

/* What the members of a row so far contained. */
struct row_parts {
    bool image, json, class_id, vector;
    int image_rank;
    bool image_fits; /* it is not too large */
    bool text;       /* STEM.txt; without it STEM.1.txt and so on are no captions */
    uint32_t text_count;
    uint32_t numbers[SOURCE_MAX_CAPTIONS];         /* (text_count) of the texts; STEM.txt is 0 */
    uint32_t caption_numbers[SOURCE_MAX_CAPTIONS]; /* of those that became captions of the row */
};

/* Bytes of folder and base name up to its first dot, or its last; all of it without a dot. */
size_t wds_stem_bytes(const struct source_wds *w, const char *name);
void wds_swap_buffers(struct byte_buffer *a, struct byte_buffer *b);
enum status wds_add_name(struct byte_buffer *names, const char *name, struct error *err);

/* The number of a text in its row: 0 for STEM.txt, and k for STEM.k.txt, as in our own shards. */
bool wds_text_number(const char *extension, uint32_t *out);

/* Whether the row has no text of this number yet. */
bool wds_is_new_text(const struct row_parts *parts, const char *extension);

/* Reads the pending text. Returns OK, or as source_archive_read. */
enum status wds_take_text(struct source_wds *w,
                          struct source_row *row,
                          struct row_parts *parts,
                          struct error *err);

/* Sorts captions by their numbers: a sorted tar has STEM.1.txt before STEM.txt. Without STEM.txt
 * the others are no captions. */
enum status wds_order_captions(struct source_wds *w,
                               struct source_row *row,
                               const struct row_parts *parts,
                               struct error *err);

/* Reads the first texts of the archive, if the option leaves it to them what lines are. A failure
 * is left to the reading of the rows. */
void wds_decide_lines(struct source_wds *w, const struct source_options *opt);

#endif
