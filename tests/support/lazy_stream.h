/*
 * lazy_stream: a stream for devices that use host memory. It executes requests as late as allowed:
 * a copy in when the compute queue has to wait for a mark after it, a copy out when the host waits
 * for one. Code that does not wait reads old bytes. This tests on the CPU, bit for bit, what the
 * trainer does with a GPU. Steps cannot be captured there.
 *
 * A test program linked with --wrap=device_open_with gets it for every device that it opens while
 * lazy_stream_on.
 *
 * Threading : one device at a time.
 */
#ifndef TESTS_SUPPORT_LAZY_STREAM_H
#define TESTS_SUPPORT_LAZY_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/device_stream.h"

extern bool lazy_stream_on;

/* What capture_begin answers, UNSUPPORTED at first. */
extern enum status lazy_refusal;

struct lazy_counts {
    uint64_t copies_in, copies_out;
    uint64_t late_in; /* most that were asked for and not yet done */
    uint64_t records_begun;
    int64_t allocations; /* of alloc_host, not yet given back */
};
extern struct lazy_counts lazy_counts;

extern const struct device_stream lazy_stream;

#endif
