#include "loader/remote/heads_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"

enum { HASH_LINE_BYTES = 17 };

static const char first_line[] = "ccstream-head 1\n";
static const char missing_word[] = "missing";

static struct cache_key key_of(const char *url) {
    return cache_key_of(url, "head", 0);
}

/* Takes one line at *at, without its end. */
static bool take_line(const char **at, const char *end, const char **line, size_t *size_bytes) {
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    if (newline == NULL) {
        return false;
    }
    *line = *at;
    *size_bytes = (size_t)(newline - *at);
    *at = newline + 1;
    return true;
}

static bool take_etag(char out[HEAD_ETAG_BYTES], const char **at, const char *end) {
    const char *line;
    size_t size;
    if (!take_line(at, end, &line, &size) || size >= HEAD_ETAG_BYTES ||
        memchr(line, '\0', size) != NULL) {
        return false;
    }
    memcpy(out, line, size);
    out[size] = '\0';
    return true;
}

static bool take_size(struct head *out, const char **at, const char *end) {
    const char *line;
    size_t size;
    char text[24] = "";
    if (!take_line(at, end, &line, &size) || size == 0 || size >= sizeof text) {
        return false;
    }
    memcpy(text, line, size);
    out->missing = strcmp(text, missing_word) == 0;
    out->size_bytes = out->missing ? 0 : strtoull(text, NULL, 10);
    return out->missing || strspn(text, "0123456789") == size;
}

bool head_parse(struct head *out, const char *url, const char *text, size_t size_bytes) {
    const char *line;
    const size_t url_bytes = strcspn(url, "?");
    size_t size;
    char hash[HASH_LINE_BYTES + 1];
    *out = (struct head){0};
    if (size_bytes < sizeof first_line - 1 + HASH_LINE_BYTES ||
        memcmp(text, first_line, sizeof first_line - 1) != 0) {
        return false;
    }
    const char *at = text + sizeof first_line - 1;
    const char *end = text + size_bytes - HASH_LINE_BYTES;
    (void)snprintf(hash, sizeof hash, "%016" PRIx64 "\n", hash64(text, (size_t)(end - text)));
    return memcmp(hash, end, HASH_LINE_BYTES) == 0 && take_line(&at, end, &line, &size) &&
           size == url_bytes && memcmp(line, url, size) == 0 &&
           take_etag(out->generation, &at, end) && take_etag(out->etag, &at, end) &&
           take_size(out, &at, end) && at == end;
}

bool heads_recall(struct cache *c, struct head *out, const char *url, const char *generation) {
    struct byte_buffer text = {0};
    const bool found = cache_get_head(c, &text, key_of(url)) == STATUS_OK &&
                       head_parse(out, url, (const char *)text.data, text.size_bytes) &&
                       strcmp(out->generation, generation) == 0;
    byte_buffer_fini(&text);
    return found;
}

void heads_remember(struct cache *c, const char *url, const struct head *head) {
    char text[HTTP_MAX_URL_BYTES + 1024];
    char size[24] = "missing";
    if (!head->missing) {
        (void)snprintf(size, sizeof size, "%" PRIu64, head->size_bytes);
    }
    int length =
        snprintf(text, sizeof text - HASH_LINE_BYTES - 1, "%s%.*s\n%s\n%s\n%s\n", first_line,
                 (int)strcspn(url, "?"), url, head->generation, head->etag, size);
    length += snprintf(text + length, HASH_LINE_BYTES + 1, "%016" PRIx64 "\n",
                       hash64(text, (size_t)length));
    cache_put_head(c, key_of(url), text, (size_t)length);
}

void heads_forget(struct cache *c, const char *url) {
    cache_remove_head(c, key_of(url));
}
