/*
 * Every location becomes a URL up to the folder, what follows a file's name, and a way to
 * authorize.
 */
#include "net/location.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "formats/base/file_io.h"
#include "net/aws_profile.h"
#include "net/instance_metadata.h"

enum {
    TOKEN_MAX_BYTES = 4096,
    REFRESH_BEFORE_S = 300, /* new keys so long before the end of the present ones */
    REFRESH_AGAIN_S = 30    /* after a failure, while the present ones are valid */
};

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

struct location {
    char *base;      /* URL of the folder, without / at its end */
    char *query;     /* after a file's name, with its ?; "" */
    char *bearer;    /* header; NULL */
    bool own_server; /* the user's configuration names it, not the location */
    bool metadata;   /* the keys are those of the metadata service */
    int64_t end_s;   /* of these keys; 0: there are none yet */
    int64_t again_s; /* the service is not asked before */
    struct aws_profile profile;
    struct http_signature signature;
    const char *headers[1];
};

static enum status no_memory(struct error *err) {
    return error_set(err, STATUS_NOMEM, "no memory for a remote location");
}

/* --- percent-encoding */

/* Of ASCII, whatever the locale. */
static bool is_alphanumeric(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_one_of(char c, const char *set) {
    return c != '\0' && strchr(set, c) != NULL;
}

/* Appends `text`, all but unreserved characters and / as %XX; returns the new end, or NULL if it
 * does not fit before `limit`. */
static char *encode(char *at, const char *limit, const char *text, size_t size_bytes) {
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < size_bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (limit - at < 4) {
            return NULL;
        }
        if (is_alphanumeric(text[i]) || is_one_of(text[i], "-._~/")) {
            *at++ = text[i];
        } else {
            *at++ = '%';
            *at++ = digits[c >> 4];
            *at++ = digits[c & 15];
        }
    }
    *at = '\0';
    return at;
}

/* Whether a part between slashes is `.` or `..`, which URLs do not keep; or empty, unless those are
 * allowed. */
static bool has_bad_part(const char *path, bool allow_empty) {
    for (;;) {
        const size_t n = strcspn(path, "/");
        if ((n == 0 && !allow_empty) || (n == 1 && path[0] == '.') ||
            (n == 2 && memcmp(path, "..", 2) == 0)) {
            return true;
        }
        if (path[n] == '\0') {
            return false;
        }
        path += n + 1;
    }
}

/* --- https:// */

static bool begins_with(const char *text, const char *prefix) {
    return strncasecmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_http(const char *text) {
    return begins_with(text, "http://") || begins_with(text, "https://");
}

bool location_is_remote(const char *path) {
    return is_http(path) || begins_with(path, "s3://") || begins_with(path, "hf://");
}

/* A copy without a slash at its end. */
static char *without_slash(const char *text, size_t size_bytes) {
    return strndup(text, size_bytes - (size_bytes > 0 && text[size_bytes - 1] == '/'));
}

static enum status read_http(struct location *l, const char *text, struct error *err) {
    const size_t path_bytes = strcspn(text, "?#");
    const size_t host_at = (size_t)(strstr(text, "://") - text) + 3;
    if (strchr(text, '#') || strcspn(text + host_at, "/?") == 0) {
        return error_set(err, STATUS_USAGE, "'%.200s' is not the URL of a folder", text);
    }
    l->base = without_slash(text, path_bytes);
    l->query = strdup(text + path_bytes);
    return l->base && l->query ? STATUS_OK : no_memory(err);
}

/* --- hf:// */

/* The token is one line of a file, or a variable. */
static enum status keep_token(struct location *l, const char *token, struct error *err) {
    char clean[TOKEN_MAX_BYTES];
    size_t size_bytes = 0;
    for (; *token != '\0'; token++) {
        if (is_one_of(*token, " \t\r\n")) {
            continue;
        }
        if (*token < ' ' || *token > '~' || size_bytes == sizeof(clean) - 1) {
            return error_set(err, STATUS_USAGE, "the token for the Hugging Face Hub is malformed");
        }
        clean[size_bytes++] = *token;
    }
    clean[size_bytes] = '\0';
    if (size_bytes == 0) {
        return STATUS_OK;
    }
    return asprintf(&l->bearer, "Authorization: Bearer %s", clean) < 0 ? no_memory(err) : STATUS_OK;
}

static const char *environment(const char *name) {
    const char *value = getenv(name);
    return value && *value != '\0' ? value : NULL;
}

static enum status find_token(struct location *l, struct error *err) {
    static const struct {
        const char *variable, *file;
    } places[] = {{"HF_TOKEN_PATH", ""},
                  {"HF_HOME", "/token"},
                  {"XDG_CACHE_HOME", "/huggingface/token"},
                  {"HOME", "/.cache/huggingface/token"}};
    const struct file_system *fs = file_posix();
    char path[PATH_MAX_BYTES];
    struct byte_buffer token;
    bool exists = false;
    if (environment("HF_TOKEN")) {
        return keep_token(l, environment("HF_TOKEN"), err);
    }
    size_t i = 0;
    while (i < 3 && environment(places[i].variable) == NULL) {
        i++;
    }
    const char *folder = environment(places[i].variable);
    if (folder == NULL) {
        return STATUS_OK;
    }
    const int n = snprintf(path, sizeof(path), "%s%s", folder, places[i].file);
    if (n < 0 || (size_t)n >= sizeof(path)) {
        return error_set(err, STATUS_LIMIT, "the path in %s is too long", places[i].variable);
    }
    TRY(fs->exists(fs->context, path, &exists, err));
    if (!exists) {
        return STATUS_OK;
    }
    TRY(file_read_all(fs, &token, path, TOKEN_MAX_BYTES, err));
    const enum status s = keep_token(l, token.data ? (const char *)token.data : "", err);
    byte_buffer_fini(&token);
    return s;
}

static enum status read_hub(struct location *l, const char *text, struct error *err) {
    static const char prefix[] = "hf://datasets/";
    const char *owner = text + sizeof(prefix) - 1;
    const size_t owner_bytes = begins_with(text, prefix) ? strcspn(owner, "/@") : 0;
    const char *name = owner + owner_bytes + 1;
    const size_t name_bytes = owner_bytes > 0 && name[-1] == '/' ? strcspn(name, "/@") : 0;
    if (name_bytes == 0) {
        return error_set(err, STATUS_USAGE,
                         "'%.200s' is not hf://datasets/OWNER/NAME[@REVISION][/PATH]", text);
    }
    const char *revision = name[name_bytes] == '@' ? name + name_bytes + 1 : "main";
    const size_t revision_bytes = strcspn(revision, "/");
    const char *path = name[name_bytes] == '@' ? revision + revision_bytes : name + name_bytes;
    const char *endpoint = environment("HF_ENDPOINT");
    l->own_server = endpoint != NULL;
    endpoint = endpoint ? endpoint : "https://huggingface.co";
    if (revision_bytes == 0 || has_bad_part(owner, true) || !is_http(endpoint)) {
        return error_set(err, STATUS_USAGE,
                         "'%.200s': an empty revision, a part . or .., or an HF_ENDPOINT that "
                         "is no URL",
                         text);
    }
    char url[HTTP_MAX_URL_BYTES];
    char *at = url + snprintf(url, sizeof(url), "%.2000s/datasets/", endpoint);
    const char *limit = url + sizeof(url);
    at = encode(at, limit, owner, owner_bytes + 1 + name_bytes);
    at = at ? encode(at, limit, "/resolve/", 9) : NULL;
    /* A / of a revision, as in refs%2Fconvert%2Fparquet, is written encoded: it stays as it is. */
    for (size_t i = 0; at && i < revision_bytes; i++) {
        at = revision[i] == '%' && limit - at > 1 ? (*at = '%', at + 1)
                                                  : encode(at, limit, revision + i, 1);
    }
    at = at ? encode(at, limit, path, strlen(path)) : NULL;
    if (at == NULL) {
        return error_set(err, STATUS_USAGE, "'%.200s...' is too long", text);
    }
    l->base = without_slash(url, (size_t)(at - url));
    l->query = strdup("");
    return l->base && l->query ? find_token(l, err) : no_memory(err);
}

/* --- s3:// */

/* Whether a bucket can be a label of a host's name, which certificates for *.s3... cover. */
static bool is_label(const char *bucket, size_t size_bytes) {
    for (size_t i = 0; i < size_bytes; i++) {
        const char c = bucket[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
              (c == '-' && i > 0 && i + 1 < size_bytes))) {
            return false;
        }
    }
    return size_bytes >= 3 && size_bytes <= 63;
}

static bool consists_of(const char *text, size_t size_bytes, const char *others) {
    for (size_t i = 0; i < size_bytes; i++) {
        if (!is_alphanumeric(text[i]) && !is_one_of(text[i], others)) {
            return false;
        }
    }
    return size_bytes > 0;
}

/* The part of the URL before the key. Without a region the name for all of them is used. */
static int s3_folder(char *url,
                     size_t url_bytes,
                     const struct location *l,
                     const char *bucket,
                     size_t bucket_bytes) {
    const int n = (int)bucket_bytes;
    const char *region = l->profile.region;
    if (l->profile.endpoint) {
        const char *endpoint = l->profile.endpoint;
        size_t end = strlen(endpoint);
        while (end > 0 && endpoint[end - 1] == '/') {
            end--;
        }
        return snprintf(url, url_bytes, "%.*s/%.*s", (int)end, endpoint, n, bucket);
    }
    const bool label = is_label(bucket, bucket_bytes);
    return snprintf(url, url_bytes, "https://%.*s%ss3%s%s.amazonaws.com%s%s%.*s", label ? n : 0,
                    bucket, label ? "." : "", region ? "." : "", region ? region : "",
                    region && begins_with(region, "cn-") ? ".cn" : "", label ? "" : "/",
                    label ? 0 : n, bucket);
}

static enum status replace(char **field, const char *value, struct error *err) {
    free(*field);
    *field = strdup(value);
    return *field ? STATUS_OK : no_memory(err);
}

static enum status
find_keys(struct location *l, const struct location_options *opt, struct error *err) {
    TRY(aws_profile_find(&l->profile, opt->profile, err));
    l->metadata = opt->instance_metadata && l->profile.access_key == NULL;
    if (opt->endpoint) {
        TRY(replace(&l->profile.endpoint, opt->endpoint, err));
    }
    const char *endpoint = l->profile.endpoint;
    const char *region = l->profile.region;
    if (endpoint && (!is_http(endpoint) || strpbrk(endpoint, "?# "))) {
        return error_set(err, STATUS_USAGE,
                         "the endpoint '%.200s' is not a URL like https://HOST[:PORT]", endpoint);
    }
    l->own_server = endpoint != NULL;
    if (region && !consists_of(region, strlen(region), "-")) {
        return error_set(err, STATUS_USAGE, "'%.100s' is not an S3 region", region);
    }
    return STATUS_OK;
}

static enum status read_s3(struct location *l,
                           const char *text,
                           const struct location_options *opt,
                           struct error *err) {
    const char *bucket = text + strlen("s3://");
    const size_t bucket_bytes = strcspn(bucket, "/");
    const char *key = bucket + bucket_bytes;
    if (!consists_of(bucket, bucket_bytes, "-._") || bucket[0] == '.') {
        return error_set(err, STATUS_USAGE, "'%.200s' is not s3://BUCKET[/PREFIX]", text);
    }
    if (has_bad_part(key, true)) {
        return error_set(err, STATUS_USAGE,
                         "'%.200s': keys with a part . or .. cannot be read by URL", text);
    }
    TRY(find_keys(l, opt, err));
    char url[HTTP_MAX_URL_BYTES];
    const int n = s3_folder(url, sizeof(url), l, bucket, bucket_bytes);
    char *end = n > 0 && (size_t)n < sizeof(url)
                    ? encode(url + n, url + sizeof(url), key, strlen(key))
                    : NULL;
    if (end == NULL) {
        return error_set(err, STATUS_USAGE, "'%.200s...' is too long", text);
    }
    l->base = without_slash(url, (size_t)(end - url));
    l->query = strdup("");
    return l->base && l->query ? STATUS_OK : no_memory(err);
}

/* --- the parts together */

static struct {
    struct location_options options;
    bool allow_private;
} defaults;

void location_set_defaults(const char *endpoint, bool instance_metadata, bool allow_private) {
    defaults.options.endpoint = endpoint;
    defaults.options.instance_metadata = instance_metadata;
    defaults.allow_private = allow_private;
}

bool location_allows_private(void) {
    return defaults.allow_private;
}

enum status location_create(struct location **out,
                            const char *text,
                            const struct location_options *opt,
                            struct error *err) {
    enum status s;
    *out = NULL;
    struct location *l = calloc(1, sizeof(*l));
    if (l == NULL) {
        return no_memory(err);
    }
    opt = opt ? opt : &defaults.options;
    if (is_http(text)) {
        s = read_http(l, text, err);
    } else if (begins_with(text, "hf://")) {
        s = read_hub(l, text, err);
    } else if (begins_with(text, "s3://")) {
        s = read_s3(l, text, opt, err);
    } else {
        s = error_set(err, STATUS_USAGE, "'%.200s' is not an http, https, s3 or hf URL", text);
    }
    if (s != STATUS_OK) {
        location_destroy(l);
        return s;
    }
    *out = l;
    return STATUS_OK;
}

void location_destroy(struct location *l) {
    if (l == NULL) {
        return;
    }
    aws_profile_fini(&l->profile);
    free(l->base);
    free(l->query);
    free(l->bearer);
    free(l);
}

bool location_endpoint_is_named(const struct location *l) {
    return l->own_server;
}

enum status location_url(const struct location *l,
                         char url[HTTP_MAX_URL_BYTES],
                         const char *name,
                         struct error *err) {
    if (has_bad_part(name, false)) {
        return error_set(err, STATUS_INVALID, "'%.200s' is not the name of a file", name);
    }
    const int n = snprintf(url, HTTP_MAX_URL_BYTES, "%s/", l->base);
    char *at = n < HTTP_MAX_URL_BYTES
                   ? encode(url + n, url + HTTP_MAX_URL_BYTES, name, strlen(name))
                   : NULL;
    const size_t query_bytes = strlen(l->query) + 1;
    if (at == NULL || (size_t)(url + HTTP_MAX_URL_BYTES - at) < query_bytes) {
        return error_set(err, STATUS_LIMIT, "the URL of '%.200s' is longer than %d bytes", name,
                         HTTP_MAX_URL_BYTES);
    }
    memcpy(at, l->query, query_bytes);
    return STATUS_OK;
}

enum status
location_file_url(const struct location *l, char url[HTTP_MAX_URL_BYTES], struct error *err) {
    const int n = snprintf(url, HTTP_MAX_URL_BYTES, "%s%s", l->base, l->query);
    FAIL_IF(n >= HTTP_MAX_URL_BYTES, err, STATUS_LIMIT, "a URL is longer than %d bytes",
            HTTP_MAX_URL_BYTES);
    return STATUS_OK;
}

static enum status refresh_keys(struct location *l, struct error *err) {
    const int64_t now_s = (int64_t)time(NULL);
    if (now_s < l->end_s - REFRESH_BEFORE_S || (now_s < l->again_s && now_s < l->end_s)) {
        return STATUS_OK;
    }
    const bool valid = now_s < l->end_s;
    const enum status s = instance_metadata_keys(&l->profile, &l->end_s, valid ? NULL : err);
    l->again_s = now_s + REFRESH_AGAIN_S;
    return valid ? STATUS_OK : s;
}

enum status
location_authorize(struct location *l, struct http_request *request, struct error *err) {
    request->headers = l->headers;
    request->header_count = 0;
    request->signature = NULL;
    request->own_server = l->own_server;
    if (l->bearer) {
        l->headers[0] = l->bearer;
        request->header_count = 1;
    }
    if (l->metadata) {
        TRY(refresh_keys(l, err));
    }
    if (l->profile.access_key) {
        l->headers[0] = "x-amz-content-sha256: " EMPTY_SHA256;
        request->header_count = 1;
        l->signature = (struct http_signature){
            .access_key = l->profile.access_key,
            .secret_key = l->profile.secret_key,
            .session_token = l->profile.session_token,
            .region = l->profile.region ? l->profile.region : "us-east-1",
            .service = "s3",
        };
        request->signature = &l->signature;
    }
    return STATUS_OK;
}
