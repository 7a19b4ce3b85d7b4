/*
 * source_folders: what class folders on disk and in an archive share: the list of classes, and
 * filling a row.
 */
#ifndef PACK_SOURCE_FOLDERS_INTERNAL_H
#define PACK_SOURCE_FOLDERS_INTERNAL_H

#include "pack/source/source_internal.h"

/* Names, each followed by a NUL, and pointers to them after sorting. */
struct source_names {
    struct byte_buffer text;
    const char **names; /* NULL before source_names_sort */
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

/* Sorts by the bytes of the names, ignoring `kind`. Returns OK or NOMEM. */
enum status source_names_sort(struct source_names *n, struct error *err);

/* Checks the number of classes, and that their names are UTF-8. Returns OK, LIMIT or CORRUPT. */
enum status source_check_class(const char *path, const char *name, size_t count, struct error *err);

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
