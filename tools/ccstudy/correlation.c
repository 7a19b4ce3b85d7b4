/*
 * correlation: means first, so that large ones do not cancel.
 */
#include "tools/ccstudy/correlation.h"

#include <math.h>

double correlation(const double *x, const double *y, size_t count) {
    double mean_x = 0.0;
    double mean_y = 0.0;
    double xx = 0.0;
    double yy = 0.0;
    double xy = 0.0;
    for (size_t i = 0; i < count; i++) {
        mean_x += x[i] / (double)count;
        mean_y += y[i] / (double)count;
    }
    for (size_t i = 0; i < count; i++) {
        const double dx = x[i] - mean_x;
        const double dy = y[i] - mean_y;
        xx += dx * dx;
        yy += dy * dy;
        xy += dx * dy;
    }
    return xx > 0.0 && yy > 0.0 ? xy / sqrt(xx * yy) : (double)NAN;
}
