/*
 * Random text as a URL, as the values of headers and as the body of an S3 error: what is accepted
 * is within its limits, and a URL in normal form stays what it is.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/http_internal.h"
#include "net/s3_error.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    char *text = malloc(size_bytes + 1);
    demand(text != NULL);
    memcpy(text, data, size_bytes);
    text[size_bytes] = '\0';
    uint64_t first;
    uint64_t last;
    uint64_t total;
    if (http_parse_content_range(text, &first, &last, &total)) {
        demand(first <= last && last < total);
    }
    (void)http_robots_tag_forbids(text, "ccstream");
    if (http_parse_rate_limit(text) > 86400000) {
        abort();
    }
    struct s3_error e;
    if (s3_error_parse(&e, text)) {
        demand(e.code[0] != '\0' && strspn(e.code, "<>& \n") == 0);
        for (const char *at = e.message; *at != '\0'; at++) {
            demand(*at >= ' ' && *at <= '~');
        }
    }
    struct url u;
    struct url again;
    if (url_init(&u, text, NULL, NULL) == STATUS_OK) {
        demand(u.path != NULL && u.path[0] == '/');
        demand(strncmp(u.text, "http://", 7) == 0 || strncmp(u.text, "https://", 8) == 0);
        demand(url_init(&again, u.text, NULL, NULL) == STATUS_OK);
        demand(strcmp(u.origin, again.origin) == 0);
        url_fini(&again);
    }
    url_fini(&u);
    free(text);
    return 0;
}
