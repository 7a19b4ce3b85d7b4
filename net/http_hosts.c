/*
 * A host is in one of four states, and settle() finds which:
 *
 *   ready      a request is queued, a connection and a token are free
 *   sleeping   waits for a token; or has nothing to do and is kept until its bucket is full again
 *   full       as many requests run as may: hosts_leave looks again
 *   forgotten  nothing to do and a full bucket: freed
 *
 * So the memory is that of the hosts used within the last second.
 */
#include <math.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "net/http_internal.h"

#define NOT_SLEEPING SIZE_MAX

struct host {
    char *name;
    struct transfer *first, *last; /* queue */
    uint32_t running;
    double tokens; /* as of refilled_ns */
    int64_t refilled_ns;
    int64_t wake_ns;
    size_t heap_index; /* or NOT_SLEEPING */
    bool is_ready;
    struct host *next_ready;
};

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct host *)a)->name, ((const struct host *)b)->name);
}

static double bucket_size(const struct hosts *all) {
    return fmax(1.0, all->rate);
}

/* ---- heap of those that sleep ------------------------------------------------------------- */

static void place(struct hosts *all, struct host *h, size_t at) {
    all->sleeping[at] = h;
    h->heap_index = at;
}

static void rise(struct hosts *all, size_t at) {
    struct host *h = all->sleeping[at];
    for (; at > 0 && all->sleeping[(at - 1) / 2]->wake_ns > h->wake_ns; at = (at - 1) / 2) {
        place(all, all->sleeping[(at - 1) / 2], at);
    }
    place(all, h, at);
}

static void sink(struct hosts *all, size_t at) {
    struct host *h = all->sleeping[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < all->sleeping_count &&
            all->sleeping[child + 1]->wake_ns < all->sleeping[child]->wake_ns) {
            child++;
        }
        if (child >= all->sleeping_count || all->sleeping[child]->wake_ns >= h->wake_ns) {
            break;
        }
        place(all, all->sleeping[child], at);
        at = child;
    }
    place(all, h, at);
}

static void wake(struct hosts *all, struct host *h) {
    if (h->heap_index == NOT_SLEEPING) {
        return;
    }
    const size_t at = h->heap_index;
    h->heap_index = NOT_SLEEPING;
    struct host *moved = all->sleeping[--all->sleeping_count];
    if (moved != h) {
        place(all, moved, at);
        rise(all, at);
        sink(all, moved->heap_index);
    }
}

/* The heap has a place for every host: add_host saw to that. */
static void sleep_until(struct hosts *all, struct host *h, int64_t wake_ns) {
    wake(all, h);
    h->wake_ns = wake_ns;
    place(all, h, all->sleeping_count++);
    rise(all, h->heap_index);
}

/* ---- hosts ---------------------------------------------------------------------------------- */

static void forget(struct hosts *all, struct host *h) {
    wake(all, h);
    (void)tdelete(h, &all->by_name, compare_names);
    all->host_count--;
    free(h->name);
    free(h);
}

/* Space in the heap for one host more. */
static enum status reserve(struct hosts *all) {
    if (all->host_count < all->sleeping_capacity) {
        return STATUS_OK;
    }
    const size_t capacity = all->sleeping_capacity == 0 ? 64 : 2 * all->sleeping_capacity;
    struct host **grown = realloc(all->sleeping, capacity * sizeof *grown);
    if (grown == NULL) {
        return STATUS_NOMEM;
    }
    all->sleeping = grown;
    all->sleeping_capacity = capacity;
    return STATUS_OK;
}

static struct host *add_host(struct hosts *all, const char *name, int64_t now_ns) {
    if (reserve(all) != STATUS_OK) {
        return NULL;
    }
    struct host *h = calloc(1, sizeof *h);
    if (h == NULL) {
        return NULL;
    }
    h->name = strdup(name);
    h->tokens = bucket_size(all);
    h->refilled_ns = now_ns;
    h->heap_index = NOT_SLEEPING;
    if (h->name == NULL || tsearch(h, &all->by_name, compare_names) == NULL) {
        free(h->name);
        free(h);
        return NULL;
    }
    all->host_count++;
    return h;
}

static void refill(const struct hosts *all, struct host *h, int64_t now_ns) {
    h->tokens = all->rate > 0
                    ? fmin(bucket_size(all),
                           h->tokens + (double)(now_ns - h->refilled_ns) * 1e-9 * all->rate)
                    : bucket_size(all);
    h->refilled_ns = now_ns;
}

static int64_t time_of_tokens(const struct hosts *all, const struct host *h, double tokens) {
    return h->refilled_ns + (int64_t)ceil((tokens - h->tokens) / all->rate * 1e9);
}

static void settle(struct hosts *all, struct host *h, int64_t now_ns) {
    if (h->is_ready) {
        return;
    }
    refill(all, h, now_ns);
    const bool is_idle = h->first == NULL && h->running == 0;
    if (is_idle && h->tokens >= bucket_size(all)) {
        forget(all, h);
    } else if (is_idle) {
        sleep_until(all, h, time_of_tokens(all, h, bucket_size(all)));
    } else if (h->first != NULL && h->running < all->max_running && h->tokens < 1) {
        sleep_until(all, h, time_of_tokens(all, h, 1));
    } else {
        wake(all, h);
        if (h->first != NULL && h->running < all->max_running) {
            h->is_ready = true;
            h->next_ready = NULL;
            *(all->ready == NULL ? &all->ready : &all->ready_last->next_ready) = h;
            all->ready_last = h;
        }
    }
}

void hosts_init(struct hosts *all, uint32_t max_running, double rate) {
    *all = (struct hosts){.max_running = max_running, .rate = rate};
}

void hosts_fini(struct hosts *all) {
    while (all->by_name != NULL) {
        forget(all, *(struct host **)all->by_name);
    }
    free(all->sleeping);
}

enum status hosts_queue(struct hosts *all, struct transfer *t, const char *name, int64_t now_ns) {
    char copy[URL_HOST_BYTES];
    strncpy(copy, name, sizeof copy - 1)[sizeof copy - 1] = '\0';
    void *found = tfind(&(struct host){.name = copy}, &all->by_name, compare_names);
    struct host *h = found != NULL ? *(struct host **)found : add_host(all, name, now_ns);
    if (h == NULL) {
        return STATUS_NOMEM;
    }
    t->host = h;
    t->next = NULL;
    *(h->first == NULL ? &h->first : &h->last->next) = t;
    h->last = t;
    settle(all, h, now_ns);
    return STATUS_OK;
}

static struct transfer *take_first(struct host *h) {
    struct transfer *t = h->first;
    h->first = t->next;
    t->next = NULL;
    return t;
}

struct transfer *hosts_take(struct hosts *all, int64_t now_ns) {
    while (all->sleeping_count > 0 && all->sleeping[0]->wake_ns <= now_ns) {
        struct host *h = all->sleeping[0];
        wake(all, h);
        settle(all, h, now_ns);
    }
    struct host *h = all->ready;
    if (h == NULL) {
        return NULL;
    }
    all->ready = h->next_ready;
    h->is_ready = false;
    struct transfer *t = take_first(h);
    refill(all, h, now_ns);
    h->tokens -= 1;
    h->running++;
    settle(all, h, now_ns);
    return t;
}

void hosts_lift_limits(struct hosts *all, int64_t now_ns) {
    all->max_running = UINT32_MAX;
    all->rate = 0;
    while (all->sleeping_count > 0) {
        struct host *h = all->sleeping[0];
        wake(all, h);
        settle(all, h, now_ns);
    }
}

void hosts_leave(struct hosts *all, struct transfer *t, int64_t now_ns) {
    struct host *h = t->host;
    t->host = NULL;
    h->running--;
    settle(all, h, now_ns);
}

bool hosts_is_limited(const struct hosts *all, const char *name) {
    const struct host wanted = {.name = (char *)(uintptr_t)name};
    struct host *const *found = tfind(&wanted, &all->by_name, compare_names);
    return found != NULL && (*found)->first != NULL && (*found)->heap_index != NOT_SLEEPING;
}

int64_t hosts_wake_ns(const struct hosts *all) {
    if (all->ready != NULL) {
        return 0;
    }
    return all->sleeping_count > 0 ? all->sleeping[0]->wake_ns : INT64_MAX;
}
