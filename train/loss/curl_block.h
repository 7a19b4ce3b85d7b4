/*
 * curl_block: the block loss of Arora et al. ("A theoretical analysis of contrastive unsupervised
 * representation learning", ICML 2019, eq. (12), with k negatives as in eq. (5)), over a batch of N
 * blocks: an anchor x_i and b points y_i1 .. y_ib of the same class, with similarities of
 * unnormalised embeddings, S_i,jl = f(x_i) . f(y_jl).
 *
 *   v_im = mean_l S_i,il - mean_l S_i,ml   of the blocks m = i + 1 .. i + k, modulo N
 *   logistic:  l(v) = log2(1 + sum_m e^{-v_m})       hinge:  l(v) = max(0, 1 + max_m(-v_m))
 *   L = mean_i l(v_i)
 *
 * As in the paper, blocks are each other's negatives, including blocks of the same class. v is
 * linear in S, so the embeddings' gradient follows from dL/dS as in every other loss.
 *
 * `pairs` averages over single points, the l-th against the l-th of other blocks: the pairs of
 * quick thoughts (QT: Logeswaran & Lee, ICLR 2018), to which the paper compares the blocks:
 *
 *   L = mean_i mean_l l(S_i,il - S_i,ml)
 *
 * By Jensen's inequality it is at least the block loss of the same points (Proposition 6.2), and
 * equals it if b = 1.
 *
 * Losses of train/loss/loss.h compare normalised embeddings with one positive per anchor, and keep
 * per-sample state; this one does neither, so it is not in their table.
 *
 * Threading : pure function.
 */
#ifndef TRAIN_LOSS_CURL_BLOCK_H
#define TRAIN_LOSS_CURL_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"

enum block_kind { BLOCK_LOGISTIC, BLOCK_HINGE };

struct block_options {
    int64_t blocks;    /* N, at least 2 */
    int64_t size;      /* b, at least 1 */
    int64_t negatives; /* k, [1, N - 1] */
    enum block_kind kind;
    bool pairs;
};

/* similarity (N, N b), column j b + l for y_jl; *value is L, gradient (N, N b) is dL/dS. Among
 * equal hinge terms the first m gets the gradient; if 1 + max is exactly 0, none does. Returns OK,
 * INVALID, or CORRUPT if a similarity is not finite. */
enum status block_loss(double *value,
                       float *gradient,
                       const float *similarity,
                       const struct block_options *o,
                       struct error *err);

#endif
