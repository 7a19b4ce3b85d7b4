/* Collectives over the threads of one process, and what a launcher's environment shows. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "kernels/ops.h"
#include "tests/support/comm_checks.h"
#include "tests/support/comm_threads.h"
#include "tests/support/test.h"
#include "train/comm/comm.h"
#include "train/comm/comm_device.h"
#include "train/comm/comm_internal.h"

static void run_worlds(int32_t largest, comm_threads_body *body) {
    for (int32_t world = 1; world <= largest; world++) {
        struct error err = {0};
        assert_ok(comm_threads_run(world, body, NULL, &err), err);
    }
}

TEST(ranks_and_hosts_are_known) {
    run_worlds(5, comm_check_ranks);
}

TEST(gather_is_in_order_of_ranks) {
    run_worlds(5, comm_check_gather);
}

TEST(broadcast_reaches_all_from_every_root) {
    run_worlds(5, comm_check_broadcast);
}

TEST(merge_keeps_all_bits) {
    run_worlds(5, comm_check_merge);
}

TEST(agree_names_the_first_failed_rank) {
    run_worlds(5, comm_check_agree);
}

TEST(sums_have_the_bits_of_the_tree) {
    run_worlds(9, comm_check_sum);
}

TEST(sums_in_flight_keep_their_order) {
    run_worlds(5, comm_check_sums_in_flight);
}

TEST(counters_are_those_of_the_formula) {
    run_worlds(9, comm_check_counters);
}

/* The owner computes while sums progress: they complete without a call of its. */
struct slow_owner {
    pthread_barrier_t all_begun, all_arrived;
};

static enum status sum_without_owner(struct comm *c, void *cookie, struct error *err) {
    struct slow_owner *o = cookie;
    float x[3] = {1, 2, 3};
    TRY(comm_begin_sum(c, x, 3, err));
    (void)pthread_barrier_wait(&o->all_begun);
    struct comm_counters counters;
    do { /* 2 messages of each of two ranks */
        counters = comm_counters(c);
    } while (counters.messages_count < 3);
    (void)pthread_barrier_wait(&o->all_arrived);
    TRY(comm_finish(c, err));
    RANK_CHECK(x[0] == 2 && x[1] == 4 && x[2] == 6);
    return STATUS_OK;
}

TEST(sums_progress_while_the_owner_computes) {
    struct slow_owner o;
    struct error err = {0};
    assert_int_equal(pthread_barrier_init(&o.all_begun, NULL, 2), 0);
    assert_int_equal(pthread_barrier_init(&o.all_arrived, NULL, 2), 0);
    assert_ok(comm_threads_run(2, sum_without_owner, &o, &err), err);
    (void)pthread_barrier_destroy(&o.all_begun);
    (void)pthread_barrier_destroy(&o.all_arrived);
}

static enum status fail_rank_one(struct comm *c, void *cookie, struct error *err) {
    (void)cookie;
    if (comm_rank(c) == 1) {
        return error_set(err, STATUS_CORRUPT, "the reason");
    }
    return comm_barrier(c, err);
}

static enum status call_other_collectives(struct comm *c, void *cookie, struct error *err) {
    (void)cookie;
    uint32_t words[4] = {0};
    return comm_merge(c, words, 1 + comm_rank(c), err);
}

TEST(a_group_of_threads_reports_a_failed_rank) {
    struct error err = {0};
    assert_status(comm_threads_run(3, fail_rank_one, NULL, &err), STATUS_CORRUPT, err);
    assert_string_equal(err.text, "rank 1: the reason");
    assert_status(comm_threads_run(2, call_other_collectives, NULL, &err), STATUS_IO, err);
    assert_non_null(strstr(err.text, "different collectives"));
}

/* A link whose gathers complete or never do, and whose broadcasts fail. */
struct dead_link {
    struct comm_link link;
    int32_t begun_count, closed_count;
    bool completes;
};

static enum status
begin_dead_gather(struct comm_link *l, void *all, size_t own_bytes, struct error *err) {
    (void)all;
    (void)own_bytes;
    (void)err;
    ((struct dead_link *)l)->begun_count++;
    return STATUS_OK;
}

static enum status begin_dead_broadcast(struct comm_link *l,
                                        void *data,
                                        size_t size_bytes,
                                        int32_t root,
                                        struct error *err) {
    (void)data;
    (void)root;
    ((struct dead_link *)l)->begun_count++;
    return error_set(err, STATUS_IO, "no broadcast of %zu bytes", size_bytes);
}

static enum status poll_dead(struct comm_link *l, struct error *err) {
    (void)err;
    return ((struct dead_link *)l)->completes ? STATUS_OK : STATUS_AGAIN;
}

static bool close_dead(struct comm_link *l, bool complete) {
    assert_false(complete);
    ((struct dead_link *)l)->closed_count++;
    return true;
}

static struct dead_link dead_link(bool completes) {
    return (struct dead_link){.link = {.rank = 1,
                                       .world = 2,
                                       .piece_bytes = 4096,
                                       .begin_gather = begin_dead_gather,
                                       .begin_broadcast = begin_dead_broadcast,
                                       .poll = poll_dead,
                                       .close = close_dead},
                              .completes = completes};
}

TEST(opening_ends_if_another_rank_does_not_answer) {
    struct dead_link dead = dead_link(false);
    struct comm *c;
    struct comm_options opt;
    struct error err = {0};
    comm_options_default(&opt);
    opt.timeout_ms = 50;
    assert_status(comm_create(&c, &dead.link, &opt, &err), STATUS_TIMEOUT, err);
    assert_null(c);
    assert_int_equal(dead.begun_count, 1);
    assert_int_equal(dead.closed_count, 1);
}

TEST(nothing_is_carried_after_a_failure) {
    struct dead_link dead = dead_link(true);
    struct comm *c;
    struct comm_options opt;
    struct error err = {0};
    uint32_t words[5] = {0};
    float x = 1;
    comm_options_default(&opt);
    assert_ok(comm_create(&c, &dead.link, &opt, &err), err);
    assert_status(comm_broadcast(c, words, 20, 0, &err), STATUS_IO, err);
    assert_string_equal(err.text, "no broadcast of 20 bytes");
    err.text[0] = '\0';
    assert_ok(comm_begin_sum(c, &x, 1, &err), err);
    assert_status(comm_gather(c, words, &words[1], 4, &err), STATUS_IO, err);
    assert_status(comm_agree(c, STATUS_OK, &err), STATUS_IO, err);
    assert_status(comm_finish(c, &err), STATUS_IO, err);
    assert_string_equal(err.text, "no broadcast of 20 bytes");
    assert_int_equal(dead.begun_count, 2);
    comm_close(c);
    assert_int_equal(dead.closed_count, 1);
}

/* A link whose merges complete PIECE_MS after they were begun. */
enum { PIECE_MS = 200 };
struct slow_link {
    struct comm_link link;
    int64_t ready_ns;
};

static enum status
begin_no_gather(struct comm_link *l, void *all, size_t own_bytes, struct error *err) {
    (void)l;
    (void)all;
    (void)own_bytes;
    (void)err;
    return STATUS_OK;
}

static enum status
begin_slow_merge(struct comm_link *l, uint32_t *words, size_t count, struct error *err) {
    (void)words;
    (void)count;
    (void)err;
    ((struct slow_link *)l)->ready_ns = clock_now_ns() + PIECE_MS * (int64_t)1000000;
    return STATUS_OK;
}

static enum status poll_slow(struct comm_link *l, struct error *err) {
    (void)err;
    return clock_now_ns() >= ((struct slow_link *)l)->ready_ns ? STATUS_OK : STATUS_AGAIN;
}

static void abort_slow(struct comm_link *l, int exit_code) {
    (void)l;
    fprintf(stderr, "taken for lost, exit code %d\n", exit_code);
}

static bool close_slow(struct comm_link *l, bool complete) {
    (void)l;
    (void)complete;
    return true;
}

/* Otherwise the watching thread would end this process. */
TEST(a_long_exchange_whose_messages_arrive_is_no_loss) {
    struct slow_link slow = {.link = {.world = 2,
                                      .piece_bytes = 4096,
                                      .begin_gather = begin_no_gather,
                                      .begin_merge = begin_slow_merge,
                                      .poll = poll_slow,
                                      .abort_group = abort_slow,
                                      .close = close_slow}};
    struct comm *c;
    struct comm_options opt;
    struct error err = {0};
    static uint32_t words[7 * 1024];
    comm_options_default(&opt);
    opt.timeout_ms = 1000;
    assert_ok(comm_create(&c, &slow.link, &opt, &err), err);
    assert_ok(comm_merge(c, words, sizeof words / sizeof words[0], &err), err);
    comm_close(c);
}

static enum status use_device(struct comm *c, void *cookie, struct error *err) {
    (void)cookie;
    struct device *dev;
    float x[2] = {(float)comm_rank(c), 1};
    float all[3] = {0};
    all[comm_rank(c)] = x[0];
    TRY(device_open(&dev, "cpu-ref", 1, err));
    enum status s = comm_device_open(c, dev, err);
    if (s == STATUS_OK) {
        s = comm_device_begin_sum(c, dev, x, 2, err);
    }
    if (s == STATUS_OK) {
        s = comm_device_gather(c, dev, all, &all[comm_rank(c)], sizeof all[0], err);
    }
    if (s == STATUS_OK) {
        s = comm_device_finish(c, dev, err);
    }
    device_close(dev);
    TRY(s);
    RANK_CHECK(x[0] == 3 && x[1] == 3 && all[0] == 0 && all[1] == 1 && all[2] == 2);
    return STATUS_OK;
}

TEST(a_device_of_host_memory_has_the_same_collectives) {
    struct error err = {0};
    assert_ok(comm_threads_run(3, use_device, NULL, &err), err);
}

TEST(local_ranks_are_those_of_one_host_and_boot) {
    static const struct comm_peer peers[] = {
        {.host = "a", .boot_id = "1"}, {.host = "b", .boot_id = "2"},
        {.host = "a", .boot_id = "1"}, {.host = "a", .boot_id = "3"},
        {.host = "b", .boot_id = "2"}, {.host = "a", .boot_id = "1"}};
    static const int32_t expected[][2] = {{0, 3}, {0, 2}, {1, 3}, {0, 1}, {1, 2}, {2, 3}};
    for (int32_t r = 0; r < 6; r++) {
        int32_t rank, world;
        comm_find_local(&rank, &world, peers, 6, r);
        assert_int_equal(rank, expected[r][0]);
        assert_int_equal(world, expected[r][1]);
    }
}

static void clear_launchers(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "PMIX_RANK",
                                        "SLURM_PROCID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_NTASKS",
                                        "SLURM_TASK_PID",
                                        "PMIX_NAMESPACE",
                                        "PMI_FD",
                                        "PMI_PORT",
                                        "PMI_CONTROL_PORT",
                                        "OMPI_MCA_orte_hnp_uri",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "MASTER_ADDR"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(unsetenv(names[i]), 0);
    }
}

static void expect_launched(const char *launcher, int32_t rank, int32_t world) {
    int32_t r, w;
    const char *name;
    comm_launched(&r, &w, &name);
    assert_int_equal(r, rank);
    assert_int_equal(w, world);
    if (launcher == NULL) {
        assert_null(name);
    } else {
        assert_string_equal(name, launcher);
    }
}

TEST(launchers_are_recognised) {
    clear_launchers();
    expect_launched(NULL, 0, 1);
    (void)setenv("SLURM_NTASKS", "4", 1); /* of a batch script: one process */
    (void)setenv("SLURM_PROCID", "0", 1);
    expect_launched(NULL, 0, 1);
    (void)setenv("SLURM_PROCID", "3", 1);
    (void)setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    expect_launched(NULL, 0, 1); /* of an enclosing job */
    char pid[32];
    (void)snprintf(pid, sizeof pid, "%ld", (long)getppid());
    (void)setenv("SLURM_TASK_PID", pid, 1);
    expect_launched("srun", 3, 4);
    (void)setenv("SLURM_STEP_NUM_TASKS", "3", 1); /* no rank 3 of 3 */
    expect_launched(NULL, 0, 1);
    (void)setenv("PMIX_RANK", "2", 1);
    expect_launched(NULL, 0, 1);
    (void)setenv("PMIX_NAMESPACE", "7", 1);
    expect_launched("PMIx", 2, 0);
    (void)setenv("PMI_RANK", "1", 1);
    (void)setenv("PMI_SIZE", "2", 1);
    (void)setenv("PMI_FD", "900", 1); /* not open */
    expect_launched("PMIx", 2, 0);
    (void)setenv("PMI_FD", "0", 1);
    expect_launched("mpiexec", 1, 2);
    (void)unsetenv("PMI_FD");
    (void)setenv("PMI_PORT", "host:4711", 1);
    expect_launched("mpiexec", 1, 2);
    (void)setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    (void)setenv("OMPI_COMM_WORLD_SIZE", "8", 1); /* mpirun within srun */
    expect_launched("mpirun", 0, 8);
    (void)setenv("OMPI_COMM_WORLD_SIZE", "8x", 1);
    expect_launched("mpiexec", 1, 2);
    clear_launchers();
    (void)setenv("RANK", "3", 1);
    (void)setenv("WORLD_SIZE", "4", 1);
    expect_launched(NULL, 0, 1); /* of an enclosing job */
    (void)setenv("MASTER_ADDR", "127.0.0.1", 1);
    expect_launched("torchrun", 3, 4);
    (void)setenv("SLURM_PROCID", "0", 1); /* torchrun within srun */
    (void)setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    (void)setenv("SLURM_TASK_PID", pid, 1);
    expect_launched("torchrun", 3, 4);
    (void)setenv("OMPI_COMM_WORLD_RANK", "1", 1); /* mpirun in a pod that has RANK */
    (void)setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
    (void)setenv("PMIX_NAMESPACE", "7", 1);
    expect_launched("mpirun", 1, 8);
    clear_launchers();
}

TEST(one_rank_needs_no_launcher) {
    struct comm *c;
    struct comm_options opt;
    struct error err = {0};
    clear_launchers();
    comm_options_default(&opt);
    assert_ok(comm_open(&c, &opt, &err), err);
    assert_int_equal(comm_world(c), 1);
    assert_int_equal(comm_local_world(c), 1);
    comm_close(c);
    opt.ranks = COMM_RANKS_OFF;
    assert_ok(comm_open(&c, &opt, &err), err);
    comm_fail(c, &err, 74); /* of one rank: only frees */
    comm_close(NULL);
    (void)setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    (void)setenv("PMIX_NAMESPACE", "7", 1);
    (void)setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    assert_status(comm_open(&c, &opt, &err), STATUS_USAGE, err);
    assert_non_null(strstr(err.text, "mpirun started 4 processes"));
    assert_null(c);
    assert_int_equal(setenv("CCSTREAM_MPI_MODULE", "/nowhere/libccstream_mpi.so", 1), 0);
    opt.ranks = COMM_RANKS_AUTO;
    assert_status(comm_open(&c, &opt, &err), STATUS_UNSUPPORTED, err);
    assert_non_null(strstr(err.text, "/nowhere/libccstream_mpi.so"));
    clear_launchers();
}

TEST(a_module_of_another_build_is_refused) {
    const char *folder = getenv("TESTBIN");
    if (folder == NULL) {
        test_skip("TESTBIN is not set; run by ctest");
    }
    char path[512];
    struct comm *c;
    struct comm_options opt;
    struct error err = {0};
    (void)snprintf(path, sizeof path, "%s/module_of_another_build.so", folder);
    assert_int_equal(setenv("CCSTREAM_MPI_MODULE", path, 1), 0);
    comm_options_default(&opt);
    opt.transport = COMM_TRANSPORT_MPI;
    assert_status(comm_open(&c, &opt, &err), STATUS_UNSUPPORTED, err);
    assert_null(c);
    assert_non_null(strstr(err.text, "another build"));
    assert_non_null(strstr(err.text, "0.0.1-other"));
}
