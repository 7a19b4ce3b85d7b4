/*
 * gradient_whiten: the first principal components of rows of numbers, each with variance 1.
 *
 * Threading : pure function.
 */
#ifndef TOOLS_CCSTUDY_GRADIENT_WHITEN_H
#define TOOLS_CCSTUDY_GRADIENT_WHITEN_H

#include <stddef.h>

#include "formats/base/status.h"

/* weight (components, dim) and bias (components): weight row + bias has mean 0 and, where the rows
 * vary, covariance 1 over the rows (count, dim). Requires components <= dim. The time grows with
 * dim^3: 0.4 s for 192. Returns OK or NOMEM. */
enum status gradient_whiten(float *weight,
                            float *bias,
                            size_t components,
                            const float *rows,
                            size_t count,
                            size_t dim,
                            struct error *err);

#endif
