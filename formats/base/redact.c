/*
 * One pass, in place: what is kept moves to the front.
 */
#include "formats/base/redact.h"

#include <stddef.h>
#include <string.h>

#define LOCATION_END " \t\r\n\"<>"

static char *keep(char *out, const char **in, size_t size_bytes) {
    memmove(out, *in, size_bytes);
    *in += size_bytes;
    return out + size_bytes;
}

static bool is_alphanumeric(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Bytes before the host. Without an @, where a message was cut, what follows a colon and is no port
 * is a password. */
static size_t userinfo_bytes(const char *text) {
    const size_t size_bytes = strcspn(text, "/?#" LOCATION_END);
    const char *at = memrchr(text, '@', size_bytes);
    const char *colon = text[0] != '[' ? memchr(text, ':', size_bytes) : NULL;
    if (at != NULL) {
        return (size_t)(at - text) + 1;
    }
    if (colon == NULL) {
        return 0;
    }
    const char *after = colon + 1 + strspn(colon + 1, "0123456789");
    if (after == text + size_bytes || strchr(":;,.)]'", *after) != NULL) {
        return 0;
    }
    /* A password with a slash goes on to the @. */
    const char *end = memrchr(text, '@', strcspn(text, LOCATION_END));
    return end != NULL ? (size_t)(end - text) + 1 : size_bytes;
}

bool redact_locations(char *text) {
    const char *in = text;
    char *out = text;
    bool any = false;
    const char *scheme;
    while ((scheme = strstr(in, "://")) != NULL) {
        const bool is_location = scheme > in && is_alphanumeric(scheme[-1]);
        out = keep(out, &in, (size_t)(scheme - in) + 3);
        if (!is_location) {
            continue;
        }
        const size_t secret_bytes = userinfo_bytes(in);
        any = any || secret_bytes > 0;
        in += secret_bytes;
        out = keep(out, &in, strcspn(in, "?#" LOCATION_END));
        size_t query_bytes = strcspn(in, LOCATION_END);
        while (query_bytes > 0 && strchr(":;,.)]'", in[query_bytes - 1]) != NULL) {
            query_bytes--;
        }
        if (query_bytes > 1 && strncmp(in, "?...", query_bytes) != 0) {
            any = true;
            memcpy(out, "?...", query_bytes < 4 ? query_bytes : 4);
            out += query_bytes < 4 ? query_bytes : 4;
            in += query_bytes;
        }
    }
    (void)keep(out, &in, strlen(in) + 1);
    return any;
}
