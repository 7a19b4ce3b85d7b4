/*
 * id_list: a file of ids or keys, one on each line. White space at both ends of lines, empty lines
 * and those that begin with # do not count.
 *
 * Threading : single-owner.
 * Ownership : a list owns its lines until fini.
 * Untrusted : the file.
 */
#ifndef TOOLS_CCPACK_ID_LIST_H
#define TOOLS_CCPACK_ID_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/bytes.h"

struct id_list {
    struct byte_buffer text; /* lines, each ended with a NUL */
    const char **lines;      /* (count) */
    size_t *numbers;         /* (count) of the lines in the file, from 1 */
    size_t count;
};

/* Returns OK, NOTFOUND, IO, LIMIT, NOMEM, or CORRUPT (there is no line). Call fini in any case. */
enum status id_list_read(struct id_list *l, const char *path, struct error *err);
void id_list_fini(struct id_list *l);

/* The lines of the file as numbers: *out (size_bytes / 8), in their order. Returns OK or as above;
 * CORRUPT names a line that is not a number. */
enum status id_list_numbers(struct byte_buffer *out, const char *path, struct error *err);

#endif
