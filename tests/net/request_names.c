/*
 * Requests files of a location, whatever the answers are: request_names LOCATION ENDPOINT <NAMES,
 * each name with a NUL after it. The server is to record what arrives (check_s3_signature.py).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/http.h"
#include "net/location.h"

static void ignore(void *cookie, const struct http_result *result) {
    (void)cookie;
    (void)result;
}

static enum status request_names(struct http *h,
                                 struct location *l,
                                 const char *names,
                                 size_t size_bytes,
                                 struct error *err) {
    char url[HTTP_MAX_URL_BYTES];
    for (const char *name = names; name < names + size_bytes; name += strlen(name) + 1) {
        struct http_request r = {.url = url, .max_bytes = 1 << 20, .on_done = ignore};
        TRY(location_url(l, url, name, err));
        TRY(location_authorize(l, &r, err));
        TRY(http_start(h, &r, err));
        while (http_pending(h) > 0) {
            TRY(http_run(h, 1000, err));
        }
    }
    return STATUS_OK;
}

int main(int argc, char **argv) {
    static char names[4 << 20];
    struct error err = {0};
    struct http *h = NULL;
    struct location *l = NULL;
    struct http_options options;
    if (argc != 3) {
        fprintf(stderr, "usage: request_names LOCATION ENDPOINT <NAMES\n");
        return 64;
    }
    const size_t size_bytes = fread(names, 1, sizeof(names) - 1, stdin);
    const struct location_options where = {.endpoint = argv[2]};
    http_options_default(&options);
    options.allow_private = true;
    options.user_agent = "ccstream";
    enum status s = http_create(&h, &options, &err);
    if (s == STATUS_OK) {
        s = location_create(&l, argv[1], &where, &err);
    }
    if (s == STATUS_OK) {
        s = request_names(h, l, names, size_bytes, &err);
    }
    location_destroy(l);
    http_destroy(h);
    if (s != STATUS_OK) {
        fprintf(stderr, "request_names: %s\n", err.text);
    }
    return status_exit_code(s);
}
