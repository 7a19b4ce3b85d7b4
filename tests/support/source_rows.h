/*
 * source_rows: reading sources row by row in tests.
 */
#ifndef TESTS_SUPPORT_SOURCE_ROWS_H
#define TESTS_SUPPORT_SOURCE_ROWS_H

#include "pack/source/source.h"

struct source_reading {
    struct source *source;
    struct source_row row;
    struct error err;
};

/* Opens, and fails the case where that fails. `how` may be NULL. */
void source_reading_open(struct source_reading *r,
                         const char *path,
                         const struct source_options *how);

/* The same for a file of this text in the case's folder. */
void source_reading_open_text(struct source_reading *r,
                              const char *name,
                              const char *text,
                              const struct source_options *how);

/* The next row, not yet loaded: its captions joined by '|'; NULL at the end. */
const char *source_reading_next(struct source_reading *r);

/* A row's captions joined by '|'; the text lives until the next call. */
const char *source_row_captions(const struct source_row *row);
void source_reading_close(struct source_reading *r);

/* Files of all kinds that source_ignored counts. */
uint64_t ignored_files(const struct source *s);

/* A path's last part. */
const char *path_base_name(const char *path);

#endif
