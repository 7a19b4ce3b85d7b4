/*
 * source_table: what the reader of tables and the one that finds their columns share.
 */
#ifndef PACK_SOURCE_TABLE_INTERNAL_H
#define PACK_SOURCE_TABLE_INTERNAL_H

#include "pack/source/text_internal.h"

enum { TABLE_MAX_COLUMNS = 64, TABLE_NO_COLUMN = TABLE_MAX_COLUMNS };

struct source_table {
    struct source base;
    struct rows_stream *rows; /* of a Parquet file; NULL: a text, by `blocks` */
    size_t image_path_column; /* likewise: of a struct of bytes and path; TABLE_NO_COLUMN */
    bool too_long_cell;       /* likewise: the image is longer than a value may be */
    char note[160];           /* likewise */
    struct source_blocks blocks;
    char delimiter;          /* between cells */
    bool quotes;             /* cells may be quoted as RFC 4180 says */
    uint64_t lines;          /* read so far */
    uint64_t line;           /* where the record in `text` begins, from 1 */
    struct byte_buffer text; /* the record; table_split removes quotes in place */
    bool too_long;           /* of a line beyond the limit the text is only the beginning */
    bool unclosed;           /* a quote is not closed, see table_records.c; the text is one line */
    uint64_t search_end;     /* where the last search for a closing quote that failed has ended */
    size_t search_bytes;     /* the limit of searches before that place */
    size_t path_column;
    size_t captions[TABLE_MAX_COLUMNS], caption_count; /* columns of captions; 0: there are none */
    char names[TABLE_MAX_COLUMNS][SOURCE_MAX_NAME_BYTES + 1]; /* of all columns, no two alike */
    bool kept[TABLE_MAX_COLUMNS], keeps; /* columns that become a row's JSON; there are some */
    size_t needed_columns;               /* of every record, up to the last of these columns */
    bool header;                         /* the first line is one */
    size_t column_count;                 /* of every record; with a header at most so many */
    enum source_grouping grouping;
    struct table_groups *groups; /* NULL: every record is a row */
};

struct table_cell {
    const char *data; /* NULL: null, of Parquet only */
    size_t size_bytes;
    char kind; /* of Parquet, see parquet_rows.py; 0: text */
};

/* A place between two records. */
struct table_place {
    uint64_t offset, lines, search_end; /* as in struct source_table; offset: in the file */
    size_t search_bytes;
};

/* Fills a row with the next record; *path is in t->text. Returns OK, END, IO or NOMEM. */
enum status table_record(struct source_table *t,
                         struct source_row *row,
                         struct table_cell *path,
                         struct error *err);

/* Returns to the first record, after the header. Returns OK, IO or NOMEM. */
enum status table_restart(struct source_table *t, struct error *err);

/* The functions of table kinds. */
enum status table_next(struct source *s, struct source_row *row, struct error *err);
void table_close(struct source *s);

/* ---- records of one image, table_groups.c ---- */

struct table_groups; /* opaque */

enum status table_groups_create(struct table_groups **out, struct error *err);
void table_groups_destroy(struct table_groups *g); /* accepts NULL */

/* Fills the next row with adjacent records of one image. Returns OK, END, IO or NOMEM. */
enum status
table_groups_adjacent(struct source_table *t, struct source_row *row, struct error *err);

/* Fills the next row with all records of one image. Returns LIMIT too. */
enum status table_groups_all(struct source_table *t, struct source_row *row, struct error *err);

/* ---- records and cells, table_records.c ---- */

/* Returns to the start of the file, after a byte order mark. Returns OK or IO. */
enum status table_rewind(struct source_table *t, struct error *err);

struct table_place table_place_of(const struct source_table *t);
void table_return(struct source_table *t, const struct table_place *place);

/* Reads the next record that is not blank into t->text. Returns OK, END, IO or NOMEM. */
enum status table_read(struct source_table *t, struct error *err);

/* The number of the record's cells, of which the first TABLE_MAX_COLUMNS are filled in. May be
 * called once for a record. */
size_t table_split(struct source_table *t, struct table_cell cells[TABLE_MAX_COLUMNS]);

/* Of a CSV: sets `delimiter` to the one of , ; | with which most of the first records have as many
 * cells as the first. Returns OK, IO or NOMEM. */
enum status table_find_delimiter(struct source_table *t, struct error *err);

/* Of a TSV: sets `quotes` if more of the cells with a quote are quoted correctly than not. Returns
 * OK, IO or NOMEM. */
enum status table_find_quotes(struct source_table *t, struct error *err);

/* ---- columns, table_columns.c ---- */

/* Whether a cell ends like an image's file. */
bool table_names_image(const struct table_cell *c);

/* The path in a cell without the number of a caption after it: "1.jpg#0". */
struct table_cell table_path(const struct table_cell *c);

/* Finds the columns by the first lines: all of those above. Returns OK, CORRUPT (undecided), USAGE
 * (an option names a missing column), IO or NOMEM.
 */
enum status
table_find_columns(struct source_table *t, const struct source_options *opt, struct error *err);

/* The same by the cells of a header. */
enum status table_columns_by_names(struct source_table *t,
                                   const struct table_cell *cells,
                                   size_t count,
                                   const struct source_options *opt,
                                   struct error *err);

/* ---- what differs where t->rows is set, parquet.c ---- */

size_t parquet_find_image(const struct source_table *t);            /* the first column of bytes */
void parquet_find_image_path(struct source_table *t);               /* of t->path_column */
bool parquet_may_keep(const struct source_table *t, size_t column); /* true of other tables */
enum status parquet_read(struct source_table *t, struct error *err);
size_t parquet_split(struct source_table *t, struct table_cell cells[TABLE_MAX_COLUMNS]);
enum status parquet_take_image(struct source_table *t,
                               struct source_row *row,
                               const struct table_cell *cells,
                               struct table_cell *path,
                               struct error *err);
enum status
parquet_add_captions(struct source_row *row, const struct table_cell *list, struct error *err);

#endif
