/*
 * file_map: a whole file as bytes in memory: mapped, or read where that is not possible.
 *
 * Threading : immutable once open.
 * Ownership : the bytes live until file_map_close.
 */
#ifndef FORMATS_BASE_FILE_MAP_H
#define FORMATS_BASE_FILE_MAP_H

#include "formats/base/file_io.h"

struct file_map {
    const uint8_t *bytes;
    uint64_t size_bytes;
    void *mapped; /* NULL: `read` holds the bytes */
    struct byte_buffer read;
};

/* Returns OK, NOTFOUND, IO, NOMEM or LIMIT (more than 1 GiB that cannot be mapped). */
enum status file_map_open(struct file_map *out,
                          const struct file_system *fs,
                          const char *path,
                          struct error *err);
void file_map_close(struct file_map *m); /* accepts an all-zero one */

#endif
