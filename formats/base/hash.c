/*
 * XXH64 comes from the xxHash library; this file is the only one that sees it.
 */
#include "formats/base/hash.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

struct hasher {
    XXH64_state_t *state;
};

uint64_t hash64(const void *data, size_t size_bytes) {
    return XXH64(data, size_bytes, 0);
}

enum status hasher_create(struct hasher **out, struct error *err) {
    REQUIRE(out);
    *out = NULL;
    struct hasher *h = calloc(1, sizeof *h);
    if (h) {
        h->state = XXH64_createState();
    }
    if (!h || !h->state) {
        hasher_destroy(h);
        return error_set(err, STATUS_NOMEM, "out of memory for a hasher");
    }
    hasher_reset(h);
    *out = h;
    return STATUS_OK;
}

void hasher_destroy(struct hasher *h) {
    if (h) {
        XXH64_freeState(h->state);
        free(h);
    }
}

void hasher_reset(struct hasher *h) {
    XXH64_reset(h->state, 0);
}

void hasher_update(struct hasher *h, const void *data, size_t size_bytes) {
    if (size_bytes > 0) {
        XXH64_update(h->state, data, size_bytes);
    }
}

uint64_t hasher_value(const struct hasher *h) {
    return XXH64_digest(h->state);
}
