/*
 * loss: from a name to a method, and the two rules that hold for every loss: similarities must be
 * finite, and an id that stands twice in a batch (a corrupt sample was replaced) counts once. The
 * second is met by handing the method the sub-matrix of distinct ids.
 */
#include <stdlib.h>
#include <string.h>

#include "train/loss_internal.h"

static const struct loss_method *const methods[] = {
    &loss_method_clip,
    &loss_method_sogclr,
    &loss_method_nuclr,
};

enum { METHOD_COUNT = sizeof methods / sizeof methods[0] };

void loss_options_default(struct loss_options *opt) {
    *opt = (struct loss_options){.name = "nuclr",
                                 .tau = 0.01,
                                 .gamma = 0.8,
                                 .zeta0 = -0.05,
                                 .xi0 = 0.0,
                                 .zeta_momentum = 0.9,
                                 .zeta_unbiased = false};
}

const char *const *loss_names(void) {
    static const char *names[METHOD_COUNT + 1];
    for (size_t i = 0; i < METHOD_COUNT; i++) {
        names[i] = methods[i]->name;
    }
    return names;
}

static const struct loss_method *find_method(const char *name) {
    for (size_t i = 0; i < METHOD_COUNT; i++) {
        if (strcmp(methods[i]->name, name) == 0) {
            return methods[i];
        }
    }
    return NULL;
}

static enum status check_options(const struct loss_options *o, struct error *err) {
    if (!(o->tau > 0.0) || !(o->gamma > 0.0 && o->gamma <= 1.0) ||
        !(o->zeta_momentum > 0.0 && o->zeta_momentum <= 1.0) || !isfinite(o->tau) ||
        !isfinite(o->zeta0) || !isfinite(o->xi0)) {
        return error_set(
            err, STATUS_USAGE,
            "loss %s: tau must be above 0, gamma and zeta momentum in (0, 1], zeta0 and xi0 finite",
            o->name);
    }
    return STATUS_OK;
}

static enum status allocate_scratch(struct loss *l, struct error *err) {
    const size_t b = (size_t)l->max_batch_count;
    bool ok = true;
    for (size_t i = 0; i < sizeof l->gathered / sizeof l->gathered[0]; i++) {
        l->gathered[i] = calloc(b, sizeof *l->gathered[i]);
        ok = ok && l->gathered[i] != NULL;
    }
    l->sums = calloc(b, sizeof *l->sums);
    l->places = calloc(b, sizeof *l->places);
    l->ids = calloc(b, sizeof *l->ids);
    l->order = calloc(b, sizeof *l->order);
    l->similarity = calloc(b * b, sizeof *l->similarity);
    l->gradient = calloc(b * b, sizeof *l->gradient);
    ok = ok && l->sums != NULL && l->places != NULL && l->ids != NULL && l->order != NULL &&
         l->similarity != NULL && l->gradient != NULL;
    return ok ? STATUS_OK
              : error_set(err, STATUS_NOMEM, "loss %s: no memory for a batch of %zu",
                          l->options.name, b);
}

enum status loss_create(struct loss **out,
                        const struct loss_options *opt,
                        struct sample_state *state,
                        uint64_t samples_count,
                        int64_t max_batch_count,
                        struct error *err) {
    REQUIRE(out != NULL && opt != NULL && opt->name != NULL && state != NULL);
    REQUIRE(max_batch_count >= 2 && max_batch_count <= LOSS_MAX_BATCH);
    *out = NULL;
    const struct loss_method *method = find_method(opt->name);
    if (method == NULL) {
        return error_set(err, STATUS_USAGE, "there is no loss '%s'; see --help for the list",
                         opt->name);
    }
    TRY(check_options(opt, err));
    if (samples_count < 2) {
        return error_set(err, STATUS_USAGE,
                         "loss %s: a dataset of fewer than two samples has no contrasts",
                         opt->name);
    }
    struct loss *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return error_set(err, STATUS_NOMEM, "loss %s: out of memory", opt->name);
    }
    l->method = method;
    l->options = *opt;
    l->options.name = method->name;
    l->state = state;
    l->samples_count = samples_count;
    l->max_batch_count = max_batch_count;
    enum status s;
    TRY_OR_FAIL(s, allocate_scratch(l, err));
    TRY_OR_FAIL(s, method->create(l, err));
    *out = l;
    return STATUS_OK;
fail:
    loss_destroy(l);
    return s;
}

void loss_destroy(struct loss *l) {
    if (l == NULL) {
        return;
    }
    for (size_t i = 0; i < sizeof l->gathered / sizeof l->gathered[0]; i++) {
        free(l->gathered[i]);
    }
    free(l->sums);
    free(l->places);
    free(l->ids);
    free(l->order);
    free(l->similarity);
    free(l->gradient);
    free(l);
}

int32_t loss_scalars(struct loss *l, const struct loss_scalar **out) {
    *out = l->scalars;
    return l->scalar_count;
}

static int compare_by_id(const void *a, const void *b) {
    const struct loss_order *x = a;
    const struct loss_order *y = b;
    if (x->id != y->id) {
        return x->id < y->id ? -1 : 1;
    }
    return x->place < y->place ? -1 : x->place > y->place ? 1 : 0;
}

static int compare_by_place(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

/* Fills places with the first position of every id, ascending; returns how many there are. */
static int64_t distinct_places(struct loss *l, const struct loss_input *in) {
    for (int64_t i = 0; i < in->batch_count; i++) {
        l->order[i] = (struct loss_order){.id = in->sample_ids[i], .place = i};
    }
    qsort(l->order, (size_t)in->batch_count, sizeof *l->order, compare_by_id);
    int64_t count = 0;
    for (int64_t i = 0; i < in->batch_count; i++) {
        if (i == 0 || l->order[i].id != l->order[i - 1].id) {
            l->places[count++] = l->order[i].place;
        }
    }
    qsort(l->places, (size_t)count, sizeof *l->places, compare_by_place);
    return count;
}

/* The method on the `count` distinct ids; the other rows and columns of the gradient stay zero. */
static void
step_distinct(struct loss *l, const struct loss_input *in, struct loss_output *out, int64_t count) {
    const int64_t b = in->batch_count;
    for (int64_t i = 0; i < count; i++) {
        l->ids[i] = in->sample_ids[l->places[i]];
        for (int64_t j = 0; j < count; j++) {
            l->similarity[i * count + j] = in->similarity[l->places[i] * b + l->places[j]];
        }
    }
    memset(l->gradient, 0, (size_t)(count * count) * sizeof *l->gradient);
    struct loss_input part = *in;
    part.similarity = l->similarity;
    part.sample_ids = l->ids;
    part.batch_count = count;
    struct loss_output part_out = {.gradient = l->gradient};
    l->method->step(l, &part, &part_out);
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < count; j++) {
            out->gradient[l->places[i] * b + l->places[j]] = l->gradient[i * count + j];
        }
    }
    out->value = part_out.value;
    out->objective = part_out.objective;
}

enum status
loss_step(struct loss *l, const struct loss_input *in, struct loss_output *out, struct error *err) {
    REQUIRE(l != NULL && in != NULL && out != NULL && out->gradient != NULL);
    REQUIRE(in->batch_count >= 2 && in->batch_count <= l->max_batch_count);
    const int64_t b = in->batch_count;
    for (int64_t e = 0; e < b * b; e++) {
        if (!isfinite(in->similarity[e])) {
            return error_set(err, STATUS_CORRUPT,
                             "loss %s: similarity of image %lld and text %lld is not finite; "
                             "lower the learning rate",
                             l->options.name, (long long)(e / b), (long long)(e % b));
        }
    }
    for (int64_t i = 0; i < b; i++) {
        REQUIRE(in->sample_ids[i] < sample_state_id_space(l->state));
    }
    memset(out->gradient, 0, (size_t)(b * b) * sizeof *out->gradient);
    out->value = 0.0;
    out->objective = 0.0;
    const int64_t count = distinct_places(l, in);
    if (count == b) {
        l->method->step(l, in, out);
    } else if (count >= 2) {
        step_distinct(l, in, out, count);
    }
    return STATUS_OK;
}

double side_log_mean(const struct loss_side *s, int64_t anchor, double tau, const float *zeta) {
    double largest = -HUGE_VAL;
    for (int64_t c = 0; c < s->count; c++) {
        const double e = side_exponent(s, anchor, c, tau, zeta);
        largest = c != anchor && e > largest ? e : largest;
    }
    double sum = 0.0;
    for (int64_t c = 0; c < s->count; c++) {
        sum += c == anchor ? 0.0 : exp(side_exponent(s, anchor, c, tau, zeta) - largest);
    }
    return largest + log(sum) - log((double)(s->count - 1));
}

double side_add_surrogate(const struct loss_side *s,
                          int64_t anchor,
                          double tau,
                          const float *zeta,
                          double log_norm) {
    const double share = 1.0 / (double)s->count;
    double total = 0.0;
    double value = 0.0;
    for (int64_t c = 0; c < s->count; c++) {
        if (c == anchor) {
            continue;
        }
        const double w = exp(side_exponent(s, anchor, c, tau, zeta) - log_norm) * share;
        side_add(s, anchor, c, w);
        total += w;
        value += w * side_delta(s, anchor, c);
    }
    side_add(s, anchor, anchor, -total);
    return value;
}
