/*
 * state_histogram: how one column of the state of samples is distributed in a run's last
 * checkpoint.
 */
#ifndef TOOLS_CCSTREAM_REPORT_STATE_HISTOGRAM_H
#define TOOLS_CCSTREAM_REPORT_STATE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

enum { HISTOGRAM_BINS = 40, HISTOGRAM_POINTS = 2 * HISTOGRAM_BINS + 2 };

/* The outline of the bars: two points for each bin, and both ends on the axis. */
struct histogram {
    double x[HISTOGRAM_POINTS];
    double y[HISTOGRAM_POINTS]; /* percent of the entries that were visited */
    size_t count;
    uint64_t visited;
};

/* RUN: a directory. visited is 0 where the checkpoint has no such column, or nothing in it. Returns
 * OK, or as checkpoint_open. */
enum status
histogram_read(struct histogram *out, const char *run, const char *column, struct error *err);

#endif
