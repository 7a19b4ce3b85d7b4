/*
 * data_list: the loader parses each text.
 */
#include "tools/cli/data_list.h"

#include <stdio.h>
#include <string.h>

#include "tools/cli/path_kind.h"

/* "DIR:X" is a path if X is not a number: then DIR may be the dataset that was meant. */
static enum status check_dataset(const char *path, struct error *err) {
    char directory[PATH_MAX_BYTES];
    const char *colon = strrchr(path, ':');
    if (colon != NULL) {
        (void)snprintf(directory, sizeof directory, "%.*s", (int)(colon - path), path);
        FAIL_IF(path_check_dataset(path, NULL) != STATUS_OK &&
                    path_check_dataset(directory, NULL) == STATUS_OK,
                err, STATUS_USAGE, "%s: the weight after the colon is not a number", path);
    }
    return path_check_dataset(path, err);
}

enum status
data_list_add(struct data_list *list, const char *const *texts, size_t count, struct error *err) {
    REQUIRE(list != NULL && (texts != NULL || count == 0));
    for (size_t i = 0; i < count; i++) {
        FAIL_IF(list->count == LOADER_MAX_SOURCES, err, STATUS_USAGE, "more than %d datasets",
                LOADER_MAX_SOURCES);
        TRY(loader_source_parse(&list->items[list->count], list->directories[list->count],
                                PATH_MAX_BYTES, texts[i], err));
        TRY(check_dataset(list->directories[list->count], err));
        list->count++;
    }
    return STATUS_OK;
}
