/*
 * source_table: what the reader of tables and the one that finds their columns share.
 */
#ifndef PACK_SOURCE_TABLE_INTERNAL_H
#define PACK_SOURCE_TABLE_INTERNAL_H

#include "pack/source/blocks_internal.h"
#include "pack/source/source_internal.h"

enum { TABLE_MAX_COLUMNS = 64 };

struct source_table {
    struct source base;
    struct source_blocks blocks;
    char delimiter;          /* between cells */
    bool quotes;             /* cells may be quoted as RFC 4180 says */
    uint64_t lines;          /* read so far */
    uint64_t line;           /* where the record in `text` begins, from 1 */
    struct byte_buffer text; /* the record; table_split removes quotes in place */
    bool too_long, unclosed; /* what is wrong with it */
    size_t path_column, caption_column;
    bool header;         /* the first line is one */
    size_t column_count; /* of every record; 0: any that includes the two columns */
};

struct table_cell {
    const char *data;
    size_t size_bytes;
};

/* Returns to the start of the file, after a byte order mark. Returns OK or IO. */
enum status table_rewind(struct source_table *t, struct error *err);

/* Reads the next record that is not blank into t->text; of one beyond the limit only the beginning.
 * Returns OK, END, IO or NOMEM. */
enum status table_read(struct source_table *t, struct error *err);

/* The record's cells, at most TABLE_MAX_COLUMNS of them. May be called once for a record. */
size_t table_split(struct source_table *t, struct table_cell cells[TABLE_MAX_COLUMNS]);

/* The path in a cell without the number of a caption after it: "1.jpg#0". */
struct table_cell table_path(const struct table_cell *c);

/* Finds the columns by the first lines: path_column, caption_column, header, column_count. Returns
 * OK, CORRUPT (undecided), USAGE (an option names a missing column), IO or NOMEM.
 */
enum status
table_find_columns(struct source_table *t, const struct source_options *opt, struct error *err);

#endif
