/*
 * live: see the header. before[i] is the number of live positions before group i of 512 positions:
 *
 *   words    |........|........|...       8 words of 64 bits to a group
 *   before   0        217      430 ...    [groups]: all of them
 */
#include "loader/live_internal.h"

#include <stdlib.h>

enum { WORDS_OF_GROUP = 8, BITS_OF_WORD = 64 };

struct live {
    uint64_t group_count;
    uint64_t *words;  /* (group_count * WORDS_OF_GROUP) */
    uint64_t *before; /* (group_count + 1) */
    uint64_t *list;   /* (list_count) positions, instead of these; NULL: there is none */
    uint64_t list_count;
};

static uint64_t bit_count(uint64_t word) {
    return (uint64_t)__builtin_popcountll(word);
}

static void count_groups(struct live *l) {
    uint64_t total = 0;
    for (uint64_t g = 0; g < l->group_count; g++) {
        l->before[g] = total;
        for (uint64_t w = 0; w < WORDS_OF_GROUP; w++) {
            total += bit_count(l->words[g * WORDS_OF_GROUP + w]);
        }
    }
    l->before[l->group_count] = total;
}

enum status live_create(
    struct live **out,
    uint64_t position_count,
    enum status (*passes)(void *cookie, uint64_t position, bool *is_live, struct error *err),
    void *cookie,
    struct error *err) {
    enum status s = STATUS_OK;
    *out = NULL;
    struct live *l = calloc(1, sizeof(*l));
    TRY_MEMORY(l != NULL, err, "out of memory for a filter");
    l->group_count = position_count / (WORDS_OF_GROUP * BITS_OF_WORD) + 1;
    l->words = calloc(l->group_count * WORDS_OF_GROUP, sizeof(*l->words));
    l->before = calloc(l->group_count + 1, sizeof(*l->before));
    if (l->words == NULL || l->before == NULL) {
        s = error_set(err, STATUS_NOMEM, "out of memory for a filter of %llu samples",
                      (unsigned long long)position_count);
    }
    for (uint64_t i = 0; i < position_count && s == STATUS_OK; i++) {
        bool is_live = false;
        s = passes(cookie, i, &is_live, err);
        l->words[i / BITS_OF_WORD] |= (uint64_t)is_live << i % BITS_OF_WORD;
    }
    if (s == STATUS_OK) {
        count_groups(l);
    }
    RETURN_CREATED(s, out, l, live_destroy);
}

enum status
live_of_list(struct live **out, uint64_t *positions, uint64_t count, struct error *err) {
    struct live *l = calloc(1, sizeof(*l));
    *out = l;
    if (l == NULL) {
        free(positions);
        return error_set(err, STATUS_NOMEM, "out of memory for a list of samples");
    }
    l->list = positions;
    l->list_count = count;
    return STATUS_OK;
}

void live_destroy(struct live *l) {
    if (l != NULL) {
        free(l->list);
        free(l->words);
        free(l->before);
        free(l);
    }
}

uint64_t live_count(const struct live *l) {
    return l->list != NULL ? l->list_count : l->before[l->group_count];
}

uint64_t live_position(const struct live *l, uint64_t k) {
    if (l->list != NULL) {
        return l->list[k];
    }
    /* The last group with before <= k. */
    uint64_t low = 0;
    uint64_t high = l->group_count;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (l->before[middle] <= k) {
            low = middle;
        } else {
            high = middle;
        }
    }
    uint64_t rest = k - l->before[low];
    uint64_t at = low * WORDS_OF_GROUP;
    while (rest >= bit_count(l->words[at])) {
        rest -= bit_count(l->words[at]);
        at++;
    }
    uint64_t word = l->words[at];
    for (; rest > 0; rest--) {
        word &= word - 1; /* clears the lowest bit */
    }
    return at * BITS_OF_WORD + (uint64_t)__builtin_ctzll(word);
}
