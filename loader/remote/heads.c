#include "loader/remote/remote_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/redact.h"

enum { HASH_LINE_BYTES = 17, HEAD_MAX_BYTES = HTTP_MAX_URL_BYTES + 1024 };

static struct cache_key key_of(const struct cache *c, const char *url) {
    return cache_key_own(c, cache_key_of(url, "head", 0));
}

/* The text of a head, up to HEAD_MAX_BYTES. */
static size_t head_text(char out[HEAD_MAX_BYTES], const char *url, const struct head *head) {
    char size[24] = "missing";
    char from[HTTP_MAX_URL_BYTES];
    (void)snprintf(from, sizeof from, "%s", url);
    (void)redact_locations(from);
    if (!head->missing) {
        (void)snprintf(size, sizeof size, "%" PRIu64, head->size_bytes);
    }
    const int length =
        snprintf(out, HEAD_MAX_BYTES - HASH_LINE_BYTES - 1, "ccstream-head 1\n%.*s\n%s\n%s\n%s\n",
                 (int)strcspn(from, "?"), from, head->generation, head->etag, size);
    const uint64_t hash = hash64(out, (size_t)length);
    return (size_t)length +
           (size_t)snprintf(out + length, HASH_LINE_BYTES + 1, "%016" PRIx64 "\n", hash);
}

/* Copies the line at `number`, from 0; "" where there is none or it is too long. */
static void
copy_line(char *out, size_t out_bytes, const char *text, size_t size_bytes, int number) {
    const char *end = text + size_bytes;
    const char *stop = text;
    out[0] = '\0';
    for (int i = 0; (stop = memchr(text, '\n', (size_t)(end - text))) != NULL && i < number; i++) {
        text = stop + 1;
    }
    if (stop != NULL && (size_t)(stop - text) < out_bytes) {
        memcpy(out, text, (size_t)(stop - text));
        out[stop - text] = '\0';
    }
}

/* Takes the fields out of their lines. The text is a head if one with these fields has the same
 * text: then everything else in it is right too. */
bool head_parse(struct head *out, const char *url, const char *text, size_t size_bytes) {
    char size[24];
    char same[HEAD_MAX_BYTES];
    *out = (struct head){0};
    copy_line(out->generation, sizeof out->generation, text, size_bytes, 2);
    copy_line(out->etag, sizeof out->etag, text, size_bytes, 3);
    copy_line(size, sizeof size, text, size_bytes, 4);
    out->missing = strcmp(size, "missing") == 0;
    out->size_bytes = out->missing ? 0 : strtoull(size, NULL, 10);
    return head_text(same, url, out) == size_bytes && memcmp(same, text, size_bytes) == 0;
}

bool heads_recall(struct cache *c, struct head *out, const char *url, const char *generation) {
    struct byte_buffer text = {0};
    const bool found = cache_get_head(c, &text, key_of(c, url)) == STATUS_OK &&
                       head_parse(out, url, (const char *)text.data, text.size_bytes) &&
                       strcmp(out->generation, generation) == 0;
    byte_buffer_fini(&text);
    return found;
}

void heads_remember(struct cache *c, const char *url, const struct head *head) {
    char text[HEAD_MAX_BYTES];
    const size_t length = head_text(text, url, head);
    cache_put_head(c, key_of(c, url), text, length);
}

void heads_forget(struct cache *c, const char *url) {
    cache_remove(c, key_of(c, url), CACHE_HEAD);
}
