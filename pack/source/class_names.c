/*
 * The classes of a source: the list of their names, from folders or from a classnames.txt beside an
 * archive, and the class of a row.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/utf8.h"
#include "pack/source/folders_internal.h"

void source_names_init(struct source_names *n) {
    *n = (struct source_names){0};
    byte_buffer_init(&n->text, SOURCE_MAX_LIST_BYTES);
}

void source_names_fini(struct source_names *n) {
    byte_buffer_fini(&n->text);
    free(n->names);
    source_names_init(n);
}

enum status source_names_add(struct source_names *n,
                             char kind,
                             const char *name,
                             size_t size_bytes,
                             struct error *err) {
    TRY(byte_buffer_reserve(&n->text, size_bytes + 2, err));
    TRY(byte_buffer_append(&n->text, &kind, 1, err));
    TRY(byte_buffer_append(&n->text, name, size_bytes, err));
    n->count++;
    return byte_buffer_append(&n->text, "", 1, err);
}

enum status source_names_list(struct source_names *n, struct error *err) {
    n->names = malloc((n->count + 1) * sizeof(n->names[0]));
    TRY_MEMORY(n->names, err, "out of memory for %zu names", n->count);
    const char *p = (const char *)n->text.data;
    for (size_t i = 0; i < n->count; i++) {
        n->names[i] = p + 1;
        p += strlen(p) + 1;
    }
    return STATUS_OK;
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

enum status source_names_sort(struct source_names *n, struct error *err) {
    TRY(source_names_list(n, err));
    qsort(n->names, n->count, sizeof(n->names[0]), by_bytes);
    return STATUS_OK;
}

enum status
source_check_class(const char *path, const char *name, size_t count, struct error *err) {
    FAIL_IF(count > SOURCE_MAX_CLASSES, err, STATUS_LIMIT, "%s: more than %d classes", path,
            SOURCE_MAX_CLASSES);
    FAIL_IF(utf8_valid_prefix(name, strlen(name)) != strlen(name), err, STATUS_CORRUPT,
            "%s: the name of class '%.80s' is not UTF-8", path, name);
    return STATUS_OK;
}

bool source_is_image_name(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *dot = strrchr(slash ? slash + 1 : path, '.');
    return dot && source_is_image_extension(dot + 1, strlen(dot + 1));
}

enum status source_row_set_class(struct source_row *row,
                                 struct json_writer *w,
                                 const char *key,
                                 size_t class_index,
                                 const char *class_name,
                                 struct error *err) {
    const char *slash = strrchr(key, '/');
    const char *dot = strrchr(slash ? slash + 1 : key, '.');
    source_row_set_key(row, key, dot ? (size_t)(dot - key) : strlen(key));
    row->class_index = (int32_t)class_index;
    row->captions_optional = true;
    json_writer_reset(w);
    json_open_object(w, NULL);
    json_string(w, "class", class_name);
    return source_row_take_json(row, w, err);
}

enum status source_read_near(struct byte_buffer *out,
                             const char *archive,
                             const char *name,
                             size_t max_bytes,
                             struct error *err) {
    static const char *const folders[] = {"", "../"};
    char folder[PATH_MAX_BYTES], file[PATH_MAX_BYTES], near[32];
    enum status s = STATUS_NOTFOUND;
    for (size_t i = 0; i < 2 && s == STATUS_NOTFOUND && strcmp(archive, "-") != 0; i++) {
        snprintf(near, sizeof(near), "%s%s", folders[i], name);
        TRY(path_directory(folder, sizeof(folder), archive, err));
        TRY(path_join(file, sizeof(file), folder, near, err));
        s = file_read_all(file_posix(), out, file, max_bytes, err);
    }
    return s;
}

enum status source_read_classes(struct source *s,
                                struct source_names *classes,
                                const char *archive,
                                struct error *err) {
    struct byte_buffer text = {0};
    struct error why = {0};
    source_names_init(classes);
    enum status status =
        source_read_near(&text, archive, "classnames.txt", SOURCE_MAX_LIST_BYTES, &why);
    if (status == STATUS_NOTFOUND) {
        return STATUS_OK;
    }
    FAIL_IF(status != STATUS_OK, err, status, "%s", why.text);
    const char *line = (const char *)text.data;
    const char *const end = line + text.size_bytes;
    while (status == STATUS_OK && line < end) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        const char *last = next ? next : end;
        for (; line < last && source_is_space(line[0]); line++) {
        }
        for (; line < last && source_is_space(last[-1]); last--) {
        }
        status = source_names_add(classes, ' ', line, (size_t)(last - line), err);
        line = next ? next + 1 : end;
    }
    byte_buffer_fini(&text);
    THEN(status, source_names_list(classes, err));
    for (size_t i = 0; status == STATUS_OK && i < classes->count; i++) {
        status = source_check_class(s->path, classes->names[i], classes->count, err);
    }
    s->class_names = classes->names;
    s->class_count = classes->count;
    return status;
}

enum status source_row_set_class_id(struct source_row *row,
                                    struct byte_buffer *text,
                                    size_t count,
                                    struct error *err) {
    TRY(byte_buffer_append(text, "", 1, err));
    const char *digits = (const char *)text->data;
    digits += strspn(digits, " \t\r\n");
    char *end = NULL;
    const unsigned long id = digits[0] >= '0' && digits[0] <= '9' ? strtoul(digits, &end, 10) : 0;
    if (!end || end[strspn(end, " \t\r\n")] != '\0' || id >= count) {
        source_row_reject(row, REASON_ROW_BAD,
                          "its .cls is '%.32s', which is not a line number of classnames.txt "
                          "(0-based, %zu lines)",
                          digits, count);
        return STATUS_OK;
    }
    row->class_index = (int32_t)id;
    row->captions_optional = true;
    return STATUS_OK;
}
