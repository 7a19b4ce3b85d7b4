/*
 * The loop: transfers leave their host's queue, run as exchanges of libcurl's multi handle, and end
 * with on_done or in another queue. No callback of the user runs while libcurl is being changed
 * but on_head and on_body, from which http_start only queues.
 */
#include "net/http.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "net/http_internal.h"

enum { MAX_RENEWALS = 4 }; /* of a request */

#define NS_PER_MS      INT64_C(1000000)
#define MAX_TIMEOUT_MS 86400000

void http_options_default(struct http_options *opt) {
    *opt = (struct http_options){
        .max_connections = 64,
        .max_connections_per_host = 2,
        .connect_timeout_ms = 10000,
        .first_byte_timeout_ms = 20000,
        .total_timeout_ms = 60000,
        .max_redirects = 5,
    };
}

const char *http_outcome_name(enum http_outcome o) {
    static const char *const names[] = {
#define X(name, text) text,
        HTTP_OUTCOME_LIST(X)
#undef X
    };
    return names[o];
}

/* ---- transfers ------------------------------------------------------------------------------ */

void transfer_destroy(struct transfer *t) {
    if (t == NULL) {
        return;
    }
    for (size_t i = 0; t->request.headers != NULL && i < t->request.header_count; i++) {
        free((char *)(uintptr_t)t->request.headers[i]);
    }
    free((void *)(uintptr_t)t->request.headers);
    const char *const texts[] = {t->request.method,          t->request.if_match,
                                 t->signature.access_key,    t->signature.secret_key,
                                 t->signature.session_token, t->signature.region,
                                 t->signature.service};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        free((char *)(uintptr_t)texts[i]);
    }
    free(t->url);
    free(t->first);
    free(t->origin);
    free(t);
}

static bool copy_text(const char **text) {
    return *text == NULL || (*text = strdup(*text)) != NULL;
}

/* Replaces the caller's strings by copies; on failure the rest becomes NULL. */
static bool copy_texts(const char **const texts[], size_t count) {
    bool ok = true;
    for (size_t i = 0; i < count; i++) {
        if (!ok) {
            *texts[i] = NULL;
        } else {
            ok = copy_text(texts[i]);
        }
    }
    return ok;
}

static bool copy_headers(struct transfer *t, const struct http_request *request) {
    if (request->header_count == 0) {
        return true;
    }
    const char **copies = calloc(request->header_count, sizeof *copies);
    t->request.headers = copies;
    if (copies == NULL) {
        return false;
    }
    for (size_t i = 0; i < request->header_count; i++) {
        if ((copies[i] = strdup(request->headers[i])) == NULL) {
            return false;
        }
    }
    return true;
}

struct transfer *transfer_create(const struct http_request *request, const struct url *url) {
    struct transfer *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return NULL;
    }
    t->request = *request;
    t->request.url = NULL;
    t->request.headers = NULL;
    if (request->signature != NULL) {
        t->signature = *request->signature;
        t->request.signature = &t->signature;
    }
    const char **const texts[] = {&t->request.method,          &t->request.if_match,
                                  &t->signature.access_key,    &t->signature.secret_key,
                                  &t->signature.session_token, &t->signature.region,
                                  &t->signature.service};
    const bool ok = copy_texts(texts, sizeof texts / sizeof texts[0]);
    t->url = strdup(url->text);
    t->origin = strdup(url->origin);
    if (!ok || t->url == NULL || t->origin == NULL || !copy_headers(t, request)) {
        transfer_destroy(t);
        return NULL;
    }
    return t;
}

/* Sends a request that remembers to where its URL was redirected before, if that is known. */
static enum status recall(struct transfer *t, struct url *url) {
    struct redirect r;
    t->first = t->first != NULL ? t->first : strdup(url->text);
    if (t->first == NULL || !redirects_find(&r, t->first)) {
        return t->first != NULL ? STATUS_OK : STATUS_NOMEM;
    }
    url_fini(url);
    free(t->url);
    t->url = r.to;
    t->remembered = true;
    t->scope = r.scope < t->scope ? r.scope : t->scope;
    memcpy(t->linked_etag, r.etag, sizeof t->linked_etag);
    return url_init(url, t->url, NULL, NULL);
}

enum status http_start(struct http *h, const struct http_request *request, struct error *err) {
    REQUIRE(h != NULL && request != NULL && request->url != NULL && request->on_done != NULL);
    REQUIRE(request->max_bytes > 0 && !(request->compressed && request->range_bytes != 0));
    struct url url;
    TRY(url_init(&url, request->url, NULL, err));
    struct transfer *t = transfer_create(request, &url);
    if (t != NULL && h->options.allow_named && (!request->unnamed || request->own_server)) {
        const enum address_scope written = url_host_scope(&url);
        t->scope = request->own_server && written < ADDRESS_LOOPBACK ? ADDRESS_LOOPBACK : written;
    }
    enum status s = STATUS_OK;
    if (t != NULL && request->remembers) {
        t->named = t->scope;
        s = recall(t, &url);
    }
    s = t == NULL || s != STATUS_OK ? STATUS_NOMEM
                                    : hosts_queue(&h->hosts, t, url.host, clock_now_ns());
    url_fini(&url);
    if (s != STATUS_OK) {
        transfer_destroy(t);
        return error_set(err, s, "no memory for a request");
    }
    h->pending_count++;
    return STATUS_OK;
}

/* ---- exchanges ------------------------------------------------------------------------------ */

static struct exchange *take_exchange(struct http *h) {
    struct exchange *x = h->free;
    if (x != NULL) {
        h->free = x->next;
    } else if ((x = calloc(1, sizeof *x)) != NULL) {
        x->http = h;
    }
    return x;
}

static void link_running(struct http *h, struct exchange *x) {
    x->next = NULL;
    x->previous = h->running_last;
    *(h->running_last != NULL ? &h->running_last->next : &h->running) = x;
    h->running_last = x;
}

/* Makes it ready for another transfer. */
static void release_exchange(struct http *h, struct exchange *x) {
    *(x->previous != NULL ? &x->previous->next : &h->running) = x->next;
    *(x->next != NULL ? &x->next->previous : &h->running_last) = x->previous;
    h->running_count--;
    free(x->location);
    h->curl->slist_free_all(x->headers);
    x->location = NULL;
    x->headers = NULL;
    if (x->easy != NULL) {
        h->curl->easy_reset(x->easy);
    }
    x->next = h->free;
    h->free = x;
}

enum status http_redirect(struct url *out,
                          enum address_scope *scope,
                          const char *from,
                          const char *address,
                          const char *to,
                          bool keep_https,
                          struct error *err) {
    struct url at;
    uint8_t bytes[16];
    *out = (struct url){0};
    TRY(url_init(&at, from, NULL, err));
    const enum address_scope is =
        proxies_variable() != NULL                 ? url_host_scope(&at)
        : inet_pton(AF_INET, address, bytes) == 1  ? address_scope_v4(bytes)
        : inet_pton(AF_INET6, address, bytes) == 1 ? address_scope_v6(bytes)
                                                   : ADDRESS_PUBLIC;
    enum status s = url_init(out, to, from, err);
    if (s == STATUS_OK && keep_https && strncmp(at.text, "https:", 6) == 0 &&
        strncmp(out->text, "https:", 6) != 0) {
        url_fini(out);
        s = error_set(err, STATUS_INVALID, "it leads from https to http");
    }
    *scope = is < *scope ? is : *scope;
    url_fini(&at);
    return s;
}

/* Queues the transfer at the host it was redirected to. Returns false where that may not be. */
static bool follow(struct http *h, struct exchange *x, int64_t now_ns) {
    struct transfer *t = x->transfer;
    struct url url = {0};
    struct error err = {0};
    const char *why = err.text;
    if (t->redirects >= h->options.max_redirects) {
        why = "too many redirects";
    } else if (http_redirect(&url, &t->scope, t->url, x->response.address, x->location,
                             h->options.keep_https, &err) == STATUS_OK) {
        char *text = url.text;
        url.text = NULL;
        hosts_leave(&h->hosts, t, now_ns);
        if (hosts_queue(&h->hosts, t, url.host, now_ns) == STATUS_OK) {
            free(t->url);
            t->url = text;
            t->redirects++;
            return true;
        }
        free(text);
        why = "out of memory";
    }
    x->result.outcome = HTTP_REFUSED;
    (void)snprintf(x->result.message, sizeof x->result.message,
                   "%.120s: redirect to '%.120s' is not followed: %.180s", t->url, x->location,
                   why);
    return false;
}

/* Whether an address is gone to which a request that remembers was redirected, now or before: then
 * its URL is asked again, unless another request has done that. An address may end while requests
 * wait for a connection, so a new one may end too. */
static bool ask_again(struct http *h, struct exchange *x, int64_t now_ns) {
    struct transfer *t = x->transfer;
    const int status = x->response.status;
    const enum http_outcome outcome = x->result.outcome;
    struct url url;
    const bool ended = outcome == HTTP_STATUS && status == 403;
    const bool gone = outcome == HTTP_DNS || outcome == HTTP_CONNECT || outcome == HTTP_TLS ||
                      (outcome == HTTP_STATUS && (status == 401 || status == 404 || status == 410));
    const bool redirected = t->first != NULL && (t->remembered || t->redirects > 0);
    if (t->renewals == MAX_RENEWALS || (!(redirected && ended) && !(t->remembered && gone))) {
        return false;
    }
    redirects_forget(t->first, t->url);
    char *text = strdup(t->first);
    if (text == NULL || url_init(&url, text, NULL, NULL) != STATUS_OK) {
        free(text);
        return false;
    }
    hosts_leave(&h->hosts, t, now_ns);
    free(t->url);
    t->url = text;
    t->remembered = false;
    t->redirects = 0;
    t->renewals++;
    t->scope = t->named;
    t->linked_etag[0] = '\0';
    const bool queued =
        recall(t, &url) == STATUS_OK && hosts_queue(&h->hosts, t, url.host, now_ns) == STATUS_OK;
    url_fini(&url);
    return queued;
}

static void remember(const struct exchange *x) {
    const struct transfer *t = x->transfer;
    struct redirect r = {.to = t->url, .scope = t->scope};
    if (t->first != NULL && !t->remembered && t->redirects > 0 && x->response.status / 100 == 2) {
        memcpy(r.etag, t->linked_etag, sizeof r.etag);
        redirects_keep(t->first, &r);
    }
}

/* The exchange is over, and no longer in the multi handle. */
static void finish(struct http *h, struct exchange *x, int64_t now_ns) {
    struct transfer *t = x->transfer;
    if (x->is_redirect ? follow(h, x, now_ns) : ask_again(h, x, now_ns)) {
        release_exchange(h, x);
        return;
    }
    remember(x);
    hosts_leave(&h->hosts, t, now_ns);
    h->pending_count--;
    t->request.on_done(t->request.cookie, &x->result);
    release_exchange(h, x);
    transfer_destroy(t);
}

static void cancel(struct http *h, struct exchange *x, int64_t now_ns) {
    x->is_redirect = false;
    x->result.outcome = HTTP_CANCELLED;
    (void)snprintf(x->result.message, sizeof x->result.message, "%.200s: cancelled",
                   x->transfer->url);
    finish(h, x, now_ns);
}

/* ---- loop ----------------------------------------------------------------------------------- */

static enum status start_ready(struct http *h, uint32_t *ended_count, struct error *err) {
    while (h->running_count < h->options.max_connections) {
        const int64_t now_ns = clock_now_ns();
        struct exchange *x = take_exchange(h);
        if (x == NULL) {
            return error_set(err, STATUS_NOMEM, "no memory for a connection");
        }
        struct transfer *t = hosts_take(&h->hosts, now_ns);
        if (t == NULL) {
            x->next = h->free;
            h->free = x;
            break;
        }
        bool ended;
        link_running(h, x);
        h->running_count++;
        exchange_begin(x, t, now_ns, &ended);
        if (ended) {
            finish(h, x, now_ns);
            ++*ended_count;
        }
    }
    return STATUS_OK;
}

static void end(struct http *h, struct exchange *x, CURLcode code, bool timed_out) {
    const int64_t now_ns = clock_now_ns();
    exchange_judge(x, code, timed_out, now_ns);
    (void)h->curl->multi_remove_handle(h->multi, x->easy);
    finish(h, x, now_ns);
}

static enum status perform(struct http *h, uint32_t *ended_count, struct error *err) {
    int running;
    const CURLMcode code = h->curl->multi_perform(h->multi, &running);
    if (code != CURLM_OK) {
        return error_set(err, code == CURLM_OUT_OF_MEMORY ? STATUS_NOMEM : STATUS_IO, "libcurl: %s",
                         h->curl->multi_strerror(code));
    }
    int left;
    CURLMsg *message;
    while ((message = h->curl->multi_info_read(h->multi, &left)) != NULL) {
        if (message->msg == CURLMSG_DONE) {
            char *cookie = NULL;
            const CURLcode result = message->data.result;
            (void)h->curl->easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &cookie);
            end(h, (struct exchange *)(void *)cookie, result, false);
            ++*ended_count;
        }
    }
    return STATUS_OK;
}

/* Ends exchanges whose first byte is late. Returns when the next one will be, or INT64_MAX. They
 * run in the order of their beginning, so the first that waits is the first to be late. */
static int64_t end_late(struct http *h, int64_t now_ns, uint32_t *ended_count) {
    struct exchange *next;
    for (struct exchange *x = h->running; x != NULL; x = next) {
        next = x->next;
        if (x->first_byte_ns != 0) {
            continue;
        }
        const int64_t late_ns = x->started_ns + h->options.first_byte_timeout_ms * NS_PER_MS;
        if (late_ns > now_ns) {
            return late_ns;
        }
        end(h, x, CURLE_OPERATION_TIMEDOUT, true);
        ++*ended_count;
    }
    return INT64_MAX;
}

static int wait_ms(int64_t timeout_ms, int64_t now_ns, int64_t until_ns) {
    if (until_ns != INT64_MAX) {
        const int64_t left_ms = until_ns > now_ns ? (until_ns - now_ns) / NS_PER_MS + 1 : 0;
        timeout_ms = left_ms < timeout_ms ? left_ms : timeout_ms;
    }
    return (int)(timeout_ms < MAX_TIMEOUT_MS ? timeout_ms : MAX_TIMEOUT_MS);
}

enum status http_run(struct http *h, int64_t timeout_ms, struct error *err) {
    REQUIRE(h != NULL && timeout_ms >= 0);
    uint32_t ended_count = 0;
    TRY(start_ready(h, &ended_count, err));
    TRY(perform(h, &ended_count, err));
    const int64_t now_ns = clock_now_ns();
    int64_t until_ns = end_late(h, now_ns, &ended_count);
    if (h->running_count < h->options.max_connections && hosts_wake_ns(&h->hosts) < until_ns) {
        until_ns = hosts_wake_ns(&h->hosts);
    }
    const int wait = ended_count > 0 ? 0 : wait_ms(timeout_ms, now_ns, until_ns);
    const CURLMcode code = h->curl->multi_poll(h->multi, NULL, 0, wait, NULL);
    if (code != CURLM_OK) {
        return error_set(err, STATUS_IO, "libcurl: %s", h->curl->multi_strerror(code));
    }
    TRY(perform(h, &ended_count, err));
    return start_ready(h, &ended_count, err);
}

void http_wake(struct http *h) {
    (void)h->curl->multi_wakeup(h->multi);
}

bool http_host_waits(const struct http *h, const char *host) {
    return hosts_is_limited(&h->hosts, host);
}

uint32_t http_pending(const struct http *h) {
    return h->pending_count;
}

/* ---- the object ----------------------------------------------------------------------------- */

static bool options_are_valid(const struct http_options *o) {
    return o->max_connections >= 1 && o->max_connections <= HTTP_MAX_CONNECTIONS &&
           o->max_connections_per_host >= 1 &&
           o->max_connections_per_host <= HTTP_MAX_CONNECTIONS &&
           o->requests_per_second_per_host >= 0 && o->connect_timeout_ms >= 1 &&
           o->connect_timeout_ms <= MAX_TIMEOUT_MS && o->first_byte_timeout_ms >= 1 &&
           o->first_byte_timeout_ms <= MAX_TIMEOUT_MS && o->total_timeout_ms >= 1 &&
           o->total_timeout_ms <= MAX_TIMEOUT_MS && o->max_redirects <= 20 &&
           o->user_agent != NULL && o->user_agent[0] != '\0';
}

static void name_agent(struct http *h) {
    size_t i = 0;
    for (; i + 1 < sizeof h->agent && strchr("/ (", h->options.user_agent[i]) == NULL; i++) {
        const char c = h->options.user_agent[i];
        h->agent[i] = (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    }
    h->agent[i] = '\0';
}

enum status http_create(struct http **out, const struct http_options *opt, struct error *err) {
    REQUIRE(out != NULL && opt != NULL && options_are_valid(opt));
    *out = NULL;
    const struct curl_library *curl;
    TRY(curl_library_get(&curl, err));
    struct http *h = calloc(1, sizeof *h);
    if (h == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for connections");
    }
    h->curl = curl;
    h->options = *opt;
    name_agent(h);
    hosts_init(&h->hosts, opt->max_connections_per_host, opt->requests_per_second_per_host);
    if (!opt->allow_private) {
        proxies_init(&h->proxies, curl);
    }
    h->multi = curl->multi_init();
    if (h->multi == NULL || curl->multi_setopt(h->multi, CURLMOPT_MAXCONNECTS,
                                               (long)opt->max_connections) != CURLM_OK) {
        http_destroy(h);
        return error_set(err, STATUS_NOMEM, "no memory for connections");
    }
    const enum status s = resolvers_init(&h->resolvers, opt->resolvers, curl, err);
    if (s != STATUS_OK) {
        http_destroy(h);
        return s;
    }
    *out = h;
    return STATUS_OK;
}

static void cancel_all(struct http *h) {
    const int64_t now_ns = clock_now_ns();
    hosts_lift_limits(&h->hosts, now_ns);
    while (h->running != NULL) {
        struct exchange *x = h->running;
        (void)h->curl->multi_remove_handle(h->multi, x->easy);
        cancel(h, x, now_ns);
    }
    struct exchange none = {.http = h};
    struct transfer *t;
    while ((t = hosts_take(&h->hosts, now_ns)) != NULL) {
        h->pending_count--;
        hosts_leave(&h->hosts, t, now_ns);
        none.response = (struct http_response){.url = t->url};
        none.result = (struct http_result){.outcome = HTTP_CANCELLED,
                                           .response = &none.response,
                                           .first_byte_us = -1,
                                           .error_body = ""};
        t->request.on_done(t->request.cookie, &none.result);
        transfer_destroy(t);
    }
}

void http_destroy(struct http *h) {
    if (h == NULL) {
        return;
    }
    cancel_all(h);
    for (struct exchange *x = h->free; x != NULL;) {
        struct exchange *next = x->next;
        if (x->easy != NULL) {
            h->curl->easy_cleanup(x->easy);
        }
        free(x);
        x = next;
    }
    resolvers_fini(&h->resolvers);
    hosts_fini(&h->hosts);
    if (h->multi != NULL) {
        (void)h->curl->multi_cleanup(h->multi);
    }
    free(h);
}
