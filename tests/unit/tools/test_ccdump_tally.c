/*
 * Counts and histograms against sorted copies of the same numbers.
 */
#include "tools/ccdump/tally.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"

static struct error err;

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void add_all(struct tally *t, const uint64_t *values, size_t count) {
    *t = (struct tally){0};
    for (size_t i = 0; i < count; i++) {
        assert_ok(tally_add(t, values[i], &err), err);
    }
    tally_sort(t);
}

TEST(numbers_are_counted_exactly) {
    enum { COUNT = 20000 };
    uint64_t *values = calloc(COUNT, sizeof(*values));
    struct rng r;
    struct tally t;
    double sum = 0;
    rng_init(&r, test_seed(), RNG_ORDER, 1, 2);
    for (size_t i = 0; i < COUNT; i++) {
        values[i] = i % 3 == 0 ? rng_u64(&r) >> 11 : rng_below(&r, 500);
        sum += (double)values[i];
    }
    add_all(&t, values, COUNT);
    qsort(values, COUNT, sizeof(*values), by_value);
    assert_int_equal(t.count, COUNT);
    assert_true(t.sum == sum);
    size_t at = 0;
    for (size_t i = 0; i < t.used; i++) {
        for (uint64_t k = 0; k < t.entries[i].count; k++) {
            assert_true(values[at++] == t.entries[i].value);
        }
    }
    assert_int_equal(at, COUNT);
    assert_true(tally_quantile(&t, 0.5) == values[(COUNT - 1) / 2]);
    tally_fini(&t);
    free(values);
}

TEST(an_empty_tally_has_no_bins) {
    struct tally t = {0};
    struct tally_histogram h;
    tally_sort(&t);
    tally_histogram(&h, &t, 10);
    assert_int_equal(h.bin_count, 0);
    tally_fini(&t);
}

TEST(few_numbers_have_a_bin_each) {
    static const uint64_t values[] = {1, 1, 2, 5};
    static const uint64_t edges[] = {1, 2, 3, 4, 5, 6};
    static const uint64_t counts[] = {2, 1, 0, 0, 1};
    struct tally t;
    struct tally_histogram h;
    add_all(&t, values, 4);
    tally_histogram(&h, &t, 10);
    assert_int_equal(h.bin_count, 5);
    assert_memory_equal(h.edges, edges, sizeof(edges));
    assert_memory_equal(h.counts, counts, sizeof(counts));
    assert_int_equal(tally_quantile(&t, 0.5), 1);
    tally_fini(&t);
}

/* Two outliers in a thousand do not widen the other bins. */
TEST(outliers_are_counted_in_the_outer_bins) {
    uint64_t values[1000];
    struct tally t;
    struct tally_histogram h;
    for (size_t i = 0; i < 1000; i++) {
        values[i] = 200 + i % 100;
    }
    values[0] = 3;
    values[1] = 1000000;
    add_all(&t, values, 1000);
    tally_histogram(&h, &t, 10);
    assert_int_equal(h.bin_count, 10);
    assert_int_equal(h.edges[0], 0);
    assert_int_equal(h.edges[1], 210);
    assert_int_equal(h.edges[9], 290);
    assert_int_equal(h.edges[10], 1000010);
    tally_fini(&t);
}

/* For random numbers: each is in the bin whose edges enclose it; edges ascend, the inner ones are
 * round and equally spaced. */
TEST(every_number_is_in_its_bin) {
    struct rng r;
    rng_init(&r, test_seed(), RNG_ORDER, 3, 4);
    for (int round = 0; round < 2000; round++) {
        struct tally t = {0};
        struct tally_histogram h;
        size_t count = 1 + rng_below(&r, 60);
        uint64_t reach = UINT64_C(1) << rng_below(&r, TALLY_MAX_BITS);
        size_t wanted = 1 + rng_below(&r, TALLY_MAX_BINS - 4);
        uint64_t counts[TALLY_MAX_BINS] = {0};
        for (size_t i = 0; i < count; i++) {
            assert_ok(tally_add(&t, rng_u64(&r) % reach, &err), err);
        }
        tally_sort(&t);
        tally_histogram(&h, &t, wanted);
        assert_in_range(h.bin_count, 1, wanted + 2);
        assert_true(h.edges[0] <= t.entries[0].value &&
                    h.edges[0] % (h.bin_count > 2 ? h.edges[2] - h.edges[1] : 1) == 0);
        assert_true(h.edges[h.bin_count] > t.entries[t.used - 1].value);
        for (size_t i = 0; i < h.bin_count; i++) {
            assert_true(h.edges[i] < h.edges[i + 1]);
            if (i > 1 && i + 1 < h.bin_count) {
                assert_true(h.edges[i + 1] - h.edges[i] == h.edges[i] - h.edges[i - 1]);
                assert_true(h.edges[i] % (h.edges[i + 1] - h.edges[i]) == 0);
            }
            for (size_t k = 0; k < t.used; k++) {
                uint64_t v = t.entries[k].value;
                counts[i] += v >= h.edges[i] && v < h.edges[i + 1] ? t.entries[k].count : 0;
            }
        }
        assert_memory_equal(h.counts, counts, sizeof(counts));
        tally_fini(&t);
    }
}
