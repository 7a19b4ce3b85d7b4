/*
 * Three requests, one after the other, on a connection of their own. The last answer is a flat JSON
 * object of strings, so a search for the key is enough to read it.
 */
#include "net/instance_metadata.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/base/bytes.h"
#include "net/http.h"

enum { ANSWER_MAX_BYTES = 16384, TOKEN_MAX_BYTES = 1024, TIMEOUT_MS = 2000 };

/* --- the answer */

/* The text of the member `key`, with its escapes \/ resolved; NULL if it is missing or has anything
 * that is no part of a key. The caller frees it. */
static char *member(const char *text, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof(quoted), "\"%s\"", key);
    const char *at = strstr(text, quoted);
    if (at == NULL) {
        return NULL;
    }
    at += strlen(quoted);
    at += strspn(at, " \t\r\n");
    if (*at++ != ':') {
        return NULL;
    }
    at += strspn(at, " \t\r\n");
    const size_t size_bytes = *at == '"' ? strcspn(at + 1, "\"") : 0;
    if (size_bytes == 0 || at[1 + size_bytes] != '"') {
        return NULL;
    }
    char *value = malloc(size_bytes + 1);
    char *end = value;
    for (const char *c = at + 1; value && c <= at + size_bytes; c++) {
        if (*c == '\\' && c[1] == '/') {
            continue;
        }
        if (*c <= ' ' || *c > '~' || *c == '\\') {
            free(value);
            return NULL;
        }
        *end++ = *c;
    }
    if (value) {
        *end = '\0';
    }
    return value;
}

/* "2026-11-23T18:00:00Z" in seconds since 1970; -1 if it is not like that. */
static int64_t seconds_of(const char *text) {
    struct tm t = {0};
    char zone = '\0';
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%c", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour,
               &t.tm_min, &t.tm_sec, &zone) != 7 ||
        zone != 'Z') {
        return -1;
    }
    t.tm_year -= 1900;
    t.tm_mon -= 1;
    return (int64_t)timegm(&t);
}

enum status instance_metadata_parse(struct aws_profile *p,
                                    int64_t *end_s,
                                    const char *text,
                                    size_t size_bytes,
                                    struct error *err) {
    char *copy = malloc(size_bytes + 1);
    if (copy == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for the keys of this machine");
    }
    memcpy(copy, text, size_bytes);
    copy[size_bytes] = '\0';
    struct aws_profile keys = {.access_key = member(copy, "AccessKeyId"),
                               .secret_key = member(copy, "SecretAccessKey"),
                               .session_token = member(copy, "Token")};
    char *end = member(copy, "Expiration");
    const int64_t seconds = end ? seconds_of(end) : -1;
    enum status s = STATUS_OK;
    if (keys.access_key == NULL || keys.secret_key == NULL || keys.session_token == NULL ||
        seconds < 0) {
        s = error_set(err, STATUS_CORRUPT,
                      "the metadata service's answer has no AccessKeyId, SecretAccessKey, Token or "
                      "Expiration");
        aws_profile_fini(&keys);
    } else {
        free(p->access_key);
        free(p->secret_key);
        free(p->session_token);
        p->access_key = keys.access_key;
        p->secret_key = keys.secret_key;
        p->session_token = keys.session_token;
        *end_s = seconds;
    }
    free(end);
    free(copy);
    return s;
}

/* --- the requests */

struct answer {
    char text[ANSWER_MAX_BYTES + 1];
    size_t size_bytes;
    enum http_outcome outcome;
    int status;
    char message[200];
};

static bool add_body(void *cookie, const void *bytes, size_t size_bytes) {
    struct answer *a = cookie;
    if (size_bytes > ANSWER_MAX_BYTES - a->size_bytes) {
        return false;
    }
    memcpy(a->text + a->size_bytes, bytes, size_bytes);
    a->size_bytes += size_bytes;
    return true;
}

static void finish(void *cookie, const struct http_result *result) {
    struct answer *a = cookie;
    a->outcome = result->outcome;
    a->status = result->response->status;
    snprintf(a->message, sizeof(a->message), "%.*s", (int)sizeof(a->message) - 1, result->message);
}

/* The body of the answer, as a string, in *a. */
static enum status ask(struct answer *a,
                       struct http *h,
                       const char *method,
                       const char *path,
                       const char *header,
                       struct error *err) {
    const char *own = getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *base = own && *own != '\0' ? own : "http://169.254.169.254";
    const size_t base_bytes = strlen(base) - (base[strlen(base) - 1] == '/');
    char url[2048];
    memset(a, 0, sizeof(*a)); /* a literal would be 17 KiB of stack */
    const int n = snprintf(url, sizeof(url), "%.*s%s", (int)base_bytes, base, path);
    if (n < 0 || (size_t)n >= sizeof(url)) {
        return error_set(err, STATUS_LIMIT, "the URL of the metadata service is too long");
    }
    const struct http_request request = {.url = url,
                                         .method = method,
                                         .headers = &header,
                                         .header_count = 1,
                                         .max_bytes = ANSWER_MAX_BYTES,
                                         .cookie = a,
                                         .on_body = add_body,
                                         .on_done = finish};
    TRY(http_start(h, &request, err));
    while (http_pending(h) > 0) {
        TRY(http_run(h, TIMEOUT_MS, err));
    }
    a->text[a->size_bytes] = '\0';
    if (a->outcome == HTTP_OK) {
        return STATUS_OK;
    }
    return error_set(err, a->status == 404 ? STATUS_NOTFOUND : STATUS_IO,
                     "this machine has no metadata service that provides keys: %s", a->message);
}

static enum status get_keys(struct aws_profile *p,
                            int64_t *end_s,
                            struct http *h,
                            struct answer *a,
                            struct error *err) {
    static const char roles[] = "/latest/meta-data/iam/security-credentials/";
    char header[TOKEN_MAX_BYTES + 64];
    char path[sizeof(roles) + 256];
    TRY(ask(a, h, "PUT", "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 300", err));
    if (a->size_bytes == 0 || a->size_bytes > TOKEN_MAX_BYTES || strpbrk(a->text, "\r\n")) {
        return error_set(err, STATUS_CORRUPT, "the metadata service's token is malformed");
    }
    snprintf(header, sizeof(header), "X-aws-ec2-metadata-token: %.*s", TOKEN_MAX_BYTES, a->text);
    TRY(ask(a, h, NULL, roles, header, err));
    const size_t role_bytes = strcspn(a->text, "\r\n");
    if (role_bytes == 0 || role_bytes > 255 ||
        strspn(a->text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+=,.@_-") !=
            role_bytes) {
        return error_set(err, STATUS_CORRUPT, "the metadata service's name of a role is malformed");
    }
    snprintf(path, sizeof(path), "%s%.*s", roles, (int)role_bytes, a->text);
    TRY(ask(a, h, NULL, path, header, err));
    return instance_metadata_parse(p, end_s, a->text, a->size_bytes, err);
}

enum status instance_metadata_keys(struct aws_profile *p, int64_t *end_s, struct error *err) {
    const char *disabled = getenv("AWS_EC2_METADATA_DISABLED");
    struct http_options options;
    struct http *h = NULL;
    if (disabled && strcmp(disabled, "true") == 0) {
        return error_set(err, STATUS_UNSUPPORTED, "AWS_EC2_METADATA_DISABLED is true");
    }
    http_options_default(&options);
    options.user_agent = "ccstream/" CCSTREAM_VERSION;
    options.allow_private = true;
    options.no_proxy = true;
    options.max_redirects = 0;
    options.connect_timeout_ms = TIMEOUT_MS;
    options.first_byte_timeout_ms = TIMEOUT_MS;
    options.total_timeout_ms = TIMEOUT_MS;
    struct answer *a = malloc(sizeof(*a));
    if (a == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for the keys of this machine");
    }
    enum status s = http_create(&h, &options, err);
    if (s == STATUS_OK) {
        s = get_keys(p, end_s, h, a, err);
    }
    http_destroy(h);
    free(a);
    return s;
}
