/* The rules of a lost rank, with a clock of the test's own; and how a process ends. */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "tests/support/test.h"
#include "train/comm/watch_internal.h"

enum { WORLD = 4, TIMEOUT_MS = 20000 };

/* This process is rank 0. The others are children of this host, or on a host that is known only by
 * files. */
struct group {
    struct comm_watched watched;
    struct comm_peer peers[WORLD];
    struct heartbeat files[WORLD];
    struct watch *w;
    int64_t now_ms;
    struct watch_finding found;
};

static void await_state(pid_t pid, enum process_state state) {
    uint64_t ticks = 0;
    while (process_look(pid, &ticks) != state) {
        usleep(1000);
    }
}

static void describe_group(struct group *g, bool local) {
    memset(g, 0, sizeof *g);
    g->watched.world = WORLD;
    g->watched.peers = g->peers;
    g->watched.timeout_ms = TIMEOUT_MS;
    for (int32_t r = 0; r < WORLD; r++) {
        struct comm_peer *p = &g->peers[r];
        (void)snprintf(p->host, sizeof p->host, "%s", local || r == 0 ? "here" : "far");
        (void)snprintf(p->boot_id, sizeof p->boot_id, "%s", local || r == 0 ? "a" : "b");
        p->pid = r == 0 ? getpid() : local ? test_child() : 100 + r;
        p->start_ticks = 1000;
        if (local || r == 0) {
            (void)process_look(p->pid, &p->start_ticks);
        }
        g->files[r] = (struct heartbeat){.rank = r,
                                         .world = WORLD,
                                         .pid = p->pid,
                                         .start_ticks = p->start_ticks,
                                         .step = 17,
                                         .phase = COMM_PHASE_BACKWARD,
                                         .lost = -1};
    }
}

static void open_group(struct group *g, bool local) {
    struct error err = {0};
    struct watch_times times;
    describe_group(g, local);
    watch_times_default(&times);
    assert_ok(watch_create(&g->w, &g->watched, &times, &err), err);
    atomic_store(&g->watched.step, 17);
    atomic_store(&g->watched.phase, COMM_PHASE_LOSS);
    g->now_ms = 1;
}

static void close_group(struct group *g) {
    for (int32_t r = 1; r < WORLD; r++) {
        if (strcmp(g->peers[r].host, "here") == 0 && kill((pid_t)g->peers[r].pid, SIGKILL) == 0) {
            (void)waitpid((pid_t)g->peers[r].pid, NULL, 0);
        }
    }
    watch_destroy(g->w);
}

static void beat(struct group *g, int32_t r) {
    struct error err = {0};
    char path[PATH_MAX_BYTES];
    g->files[r].beat++;
    assert_ok(heartbeat_path(path, test_temp_path("ranks"), r, &err), err);
    assert_ok(heartbeat_write(path, &g->files[r], &err), err);
}

/* From now on with files, of all ranks. */
static void open_folder(struct group *g) {
    struct error err = {0};
    assert_ok(watch_prepare(test_temp_dir(), &err), err);
    assert_ok(watch_folder(g->w, test_temp_dir(), &err), err);
    for (int32_t r = 1; r < WORLD; r++) {
        beat(g, r);
    }
    assert_ok(watch_sees_all(g->w, &err), err);
}

/* Looks for so long, while the ranks of the mask beat; true: a rank was found to be lost. */
static bool pass(struct group *g, int64_t ms, uint32_t beating) {
    for (const int64_t end_ms = g->now_ms + ms; g->now_ms <= end_ms; g->now_ms += 200) {
        for (int32_t r = 1; r < WORLD; r++) {
            if (g->now_ms % 1000 < 200 && ((beating >> r) & 1) != 0) {
                beat(g, r);
            }
        }
        if (watch_look(g->w, g->now_ms * 1000000, &g->found)) {
            return true;
        }
    }
    return false;
}

static void assert_found(const struct group *g, int32_t rank, const char *text) {
    assert_int_equal(g->found.lost, rank);
    if (strstr(g->found.text, text) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", text, g->found.text);
    }
}

enum { ALL = 0xe };

TEST(a_killed_process_is_named_with_its_place) {
    struct group g;
    char expected[128];
    open_group(&g, true);
    open_folder(&g);
    assert_false(pass(&g, 3000, ALL));
    kill((pid_t)g.peers[2].pid, SIGKILL);
    await_state((pid_t)g.peers[2].pid, PROCESS_GONE);
    assert_true(pass(&g, 0, 0)); /* in the next look */
    (void)snprintf(expected, sizeof expected,
                   "rank 2 (host here, pid %d) is gone: its process ended; last seen at step 17, "
                   "in backward",
                   (int)g.peers[2].pid);
    assert_string_equal(g.found.text, expected);
    assert_int_equal(g.found.lost, 2);
    assert_int_equal(g.found.found_by, 0);
    close_group(&g);
}

TEST(a_process_is_missed_before_there_are_files) {
    struct group g;
    open_group(&g, true);
    assert_false(pass(&g, 1000, 0));
    kill((pid_t)g.peers[3].pid, SIGKILL);
    (void)waitpid((pid_t)g.peers[3].pid, NULL, 0); /* as mpirun does at once */
    assert_true(pass(&g, 0, 0));
    assert_found(&g, 3, "is gone: its process ended");
    g.peers[3].pid = test_child(); /* to be ended by close_group */
    close_group(&g);
}

TEST(another_process_with_the_same_pid_is_not_the_rank) {
    struct group g;
    open_group(&g, true);
    assert_false(pass(&g, 400, 0));
    g.peers[1].start_ticks--; /* the one that is there started later */
    assert_true(pass(&g, 0, 0));
    assert_found(&g, 1, "is gone");
    close_group(&g);
}

/* Two containers of one host: their processes have other pids for each other, or none. */
TEST(processes_that_were_never_seen_are_not_missed) {
    struct group g;
    describe_group(&g, true);
    struct error err = {0};
    struct watch_times times;
    watch_times_default(&times);
    const int64_t pid = g.peers[1].pid;
    g.peers[1].start_ticks++;
    assert_ok(watch_create(&g.w, &g.watched, &times, &err), err);
    assert_false(pass(&g, 3000, 0));
    g.peers[1].pid = pid;
    close_group(&g);
}

TEST(a_rank_that_ended_is_not_lost) {
    struct group g;
    open_group(&g, true);
    open_folder(&g);
    assert_false(pass(&g, 1000, ALL));
    g.files[1].state = HEARTBEAT_ENDED;
    beat(&g, 1); /* not read before its process is gone */
    kill((pid_t)g.peers[1].pid, SIGKILL);
    await_state((pid_t)g.peers[1].pid, PROCESS_GONE);
    assert_false(pass(&g, 2 * TIMEOUT_MS, ALL & ~2U));
    close_group(&g);
}

TEST(a_failed_rank_is_named_with_its_reason) {
    struct group g;
    open_group(&g, false);
    open_folder(&g);
    assert_false(pass(&g, 1000, ALL));
    g.files[3].state = HEARTBEAT_FAILED;
    (void)snprintf(g.files[3].reason, sizeof g.files[3].reason, "disk full");
    beat(&g, 3);
    assert_true(pass(&g, 1200, ALL));
    assert_found(&g, 3, "failed at step 17, in backward: disk full");
    close_group(&g);
}

/* The reason of a lost rank is more than that of those who failed because of it. */
TEST(a_rank_that_is_gone_is_named_before_one_that_failed) {
    struct group g;
    open_group(&g, true);
    open_folder(&g);
    g.files[1].state = HEARTBEAT_FAILED;
    beat(&g, 1);
    kill((pid_t)g.peers[2].pid, SIGKILL);
    await_state((pid_t)g.peers[2].pid, PROCESS_GONE);
    assert_true(pass(&g, 2000, ALL));
    assert_found(&g, 2, "is gone");
    close_group(&g);
}

TEST(what_another_rank_found_is_taken_over) {
    struct group g;
    open_group(&g, false);
    open_folder(&g);
    g.files[1].state = HEARTBEAT_LOST_PEER;
    g.files[1].lost = 3;
    (void)snprintf(g.files[1].reason, sizeof g.files[1].reason,
                   "rank 3 (host far, pid 103) is gone");
    beat(&g, 1);
    assert_true(pass(&g, 1200, ALL));
    assert_found(&g, 3, "rank 3 (host far, pid 103) is gone");
    assert_int_equal(g.found.found_by, 1);
    close_group(&g);
}

TEST(a_silent_rank_is_lost_after_the_timeout) {
    struct group g;
    open_group(&g, false);
    assert_false(pass(&g, 3 * TIMEOUT_MS, 0)); /* a long start: nobody beats yet */
    open_folder(&g);
    assert_false(pass(&g, 2 * TIMEOUT_MS, ALL));
    assert_false(pass(&g, TIMEOUT_MS - 2000, ALL & ~4U));
    assert_true(pass(&g, 4000, ALL & ~4U));
    assert_found(&g, 2, "has not answered for 20 s, last seen at step 17, in backward");
    close_group(&g);
}

TEST(a_stopped_process_is_called_so) {
    struct group g;
    open_group(&g, true);
    open_folder(&g);
    kill((pid_t)g.peers[1].pid, SIGSTOP);
    await_state((pid_t)g.peers[1].pid, PROCESS_STOPPED);
    assert_true(pass(&g, TIMEOUT_MS + 2000, ALL & ~2U));
    assert_found(&g, 1, "in backward (its process is stopped)");
    close_group(&g);
}

TEST(a_silent_rank_is_lost_after_the_timeout_in_every_phase) {
    for (int own = 0; own < COMM_PHASE_COUNT; own++) {
        for (int theirs = 0; theirs < COMM_PHASE_COUNT; theirs++) {
            struct group g;
            open_group(&g, false);
            open_folder(&g);
            atomic_store(&g.watched.phase, own);
            g.files[2].phase = (enum comm_phase)theirs;
            beat(&g, 2);
            assert_false(pass(&g, TIMEOUT_MS - 2000, ALL & ~4U));
            assert_true(pass(&g, 4000, ALL & ~4U));
            assert_found(&g, 2, "has not answered for 20 s");
            close_group(&g);
        }
    }
}

/* It keeps others waiting in their close; one that is slow to end does not. */
TEST(a_process_that_is_stopped_at_its_end_is_lost) {
    struct group g;
    open_group(&g, true);
    open_folder(&g);
    g.files[1].state = g.files[3].state = HEARTBEAT_ENDED;
    beat(&g, 1);
    beat(&g, 3);
    kill((pid_t)g.peers[1].pid, SIGSTOP);
    await_state((pid_t)g.peers[1].pid, PROCESS_STOPPED);
    assert_false(pass(&g, TIMEOUT_MS - 2000, 4U));
    assert_true(pass(&g, 4000, 4U));
    assert_found(&g, 1, "(its process is stopped)");
    close_group(&g);
}

TEST(a_stopped_process_is_named_before_there_are_files) {
    struct group g;
    open_group(&g, true);
    kill((pid_t)g.peers[3].pid, SIGSTOP);
    await_state((pid_t)g.peers[3].pid, PROCESS_STOPPED);
    atomic_store(&g.watched.wait_started_ns, 1);
    assert_true(pass(&g, TIMEOUT_MS + 2000, 0));
    assert_found(&g, 3, "(its process is stopped)");
    close_group(&g);
}

/* A host that was frozen, a job that was suspended and continued. */
TEST(time_without_looks_is_no_silence) {
    struct group g;
    open_group(&g, false);
    open_folder(&g);
    atomic_store(&g.watched.wait_started_ns, 1);
    assert_false(pass(&g, 1000, ALL));
    for (int i = 0; i < 10; i++) {
        g.now_ms += 3600 * 1000;
        assert_false(pass(&g, 200, 0));
    }
    close_group(&g);
}

TEST(the_rank_that_keeps_others_waiting_is_named) {
    struct group g;
    open_group(&g, false);
    open_folder(&g);
    for (int32_t r = 1; r < WORLD; r++) {
        g.files[r].wait_ms = 1;
    }
    g.files[1].step = 5; /* waits: further than rank 3 */
    g.files[3].wait_ms = 0;
    g.files[3].phase = COMM_PHASE_LOAD;
    assert_false(pass(&g, 2 * TIMEOUT_MS, ALL)); /* this rank does not wait */
    atomic_store(&g.watched.wait_started_ns, 1);
    assert_false(pass(&g, TIMEOUT_MS - 1000, ALL));
    atomic_store(&g.watched.wait_started_ns, 2); /* the next collective */
    assert_false(pass(&g, TIMEOUT_MS - 1000, ALL));
    assert_true(pass(&g, 1500, ALL));
    assert_found(&g, 3, "is in load at step 17, and rank 0 has waited for it for 20 s");
    close_group(&g);
}

/* Its disk does not answer: it beats, but it is not saving. */
TEST(a_rank_that_hangs_while_it_saves_is_named_after_the_timeout) {
    struct group g;
    open_group(&g, false);
    open_folder(&g);
    g.files[1].wait_ms = g.files[2].wait_ms = 1;
    g.files[3].phase = COMM_PHASE_SAVE;
    g.files[3].still_ms = TIMEOUT_MS - 1;
    atomic_store(&g.watched.wait_started_ns, 1);
    assert_false(pass(&g, 2 * TIMEOUT_MS, ALL));
    g.files[3].still_ms = TIMEOUT_MS;
    assert_true(pass(&g, 2500, ALL));
    assert_found(&g, 3, "is in save at step 17, and rank 0 has waited for it for 4");
    assert_found(&g, 3, "it does not compute: a disk may not answer");
    close_group(&g);
}

TEST(a_rank_is_still_while_it_neither_waits_nor_computes_nor_reads) {
    struct group g;
    struct heartbeat own = {0};
    char path[PATH_MAX_BYTES];
    struct error err = {0};
    const int64_t ms = 1000000;
    open_group(&g, false);
    open_folder(&g);
    assert_ok(heartbeat_path(path, test_temp_path("ranks"), 0, &err), err);
    for (int what = 0; what < 4; what++) {
        int64_t cpu_ns = 0;
        uint64_t calls = 0;
        atomic_store(&g.watched.wait_started_ns, what == 1 ? 1 : 0);
        for (int i = 0; i <= 300; i++) {
            g.now_ms += 200;
            cpu_ns += (what == 2 ? 12 : 8) * ms; /* of 200 ms: more than a twentieth, or less */
            calls += what == 3 && i % 50 == 49;
            watch_beat(g.w, g.now_ms * ms, cpu_ns, calls);
        }
        assert_true(heartbeat_read(&own, path));
        assert_true(own.still_ms > (what == 0 ? 55000 : -1) &&
                    own.still_ms < (what == 0 ? 61000 : 11000));
        if (what != 3) {
            assert_true(what == 0 || own.still_ms < 1000);
        }
        g.w->cpu_ns = 0;
    }
    g.now_ms += 3600 * 1000; /* the process was stopped */
    watch_beat(g.w, g.now_ms * ms, 0, 0);
    watch_beat(g.w, (g.now_ms + 1000) * ms, 0, 0);
    assert_true(heartbeat_read(&own, path) && own.still_ms < 4000);
    close_group(&g);
}

TEST(waiting_for_a_rank_that_saves_takes_ten_times_as_long) {
    struct group g;
    open_group(&g, false);
    open_folder(&g);
    g.watched.timeout_ms = TIMEOUT_MS / 10;
    g.files[1].wait_ms = g.files[2].wait_ms = 1;
    g.files[3].phase = COMM_PHASE_SAVE;
    atomic_store(&g.watched.wait_started_ns, 1);
    assert_false(pass(&g, TIMEOUT_MS - 2000, ALL));
    assert_true(pass(&g, 4000, ALL));
    assert_found(&g, 3, "is in save at step 17, and rank 0 has waited for it for 20 s");
    close_group(&g);
}

TEST(when_all_wait_the_earliest_is_named) {
    struct group g;
    open_group(&g, false);
    open_folder(&g);
    for (int32_t r = 1; r < WORLD; r++) {
        g.files[r].wait_ms = 1;
    }
    g.files[2].step = 16;
    atomic_store(&g.watched.wait_started_ns, 1);
    assert_true(pass(&g, TIMEOUT_MS + 1000, ALL));
    assert_found(&g, 2, "is in backward at step 16, and");
    close_group(&g);
}

TEST(a_wait_ends_also_where_no_rank_can_be_named) {
    static const char *const texts[] = {"at step 17, in loss: none of them is known to be lost",
                                        "at step 17, in loss: all that are known wait too, so look "
                                        "at the network between the hosts, such as here and far"};
    for (int files = 0; files < 2; files++) {
        struct group g;
        open_group(&g, false);
        if (files == 1) {
            open_folder(&g);
            for (int32_t r = 1; r < WORLD; r++) {
                g.files[r].phase = COMM_PHASE_LOSS;
                g.files[r].wait_ms = 1;
            }
        }
        atomic_store(&g.watched.wait_started_ns, 1);
        assert_false(pass(&g, TIMEOUT_MS - 1000, files == 1 ? ALL : 0));
        assert_true(pass(&g, 2000, files == 1 ? ALL : 0));
        assert_found(&g, -1, "not all ranks have answered for 20 s, ");
        assert_found(&g, -1, texts[files]);
        close_group(&g);
    }
}

TEST(files_of_other_launches_and_damaged_files_are_ignored) {
    struct group g;
    open_group(&g, false);
    open_folder(&g);
    struct heartbeat other = g.files[1];
    g.files[1].pid++;
    g.files[1].state = HEARTBEAT_FAILED;
    beat(&g, 1);
    g.files[2].start_ticks++;
    g.files[2].state = HEARTBEAT_FAILED;
    beat(&g, 2);
    test_write_file(test_temp_path("ranks/3.json"), "{}", 2);
    assert_false(pass(&g, TIMEOUT_MS - 1000, 0));
    g.files[1] = other;
    assert_true(pass(&g, 2000, 0));
    assert_found(&g, 1, "has not answered for 20 s");
    close_group(&g);
}

TEST(files_of_an_earlier_launch_are_removed) {
    struct error err = {0};
    struct stat s;
    assert_ok(watch_prepare(test_temp_dir(), &err), err);
    test_write_file(test_temp_path("ranks/7.json"), "x", 1);
    test_write_file(test_temp_path("ranks/0.json.tmp"), "x", 1);
    test_write_file(test_temp_path("ranks/0.json.0123abcd.tmp"), "x", 1);
    test_write_file(test_temp_path("ranks/notes.json"), "x", 1);
    assert_ok(watch_prepare(test_temp_dir(), &err), err);
    assert_int_not_equal(stat(test_temp_path("ranks/7.json"), &s), 0);
    assert_int_not_equal(stat(test_temp_path("ranks/0.json.tmp"), &s), 0);
    assert_int_not_equal(stat(test_temp_path("ranks/0.json.0123abcd.tmp"), &s), 0);
    assert_int_equal(stat(test_temp_path("ranks/notes.json"), &s), 0);
}

/*
 * ---- the thread: a process that watches this one's files, and ends ----
 *
 * What must not be waited for would last longer than the test's own limit: no case depends on how
 * busy the machine is.
 */

enum { FOREVER_MS = 24 * 3600 * 1000 };

static void write_log(void *cookie, enum log_level level, const char *text) {
    const int fd = *(const int *)cookie;
    (void)level;
    (void)!write(fd, text, strlen(text));
    (void)!write(fd, "\n", 1);
}

static void abort_nobody(struct comm_watched *w, int exit_code) {
    log_write(w->log, LOG_LEVEL_INFO, "abort with %d", exit_code);
}

static sem_t abort_began;

static void abort_hangs(struct comm_watched *w, int exit_code) {
    abort_nobody(w, exit_code);
    (void)sem_post(&abort_began);
    for (;;) {
        pause();
    }
}

/* For a fuse that may burn down before the abort begins. */
static void leave_during_abort(int exit_code) {
    (void)sem_wait(&abort_began);
    _exit(exit_code);
}

enum deed { LOSE_RANK, FAIL, END };

struct run {
    enum deed deed; /* of rank 0, a process of its own */
    void (*abort_group)(struct comm_watched *, int);
    void (*leave)(int); /* NULL: _exit */
    int64_t answer_ms, fuse_ms;
    bool silent; /* rank 1, after its first beat */
    int exit_code;
    char log[2048];
};

static void be_rank_0(struct group *g, const struct run *run, int log_to) {
    const struct log_sink sink = {write_log, &log_to, LOG_LEVEL_INFO};
    const struct watch_times times = {.look_ms = 2,
                                      .beat_ms = 4,
                                      .answer_ms = run->answer_ms,
                                      .fuse_ms = run->fuse_ms,
                                      .leave = run->leave != NULL ? run->leave : _exit};
    struct error err = {0};
    struct watch *w = NULL;
    g->watched.log = &sink;
    g->watched.abort_group = run->abort_group;
    g->peers[0].pid = getpid();
    (void)process_look(getpid(), &g->peers[0].start_ticks);
    if (watch_open(&w, &g->watched, &times, &err) != STATUS_OK ||
        watch_folder(w, test_temp_dir(), &err) != STATUS_OK ||
        watch_sees_all(w, &err) != STATUS_OK) {
        write_log(&log_to, LOG_LEVEL_ERROR, err.text);
        _exit(1);
    }
    if (run->deed == FAIL) {
        const struct error why = {STATUS_IO, "the disk is full"};
        watch_fail(w, &why, 74);
    } else if (run->deed == END) {
        watch_end(w);
        watch_close(w);
        _exit(0);
    }
    for (;;) {
        pause();
    }
}

struct rank_1 {
    struct group *g;
    char own[PATH_MAX_BYTES], other[PATH_MAX_BYTES];
    bool silent;
    _Atomic bool stop;
};

/* Rank 1, in this process: beats with its file as it is, and answers when rank 0 has failed. */
static void *beat_on(void *cookie) {
    struct rank_1 *r = cookie;
    struct heartbeat *own = &r->g->files[1];
    struct heartbeat other;
    while (!atomic_load(&r->stop)) {
        if (heartbeat_read(&other, r->other) && other.state == HEARTBEAT_FAILED) {
            own->state = HEARTBEAT_LOST_PEER;
            own->lost = 0;
        }
        if (!r->silent) {
            own->beat++;
            (void)heartbeat_write(r->own, own, NULL);
        }
        usleep(2000);
    }
    return NULL;
}

static void run_two_ranks(struct group *g, struct run *run) {
    struct error err = {0};
    struct rank_1 other = {.g = g, .silent = run->silent};
    int ends[2];
    pthread_t thread;
    g->watched.world = 2;
    g->files[1].world = 2;
    assert_ok(watch_prepare(test_temp_dir(), &err), err);
    assert_ok(heartbeat_path(other.own, test_temp_path("ranks"), 1, &err), err);
    assert_ok(heartbeat_path(other.other, test_temp_path("ranks"), 0, &err), err);
    beat(g, 1);
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        be_rank_0(g, run, ends[1]);
    }
    close(ends[1]);
    assert_int_equal(pthread_create(&thread, NULL, beat_on, &other), 0);
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n < sizeof run->log - 1; n += (size_t)got) {
        got = read(ends[0], run->log + n, sizeof run->log - 1 - n);
        got = got > 0 ? got : 0;
    }
    run->log[n] = '\0';
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    atomic_store(&other.stop, true);
    pthread_join(thread, NULL);
    assert_true(WIFEXITED(status));
    run->exit_code = WEXITSTATUS(status);
}

static void assert_left(const char *text) {
    size_t n = 0;
    char *got = (char *)test_read_file(test_temp_path("ranks/0.json"), &n);
    if (strstr(got, text) == NULL) {
        fail_msg("no %s in %s", text, got);
    }
    free(got);
}

TEST(a_process_that_lost_a_rank_names_it_aborts_and_leaves) {
    struct group g;
    /* waits for no answer of the one that is lost */
    struct run run = {.abort_group = abort_nobody, .answer_ms = FOREVER_MS};
    describe_group(&g, false);
    g.watched.timeout_ms = 300;
    run.silent = true;
    run_two_ranks(&g, &run);
    assert_string_equal(run.log,
                        "rank 0 ends: rank 1 (host far, pid 101) has not answered for 0 s, "
                        "last seen at step 17, in backward\nabort with 75\n");
    assert_int_equal(run.exit_code, WATCH_EXIT_CODE);
    assert_left("\"state\":\"lost-peer\",\"lost\":1,\"reason\":\"rank 1 (host far");
}

/* Whose exit code is then that of the job. */
TEST(a_rank_that_failed_may_end_the_group_itself) {
    struct group g;
    struct run run = {.abort_group = abort_nobody, .answer_ms = 300, .fuse_ms = FOREVER_MS};
    describe_group(&g, false);
    g.files[1].state = HEARTBEAT_FAILED;
    (void)snprintf(g.files[1].reason, sizeof g.files[1].reason, "bad row");
    const int64_t start_ns = clock_now_ns();
    run_two_ranks(&g, &run);
    assert_true(clock_now_ns() - start_ns >= 300 * (int64_t)1000000);
    assert_string_equal(run.log, "rank 0 ends: rank 1 (host far, pid 101) failed at step 17, in "
                                 "backward: bad row\nabort with 75\n");
    assert_left("\"state\":\"lost-peer\",\"lost\":1");
}

TEST(a_process_leaves_also_when_the_abort_hangs) {
    struct group g;
    struct run run = {.abort_group = abort_hangs, .leave = leave_during_abort};
    describe_group(&g, false);
    assert_int_equal(sem_init(&abort_began, 0, 0), 0);
    g.files[1].state = HEARTBEAT_FAILED;
    run_two_ranks(&g, &run);
    assert_non_null(strstr(run.log, "abort with 75\n"));
    assert_int_equal(run.exit_code, WATCH_EXIT_CODE);
}

TEST(a_rank_that_fails_leaves_when_the_others_have_answered) {
    struct group g;
    struct run run = {.deed = FAIL, .abort_group = abort_nobody, .answer_ms = FOREVER_MS};
    describe_group(&g, false);
    run_two_ranks(&g, &run);
    assert_string_equal(run.log, "abort with 74\n");
    assert_int_equal(run.exit_code, 74);
    assert_left("\"state\":\"failed\",\"lost\":-1,\"reason\":\"the disk is full\"");
}

TEST(a_rank_that_is_taken_for_lost_ends_too) {
    struct group g;
    struct run run = {.abort_group = abort_nobody, .answer_ms = FOREVER_MS};
    describe_group(&g, false);
    g.files[1].state = HEARTBEAT_LOST_PEER;
    g.files[1].lost = 0;
    (void)snprintf(g.files[1].reason, sizeof g.files[1].reason, "rank 0 is silent");
    run_two_ranks(&g, &run);
    assert_string_equal(run.log, "rank 0 ends: it was declared lost: rank 0 is silent (found by "
                                 "rank 1)\nabort with 75\n");
    assert_int_equal(run.exit_code, WATCH_EXIT_CODE);
}

TEST(after_success_the_file_says_ended) {
    struct group g;
    struct run run = {.deed = END, .abort_group = abort_nobody, .answer_ms = FOREVER_MS};
    describe_group(&g, false);
    run_two_ranks(&g, &run);
    assert_string_equal(run.log, "");
    assert_int_equal(run.exit_code, 0);
    assert_left("\"state\":\"ended\"");
}

TEST(without_a_folder_nothing_is_written_at_the_end) {
    struct group g;
    struct error err = {0};
    struct stat s;
    const struct watch_times times = {.look_ms = 2, .beat_ms = 4, .leave = _exit};
    describe_group(&g, false);
    assert_int_equal(chdir(test_temp_dir()), 0);
    assert_ok(watch_open(&g.w, &g.watched, &times, &err), err);
    watch_end(g.w);
    watch_close(g.w);
    assert_int_not_equal(stat(".tmp", &s), 0);
}
