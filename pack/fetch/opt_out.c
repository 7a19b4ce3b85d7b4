/*
 * Entries are kept as hashes of their text, sorted: hosts and URLs of their normal forms, images
 * as they are. That a URL has the hash of another is as unlikely as an error of the memory.
 */
#include "pack/fetch/fetch_internal.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/sort.h"

enum { MAX_FILE_BYTES = 1 << 30, HASH_DIGITS = 16 };

struct opt_out {
    struct byte_buffer hashes; /* each of 8 bytes, ascending */
};

static bool has(const struct opt_out *o, uint64_t hash) {
    const size_t count = o->hashes.size_bytes / sizeof(hash);
    return count > 0 && bsearch(&hash, o->hashes.data, count, sizeof(hash), compare_u64) != NULL;
}

static bool is_hash(const char *text) {
    return strlen(text) == HASH_DIGITS && strspn(text, "0123456789abcdefABCDEF") == HASH_DIGITS;
}

static enum status add_line(struct opt_out *o, const char *text, struct error *err) {
    if (is_hash(text)) {
        const uint64_t hash = strtoull(text, NULL, 16);
        return byte_buffer_append(&o->hashes, &hash, sizeof(hash), err);
    }
    struct url u;
    const bool is_url = strstr(text, "://") != NULL;
    char host[URL_HOST_BYTES + 16];
    FAIL_IF(!is_url && (strlen(text) >= URL_HOST_BYTES || strpbrk(text, "/@?# \t")), err,
            STATUS_CORRUPT, "'%.80s' is not a host, URL or hash", text);
    if (!is_url) {
        strcpy(host, "http://");
        strcat(host, text[0] == '.' ? text + 1 : text);
    }
    const enum status s = url_init(&u, is_url ? text : host, NULL, err);
    if (s != STATUS_OK) {
        return s == STATUS_INVALID || s == STATUS_LIMIT ? STATUS_CORRUPT : s;
    }
    const char *normal = is_url ? u.text : u.host;
    const uint64_t hash = hash64(normal, strlen(normal));
    const enum status added = byte_buffer_append(&o->hashes, &hash, sizeof(hash), err);
    url_fini(&u);
    return added;
}

static enum status add_lines(struct opt_out *o, const char *path, char *text, struct error *err) {
    size_t number = 0;
    for (char *line = text; line;) {
        char *end = strchr(line, '\n');
        if (end) {
            *end++ = '\0';
        }
        number++;
        line += strspn(line, " \t");
        line[strcspn(line, "\r")] = '\0';
        for (size_t n = strlen(line); n > 0 && (line[n - 1] == ' ' || line[n - 1] == '\t'); n--) {
            line[n - 1] = '\0';
        }
        struct error why = {0};
        const enum status s =
            line[0] != '\0' && line[0] != '#' ? add_line(o, line, &why) : STATUS_OK;
        FAIL_IF(s != STATUS_OK, err, s, "%.160s: line %zu: %.200s", path, number, why.text);
        line = end;
    }
    return STATUS_OK;
}

enum status opt_out_open(struct opt_out **out,
                         const struct file_system *fs,
                         const char *path,
                         struct error *err) {
    struct byte_buffer text;
    *out = NULL;
    TRY(file_read_all(fs, &text, path, MAX_FILE_BYTES, err));
    struct opt_out *o = calloc(1, sizeof(*o));
    if (o) {
        byte_buffer_init(&o->hashes, SIZE_MAX / 2);
    }
    enum status s = o ? add_lines(o, path, (char *)text.data, err)
                      : error_set(err, STATUS_NOMEM, "%s: out of memory", path);
    byte_buffer_fini(&text);
    if (s == STATUS_OK && o->hashes.size_bytes > 0) {
        qsort(o->hashes.data, o->hashes.size_bytes / sizeof(uint64_t), sizeof(uint64_t),
              compare_u64);
    }
    RETURN_CREATED(s, out, o, opt_out_close);
}

void opt_out_close(struct opt_out *o) {
    if (o) {
        byte_buffer_fini(&o->hashes);
        free(o);
    }
}

bool opt_out_has_url(const struct opt_out *o, const struct url *u) {
    if (!o) {
        return false;
    }
    if (has(o, hash64(u->text, strlen(u->text)))) {
        return true;
    }
    for (const char *host = u->host; host; host = strchr(host, '.')) {
        host += host[0] == '.';
        if (has(o, hash64(host, strlen(host)))) {
            return true;
        }
    }
    return false;
}

bool opt_out_has_image(const struct opt_out *o, uint64_t hash) {
    return o && has(o, hash);
}
