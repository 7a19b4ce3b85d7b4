/*
 * Classification against answers worked out by hand and against a plain second implementation.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"
#include "train/eval/classify.h"
#include "train/eval/objective.h"
#include "train/eval/probe.h"
#include "train/eval/prompts.h"
#include "train/loss/loss.h"

static struct device *open_device(void) {
    struct error err = {0};
    struct device *dev = NULL;
    assert_ok(device_open(&dev, "cpu", 1, &err), err);
    return dev;
}

static bool near(double a, double b) {
    return fabs(a - b) < 1e-6;
}

TEST(vectors_rank_classes_and_ties_are_lost) {
    struct error err = {0};
    struct device *dev = open_device();
    const float vectors[] = {1, 0, 0, 1, -1, 0}; /* three classes in two dimensions */
    const float rows[] = {2, 1, 1, 1, -1, -2, 5, 5};
    const int32_t labels[] = {0, 0, 1, -1};
    const struct classify_set set = {.rows = rows, .labels = labels, .count = 4, .dim = 2};
    struct classify_result r;
    assert_ok(classify_by_vectors(&r, dev, &set, vectors, NULL, 3, &err), err);
    /* Row 0: scores 2 1 -2, right. Row 1: a tie of 0 and 1, lost. Row 2: -1 -2 1, rank 2. */
    assert_int_equal(r.images, 3);
    assert_true(near(r.top1, 100.0 / 3.0) && near(r.top5, 100.0));
    assert_true(near(r.class_top1[0], 50.0) && near(r.class_top1[1], 0.0) &&
                isnan(r.class_top1[2]));
    assert_true(near(r.per_class, 25.0));
    /* Ranks 0, 1, 2 among two other classes: 1, 1/2, 0. */
    assert_true(near(r.avg2, 50.0) && isnan(r.avg5) && isnan(r.avg10));
    classify_result_fini(&r);
    const float bias[] = {0, -1, 0};
    assert_ok(classify_by_vectors(&r, dev, &set, vectors, bias, 3, &err), err);
    assert_true(near(r.top1, 200.0 / 3.0));
    classify_result_fini(&r);
    const int32_t none[] = {-1, 7, 3, -1};
    const struct classify_set unlabelled = {.rows = rows, .labels = none, .count = 4, .dim = 2};
    assert_status(classify_by_vectors(&r, dev, &unlabelled, vectors, NULL, 3, &err), STATUS_USAGE,
                  err);
    device_close(dev);
}

/* Accuracy over all sets of k classes that hold the right one, counted one by one. */
TEST(average_accuracy_is_that_over_all_tasks) {
    enum { CLASSES = 7, K = 5 };
    struct error err = {0};
    struct device *dev = open_device();
    float vectors[CLASSES * CLASSES] = {0};
    float row[CLASSES];
    for (int c = 0; c < CLASSES; c++) {
        vectors[c * CLASSES + c] = 1.0f;
        row[c] = (float)((c * 3) % CLASSES); /* scores 0 3 6 2 5 1 4 */
    }
    const int32_t label = 4; /* score 5: class 2 alone has more */
    const struct classify_set set = {.rows = row, .labels = &label, .count = 1, .dim = CLASSES};
    struct classify_result r;
    assert_ok(classify_by_vectors(&r, dev, &set, vectors, NULL, CLASSES, &err), err);
    int tasks = 0;
    int right = 0;
    for (unsigned mask = 0; mask < 1u << CLASSES; mask++) {
        if (__builtin_popcount(mask) == K && mask >> label & 1u) {
            tasks++;
            right += mask >> 2 & 1u ? 0 : 1;
        }
    }
    assert_true(near(r.avg5, 100.0 * right / tasks));
    classify_result_fini(&r);
    device_close(dev);
}

/* One row of each class decides: of class 0 either side is drawn, of class 1 the same. */
TEST(few_rows_are_drawn_and_their_numbers_averaged) {
    enum { DRAWS = 64 };
    struct error err = {0};
    struct device *dev = open_device();
    const float train_rows[] = {1, -3, 9, 0.5f, 0.5f};
    const int32_t train_labels[] = {0, 0, -1, 1, 1};
    const struct classify_set train = {
        .rows = train_rows, .labels = train_labels, .count = 5, .dim = 1};
    const float row = 1.0f;
    const int32_t label = 0;
    const struct classify_set query = {.rows = &row, .labels = &label, .count = 1, .dim = 1};
    float means[2];
    int right = 0;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        classify_means(means, &train, 2, 1, 3, draw);
        assert_true((means[0] == 1.0f || means[0] == -3.0f) && means[1] == 0.5f);
        right += means[0] == 1.0f;
    }
    assert_true(right > DRAWS / 4 && right < 3 * DRAWS / 4);
    classify_means(means, &train, 2, 7, 3, 0); /* all rows of a class with fewer */
    assert_true(means[0] == -1.0f && means[1] == 0.5f);

    struct classify_result mean;
    struct classify_result deviation;
    assert_ok(classify_by_few(&mean, &deviation, dev, &query, &train, 2, 1, DRAWS, 3, &err), err);
    const double p = (double)right / DRAWS;
    const double sd = 100.0 * sqrt(p * (1.0 - p) * DRAWS / (DRAWS - 1.0));
    assert_true(near(mean.top1, 100.0 * p) && near(mean.avg2, 100.0 * p) && isnan(mean.avg5));
    assert_true(near(deviation.top1, sd) && near(deviation.class_top1[0], sd));
    assert_true(mean.images == 1 && mean.class_images[0] == 1 && isnan(mean.class_top1[1]));
    classify_result_fini(&mean);
    classify_result_fini(&deviation);
    assert_ok(classify_by_few(&mean, &deviation, dev, &query, &train, 2, 1, 1, 3, &err), err);
    assert_true(isnan(deviation.top1));
    classify_result_fini(&mean);
    classify_result_fini(&deviation);
    device_close(dev);
}

static void by_neighbours(struct classify_result *r,
                          struct device *dev,
                          const struct classify_set *queries,
                          const struct classify_set *bank,
                          int32_t classes,
                          enum neighbour_measure by,
                          int32_t neighbours,
                          double temperature) {
    struct error err = {0};
    const struct neighbour_rule rule = {by, neighbours, temperature};
    assert_ok(classify_by_neighbours(r, dev, queries, bank, classes, &rule, 1, &err), err);
}

TEST(neighbours_vote) {
    struct device *dev = open_device();
    const float bank_rows[] = {1.0f, 0.9f, 0.8f, -1.0f, 0.95f};
    const int32_t bank_labels[] = {0, 1, 1, 0, -1};
    const struct classify_set bank = {
        .rows = bank_rows, .labels = bank_labels, .count = 5, .dim = 1};
    const float rows[] = {1.0f};
    int32_t label = 0;
    const struct classify_set query = {.rows = rows, .labels = &label, .count = 1, .dim = 1};
    struct classify_result r;
    by_neighbours(&r, dev, &query, &bank, 2, NEIGHBOURS_DOT, 1, 0.0);
    assert_true(near(r.top1, 100.0));
    classify_result_fini(&r);
    /* Three: one vote for 0, two for 1. */
    by_neighbours(&r, dev, &query, &bank, 2, NEIGHBOURS_DOT, 3, 0.0);
    assert_true(near(r.top1, 0.0) && near(r.top5, 100.0));
    classify_result_fini(&r);
    /* The votes weigh exp(0), exp(-1), exp(-2) at a temperature of 0.1: 1 against 0.503. */
    by_neighbours(&r, dev, &query, &bank, 2, NEIGHBOURS_DOT, 3, 0.1);
    assert_true(near(r.top1, 100.0) && isnan(r.avg2));
    classify_result_fini(&r);
    /* Two: a vote each; the lower class wins, but never without a vote. */
    for (label = 0; label < 2; label++) {
        by_neighbours(&r, dev, &query, &bank, 2, NEIGHBOURS_DOT, 2, 0.0);
        assert_true(near(r.top1, label == 0 ? 100.0 : 0.0));
        classify_result_fini(&r);
    }
    label = 2;
    by_neighbours(&r, dev, &query, &bank, 9, NEIGHBOURS_DOT, 3, 0.0);
    assert_true(near(r.top1, 0.0) && near(r.top5, 0.0));
    classify_result_fini(&r);
    label = 0;
    /* The largest product, the smallest distance and the largest cosine are three rows; in one pass
     * as one by one. */
    const float bank_2d[] = {10.0f, 9.0f, 0.5f, 0.5f, 0.1f, 0.0f, 0.0f, 0.0f};
    const int32_t labels_2d[] = {0, 1, 2, 3};
    const float query_2d[] = {1.0f, 0.2f};
    const struct classify_set wide = {.rows = bank_2d, .labels = labels_2d, .count = 4, .dim = 2};
    const struct classify_set one = {.rows = query_2d, .labels = &label, .count = 1, .dim = 2};
    const struct neighbour_rule rules[] = {
        {NEIGHBOURS_DOT, 1, 0.0}, {NEIGHBOURS_DISTANCE, 1, 0.0}, {NEIGHBOURS_COSINE, 1, 0.0}};
    for (label = 0; label < 3; label++) {
        struct classify_result all[3];
        struct error err = {0};
        assert_ok(classify_by_neighbours(all, dev, &one, &wide, 4, rules, 3, &err), err);
        for (int k = 0; k < 3; k++) {
            assert_true(near(all[k].top1, k == label ? 100.0 : 0.0));
            by_neighbours(&r, dev, &one, &wide, 4, rules[k].by, 1, 0.0);
            assert_true(near(r.top1, all[k].top1));
            classify_result_fini(&r);
            classify_result_fini(&all[k]);
        }
    }
    device_close(dev);
}

/* Against sorting all, over random banks with equal scores among them. */
TEST(neighbours_are_those_of_a_full_sort) {
    enum { BANK = 97, QUERIES = 300, CLASSES = 5, K = 8 };
    struct device *dev = open_device();
    struct rng g;
    float bank_rows[BANK * 2];
    float rows[QUERIES * 2];
    int32_t bank_labels[BANK];
    int32_t labels[QUERIES];
    rng_init(&g, test_seed(), RNG_INIT, 0, 0);
    for (int i = 0; i < BANK * 2; i++) {
        bank_rows[i] = (float)rng_below(&g, 9) - 4.0f;
    }
    for (int i = 0; i < QUERIES * 2; i++) {
        rows[i] = (float)rng_below(&g, 9) - 4.0f;
    }
    for (int i = 0; i < BANK; i++) {
        bank_labels[i] = (int32_t)rng_below(&g, CLASSES);
    }
    for (int i = 0; i < QUERIES; i++) {
        labels[i] = (int32_t)rng_below(&g, CLASSES);
    }
    const struct classify_set bank = {
        .rows = bank_rows, .labels = bank_labels, .count = BANK, .dim = 2};
    const struct classify_set queries = {
        .rows = rows, .labels = labels, .count = QUERIES, .dim = 2};
    struct classify_result r;
    by_neighbours(&r, dev, &queries, &bank, CLASSES, NEIGHBOURS_DOT, K, 0.0);
    int right = 0;
    for (int q = 0; q < QUERIES; q++) {
        int votes[CLASSES] = {0};
        bool taken[BANK] = {false};
        for (int k = 0; k < K; k++) {
            int best = -1;
            float best_score = 0.0f;
            for (int i = 0; i < BANK; i++) {
                const float s =
                    rows[q * 2] * bank_rows[i * 2] + rows[q * 2 + 1] * bank_rows[i * 2 + 1];
                if (!taken[i] && (best < 0 || s > best_score)) {
                    best = i;
                    best_score = s;
                }
            }
            taken[best] = true;
            votes[bank_labels[best]]++;
        }
        bool won = true;
        for (int c = 0; c < CLASSES; c++) {
            const int tie = c < labels[q] ? 1 : 0; /* the lower class wins it */
            won = won && (c == labels[q] || votes[c] + tie <= votes[labels[q]]);
        }
        right += won ? 1 : 0;
    }
    assert_true(near(r.top1, 100.0 * right / QUERIES));
    classify_result_fini(&r);
    device_close(dev);
}

TEST(means_and_lengths) {
    const float rows[] = {1, 2, 3, 4, 9, 9, 3, 0};
    const int32_t labels[] = {1, 1, -1, 0};
    const struct classify_set set = {.rows = rows, .labels = labels, .count = 4, .dim = 2};
    float means[6];
    classify_means(means, &set, 3, INT64_MAX, 0, 0);
    const float expected[] = {3, 0, 2, 3, 0, 0};
    for (int i = 0; i < 6; i++) {
        assert_true(near((double)means[i], (double)expected[i]));
    }
    float unit[] = {3, 4, 0, 0};
    classify_normalize(unit, 2, 2);
    assert_true(near((double)unit[0], 0.6) && near((double)unit[1], 0.8) && unit[2] == 0.0f);
}

TEST(probe_separates_what_can_be_separated) {
    enum { ROWS = 600, DIM = 6, CLASSES = 3 };
    struct error err = {0};
    struct device *dev = open_device();
    struct rng g;
    static float rows[ROWS * DIM];
    static int32_t labels[ROWS];
    float weight[CLASSES * DIM];
    float bias[CLASSES];
    float again[CLASSES * DIM];
    double loss = 0.0;
    rng_init(&g, 3, RNG_INIT, 0, 0);
    for (int i = 0; i < ROWS; i++) {
        labels[i] = i % (CLASSES + 1) == CLASSES ? -1 : i % (CLASSES + 1);
        for (int d = 0; d < DIM; d++) {
            rows[i * DIM + d] = (float)(0.5 * rng_normal(&g)) + (d == labels[i] ? 3.0f : 0.0f);
        }
    }
    const struct classify_set set = {.rows = rows, .labels = labels, .count = ROWS, .dim = DIM};
    struct probe_options how;
    probe_options_default(&how);
    how.batch_count = 64;
    how.lr = 0.05;
    assert_ok(probe_train(weight, bias, &loss, dev, &set, CLASSES, &how, &err), err);
    assert_true(loss < 0.1);
    struct classify_result r;
    assert_ok(classify_by_vectors(&r, dev, &set, weight, bias, CLASSES, &err), err);
    assert_int_equal(r.images, ROWS * CLASSES / (CLASSES + 1));
    assert_true(r.top1 > 98.0);
    classify_result_fini(&r);
    assert_ok(probe_train(again, bias, NULL, dev, &set, CLASSES, &how, &err), err);
    assert_memory_equal(weight, again, sizeof weight);
    device_close(dev);
}

TEST(objectives_are_those_written_out) {
    enum { N = 9, DIM = 4 };
    struct error err = {0};
    struct device *dev = open_device();
    struct rng g;
    float x[N * DIM];
    float t[N * DIM];
    float zeta[2][N];
    rng_init(&g, 8, RNG_INIT, 0, 0);
    for (int i = 0; i < N * DIM; i++) {
        x[i] = (float)rng_normal(&g);
        t[i] = (float)rng_normal(&g);
    }
    classify_normalize(x, N, DIM);
    classify_normalize(t, N, DIM);
    for (int i = 0; i < N; i++) {
        zeta[0][i] = 0.01f * (float)i;
        zeta[1][i] = -0.02f * (float)i;
    }
    const double tau = 0.1;
    double gcl = 0.0;
    double clip = 0.0;
    double nuclr = 0.0;
    for (int side = 0; side < 2; side++) {
        const float *a = side == 0 ? x : t;
        const float *b = side == 0 ? t : x;
        for (int i = 0; i < N; i++) {
            double own = 0.0;
            double others = 0.0;
            double all = 0.0;
            double weighed = 0.0;
            for (int d = 0; d < DIM; d++) {
                own += (double)a[i * DIM + d] * (double)b[i * DIM + d];
            }
            for (int j = 0; j < N; j++) {
                double s = 0.0;
                for (int d = 0; d < DIM; d++) {
                    s += (double)a[i * DIM + d] * (double)b[j * DIM + d];
                }
                others += j == i ? 0.0 : exp((s - own) / tau);
                all += exp((s - own) / tau);
                weighed += exp((s - own - (double)zeta[1 - side][j]) / tau);
            }
            gcl += tau * log(others) / N;
            clip += 0.5 * log(all) / N;
            nuclr += (tau * log(weighed) + (double)zeta[1 - side][i]) / N;
        }
    }
    struct objective_result r;
    assert_ok(objective_compute(&r, dev, x, t, N, DIM, tau, zeta[0], zeta[1], &err), err);
    assert_true(fabs(r.gcl - gcl) < 1e-5 && fabs(r.clip - clip) < 1e-5);
    assert_true(fabs(r.nuclr - nuclr) < 1e-5);
    assert_true(fabs(r.gcl_image + r.gcl_text - r.gcl) < 1e-12);
    assert_ok(objective_compute(&r, dev, x, t, N, DIM, tau, NULL, NULL, &err), err);
    assert_true(isnan(r.nuclr));
    device_close(dev);
}

/* What a step reports as global_loss when the whole dataset is its batch and nothing was seen
 * before. */
static double global_loss(const char *name, const float *s, const float *const *zeta, int n) {
    struct error err = {0};
    struct sample_state *state = NULL;
    struct loss *loss = NULL;
    struct loss_options o;
    uint64_t ids[32];
    static float gradient[32 * 32];
    loss_options_default(&o);
    o.name = name;
    o.tau = 0.1;
    assert_ok(sample_state_create(&state, (uint64_t)n, NULL, &err), err);
    assert_ok(loss_create(&loss, &o, state, (uint64_t)n, n, &err), err);
    for (int i = 0; i < n; i++) {
        ids[i] = (uint64_t)i;
    }
    static const char *const names[] = {"image.zeta", "text.zeta"};
    for (int side = 0; side < 2; side++) {
        const int32_t column = sample_state_find(state, names[side]);
        if (column >= 0) {
            memcpy(sample_state_column(state, column), zeta[side], (size_t)n * sizeof(float));
        }
    }
    const struct loss_input in = {.similarity = s, .sample_ids = ids, .batch_count = n};
    struct loss_output out = {.gradient = gradient};
    assert_ok(loss_step(loss, &in, &out, &err), err);
    loss_destroy(loss);
    sample_state_destroy(state);
    return out.objective;
}

TEST(global_loss_and_objective_are_one_definition) {
    enum { N = 23, DIM = 6 };
    struct error err = {0};
    struct device *dev = open_device();
    struct rng g;
    float x[2][N * DIM];
    float zeta[2][N];
    float s[N * N];
    rng_init(&g, 9, RNG_INIT, 0, 0);
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < N * DIM; i++) {
            x[side][i] = (float)rng_normal(&g);
        }
        for (int i = 0; i < N; i++) {
            zeta[side][i] = 0.05f * (float)rng_normal(&g);
        }
        classify_normalize(x[side], N, DIM);
    }
    for (int i = 0; i < N * N; i++) {
        double sum = 0.0;
        for (int d = 0; d < DIM; d++) {
            sum += (double)x[0][i / N * DIM + d] * (double)x[1][i % N * DIM + d];
        }
        s[i] = (float)sum;
    }
    struct objective_result r;
    assert_ok(objective_compute(&r, dev, x[0], x[1], N, DIM, 0.1, zeta[0], zeta[1], &err), err);
    const float *const zetas[] = {zeta[0], zeta[1]};
    assert_true(near(global_loss("sogclr", s, zetas, N), r.gcl));
    assert_true(near(global_loss("nuclr", s, zetas, N), r.nuclr));
    device_close(dev);
}

TEST(lists_of_lines) {
    struct error err = {0};
    struct text_list l;
    static const char text[] = "# names\n  cat \r\n\ndog house\n#x\nbird";
    assert_ok(text_list_parse(&l, "names", text, sizeof text - 1, &err), err);
    assert_int_equal(l.count, 3);
    assert_string_equal(l.lines[0], "cat");
    assert_string_equal(l.lines[1], "dog house");
    assert_string_equal(l.lines[2], "bird");
    text_list_fini(&l);
    assert_ok(text_list_lines(&l, "prompts", text, sizeof text - 1, &err), err);
    assert_int_equal(l.count, 6);
    assert_string_equal(l.lines[0], "# names");
    assert_string_equal(l.lines[2], "");
    assert_string_equal(l.lines[5], "bird");
    text_list_fini(&l);
    assert_ok(text_list_lines(&l, "prompts", "\na\n", 3, &err), err);
    assert_int_equal(l.count, 2);
    text_list_fini(&l);
    assert_status(text_list_lines(&l, "prompts", "", 0, &err), STATUS_CORRUPT, err);
    assert_status(text_list_parse(&l, "names", "# only\n\n", 8, &err), STATUS_CORRUPT, err);
    assert_status(text_list_parse(&l, "names", "a\xFF", 2, &err), STATUS_CORRUPT, err);
    assert_status(text_list_parse(&l, "names", "a\0b", 3, &err), STATUS_CORRUPT, err);
    assert_ok(text_list_parse(&l, "prompts", PROMPT_TEMPLATES, strlen(PROMPT_TEMPLATES), &err),
              err);
    for (size_t i = 0; i < l.count; i++) {
        assert_non_null(strstr(l.lines[i], "{}"));
    }
    text_list_fini(&l);
}
