/*
 * margin_model: a subset is the first rows of a keyed permutation; the two sets of a class are its
 * first k rows there and the k after them.
 */
#include "tools/ccstudy/margin_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tools/ccstudy/assignment.h"

enum { ROWS_PER_CLASS = 200 };

static const double smallest_gradient = 1e-6;

struct subset {
    const struct classify_set *set;
    const struct margin_classifier *f;
    int64_t *labelled; /* (labelled_count): rows with a class */
    int64_t labelled_count;
    int64_t *rows; /* (count): drawn */
    int64_t count;
    double *margin, *gradient;                          /* (count) */
    double *values;                                     /* (count): to sort */
    double *variance, *lipschitz;                       /* (class_count) */
    int64_t *class_rows;                                /* (count): rows of one class */
    double mean_variance, mean_lipschitz, mean_product; /* E_c */
};

static const float *row_of(const struct subset *s, int64_t row) {
    return s->set->rows + row * s->set->dim;
}

static double score(const struct subset *s, const float *z, int32_t c) {
    const float *w = s->f->weight + (int64_t)c * s->set->dim;
    double sum = (double)s->f->bias[c];
    for (int64_t d = 0; d < s->set->dim; d++) {
        sum += (double)w[d] * (double)z[d];
    }
    return sum;
}

static double distance(const float *a, const float *b, int64_t dim) {
    double sum = 0.0;
    for (int64_t d = 0; d < dim; d++) {
        const double x = (double)a[d] - (double)b[d];
        sum += x * x;
    }
    return sqrt(sum);
}

/* The margin of every drawn row and the norm of its gradient, which is that of the difference of
 * two rows of weights; Lip_c. */
static void find_margins(struct subset *s) {
    const int64_t dim = s->set->dim;
    memset(s->lipschitz, 0, (size_t)s->f->class_count * sizeof *s->lipschitz);
    for (int64_t i = 0; i < s->count; i++) {
        const float *z = row_of(s, s->rows[i]);
        const int32_t label = s->set->labels[s->rows[i]];
        double best = -HUGE_VAL;
        int32_t rival = -1;
        for (int32_t c = 0; c < s->f->class_count; c++) {
            const double value = c == label ? -HUGE_VAL : score(s, z, c);
            if (value > best) {
                best = value;
                rival = c;
            }
        }
        s->margin[i] = score(s, z, label) - best;
        s->gradient[i] = distance(s->f->weight + label * dim, s->f->weight + rival * dim, dim);
        s->lipschitz[label] = fmax(s->lipschitz[label], s->gradient[i]);
    }
}

/* Var_c of the first 2 k of class_rows. */
static enum status find_variance(struct subset *s, int64_t k, double *out, struct error *err) {
    double *cost = malloc((size_t)k * (size_t)k * sizeof *cost);
    if (cost == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory to match %lld images", (long long)k);
    }
    for (int64_t i = 0; i < k; i++) {
        for (int64_t j = 0; j < k; j++) {
            cost[i * k + j] =
                distance(row_of(s, s->class_rows[i]), row_of(s, s->class_rows[k + j]), s->set->dim);
        }
    }
    double sum = 0.0;
    const enum status status = assignment_solve(&sum, cost, (size_t)k, err);
    *out = sum / (double)k;
    free(cost);
    return status;
}

/* Var_c of every class, and the three means over the classes by their share of images. */
static enum status find_variances(struct subset *s, struct error *err) {
    double images = 0.0;
    s->mean_variance = 0.0;
    s->mean_lipschitz = 0.0;
    s->mean_product = 0.0;
    for (int32_t c = 0; c < s->f->class_count; c++) {
        int64_t count = 0;
        for (int64_t i = 0; i < s->count; i++) {
            if (s->set->labels[s->rows[i]] == c) {
                s->class_rows[count++] = s->rows[i];
            }
        }
        if (count < 2) {
            continue;
        }
        TRY(find_variance(s, count / 2, &s->variance[c], err));
        images += (double)count;
        s->mean_variance += (double)count * s->variance[c];
        s->mean_lipschitz += (double)count * s->lipschitz[c];
        s->mean_product += (double)count * s->variance[c] * s->lipschitz[c];
    }
    if (images == 0.0) {
        return error_set(err, STATUS_USAGE, "no class has two images");
    }
    s->mean_variance /= images;
    s->mean_lipschitz /= images;
    s->mean_product /= images;
    return STATUS_OK;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Adds a share of the subset's medians. */
static void add_medians(struct margin_result *out, struct subset *s, double share) {
    for (int kind = 0; kind < MARGIN_KINDS; kind++) {
        const bool by_gradient = kind == MARGIN_GN || kind == MARGIN_KV_GN;
        const double normaliser = kind == MARGIN_KV      ? s->mean_product
                                  : kind == MARGIN_KV_GN ? s->mean_variance
                                                         : 1.0;
        for (int64_t i = 0; i < s->count; i++) {
            const double gradient = by_gradient ? s->gradient[i] + smallest_gradient : 1.0;
            s->values[i] = s->margin[i] / gradient / normaliser;
        }
        qsort(s->values, (size_t)s->count, sizeof *s->values, ascending);
        const int64_t half = s->count / 2;
        const double median =
            s->count % 2 == 1 ? s->values[half] : 0.5 * (s->values[half - 1] + s->values[half]);
        out->median[kind] += share * median;
    }
    out->variance += share * s->mean_variance;
    out->lipschitz += share * s->mean_lipschitz;
}

static enum status subset_init(struct subset *s, struct error *err) {
    const size_t rows = (size_t)s->set->count + 1;
    const size_t classes = (size_t)s->f->class_count;
    s->labelled = malloc(rows * sizeof *s->labelled);
    s->rows = malloc(rows * sizeof *s->rows);
    s->class_rows = malloc(rows * sizeof *s->class_rows);
    s->margin = malloc(rows * sizeof *s->margin);
    s->gradient = malloc(rows * sizeof *s->gradient);
    s->values = malloc(rows * sizeof *s->values);
    s->variance = malloc(classes * sizeof *s->variance);
    s->lipschitz = malloc(classes * sizeof *s->lipschitz);
    if (s->labelled == NULL || s->rows == NULL || s->class_rows == NULL || s->margin == NULL ||
        s->gradient == NULL || s->values == NULL || s->variance == NULL || s->lipschitz == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for the margins of %zu images", rows);
    }
    for (int64_t i = 0; i < s->set->count; i++) {
        if (s->set->labels[i] >= 0 && s->set->labels[i] < s->f->class_count) {
            s->labelled[s->labelled_count++] = i;
        }
    }
    const int64_t wanted = ROWS_PER_CLASS * (int64_t)s->f->class_count;
    s->count = wanted < s->labelled_count ? wanted : s->labelled_count;
    return s->count > 0 ? STATUS_OK : error_set(err, STATUS_USAGE, "no image has a class");
}

static void subset_fini(struct subset *s) {
    free(s->labelled);
    free(s->rows);
    free(s->class_rows);
    free(s->margin);
    free(s->gradient);
    free(s->values);
    free(s->variance);
    free(s->lipschitz);
}

static enum status
measure_subset(struct subset *s, uint64_t seed, uint64_t index, struct error *err) {
    struct permutation order;
    permutation_init_stream(&order, (uint64_t)s->labelled_count, seed, 0, index);
    for (int64_t i = 0; i < s->count; i++) {
        s->rows[i] = s->labelled[permutation_at(&order, (uint64_t)i)];
    }
    find_margins(s);
    return find_variances(s, err);
}

enum status margin_measure(struct margin_result *out,
                           const struct classify_set *set,
                           const struct margin_classifier *f,
                           uint64_t subset_count,
                           uint64_t seed,
                           struct error *err) {
    REQUIRE(out != NULL && set != NULL && f != NULL && f->class_count >= 2 && subset_count >= 1);
    struct subset s = {.set = set, .f = f};
    enum status status;
    *out = (struct margin_result){0};
    TRY_OR_FAIL(status, subset_init(&s, err));
    for (uint64_t i = 0; i < subset_count; i++) {
        TRY_OR_FAIL(status, measure_subset(&s, seed, i, err));
        add_medians(out, &s, 1.0 / (double)subset_count);
    }
fail:
    subset_fini(&s);
    return status;
}
