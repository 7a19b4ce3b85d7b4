/* Rank over bits: the k-th live position, for patterns with holes of every size. */
#include "loader/live_internal.h"

#include <stdlib.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"

struct pattern {
    const bool *bits;
    uint64_t fail_at;
};

static enum status takes(void *cookie, uint64_t position, bool *is_live, struct error *err) {
    const struct pattern *p = cookie;
    if (position == p->fail_at) {
        return error_set(err, STATUS_CORRUPT, "on purpose");
    }
    *is_live = p->bits[position];
    return STATUS_OK;
}

static void check(const bool *bits, uint64_t n) {
    struct pattern p = {bits, UINT64_MAX};
    struct live *l = NULL;
    struct error err = {0};
    assert_ok(live_create(&l, n, takes, &p, &err), err);
    uint64_t k = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (bits[i]) {
            assert_int_equal(live_position(l, k), i);
            k++;
        }
    }
    assert_int_equal(live_count(l), k);
    live_destroy(l);
}

TEST(the_kth_live_position_is_found) {
    enum { MOST = 5000 };
    bool *bits = calloc(MOST, sizeof(*bits));
    const uint64_t sizes[] = {0, 1, 63, 64, 65, 511, 512, 513, 1024, MOST};
    struct rng r;
    rng_init(&r, test_seed(), RNG_INIT, 0, 0);
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        for (uint32_t one_in = 1; one_in <= 1000; one_in *= 10) {
            for (uint64_t i = 0; i < sizes[k]; i++) {
                bits[i] = rng_below(&r, one_in) == 0;
            }
            check(bits, sizes[k]);
        }
    }
    /* Whole groups without any, and a last one alone. */
    for (uint64_t i = 0; i < MOST; i++) {
        bits[i] = i == 3 || i == MOST - 1;
    }
    check(bits, MOST);
    free(bits);
}

TEST(failing_predicate_ends_live_create) {
    const bool bits[100] = {true};
    struct pattern p = {bits, 70};
    struct live *l = NULL;
    struct error err = {0};
    assert_status(live_create(&l, 100, takes, &p, &err), STATUS_CORRUPT, err);
    assert_null(l);
    live_destroy(NULL);
}
