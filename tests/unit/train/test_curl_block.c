/* The block loss: tests/golden/losses/blocks.txt (make_losses.py blocks), and what the paper says
 * of it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/test.h"
#include "train/loss/curl_block.h"

enum { MAX_BLOCKS = 6, MAX_SIZE = 5, MAX_ELEMENTS = MAX_BLOCKS * MAX_BLOCKS * MAX_SIZE };

/* splitmix64, as make_losses.py has it. */
static double draw(uint64_t *state) {
    *state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    z = z ^ (z >> 31);
    return (double)((int)((z >> 51) % 8193) - 4096) / 4096.0;
}

static int64_t draw_similarity(float *s, const struct block_options *o, uint64_t seed, int scale) {
    const int64_t count = o->blocks * o->blocks * o->size;
    for (int64_t i = 0; i < count; i++) {
        s[i] = (float)((double)scale * draw(&seed));
    }
    return count;
}

TEST(value_and_gradient_agree_with_float64) {
    char kind[16];
    int blocks;
    int size;
    int negatives;
    int pairs;
    int scale;
    uint64_t index = 0;
    float s[MAX_ELEMENTS];
    float g[MAX_ELEMENTS];
    struct error err = {0};
    FILE *file = fopen(test_source_path("tests/golden/losses/blocks.txt"), "r");
    assert_non_null(file);
    while (fscanf(file, " case %15s %d %d %d %d %d", kind, &blocks, &size, &negatives, &pairs,
                  &scale) == 6) {
        assert_true(blocks <= MAX_BLOCKS && size <= MAX_SIZE);
        const struct block_options o = {.blocks = blocks,
                                        .size = size,
                                        .negatives = negatives,
                                        .pairs = pairs == 1,
                                        .kind = strcmp(kind, "hinge") == 0 ? BLOCK_HINGE
                                                                           : BLOCK_LOGISTIC};
        const int64_t count = draw_similarity(s, &o, index++, scale);
        double value;
        double want;
        assert_ok(block_loss(&value, g, s, &o, &err), err);
        assert_int_equal(fscanf(file, " value %lf gradient", &want), 1);
        if (!(fabs(value - want) <= 1e-14 * fmax(1.0, want))) {
            fail_msg("case %d: value %.17g, not %.17g", (int)index - 1, value, want);
        }
        for (int64_t i = 0; i < count; i++) {
            assert_int_equal(fscanf(file, "%lf", &want), 1);
            if (!(fabs((double)g[i] - want) <= 1e-6 * fabs(want) + 1e-9)) {
                fail_msg("case %d: element %d is %.9g, not %.9g", (int)index - 1, (int)i,
                         (double)g[i], want);
            }
        }
    }
    assert_true(feof(file) && index == 60);
    (void)fclose(file);
}

/* Proposition 6.2: Jensen's inequality; and equality of blocks of one point. */
TEST(pairs_cost_no_less_than_their_blocks) {
    float s[MAX_ELEMENTS];
    float g[MAX_ELEMENTS];
    float other[MAX_ELEMENTS];
    struct error err = {0};
    for (uint64_t i = 0; i < 200; i++) {
        struct block_options o = {.blocks = MAX_BLOCKS,
                                  .size = 1 + (int64_t)(i % MAX_SIZE),
                                  .negatives = 1 + (int64_t)(i % 4),
                                  .kind = i % 2 == 0 ? BLOCK_LOGISTIC : BLOCK_HINGE};
        double of_blocks;
        double of_pairs;
        const int64_t count = draw_similarity(s, &o, i, 4);
        assert_ok(block_loss(&of_blocks, g, s, &o, &err), err);
        o.pairs = true;
        assert_ok(block_loss(&of_pairs, other, s, &o, &err), err);
        if (o.size == 1) {
            assert_true(of_blocks == of_pairs);
            assert_int_equal(memcmp(g, other, (size_t)count * sizeof *g), 0);
        } else {
            assert_true(of_blocks < of_pairs + (o.kind == BLOCK_HINGE ? 1e-12 : 0.0));
        }
    }
}

/* Embeddings without a norm: similarities of a million are as good as others. */
TEST(large_similarities_stay_finite) {
    float s[2 * 2] = {-1e6f, 1e6f, 1e6f, -1e6f};
    float g[2 * 2];
    double value;
    struct error err = {0};
    struct block_options o = {.blocks = 2, .size = 1, .negatives = 1};
    assert_ok(block_loss(&value, g, s, &o, &err), err);
    assert_true(fabs(value - 2e6 / log(2.0)) < 1e-6);
    assert_true(fabs((double)g[1] - 0.5 / log(2.0)) < 1e-6 && g[0] == -g[1]);
    for (int i = 0; i < 4; i++) {
        s[i] = -s[i];
    }
    for (int kind = BLOCK_LOGISTIC; kind <= BLOCK_HINGE; kind++) {
        o.kind = (enum block_kind)kind;
        assert_ok(block_loss(&value, g, s, &o, &err), err);
        assert_true(value == 0.0 && g[0] == 0.0f && g[1] == 0.0f);
    }
    s[3] = NAN;
    assert_status(block_loss(&value, g, s, &o, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "anchor 1 with point 0 of block 1"));
}
