/*
 * watch: the thread, and the end of a process.
 *
 *   look, look, look ... finding --> log, file, answers of the others, abort, leave
 *
 *   beat, beat, beat ...   (another thread: a slow disk delays one file at a time)
 *   fuse                   (a third, without files: exits even if the others hang)
 *
 * The threads allocate nothing.
 */
#include "train/comm/watch.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/file_calls.h"
#include "train/comm/watch_internal.h"

enum { LOOKS_FOR_GONE = 15 };

void watch_times_default(struct watch_times *t) {
    *t = (struct watch_times){
        .look_ms = 200, .beat_ms = 1000, .answer_ms = 8000, .fuse_ms = 10000, .leave = _exit};
}

/* ---- the end of the process ---- */

/* The fuse, without disk access. It burns while the watching thread does not look, because a disk
 * does not respond, or is ending the process. Looks that are very late do not count: this process
 * was stopped.
 */
static void *burn(void *cookie) {
    struct watch *w = cookie;
    const int64_t look_ns = w->times.look_ms * NS_PER_MS;
    int64_t burnt_ns = 0;
    uint64_t looks = 0;
    (void)pthread_mutex_lock(&w->mutex);
    for (bool burns = true; burns && !w->closed;) {
        const int64_t before_ns = clock_now_ns();
        clock_wait_ms(&w->wake, &w->mutex, w->times.look_ms);
        const int64_t passed_ns = clock_now_ns() - before_ns;
        burnt_ns =
            w->looks != looks ? 0 : burnt_ns + (passed_ns < 5 * look_ns ? passed_ns : look_ns);
        looks = w->looks;
        burns = w->left || burnt_ns < (w->ending ? w->times.answer_ms + w->times.fuse_ms
                                                 : w->watched->timeout_ms) *
                                          NS_PER_MS;
    }
    const bool leaves = !w->closed;
    const bool hangs = leaves && !w->ending;
    const int exit_code = hangs ? WATCH_EXIT_CODE : w->exit_code;
    (void)pthread_mutex_unlock(&w->mutex);
    if (hangs) {
        log_write(w->watched->log, LOG_LEVEL_ERROR,
                  "rank %d exits: the disk of %s has not responded for %" PRId64 " s",
                  w->watched->rank, w->folder, w->watched->timeout_ms / 1000);
    }
    if (leaves) {
        w->times.leave(exit_code);
    }
    return NULL;
}

static void log_finding(const struct watch *w, const struct watch_finding *f) {
    char by[32] = "";
    if (f->found_by != w->watched->rank) {
        (void)snprintf(by, sizeof by, " (found by rank %d)", f->found_by);
    }
    log_write(w->watched->log, LOG_LEVEL_ERROR, "rank %d ends: %s%s%s", w->watched->rank,
              f->lost == w->watched->rank ? "it was declared lost: " : "", f->text, by);
    /* All ranks of a host may be gone at once. */
    struct watch_finding other = *f;
    if (f->found_by == w->watched->rank && f->lost >= 0 && w->views[f->lost].gone) {
        while (watch_find_gone(w, other.lost + 1, &other)) {
            log_write(w->watched->log, LOG_LEVEL_ERROR, "rank %d ends: %s", w->watched->rank,
                      other.text);
        }
    }
}

/* Whether every rank except `lost` is ending too. One that failed by itself should end the group
 * first, with its own exit code. */
static bool all_answered(const struct watch *w, int32_t lost) {
    for (int32_t r = 0; r < w->watched->world; r++) {
        const struct watch_view *v = &w->views[r];
        if (r == w->watched->rank || v->gone) {
            continue;
        }
        const bool failed = v->known && v->last.state == HEARTBEAT_FAILED;
        if (r == lost ? failed : watch_is_running(v)) {
            return false;
        }
    }
    return true;
}

static void rest(struct watch *w) {
    (void)pthread_mutex_lock(&w->mutex);
    clock_wait_ms(&w->wake, &w->mutex, w->times.look_ms);
    (void)pthread_mutex_unlock(&w->mutex);
}

/* Writes the reason to this rank's file, gives the others time to do so too, and exits. */
static void end(struct watch *w, enum heartbeat_state state, int32_t lost, const char *reason) {
    const bool has_folder = watch_has_folder(w);
    if (has_folder) {
        watch_post(w, state, lost, reason);
    }
    /* Without files the others detect it themselves. */
    const int64_t answer_ms = has_folder ? w->times.answer_ms : w->times.beat_ms;
    const int64_t end_ns = clock_now_ns() + answer_ms * NS_PER_MS;
    while (clock_now_ns() < end_ns && !all_answered(w, lost)) {
        rest(w);
        watch_observe(w, clock_now_ns(), has_folder, true);
    }
    if (!w->posted_ended) { /* the link is open */
        w->watched->abort_group(w->watched, w->exit_code);
    }
}

/* Watches until a rank is lost, or the owner fails or ends: LOST_PEER, FAILED or ENDED. */
static enum heartbeat_state watch_until(struct watch *w, struct watch_finding *f) {
    bool found = false;
    (void)pthread_mutex_lock(&w->mutex);
    while (!found && !w->stopping && !w->failing) {
        const bool posts = w->ended && w->has_folder && !w->posted_ended;
        (void)pthread_mutex_unlock(&w->mutex);
        found = watch_look(w, clock_now_ns(), f);
        if (!found && posts) {
            watch_post(w, HEARTBEAT_ENDED, -1, "");
        }
        (void)pthread_mutex_lock(&w->mutex);
        w->looks++;
        if (!found && posts) {
            w->posted_ended = true;
            (void)pthread_cond_broadcast(&w->wake);
        }
        if (!found && !w->stopping && !w->failing) {
            clock_wait_ms(&w->wake, &w->mutex, w->times.look_ms);
        }
    }
    w->ending = found || w->failing;
    if (found) {
        w->exit_code = WATCH_EXIT_CODE;
    }
    const enum heartbeat_state state = found        ? HEARTBEAT_LOST_PEER
                                       : w->failing ? HEARTBEAT_FAILED
                                                    : HEARTBEAT_ENDED;
    (void)pthread_mutex_unlock(&w->mutex);
    return state;
}

/* A message may fail because a rank is gone, whose process is only a moment later seen to end: its
 * connections close first. */
static bool failed_by_another(struct watch *w, struct watch_finding *f) {
    int looks = w->exit_code == status_exit_code(STATUS_IO) ? LOOKS_FOR_GONE : 1;
    bool found = false;
    while (!found && looks-- > 0) {
        rest(w);
        watch_observe(w, clock_now_ns(), watch_has_folder(w), true);
        found = watch_find_gone(w, 0, f);
    }
    if (found) {
        (void)pthread_mutex_lock(&w->mutex);
        w->exit_code = WATCH_EXIT_CODE;
        (void)pthread_mutex_unlock(&w->mutex);
    }
    return found;
}

static void *watch_others(void *cookie) {
    struct watch *w = cookie;
    struct watch_finding f = {.lost = -1};
    const enum heartbeat_state state = watch_until(w, &f);
    if (state == HEARTBEAT_ENDED) {
        return NULL;
    }
    if (state == HEARTBEAT_LOST_PEER || failed_by_another(w, &f)) {
        log_finding(w, &f);
        end(w, HEARTBEAT_LOST_PEER, f.lost, f.text);
    } else {
        end(w, HEARTBEAT_FAILED, -1, w->why.text);
    }
    (void)pthread_mutex_lock(&w->mutex);
    w->left = true;
    (void)pthread_cond_broadcast(&w->wake);
    (void)pthread_mutex_unlock(&w->mutex);
    w->times.leave(w->exit_code);
    return NULL;
}

static void *beat(void *cookie) {
    struct watch *w = cookie;
    (void)pthread_mutex_lock(&w->mutex);
    while (!w->stopping) {
        const bool has_folder = w->has_folder;
        (void)pthread_mutex_unlock(&w->mutex);
        if (has_folder) {
            watch_beat(w, clock_now_ns(), clock_process_cpu_ns(), file_calls());
        }
        (void)pthread_mutex_lock(&w->mutex);
        if (!w->stopping) {
            clock_wait_ms(&w->wake, &w->mutex, w->times.look_ms);
        }
    }
    (void)pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* ---- open and close ---- */

void watch_destroy(struct watch *w) {
    if (w == NULL) {
        return;
    }
    (void)pthread_cond_destroy(&w->wake);
    (void)pthread_mutex_destroy(&w->mutex);
    (void)pthread_mutex_destroy(&w->post_mutex);
    free(w->views);
    free(w);
}

enum status watch_create(struct watch **out,
                         struct comm_watched *watched,
                         const struct watch_times *times,
                         struct error *err) {
    *out = NULL;
    const size_t world = (size_t)watched->world;
    struct watch *w = calloc(1, sizeof *w);
    struct watch_view *views = calloc(world, sizeof *views);
    if (w == NULL || views == NULL) {
        free(w);
        free(views);
        return error_set(err, STATUS_NOMEM, "out of memory for the watch over %zu ranks", world);
    }
    w->watched = watched;
    w->views = views;
    w->times = *times;
    const struct comm_peer *own = &watched->peers[watched->rank];
    for (size_t r = 0; r < world; r++) {
        const struct comm_peer *peer = &watched->peers[r];
        /* Ranks of one host may be in containers in which the others' processes are not visible. */
        views[r].local = strcmp(peer->host, own->host) == 0 &&
                         strcmp(peer->boot_id, own->boot_id) == 0 && peer->start_ticks != 0 &&
                         watch_has_process(peer);
    }
    w->own = (struct heartbeat){.rank = watched->rank,
                                .world = watched->world,
                                .pid = own->pid,
                                .start_ticks = own->start_ticks,
                                .lost = -1};
    (void)snprintf(w->own.host, sizeof w->own.host, "%s", own->host);
    (void)pthread_mutex_init(&w->mutex, NULL);
    (void)pthread_mutex_init(&w->post_mutex, NULL);
    (void)pthread_cond_init(&w->wake, NULL);
    *out = w;
    return STATUS_OK;
}

enum status watch_open(struct watch **out,
                       struct comm_watched *watched,
                       const struct watch_times *times,
                       struct error *err) {
    struct watch_times standard;
    watch_times_default(&standard);
    TRY(watch_create(out, watched, times != NULL ? times : &standard, err));
    /* Signals are delivered to the program's own threads. */
    sigset_t every;
    sigset_t before;
    (void)sigfillset(&every);
    (void)pthread_sigmask(SIG_SETMASK, &every, &before);
    struct watch *w = *out;
    w->has_fuse = pthread_create(&w->fuse, NULL, burn, w) == 0;
    w->has_beats = w->has_fuse && pthread_create(&w->beats, NULL, beat, w) == 0;
    w->runs = w->has_beats && pthread_create(&w->thread, NULL, watch_others, w) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!w->runs) {
        watch_close(w);
        *out = NULL;
        return error_set(err, STATUS_NOMEM, "cannot start the thread that watches other ranks");
    }
    return STATUS_OK;
}

enum status watch_prepare(const char *run, struct error *err) {
    const struct file_system *fs = file_posix();
    char folder[PATH_MAX_BYTES];
    struct byte_buffer names = {0};
    TRY(path_join(folder, sizeof folder, run, "ranks", err));
    TRY(fs->make_directory(fs->context, folder, err));
    enum status s = fs->list(fs->context, folder, &names, err);
    for (size_t at = 0; s == STATUS_OK && at < names.size_bytes;) {
        const char *name = (const char *)names.data + at;
        char path[PATH_MAX_BYTES];
        const size_t digits = strspn(name, "0123456789");
        at += strlen(name) + 1;
        const size_t plain_bytes = file_draft_name_bytes(name); /* a killed process leaves drafts */
        if (digits == 0 || strncmp(name + digits, ".json", 5) != 0 ||
            (plain_bytes > 0 ? plain_bytes : strlen(name)) != digits + 5) {
            continue;
        }
        s = path_join(path, sizeof path, folder, name, err);
        if (s == STATUS_OK) {
            s = fs->remove(fs->context, path, err);
            s = s == STATUS_NOTFOUND ? STATUS_OK : s;
        }
    }
    byte_buffer_fini(&names);
    return s;
}

enum status watch_folder(struct watch *w, const char *run, struct error *err) {
    TRY(path_join(w->folder, sizeof w->folder, run, "ranks", err));
    TRY(heartbeat_path(w->own_path, w->folder, w->watched->rank, err));
    /* The threads write only after has_folder is set, and from then on only they do. */
    struct heartbeat first = w->own;
    TRY(heartbeat_write(w->own_path, &first, err));
    (void)pthread_mutex_lock(&w->mutex);
    w->has_folder = true;
    (void)pthread_mutex_unlock(&w->mutex);
    return STATUS_OK;
}

enum status watch_sees_all(struct watch *w, struct error *err) {
    const int64_t end_ns = clock_now_ns() + w->times.answer_ms * NS_PER_MS;
    for (int32_t r = 0; r < w->watched->world;) {
        const struct comm_peer *peer = &w->watched->peers[r];
        struct heartbeat h;
        char path[PATH_MAX_BYTES];
        TRY(heartbeat_path(path, w->folder, r, err));
        if (heartbeat_read(&h, path) && h.pid == peer->pid && h.start_ticks == peer->start_ticks) {
            r++;
        } else if (clock_now_ns() > end_ns) {
            return error_set(err, STATUS_IO,
                             "%s: the heartbeat of rank %d (host %s) is not there; the folder must "
                             "be one that all ranks share",
                             path, r, peer->host);
        } else {
            (void)usleep(20000);
        }
    }
    return STATUS_OK;
}

static void stop(struct watch *w) {
    (void)pthread_mutex_lock(&w->mutex);
    w->stopping = true;
    (void)pthread_cond_broadcast(&w->wake);
    (void)pthread_mutex_unlock(&w->mutex);
    if (w->runs) {
        (void)pthread_join(w->thread, NULL);
        w->runs = false;
    }
    if (w->has_beats) {
        (void)pthread_join(w->beats, NULL);
        w->has_beats = false;
    }
    (void)pthread_mutex_lock(&w->mutex);
    w->closed = true;
    (void)pthread_cond_broadcast(&w->wake);
    (void)pthread_mutex_unlock(&w->mutex);
    if (w->has_fuse) {
        (void)pthread_join(w->fuse, NULL);
        w->has_fuse = false;
    }
}

void watch_end(struct watch *w) {
    (void)pthread_mutex_lock(&w->mutex);
    const bool has_folder = w->has_folder;
    w->ended = true;
    (void)pthread_cond_broadcast(&w->wake);
    while (has_folder && !w->posted_ended && !w->left) {
        (void)pthread_cond_wait(&w->wake, &w->mutex);
    }
    (void)pthread_mutex_unlock(&w->mutex);
    if (!has_folder) {
        stop(w);
    }
}

void watch_linger(struct watch *w) {
    char path[PATH_MAX_BYTES];
    struct heartbeat h;
    int32_t r = 0;
    for (int look = 0; w->runs && look < LOOKS_FOR_GONE && r < w->watched->world; look++) {
        (void)usleep((useconds_t)w->times.look_ms * 1000);
        r = 0;
        while (r < w->watched->world && heartbeat_path(path, w->folder, r, NULL) == STATUS_OK &&
               heartbeat_read(&h, path) && h.state == HEARTBEAT_ENDED) {
            r++;
        }
    }
}

void watch_close(struct watch *w) {
    if (w != NULL) {
        stop(w);
        watch_destroy(w);
    }
}

void watch_fail(struct watch *w, const struct error *why, int exit_code) {
    (void)pthread_mutex_lock(&w->mutex);
    if (!w->ending) {
        w->why = *why;
        w->exit_code = exit_code;
        w->failing = true;
    }
    (void)pthread_cond_broadcast(&w->wake);
    (void)pthread_mutex_unlock(&w->mutex);
    if (w->runs) {
        (void)pthread_join(w->thread, NULL);
    }
}
