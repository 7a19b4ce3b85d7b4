/*
 * data_list: the loader parses each text.
 */
#include "tools/cli/data_list.h"

enum status
data_list_add(struct data_list *list, const char *const *texts, size_t count, struct error *err) {
    REQUIRE(list != NULL && (texts != NULL || count == 0));
    for (size_t i = 0; i < count; i++) {
        if (list->count == LOADER_MAX_SOURCES) {
            return error_set(err, STATUS_USAGE, "more than %d datasets", LOADER_MAX_SOURCES);
        }
        TRY(loader_source_parse(&list->items[list->count], list->directories[list->count],
                                PATH_MAX_BYTES, texts[i], err));
        list->count++;
    }
    return STATUS_OK;
}
