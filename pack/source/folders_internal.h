/*
 * source_folders: what sources with classes share: the list of their names, and filling a row.
 */
#ifndef PACK_SOURCE_FOLDERS_INTERNAL_H
#define PACK_SOURCE_FOLDERS_INTERNAL_H

#include "pack/source/source_internal.h"

/* Names, each followed by a NUL, and pointers to them once they are listed. */
struct source_names {
    struct byte_buffer text;
    const char **names; /* NULL before source_names_list */
    size_t count;
};

void source_names_init(struct source_names *n);
void source_names_fini(struct source_names *n);

/* Adds a name, after a byte `kind`. Returns OK, NOMEM or LIMIT. */
enum status source_names_add(struct source_names *n,
                             char kind,
                             const char *name,
                             size_t size_bytes,
                             struct error *err);

/* Lists all names, in the order in which they were added. Returns OK or NOMEM. */
enum status source_names_list(struct source_names *n, struct error *err);

/* The same, sorted by the bytes of the names, ignoring `kind`. */
enum status source_names_sort(struct source_names *n, struct error *err);

/* Checks the number of classes, and that a name is UTF-8. Returns OK, LIMIT or CORRUPT. */
enum status source_check_class(const char *path, const char *name, size_t count, struct error *err);

/* Reads a file that a CLIP-benchmark set has beside its archive or in the folder above. Returns OK,
 * NOTFOUND, LIMIT, IO or NOMEM. */
enum status source_read_near(struct byte_buffer *out,
                             const char *archive,
                             const char *name,
                             size_t max_bytes,
                             struct error *err);

/* The lines of classnames.txt, so found, as the classes of the source; none if there is no such
 * file. An empty one is a class too: CLEVR's distances have one. */
enum status source_read_classes(struct source *s,
                                struct source_names *classes,
                                const char *archive,
                                struct error *err);

enum { SOURCE_CLASS_BYTES = 32 }; /* of a .cls */

/* The class of a row by the text of its .cls, a decimal number with white space around it; the row
 * is rejected if it is none of the `count` classes. Returns OK or NOMEM. */
enum status source_row_set_class_id(struct source_row *row,
                                    struct byte_buffer *text,
                                    size_t count,
                                    struct error *err);

/* Sets key, class and JSON of a row; `key` is the file's path below the folders above the class. */
enum status source_row_set_class(struct source_row *row,
                                 struct json_writer *w,
                                 const char *key,
                                 size_t class_index,
                                 const char *class_name,
                                 struct error *err);

/* Whether a path has the extension of an image. */
bool source_is_image_name(const char *path);

#endif
