/*
 * http: many HTTP(S) GET requests at a time over pooled connections (libcurl's multi interface).
 *
 * libcurl is loaded at the first http_create, not linked: programs start without it and use the
 * system's own copy (its certificates, its security updates); without libcurl 7.85 or newer the
 * error names the package to install.
 *
 * Redirects are followed here, not by libcurl, which would send authorization headers and If-Match
 * to another origin (scheme, host and port): there they are dropped, with the signature. Proxies
 * are taken from the environment as curl does (https_proxy, http_proxy, no_proxy).
 *
 * Threading : a struct http has one owner thread, which makes every call but http_wake and runs all
 *             callbacks. Distinct objects are independent.
 * Ownership : requests are copied; what a callback receives is borrowed until it returns.
 * Untrusted : every byte of a response, and every URL. Names of files never come from here.
 * Names     : libcurl asks the system's resolver, or one of `resolvers`, chosen by a hash of the
 *             host's name. It keeps addresses for ten minutes.
 * Memory    : for each request about 300 bytes, its URL and headers while it waits, and libcurl's
 *             buffers (about 50 KiB, more with TLS or for ranges of 1 MiB) while it runs; bodies
 *             are delivered as they arrive.
 */
#ifndef NET_HTTP_H
#define NET_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

#define HTTP_MAX_CONNECTIONS   4096
#define HTTP_MAX_URL_BYTES     8192
#define HTTP_MAX_HEADERS_BYTES (256 * 1024) /* of one response; more is HTTP_PROTOCOL */
#define HTTP_MAX_RESOLVERS     16
#define HTTP_UNKNOWN           UINT64_MAX /* a size or an offset that the server did not send */

struct http; /* opaque */

struct http_options {
    uint32_t max_connections;          /* requests that run at a time, [1, 4096]; default 64 */
    uint32_t max_connections_per_host; /* [1, 4096]; default 2 */
    double
        requests_per_second_per_host; /* token bucket of each host, one second deep; 0: no limit */
    int64_t connect_timeout_ms;       /* name, TCP and TLS, [1, 86400000]; 10,000 */
    int64_t first_byte_timeout_ms;    /* from the start of a request to its first header; 20,000 */
    int64_t total_timeout_ms;         /* of one request with its redirects; 60,000 */
    uint32_t max_redirects;           /* [0, 20]; default 5 */
    /* Which connections are opened to an address that is not public. Behind a proxy only addresses
     * and names in URLs can be judged. Default: none. */
    bool allow_private; /* all */
    bool allow_named; /* also private addresses, if the host of a request's URL is written as one or
                         as a local name (url_host_scope), or is an own_server; a redirect may not
                         lead to a more private scope than its sender's */
    bool keep_https;  /* redirects from https to http are refused; default false */
    bool no_proxy;    /* the proxies of the environment are not used; default false */
    const char *resolvers;  /* DNS servers, separated by commas: URLs of DNS over HTTPS (not with
                               libcurl 8.5 to 8.8), or IP addresses if libcurl has c-ares; NULL: the
                               system's. Unused if a proxy of the environment applies */
    const char *ca_file;    /* certificates to trust, PEM; NULL: the system's. Borrowed */
    const char *user_agent; /* "name/version (...)"; required; borrowed, like ca_file, until
                               http_destroy */
};

/* Everything but user_agent. */
void http_options_default(struct http_options *opt);

/* Whether http_create accepts the resolvers: OK, USAGE, UNSUPPORTED or NOMEM. */
enum status http_check_resolvers(const char *list, struct error *err);

/* Returns OK, INVALID, NOMEM, USAGE for an invalid list of resolvers, or UNSUPPORTED if libcurl is
 * missing, too old, or cannot use them. */
enum status http_create(struct http **out, const struct http_options *opt, struct error *err);

/* Cancels unfinished requests: on_done is called for each with HTTP_CANCELLED. Accepts NULL. */
void http_destroy(struct http *h);

#define HTTP_OUTCOME_LIST(X)                                                                       \
    X(OK, "ok")               /* status 2xx and the whole body */                                  \
    X(STATUS, "status")       /* another status */                                                 \
    X(DNS, "dns")             /* no address for the name */                                        \
    X(CONNECT, "connect")     /* no connection */                                                  \
    X(TLS, "tls")             /* no secure connection, or a certificate that is not trusted */     \
    X(TIMEOUT, "timeout")     /* of the three */                                                   \
    X(PARTIAL, "partial")     /* connection lost, or a body of another length than announced */    \
    X(TOO_LARGE, "too_large") /* more than max_bytes */                                            \
    X(REFUSED, "refused")     /* by us: scheme, redirects */                                       \
    X(PRIVATE, "private")     /* by us: an address that is not public */                           \
    X(STOPPED, "stopped")     /* a callback returned false */                                      \
    X(PROTOCOL, "protocol")   /* not HTTP, or HTTP that breaks its rules */                        \
    X(CANCELLED, "cancelled") /* by http_destroy */

enum http_outcome {
#define X(name, text) HTTP_##name,
    HTTP_OUTCOME_LIST(X)
#undef X
};

const char *http_outcome_name(enum http_outcome o);

/* The last response of a request, after redirects. */
struct http_response {
    int status;              /* 0: none arrived */
    uint64_t content_length; /* of the body as sent, or HTTP_UNKNOWN */
    uint64_t range_first;    /* first byte of Content-Range; HTTP_UNKNOWN without one */
    uint64_t range_total;    /* size of the whole object by Content-Range, or HTTP_UNKNOWN */
    int64_t retry_after_ms;  /* -1: none */
    bool robots_noai; /* X-Robots-Tag holds noai, noimageai, noindex or none, for all or for us */
    char etag[256];   /* with its quotes; "" without one, or where it is longer */
    char content_type[128]; /* "" without one */
    char link[1024];        /* the Link header; "" without one, "..." where it is longer */
    char address[64];       /* of the server or the proxy, as text */
    const char *url;        /* after redirects */
};

struct http_result {
    enum http_outcome outcome;
    const struct http_response *response;
    uint64_t body_bytes; /* handed to on_body */
    int64_t
        elapsed_us; /* from the first connection attempt to the end, without waiting in the queue */
    int64_t first_byte_us;  /* time to the first header; -1: none received */
    char message[480];      /* for people: what happened, with the host; "" for OK */
    const char *error_body; /* first 1,023 bytes of the body of a status that is not 2xx; "" */
};

/* AWS signature version 4 (also of S3-compatible servers), by libcurl. The path of the URL must be
 * percent-encoded throughout (all characters except unreserved ones and /) and have no dot
 * segments; the request needs a header x-amz-content-sha256. */
struct http_signature {
    const char *access_key, *secret_key;
    const char *session_token; /* or NULL */
    const char *region;        /* us-east-1 */
    const char *service;       /* s3 */
};

struct http_request {
    const char *url;      /* http:// or https:// */
    const char *method;   /* NULL: GET; "PUT" for tokens of instance metadata, without a body */
    uint64_t range_first; /* first requested byte; HTTP_UNKNOWN: the last range_bytes bytes */
    uint64_t range_bytes; /* 0: the whole object */
    const char *if_match; /* ETag: another one is status 412; default NULL */
    const char *const *headers; /* further "Name: value" lines; dropped at another origin */
    size_t header_count;
    const struct http_signature *signature; /* NULL: none */
    /* The process remembers the target of redirects and sends later requests for the URL directly
     * there, until it is gone (401, 403, 404, 410, no server): hubs limit requests, not bytes. The
     * ETag is then X-Linked-ETag, which does not depend on the storage server. */
    bool remembers;
    bool unnamed;    /* a file, not the user, named the URL: allow_named does not apply;
                        default false */
    bool own_server; /* the user's configuration names its host, not only the URL; default false */
    uint64_t max_bytes; /* of the decoded body, > 0 */
    bool compressed;    /* offers gzip and deflate; not with a range */
    void *cookie;       /* of the callbacks */
    /* Called once, before the body. false: stop. NULL: continue. */
    bool (*on_head)(void *cookie, const struct http_response *response);
    /* Receives a chunk of the body, after decompression; returns false to stop. NULL: the body is
     * dropped. */
    bool (*on_body)(void *cookie, const void *bytes, size_t size_bytes);
    /* Called once, last. Required. May start further requests. */
    void (*on_done)(void *cookie, const struct http_result *result);
};

/* Queues a request; it runs as soon as the limits of its host allow, in the order of arrival there.
 * A range is answered with 206 and exactly its bytes, as far as the object has them; a server that
 * ignores ranges is HTTP_PROTOCOL. Returns OK, NOMEM, or INVALID or LIMIT as url_init does for the
 * URL: then on_done is not called. May be called from callbacks. */
enum status http_start(struct http *h, const struct http_request *request, struct error *err);

/* Requests that are queued or run. */
uint32_t http_pending(const struct http *h);

/* Whether requests to a host (url.host) wait for its rate. */
bool http_host_waits(const struct http *h, const char *host);

/* Processes all pending events, waits at most timeout_ms for more, and processes those; returns
 * early when a request ended or http_wake was called. Returns OK, NOMEM or IO. */
enum status http_run(struct http *h, int64_t timeout_ms, struct error *err);

/* Ends the present or the next http_run early. Any thread. */
void http_wake(struct http *h);

#endif
