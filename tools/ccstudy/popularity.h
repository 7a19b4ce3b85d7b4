/*
 * popularity: what NUCLR (Wang et al., ICLR 2025) calls popularity, for fixed similarities: the
 * minimiser of its eq. (8), exactly.
 *
 * Threading : pure functions.
 */
#ifndef TOOLS_CCSTUDY_POPULARITY_H
#define TOOLS_CCSTUDY_POPULARITY_H

#include <stddef.h>

#include "formats/base/status.h"

/* q (n) = exp(zeta / tau) of the zeta that minimises
 *
 *   -1/n sum_i tau log( kernel_ii / sum_j kernel_ij exp(-zeta_j / tau) ) + 1/n sum_j zeta_j
 *
 * until no element of its gradient is above 1e-14. kernel (n, n): exp(E_ij / tau), positive, rows
 * anchors. q is unique but for a factor. Returns OK, NOMEM or INVALID (no convergence). */
enum status popularity_solve(double *q, const double *kernel, size_t n, struct error *err);

#endif
