/*
 * Which failures are tried again; waits between attempts: their range, their spread, and what a
 * server asks for.
 */
#include "net/retry.h"

#include "tests/support/test.h"

TEST(delays_double_up_to_the_maximum) {
    for (uint32_t attempt = 0; attempt < 80; attempt++) {
        const int64_t end = attempt < 7 ? 100 << attempt : 10000;
        int64_t least = INT64_MAX;
        int64_t most = 0;
        for (uint64_t seed = 0; seed < 2000; seed++) {
            const int64_t ms = retry_delay_ms(attempt, 100, 10000, -1, seed);
            least = ms < least ? ms : least;
            most = ms > most ? ms : most;
        }
        assert_in_range(least, 100, 100 + (end - 100) / 50);
        assert_in_range(most, end - (end - 100) / 50, end);
    }
}

TEST(equal_seeds_wait_equally_and_others_do_not) {
    int equal = 0;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        const int64_t ms = retry_delay_ms(5, 100, 100000, -1, seed);
        assert_int_equal(ms, retry_delay_ms(5, 100, 100000, -1, seed));
        equal += ms == retry_delay_ms(5, 100, 100000, -1, seed + 1);
    }
    assert_in_range(equal, 0, 10);
}

TEST(what_the_server_asks_for_is_the_least_and_keeps_the_jitter) {
    int64_t most = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        const int64_t ms = retry_delay_ms(3, 100, 10000, 60000, seed);
        assert_in_range(ms, 60000, 60000 + 700);
        most = ms > most ? ms : most;
        assert_in_range(retry_delay_ms(3, 100, 10000, 0, seed), 100, 800);
    }
    assert_in_range(most, 60500, 60700);
}

TEST(extreme_values_do_not_overflow) {
    assert_int_equal(retry_delay_ms(5, 0, 0, -1, 1), 0);
    assert_int_equal(retry_delay_ms(0, 100, 50, -1, 1), 100);
    assert_in_range(retry_delay_ms(UINT32_MAX, 1, INT64_MAX, -1, 1), 1, INT64_MAX);
    assert_int_equal(retry_delay_ms(9, 100, 10000, INT64_MAX, 1), INT64_MAX);
}

TEST(failures_that_may_pass_are_worth_another_attempt) {
    static const int again[] = {408, 425, 429, 500, 502, 503, 504, 520, 599};
    static const int final[] = {301, 304, 400, 401, 403, 404, 410, 412, 416, 451, 501, 505};
    for (size_t i = 0; i < sizeof(again) / sizeof(again[0]); i++) {
        assert_true(retry_worth(HTTP_STATUS, again[i]));
    }
    for (size_t i = 0; i < sizeof(final) / sizeof(final[0]); i++) {
        assert_false(retry_worth(HTTP_STATUS, final[i]));
    }
    assert_true(retry_worth(HTTP_TIMEOUT, 0) && retry_worth(HTTP_DNS, 0));
    assert_true(retry_worth(HTTP_PARTIAL, 200) && retry_worth(HTTP_CONNECT, 0));
    assert_false(retry_worth(HTTP_OK, 200) || retry_worth(HTTP_STOPPED, 200));
    assert_false(retry_worth(HTTP_TOO_LARGE, 200) || retry_worth(HTTP_REFUSED, 0));
}
