/*
 * zeta_model: does Algorithm 1 of NUCLR (Wang et al., ICLR 2025) learn the popularity that its
 * eq. (8) defines? The model is left out: similarities of n pairs are fixed, the loss of
 * ccstream-train moves zeta batch by batch, and the result is compared with the exact minimiser.
 *
 *   drawn   the pairs of the toy problem (toy_model.h): texts are drawn from the density that the
 *           similarities describe, so a pair is no more similar than chance makes it
 *   fitted  embeddings as after training: topics of unequal size, and each sample is most similar
 *           to its own pair
 *
 * Threading : single-owner.
 */
#ifndef TOOLS_CCSTUDY_ZETA_MODEL_H
#define TOOLS_CCSTUDY_ZETA_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "train/loss/loss.h"

enum { ZETA_SIDES = 2, ZETA_FORMS = 3, ZETA_PAIRS = 200 }; /* images, texts; enum loss_xi */

enum zeta_kind { ZETA_DRAWN, ZETA_FITTED, ZETA_KINDS };

struct zeta_problem {
    size_t count; /* n */
    double tau;
    float *similarity;             /* (n, n), rows images, columns texts */
    double *minimiser[ZETA_SIDES]; /* (n): of eq. (8), with mean 0; texts are the contrasts of
                                      images and the other way round */
    double own_share; /* sum_i P_ii of images as anchors, at the minimiser: 1 is as drawn */
};

/* count in [32, TOY_MAX_PAIRS]. Returns OK, NOMEM or INVALID (no minimiser); on failure nothing
 * leaks. */
enum status zeta_problem_init(struct zeta_problem *p,
                              enum zeta_kind kind,
                              size_t count,
                              uint64_t seed,
                              struct error *err);
void zeta_problem_fini(struct zeta_problem *p); /* accepts an all-zero one */

struct zeta_options {
    enum loss_zeta_gradient gradient;
    size_t batch;    /* divides n */
    uint64_t epochs; /* of the cosine of zeta's rate */
    uint64_t seed;   /* of the order */
};

/* What is known of zeta at the end of an epoch, by side: images, texts. */
struct zeta_point {
    uint64_t epoch;
    double correlation[ZETA_SIDES]; /* with the minimiser */
    double distance[ZETA_SIDES];    /* root mean square, both with mean 0 */
    double mean[ZETA_SIDES];
    double largest[ZETA_SIDES];
    double xi[ZETA_FORMS][ZETA_SIDES];
    double change[ZETA_FORMS]; /* of the gradient in the similarities over the last epoch, against
                                  LOSS_XI_SIGNED: |G - G signed| / |G signed| */
};

/* Algorithm 1 in progress: nuclr with the settings of the paper (gamma 0.8, zeta0 -0.05, xi0 0),
 * three times with the three forms of xi, on the same batches. */
struct zeta_learner;

/* Borrows the problem. Returns OK, NOMEM or USAGE (a batch that the loss refuses). */
enum status zeta_learner_create(struct zeta_learner **out,
                                const struct zeta_problem *p,
                                const struct zeta_options *o,
                                struct error *err);
void zeta_learner_destroy(struct zeta_learner *l); /* accepts NULL */

/* One epoch, every pair once. Returns what loss_step returns. */
enum status zeta_learner_epoch(struct zeta_learner *l, struct error *err);
void zeta_learner_measure(struct zeta_learner *l, struct zeta_point *out);

/* zeta of one side with mean 0 (n), valid until the next call. */
const double *zeta_learner_zeta(struct zeta_learner *l, int side);

#endif
