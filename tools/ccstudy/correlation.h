/*
 * correlation: of two lists of numbers.
 *
 * Threading : pure functions.
 */
#ifndef TOOLS_CCSTUDY_CORRELATION_H
#define TOOLS_CCSTUDY_CORRELATION_H

#include <stddef.h>

/* Pearson's. NaN where one of the lists is constant. */
double correlation(const double *x, const double *y, size_t count);

/* out (count): the rank of every value from 0, equal ones with the mean of their ranks, so that
 * Spearman's correlation is that of the ranks. O(count^2). */
void ranks_of(double *out, const double *values, size_t count);

#endif
