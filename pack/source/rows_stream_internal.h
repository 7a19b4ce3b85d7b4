/*
 * rows_stream: the rows of a Parquet file, which a process of Python reads with pyarrow and sends
 * as plain buffers. bindings/python/src/ccstream/parquet_rows.py is its text and describes them;
 * the program holds it, and runs `python3 -c TEXT FILE`, or the interpreter in CCSTREAM_PYTHON,
 * without a shell. A crash there is an error here.
 *
 * Threading : single-owner.
 * Ownership : cells are valid until the next call.
 * Untrusted : all that the process sends. A frame has at most ROWS_MAX_FRAME_BYTES.
 */
#ifndef PACK_SOURCE_ROWS_STREAM_INTERNAL_H
#define PACK_SOURCE_ROWS_STREAM_INTERNAL_H

#include "pack/source/table_internal.h"

enum { ROWS_MAX_FRAME_ROWS = 65536, ROWS_MAX_FRAME_BYTES = 256 << 20 };

extern const unsigned char parquet_rows_text[];
extern const size_t parquet_rows_text_bytes;

struct rows_stream {
    char path[PATH_MAX_BYTES];
    bool (*stop)(void *cookie); /* polled while waiting; NULL: never */
    void *stop_cookie;
    int fd;              /* a socket to the process */
    int errors;          /* a file that has what it wrote to stderr */
    int child;           /* process id; 0: none */
    bool began;          /* it was told which columns are wanted */
    bool ended;          /* no frame follows */
    uint64_t row_count;  /* of the file, by its footer */
    uint64_t not_finite; /* numbers that are null; known at the end */
    uint64_t next_row;   /* may be set to any row that was read, or 0 */
    uint64_t frame_row;  /* the first of the frame at hand */
    uint32_t frame_rows;
    size_t column_count;
    struct rows_column {
        char kind; /* T, B, J, L or X, see parquet_rows.py */
        char name[SOURCE_MAX_NAME_BYTES + 1];
        bool wanted;
        const uint8_t *flags, *offsets, *data; /* in the frame */
    } columns[TABLE_MAX_COLUMNS];
    struct byte_buffer frame;
};

/* Starts the process and reads the columns. Returns OK; UNSUPPORTED (no Python, or no pyarrow);
 * CORRUPT (the file, or what was sent); LIMIT, IO, NOMEM or INTERRUPTED. */
enum status rows_stream_open(struct rows_stream **out,
                             const char *path,
                             const struct source_options *opt,
                             struct error *err);

/* The same from a process that is there: `fd` and `errors` are closed with the stream. */
enum status rows_stream_open_fd(struct rows_stream **out,
                                int fd,
                                int errors,
                                const char *path,
                                struct error *err);
void rows_stream_close(struct rows_stream *s); /* accepts NULL; ends the process */

/* Moves to the row next_row, which is then one more, with the columns that are wanted when the
 * first row is read. Returns OK, END, or as above. */
enum status rows_stream_next(struct rows_stream *s, struct error *err);

/* A cell of the row that rows_stream_next moved to. Its data is NULL where it is null, not wanted,
 * or longer than a value may be; then *too_long is set. */
struct table_cell rows_stream_cell(const struct rows_stream *s, size_t column, bool *too_long);

#endif
