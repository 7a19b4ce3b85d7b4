/*
 * gradient_study: the methods, and the numbers as JSON.
 */
#include "tools/ccstudy/gradient_study.h"

#include <math.h>

/* P = 3 of 6 proposals, as in the paper's table 3. */
#define BURN_IN 0.5

/* rho of the negative cache there. */
#define REFRESH 0.1

const struct gradient_method gradient_methods[GRADIENT_METHODS] = {
    {.key = "simclr", .name = "SimCLR", .loss = "simclr"},
    {.key = "sogclr-0.9", .name = "SogCLR, gamma 0.9", .loss = "sogclr", .gamma = 0.9},
    {.key = "sogclr-0.1", .name = "SogCLR, gamma 0.1", .loss = "sogclr", .gamma = 0.1},
    {.key = "negcache",
     .name = "negative cache",
     .loss = "negcache",
     .carry = GRADIENT_CARRY_PLAIN,
     .refresh = REFRESH},
    {.key = "emc2-view",
     .name = "EMC2, the chain's view",
     .loss = "emc2",
     .carry = GRADIENT_CARRY_VIEW,
     .burn_in = BURN_IN},
    {.key = "emc2-fresh",
     .name = "EMC2, a random view",
     .loss = "emc2",
     .carry = GRADIENT_CARRY_FRESH,
     .burn_in = BURN_IN},
    {.key = "emc2-encode",
     .name = "EMC2, un-augmented",
     .loss = "emc2",
     .carry = GRADIENT_CARRY_PLAIN,
     .burn_in = BURN_IN},
    {.key = "emc2-skip", .name = "EMC2, skip", .loss = "emc2", .burn_in = BURN_IN},
};

static const char *const carry_names[] = {[GRADIENT_CARRY_NONE] = NULL,
                                          [GRADIENT_CARRY_PLAIN] = "un-augmented",
                                          [GRADIENT_CARRY_FRESH] = "random view",
                                          [GRADIENT_CARRY_VIEW] = "view"};

const struct gradient_curve *gradient_best(const struct gradient_study *g, int method) {
    const struct gradient_curve *best = NULL;
    for (size_t i = 0; i < g->rate_count; i++) {
        const struct gradient_curve *c = &g->runs[(size_t)method * g->rate_count + i];
        if (isfinite(gradient_end(c)->loss) && isfinite(gradient_scaled_norm2(c)) &&
            (best == NULL || gradient_end(c)->loss < gradient_end(best)->loss)) {
            best = c;
        }
    }
    return best;
}

static void write_best(struct json_writer *w, const struct gradient_study *g, int method) {
    const struct gradient_method *m = &gradient_methods[method];
    const struct gradient_curve *c = gradient_best(g, method);
    json_open_object(w, NULL);
    json_string(w, "method", m->key);
    json_string(w, "loss", m->loss);
    json_string(w, "carry", carry_names[m->carry]);
    if (m->gamma > 0.0) {
        json_double(w, "gamma", m->gamma);
    } else {
        json_null(w, "gamma");
    }
    json_double(w, "lr", c != NULL ? c->lr : (double)NAN);
    json_u64(w, "steps", g->o.steps);
    json_double(w, "seconds", c != NULL ? gradient_end(c)->seconds : (double)NAN);
    json_double(w, "L", c != NULL ? gradient_end(c)->loss : (double)NAN);
    json_double(w, "norm2", c != NULL ? c->norm2[GRADIENT_GLOBAL] : (double)NAN);
    json_double(w, "scaled_norm2", c != NULL ? gradient_scaled_norm2(c) : (double)NAN);
    json_double(w, "bias2", c != NULL ? c->bias2 : (double)NAN);
    json_double(w, "scaled_bias2", c != NULL ? gradient_scaled_bias2(c) : (double)NAN);
    json_double(w, "length", c != NULL ? gradient_end(c)->length : (double)NAN);
    json_double(w, "norm2_with_own", c != NULL ? c->norm2[GRADIENT_WITH_OWN] : (double)NAN);
    json_double(w, "norm2_unaugmented", c != NULL ? c->norm2[GRADIENT_UNAUGMENTED] : (double)NAN);
    json_close_object(w);
}

static void write_grid(struct json_writer *w, const struct gradient_study *g) {
    json_open_array(w, "grid");
    for (size_t i = 0; i < g->run_count; i++) {
        const struct gradient_curve *c = &g->runs[i];
        json_open_object(w, NULL);
        json_string(w, "method", gradient_methods[i / g->rate_count].key);
        json_double(w, "lr", c->lr);
        json_double(w, "L", gradient_end(c)->loss);
        json_double(w, "norm2", c->norm2[GRADIENT_GLOBAL]);
        json_double(w, "scaled_norm2", gradient_scaled_norm2(c));
        json_double(w, "bias2", c->bias2);
        json_close_object(w);
    }
    json_close_array(w);
}

static void write_trace(struct json_writer *w, const char *key, const struct gradient_curve *c) {
    for (size_t k = 0; k < c->point_count; k++) {
        json_open_object(w, NULL);
        json_string(w, "method", key);
        json_u64(w, "step", c->points[k].step);
        json_double(w, "seconds", c->points[k].seconds);
        json_double(w, "L", c->points[k].loss);
        json_double(w, "norm2", c->points[k].norm2);
        json_double(w, "scaled_norm2", gradient_scaled(&c->points[k], c->points[k].norm2));
        json_close_object(w);
    }
}

void gradient_write_json(struct json_writer *w, const void *result) {
    const struct gradient_study *g = result;
    json_string(w, "settings", g->settings);
    json_open_array(w, "rows");
    for (int m = 0; m < GRADIENT_METHODS; m++) {
        write_best(w, g, m);
    }
    json_close_array(w);
    write_grid(w, g);
    json_open_array(w, "trace");
    for (int m = 0; m < GRADIENT_METHODS; m++) {
        const struct gradient_curve *c = gradient_best(g, m);
        if (c != NULL) {
            write_trace(w, gradient_methods[m].key, c);
        }
    }
    json_close_array(w);
}
