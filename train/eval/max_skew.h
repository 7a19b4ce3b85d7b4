/*
 * max_skew: how far what a query finds is from showing every value of an attribute equally often
 * (Geyik et al., "Fairness-aware ranking in search & recommendation systems", KDD 2019; Chuang,
 * thesis 2023, section 7.4.2). With r_a the share of value a among the first k images:
 *
 *   MaxSkew@k = max_a log(r_a / (1 / |A|))
 *
 * 0 where all values are found equally often, log |A| where one value is found alone.
 *
 * Threading : pure function. Ownership: everything is borrowed for the call.
 */
#ifndef TRAIN_EVAL_MAX_SKEW_H
#define TRAIN_EVAL_MAX_SKEW_H

#include <stdint.h>

#include "formats/base/status.h"

/* scores (count): of images with the query; the highest come first, of equal ones the first image.
 * values (count): of the attribute, in [0, value_count), or outside: such an image is not ranked.
 * top: k, at least 1; where fewer images are ranked, all of them. Returns OK, NOMEM or USAGE (no
 * image is ranked). */
enum status max_skew(double *out,
                     const float *scores,
                     const int32_t *values,
                     int64_t count,
                     int32_t value_count,
                     int64_t top,
                     struct error *err);

#endif
