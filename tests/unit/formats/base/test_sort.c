#include <string.h>

#include "formats/base/rng.h"
#include "formats/base/sort.h"
#include "tests/support/test.h"

enum { MOST = 600 };

struct item {
    uint32_t key;
    uint32_t place; /* makes the order total */
    unsigned char rest[SORT_MAX_ITEM_BYTES - 8];
};

static int by_key_and_place(const void *a, const void *b) {
    const struct item *x = a;
    const struct item *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return (x->place > y->place) - (x->place < y->place);
}

static uint64_t comparisons;

static int by_value(const void *a, const void *b) {
    comparisons++;
    return (int)*(const unsigned char *)a - (int)*(const unsigned char *)b;
}

TEST(large_items_of_every_count_end_in_order) {
    static struct item items[MOST];
    struct rng r;
    rng_init(&r, test_seed(), RNG_INIT, 0, 0);
    for (uint32_t count = 0; count <= MOST; count = count < 20 ? count + 1 : count * 3 / 2) {
        uint32_t seen[MOST] = {0};
        for (uint32_t i = 0; i < count; i++) {
            items[i] = (struct item){.key = rng_below(&r, count), .place = i};
            memset(items[i].rest, (int)(i % 256), sizeof items[i].rest);
        }
        sort_in_place(items, count, sizeof items[0], by_key_and_place);
        for (uint32_t i = 0; i < count; i++) {
            assert_true(i == 0 || by_key_and_place(&items[i - 1], &items[i]) < 0);
            assert_int_equal(items[i].rest[0], items[i].place % 256);
            assert_int_equal(items[i].rest[sizeof items[i].rest - 1], items[i].place % 256);
            seen[items[i].place]++;
        }
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(seen[i], 1);
        }
    }
}

TEST(sorted_reversed_and_equal_bytes_take_few_comparisons) {
    unsigned char bytes[256];
    for (int kind = 0; kind < 3; kind++) {
        for (int i = 0; i < 256; i++) {
            bytes[i] = (unsigned char)(kind == 0 ? i : kind == 1 ? 255 - i : 7);
        }
        comparisons = 0;
        sort_in_place(bytes, sizeof bytes, 1, by_value);
        assert_true(comparisons <= 2 * 256 * 9);
        for (int i = 0; i < 256; i++) {
            assert_int_equal(bytes[i], kind == 2 ? 7 : i);
        }
    }
}
