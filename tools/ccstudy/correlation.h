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

#endif
