/*
 * noise_page: the numbers of ccstudy noise, as JSON, as a table of text, and as a page with
 * figures.
 *
 * Threading : single-owner. Ownership: everything is borrowed for the call.
 */
#ifndef TOOLS_CCSTUDY_NOISE_PAGE_H
#define TOOLS_CCSTUDY_NOISE_PAGE_H

#include "formats/base/json_writer.h"
#include "tools/ccstudy/batch_options.h"
#include "tools/cli/html.h"

enum { NOISE_MAX_NOISES = 6, NOISE_MAX_LOSSES = 5 };

/* A loss at a share of wrong pairs or labels. */
struct noise_row {
    bool untrained; /* heads as they are drawn */
    double q;       /* of rince; 0: clip */
    double noise;   /* [0, 1] */
    double tau, lambda;
    double validation;                         /* the score that chose tau and lambda */
    double scores[BATCH_MAX_SEEDS];            /* recall, or labelled the accuracy */
    struct batch_recall test[BATCH_MAX_SEEDS]; /* but labelled */
};

struct noise_result {
    bool labelled; /* noise of labels, not of pairs */
    /* Ordered by q, then by noise: the first noise_count are clip's; noises begin with 0. */
    struct noise_row rows[NOISE_MAX_LOSSES * NOISE_MAX_NOISES];
    size_t row_count, noise_count, seeds;
    struct noise_row untrained;
    char settings[BATCH_SETTINGS_BYTES];
};

/* For struct study: `result` is a struct noise_result. */
void noise_write_json(struct json_writer *w, const void *result);
enum status
noise_draw_page(struct html_page *p, const void *result, const void *options, struct error *err);

/* On stdout. */
void noise_print_table(const struct noise_result *r);

#endif
