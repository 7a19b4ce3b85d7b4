/*
 * stats_internal: the counts of ccdump stats, for its text, JSON and page.
 *
 * Threading : single-owner.
 */
#ifndef TOOLS_CCDUMP_STATS_INTERNAL_H
#define TOOLS_CCDUMP_STATS_INTERNAL_H

#include "formats/base/bytes.h"
#include "tools/ccdump/ccdump_internal.h"
#include "tools/ccdump/tally.h"

struct stats_options {
    struct sample_choice choice;
    uint64_t bins;
    const char *html;
    bool json;
    bool quiet;
    bool force;
};

enum stats_measure {
    WIDTH,
    HEIGHT,
    SHORT_SIDE,
    ASPECT, /* width / height, in thousandths */
    IMAGE_BYTES,
    CAPTIONS,
    CAPTION_CHARACTERS,
    CAPTION_WORDS,
    STATS_MEASURES,
};

enum {
    STATS_ASPECT_SCALE = 1000,
    STATS_FORMATS = 5,
    STATS_GROUPS = 6,
};

extern const char *const stats_names[STATS_MEASURES]; /* keys of --json */

struct stats {
    const struct stats_options *options;
    struct input *input;
    struct tally tallies[STATS_MEASURES];
    struct tally labels; /* label + 1; 0: none */
    struct stats_column {
        uint64_t rows, captions, characters, nan;
        struct byte_buffer values; /* of columns with one number: doubles */
    } columns[COLUMNS_MAX];        /* in the order of the input's columns */
    uint64_t formats[STATS_FORMATS];
    struct byte_buffer hashes; /* (samples) u64, image hashes */
    uint64_t samples;          /* with an image; others are not counted */
    uint64_t imageless;        /* a tar's rows without image */
    uint64_t problems;         /* a tar's rows that cannot be packed, with or without image */
    uint64_t size_unknown, reencoded, unchecked;
    uint64_t duplicates, duplicate_groups;
    struct stats_group {
        uint64_t hash, samples;
    } groups[STATS_GROUPS]; /* of equal images, largest first; samples 0: no more */
};

/* width / height of an image of known size, in thousandths. */
uint64_t stats_aspect(const struct sample_facts *f);
uint64_t stats_words(const struct shard_text *text, uint64_t *characters);

/* Writes a number in the measure's unit; and all fields of --json. */
void stats_number(struct json_writer *w, const char *key, enum stats_measure m, uint64_t v);
void stats_write(struct json_writer *w, const struct stats *s);

/* Attached columns (stats_columns.c): counts a sample's rows; and writes the field "columns", if
 * there are any. Returns OK, NOMEM, IO, LIMIT or CORRUPT. */
enum status stats_columns_add(struct stats *s, uint64_t id, struct error *err);
void stats_columns_write(struct json_writer *w, const struct stats *s);

/* Writes the page options->html. Reads the input once more, for its images. */
enum status stats_page_write(struct stats *s, struct error *err);

#endif
