/*
 * Evaluations against tests/golden/evaluation/evaluation.txt, the answers of another implementation
 * (make_evaluation.py describes the words).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"
#include "train/eval/classify.h"
#include "train/eval/probe.h"
#include "train/eval/retrieval.h"

enum { MAX_COUNTS = 8 };

struct golden {
    FILE *file;
    struct device *dev;
    double counts[MAX_COUNTS]; /* the numbers after the word of the case */
    int cases[4];
};

static void expect_word(struct golden *g, const char *word) {
    char got[32] = "";
    assert_int_equal(fscanf(g->file, " %31s", got), 1);
    assert_string_equal(got, word);
}

static double number(struct golden *g) {
    double x = 0.0;
    assert_int_equal(fscanf(g->file, "%lf", &x), 1);
    return x;
}

static int64_t count_of(const struct golden *g, int index) {
    return (int64_t)g->counts[index];
}

/* A line of numbers after its word; the caller frees. */
static float *floats(struct golden *g, const char *word, int64_t count) {
    float *out = calloc((size_t)count + 1, sizeof *out);
    assert_non_null(out);
    expect_word(g, word);
    for (int64_t i = 0; i < count; i++) {
        out[i] = (float)number(g);
    }
    return out;
}

static int32_t *integers(struct golden *g, const char *word, int64_t count) {
    int32_t *out = calloc((size_t)count + 1, sizeof *out);
    assert_non_null(out);
    expect_word(g, word);
    for (int64_t i = 0; i < count; i++) {
        out[i] = (int32_t)number(g);
    }
    return out;
}

static void check(const char *what, double got, double want, double tolerance) {
    if (isnan(want) ? !isnan(got) : !(fabs(got - want) <= tolerance)) {
        fail_msg("%s is %.17g, not %.17g", what, got, want);
    }
}

static void check_line(struct golden *g, const char *word, const double *got, int64_t count) {
    expect_word(g, word);
    for (int64_t i = 0; i < count; i++) {
        check(word, got[i], number(g), 1e-9);
    }
}

static void check_floats(struct golden *g,
                         const char *word,
                         const float *got,
                         int64_t count,
                         double tolerance) {
    expect_word(g, word);
    for (int64_t i = 0; i < count; i++) {
        check(word, (double)got[i], number(g), tolerance);
    }
}

static void check_result(struct golden *g, const struct classify_result *r) {
    const double top[] = {r->top1, r->top5};
    const double average[] = {r->avg2, r->avg5, r->avg10};
    check_line(g, "top", top, 2);
    check_line(g, "average", average, 3);
    check_line(g, "per_class", &r->per_class, 1);
    check_line(g, "classes", r->class_top1, r->class_count);
}

static void retrieval_case(struct golden *g) {
    struct error err = {0};
    const int64_t images = count_of(g, 0);
    const int64_t texts = count_of(g, 1);
    const int64_t dim = count_of(g, 2);
    float *x = floats(g, "images", images * dim);
    float *t = floats(g, "texts", texts * dim);
    int32_t *owner = integers(g, "owner", texts);
    struct retrieval_result r;
    assert_ok(retrieval_ranks(&r, g->dev, x, images, t, texts, owner, dim, &err), err);
    check_line(g, "i2t", r.value[RETRIEVAL_I2T], 3);
    check_line(g, "t2i", r.value[RETRIEVAL_T2I], 3);
    check_line(g, "mean", r.value[RETRIEVAL_MEAN], 3);
    free(x);
    free(t);
    free(owner);
}

static void vectors_case(struct golden *g) {
    struct error err = {0};
    const int64_t dim = count_of(g, 1);
    const int32_t classes = (int32_t)count_of(g, 2);
    struct classify_set set = {.count = count_of(g, 0), .dim = dim};
    float *rows = floats(g, "rows", set.count * dim);
    int32_t *labels = integers(g, "labels", set.count);
    float *vectors = floats(g, "vectors", classes * dim);
    float *bias = floats(g, "bias", classes);
    set.rows = rows;
    set.labels = labels;
    struct classify_result r;
    assert_ok(classify_by_vectors(&r, g->dev, &set, vectors, count_of(g, 3) == 1 ? bias : NULL,
                                  classes, &err),
              err);
    check_result(g, &r);
    classify_result_fini(&r);
    free(rows);
    free(labels);
    free(vectors);
    free(bias);
}

static void neighbours_case(struct golden *g) {
    struct error err = {0};
    const int64_t dim = count_of(g, 2);
    struct classify_set set = {.count = count_of(g, 0), .dim = dim};
    struct classify_set bank = {.count = count_of(g, 1), .dim = dim};
    float *rows = floats(g, "rows", set.count * dim);
    int32_t *labels = integers(g, "labels", set.count);
    float *bank_rows = floats(g, "bank", bank.count * dim);
    int32_t *bank_labels = integers(g, "bank_labels", bank.count);
    set.rows = rows;
    set.labels = labels;
    bank.rows = bank_rows;
    bank.labels = bank_labels;
    struct classify_result r;
    const struct neighbour_rule rule = {count_of(g, 6) == 1 ? NEIGHBOURS_DISTANCE : NEIGHBOURS_DOT,
                                        (int32_t)count_of(g, 4), g->counts[5]};
    assert_ok(
        classify_by_neighbours(&r, g->dev, &set, &bank, (int32_t)count_of(g, 3), &rule, 1, &err),
        err);
    check_result(g, &r);
    classify_result_fini(&r);
    free(rows);
    free(labels);
    free(bank_rows);
    free(bank_labels);
}

static void probe_case(struct golden *g) {
    struct error err = {0};
    const int64_t dim = count_of(g, 1);
    const int32_t classes = (int32_t)count_of(g, 2);
    struct classify_set set = {.count = count_of(g, 0), .dim = dim};
    struct probe_options how;
    probe_options_default(&how);
    how.batch_count = (int32_t)set.count; /* the order of rows does not matter */
    how.epochs = (int32_t)count_of(g, 3);
    how.lr = g->counts[4];
    how.weight_decay = g->counts[5];
    how.seed = (uint64_t)count_of(g, 6);
    float *rows = floats(g, "rows", set.count * dim);
    int32_t *labels = integers(g, "labels", set.count);
    float *weight = calloc((size_t)(classes * dim), sizeof *weight);
    float *bias = calloc((size_t)classes, sizeof *bias);
    double loss = 0.0;
    set.rows = rows;
    set.labels = labels;
    assert_ok(probe_train(weight, bias, &loss, g->dev, &set, classes, &how, &err), err);
    check_floats(g, "weight", weight, classes * dim, 2e-5);
    check_floats(g, "bias", bias, classes, 2e-5);
    expect_word(g, "loss");
    check("loss", loss, number(g), 1e-5);
    free(rows);
    free(labels);
    free(weight);
    free(bias);
}

TEST(evaluations_are_those_of_another_implementation) {
    static const struct {
        const char *word;
        int counts;
        void (*run)(struct golden *g);
    } kinds[] = {{"retrieval", 3, retrieval_case},
                 {"vectors", 4, vectors_case},
                 {"neighbours", 7, neighbours_case},
                 {"probe", 7, probe_case}};
    struct golden g = {0};
    struct error err = {0};
    char word[32];
    g.file = fopen(test_source_path("tests/golden/evaluation/evaluation.txt"), "r");
    assert_non_null(g.file);
    assert_ok(device_open(&g.dev, "cpu", 1, &err), err);
    while (fscanf(g.file, " %31s", word) == 1) {
        size_t k = 0;
        while (strcmp(word, kinds[k].word) != 0) {
            assert_true(++k < sizeof kinds / sizeof kinds[0]);
        }
        for (int i = 0; i < kinds[k].counts; i++) {
            g.counts[i] = number(&g);
        }
        kinds[k].run(&g);
        g.cases[k]++;
    }
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        assert_true(g.cases[k] >= 2);
    }
    device_close(g.dev);
    fclose(g.file);
}
