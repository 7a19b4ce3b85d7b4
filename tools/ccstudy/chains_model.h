/*
 * chains_model: whether the chains of EMC2 (Yau et al., ICML 2024) sample the negatives of the
 * global loss, and the negative cache with which they are compared. Features stay fixed, so the
 * gradient that a step should have on average is known:
 *
 *   E[G_ij] = share (p_ij - [i = j]),  p_ij = exp(S_ij / tau) / sum over k != i of exp(S_ik / tau)
 *
 * Batches are those of epochs, each a permutation of all samples, as the loader makes them. Pairs
 * have a text feature near that of the image. Two views have one feature for both and for the image
 * un-augmented: only then the negatives of a chain that was encoded again are known exactly. The
 * cache's features are never out of date here, so its error is that of drawing alone.
 *
 * Threading : no shared state.
 */
#ifndef TOOLS_CCSTUDY_CHAINS_MODEL_H
#define TOOLS_CCSTUDY_CHAINS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "train/loss/loss.h"

enum { CHAINS_MAX_SAMPLES = 1024, CHAINS_BINS = 10 };

/* Pairs: images and texts as anchors; two views: first and second views as anchors. */
enum chains_side { CHAINS_FIRST, CHAINS_SECOND, CHAINS_SIDE_COUNT };

enum chains_method {
    CHAINS_ENCODE, /* emc2 with --emc2-carry encode, */
    CHAINS_SKIP,   /* or skip */
    CHAINS_CACHE,  /* negcache */
    CHAINS_METHOD_COUNT
};

struct chains_setting {
    bool views;
    enum chains_method method;
    uint32_t n, batch; /* batch in [2, n], n a multiple of it, at most CHAINS_MAX_SAMPLES */
    double tau;
    uint64_t steps;
    uint64_t seed;
};

struct chains_result {
    double mass;  /* of the negatives' weights of an anchor, on average; exact: 1 */
    double error; /* |mean G - E[G]| / |E[G]|, Frobenius, over all anchors and contrasts */
    double
        chi_square; /* of the chains' samples, or of what is drawn, against p, CHAINS_BINS bins of
                       equal probability: CHAINS_BINS - 1 degrees of freedom; after every 40th visit
                       of an anchor, because visits that follow each other are not independent */
};

/* One side. The other side's chains are held on a sample of overwhelming similarity outside the
 * batch, or its anchors have no negative, so that the gradient is that of this side alone. Returns
 * OK, NOMEM, USAGE (a setting out of range), or what `advance` returned, which is called after
 * every 100 steps (NULL: never). */
enum status chains_run(struct chains_result *out,
                       const struct chains_setting *setting,
                       enum chains_side side,
                       enum status (*advance)(void *cookie, double steps, struct error *err),
                       void *cookie,
                       struct error *err);

#endif
