/*
 * One request on the wire. libcurl's callbacks only note what came; exchange_judge decides once, at
 * the end, what it was. Headers are read when the body begins, or at the end of one without a body:
 * libcurl keeps them until then.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "net/http_internal.h"

#define MAX_DROPPED_BYTES  65536 /* of an unwanted body, to keep the connection */
#define LARGE_RANGE_BYTES  (1 << 20)
#define LARGE_BUFFER_BYTES (256L * 1024)
#define MAX_RETRY_AFTER_S  86400

#define GET(x, what, out) ((x)->http->curl->easy_getinfo((x)->easy, (what), (out)))

/* The value of a header of the last response, or NULL. */
static const char *header(struct exchange *x, const char *name, size_t index, size_t *count) {
    struct curl_header *found = NULL;
    if (x->http->curl->easy_header(x->easy, name, index, CURLH_HEADER, -1, &found) != CURLHE_OK) {
        *count = 0;
        return NULL;
    }
    *count = found->amount;
    return found->value;
}

static void copy_header(struct exchange *x, char *out, size_t out_size, const char *name) {
    size_t count;
    const char *value = header(x, name, 0, &count);
    const bool fits = value != NULL && strlen(value) < out_size;
    (void)snprintf(out, out_size, "%s", fits ? value : "");
}

static void read_robots_tags(struct exchange *x) {
    size_t count = 1;
    for (size_t i = 0; i < count; i++) {
        const char *value = header(x, "X-Robots-Tag", i, &count);
        if (value != NULL && http_robots_tag_forbids(value, x->http->agent)) {
            x->response.robots_noai = true;
        }
    }
}

/* The range of the answer must be the one that was asked for. */
static void check_range(struct exchange *x) {
    const struct http_request *asked = &x->transfer->request;
    struct http_response *r = &x->response;
    size_t count;
    const char *text = header(x, "Content-Range", 0, &count);
    uint64_t first;
    uint64_t last;
    uint64_t total;
    if (r->status != 206 || text == NULL ||
        !http_parse_content_range(text, &first, &last, &total)) {
        x->bad_range = true;
        return;
    }
    r->range_first = first;
    r->range_total = total;
    const uint64_t bytes = last - first + 1;
    const bool suffix = asked->range_first == HTTP_UNKNOWN;
    const bool ends_object = total != HTTP_UNKNOWN && last == total - 1;
    x->bad_range = suffix ? !ends_object || bytes > asked->range_bytes ||
                                (bytes < asked->range_bytes && first != 0)
                          : first != asked->range_first || bytes > asked->range_bytes ||
                                (bytes < asked->range_bytes && !ends_object);
    x->range_length = bytes;
}

static bool is_wanted(const struct exchange *x) {
    return x->response.status >= 200 && x->response.status < 300 && !x->is_redirect;
}

/* Reads the headers. Returns whether the body is to go on. */
static bool read_head(struct exchange *x) {
    struct http_response *r = &x->response;
    long status = 0;
    curl_off_t length = -1;
    curl_off_t retry_after = 0;
    char *address = NULL;
    size_t count;
    x->head_done = true;
    (void)GET(x, CURLINFO_RESPONSE_CODE, &status);
    (void)GET(x, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    (void)GET(x, CURLINFO_RETRY_AFTER, &retry_after);
    (void)GET(x, CURLINFO_PRIMARY_IP, &address);
    r->status = (int)status;
    r->content_length = length >= 0 ? (uint64_t)length : HTTP_UNKNOWN;
    r->retry_after_ms = header(x, "Retry-After", 0, &count) == NULL ? -1
                        : retry_after > MAX_RETRY_AFTER_S ? MAX_RETRY_AFTER_S * INT64_C(1000)
                                                          : retry_after * 1000;
    (void)snprintf(r->address, sizeof r->address, "%s", address != NULL ? address : "");
    const char *limit = header(x, "RateLimit", 0, &count);
    if (status == 429 && r->retry_after_ms < 0 && limit != NULL) {
        r->retry_after_ms = http_parse_rate_limit(limit);
    }
    struct transfer *t = x->transfer;
    if (t->first != NULL && t->redirects == 0 && !t->remembered) {
        copy_header(x, t->linked_etag, sizeof t->linked_etag, "X-Linked-ETag");
    }
    copy_header(x, r->etag, sizeof r->etag, "ETag");
    if (t->linked_etag[0] != '\0') {
        (void)snprintf(r->etag, sizeof r->etag, "%s", t->linked_etag);
    }
    copy_header(x, r->link, sizeof r->link, "Link");
    if (r->link[0] == '\0' && header(x, "Link", 0, &count) != NULL) {
        strcpy(r->link, "...");
    }
    copy_header(x, r->content_type, sizeof r->content_type, "Content-Type");
    read_robots_tags(x);
    const char *location = header(x, "Location", 0, &count);
    if (location != NULL &&
        (status == 301 || status == 302 || status == 303 || status == 307 || status == 308)) {
        x->is_redirect = true;
        x->location = strdup(location);
        return true;
    }
    if (!is_wanted(x)) {
        return true;
    }
    const struct http_request *asked = &x->transfer->request;
    if (asked->range_bytes != 0) {
        check_range(x);
    }
    x->too_large = r->content_length != HTTP_UNKNOWN && r->content_length > asked->max_bytes;
    if (x->bad_range || x->too_large) {
        return false;
    }
    x->stopped = asked->on_head != NULL && !asked->on_head(asked->cookie, r);
    return !x->stopped;
}

static size_t on_header(char *bytes, size_t one, size_t size_bytes, void *cookie) {
    (void)bytes;
    (void)one;
    struct exchange *x = cookie;
    if (x->first_byte_ns == 0) {
        x->first_byte_ns = clock_now_ns();
    }
    x->header_bytes += size_bytes;
    return x->header_bytes <= HTTP_MAX_HEADERS_BYTES ? size_bytes : 0;
}

/* A body that nobody gets: its beginning is kept for the message. */
static bool drop(struct exchange *x, const char *bytes, size_t size_bytes) {
    const size_t space = sizeof x->error_body - 1;
    if (x->dropped_bytes < space) {
        const size_t at = (size_t)x->dropped_bytes;
        const size_t count = size_bytes < space - at ? size_bytes : space - at;
        memcpy(x->error_body + at, bytes, count);
        x->error_body[at + count] = '\0';
    }
    x->dropped_bytes += size_bytes;
    return x->dropped_bytes <= MAX_DROPPED_BYTES;
}

static size_t on_body(char *bytes, size_t one, size_t size_bytes, void *cookie) {
    (void)one;
    struct exchange *x = cookie;
    if (!x->head_done && !read_head(x)) {
        return 0;
    }
    if (!is_wanted(x)) {
        return drop(x, bytes, size_bytes) ? size_bytes : 0;
    }
    const struct http_request *asked = &x->transfer->request;
    if (size_bytes > asked->max_bytes - x->result.body_bytes) {
        x->too_large = true;
        return 0;
    }
    x->result.body_bytes += size_bytes;
    x->stopped = asked->on_body != NULL && !asked->on_body(asked->cookie, bytes, size_bytes);
    return x->stopped ? 0 : size_bytes;
}

static curl_socket_t on_socket(void *cookie, curlsocktype purpose, struct curl_sockaddr *address) {
    (void)purpose;
    struct exchange *x = cookie;
    if (!x->http->options.allow_private &&
        !proxies_allow(&x->http->proxies, &address->addr, x->transfer->scope)) {
        x->refused_address = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* ---- beginning ------------------------------------------------------------------------------ */

#define SET(option, value) (ok = ok && curl->easy_setopt(easy, (option), (value)) == CURLE_OK)

static bool add_header(struct exchange *x, const char *line) {
    struct curl_slist *longer = x->http->curl->slist_append(x->headers, line);
    x->headers = longer != NULL ? longer : x->headers;
    return longer != NULL;
}

/* What goes only to the origin of the request. */
static bool set_private_parts(struct exchange *x) {
    const struct curl_library *curl = x->http->curl;
    CURL *easy = x->easy;
    const struct http_request *asked = &x->transfer->request;
    bool ok = true;
    char line[320];
    for (size_t i = 0; i < asked->header_count; i++) {
        ok = ok && add_header(x, asked->headers[i]);
    }
    if (asked->if_match != NULL) {
        ok = ok &&
             snprintf(line, sizeof line, "If-Match: %s", asked->if_match) < (int)sizeof line &&
             add_header(x, line);
    }
    const struct http_signature *key = asked->signature;
    if (key != NULL) {
        (void)snprintf(line, sizeof line, "aws:amz:%s:%s", key->region, key->service);
        SET(CURLOPT_AWS_SIGV4, line);
        SET(CURLOPT_USERNAME, key->access_key);
        SET(CURLOPT_PASSWORD, key->secret_key);
        if (key->session_token != NULL) {
            char *token = NULL;
            ok = ok && asprintf(&token, "x-amz-security-token: %s", key->session_token) > 0;
            ok = ok && add_header(x, token);
            free(token);
        }
    }
    return ok;
}

static bool set_range(struct exchange *x) {
    const struct curl_library *curl = x->http->curl;
    CURL *easy = x->easy;
    const struct http_request *asked = &x->transfer->request;
    bool ok = true;
    char range[64];
    if (asked->range_first == HTTP_UNKNOWN) {
        (void)snprintf(range, sizeof range, "-%" PRIu64, asked->range_bytes);
    } else {
        (void)snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, asked->range_first,
                       asked->range_first + asked->range_bytes - 1);
    }
    SET(CURLOPT_RANGE, range);
    if (asked->range_bytes >= LARGE_RANGE_BYTES) {
        /* Only faster, and refused by a handle that kept its buffer from a request that failed. */
        (void)curl->easy_setopt(easy, CURLOPT_BUFFERSIZE, LARGE_BUFFER_BYTES);
    }
    return ok;
}

static bool set_limits(struct exchange *x) {
    const struct curl_library *curl = x->http->curl;
    const struct http_options *o = &x->http->options;
    CURL *easy = x->easy;
    bool ok = true;
    const int64_t left_ms = o->total_timeout_ms - x->transfer->busy_ns / 1000000;
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)o->connect_timeout_ms);
    SET(CURLOPT_TIMEOUT_MS, (long)(left_ms > 1 ? left_ms : 1));
    SET(CURLOPT_DNS_CACHE_TIMEOUT, 600L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_USERAGENT, o->user_agent);
    if (o->no_proxy) {
        SET(CURLOPT_NOPROXY, "*");
    }
    if (o->ca_file != NULL) {
        SET(CURLOPT_CAINFO, o->ca_file);
    }
    return ok;
}

static bool set_up(struct exchange *x, const struct url *url) {
    const struct curl_library *curl = x->http->curl;
    struct transfer *t = x->transfer;
    CURL *easy = x->easy;
    bool ok = set_limits(x);
    SET(CURLOPT_URL, url->text);
    SET(CURLOPT_PRIVATE, x);
    SET(CURLOPT_ERRORBUFFER, x->curl_text);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, x);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, x);
    SET(CURLOPT_OPENSOCKETFUNCTION, on_socket);
    SET(CURLOPT_OPENSOCKETDATA, x);
    if (t->request.method != NULL) {
        SET(CURLOPT_CUSTOMREQUEST, t->request.method);
    }
    if (t->request.compressed) {
        SET(CURLOPT_ACCEPT_ENCODING, "gzip, deflate");
    }
    if (t->request.range_bytes != 0) {
        ok = ok && set_range(x);
    }
    const struct resolvers *r = &x->http->resolvers;
    if (r->count > 0) {
        SET(r->are_urls ? CURLOPT_DOH_URL : CURLOPT_DNS_SERVERS, resolvers_choose(r, url->host));
    }
    if (strcmp(url->origin, t->origin) == 0) {
        ok = ok && set_private_parts(x);
    }
    if (x->headers != NULL) {
        SET(CURLOPT_HTTPHEADER, x->headers);
    }
    return ok;
}

static void end_early(struct exchange *x, enum http_outcome outcome, const char *text) {
    x->result.outcome = outcome;
    (void)snprintf(x->result.message, sizeof x->result.message, "%.200s: %.250s", x->transfer->url,
                   text);
}

void exchange_begin(struct exchange *x, struct transfer *t, int64_t now_ns, bool *ended) {
    struct http *h = x->http;
    *ended = true;
    x->transfer = t;
    x->started_ns = now_ns;
    x->first_byte_ns = 0;
    x->header_bytes = 0;
    x->dropped_bytes = 0;
    x->range_length = HTTP_UNKNOWN;
    x->head_done = x->refused_address = x->stopped = x->too_large = x->bad_range = false;
    x->is_redirect = false;
    x->curl_text[0] = x->error_body[0] = '\0';
    x->response = (struct http_response){.content_length = HTTP_UNKNOWN,
                                         .range_first = HTTP_UNKNOWN,
                                         .range_total = HTTP_UNKNOWN,
                                         .retry_after_ms = -1,
                                         .url = t->url};
    x->result = (struct http_result){
        .response = &x->response, .first_byte_us = -1, .error_body = x->error_body};
    struct url url;
    struct error err = {0};
    if (url_init(&url, t->url, NULL, &err) != STATUS_OK) {
        end_early(x, HTTP_PROTOCOL, err.text);
        return;
    }
    if (!h->options.allow_private && url_host_scope(&url) > t->scope) {
        end_early(x, HTTP_PRIVATE, "its address is private");
    } else if (x->easy == NULL && (x->easy = h->curl->easy_init()) == NULL) {
        end_early(x, HTTP_CONNECT, "out of memory");
    } else if (!set_up(x, &url) || h->curl->multi_add_handle(h->multi, x->easy) != CURLM_OK) {
        end_early(x, HTTP_CONNECT, "libcurl refuses the request");
    } else {
        *ended = false;
    }
    url_fini(&url);
}

/* ---- end ------------------------------------------------------------------------------------ */

static enum http_outcome outcome_of_code(CURLcode code) {
    switch (code) {
    case CURLE_OK:
        return HTTP_OK;
    case CURLE_COULDNT_RESOLVE_HOST:
        return HTTP_DNS;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PROXY:
    case CURLE_OUT_OF_MEMORY:
    case CURLE_INTERFACE_FAILED:
        return HTTP_CONNECT;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ENGINE_NOTFOUND:
    case CURLE_SSL_ENGINE_SETFAILED:
    case CURLE_SSL_ENGINE_INITFAILED:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CRL_BADFILE:
    case CURLE_SSL_SHUTDOWN_FAILED:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
        return HTTP_TLS;
    case CURLE_OPERATION_TIMEDOUT:
        return HTTP_TIMEOUT;
    case CURLE_PARTIAL_FILE:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2_STREAM:
        return HTTP_PARTIAL;
    default:
        return HTTP_PROTOCOL;
    }
}

static bool range_is_whole(const struct exchange *x) {
    return x->range_length == HTTP_UNKNOWN || x->result.body_bytes == x->range_length;
}

static void judge_outcome(struct exchange *x, CURLcode code, bool timed_out) {
    struct http_result *r = &x->result;
    const char *why = x->curl_text[0] != '\0' ? x->curl_text : x->http->curl->easy_strerror(code);
    if (x->bad_range) {
        r->outcome = HTTP_PROTOCOL;
        why = x->response.status == 206 ? "the server sent another range than requested"
                                        : "the server ignores ranges";
    } else if (x->too_large) {
        r->outcome = HTTP_TOO_LARGE;
        why = "more bytes than the limit";
    } else if (x->stopped) {
        r->outcome = HTTP_STOPPED;
        why = "stopped by the receiver";
    } else if (timed_out) {
        r->outcome = HTTP_TIMEOUT;
        why = "no answer within the time for the first byte";
    } else if (x->head_done && !is_wanted(x)) {
        r->outcome = HTTP_STATUS;
    } else if (x->refused_address && code == CURLE_COULDNT_CONNECT) {
        r->outcome = HTTP_PRIVATE;
        why = "its address is private";
    } else if (x->header_bytes > HTTP_MAX_HEADERS_BYTES) {
        r->outcome = HTTP_PROTOCOL;
        why = "its headers are too long";
    } else if (code == CURLE_OK && !range_is_whole(x)) {
        r->outcome = HTTP_PARTIAL;
        why = "fewer bytes than announced";
    } else {
        r->outcome = outcome_of_code(code);
    }
    if (r->outcome == HTTP_STATUS) {
        (void)snprintf(r->message, sizeof r->message, "%.200s: HTTP status %d", x->transfer->url,
                       x->response.status);
    } else if (r->outcome != HTTP_OK) {
        (void)snprintf(r->message, sizeof r->message, "%.200s: %.250s", x->transfer->url, why);
    }
}

void exchange_judge(struct exchange *x, CURLcode code, bool timed_out, int64_t now_ns) {
    struct transfer *t = x->transfer;
    if (code == CURLE_OK && !x->head_done) {
        (void)read_head(x);
    }
    if (x->first_byte_ns != 0) {
        x->result.first_byte_us = (t->busy_ns + x->first_byte_ns - x->started_ns) / 1000;
    }
    t->busy_ns += now_ns - x->started_ns;
    x->result.elapsed_us = t->busy_ns / 1000;
    if (x->is_redirect && x->location == NULL) {
        end_early(x, HTTP_CONNECT, "out of memory");
        x->is_redirect = false;
    } else if (!x->is_redirect) {
        judge_outcome(x, code, timed_out);
    }
}
