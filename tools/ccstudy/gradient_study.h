/*
 * gradient_study: all runs of ccstudy gradient: methods times step sizes, the part of them that an
 * interrupted study has left on disk, the numbers and the page.
 *
 * Threading : the main thread.
 */
#ifndef TOOLS_CCSTUDY_GRADIENT_STUDY_H
#define TOOLS_CCSTUDY_GRADIENT_STUDY_H

#include "formats/base/json_writer.h"
#include "tools/ccstudy/gradient_run.h"
#include "tools/ccstudy/study.h"

enum { GRADIENT_METHODS = 8, GRADIENT_MAX_RATES = 8 };

extern const struct gradient_method gradient_methods[GRADIENT_METHODS];

struct gradient_options {
    struct study_options shared;
    const char *data; /* NULL: generated pictures */
    uint64_t samples, size_px, batch, steps, threads;
    double tau;
    struct cli_list rates;
    int network, norm, optimizer, schedule;
    bool resume;
};

struct gradient_study {
    struct gradient_options o;
    char settings[512]; /* what the numbers depend on, but for the data's pixels */
    double rates[GRADIENT_MAX_RATES];
    size_t rate_count;
    /* Runs in the order in which they are made: rates of the first method, of the second, ... */
    struct gradient_curve runs[GRADIENT_METHODS * GRADIENT_MAX_RATES];
    size_t run_count;
};

/* |gradient|^2 as it would be at the length that the parameters had at the start: for normalised
 * embeddings L does not change with their length, and its gradient falls as 1 / length. */
static inline double gradient_scaled(const struct gradient_point *p, double norm2) {
    return norm2 * p->length * p->length;
}

static inline const struct gradient_point *gradient_end(const struct gradient_curve *c) {
    return &c->points[c->point_count - 1];
}

/* At the end; not finite where the run has diverged. */
static inline double gradient_scaled_norm2(const struct gradient_curve *c) {
    return gradient_scaled(gradient_end(c), gradient_end(c)->norm2);
}

static inline double gradient_scaled_bias2(const struct gradient_curve *c) {
    return gradient_scaled(gradient_end(c), c->bias2);
}

/* The run of a method that ends with the least L, as an encoder that maps all pictures to one point
 * has no gradient either; NULL: all have diverged. */
const struct gradient_curve *gradient_best(const struct gradient_study *g, int method);

/* DIR/gradient.part.json: written after every run, read with --resume, removed at the end. Without
 * --out none of them does anything. gradient_part_read returns OK, CORRUPT, USAGE (of other
 * settings) or IO. */
enum status gradient_part_write(const struct gradient_study *g, struct error *err);
enum status gradient_part_read(struct gradient_study *g, struct error *err);
enum status gradient_part_remove(const struct gradient_study *g, struct error *err);

/* Of struct study; the result is a struct gradient_study. */
void gradient_write_json(struct json_writer *w, const void *result);
enum status
gradient_draw_page(struct html_page *p, const void *result, const void *options, struct error *err);

#endif
