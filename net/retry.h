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

/* Whether another attempt may end otherwise: after failures of the network, of the server (5xx but
 * 501 and 505) and of its patience (408, 425, 429); not after what the server or we decided.
 * Failures of TLS count as the network's: those of a connection cannot be told from those of a
 * certificate. */
bool retry_worth(enum http_outcome outcome, int status);

#endif
