/*
 * Ids that ascend are kept as ranges, so that consecutive ones take no memory; the others in a map.
 */
#include "pack/writer/id_set_internal.h"

#include <stdlib.h>
#include <string.h>

void pack_id_set_fini(struct pack_id_set *s) {
    free(s->ranges);
    pack_map_destroy(s->others);
    memset(s, 0, sizeof(*s));
}

bool pack_id_set_has(const struct pack_id_set *s, uint64_t id) {
    size_t low = 0, high = s->count;
    while (low < high) { /* the first range that ends after the id */
        size_t middle = low + (high - low) / 2;
        if (s->ranges[middle].end <= id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (low < s->count && s->ranges[low].first <= id) ||
           (s->others && pack_map_get(s->others, id) != PACK_MAP_NONE);
}

enum status
pack_id_set_add(struct pack_id_set *s, uint64_t first, uint64_t end, struct error *err) {
    if (first < s->end) {
        if (!s->others) {
            TRY(pack_map_create(&s->others, err));
        }
        return pack_map_put(s->others, first, 0, err);
    }
    if (s->count > 0 && s->end == first) {
        s->ranges[s->count - 1].end = end;
        s->end = end;
        return STATUS_OK;
    }
    if (s->count == s->capacity) {
        size_t capacity = s->capacity > 0 ? 2 * s->capacity : 64;
        struct pack_id_range *grown = realloc(s->ranges, capacity * sizeof(*grown));
        TRY_MEMORY(grown, err, "out of memory for ids");
        s->ranges = grown;
        s->capacity = capacity;
    }
    s->ranges[s->count++] = (struct pack_id_range){first, end};
    s->end = end;
    return STATUS_OK;
}
