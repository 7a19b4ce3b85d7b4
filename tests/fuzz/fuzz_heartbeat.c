/*
 * A heartbeat of any bytes: what is accepted is written back as the same line, without the blanks
 * after it, and a part of it is refused.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "train/comm/heartbeat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct heartbeat h;
    char line[HEARTBEAT_MAX_BYTES];
    if (!heartbeat_parse(&h, data, size_bytes)) {
        return 0;
    }
    const size_t n = heartbeat_format(line, &h);
    demand(n <= size_bytes && memcmp(line, data, n) == 0);
    for (size_t at = n; at < size_bytes; at++) {
        demand(data[at] == ' ');
    }
    demand(!heartbeat_parse(&h, data, n - 1));
    return 0;
}
