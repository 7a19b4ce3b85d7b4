/*
 * retry: how long to wait before a request is tried again.
 *
 * Threading : pure functions.
 */
#ifndef NET_RETRY_H
#define NET_RETRY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Milliseconds to wait after `failed_attempts` of them failed: exponential backoff with jitter,
 * uniform in [base, min(max, base * 2^failed_attempts)], drawn from (seed, failed_attempts), so
 * that requests which failed together do not return together. retry_after_ms, which a server asked
 * for (negative: it did not), takes the place of `base` as the lower end where it is longer, and
 * moves the upper end with it: the result may exceed max_ms. Requires base_ms, max_ms >= 0. */
int64_t retry_delay_ms(uint32_t failed_attempts,
                       int64_t base_ms,
                       int64_t max_ms,
                       int64_t retry_after_ms,
                       uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
