/*
 * assignment: the cheapest way to match n rows with n columns, exactly. With Euclidean costs and
 * 1 / n it is the Wasserstein-1 distance of two sets of n points.
 *
 * Threading : pure function. Ownership: everything is borrowed for the call.
 */
#ifndef TOOLS_CCSTUDY_ASSIGNMENT_H
#define TOOLS_CCSTUDY_ASSIGNMENT_H

#include <stddef.h>

#include "formats/base/status.h"

/* *out: the sum of the costs of the cheapest matching. cost (n, n), finite; n at least 1. O(n^3).
 * Returns OK or NOMEM. */
enum status assignment_solve(double *out, const double *cost, size_t n, struct error *err);

#endif
