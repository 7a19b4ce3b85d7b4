/*
 * Files of the AWS tools, and answers of the metadata service: what is found in a file, written as
 * the plainest file, is found again; keys are printable and come in pairs.
 *
 * Input: "c" for a config file, "m" for the metadata service, anything else for a credentials file;
 * the rest is the text.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/instance_metadata.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static void demand_printable(const char *value) {
    demand(value == NULL || *value != '\0');
    for (; value && *value != '\0'; value++) {
        demand(*value > ' ' && *value <= '~');
    }
}

static void demand_equal(const char *a, const char *b) {
    demand((a == NULL) == (b == NULL) && (a == NULL || strcmp(a, b) == 0));
}

static void check_keys(const struct aws_profile *p) {
    demand((p->access_key == NULL) == (p->secret_key == NULL));
    demand(p->access_key != NULL || p->session_token == NULL);
    const char *const values[] = {p->access_key, p->secret_key, p->session_token, p->region,
                                  p->endpoint};
    for (size_t i = 0; i < 5; i++) {
        demand_printable(values[i]);
    }
}

static void check_metadata(const char *text, size_t size_bytes) {
    struct aws_profile p = {0};
    int64_t end_s = -7;
    const enum status s = instance_metadata_parse(&p, &end_s, text, size_bytes, NULL);
    demand(s == STATUS_OK ? p.session_token != NULL && end_s >= 0
                          : s == STATUS_CORRUPT && p.access_key == NULL && end_s == -7);
    check_keys(&p);
    aws_profile_fini(&p);
}

/* The file that says what was found. */
static void check_again(const struct aws_profile *p, bool is_config) {
    static const char *const keys[] = {"aws_access_key_id", "aws_secret_access_key",
                                       "aws_session_token", "region", "endpoint_url"};
    const char *const values[] = {p->access_key, p->secret_key, p->session_token, p->region,
                                  p->endpoint};
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *f = open_memstream(&text, &size_bytes);
    demand(f != NULL);
    fprintf(f, "[%sx y]\n", is_config ? "profile " : "");
    for (size_t i = 0; i < 5; i++) {
        if (values[i]) {
            fprintf(f, "%s = %s\n", keys[i], values[i]);
        }
    }
    demand(fclose(f) == 0);
    struct aws_profile q = {0};
    bool found = false;
    demand(aws_profile_parse(&q, &found, "q", text, size_bytes, is_config, "x y", NULL) ==
           STATUS_OK);
    demand(found);
    demand_equal(p->access_key, q.access_key);
    demand_equal(p->secret_key, q.secret_key);
    demand_equal(p->session_token, q.session_token);
    demand_equal(p->region, q.region);
    demand_equal(p->endpoint, q.endpoint);
    aws_profile_fini(&q);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    if (size_bytes == 0) {
        return 0;
    }
    const char *text = (const char *)data + 1;
    if (*data == 'm') {
        check_metadata(text, size_bytes - 1);
        return 0;
    }
    const bool is_config = *data == 'c';
    struct aws_profile p = {0};
    bool found = false;
    const enum status s =
        aws_profile_parse(&p, &found, "p", text, size_bytes - 1, is_config, "default", NULL);
    demand(s == STATUS_OK || s == STATUS_CORRUPT || s == STATUS_UNSUPPORTED);
    check_keys(&p);
    if (s == STATUS_OK) {
        demand(found || (p.access_key == NULL && p.region == NULL && p.endpoint == NULL));
        check_again(&p, is_config);
    }
    aws_profile_fini(&p);
    return 0;
}
