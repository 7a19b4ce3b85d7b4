#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "tools/ccpack/ccpack_internal.h"

void id_list_fini(struct id_list *l) {
    byte_buffer_fini(&l->text);
    free(l->lines);
    free(l->numbers);
}

enum status id_list_read(struct id_list *l, const char *path, struct error *err) {
    size_t lines = 1;
    size_t number = 0;
    memset(l, 0, sizeof(*l));
    TRY(file_read_all(file_posix(), &l->text, path, 1 << 30, err));
    char *at = (char *)l->text.data;
    char *end = at + l->text.size_bytes;
    for (size_t i = 0; i < l->text.size_bytes; i++) {
        lines += at[i] == '\n';
    }
    l->lines = malloc(lines * sizeof(*l->lines));
    l->numbers = malloc(lines * sizeof(*l->numbers));
    TRY_MEMORY(l->lines && l->numbers, err, "%s: out of memory", path);
    while (at < end) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        char *next = stop ? stop + 1 : end;
        stop = stop ? stop : end;
        while (stop > at && strchr(" \t\r", stop[-1])) {
            stop--;
        }
        *stop = '\0'; /* the file's text is followed by a NUL */
        at += strspn(at, " \t");
        number++;
        if (*at != '\0' && *at != '#') {
            l->lines[l->count] = at;
            l->numbers[l->count++] = number;
        }
        at = next;
    }
    return l->count > 0 ? STATUS_OK : error_set(err, STATUS_CORRUPT, "%s: has no line", path);
}

enum status id_list_numbers(struct byte_buffer *out, const char *path, struct error *err) {
    struct id_list l;
    enum status s = id_list_read(&l, path, err);
    for (size_t i = 0; s == STATUS_OK && i < l.count; i++) {
        uint64_t id = 0;
        s = cli_parse_u64(l.lines[i], CLI_UNIT_NONE, &id)
                ? byte_buffer_append(out, &id, sizeof(id), err)
                : error_set(err, STATUS_CORRUPT, "%s: line %zu: '%.60s' is not an id", path,
                            l.numbers[i], l.lines[i]);
    }
    id_list_fini(&l);
    return s;
}
