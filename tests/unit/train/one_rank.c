/*
 * One rank of test_mpi_ranks.sh and test_gloo_ranks.sh:
 *
 *   one_rank check       the checks of tests/support/comm_checks.h
 *   one_rank fail RANK   that rank fails by itself, the others wait for it
 *   one_rank open HOW [SECONDS]
 *                              opens a group with --transport HOW (auto, mpi), waiting for the
 * others for so long, and prints its size one_rank lose RUN RANK HOW runs in RUN until that rank,
 * in its step 5, is killed or stopped by a signal (kill, stop), exits, fails or hangs (exit, fail,
 * hang); or ends (end). stop-save, hang-save: while all save; stop-open: before the files;
 *                              stop-close: while the others close the group; kill-close: so too,
 * when all have done their work
 *
 * Over Gloo they meet in the folder that MEET_IN names.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/comm_checks.h"
#include "train/comm/comm.h"

static const struct {
    const char *name;
    comm_threads_body *body;
} checks[] = {
    {"ranks", comm_check_ranks},
    {"gather", comm_check_gather},
    {"broadcast", comm_check_broadcast},
    {"merge", comm_check_merge},
    {"agree", comm_check_agree},
    {"sum", comm_check_sum},
    {"in flight", comm_check_sums_in_flight},
    {"counters", comm_check_counters},
};

/* More than a piece of 16 MiB, so that sums and gathers are divided: 20 MiB of each rank. */
static enum status check_large(struct comm *c, struct error *err) {
    const int64_t count = (5 << 20) + 3, world = comm_world(c), rank = comm_rank(c);
    float *data = malloc((size_t)(count * world) * sizeof *data);
    if (data == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory");
    }
    for (int64_t i = 0; i < count; i++) {
        data[rank * count + i] = (float)(rank + i % 1000);
    }
    enum status s = comm_gather(c, data, data + rank * count, (size_t)count * sizeof *data, err);
    if (s == STATUS_OK) {
        s = comm_sum(c, data, count, err);
    }
    for (int64_t i = 0; i < count * world && s == STATUS_OK; i++) {
        const int64_t r = i / count, x = i % count % 1000;
        if (data[i] != (float)(r == 0 ? x * world : r + x)) {
            s = error_set(err, STATUS_MISMATCH, "element %lld", (long long)i);
        }
    }
    free(data);
    return s;
}

static void handler(int signal_number) {
    (void)signal_number;
}

static int check(struct comm *c) {
    struct sigaction now;
    struct error err = {0};
    enum status s = STATUS_OK;
    for (size_t i = 0; i < sizeof checks / sizeof checks[0] && s == STATUS_OK; i++) {
        s = comm_agree(c, checks[i].body(c, NULL, &err), &err);
    }
    if (s == STATUS_OK && comm_world(c) == 3) {
        s = comm_agree(c, check_large(c, &err), &err);
    }
    if (s == STATUS_OK && (sigaction(SIGTERM, NULL, &now) != 0 || now.sa_handler != handler ||
                           sigaction(SIGSEGV, NULL, &now) != 0 || now.sa_handler != SIG_DFL)) {
        s = error_set(&err, STATUS_MISMATCH, "MPI or Gloo changed a signal handler");
    }
    if (s == STATUS_OK && (sigaction(SIGPIPE, NULL, &now) != 0 || now.sa_handler != SIG_IGN)) {
        s = error_set(&err, STATUS_MISMATCH, "a connection that another rank closes ends this one");
    }
    if (s != STATUS_OK) {
        (void)fprintf(stderr, "rank %d: %s\n", comm_rank(c), err.text);
        comm_fail(c, &err, 1);
        return 1;
    }
    comm_close(c);
    return 0;
}

static int fail(struct comm *c, int32_t rank) {
    const struct error why = {.status = STATUS_IO, .text = "disk full"};
    struct error err = {0};
    if (comm_rank(c) == rank) {
        comm_fail(c, &why, 74);
    } else {
        (void)comm_barrier(c, &err);
    }
    return 0; /* not reached */
}

static int lose(struct comm *c, const char *run, int32_t rank, const char *how) {
    enum { LAST_STEP = 5 };
    struct error err = {0};
    (void)printf("rank %d is process %d\n", comm_rank(c), (int)getpid());
    (void)fflush(stdout);
    if (comm_rank(c) == rank && strcmp(how, "stop-open") == 0) {
        (void)raise(SIGSTOP);
    }
    if (comm_watch(c, run, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        comm_fail(c, &err, 1);
    }
    const bool dies = strcmp(how, "kill-close") == 0;
    const bool ends = strcmp(how, "end") == 0 || strcmp(how, "stop-close") == 0 || dies;
    const bool saves = strcmp(how, "stop-save") == 0 || strcmp(how, "hang-save") == 0;
    for (uint64_t step = 0; step < LAST_STEP || !ends; step++) {
        comm_at(c, step, saves ? COMM_PHASE_SAVE : COMM_PHASE_LOAD);
        (void)usleep(10000);
        if (comm_rank(c) == rank && step == LAST_STEP) {
            if (strcmp(how, "exit") == 0) {
                exit(0);
            } else if (strcmp(how, "fail") == 0) {
                return fail(c, rank);
            } else if (strncmp(how, "hang", 4) == 0) {
                (void)sleep(1000);
            }
            (void)raise(strcmp(how, "kill") == 0 ? SIGKILL : SIGSTOP);
        }
        comm_at(c, step, saves ? COMM_PHASE_SAVE : COMM_PHASE_LOSS);
        if (comm_barrier(c, &err) != STATUS_OK) {
            comm_fail(c, &err, 1);
        }
    }
    if (comm_rank(c) == rank && strcmp(how, "stop-close") == 0) {
        (void)raise(SIGSTOP);
    }
    if (dies && comm_end(c, &err) != STATUS_OK) {
        comm_fail(c, &err, 1);
    }
    if (dies && comm_rank(c) == rank) {
        (void)raise(SIGKILL);
    }
    comm_close(c);
    return 0;
}

int main(int argc, char **argv) {
    const struct log_sink log = log_stderr("test", LOG_LEVEL_INFO);
    struct comm *c;
    struct comm_options opt;
    struct error err = {0};
    comm_options_default(&opt);
    if (argc < 2) {
        return 64;
    }
    (void)signal(SIGTERM, handler);
    opt.run = getenv("MEET_IN");
    if (strcmp(argv[1], "open") == 0 && argc >= 3) {
        opt.transport = strcmp(argv[2], "mpi") == 0 ? COMM_TRANSPORT_MPI : COMM_TRANSPORT_AUTO;
        opt.timeout_ms = argc == 4 ? 1000 * atoi(argv[3]) : opt.timeout_ms;
        opt.log = &log;
    }
    if (strcmp(argv[1], "lose") == 0) {
        /* Only these two are found by it. On a busy machine a rank may start late and be silent. */
        const bool times_out =
            argc == 5 && (strncmp(argv[4], "stop", 4) == 0 || strncmp(argv[4], "hang", 4) == 0);
        opt.timeout_ms = times_out ? 6000 : 600000;
        opt.log = &log;
    }
    if (comm_open(&c, &opt, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return status_exit_code(err.status);
    }
    if (strcmp(argv[1], "check") == 0) {
        return check(c);
    }
    if (strcmp(argv[1], "fail") == 0 && argc == 3) {
        return fail(c, atoi(argv[2]));
    }
    if (strcmp(argv[1], "lose") == 0 && argc == 5) {
        return lose(c, argv[2], atoi(argv[3]), argv[4]);
    }
    (void)printf("world %d\n", comm_world(c));
    comm_close(c);
    return 0;
}
