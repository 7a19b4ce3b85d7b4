/*
 * RFC 9309, section 2.3.1: a robots.txt that is there applies, one that is not (4xx) allows
 * everything, and a server that fails to answer (5xx, 429) forbids everything. Where there is no
 * server at all, the request for the image finds that out and says how.
 *
 * The oldest rules are forgotten beyond MAX_SITES origins, and requested again if they are needed.
 */
#include "pack/fetch/fetch_internal.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/robots.h"
#include "net/url.h"

enum { MAX_SITES = 65536 };

struct site {
    struct sites *all;
    char origin[URL_ORIGIN_BYTES];
    enum { SITE_ASKED, SITE_KNOWN, SITE_UNREACHABLE } state;
    struct robots *rules;                        /* NULL: everything is allowed */
    struct sites_waiter *waiters, **waiters_end; /* in the order in which they came */
    struct byte_buffer text;                     /* of robots.txt, while it arrives */
    bool no_memory;
    struct site *newer; /* in the order of their requests */
};

struct sites {
    struct http *http;
    char agent[64];
    void (*ready)(struct sites_waiter *w);
    void *by_origin; /* tsearch(3) tree */
    struct site *oldest, *newest;
    size_t count;
};

static int compare(const void *a, const void *b) {
    return strcmp(((const struct site *)a)->origin, ((const struct site *)b)->origin);
}

enum status sites_create(struct sites **out,
                         struct http *http,
                         const char *agent,
                         void (*ready)(struct sites_waiter *w),
                         struct error *err) {
    struct sites *s = calloc(1, sizeof(*s));
    *out = s;
    TRY_MEMORY(s, err, "out of memory for hosts");
    s->http = http;
    s->ready = ready;
    snprintf(s->agent, sizeof(s->agent), "%s", agent);
    return STATUS_OK;
}

static void forget(struct sites *s, struct site *site) {
    tdelete(site, &s->by_origin, compare);
    s->count--;
    robots_destroy(site->rules);
    byte_buffer_fini(&site->text);
    free(site);
}

void sites_destroy(struct sites *s) {
    if (s) {
        for (struct site *site = s->oldest; site;) {
            struct site *newer = site->newer;
            forget(s, site);
            site = newer;
        }
        free(s);
    }
}

/* Forgets the oldest site that nobody waits for, if there are too many. */
static void make_room(struct sites *s) {
    if (s->count < MAX_SITES || s->oldest->state == SITE_ASKED) {
        return;
    }
    struct site *site = s->oldest;
    s->oldest = site->newer;
    if (!s->oldest) {
        s->newest = NULL;
    }
    forget(s, site);
}

/* What follows the first ROBOTS_MAX_BYTES is ignored. */
static bool on_body(void *cookie, const void *bytes, size_t size_bytes) {
    struct site *site = cookie;
    const size_t room = ROBOTS_MAX_BYTES - site->text.size_bytes;
    const size_t taken = size_bytes < room ? size_bytes : room;
    site->no_memory = byte_buffer_append(&site->text, bytes, taken, NULL) != STATUS_OK;
    return taken == size_bytes && !site->no_memory;
}

static void take_rules(struct site *site) {
    struct error err = {0};
    const enum status s =
        robots_create(&site->rules, site->text.data ? (const char *)site->text.data : "",
                      site->text.size_bytes, site->all->agent, &err);
    site->state = s == STATUS_OK && !site->no_memory ? SITE_KNOWN : SITE_UNREACHABLE;
}

static void on_done(void *cookie, const struct http_result *r) {
    struct site *site = cookie;
    const int status = r->response->status;
    site->state = SITE_KNOWN;
    if (r->outcome == HTTP_OK || (r->outcome == HTTP_STOPPED && status / 100 == 2)) {
        take_rules(site);
    } else if (r->outcome == HTTP_STATUS) {
        site->state = status >= 500 || status == 429 ? SITE_UNREACHABLE : SITE_KNOWN;
    } else if (r->outcome == HTTP_TIMEOUT || r->outcome == HTTP_PARTIAL) {
        site->state = SITE_UNREACHABLE;
    } /* without a connection the requests for images fail too, and say why */
    byte_buffer_fini(&site->text);
    if (r->outcome == HTTP_CANCELLED) {
        return; /* so are those who wait */
    }
    struct sites_waiter *w = site->waiters;
    site->waiters = NULL;
    while (w) {
        struct sites_waiter *next = w->next;
        site->all->ready(w);
        w = next;
    }
}

/* Requests the robots.txt of an origin. */
static enum status
add_site(struct sites *s, struct site **out, const char *origin, struct error *err) {
    char url[URL_ORIGIN_BYTES + 16];
    make_room(s);
    struct site *site = calloc(1, sizeof(*site));
    *out = site;
    TRY_MEMORY(site, err, "out of memory for hosts");
    site->all = s;
    byte_buffer_init(&site->text, ROBOTS_MAX_BYTES);
    snprintf(site->origin, sizeof(site->origin), "%s", origin);
    snprintf(url, sizeof(url), "%s/robots.txt", origin);
    const struct http_request request = {
        .url = url,
        .max_bytes = UINT64_MAX, /* on_body stops */
        .compressed = true,
        .cookie = site,
        .on_body = on_body,
        .on_done = on_done,
    };
    if (!tsearch(site, &s->by_origin, compare)) {
        free(site);
        return error_set(err, STATUS_NOMEM, "out of memory for hosts");
    }
    s->count++;
    *(s->newest ? &s->newest->newer : &s->oldest) = site;
    s->newest = site;
    const enum status started = http_start(s->http, &request, NULL);
    FAIL_IF(started == STATUS_NOMEM, err, started, "out of memory for a request");
    if (started != STATUS_OK) { /* then no image can be requested either, which is reported */
        site->state = SITE_KNOWN;
    }
    return STATUS_OK;
}

enum status sites_ask(struct sites *s,
                      enum sites_answer *out,
                      const char *origin,
                      const char *path,
                      struct sites_waiter *waiter,
                      struct error *err) {
    struct site wanted;
    snprintf(wanted.origin, sizeof(wanted.origin), "%s", origin);
    struct site **found = tfind(&wanted, &s->by_origin, compare);
    struct site *site = found ? *found : NULL;
    if (!site) {
        TRY(add_site(s, &site, origin, err));
    }
    if (site->state == SITE_ASKED) {
        waiter->next = NULL;
        *(site->waiters ? site->waiters_end : &site->waiters) = waiter;
        site->waiters_end = &waiter->next;
        *out = SITES_ASKED;
    } else if (site->state == SITE_UNREACHABLE) {
        *out = SITES_UNREACHABLE;
    } else {
        *out = robots_allows(site->rules, path) ? SITES_ALLOWED : SITES_FORBIDDEN;
    }
    return STATUS_OK;
}
