/*
 * loss: from a name to a method, and the two rules that hold for every loss: similarities must be
 * finite, and an id that stands twice in a batch (a corrupt sample was replaced) counts once. The
 * second is met by handing the method the sub-matrix of distinct ids.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/sort.h"
#include "train/loss/loss_internal.h"
#include "train/optim/schedule.h"

static const struct loss_method *const methods[] = {
    &loss_method_clip,        &loss_method_siglip,       &loss_method_cyclip,
    &loss_method_dcl,         &loss_method_hcl,          &loss_method_rince,
    &loss_method_sogclr,      &loss_method_isogclr,      &loss_method_nuclr,
    &loss_method_emc2,        &loss_method_nuclr_frozen, &loss_method_nuclr_noxi,
    &loss_method_simclr,      &loss_method_fastclip_v0,  &loss_method_fastclip_v1,
    &loss_method_fastclip_v2, &loss_method_fastclip_v3,
};

static const struct loss_method *const references[] = {
    &loss_reference_sogclr,
    &loss_reference_isogclr,
    &loss_reference_nuclr,
};

enum {
    METHOD_COUNT = sizeof methods / sizeof methods[0],
    REFERENCE_COUNT = sizeof references / sizeof references[0],
};

void loss_options_default(struct loss_options *opt) {
    *opt = (struct loss_options){.name = "nuclr",
                                 .zeta0 = -0.05,
                                 .zeta_momentum = 0.9,
                                 .tau_momentum = 0.9,
                                 .tau_plus = 0.1,
                                 .beta = 0.5,
                                 .q = 0.1,
                                 .lambda = 0.01,
                                 .cyclic_self = 0.1,
                                 .cyclic_cross = 0.1,
                                 .bias0 = -10.0,
                                 .burn_in = 0.5};
}

const char *const *loss_names(void) {
    static const char *names[METHOD_COUNT + 1];
    for (size_t i = 0; i < METHOD_COUNT; i++) {
        names[i] = methods[i]->name;
    }
    return names;
}

static const struct loss_method *
find_method(const struct loss_method *const *list, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i]->name, name) == 0) {
            return list[i];
        }
    }
    return NULL;
}

static enum status
choose_method(const struct loss_method **out, const struct loss_options *o, struct error *err) {
    *out = find_method(methods, METHOD_COUNT, o->name);
    if (*out == NULL) {
        return error_set(err, STATUS_USAGE, "there is no loss '%s'; see --help for the list",
                         o->name);
    }
    if ((o->views ? (*out)->step_views : (*out)->step) == NULL) {
        return error_set(err, STATUS_USAGE,
                         o->views ? "loss %s is of images with texts; of two views are simclr, "
                                    "dcl, hcl, rince, sogclr, isogclr and emc2"
                                  : "loss %s is of two views of images; for pairs it is clip",
                         o->name);
    }
    if (o->parity == LOSS_PARITY_REFERENCE && o->views) {
        return error_set(err, STATUS_USAGE, "loss %s has no reference code for two views", o->name);
    }
    if (o->parity == LOSS_PARITY_REFERENCE) {
        *out = find_method(references, REFERENCE_COUNT, o->name);
        if (*out == NULL) {
            return error_set(err, STATUS_USAGE,
                             "loss %s has no reference code to be equal to; sogclr, isogclr and "
                             "nuclr have",
                             o->name);
        }
    }
    return STATUS_OK;
}

/* Puts the loss's own defaults in the place of zeros. */
static void complete_options(struct loss_options *o, const struct loss_method *m) {
    const bool individual = m->temperature == LOSS_TEMPERATURE_INDIVIDUAL;
    o->name = m->name;
    o->tau_min = o->tau_min == 0.0 ? m->tau_min : o->tau_min;
    o->tau_max = o->tau_max == 0.0 ? m->tau_max : o->tau_max;
    o->tau_lr = o->tau_lr == 0.0 ? m->tau_lr : o->tau_lr;
    o->rho = o->rho == 0.0 ? m->rho : o->rho;
    o->gamma = o->gamma == 0.0 ? m->gamma : o->gamma;
    o->gamma = o->gamma == 0.0 ? 0.8 : o->gamma;
    if (o->gamma_schedule == LOSS_GAMMA_OWN) {
        o->gamma_schedule = m->gamma_cosine ? LOSS_GAMMA_COSINE : LOSS_GAMMA_CONSTANT;
    }
    o->tau = o->tau == 0.0 ? (o->views ? m->views_tau : m->tau) : o->tau;
    o->temperature = o->temperature == LOSS_TEMPERATURE_OWN ? m->temperature : o->temperature;
    const double least = !individual ? 0.01 : o->views ? 0.05 : 0.005;
    o->tau_min = o->tau_min == 0.0 ? least : o->tau_min;
    o->tau_max = o->tau_max == 0.0 ? (individual && !o->views ? 0.05 : 1.0) : o->tau_max;
    o->tau_lr = o->tau_lr == 0.0 && individual ? (o->views ? 0.03 : 1e-3) : o->tau_lr;
    o->rho = o->rho == 0.0 ? (!individual ? 6.5 : o->views ? 0.4 : 8.0) : o->rho;
}

/* In (0, 1]. */
static bool is_share(double x) {
    return x > 0.0 && x <= 1.0;
}

static enum status
check_temperature(const struct loss_options *o, const struct loss_method *m, struct error *err) {
    static const char *const names[] = {"own", "constant", "global", "individual"};
    const bool constant = o->temperature == LOSS_TEMPERATURE_CONSTANT &&
                          m->temperature != LOSS_TEMPERATURE_INDIVIDUAL;
    /* FastCLIP's form of a learned temperature is one of pairs. */
    const bool global = o->temperature == LOSS_TEMPERATURE_GLOBAL && m->may_learn_tau &&
                        !(o->views && m == &loss_method_sogclr);
    if (o->temperature != m->temperature && !constant && !global) {
        return error_set(
            err, STATUS_USAGE, "loss %s has no %s temperature%s", o->name, names[o->temperature],
            o->temperature == LOSS_TEMPERATURE_INDIVIDUAL ? "; isogclr and fastclip-v2 have" : "");
    }
    if (o->temperature != LOSS_TEMPERATURE_CONSTANT &&
        !(o->tau_min > 0.0 && o->tau_min <= o->tau && o->tau <= o->tau_max)) {
        return error_set(err, STATUS_USAGE,
                         "loss %s: its temperature starts at %g, outside its bounds %g and %g",
                         o->name, o->tau, o->tau_min, o->tau_max);
    }
    return STATUS_OK;
}

static enum status
check_options(const struct loss_options *o, const struct loss_method *m, struct error *err) {
    const char *wrong = NULL;
    const double all[] = {o->tau,    o->zeta0,         o->xi0,          o->tau_max,      o->tau_lr,
                          o->rho,    o->beta,          o->cyclic_self,  o->cyclic_cross, o->bias0,
                          o->gamma,  o->zeta_momentum, o->tau_momentum, o->tau_plus,     o->q,
                          o->lambda, o->burn_in};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        wrong = isfinite(all[i]) ? wrong : "every number must be finite";
    }
    wrong =
        o->tau > 0.0 && o->tau_lr >= 0.0 ? wrong : "tau must be above 0, its step size not below";
    wrong = is_share(o->gamma) && is_share(o->zeta_momentum) && is_share(o->tau_momentum)
                ? wrong
                : "gamma and the momenta of zeta and tau must be in (0, 1]";
    wrong = o->tau_plus >= 0.0 && o->tau_plus < 1.0 && o->beta >= 0.0
                ? wrong
                : "tau-plus must be in [0, 1) and beta not below 0";
    wrong = is_share(o->q) && is_share(o->lambda) ? wrong : "q and lambda must be in (0, 1]";
    wrong = o->burn_in >= 0.0 && o->burn_in < 1.0 ? wrong : "burn-in must be in [0, 1)";
    wrong = o->parity == LOSS_PARITY_ALGORITHM || o->gamma_schedule == LOSS_GAMMA_CONSTANT
                ? wrong
                : "its published code has a constant gamma";
    if (wrong != NULL) {
        return error_set(err, STATUS_USAGE, "loss %s: %s", o->name, wrong);
    }
    return check_temperature(o, m, err);
}

static enum status allocate_scratch(struct loss *l, struct error *err) {
    const size_t b = (size_t)l->max_batch_count;
    const size_t rows = l->options.views ? 2 * b : b;
    bool ok = true;
    for (size_t i = 0; i < sizeof l->gathered / sizeof l->gathered[0]; i++) {
        l->gathered[i] = calloc(b, sizeof *l->gathered[i]);
        ok = ok && l->gathered[i] != NULL;
    }
    l->gathered_ids = calloc(b, sizeof *l->gathered_ids);
    l->sums = calloc(rows, sizeof *l->sums);
    l->places = calloc(rows, sizeof *l->places);
    l->ids = calloc(b, sizeof *l->ids);
    l->order = calloc(b, sizeof *l->order);
    l->is_first = calloc(b, sizeof *l->is_first);
    ok = ok && l->gathered_ids != NULL && l->sums != NULL && l->places != NULL && l->ids != NULL &&
         l->order != NULL && l->is_first != NULL;
    for (int i = 0; i < 2; i++) {
        l->view_row[i] = calloc(rows, sizeof *l->view_row[i]);
        ok = ok && l->view_row[i] != NULL;
    }
    for (int i = 0; i < (l->method->uses_self ? 6 : 2); i++) {
        l->matrix[i] = calloc(rows * rows, sizeof *l->matrix[i]);
        ok = ok && l->matrix[i] != NULL;
    }
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
    const struct loss_method *method = NULL;
    struct loss_options options = *opt;
    TRY(choose_method(&method, opt, err));
    complete_options(&options, method);
    TRY(check_options(&options, method, err));
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
    l->options = options;
    l->scale.value = -log(options.tau);
    l->state = state;
    l->samples_count = samples_count;
    l->max_batch_count = max_batch_count;
    for (int side = 0; side < SIDE_COUNT; side++) {
        l->log_u[side] = -1;
        l->zeta[side] = -1;
    }
    enum status s;
    TRY_OR_FAIL(s, allocate_scratch(l, err));
    TRY_OR_FAIL(s, method->create(l, err));
    TRY_OR_FAIL(s, sample_state_add_u64(state, "visits", SAMPLE_STATE_COUNT, &l->visits, err));
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
    free(l->view_row[0]);
    free(l->view_row[1]);
    free(l->gathered_ids);
    free(l->sums);
    free(l->places);
    free(l->ids);
    free(l->order);
    free(l->is_first);
    for (size_t i = 0; i < sizeof l->matrix / sizeof l->matrix[0]; i++) {
        free(l->matrix[i]);
    }
    free(l);
}

bool loss_uses_self(const struct loss *l) {
    return l->method->uses_self;
}

int32_t loss_scalars(struct loss *l, const struct loss_scalar **out) {
    *out = l->scalars;
    return l->scalar_count;
}

static int by_id_and_place(const void *a, const void *b) {
    const struct loss_order *x = a;
    const struct loss_order *y = b;
    if (x->id != y->id) {
        return x->id < y->id ? -1 : 1;
    }
    return (x->place > y->place) - (x->place < y->place);
}

static int by_place(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Fills places with the first position of every id, ascending; returns how many there are. */
static int64_t distinct_places(struct loss *l, const struct loss_input *in) {
    const int64_t b = in->batch_count;
    for (int64_t i = 0; i < b; i++) {
        l->order[i] = (struct loss_order){.id = in->sample_ids[i], .place = i};
    }
    l->order_count = b;
    sort_in_place(l->order, (size_t)b, sizeof *l->order, by_id_and_place);
    for (int64_t i = 0; i < b; i++) {
        l->is_first[l->order[i].place] = i == 0 || l->order[i].id != l->order[i - 1].id;
    }
    int64_t count = 0;
    for (int64_t i = 0; i < b; i++) {
        l->places[count] = i;
        count += l->is_first[i];
    }
    for (int64_t i = 0; i < count && l->options.views; i++) {
        l->places[count + i] = b + l->places[i];
    }
    return count;
}

/* The rows and columns of the `count` distinct ids. */
static void
take_places(const struct loss *l, float *out, const float *in, int64_t b, int64_t count) {
    count *= l->options.views ? 2 : 1;
    b *= l->options.views ? 2 : 1;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < count; j++) {
            out[i * count + j] = in[l->places[i] * b + l->places[j]];
        }
    }
}

static void
put_places(const struct loss *l, float *out, const float *in, int64_t b, int64_t count) {
    count *= l->options.views ? 2 : 1;
    b *= l->options.views ? 2 : 1;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < count; j++) {
            out[l->places[i] * b + l->places[j]] = in[i * count + j];
        }
    }
}

int64_t loss_find_id(const struct loss *l, int64_t count, uint64_t id) {
    int64_t low = 0;
    int64_t high = l->order_count;
    while (low < high) { /* the first of equal ids, which is the lowest place */
        const int64_t middle = low + (high - low) / 2;
        if (l->order[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == l->order_count || l->order[low].id != id) {
        return -1;
    }
    const int64_t *place =
        bsearch(&l->order[low].place, l->places, (size_t)count, sizeof *place, by_place);
    return place - l->places;
}

static void take_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    (l->options.views ? l->method->step_views : l->method->step)(l, in, out);
}

/* The method on the distinct ids; the other rows and columns of the gradient stay zero. */
static void
step_distinct(struct loss *l, const struct loss_input *in, struct loss_output *out, int64_t count) {
    const int64_t b = in->batch_count;
    struct loss_input part = *in;
    struct loss_output part_out = *out;
    const int64_t rows = l->options.views ? 2 * count : count;
    part.sample_ids = l->ids;
    part.batch_count = count;
    part.similarity = l->matrix[0];
    part_out.gradient = l->matrix[1];
    take_places(l, l->matrix[0], in->similarity, b, count);
    memset(l->matrix[1], 0, (size_t)(rows * rows) * sizeof(float));
    if (l->method->uses_self) {
        part.image_similarity = l->matrix[2];
        part.text_similarity = l->matrix[3];
        part_out.image_gradient = l->matrix[4];
        part_out.text_gradient = l->matrix[5];
        take_places(l, l->matrix[2], in->image_similarity, b, count);
        take_places(l, l->matrix[3], in->text_similarity, b, count);
    }
    take_step(l, &part, &part_out);
    put_places(l, out->gradient, part_out.gradient, b, count);
    if (l->method->uses_self) {
        put_places(l, out->image_gradient, part_out.image_gradient, b, count);
        put_places(l, out->text_gradient, part_out.text_gradient, b, count);
    }
    out->value = part_out.value;
    out->objective = part_out.objective;
    out->tau = part_out.tau;
}

static enum status check_finite(const struct loss *l,
                                const float *similarity,
                                int64_t b,
                                const char *rows,
                                const char *columns,
                                struct error *err) {
    for (int64_t e = 0; e < b * b; e++) {
        if (!isfinite(similarity[e])) {
            return error_set(err, STATUS_CORRUPT,
                             "loss %s: similarity of %s %lld and %s %lld is not finite; lower the "
                             "learning rate",
                             l->options.name, rows, (long long)(e / b), columns,
                             (long long)(e % b));
        }
    }
    return STATUS_OK;
}

/* Over the `count` distinct samples; NaN without the column. */
static double batch_mean(const struct loss *l, int32_t column, int64_t count) {
    if (column < 0) {
        return (double)NAN;
    }
    const float *values = sample_state_column(l->state, column);
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)values[l->ids[i]];
    }
    return sum / (double)count;
}

enum status
loss_step(struct loss *l, const struct loss_input *in, struct loss_output *out, struct error *err) {
    REQUIRE(l != NULL && in != NULL && out != NULL && out->gradient != NULL);
    REQUIRE(in->batch_count >= 2 && in->batch_count <= l->max_batch_count);
    const int64_t b = in->batch_count;
    const int64_t rows = l->options.views ? 2 * b : b;
    const size_t size_bytes = (size_t)(rows * rows) * sizeof *out->gradient;
    TRY(check_finite(l, in->similarity, rows, l->options.views ? "view" : "image",
                     l->options.views ? "view" : "text", err));
    if (l->method->uses_self) {
        REQUIRE(in->image_similarity != NULL && in->text_similarity != NULL);
        REQUIRE(out->image_gradient != NULL && out->text_gradient != NULL);
        TRY(check_finite(l, in->image_similarity, b, "image", "image", err));
        TRY(check_finite(l, in->text_similarity, b, "text", "text", err));
        memset(out->image_gradient, 0, size_bytes);
        memset(out->text_gradient, 0, size_bytes);
    }
    for (int64_t i = 0; i < b; i++) {
        REQUIRE(in->sample_ids[i] < sample_state_id_space(l->state));
    }
    memset(out->gradient, 0, size_bytes);
    out->value = 0.0;
    out->objective = 0.0;
    out->tau = loss_tau(l);
    const int64_t count = distinct_places(l, in);
    for (int64_t i = 0; i < count; i++) {
        l->ids[i] = in->sample_ids[l->places[i]];
    }
    sample_state_count_visits(l->state, l->visits, l->ids, count);
    if (count == b) {
        take_step(l, in, out);
    } else if (count >= 2) {
        step_distinct(l, in, out, count);
    }
    for (int side = 0; side < SIDE_COUNT; side++) {
        out->batch.log_u[side] = batch_mean(l, l->log_u[side], count);
        out->batch.zeta[side] = batch_mean(l, l->zeta[side], count);
    }
    return STATUS_OK;
}

/* ---- what methods share ---- */

enum status loss_add_columns(struct loss *l,
                             const char *name,
                             float initial,
                             int32_t columns[SIDE_COUNT],
                             struct error *err) {
    static const char *const sides[] = {"image", "text"};
    for (int side = 0; side < loss_side_count(l); side++) {
        char full[SAMPLE_STATE_NAME_BYTES];
        snprintf(full, sizeof full, "%s.%s", sides[side], name);
        TRY(sample_state_add(l->state, full, initial, &columns[side], err));
    }
    return STATUS_OK;
}

void loss_add_scalar(struct loss *l, const char *name, double *value) {
    assert(l->scalar_count < LOSS_MAX_SCALARS);
    l->scalars[l->scalar_count++] = (struct loss_scalar){name, value};
}

void loss_add_scale(struct loss *l) {
    if (l->options.temperature == LOSS_TEMPERATURE_GLOBAL) {
        loss_add_scalar(l, "log_scale", &l->scale.value);
        loss_add_scalar(l, "log_scale.m", &l->scale.m);
        loss_add_scalar(l, "log_scale.v", &l->scale.v);
        loss_add_scalar(l, "learned_steps", &l->learned_steps);
    }
}

double loss_tau(const struct loss *l) {
    return l->options.temperature == LOSS_TEMPERATURE_GLOBAL ? exp(-l->scale.value)
                                                             : l->options.tau;
}

double loss_gamma(const struct loss *l, uint64_t epoch) {
    const struct loss_options *o = &l->options;
    return o->gamma_schedule == LOSS_GAMMA_COSINE ? schedule_gamma(o->gamma, o->gamma_epochs, epoch)
                                                  : o->gamma;
}

double loss_temperature_now(const struct loss *l) {
    return loss_tau(l);
}

double loss_scale_gradient(const struct loss *l,
                           const struct loss_input *in,
                           const struct loss_output *out) {
    const int64_t rows = l->options.views ? 2 * in->batch_count : in->batch_count;
    double sum = 0.0;
    for (int64_t e = 0; e < rows * rows; e++) {
        sum += (double)out->gradient[e] * (double)in->similarity[e];
    }
    return sum;
}

double loss_scalar_lr(const struct loss *l, const struct loss_input *in) {
    const double lr = l->options.tau_lr > 0.0 ? l->options.tau_lr : in->lr;
    return loss_tau(l) <= l->method->slow_tau ? lr / 3.0 : lr;
}

void loss_adam(struct loss_learned *s, double gradient, double lr, double steps) {
    static const double beta1 = 0.9;
    static const double beta2 = 0.999;
    static const double eps = 1e-8;
    s->m = beta1 * s->m + (1.0 - beta1) * gradient;
    s->v = beta2 * s->v + (1.0 - beta2) * gradient * gradient;
    const double m = s->m / (1.0 - pow(beta1, steps));
    const double v = s->v / (1.0 - pow(beta2, steps));
    s->value -= lr * m / (sqrt(v) + eps);
}

void loss_learn_scale(struct loss *l, const struct loss_input *in, double gradient) {
    const struct loss_options *o = &l->options;
    if (o->temperature != LOSS_TEMPERATURE_GLOBAL) {
        return;
    }
    l->learned_steps += 1.0;
    loss_adam(&l->scale, gradient, loss_scalar_lr(l, in), l->learned_steps);
    l->scale.value = fmax(-log(o->tau_max), fmin(-log(o->tau_min), l->scale.value));
}

/* ---- one anchor ---- */

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
                          double log_norm,
                          double share) {
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

double side_add_softmax(const struct loss_side *s, int64_t anchor, double tau, double share) {
    /* log sum_c exp(Delta_c / tau), the anchor's own pair being exp(0). */
    const double log_others = side_log_mean(s, anchor, tau, NULL) + log((double)(s->count - 1));
    const double log_sum = log_add(0.0, log_others);
    for (int64_t c = 0; c < s->count; c++) {
        if (c != anchor) {
            side_add(s, anchor, c,
                     exp(side_exponent(s, anchor, c, tau, NULL) - log_sum) * share / tau);
        }
    }
    /* P_aa - 1 = -exp(log_others - log_sum), without cancellation. */
    side_add(s, anchor, anchor, -exp(log_others - log_sum) * share / tau);
    return log_sum;
}
