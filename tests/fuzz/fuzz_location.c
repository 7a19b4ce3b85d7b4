/*
 * A location and the name of a file, any bytes: a URL that is made begins with http, has no part
 * `..` after the location's own, and its end, decoded, is the name.
 *
 * Input: the location, LF, the name.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "net/location.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

/* Whether the percent-encoded text, at most `size_bytes` of it, is `name`. */
static bool decodes_to(const char *text, size_t size_bytes, const char *name) {
    const char *end = text + size_bytes;
    for (; *name != '\0'; name++) {
        char octet = *text++;
        if (octet == '%' && end - text >= 2) {
            const char digits[3] = {text[0], text[1], '\0'};
            octet = (char)strtol(digits, NULL, 16);
            text += 2;
        }
        if (octet != *name || text > end) {
            return false;
        }
    }
    return text == end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static char text[4096];
    static char url[HTTP_MAX_URL_BYTES];
    static const char *const unset[] = {"AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
                                        "AWS_ENDPOINT_URL", "HF_ENDPOINT"};
    if (size_bytes >= sizeof(text)) {
        return 0;
    }
    for (size_t i = 0; i < 5; i++) {
        unsetenv(unset[i]);
    }
    setenv("HOME", "/nonexistent", 1);
    memcpy(text, data, size_bytes);
    text[size_bytes] = '\0';
    char *name = strchr(text, '\n');
    if (name == NULL) {
        return 0;
    }
    *name++ = '\0';
    struct location *l = NULL;
    const enum status made = location_create(&l, text, NULL, NULL);
    demand(made == STATUS_OK || (made == STATUS_USAGE && l == NULL));
    if (made != STATUS_OK) {
        return 0;
    }
    demand(location_is_remote(text));
    const enum status s = location_url(l, url, name, NULL);
    demand(s == STATUS_OK || s == STATUS_INVALID || s == STATUS_LIMIT);
    if (s == STATUS_OK) {
        const char *query = strchr(text, '?');
        const size_t query_bytes = query && strncasecmp(text, "http", 4) == 0 ? strlen(query) : 0;
        char base[HTTP_MAX_URL_BYTES];
        demand(location_url(l, base, "x", NULL) == STATUS_OK);
        const size_t base_bytes = strlen(base) - query_bytes - 1;
        demand(strncasecmp(url, "http", 4) == 0 && memcmp(url, base, base_bytes) == 0);
        url[strlen(url) - query_bytes] = '\0';
        demand(decodes_to(url + base_bytes, strlen(url + base_bytes), name));
        demand(strstr(url + base_bytes, "/../") == NULL && strcmp(name, "..") != 0);
    }
    location_destroy(l);
    return 0;
}
