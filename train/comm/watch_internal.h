/*
 * watch_internal: the state of the watching thread (watch.c) and its rules (watch_rules.c), for
 * tests with their own clock.
 */
#ifndef TRAIN_COMM_WATCH_INTERNAL_H
#define TRAIN_COMM_WATCH_INTERNAL_H

#include <pthread.h>

#include "train/comm/comm_internal.h"
#include "train/comm/heartbeat.h"
#include "train/comm/watch.h"

enum { NS_PER_MS = 1000000 };

/* What this rank knows of another one. Times are of watch.watched_ns. */
struct watch_view {
    bool local; /* its process is visible from here */
    bool gone;
    bool known; /* `last` has been read */
    struct heartbeat last;
    int64_t moved_ns; /* when its beat changed */
};

struct watch {
    struct comm_watched *watched;
    struct watch_times times;
    struct watch_view *views; /* (world); this rank's is not used */
    char folder[PATH_MAX_BYTES], own_path[PATH_MAX_BYTES];
    pthread_t thread, beats, fuse;
    bool runs, has_beats, has_fuse;

    /* used by the thread while it runs */
    int64_t looked_ns, watched_ns; /* clock at the last look, 0: none; time watched so far */
    int64_t round_ns;              /* when it began to read all files */
    int32_t next_read;
    int64_t wait_started_ns, waited_ns; /* the owner's wait, and how long it was observed */
    bool reads;

    /* used by the thread that beats */
    int64_t beaten_ns; /* clock at the last beat */
    bool beaten_slow;
    int64_t felt_ns, still_ns; /* clock at the last look; see heartbeat.h */
    int64_t cpu_ns;            /* of the process when it was last not still */
    uint64_t calls;            /* file_calls at that time */

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
    int32_t lost;                      /* -1: unknown which */
    int32_t found_by;                  /* the rank whose file reports it; or this one */
    char text[HEARTBEAT_REASON_BYTES]; /* "rank 2 (host h, pid 123) is gone: ..." */
};

/* watch_open without the thread. */
enum status watch_create(struct watch **out,
                         struct comm_watched *watched,
                         const struct watch_times *times,
                         struct error *err);
void watch_destroy(struct watch *w);

/* What the thread does every look_ms, at clock time now_ns. True: a rank is lost. */
bool watch_look(struct watch *w, int64_t now_ns, struct watch_finding *out);

/* Its first part: clock, the owner's wait, processes and files. `all`: starts to read all files
 * again as soon as it has read all. */
void watch_observe(struct watch *w, int64_t now_ns, bool has_folder, bool all);

/* Finds the first rank >= `first` whose process ended too early. */
bool watch_find_gone(const struct watch *w, int32_t first, struct watch_finding *out);

/* Whether a rank has not written a state in which its process may end. */
bool watch_is_running(const struct watch_view *v);

/* Whether the process of a rank of this host exists, as far as can be known. */
bool watch_has_process(const struct comm_peer *peer);

/* Writes this rank's file; warns at the first failure. RUNNING: keeps the current state. */
void watch_post(struct watch *w, enum heartbeat_state state, int32_t lost, const char *reason);

/* What the thread that beats does every look_ms: writes the file if it is due. cpu_ns: CPU time of
 * the process; calls: file_calls. */
void watch_beat(struct watch *w, int64_t now_ns, int64_t cpu_ns, uint64_t calls);

bool watch_has_folder(struct watch *w);

#endif
