/*
 * watch_rules: one look, and when a rank is lost.
 *
 * Durations are sums over looks, each counting for at most MAX_LOOKS looks: if the whole job or
 * host was suspended, no rank was silent.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/clock.h"
#include "train/comm/watch_internal.h"

enum {
    MAX_LOOKS = 5,
    FILES_PER_LOOK = 16, /* large groups are read over several looks */
    SLOW_FACTOR = 10
};

/* ---- files ---- */

static enum comm_phase own_phase(const struct watch *w) {
    return (enum comm_phase)atomic_load_explicit(&w->watched->phase, memory_order_relaxed);
}

static bool is_slow(enum comm_phase phase) {
    return phase == COMM_PHASE_SAVE || phase == COMM_PHASE_EVALUATE;
}

void watch_post(struct watch *w, enum heartbeat_state state, int32_t lost, const char *reason) {
    struct error err = {0};
    const int64_t waits_from_ns =
        atomic_load_explicit(&w->watched->wait_started_ns, memory_order_relaxed);
    (void)pthread_mutex_lock(&w->post_mutex);
    if (state != HEARTBEAT_RUNNING) {
        w->own.state = state;
        w->own.lost = lost;
        (void)snprintf(w->own.reason, sizeof w->own.reason, "%s", reason);
    }
    w->own.beat++;
    w->own.step = atomic_load_explicit(&w->watched->step, memory_order_relaxed);
    w->own.phase = own_phase(w);
    w->own.wait_ms = waits_from_ns != 0 ? (clock_now_ns() - waits_from_ns) / NS_PER_MS : 0;
    if (heartbeat_write(w->own_path, &w->own, &err) != STATUS_OK && !w->warned) {
        w->warned = true;
        log_write(w->watched->log, LOG_LEVEL_WARN,
                  "%s; ranks on other hosts may declare this one lost", err.text);
    }
    (void)pthread_mutex_unlock(&w->post_mutex);
}

/* Time since the last look; a suspended process does not look. */
static int64_t passed_ns(const struct watch *w, int64_t last_ns, int64_t now_ns) {
    const int64_t most_ns = MAX_LOOKS * w->times.look_ms * NS_PER_MS;
    const int64_t passed = last_ns != 0 ? now_ns - last_ns : 0;
    return passed < most_ns ? passed : most_ns;
}

/* One twentieth of the time is more than this file's threads use. */
static void feel(struct watch *w, int64_t now_ns, int64_t cpu_ns, uint64_t calls) {
    const bool waits =
        atomic_load_explicit(&w->watched->wait_started_ns, memory_order_relaxed) != 0;
    w->still_ns += passed_ns(w, w->felt_ns, now_ns);
    w->felt_ns = now_ns;
    if (waits || calls != w->calls || cpu_ns - w->cpu_ns > w->still_ns / 20 + 20 * NS_PER_MS) {
        w->still_ns = 0;
        w->cpu_ns = cpu_ns;
        w->calls = calls;
    }
    (void)pthread_mutex_lock(&w->post_mutex);
    w->own.still_ms = w->still_ns / NS_PER_MS;
    (void)pthread_mutex_unlock(&w->post_mutex);
}

void watch_beat(struct watch *w, int64_t now_ns, int64_t cpu_ns, uint64_t calls) {
    const bool slow = is_slow(own_phase(w));
    feel(w, now_ns, cpu_ns, calls);
    if (now_ns - w->beaten_ns >= w->times.beat_ms * NS_PER_MS || slow != w->beaten_slow) {
        w->beaten_ns = now_ns;
        w->beaten_slow = slow;
        watch_post(w, HEARTBEAT_RUNNING, -1, "");
    }
}

static void read_file(struct watch *w, int32_t r) {
    struct watch_view *v = &w->views[r];
    const struct comm_peer *peer = &w->watched->peers[r];
    struct heartbeat h;
    char path[PATH_MAX_BYTES];
    if (heartbeat_path(path, w->folder, r, NULL) != STATUS_OK || !heartbeat_read(&h, path) ||
        h.rank != r || h.world != w->watched->world || h.pid != peer->pid ||
        h.start_ticks != peer->start_ticks) {
        return; /* not written yet, damaged, or of another launch */
    }
    if (!v->known || h.beat != v->last.beat) {
        v->moved_ns = w->watched_ns;
    }
    v->known = true;
    v->last = h;
}

/* Reads some of the files; `all`: without a pause after the last. */
static void read_files(struct watch *w, bool all) {
    const int32_t world = w->watched->world;
    for (int32_t n = 0; n < FILES_PER_LOOK && n < world; n++) {
        if (w->next_read == 0) {
            if (!all && w->watched_ns - w->round_ns < w->times.beat_ms * NS_PER_MS) {
                return;
            }
            w->round_ns = w->watched_ns;
        }
        if (w->next_read != w->watched->rank) {
            read_file(w, w->next_read);
        }
        w->next_read = (w->next_read + 1) % world;
    }
}

/* Silence is counted from here. */
static void begin_to_read(struct watch *w) {
    w->reads = true;
    w->round_ns = w->watched_ns - w->times.beat_ms * NS_PER_MS;
    for (int32_t r = 0; r < w->watched->world; r++) {
        w->views[r].moved_ns = w->watched_ns;
    }
}

/* ---- rules ---- */

bool watch_has_process(const struct comm_peer *peer) {
    uint64_t start_ticks = 0;
    switch (process_look(peer->pid, &start_ticks)) {
    case PROCESS_UNKNOWN:
        return true;
    case PROCESS_GONE:
        return false;
    default:
        return start_ticks == peer->start_ticks;
    }
}

static void look_at_processes(struct watch *w, bool has_folder) {
    for (int32_t r = 0; r < w->watched->world; r++) {
        struct watch_view *v = &w->views[r];
        if (r != w->watched->rank && v->local && !v->gone &&
            !watch_has_process(&w->watched->peers[r])) {
            v->gone = true;
            if (has_folder) {
                read_file(w, r); /* its last message */
            }
        }
    }
}

bool watch_is_running(const struct watch_view *v) {
    return !v->known || v->last.state == HEARTBEAT_RUNNING;
}

static bool is_still(const struct watch *w, const struct watch_view *v) {
    return v->last.wait_ms == 0 && v->last.still_ms >= w->watched->timeout_ms;
}

static int64_t timeout_ns(const struct watch *w, const struct watch_view *v) {
    const bool slow = (is_slow(own_phase(w)) || (v != NULL && is_slow(v->last.phase))) &&
                      (v == NULL || !is_still(w, v));
    return w->watched->timeout_ms * NS_PER_MS * (slow ? SLOW_FACTOR : 1);
}

static int64_t seconds(int64_t ns) {
    return (ns + 500 * (int64_t)NS_PER_MS) / (1000 * (int64_t)NS_PER_MS);
}

/* `before`, and the last known step and phase of a rank; "" if unknown. */
static void describe_place(char out[96], const struct watch_view *v, const char *before) {
    out[0] = '\0';
    if (v->known) {
        (void)snprintf(out, 96, "%sat step %" PRIu64 ", in %s", before, v->last.step,
                       comm_phase_name(v->last.phase));
    }
}

static void __attribute__((format(printf, 4, 5)))
describe(struct watch_finding *out, const struct watch *w, int32_t r, const char *fmt, ...) {
    const struct comm_peer *peer = &w->watched->peers[r];
    out->lost = r;
    out->found_by = w->watched->rank;
    const int n = snprintf(out->text, sizeof out->text, "rank %d (host %s, pid %" PRId64 ") ", r,
                           peer->host, peer->pid);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(out->text + n, sizeof out->text - (size_t)n, fmt, args);
    va_end(args);
}

bool watch_find_gone(const struct watch *w, int32_t first, struct watch_finding *out) {
    for (int32_t r = first; r < w->watched->world; r++) {
        const struct watch_view *v = &w->views[r];
        if (v->gone && watch_is_running(v)) {
            char place[96];
            describe_place(place, v, "; last seen ");
            describe(out, w, r, "is gone: its process ended%s", place);
            return true;
        }
    }
    return false;
}

static bool find_failed(const struct watch *w, struct watch_finding *out) {
    for (int32_t r = 0; r < w->watched->world; r++) {
        const struct watch_view *v = &w->views[r];
        if (v->known && v->last.state == HEARTBEAT_FAILED) {
            char place[96];
            describe_place(place, v, " ");
            describe(out, w, r, "failed%s: %s", place, v->last.reason);
            return true;
        }
    }
    return false;
}

/* Finds a rank that another one has declared lost. */
static bool find_reported(const struct watch *w, struct watch_finding *out) {
    for (int32_t r = 0; r < w->watched->world; r++) {
        const struct watch_view *v = &w->views[r];
        if (v->known && v->last.state == HEARTBEAT_LOST_PEER) {
            out->lost = v->last.lost;
            out->found_by = r;
            (void)snprintf(out->text, sizeof out->text, "%s", v->last.reason);
            return true;
        }
    }
    return false;
}

static bool is_stopped(const struct watch *w, int32_t r) {
    uint64_t start_ticks = 0;
    return r != w->watched->rank && w->views[r].local &&
           process_look(w->watched->peers[r].pid, &start_ticks) == PROCESS_STOPPED;
}

/* A rank that saves still beats. One that has ended is silent, but its process is not stopped. */
static bool find_silent(const struct watch *w, struct watch_finding *out) {
    for (int32_t r = 0; r < w->watched->world; r++) {
        const struct watch_view *v = &w->views[r];
        const int64_t silent_ns = w->watched_ns - v->moved_ns;
        if (r == w->watched->rank || silent_ns < w->watched->timeout_ms * NS_PER_MS) {
            continue;
        }
        const bool stopped = is_stopped(w, r);
        if (!watch_is_running(v) && !(v->last.state == HEARTBEAT_ENDED && stopped)) {
            continue;
        }
        char place[96];
        describe_place(place, v, ", last seen ");
        describe(out, w, r, "has not answered for %" PRId64 " s%s%s", seconds(silent_ns), place,
                 stopped ? " (its process is stopped)" : "");
        return true;
    }
    return false;
}

/* Whether rank `a` is suspected before `b`: it does not wait, or is in an earlier step or phase. */
static bool is_before(const struct heartbeat *a, const struct heartbeat *b) {
    if ((a->wait_ms == 0) != (b->wait_ms == 0)) {
        return a->wait_ms == 0;
    }
    return a->step != b->step ? a->step < b->step : a->phase < b->phase;
}

/* Every rank waits, and none is behind: files arrive, but not all messages. */
static void describe_all_wait(char out[256], const struct watch *w) {
    const char *own = w->watched->peers[w->watched->rank].host;
    const char *other = own;
    for (int32_t r = 0; r < w->watched->world && strcmp(other, own) == 0; r++) {
        other = w->watched->peers[r].host;
    }
    (void)snprintf(out, 256, "all that are known wait too");
    if (strcmp(other, own) != 0) {
        (void)snprintf(out, 256,
                       "all that are known wait too, so look at the network between the hosts, "
                       "such as %s and %s",
                       own, other);
    }
}

/* The rank for which the owner has waited too long. */
static bool find_stuck(const struct watch *w, bool has_folder, struct watch_finding *out) {
    const struct heartbeat own = {
        .wait_ms = 1,
        .step = atomic_load_explicit(&w->watched->step, memory_order_relaxed),
        .phase = own_phase(w),
    };
    int32_t last = -1;
    for (int32_t r = 0; has_folder && r < w->watched->world; r++) {
        const struct watch_view *v = &w->views[r];
        if (r != w->watched->rank && v->known && v->last.state == HEARTBEAT_RUNNING &&
            (last < 0 || is_before(&v->last, &w->views[last].last))) {
            last = r;
        }
    }
    const struct watch_view *v = last >= 0 ? &w->views[last] : NULL;
    if (w->waited_ns < timeout_ns(w, v)) {
        return false;
    }
    const int64_t waited_s = seconds(w->waited_ns);
    if (v != NULL && is_before(&v->last, &own)) {
        describe(out, w, last,
                 "is in %s at step %" PRIu64 ", and rank %d has waited for it for %" PRId64 " s%s",
                 comm_phase_name(v->last.phase), v->last.step, w->watched->rank, waited_s,
                 is_still(w, v) ? "; it does not compute: a disk may not answer" : "");
        return true;
    }
    for (int32_t r = 0; r < w->watched->world; r++) { /* before there are files */
        if (is_stopped(w, r)) {
            describe(out, w, r, "has not answered for %" PRId64 " s (its process is stopped)",
                     waited_s);
            return true;
        }
    }
    char others[256] = "none of them is known to be lost";
    if (v != NULL) {
        describe_all_wait(others, w);
    }
    out->lost = -1;
    out->found_by = w->watched->rank;
    (void)snprintf(out->text, sizeof out->text,
                   "not all ranks have answered for %" PRId64 " s, at step %" PRIu64 ", in %s: %s",
                   waited_s, own.step, comm_phase_name(own.phase), others);
    return true;
}

/* One look: the clock, the owner's wait, processes and files. */
void watch_observe(struct watch *w, int64_t now_ns, bool has_folder, bool all) {
    const int64_t passed = passed_ns(w, w->looked_ns, now_ns);
    w->looked_ns = now_ns;
    w->watched_ns += passed;
    const int64_t started_ns =
        atomic_load_explicit(&w->watched->wait_started_ns, memory_order_relaxed);
    w->waited_ns = started_ns != 0 && started_ns == w->wait_started_ns ? w->waited_ns + passed : 0;
    w->wait_started_ns = started_ns;
    look_at_processes(w, has_folder);
    if (has_folder) {
        if (!w->reads) {
            begin_to_read(w);
        }
        read_files(w, all);
    }
}

bool watch_has_folder(struct watch *w) {
    (void)pthread_mutex_lock(&w->mutex);
    const bool has_folder = w->has_folder;
    (void)pthread_mutex_unlock(&w->mutex);
    return has_folder;
}

bool watch_look(struct watch *w, int64_t now_ns, struct watch_finding *out) {
    const bool has_folder = watch_has_folder(w);
    watch_observe(w, now_ns, has_folder, false);
    return watch_find_gone(w, 0, out) || find_failed(w, out) || find_reported(w, out) ||
           (has_folder && find_silent(w, out)) || find_stuck(w, has_folder, out);
}
