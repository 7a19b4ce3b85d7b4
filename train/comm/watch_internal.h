/*
 * watch_internal: what the watching thread (watch.c) keeps for its rules (watch_rules.c), and one
 * look of it, for tests that bring their own clock.
 */
#ifndef TRAIN_COMM_WATCH_INTERNAL_H
#define TRAIN_COMM_WATCH_INTERNAL_H

#include <pthread.h>

#include "train/comm/comm_internal.h"
#include "train/comm/heartbeat.h"
#include "train/comm/watch.h"

enum { NS_PER_MS = 1000000 };

/* What this rank knows of another. Times are of watch.watched_ns. */
struct watch_view {
    bool local; /* its process can be seen from here */
    bool gone;
    bool known; /* `last` has been read */
    struct heartbeat last;
    int64_t moved_ns; /* when its beat changed */
};

struct watch {
    struct comm_watched *watched;
    struct watch_times times;
    struct watch_view *views; /* (world); the own one is not used */
    char folder[PATH_MAX_BYTES], own_path[PATH_MAX_BYTES];
    pthread_t thread, beats, fuse;
    bool runs, has_beats, has_fuse;

    /* of the thread while it runs */
    int64_t looked_ns, watched_ns; /* the clock at the last look, 0: none; time watched so far */
    int64_t round_ns;              /* when reading of all files began */
    int32_t next_read;
    int64_t wait_started_ns, waited_ns; /* the owner's wait, and for how long it was seen */
    bool reads;

    /* of the thread that beats */
    int64_t beaten_ns; /* the clock at the last beat */
    bool beaten_slow;
    int64_t felt_ns, still_ns; /* the clock at the last look; see heartbeat.h */
    int64_t cpu_ns;            /* of the process when it was not still */
    uint64_t calls;            /* file_calls likewise */

    pthread_mutex_t post_mutex; /* taken after mutex, and held while the file is written */
    struct heartbeat own;       /* guarded by post_mutex */
    bool warned;

    pthread_mutex_t mutex;
    pthread_cond_t wake;
    /* guarded by mutex */
    bool has_folder; /* folder and own_path do not change after it is set */
    bool stopping, failing, ending, left;
    bool ended, posted_ended, closed;
    uint64_t looks;
    struct error why; /* failing */
    int exit_code;    /* failing or ending */
};

struct watch_finding {
    int32_t lost;                      /* -1: which rank is not known */
    int32_t found_by;                  /* the rank whose file has the finding; or this one */
    char text[HEARTBEAT_REASON_BYTES]; /* "rank 2 (host h, pid 123) is gone: ..." */
};

/* watch_open without the thread. */
enum status watch_create(struct watch **out,
                         struct comm_watched *watched,
                         const struct watch_times *times,
                         struct error *err);
void watch_destroy(struct watch *w);

/* What the thread does every look_ms, at the time now_ns of its clock. True: a rank is lost. */
bool watch_look(struct watch *w, int64_t now_ns, struct watch_finding *out);

/* Its first part: the clock, the owner's wait, processes and files. `all`: begins to read all files
 * again as soon as it has read all. */
void watch_observe(struct watch *w, int64_t now_ns, bool has_folder, bool all);

/* The first rank from `first` on whose process ended too early. */
bool watch_find_gone(const struct watch *w, int32_t first, struct watch_finding *out);

/* Whether a rank did not leave a state in which its process may end. */
bool watch_is_running(const struct watch_view *v);

/* Whether the process of a rank of this host is there, as far as that can be known. */
bool watch_has_process(const struct comm_peer *peer);

/* Writes the own file; a warning at the first failure. RUNNING: with the state that it has. */
void watch_post(struct watch *w, enum heartbeat_state state, int32_t lost, const char *reason);

/* What the thread that beats does every look_ms: writes the file if it is time to. cpu_ns: time
 * that the process has computed; calls: file_calls. */
void watch_beat(struct watch *w, int64_t now_ns, int64_t cpu_ns, uint64_t calls);

bool watch_has_folder(struct watch *w);

#endif
