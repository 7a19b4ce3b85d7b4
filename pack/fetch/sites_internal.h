/*
 * sites: what the robots.txt of each origin allows, requested once and kept.
 *
 * Threading : single-owner, the thread of its struct http.
 */
#ifndef PACK_FETCH_SITES_INTERNAL_H
#define PACK_FETCH_SITES_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "net/http.h"

enum sites_answer {
    SITES_ALLOWED,
    SITES_FORBIDDEN,
    SITES_UNREACHABLE, /* the server fails to answer for it: nothing may be fetched */
    SITES_ASKED,       /* the answer comes later, to `ready` */
};

/* Someone who waits for a robots.txt. */
struct sites_waiter {
    struct sites_waiter *next;
};

struct sites; /* opaque */

/* `ready` is called for every waiter of an origin whose robots.txt is known now; it asks again.
 * agent: the token that robots.txt files name us by. Returns OK or NOMEM. */
enum status sites_create(struct sites **out,
                         struct http *http,
                         const char *agent,
                         void (*ready)(struct sites_waiter *w),
                         struct error *err);
void sites_destroy(struct sites *s); /* after the http; accepts NULL */

/* Whether `path` (with its query) of an origin may be fetched. Keeps `waiter` when it returns
 * SITES_ASKED. Returns OK or NOMEM. */
enum status sites_ask(struct sites *s,
                      enum sites_answer *out,
                      const char *origin,
                      const char *path,
                      struct sites_waiter *waiter,
                      struct error *err);

#endif
