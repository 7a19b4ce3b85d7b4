/*
 * Where servers sent requests: a hub answers each with a redirect to a signed address of a storage
 * server, and counts it. Later requests for the same URL go to that address, until it answers no
 * more. One table for the process, because a dataset has a client for each thread.
 *
 * Open addressing over a few neighbours: where they are all taken, the oldest place is lost, and
 * its URL is asked again.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "net/http_internal.h"

enum { PLACES = 1 << 15, NEIGHBOURS = 8 };

static struct {
    pthread_mutex_t lock;
    struct {
        uint64_t url; /* its hash; 0: free */
        struct redirect redirect;
    } places[PLACES];
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(void) {
    pthread_mutex_lock(&all.lock);
}

static void unlock(void) {
    pthread_mutex_unlock(&all.lock);
}

static void guard_forks(void) {
    (void)pthread_atfork(lock, unlock, unlock);
}

/* The place of a URL, or with `makes` a free one or the first that may be lost; else NULL. */
static size_t find(uint64_t url, bool makes) {
    size_t place = PLACES;
    for (size_t i = 0; i < NEIGHBOURS; i++) {
        const size_t at = (url + i) % PLACES;
        if (all.places[at].url == url) {
            return at;
        }
        place = makes && place == PLACES && all.places[at].url == 0 ? at : place;
    }
    return makes && place == PLACES ? url % PLACES : place;
}

bool redirects_find(struct redirect *out, const char *url) {
    lock();
    const size_t at = find(hash64(url, strlen(url)), false);
    *out = at < PLACES ? all.places[at].redirect : (struct redirect){0};
    out->to = out->to != NULL ? strdup(out->to) : NULL;
    unlock();
    return out->to != NULL;
}

void redirects_keep(const char *url, const struct redirect *r) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char *to = strdup(r->to);
    if (to == NULL || pthread_once(&once, guard_forks) != 0) {
        free(to);
        return;
    }
    lock();
    const uint64_t hash = hash64(url, strlen(url));
    const size_t at = find(hash, true);
    free(all.places[at].redirect.to);
    all.places[at].url = hash;
    all.places[at].redirect = *r;
    all.places[at].redirect.to = to;
    unlock();
}

void redirects_forget(const char *url, const char *to) {
    lock();
    const size_t at = find(hash64(url, strlen(url)), false);
    if (at < PLACES && strcmp(all.places[at].redirect.to, to) == 0) {
        free(all.places[at].redirect.to);
        all.places[at].redirect.to = NULL;
        all.places[at].url = 0;
    }
    unlock();
}
