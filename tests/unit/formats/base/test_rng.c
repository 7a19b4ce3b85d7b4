/* The generator against its authors' answers; streams; uniformity; the permutation. */
#include "formats/base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

/* philox4x32 with 10 rounds, from the known-answer file of the authors' Random123 library. */
TEST(philox_known_answers) {
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        rng_block(out, rows[i].key, rows[i].counter);
        assert_memory_equal(out, rows[i].expected, sizeof out);
    }
}

/* Orders and augmentations of published runs hang on these numbers: they never change. */
TEST(streams_and_orders_never_change) {
    struct rng r;
    rng_init(&r, 42, RNG_AUGMENT, 3, 1000000007);
    assert_int_equal(rng_u32(&r), 0xa5e78169);
    assert_true(rng_u64(&r) == 0x4c0c986893b9e646u);
    static const uint64_t expected[8] = {280, 178, 855, 90, 245, 247, 970, 114};
    struct permutation p;
    permutation_init(&p, 1000, 42, 3);
    for (uint64_t i = 0; i < 8; i++) {
        assert_true(permutation_at(&p, i) == expected[i]);
    }
}

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

TEST(streams_do_not_meet) {
    enum { N = 4096 };
    static uint64_t first[N];
    size_t n = 0;
    for (uint64_t seed = 0; seed < 4; seed++) {
        for (uint64_t purpose = 1; purpose <= 4; purpose++) {
            for (uint64_t a = 0; a < 16; a++) {
                for (uint64_t b = 0; b < 16; b++) {
                    struct rng r;
                    rng_init(&r, seed << 32, (enum rng_purpose)purpose, a << 32, b << 32);
                    first[n++] = rng_u64(&r);
                }
            }
        }
    }
    assert_int_equal(n, N);
    qsort(first, N, sizeof first[0], compare_u64);
    for (size_t i = 1; i < N; i++) {
        assert_true(first[i] != first[i - 1]);
    }
}

TEST(uniform_numbers_are_uniform) {
    enum { CELLS = 64, DRAWS = 1 << 18 };
    static uint32_t cell[CELLS];
    struct rng r;
    rng_init(&r, test_seed(), RNG_INIT, 0, 0);
    double sum = 0, sum_squares = 0;
    for (int i = 0; i < DRAWS; i++) {
        double u = rng_uniform(&r);
        assert_true(u >= 0 && u < 1);
        cell[(int)(u * CELLS)]++;
        double g = rng_normal(&r);
        assert_true(isfinite(g));
        sum += g;
        sum_squares += g * g;
    }
    double chi = 0;
    for (int i = 0; i < CELLS; i++) {
        double d = (double)cell[i] - (double)DRAWS / CELLS;
        chi += d * d / ((double)DRAWS / CELLS);
    }
    /* 63 degrees of freedom: mean 63, deviation 11.2; five deviations either way. */
    assert_true(chi > 10 && chi < 120);
    assert_true(fabs(sum / DRAWS) < 5 / sqrt(DRAWS));
    assert_true(fabs(sum_squares / DRAWS - 1) < 5 * sqrt(2.0 / DRAWS));
}

TEST(below_is_in_range_and_even) {
    struct rng r;
    rng_init(&r, test_seed(), RNG_INIT, 1, 0);
    uint32_t count[3] = {0};
    for (int i = 0; i < 30000; i++) {
        count[rng_below(&r, 3)]++;
        assert_int_equal(rng_below(&r, 1), 0);
        assert_true(rng_below(&r, UINT32_MAX) < UINT32_MAX);
        assert_true(rng_below(&r, 0x80000001u) < 0x80000001u);
    }
    for (int i = 0; i < 3; i++) {
        assert_true(count[i] > 9500 && count[i] < 10500);
    }
}

static void check_bijective(uint64_t n, uint64_t seed, uint64_t epoch) {
    struct permutation p;
    permutation_init(&p, n, seed, epoch);
    uint8_t *seen = calloc(1, (size_t)n);
    assert_non_null(seen);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t v = permutation_at(&p, i);
        assert_true(permutation_inverse(&p, v) == i);
        assert_true(v < n && !seen[v]);
        seen[v] = 1;
    }
    free(seen);
}

TEST(permutation_is_bijective) {
    for (uint64_t n = 1; n <= 260; n++) {
        check_bijective(n, test_seed(), n);
    }
    static const uint64_t sizes[] = {1023, 1024, 1025, 4096, 4097, 65535, 65536, 65537};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check_bijective(sizes[i], test_seed(), i);
    }
}

TEST(permutation_of_many_stays_in_range_without_repeats) {
    enum { SAMPLES = 20000 };
    static uint64_t got[SAMPLES];
    static const uint64_t sizes[] = {12423374, ((uint64_t)1 << 32) + 1, ((uint64_t)1 << 48) - 1,
                                     (uint64_t)1 << 48};
    for (size_t k = 0; k < 4; k++) {
        struct permutation p;
        permutation_init(&p, sizes[k], test_seed(), k);
        for (uint64_t i = 0; i < SAMPLES; i++) {
            /* Half from the front, half from the back. */
            uint64_t index = i % 2 ? sizes[k] - 1 - i / 2 : i / 2;
            got[i] = permutation_at(&p, index);
            assert_true(got[i] < sizes[k]);
        }
        qsort(got, SAMPLES, sizeof got[0], compare_u64);
        for (size_t i = 1; i < SAMPLES; i++) {
            assert_true(got[i] != got[i - 1]);
        }
    }
}

/* Every place of a small range is reached about equally often from every index, over seeds. */
TEST(permutation_places_are_uniform) {
    enum { N = 7, SEEDS = 7000 };
    static uint32_t count[N][N];
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct permutation p;
        permutation_init(&p, N, seed, 0);
        for (uint64_t i = 0; i < N; i++) {
            count[i][permutation_at(&p, i)]++;
        }
    }
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            /* Mean 1000, deviation 29. */
            assert_true(count[i][j] > 850 && count[i][j] < 1150);
        }
    }
}

TEST(permutations_of_epochs_differ) {
    struct permutation a, b;
    permutation_init(&a, 100000, 1, 0);
    permutation_init(&b, 100000, 1, 1);
    int equal = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        equal += permutation_at(&a, i) == permutation_at(&b, i);
    }
    assert_true(equal < 5);
}
