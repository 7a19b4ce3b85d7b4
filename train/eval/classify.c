/*
 * classify: scores from train/scores, ranks and votes on the host.
 */
#include "train/eval/classify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "train/eval/scores.h"

void classify_result_fini(struct classify_result *r) {
    free(r->class_top1);
    free(r->class_images);
    memset(r, 0, sizeof *r);
}

static enum status begin(struct classify_result *r, int32_t class_count, struct error *err) {
    memset(r, 0, sizeof *r);
    r->class_count = class_count;
    r->class_top1 = calloc((size_t)class_count, sizeof *r->class_top1);
    r->class_images = calloc((size_t)class_count, sizeof *r->class_images);
    return r->class_top1 != NULL && r->class_images != NULL
               ? STATUS_OK
               : error_set(err, STATUS_NOMEM, "no memory for %d classes", (int)class_count);
}

/* Probability that k - 1 classes, sampled from the class_count - 1 others, are none of the `rank`
 * better ones: C(others - rank, k - 1) / C(others, k - 1). */
static double chance_among(int32_t k, int32_t class_count, int32_t rank) {
    double chance = 1.0;
    for (int32_t i = 0; i < k - 1; i++) {
        const double left = (double)(class_count - 1 - rank - i);
        chance *= left > 0.0 ? left / (double)(class_count - 1 - i) : 0.0;
    }
    return class_count >= k ? chance : (double)NAN;
}

static void add_query(struct classify_result *r, int32_t label, int32_t rank) {
    r->images++;
    r->class_images[label]++;
    r->class_top1[label] += rank < 1 ? 1.0 : 0.0;
    r->top1 += rank < 1 ? 1.0 : 0.0;
    r->top5 += rank < 5 ? 1.0 : 0.0;
    r->avg2 += chance_among(2, r->class_count, rank);
    r->avg5 += chance_among(5, r->class_count, rank);
    r->avg10 += chance_among(10, r->class_count, rank);
}

/* Converts sums to percent. */
static enum status finish(struct classify_result *r, enum status s, struct error *err) {
    if (s == STATUS_OK && r->images == 0) {
        s = error_set(err, STATUS_USAGE, "no image has the label of a class");
    }
    if (s != STATUS_OK) {
        classify_result_fini(r);
        return s;
    }
    const double percent = 100.0 / (double)r->images;
    int32_t classes = 0;
    r->top1 *= percent;
    r->top5 *= percent;
    r->avg2 *= percent;
    r->avg5 *= percent;
    r->avg10 *= percent;
    for (int32_t c = 0; c < r->class_count; c++) {
        r->class_top1[c] = r->class_images[c] > 0
                               ? 100.0 * r->class_top1[c] / (double)r->class_images[c]
                               : (double)NAN;
        if (r->class_images[c] > 0) {
            r->per_class += r->class_top1[c];
            classes++;
        }
    }
    r->per_class /= (double)classes;
    return STATUS_OK;
}

/* ---- class vectors ---- */

struct by_vectors {
    struct classify_result *result;
    const int32_t *labels;
    const float *bias;
};

static enum status rank_query(void *cookie, int64_t query, const float *scores, struct error *err) {
    struct by_vectors *v = cookie;
    const int32_t label = v->labels[query];
    const int32_t count = v->result->class_count;
    (void)err;
    if (label < 0 || label >= count) {
        return STATUS_OK;
    }
    const float own = scores[label] + (v->bias != NULL ? v->bias[label] : 0.0f);
    int32_t rank = 0;
    for (int32_t c = 0; c < count; c++) {
        const float other = scores[c] + (v->bias != NULL ? v->bias[c] : 0.0f);
        rank += c != label && !(other < own) ? 1 : 0;
    }
    add_query(v->result, label, rank);
    return STATUS_OK;
}

enum status classify_by_vectors(struct classify_result *out,
                                struct device *dev,
                                const struct classify_set *queries,
                                const float *vectors,
                                const float *bias,
                                int32_t class_count,
                                struct error *err) {
    REQUIRE(class_count >= 1 && class_count <= CLASSIFY_MAX_CLASSES);
    struct by_vectors v = {.result = out, .labels = queries->labels, .bias = bias};
    enum status s = begin(out, class_count, err);
    THEN(s, scores_visit(dev, queries->rows, queries->count, vectors, class_count, queries->dim,
                         rank_query, &v, err));
    return finish(out, s, err);
}

static double square_of(const float *row, int64_t dim) {
    double sum = 0.0;
    for (int64_t d = 0; d < dim; d++) {
        sum += (double)row[d] * (double)row[d];
    }
    return sum;
}

/* 0 for a row of zeros. */
static double inverse_length(double square) {
    return square > 0.0 ? 1.0 / sqrt(square) : 0.0;
}

void classify_normalize(float *rows, int64_t count, int64_t dim) {
    for (int64_t i = 0; i < count; i++) {
        const double scale = inverse_length(square_of(rows + i * dim, dim));
        for (int64_t d = 0; d < dim; d++) {
            rows[i * dim + d] = (float)((double)rows[i * dim + d] * scale);
        }
    }
}

/* ---- neighbours ---- */

struct neighbour {
    float score;
    int64_t row;
};

/* One rule's neighbours of a query. */
struct voters {
    struct classify_result *result;
    struct neighbour_rule rule;
    struct neighbour *nearest; /* (rule.neighbours): a heap, the worst at its top */
    int32_t held;
};

struct by_neighbours {
    const struct classify_set *queries;
    const struct classify_set *bank;
    float *offset; /* (bank->count): -|row|^2 / 2 */
    float *scale;  /* (bank->count): 1 / |row|, 0 for a row of zeros */
    double *votes; /* (class_count) */
    struct voters *voters;
    size_t voters_count;
};

/* Whether a is dropped before b. */
static bool is_worse(const struct neighbour *a, const struct neighbour *b) {
    return a->score != b->score ? a->score < b->score : a->row > b->row;
}

static void sift_down(struct neighbour *heap, int32_t count, int32_t at) {
    for (;;) {
        int32_t worst = at;
        for (int32_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++) {
            worst = is_worse(&heap[child], &heap[worst]) ? child : worst;
        }
        if (worst == at) {
            return;
        }
        const struct neighbour moved = heap[at];
        heap[at] = heap[worst];
        heap[worst] = moved;
        at = worst;
    }
}

static void offer(struct voters *n, struct neighbour candidate) {
    if (n->held < n->rule.neighbours) {
        n->nearest[n->held++] = candidate;
        for (int32_t at = n->held / 2 - 1; n->held == n->rule.neighbours && at >= 0; at--) {
            sift_down(n->nearest, n->held, at);
        }
    } else if (is_worse(&n->nearest[0], &candidate)) {
        n->nearest[0] = candidate;
        sift_down(n->nearest, n->held, 0);
    }
}

/* Collects the nearest rows with a class for a query of length 1 / query_scale. */
static void find_nearest(struct voters *v,
                         const struct by_neighbours *n,
                         const float *products,
                         float query_scale) {
    const float *offset = v->rule.by == NEIGHBOURS_DISTANCE ? n->offset : NULL;
    const float *scale = v->rule.by == NEIGHBOURS_COSINE ? n->scale : NULL;
    const int32_t classes = v->result->class_count;
    v->held = 0;
    for (int64_t i = 0; i < n->bank->count; i++) {
        const float score = (scale != NULL ? products[i] * (scale[i] * query_scale) : products[i]) +
                            (offset != NULL ? offset[i] : 0.0f);
        if (n->bank->labels[i] >= 0 && n->bank->labels[i] < classes) {
            offer(v, (struct neighbour){score, i});
        }
    }
}

/* The rank of the query's class by votes. */
static int32_t count_votes(const struct voters *v, const struct by_neighbours *n, int32_t label) {
    const int32_t classes = v->result->class_count;
    const double temperature = v->rule.temperature;
    float best = v->nearest[0].score;
    for (int32_t i = 1; i < v->held; i++) {
        best = v->nearest[i].score > best ? v->nearest[i].score : best;
    }
    memset(n->votes, 0, (size_t)classes * sizeof *n->votes);
    for (int32_t i = 0; i < v->held; i++) {
        const double weight =
            temperature > 0.0 ? exp((double)(v->nearest[i].score - best) / temperature) : 1.0;
        n->votes[n->bank->labels[v->nearest[i].row]] += weight;
    }
    int32_t rank = 0;
    for (int32_t c = 0; c < classes; c++) {
        const double votes = n->votes[label]; /* a class without votes ranks last */
        const bool wins_tie = c < label || votes == 0.0;
        rank += c != label && (n->votes[c] > votes || (n->votes[c] == votes && wins_tie)) ? 1 : 0;
    }
    return rank;
}

static enum status vote(void *cookie, int64_t query, const float *products, struct error *err) {
    const struct by_neighbours *n = cookie;
    const int32_t label = n->queries->labels[query];
    if (label < 0 || label >= n->voters[0].result->class_count) {
        return STATUS_OK;
    }
    const float query_scale = (float)inverse_length(
        square_of(n->queries->rows + query * n->queries->dim, n->queries->dim));
    for (size_t k = 0; k < n->voters_count; k++) {
        struct voters *v = &n->voters[k];
        find_nearest(v, n, products, query_scale);
        FAIL_IF(v->held == 0, err, STATUS_USAGE, "no neighbour has the label of a class");
        add_query(v->result, label, count_votes(v, n, label));
    }
    return STATUS_OK;
}

static enum status take_neighbours(struct by_neighbours *n,
                                   struct classify_result *out,
                                   int32_t class_count,
                                   const struct neighbour_rule *rules,
                                   struct error *err) {
    n->offset = calloc((size_t)n->bank->count + 1, sizeof *n->offset);
    n->scale = calloc((size_t)n->bank->count + 1, sizeof *n->scale);
    n->votes = calloc((size_t)class_count, sizeof *n->votes);
    n->voters = calloc(n->voters_count, sizeof *n->voters);
    TRY_MEMORY(n->offset != NULL && n->scale != NULL && n->votes != NULL ? n->voters : NULL, err,
               "no memory for neighbours");
    for (size_t k = 0; k < n->voters_count; k++) {
        struct voters *v = &n->voters[k];
        *v = (struct voters){.result = &out[k], .rule = rules[k]};
        v->nearest = calloc((size_t)rules[k].neighbours, sizeof *v->nearest);
        TRY_MEMORY(v->nearest, err, "no memory for neighbours");
        TRY(begin(&out[k], class_count, err));
    }
    for (int64_t i = 0; i < n->bank->count; i++) {
        const double square = square_of(n->bank->rows + i * n->bank->dim, n->bank->dim);
        n->offset[i] = (float)(-0.5 * square);
        n->scale[i] = (float)inverse_length(square);
    }
    return STATUS_OK;
}

enum status classify_by_neighbours(struct classify_result *out,
                                   struct device *dev,
                                   const struct classify_set *queries,
                                   const struct classify_set *bank,
                                   int32_t class_count,
                                   const struct neighbour_rule *rules,
                                   size_t rule_count,
                                   struct error *err) {
    REQUIRE(class_count >= 1 && class_count <= CLASSIFY_MAX_CLASSES && rule_count >= 1);
    REQUIRE(queries->dim == bank->dim);
    for (size_t k = 0; k < rule_count; k++) {
        REQUIRE(rules[k].neighbours >= 1 && rules[k].neighbours <= CLASSIFY_MAX_NEIGHBOURS);
        REQUIRE(rules[k].temperature >= 0.0);
    }
    struct by_neighbours n = {.queries = queries, .bank = bank, .voters_count = rule_count};
    memset(out, 0, rule_count * sizeof *out);
    enum status s = take_neighbours(&n, out, class_count, rules, err);
    THEN(s, scores_visit(dev, queries->rows, queries->count, bank->rows, bank->count, bank->dim,
                         vote, &n, err));
    for (size_t k = 0; k < rule_count; k++) {
        s = finish(&out[k], s, err);
        out[k].avg2 = out[k].avg5 = out[k].avg10 = NAN;
        free(n.voters != NULL ? n.voters[k].nearest : NULL);
    }
    for (size_t k = 0; k < rule_count && s != STATUS_OK; k++) {
        classify_result_fini(&out[k]);
    }
    free(n.offset);
    free(n.scale);
    free(n.votes);
    free(n.voters);
    return s;
}

/* ---- numbers of a result ---- */

/* In the order of JSON. */
static const struct measure {
    const char *name;
    size_t offset; /* of a double in struct classify_result */
} measures[] = {
    {"top1", offsetof(struct classify_result, top1)},
    {"top5", offsetof(struct classify_result, top5)},
    {"avg2", offsetof(struct classify_result, avg2)},
    {"avg5", offsetof(struct classify_result, avg5)},
    {"avg10", offsetof(struct classify_result, avg10)},
    {"mean_per_class_recall", offsetof(struct classify_result, per_class)},
};
enum { MEASURES = sizeof measures / sizeof measures[0] };

void classify_write_json(struct json_writer *w, const struct classify_result *r) {
    for (size_t i = 0; i < MEASURES; i++) {
        const double value = *(const double *)((const char *)r + measures[i].offset);
        if (!isnan(value)) {
            json_rounded(w, measures[i].name, value);
        }
    }
    json_u64(w, "images", r->images);
    json_i64(w, "classes", r->class_count);
}

/* ---- few rows of every class ---- */

void classify_means(float *vectors,
                    const struct classify_set *set,
                    int32_t class_count,
                    int64_t shots,
                    uint64_t seed,
                    uint64_t draw) {
    const int64_t dim = set->dim;
    for (int32_t c = 0; c < class_count; c++) {
        float *mean = vectors + (int64_t)c * dim;
        int64_t left = 0; /* remaining rows of the class; wanted: rows still to be chosen */
        struct rng r;
        rng_init(&r, seed, RNG_SHOTS, draw, (uint64_t)c);
        memset(mean, 0, (size_t)dim * sizeof *mean);
        for (int64_t i = 0; i < set->count; i++) {
            left += set->labels[i] == c ? 1 : 0;
        }
        int64_t wanted = shots < left ? shots : left;
        const float count = (float)wanted;
        for (int64_t i = 0; wanted > 0; i++) {
            if (set->labels[i] != c || rng_uniform(&r) * (double)left-- >= (double)wanted) {
                continue;
            }
            wanted--;
            for (int64_t d = 0; d < dim; d++) {
                mean[d] += set->rows[i * dim + d] / count;
            }
        }
    }
}

/* Number i of a result: the measures, then the classes'. */
static double *number_of(struct classify_result *r, size_t i) {
    return i < MEASURES ? (double *)((char *)r + measures[i].offset) : &r->class_top1[i - MEASURES];
}

enum status classify_by_few(struct classify_result *mean,
                            struct classify_result *deviation,
                            struct device *dev,
                            const struct classify_set *queries,
                            const struct classify_set *train,
                            int32_t class_count,
                            int64_t shots,
                            uint64_t draws,
                            uint64_t seed,
                            struct error *err) {
    REQUIRE(shots >= 1 && draws >= 1 && train->dim == queries->dim);
    const size_t numbers = MEASURES + (size_t)class_count;
    float *vectors = calloc((size_t)class_count, (size_t)train->dim * sizeof *vectors);
    memset(deviation, 0, sizeof *deviation);
    enum status s = begin(mean, class_count, err);
    THEN(s, begin(deviation, class_count, err));
    if (s == STATUS_OK && vectors == NULL) {
        s = error_set(err, STATUS_NOMEM, "no memory for the means of %d classes", (int)class_count);
    }
    for (uint64_t draw = 0; draw < draws && s == STATUS_OK; draw++) {
        struct classify_result one = {0};
        classify_means(vectors, train, class_count, shots, seed, draw);
        s = classify_by_vectors(&one, dev, queries, vectors, NULL, class_count, err);
        for (size_t i = 0; i < numbers && s == STATUS_OK; i++) {
            const double x = *number_of(&one, i);
            const double before = x - *number_of(mean, i);
            *number_of(mean, i) += before / (double)(draw + 1);
            *number_of(deviation, i) += before * (x - *number_of(mean, i));
        }
        for (int32_t c = 0; c < class_count && s == STATUS_OK; c++) {
            mean->class_images[c] = deviation->class_images[c] = one.class_images[c];
        }
        mean->images = deviation->images = one.images;
        classify_result_fini(&one);
    }
    for (size_t i = 0; i < numbers && s == STATUS_OK; i++) {
        double *squares = number_of(deviation, i);
        *squares = draws > 1 ? sqrt(*squares / (double)(draws - 1)) : (double)NAN;
    }
    free(vectors);
    if (s != STATUS_OK) {
        classify_result_fini(mean);
        classify_result_fini(deviation);
    }
    return s;
}
