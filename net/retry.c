/*
 * Backoff: a wait of at least the base, and a random part that doubles with every failure.
 */
#include "net/retry.h"

#include "formats/base/hash.h"

int64_t retry_delay_ms(uint32_t failed_attempts,
                       int64_t base_ms,
                       int64_t max_ms,
                       int64_t retry_after_ms,
                       uint64_t seed) {
    const uint64_t drawn[2] = {seed, failed_attempts};
    const bool below_max = failed_attempts < 63 && base_ms <= max_ms >> failed_attempts;
    const int64_t end_ms = below_max ? base_ms << failed_attempts : max_ms;
    const int64_t spread_ms = end_ms > base_ms ? end_ms - base_ms : 0;
    const int64_t least_ms = retry_after_ms > base_ms ? retry_after_ms : base_ms;
    const uint64_t values = (uint64_t)spread_ms + 1; /* the bias of % is below spread / 2^64 */
    const int64_t jitter_ms = (int64_t)(hash64(drawn, sizeof(drawn)) % values);
    return least_ms <= INT64_MAX - jitter_ms ? least_ms + jitter_ms : INT64_MAX;
}

bool retry_worth(enum http_outcome outcome, int status) {
    switch (outcome) {
    case HTTP_DNS:
    case HTTP_CONNECT:
    case HTTP_TLS:
    case HTTP_TIMEOUT:
    case HTTP_PARTIAL:
    case HTTP_PROTOCOL:
        return true;
    case HTTP_STATUS:
        return status == 408 || status == 425 || status == 429 ||
               (status >= 500 && status != 501 && status != 505);
    case HTTP_OK:
    case HTTP_TOO_LARGE:
    case HTTP_REFUSED:
    case HTTP_PRIVATE:
    case HTTP_STOPPED:
    case HTTP_CANCELLED:
        break;
    }
    return false;
}
