/*
 * Which columns of a table, or members of a JSON object, hold the image and the captions, and
 * which others become a sample's metadata: the same for every kind of source.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "pack/source/source_internal.h"

const char *const source_image_names[] = {
    "image",      "file_name",  "filename",   "path",       "file_path", "filepath", "img",
    "image_path", "image_file", "image_name", "image path", "file",      NULL};
const char *const source_url_names[] = {"url",      "urls",       "image_url", "img_url",
                                        "imageurl", "coco_url",   "uri",       "link",
                                        "url.txt",  "image path", "image",     NULL};
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

/* Appends the names of these roles that are among the usual ones, if any are given. */
static bool say_names(struct source *s,
                      const char *before,
                      const struct source_column *columns,
                      size_t count,
                      enum source_role first,
                      enum source_role last,
                      const char *const *usual) {
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        const char *const *name = usual;
        while (name && *name && strcasecmp(*name, columns[i].name) != 0) {
            name++;
        }
        if (columns[i].role >= first && columns[i].role <= last && (!name || *name)) {
            say(s, "%s%s'%.60s'", !any && s->columns[0] != '\0' && before[0] != ',' ? "; " : "",
                any ? ", " : before, columns[i].name);
            any = true;
        }
    }
    return any;
}

void source_say_columns(struct source *s, const struct source_column *columns, size_t count) {
    const char *const *images = s->urls ? source_url_names : source_image_names;
    const enum source_role kept = SOURCE_COLUMN_KEPT, dropped = SOURCE_COLUMN_DROPPED;
    s->columns[0] = '\0';
    say_names(s, "captions are from ", columns, count, SOURCE_COLUMN_CAPTION, SOURCE_COLUMN_CAPTION,
              NULL);
    bool choice = say_names(s, ", not from ", columns, count, kept, dropped, source_caption_names);
    say_names(s, s->urls ? "URLs from " : "paths from ", columns, count, SOURCE_COLUMN_IMAGE,
              SOURCE_COLUMN_IMAGE, NULL);
    choice |= say_names(s, ", not from ", columns, count, kept, dropped, images);
    if (!choice) {
        s->columns[0] = '\0';
    }
    say_names(s, "kept as metadata: ", columns, count, kept, kept, NULL);
    say_names(s, "not kept: ", columns, count, dropped, dropped, NULL);
}

void source_say_members(struct source *s,
                        const struct json_value *object,
                        const char *image,
                        const char *captions,
                        const char *used) {
    enum { MOST = 64 };
    struct source_column columns[MOST];
    size_t count = 0;
    void *position = NULL;
    const struct json_value *value;
    const char *name;
    while (count < MOST && json_value_next_member(object, &position, &name, &value)) {
        columns[count].name = name;
        columns[count++].role = strcmp(name, image) == 0           ? SOURCE_COLUMN_IMAGE
                                : source_is_listed(captions, name) ? SOURCE_COLUMN_CAPTION
                                : source_is_listed(used, name)     ? SOURCE_COLUMN_USED
                                : source_keeps(s, name)            ? SOURCE_COLUMN_KEPT
                                                                   : SOURCE_COLUMN_DROPPED;
    }
    source_say_columns(s, columns, count);
}

bool source_keeps(const struct source *s, const char *name) {
    return !s->keep || (strcmp(s->keep, "none") != 0 && source_is_listed(s->keep, name));
}

enum status source_row_keep_members(struct source_row *row,
                                    struct source *s,
                                    const struct json_value *object,
                                    const char *used,
                                    struct error *err) {
    void *position = NULL;
    const struct json_value *value;
    const char *name;
    bool any = false;
    json_writer_reset(&s->json);
    json_open_object(&s->json, NULL);
    while (json_value_next_member(object, &position, &name, &value)) {
        if (!source_is_listed(used, name) && source_keeps(s, name)) {
            char *text = json_value_text(value);
            TRY_MEMORY(text, err, "out of memory for metadata");
            json_raw(&s->json, name, text, strlen(text));
            free(text);
            any = true;
        }
    }
    return any ? source_row_take_json(row, &s->json, err) : STATUS_OK;
}
