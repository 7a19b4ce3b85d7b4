/*
 * A map from u64 to u64 for a number per sample of a large dataset. Open addressing in SEGMENTS
 * tables, each of which grows by a quarter when it is full. So an entry takes 16 bytes plus 3 to 8
 * for free slots, and growing copies only one of the tables.
 */
#include "formats/base/hash_map.h"

#include <stdlib.h>
#include <string.h>

enum { SEGMENTS = 256, FIRST_CAPACITY = 16 };

struct entry {
    uint64_t key;
    uint64_t value; /* HASH_MAP_NONE: the slot is free */
};

struct segment {
    struct entry *entries;
    size_t capacity;
    size_t count;
};

struct hash_map {
    struct segment segments[SEGMENTS];
};

enum status hash_map_create(struct hash_map **out, struct error *err) {
    *out = calloc(1, sizeof(**out));
    return *out ? STATUS_OK
                : error_set(err, STATUS_NOMEM, "out of memory for ids and hashes of samples");
}

void hash_map_destroy(struct hash_map *m) {
    for (size_t i = 0; m && i < SEGMENTS; i++) {
        free(m->segments[i].entries);
    }
    free(m);
}

/* Spreads consecutive keys (the last step of splitmix64). */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* The slot of the key, or the free slot where it would be. Requires a free slot. */
static struct entry *find(const struct segment *s, uint64_t key, uint64_t mixed) {
    size_t at = (size_t)(((mixed & UINT32_MAX) * s->capacity) >> 32);
    while (s->entries[at].value != HASH_MAP_NONE && s->entries[at].key != key) {
        at = at + 1 < s->capacity ? at + 1 : 0;
    }
    return &s->entries[at];
}

static enum status grow(struct segment *s, struct error *err) {
    struct segment larger = {.capacity = s->capacity + s->capacity / 4, .count = s->count};
    larger.capacity = larger.capacity < FIRST_CAPACITY ? FIRST_CAPACITY : larger.capacity;
    FAIL_IF(larger.capacity > UINT32_MAX, err, STATUS_LIMIT, "too many samples for a hash map");
    larger.entries = malloc(larger.capacity * sizeof(*larger.entries));
    TRY_MEMORY(larger.entries, err, "out of memory for ids and hashes of samples");
    memset(larger.entries, 0xFF, larger.capacity * sizeof(*larger.entries));
    for (size_t i = 0; i < s->capacity; i++) {
        const struct entry *e = &s->entries[i];
        if (e->value != HASH_MAP_NONE) {
            *find(&larger, e->key, mix(e->key)) = *e;
        }
    }
    free(s->entries);
    *s = larger;
    return STATUS_OK;
}

uint64_t hash_map_get(const struct hash_map *m, uint64_t key) {
    uint64_t mixed = mix(key);
    const struct segment *s = &m->segments[mixed >> 56];
    return s->capacity > 0 ? find(s, key, mixed)->value : HASH_MAP_NONE;
}

enum status hash_map_put(struct hash_map *m, uint64_t key, uint64_t value, struct error *err) {
    uint64_t mixed = mix(key);
    struct segment *s = &m->segments[mixed >> 56];
    if (s->count >= s->capacity - s->capacity / 8) {
        TRY(grow(s, err));
    }
    struct entry *e = find(s, key, mixed);
    s->count += e->value == HASH_MAP_NONE;
    *e = (struct entry){key, value};
    return STATUS_OK;
}
