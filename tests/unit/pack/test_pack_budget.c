/*
 * The budget's rule: what exceeds a share waits, the first row and a lone image do not, images
 * are admitted in order, and a run that ends wakes everybody.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pack/run/budget_internal.h"
#include "tests/support/test.h"

enum { MIB = 1 << 20 };

/* One request on a thread of its own. */
struct request {
    struct pack_budget *budget;
    uint64_t row, bytes; /* row 0: of work */
    pthread_t thread;
    atomic_long tid;  /* of the thread; 0: not started yet. Alone, so any order will do */
    unsigned *served; /* guarded by `mutex` */
    unsigned place;   /* in the order in which requests were served, from 1; 0: not yet */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *ask(void *cookie) {
    struct request *r = cookie;
    atomic_store(&r->tid, syscall(SYS_gettid));
    if (r->row > 0) {
        pack_budget_wait_row(r->budget, r->row, r->bytes);
    } else {
        pack_budget_take_work(r->budget, r->bytes);
    }
    pthread_mutex_lock(&mutex);
    r->place = ++*r->served;
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static unsigned place_of(const struct request *r) {
    pthread_mutex_lock(&mutex);
    unsigned place = r->place;
    pthread_mutex_unlock(&mutex);
    return place;
}

/* Whether the thread sleeps, which it does only while its request waits. */
static bool sleeps(const struct request *r) {
    char path[64], line[256] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%ld/stat", atomic_load(&r->tid));
    FILE *f = fopen(path, "r");
    if (f) {
        assert_non_null(fgets(line, sizeof(line), f));
        fclose(f);
    }
    const char *state = strstr(line, ") ");
    return state && state[2] == 'S';
}

/* Starts a request that must wait, and returns when it does. */
static void start(struct request *r) {
    assert_int_equal(pthread_create(&r->thread, NULL, ask, r), 0);
    while (!sleeps(r)) { /* a hang ends with the test's timeout */
        assert_int_equal(place_of(r), 0);
        sched_yield();
    }
}

static void expect_served(struct request *r, unsigned place) {
    pthread_join(r->thread, NULL);
    assert_int_equal(place_of(r), place);
}

TEST(a_row_beyond_the_limit_waits_until_rows_are_committed) {
    struct pack_budget b;
    unsigned served = 0;
    pack_budget_init(&b, 1); /* 12 MiB */
    assert_true(pack_budget_try_row(&b, 0, 5 * MIB));
    assert_true(pack_budget_try_row(&b, 1, 5 * MIB));
    assert_false(pack_budget_try_row(&b, 2, 3 * MIB));
    assert_true(pack_budget_try_row(&b, 3, 2 * MIB)); /* smaller, and fits */
    struct request r = {.budget = &b, .row = 4, .bytes = 5 * MIB, .served = &served};
    start(&r);
    assert_int_equal(place_of(&r), 0);
    pack_budget_give_rows(&b, 1, 5 * MIB);
    expect_served(&r, 1);
    assert_false(pack_budget_try_row(&b, 5, 1));
    pack_budget_fini(&b);
}

TEST(the_first_uncommitted_row_never_waits) {
    struct pack_budget b;
    unsigned served = 0;
    pack_budget_init(&b, 2);
    assert_true(pack_budget_try_row(&b, 0, 64 * MIB)); /* alone beyond the limit */
    assert_false(pack_budget_try_row(&b, 1, 1));
    struct request r = {.budget = &b, .row = 1, .bytes = 64 * MIB, .served = &served};
    start(&r);
    assert_int_equal(place_of(&r), 0);
    pack_budget_give_rows(&b, 1, 64 * MIB);
    expect_served(&r, 1);
    assert_true(pack_budget_try_row(&b, 1, 64 * MIB)); /* once more, it is still the first */
    pack_budget_fini(&b);
}

TEST(images_are_admitted_in_the_order_of_their_requests) {
    struct pack_budget b;
    unsigned served = 0;
    pack_budget_init(&b, 1); /* 128 MiB */
    pack_budget_take_work(&b, 100 * MIB);
    struct request large = {.budget = &b, .bytes = 60 * MIB, .served = &served};
    struct request small = {.budget = &b, .bytes = 2 * MIB, .served = &served};
    start(&large);
    start(&small);
    assert_int_equal(place_of(&large), 0);
    assert_int_equal(place_of(&small), 0); /* would fit, but does not overtake */
    pack_budget_give_work(&b, 100 * MIB);
    pthread_join(large.thread, NULL);
    pthread_join(small.thread, NULL);
    assert_int_equal(served, 2);
    pack_budget_fini(&b);
}

TEST(a_single_image_is_always_admitted) {
    struct pack_budget b;
    pack_budget_init(&b, 1);
    pack_budget_take_work(&b, (uint64_t)PACK_WORK_BYTES * 2);
    pack_budget_give_work(&b, (uint64_t)PACK_WORK_BYTES * 2);
    pack_budget_fini(&b);
}

TEST(the_end_of_a_run_admits_all_rows) {
    struct pack_budget b;
    unsigned served = 0;
    pack_budget_init(&b, 1);
    assert_true(pack_budget_try_row(&b, 0, 12 * MIB));
    struct request r = {.budget = &b, .row = 1, .bytes = 1, .served = &served};
    start(&r);
    assert_int_equal(place_of(&r), 0);
    pack_budget_stop(&b);
    expect_served(&r, 1);
    pack_budget_fini(&b);
}
