/*
 * client: reads of remote files, over one struct http.
 *
 * A read that fails in a way that may pass is started again after a delay, at the first byte that
 * is missing. It ends when REMOTE_MAX_TRIES attempts in a row, or REMOTE_MAX_SILENCE_MS, brought
 * less than MIN_BYTES_PER_S, or after a time that its size allows. Every answer must have the ETag
 * and the size that the file had when it was opened.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "loader/remote/remote_internal.h"
#include "net/retry.h"
#include "net/s3_error.h"

enum { RETRY_BASE_MS = 50, RETRY_MAX_MS = 8000, TRY_MAX_MS = 60000, OPEN_MAX_TRIES = 4 };
enum { TELL_AFTER_MS = 2000, TELL_AGAIN_MS = 10000 }; /* of reads that wait */
/* An attempt below the first is as one that brought nothing. A read lasts at most ten minutes more
 * than it would at the second. */
enum { MIN_BYTES_PER_S = 1024, WHOLE_BYTES_PER_S = 65536, READ_MAX_S = 600 };

struct remote_client {
    struct http *http;
    struct remote_read *waiting; /* for their next attempt */
    uint32_t pending_count;
    int64_t told_ns; /* when a line said that a read waits */
};

enum status
remote_client_create(struct remote_client **out, uint32_t connections, struct error *err) {
    *out = NULL;
    struct remote_client *c = calloc(1, sizeof(*c));
    TRY_MEMORY(c != NULL, err, "out of memory for remote reads");
    struct http_options opt;
    http_options_default(&opt);
    opt.max_connections = connections;
    opt.max_connections_per_host = connections;
    opt.total_timeout_ms = TRY_MAX_MS;
    opt.allow_private = remote_view.options.allow_private;
    opt.allow_named = true;
    opt.keep_https = true;
    opt.user_agent = remote_view.options.user_agent;
    enum status s = http_create(&c->http, &opt, err);
    RETURN_CREATED(s, out, c, free);
}

static void finish(struct remote_read *r, enum status s, const struct error *err) {
    r->client->pending_count--;
    r->done(r->cookie, s, err);
}

void remote_client_destroy(struct remote_client *c) {
    if (c == NULL) {
        return;
    }
    struct error why = {0};
    (void)error_set(&why, STATUS_INTERRUPTED, "the read was cancelled");
    while (c->waiting != NULL) {
        struct remote_read *r = c->waiting;
        c->waiting = r->next;
        finish(r, STATUS_INTERRUPTED, &why);
    }
    http_destroy(c->http);
    free(c);
}

void remote_client_wake(struct remote_client *c) {
    http_wake(c->http);
}

uint32_t remote_client_pending(const struct remote_client *c) {
    return c->pending_count;
}

/* --- one attempt --- */

static bool is_whole(const struct remote_read *r) {
    return r->size_bytes == HTTP_UNKNOWN;
}

static void replaced(struct remote_read *r, const char *what, const char *now, const char *before) {
    remote_object_replaced(r->object);
    r->stopped = error_set(&r->why, STATUS_CORRUPT,
                           "%.300s: was replaced at the server after it was opened: its %s is "
                           "%.40s and was %.40s",
                           r->object->path, what, now, before);
}

static void check_version(struct remote_read *r, uint64_t total_bytes, const char *etag) {
    const struct remote_object *o = r->object;
    char now[24], before[24];
    if (!o->known) {
        return;
    }
    if (strcmp(etag, o->etag) != 0) {
        replaced(r, "ETag", etag[0] != '\0' ? etag : "absent",
                 o->etag[0] != '\0' ? o->etag : "absent");
    } else if (total_bytes != HTTP_UNKNOWN && total_bytes != o->size_bytes) {
        (void)snprintf(now, sizeof now, "%" PRIu64, total_bytes);
        (void)snprintf(before, sizeof before, "%" PRIu64, o->size_bytes);
        replaced(r, "size", now, before);
    }
}

static bool on_head(void *cookie, const struct http_response *response) {
    struct remote_read *r = cookie;
    if (response->status < 200 || response->status > 299) {
        return true; /* on_done judges it */
    }
    r->total_bytes = response->range_total;
    /* A whole file that continues must be the same one. */
    if (r->got_bytes > 0 && !r->object->known && strcmp(r->etag, response->etag) != 0) {
        replaced(r, "ETag", response->etag, r->etag);
    }
    (void)snprintf(r->etag, sizeof r->etag, "%s", response->etag);
    check_version(r, r->total_bytes, response->etag);
    if (r->stopped == STATUS_OK && is_whole(r) && r->total_bytes != HTTP_UNKNOWN &&
        r->total_bytes > r->max_bytes) {
        r->stopped = error_set(&r->why, STATUS_LIMIT,
                               "%.300s: the server announces %" PRIu64
                               " bytes, the limit for such a file is %" PRIu64,
                               r->object->path, r->total_bytes, r->max_bytes);
    }
    return r->stopped == STATUS_OK;
}

static bool on_body(void *cookie, const void *bytes, size_t size_bytes) {
    struct remote_read *r = cookie;
    if (!is_whole(r) && size_bytes > r->size_bytes - r->got_bytes) {
        r->stopped = error_set(&r->why, STATUS_IO, "%.300s: the server sent more than requested",
                               r->object->path);
        return false;
    }
    if (!r->take(r->cookie, bytes, size_bytes, &r->why)) {
        r->stopped = r->why.status;
        return false;
    }
    r->got_bytes += size_bytes;
    return true;
}

static void retry_later(struct remote_read *r, int64_t retry_after_ms) {
    const uint64_t seed = hash64(r->object->path, strlen(r->object->path)) ^ r->offset ^
                          (uint64_t)(uintptr_t)r->client ^ (uint64_t)getpid();
    const int64_t ms = retry_delay_ms(r->tries, RETRY_BASE_MS, RETRY_MAX_MS, retry_after_ms, seed);
    r->retry_ns = clock_now_ns() + ms * 1000000;
    r->next = r->client->waiting;
    r->client->waiting = r;
    r->retried_count++;
}

/* Before a wait that ends so long after the last byte. */
static void tell_wait(struct remote_read *r, const char *why, int64_t now_ns) {
    struct remote_client *c = r->client;
    if (r->retry_ns - r->last_byte_ns > TELL_AFTER_MS * INT64_C(1000000) &&
        (c->told_ns == 0 || now_ns - c->told_ns > TELL_AGAIN_MS * INT64_C(1000000))) {
        c->told_ns = now_ns;
        log_write(remote_view.options.log, LOG_LEVEL_WARN,
                  "%.220s: waiting for the server since %.0f s: %s", r->object->path,
                  (double)(now_ns - r->last_byte_ns) / 1e9, why);
    }
}

/* The answer without the URL where an S3 server says more: its code and message, and what to do. */
static void
describe_answer(char *out, size_t size_bytes, const char *path, const struct http_result *x) {
    struct s3_error e;
    if (x->outcome == HTTP_STATUS && s3_error_parse(&e, x->error_body)) {
        const char *advice = strncmp(path, "s3://", 5) == 0 ? s3_error_advice(e.code) : NULL;
        const size_t length = strlen(e.message);
        const bool stop = length > 0 && e.message[length - 1] == '.';
        (void)snprintf(out, size_bytes, "HTTP status %d, %s%s%.*s%s%s", x->response->status, e.code,
                       length > 0 ? ": " : "", (int)(length - stop), e.message,
                       advice != NULL ? "; " : "", advice != NULL ? advice : "");
        return;
    }
    const char *why = x->message[0] != '\0' ? x->message : http_outcome_name(x->outcome);
    const size_t path_bytes = strlen(path);
    if (strncmp(why, path, path_bytes) == 0 && strncmp(why + path_bytes, ": ", 2) == 0) {
        why += path_bytes + 2;
    }
    (void)snprintf(out, size_bytes, "%.160s", why);
}

static enum status describe(struct remote_read *r, const struct http_result *x, struct error *err) {
    const int status = x->response->status;
    /* S3 says 403 of a file that is missing to who may not list the bucket. */
    const bool missing = status == 401 || status == 403 || status == 404 || status == 410;
    enum status s = x->outcome == HTTP_STATUS && missing ? STATUS_NOTFOUND : STATUS_IO;
    if (x->outcome == HTTP_STATUS && status == 412) {
        remote_object_replaced(r->object);
        return error_set(err, STATUS_CORRUPT,
                         "%.300s: was replaced at the server after it was opened (its ETag was %s)",
                         r->object->path, r->object->etag);
    }
    char place[80] = "";
    char why[400];
    if (!is_whole(r)) {
        (void)snprintf(place, sizeof place, " (%" PRIu64 " bytes at %" PRIu64 "%s)",
                       r->size_bytes - r->got_bytes, r->offset + r->got_bytes,
                       remote_view.cache != NULL ? ", which the cache does not have" : "");
    }
    describe_answer(why, sizeof why, r->object->path, x);
    return error_set(err, s, "%.220s: cannot be read%s, %u attempt%s: %s%s", r->object->path, place,
                     r->retried_count + 1, r->retried_count == 0 ? "" : "s", why,
                     x->outcome == HTTP_PRIVATE
                         ? "; to allow that: --allow-private (Python: allow_private)"
                     : x->outcome == HTTP_PROTOCOL && status == 200
                         ? "; use one that has them, such as nginx, Caddy or 'rclone serve http'"
                         : "");
}

/* Whether the last attempt brought bytes at a rate that ends some time. */
static bool is_progress(const struct remote_read *r, int64_t now_ns) {
    const uint64_t got_bytes = r->got_bytes - r->got_before_bytes;
    return got_bytes > 0 &&
           got_bytes >= (uint64_t)((now_ns - r->try_ns) / 1000000) * MIN_BYTES_PER_S / 1000;
}

static bool is_patient(const struct remote_read *r,
                       uint32_t max_tries,
                       int64_t retry_after_ms,
                       int64_t now_ns) {
    const uint64_t size_bytes = !is_whole(r)                     ? r->size_bytes
                                : r->total_bytes != HTTP_UNKNOWN ? r->total_bytes
                                                                 : 0;
    const int64_t most_s = READ_MAX_S + (int64_t)(size_bytes / WHOLE_BYTES_PER_S);
    const int64_t again_ns = now_ns + (retry_after_ms > 0 ? retry_after_ms : 0) * 1000000;
    return r->tries < max_tries && (again_ns - r->begun_ns) / 1000000000 < most_s &&
           again_ns - r->last_byte_ns < (int64_t)REMOTE_MAX_SILENCE_MS * 1000000;
}

/* Also of an answer that ended badly after its last byte. */
static bool is_complete(const struct remote_read *r, enum http_outcome outcome) {
    return is_whole(r) ? (r->total_bytes == HTTP_UNKNOWN && outcome == HTTP_OK) ||
                             (r->got_bytes > 0 && r->got_bytes == r->total_bytes)
                       : r->got_bytes == r->size_bytes;
}

static void on_done(void *cookie, const struct http_result *x) {
    struct remote_read *r = cookie;
    const int64_t now_ns = clock_now_ns();
    struct error why = {0};
    if (r->stopped != STATUS_OK) {
        finish(r, r->stopped, &r->why);
        return;
    }
    if (is_complete(r, x->outcome)) {
        finish(r, STATUS_OK, NULL);
        return;
    }
    if (is_progress(r, now_ns)) {
        r->last_byte_ns = now_ns;
        r->tries = 0;
    }
    r->tries++;
    const bool again = x->outcome == HTTP_OK || x->outcome == HTTP_PROTOCOL ||
                       x->outcome == HTTP_TOO_LARGE || retry_worth(x->outcome, x->response->status);
    /* A server without ranges will not learn them. */
    const bool whole = x->outcome == HTTP_PROTOCOL && x->response->status == 200;
    r->whole_count = whole ? r->whole_count + 1 : 0;
    /* An address that never answered is more likely wrong than busy. */
    const bool absent = ((r->dispensable || !r->object->known || r->object->folder->offline) &&
                         (x->outcome == HTTP_DNS || x->outcome == HTTP_CONNECT)) ||
                        r->whole_count == OPEN_MAX_TRIES;
    const bool patient = is_patient(r, absent ? OPEN_MAX_TRIES : REMOTE_MAX_TRIES,
                                    x->response->retry_after_ms, now_ns);
    if (x->outcome == HTTP_CANCELLED) {
        finish(r, error_set(&why, STATUS_INTERRUPTED, "the read was cancelled"), &why);
    } else if (again && patient) {
        char what[400];
        describe_answer(what, sizeof what, r->object->path, x);
        retry_later(r, x->response->retry_after_ms);
        tell_wait(r, what, now_ns);
    } else {
        const enum status s = describe(r, x, &why);
        finish(r, s, &why);
    }
}

/* An ETag that is not strong never matches. */
static const char *condition(const struct remote_object *o) {
    return o->known && o->etag[0] == '"' ? o->etag : NULL;
}

static void start_try(struct remote_read *r) {
    struct error why = {0};
    /* A file is read whole as a range too: then the answer has its size, however it is sent. */
    const uint64_t end = is_whole(r) ? r->max_bytes : r->size_bytes;
    struct http_request request = {
        .range_first = r->offset + r->got_bytes,
        .range_bytes = end - r->got_bytes,
        .if_match = condition(r->object),
        .max_bytes = end - r->got_bytes,
        .cookie = r,
        .on_head = on_head,
        .on_body = on_body,
        .on_done = on_done,
    };
    r->got_before_bytes = r->got_bytes;
    r->try_ns = clock_now_ns();
    enum status s = remote_object_start(r->object, r->client->http, &request, &why);
    if (s < STATUS_OK) {
        finish(r, s, &why);
    }
}

void remote_client_start(struct remote_client *c, struct remote_read *r) {
    r->client = c;
    r->total_bytes = HTTP_UNKNOWN;
    r->begun_ns = r->last_byte_ns = clock_now_ns();
    c->pending_count++;
    start_try(r);
}

/* --- the loop --- */

/* Starts what waited long enough; returns how long the next one has to, at most timeout_ms. */
static int64_t start_due(struct remote_client *c, int64_t timeout_ms) {
    const int64_t now_ns = clock_now_ns();
    struct remote_read *r = c->waiting;
    c->waiting = NULL;
    while (r != NULL) {
        struct remote_read *next = r->next;
        const int64_t left_ms = (r->retry_ns - now_ns + 999999) / 1000000;
        if (left_ms <= 0) {
            start_try(r);
        } else {
            r->next = c->waiting;
            c->waiting = r;
            timeout_ms = left_ms < timeout_ms ? left_ms : timeout_ms;
        }
        r = next;
    }
    return timeout_ms;
}

void remote_client_run(struct remote_client *c, int64_t timeout_ms) {
    const int64_t wait_ms = start_due(c, timeout_ms);
    /* Out of memory in the loop: the requests stay, and the next round tries again. */
    (void)http_run(c->http, wait_ms, NULL);
}
