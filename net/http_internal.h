/*
 * http_internal: what the files of http share.
 *
 *   http_start --> hosts (queues and limits of each host) --> exchange (one request on the wire)
 *                    ^                                           |
 *                    +---------------- redirect -----------------+--> on_done
 *
 * Threading : as http.h says: all of it belongs to the owner thread.
 */
#ifndef NET_HTTP_INTERNAL_H
#define NET_HTTP_INTERNAL_H

#include <sys/socket.h>

#include "net/curl_library_internal.h"
#include "net/http.h"
#include "net/url.h"

#define HTTP_MAX_PROXIES 16

/* A request from http_start to on_done. */
struct transfer {
    struct http_request request; /* its strings are copies */
    struct http_signature signature;
    char *url;                /* the present one: of the request or of its last redirect */
    char *origin;             /* of the request: further headers go only there */
    char *first;              /* the URL of a request that remembers; else NULL */
    bool remembered;          /* `url` is where `first` was redirected before */
    enum address_scope named; /* what the request itself may reach */
    char linked_etag[128];    /* X-Linked-ETag of the hub's redirect; "" */
    uint32_t redirects;
    uint32_t renewals;        /* how often `first` was asked because an address had ended */
    enum address_scope scope; /* the nearest address that it may reach */
    int64_t busy_ns;          /* on the wire, of the exchanges before a redirect */
    struct host *host;        /* where it is queued or counted as running */
    struct transfer *next;    /* in the queue of its host */
};

/* A transfer on the wire: reused from one to the next. */
struct exchange {
    struct http *http;
    struct transfer *transfer;
    CURL *easy;
    struct curl_slist *headers;
    struct exchange *previous, *next;  /* those that run, oldest first; or those that are free */
    int64_t started_ns, first_byte_ns; /* first byte: 0 until it came */
    size_t header_bytes;
    uint64_t dropped_bytes; /* of a body that nobody gets */
    uint64_t range_length;  /* bytes of the range that is sent; HTTP_UNKNOWN */
    bool head_done, refused_address, stopped, too_large, bad_range, is_redirect;
    char *location;
    struct http_response response;
    struct http_result result;
    char curl_text[CURL_ERROR_SIZE];
    char error_body[1024];
};

/* hosts: the queue, the connections and the token bucket of each host. */
struct hosts {
    uint32_t max_running; /* at each host */
    double rate;          /* tokens per second; 0: no limit */
    void *by_name;        /* tsearch(3) tree of struct host */
    size_t host_count;
    struct host *ready, *ready_last; /* hosts whose first request may run, oldest first */
    struct host **sleeping; /* heap by wake_ns: out of tokens, or idle until it is forgotten */
    size_t sleeping_count, sleeping_capacity;
};

void hosts_init(struct hosts *all, uint32_t max_running, double rate);
void hosts_fini(struct hosts *all); /* requires that no transfer is queued or runs */
/* Queues a transfer at the host of its present URL; returns OK or NOMEM. */
enum status hosts_queue(struct hosts *all, struct transfer *t, const char *name, int64_t now_ns);
/* The next transfer that may run, counted as running at its host; NULL: none now. */
struct transfer *hosts_take(struct hosts *all, int64_t now_ns);
void hosts_leave(struct hosts *all, struct transfer *t, int64_t now_ns); /* it runs no more */
void hosts_lift_limits(struct hosts *all, int64_t now_ns); /* before the end: take them all */
bool hosts_is_limited(const struct hosts *all, const char *name); /* its queue waits for tokens */
/* When hosts_take may find more; INT64_MAX: not before something else happens. */
int64_t hosts_wake_ns(const struct hosts *all);

/* Addresses that the proxies of the environment have. */
struct proxies {
    struct sockaddr_storage addresses[HTTP_MAX_PROXIES];
    size_t count;
};
void proxies_init(struct proxies *p, const struct curl_library *curl);
/* Whether a connection may be opened to an address: that of a proxy, or one no nearer than scope.
 */
bool proxies_allow(const struct proxies *p,
                   const struct sockaddr *address,
                   enum address_scope scope);
/* The variable of the environment that names a proxy, or NULL. */
const char *proxies_variable(void);

/* resolvers: who resolves host names instead of the system. */
struct resolvers {
    char *texts[HTTP_MAX_RESOLVERS]; /* a URL each, or all IP addresses in different orders */
    size_t count;                    /* 0: the system resolves names */
    bool are_urls;
};
/* `list`: http_options.resolvers. After a failure resolvers_fini is due as well. Returns OK, USAGE,
 * UNSUPPORTED or NOMEM. */
enum status resolvers_init(struct resolvers *r,
                           const char *list,
                           const struct curl_library *curl,
                           struct error *err);
void resolvers_fini(struct resolvers *r);
/* What libcurl asks about a host. Requires count > 0. */
const char *resolvers_choose(const struct resolvers *r, const char *host);

struct http {
    const struct curl_library *curl;
    struct http_options options;
    CURLM *multi;
    struct hosts hosts;
    struct proxies proxies;
    struct resolvers resolvers;
    struct exchange *running, *running_last, *free;
    uint32_t running_count, pending_count;
    char agent[64]; /* the user agent's name, lower case */
};

/* redirects: of requests that remember (http.h). Any thread. */
struct redirect {
    char *to;
    enum address_scope scope; /* that it may reach */
    char etag[128];           /* of the file, by the server that redirects; "": not said */
};
bool redirects_find(struct redirect *out, const char *url); /* the caller frees `to` */
void redirects_keep(const char *url, const struct redirect *r);
void redirects_forget(const char *url, const char *to); /* if that is where it leads */

/* Copies a request. Returns NULL where there is no memory. */
struct transfer *transfer_create(const struct http_request *request, const struct url *url);
void transfer_destroy(struct transfer *t); /* accepts NULL */

/* Starts a transfer on the wire. Where it cannot be, *ended has the result and the exchange is not
 * added to the multi handle. */
void exchange_begin(struct exchange *x, struct transfer *t, int64_t now_ns, bool *ended);
/* Judges what came: fills result and response, or finds that a redirect is to be followed. code:
 * libcurl's; timed_out: the first byte did not come in time. */
void exchange_judge(struct exchange *x, CURLcode code, bool timed_out, int64_t now_ns);

/* What a redirect to `to` leads to, of a request that `from` answered; apart for the fuzzer, as the
 * parsers below. `address`: the IP address that answered; that of a proxy, if there may be one.
 * *scope, what the request may reach, is no nearer than the server then. Returns OK; else *out is
 * empty: INVALID, LIMIT, NOMEM. */
enum status http_redirect(struct url *out,
                          enum address_scope *scope,
                          const char *from,
                          const char *address,
                          const char *to,
                          bool keep_https,
                          struct error *err);

/* "bytes FIRST-LAST/TOTAL"; TOTAL may be *. */
bool http_parse_content_range(const char *text, uint64_t *first, uint64_t *last, uint64_t *total);
/* Whether a value of X-Robots-Tag forbids `agent` (lower case) or everybody to use an image. */
/* The milliseconds after which a RateLimit header promises more requests; -1: it does not say. */
int64_t http_parse_rate_limit(const char *text);
bool http_robots_tag_forbids(const char *text, const char *agent);

#endif
