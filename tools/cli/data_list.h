/*
 * data_list: the datasets of --data, each "DIR" or "DIR:WEIGHT".
 *
 * Threading : single-owner.
 * Ownership : items point into the list itself, which must not move.
 */
#ifndef TOOLS_CLI_DATA_LIST_H
#define TOOLS_CLI_DATA_LIST_H

#include "formats/base/file_io.h"
#include "formats/base/status.h"
#include "loader/loader.h"

/* Too large for the stack. */
struct data_list {
    struct loader_source items[LOADER_MAX_SOURCES];
    uint32_t count;
    char directories[LOADER_MAX_SOURCES][PATH_MAX_BYTES];
};

/* Appends one dataset per text. The list must be all zero before the first call. Returns OK, USAGE
 * (too many, too long, or a bad weight), or a failure of path_check_dataset. */
enum status
data_list_add(struct data_list *list, const char *const *texts, size_t count, struct error *err);

#endif
