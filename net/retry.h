/*
 * retry: whether a request is worth another attempt, and how long to wait before it.
 *
 * Threading : pure functions.
 */
#ifndef NET_RETRY_H
#define NET_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "net/http.h"

/* Milliseconds to wait after `failed_attempts` failures: exponential backoff with jitter, uniform
 * in [base, min(max, base * 2^failed_attempts)] by (seed, failed_attempts), so that requests which
 * failed together are not retried together. retry_after_ms, the server's request (negative: none),
 * replaces `base` as the lower end if it is longer, and shifts the upper end likewise: the result
 * may exceed max_ms. Requires base_ms, max_ms >= 0. */
int64_t retry_delay_ms(uint32_t failed_attempts,
                       int64_t base_ms,
                       int64_t max_ms,
                       int64_t retry_after_ms,
                       uint64_t seed);

/* Whether another attempt may succeed: after failures of the network, of the server (5xx except 501
 * and 505) and after 408, 425 and 429; not after other decisions of the server or of this program.
 * TLS failures count as network failures, because a broken connection cannot be distinguished from
 * a wrong certificate. */
bool retry_worth(enum http_outcome outcome, int status);

#endif
