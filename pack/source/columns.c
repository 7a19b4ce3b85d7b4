/*
 * Which columns of a table, or members of a JSON object, hold the image and the captions: the same
 * for every kind of source.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "pack/source/source_internal.h"

const char *const source_image_names[] = {"image",      "file_name",  "filename", "path",
                                          "file_path",  "filepath",   "img",      "image_path",
                                          "image_file", "image_name", "file",     NULL};
const char *const source_url_names[] = {"url", "urls", "image_url", "img_url", "imageurl",
                                        "uri", "link", "image",     NULL};
const char *const source_caption_names[] = {"caption",  "captions",    "text",    "title",
                                            "sentence", "description", "comment", NULL};

bool source_next_name(const char **list, char name[SOURCE_MAX_NAME_BYTES + 1]) {
    const size_t n = strcspn(*list, ",");
    if (**list == '\0') {
        return false;
    }
    snprintf(name, SOURCE_MAX_NAME_BYTES + 1, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ',');
    return true;
}

bool source_is_listed(const char *list, const char *name) {
    char one[SOURCE_MAX_NAME_BYTES + 1];
    bool found = false;
    while (!found && source_next_name(&list, one)) {
        found = strcmp(one, name) == 0;
    }
    return found;
}

/* Appends to the line, and where it is full an ellipsis. */
__attribute__((format(printf, 2, 3))) static void say(struct source *s, const char *fmt, ...) {
    const size_t at = strlen(s->columns);
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(s->columns + at, sizeof(s->columns) - at, fmt, args) >=
        (int)(sizeof(s->columns) - at)) {
        strcpy(s->columns + sizeof(s->columns) - sizeof("..."), "...");
    }
    va_end(args);
}

/* Appends the names of this role that are among the usual ones, if any are given. */
static bool say_names(struct source *s,
                      const char *before,
                      const struct source_column *columns,
                      size_t count,
                      enum source_role role,
                      const char *const *usual) {
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        const char *const *name = usual;
        while (name && *name && strcasecmp(*name, columns[i].name) != 0) {
            name++;
        }
        if (columns[i].role == role && (!name || *name)) {
            say(s, "%s'%.60s'", any ? ", " : before, columns[i].name);
            any = true;
        }
    }
    return any;
}

void source_say_columns(struct source *s, const struct source_column *columns, size_t count) {
    const char *const *images = s->urls ? source_url_names : source_image_names;
    s->columns[0] = '\0';
    say_names(s, "captions are from ", columns, count, SOURCE_COLUMN_CAPTION, NULL);
    bool choice =
        say_names(s, ", not from ", columns, count, SOURCE_COLUMN_OTHER, source_caption_names);
    say_names(s, s->urls ? "; URLs from " : "; paths from ", columns, count, SOURCE_COLUMN_IMAGE,
              NULL);
    choice |= say_names(s, ", not from ", columns, count, SOURCE_COLUMN_OTHER, images);
    if (!choice) {
        s->columns[0] = '\0';
    }
}
