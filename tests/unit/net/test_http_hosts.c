#include <stdlib.h>
#include <string.h>

#include "net/http_internal.h"
#include "tests/support/test.h"

#define SECOND INT64_C(1000000000)

static void queue(struct hosts *all, struct transfer *t, const char *host, int64_t now_ns) {
    assert_int_equal(hosts_queue(all, t, host, now_ns), STATUS_OK);
}

TEST(requests_of_a_host_keep_their_order) {
    struct hosts all;
    struct transfer t[3] = {0};
    hosts_init(&all, 1, 0);
    for (int i = 0; i < 3; i++) {
        queue(&all, &t[i], "a", 0);
    }
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(hosts_take(&all, 0), &t[i]);
        assert_null(hosts_take(&all, 0)); /* one at a time */
        hosts_leave(&all, &t[i], 0);
    }
    assert_int_equal(all.host_count, 0);
    hosts_fini(&all);
}

TEST(hosts_take_turns) {
    struct hosts all;
    struct transfer t[4] = {0};
    hosts_init(&all, 8, 0);
    queue(&all, &t[0], "a", 0);
    queue(&all, &t[1], "a", 0);
    queue(&all, &t[2], "b", 0);
    queue(&all, &t[3], "b", 0);
    const int order[] = {0, 2, 1, 3};
    for (int i = 0; i < 4; i++) {
        assert_ptr_equal(hosts_take(&all, 0), &t[order[i]]);
    }
    for (int i = 0; i < 4; i++) {
        hosts_leave(&all, &t[i], 0);
    }
    hosts_fini(&all);
}

TEST(token_bucket_gives_a_second_at_once_and_then_the_rate) {
    struct hosts all;
    struct transfer t[20] = {0};
    hosts_init(&all, 100, 5);
    for (int i = 0; i < 20; i++) {
        queue(&all, &t[i], "a", 0);
    }
    int taken = 0;
    while (hosts_take(&all, 0) != NULL) {
        taken++;
    }
    assert_int_equal(taken, 5);
    for (; taken < 20; taken++) {
        const int64_t at = hosts_wake_ns(&all);
        assert_true(llabs(at - (taken - 4) * SECOND / 5) <= 10);
        assert_null(hosts_take(&all, at - 10));
        assert_ptr_equal(hosts_take(&all, at + 1), &t[taken]);
    }
    for (int i = 0; i < 20; i++) {
        hosts_leave(&all, &t[i], 4 * SECOND);
    }
    hosts_fini(&all);
}

TEST(idle_hosts_are_forgotten_when_their_bucket_is_full) {
    struct hosts all;
    enum { HOSTS = 500 };
    static struct transfer t[HOSTS];
    hosts_init(&all, 2, 2);
    for (int i = 0; i < HOSTS; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "host-%d", i * 7919 % HOSTS);
        queue(&all, &t[i], name, i);
        assert_ptr_equal(hosts_take(&all, i), &t[i]);
    }
    for (int i = 0; i < HOSTS; i++) {
        hosts_leave(&all, &t[i], HOSTS);
    }
    assert_int_equal(all.host_count, HOSTS);
    assert_null(hosts_take(&all, SECOND / 4));
    assert_int_equal(all.host_count, HOSTS);
    assert_null(hosts_take(&all, SECOND));
    assert_int_equal(all.host_count, 0);
    hosts_fini(&all);
}

/* Random traffic: no request is lost, no limit broken, no host sleeps with work it could do. */
TEST(random_traffic_keeps_the_limits) {
    struct hosts all;
    enum { COUNT = 2000, HOSTS = 17 };
    static struct transfer t[COUNT];
    struct transfer *running[COUNT];
    uint32_t running_count = 0;
    int queued = 0;
    int done = 0;
    uint32_t at_host[HOSTS] = {0};
    uint64_t random = test_seed();
    int64_t now = 0;
    hosts_init(&all, 3, 20);
    while (done < COUNT) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint32_t draw = (uint32_t)(random >> 33);
        now += draw % 1000000;
        if (draw % 3 == 0 && queued < COUNT) {
            char name[16];
            (void)snprintf(name, sizeof name, "host-%d", queued % HOSTS);
            queue(&all, &t[queued++], name, now);
        } else if (draw % 3 == 1 && running_count > 0) {
            const uint32_t which = draw % running_count;
            struct transfer *ended = running[which];
            running[which] = running[running_count - 1];
            running_count--;
            at_host[(ended - t) % HOSTS]--;
            hosts_leave(&all, ended, now);
            done++;
        } else {
            struct transfer *next = hosts_take(&all, now);
            if (next != NULL) {
                running[running_count++] = next;
                assert_true(++at_host[(next - t) % HOSTS] <= 3);
            } else if (queued == COUNT && running_count == 0) {
                assert_true(hosts_wake_ns(&all) != INT64_MAX);
                now = hosts_wake_ns(&all);
            }
        }
    }
    hosts_lift_limits(&all, now);
    assert_int_equal(all.host_count, 0);
    hosts_fini(&all);
}
