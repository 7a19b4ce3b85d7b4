/*
 * File names from keys: safe for any key, and unique.
 */
#include "tools/ccdump/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"

static struct error err;

static const char *take(struct names *n, const char *key, uint64_t id) {
    static char out[SHARD_MAX_KEY_BYTES + 1];
    assert_ok(names_take(n, out, key, id, &err), err);
    assert_true(shard_key_is_valid(out));
    return out;
}

TEST(keys_become_safe_names) {
    struct names n = {0};
    assert_string_equal(take(&n, "000000012", 12), "000000012");
    assert_string_equal(take(&n, "../../etc/passwd", 1), "______etc_passwd");
    assert_string_equal(take(&n, "/absolute", 2), "_absolute");
    assert_string_equal(take(&n, "a.b\\c d\n\x1b\xC3\xA9", 3), "a_b_c_d____");
    assert_string_equal(take(&n, "", 4), "_");
    assert_string_equal(take(&n, "..", 5), "__");
    names_fini(&n);
}

TEST(names_are_unique) {
    struct names n = {0};
    assert_string_equal(take(&n, "x", 1), "x");
    assert_string_equal(take(&n, "x", 7), "x-7");
    assert_string_equal(take(&n, "x-8", 2), "x-8");
    assert_string_equal(take(&n, "x", 8), "x-8-1");
    char key[SHARD_MAX_KEY_BYTES + 21];
    memset(key, 'k', sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    assert_int_equal(strlen(take(&n, key, 3)), SHARD_MAX_KEY_BYTES);
    const char *again = take(&n, key, UINT64_MAX);
    assert_int_equal(strlen(again), SHARD_MAX_KEY_BYTES);
    assert_string_equal(again + SHARD_MAX_KEY_BYTES - 21, "-18446744073709551615");
    names_fini(&n);
}

static int by_text(const void *a, const void *b) {
    return strcmp(a, b);
}

TEST(many_names_are_unique) {
    enum { COUNT = 20000 };
    char(*names)[SHARD_MAX_KEY_BYTES + 1] = calloc(COUNT, sizeof(*names));
    struct names n = {0};
    struct rng r;
    rng_init(&r, test_seed(), RNG_ORDER, 7, 8);
    for (uint64_t i = 0; i < COUNT; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%u%s", rng_below(&r, 300), rng_below(&r, 2) ? "-5" : "");
        assert_ok(names_take(&n, names[i], key, i % 1000, &err), err);
    }
    names_fini(&n);
    qsort(names, COUNT, sizeof(*names), by_text);
    for (size_t i = 1; i < COUNT; i++) {
        assert_string_not_equal(names[i - 1], names[i]);
    }
    free(names);
}
