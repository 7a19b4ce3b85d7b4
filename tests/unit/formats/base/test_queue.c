/* The bounded queue: order, limits, time-outs, closing, and many threads at once. */
#include "formats/base/queue.h"

#include <pthread.h>
#include <stdatomic.h>

#include "formats/base/clock.h"
#include "tests/support/test.h"

static int items[8];

TEST(first_in_first_out) {
    struct error err = {0};
    struct queue *q = NULL;
    void *got = NULL;
    assert_ok(queue_create(&q, 3, &err), err);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 3; i++) {
            assert_int_equal(queue_push(q, &items[i], 0), STATUS_OK);
        }
        assert_int_equal(queue_depth(q), 3);
        assert_int_equal(queue_push(q, &items[3], 0), STATUS_AGAIN);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(queue_pop(q, &got, 0), STATUS_OK);
            assert_ptr_equal(got, &items[i]);
        }
        assert_int_equal(queue_pop(q, &got, 0), STATUS_AGAIN);
        assert_null(got);
    }
    queue_destroy(q);
    queue_destroy(NULL);
}

TEST(capacity_has_limits) {
    struct error err = {0};
    struct queue *q = NULL;
    assert_status(queue_create(&q, 0, &err), STATUS_INVALID, err);
    assert_status(queue_create(&q, QUEUE_MAX_CAPACITY + 1, &err), STATUS_INVALID, err);
    assert_null(q);
    assert_ok(queue_create(&q, QUEUE_MAX_CAPACITY, &err), err);
    queue_destroy(q);
}

TEST(waits_end_in_time) {
    struct error err = {0};
    struct queue *q = NULL;
    void *got = NULL;
    assert_ok(queue_create(&q, 1, &err), err);
    int64_t start = clock_now_ns();
    assert_int_equal(queue_pop(q, &got, 30), STATUS_AGAIN);
    assert_true(clock_now_ns() - start >= 29000000);
    assert_int_equal(queue_push(q, &items[0], 0), STATUS_OK);
    start = clock_now_ns();
    assert_int_equal(queue_push(q, &items[1], 30), STATUS_AGAIN);
    assert_true(clock_now_ns() - start >= 29000000);
    queue_destroy(q);
}

TEST(closed_queues_drain) {
    struct error err = {0};
    struct queue *q = NULL;
    void *got = NULL;
    assert_ok(queue_create(&q, 4, &err), err);
    assert_int_equal(queue_push(q, &items[0], 0), STATUS_OK);
    assert_int_equal(queue_push(q, &items[1], 0), STATUS_OK);
    queue_close(q);
    queue_close(q);
    assert_int_equal(queue_push(q, &items[2], -1), STATUS_END);
    assert_int_equal(queue_pop(q, &got, -1), STATUS_OK);
    assert_ptr_equal(got, &items[0]);
    assert_int_equal(queue_pop(q, &got, -1), STATUS_OK);
    assert_int_equal(queue_pop(q, &got, -1), STATUS_END);
    assert_null(got);
    queue_destroy(q);
}

enum { PRODUCERS = 4, CONSUMERS = 3, EACH = 5000 };

struct traffic {
    struct queue *q;
    atomic_uint next;      /* relaxed: hands out distinct tokens, orders nothing */
    atomic_ullong sum;     /* relaxed: read after every thread was joined */
    atomic_uint delivered; /* relaxed, as sum */
};

static uint32_t tokens[PRODUCERS * EACH];

static void *produce(void *cookie) {
    struct traffic *t = cookie;
    for (int i = 0; i < EACH; i++) {
        uint32_t n = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
        tokens[n] = n + 1;
        if (queue_push(t->q, &tokens[n], -1) != STATUS_OK) {
            break;
        }
    }
    return NULL;
}

static void *consume(void *cookie) {
    struct traffic *t = cookie;
    for (;;) {
        void *got = NULL;
        enum status s = queue_pop(t->q, &got, 50);
        if (s == STATUS_END) {
            return NULL;
        }
        if (s == STATUS_OK) {
            atomic_fetch_add_explicit(&t->sum, *(uint32_t *)got, memory_order_relaxed);
            atomic_fetch_add_explicit(&t->delivered, 1, memory_order_relaxed);
        }
    }
}

TEST(many_threads_lose_and_double_nothing) {
    struct error err = {0};
    static struct traffic t;
    pthread_t producers[PRODUCERS], consumers[CONSUMERS];
    assert_ok(queue_create(&t.q, 16, &err), err);
    for (int i = 0; i < CONSUMERS; i++) {
        assert_int_equal(pthread_create(&consumers[i], NULL, consume, &t), 0);
    }
    for (int i = 0; i < PRODUCERS; i++) {
        assert_int_equal(pthread_create(&producers[i], NULL, produce, &t), 0);
    }
    for (int i = 0; i < PRODUCERS; i++) {
        pthread_join(producers[i], NULL);
    }
    queue_close(t.q);
    for (int i = 0; i < CONSUMERS; i++) {
        pthread_join(consumers[i], NULL);
    }
    uint64_t n = PRODUCERS * EACH;
    assert_int_equal(t.delivered, n);
    assert_true(t.sum == n * (n + 1) / 2);
    queue_destroy(t.q);
}

static void *push_for_ever(void *cookie) {
    struct queue *q = cookie;
    static int item;
    return queue_push(q, &item, -1) == STATUS_END ? cookie : NULL;
}

static void *pop_for_ever(void *cookie) {
    struct queue *q = cookie;
    void *got = NULL;
    return queue_pop(q, &got, -1) == STATUS_END ? cookie : NULL;
}

TEST(closing_wakes_everybody) {
    struct error err = {0};
    struct queue *full = NULL, *empty = NULL;
    pthread_t threads[6];
    assert_ok(queue_create(&full, 1, &err), err);
    assert_ok(queue_create(&empty, 1, &err), err);
    assert_int_equal(queue_push(full, &items[0], 0), STATUS_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, push_for_ever, full), 0);
        assert_int_equal(pthread_create(&threads[3 + i], NULL, pop_for_ever, empty), 0);
    }
    void *got = NULL;
    assert_int_equal(queue_pop(empty, &got, 20), STATUS_AGAIN); /* lets them get to waiting */
    queue_close(full);
    queue_close(empty);
    for (int i = 0; i < 6; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        assert_non_null(result);
    }
    queue_destroy(full);
    queue_destroy(empty);
}
