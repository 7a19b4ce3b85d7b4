#include "augment/caption.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/rng.h"
#include "tests/support/tar.h"
#include "tests/support/test.h"

/* Cleans from and into blocks of the exact size, so that a sanitizer sees the first byte too far.
 */
static char *clean(const char *text, size_t size_bytes, size_t *length) {
    char *in = malloc(size_bytes > 0 ? size_bytes : 1);
    char *out = malloc(CAPTION_CLEAN_BOUND_BYTES(size_bytes));
    assert_non_null(in);
    assert_non_null(out);
    memcpy(in, text, size_bytes);
    *length = caption_clean(out, in, size_bytes);
    assert_true(*length < CAPTION_CLEAN_BOUND_BYTES(size_bytes));
    assert_int_equal(out[*length], 0);
    free(in);
    return out;
}

TEST(agrees_with_the_rules_in_python) {
    size_t size_bytes;
    uint8_t *golden =
        test_read_file(test_source_path("tests/golden/augment/captions.bin"), &size_bytes);
    size_t at = 0;
    int cases = 0;
    while (at < size_bytes) {
        const char *in = (const char *)golden + at;
        const char *expected = in + strlen(in) + 1;
        size_t length;
        char *out = clean(in, strlen(in), &length);
        assert_string_equal(out, expected);
        assert_int_equal(length, strlen(expected));
        at += strlen(in) + strlen(expected) + 2;
        free(out);
        cases++;
    }
    assert_true(cases > 30);
    free(golden);
}

/* Every caption of a tar: count and hash as Python has them. */
static void check_tar(const char *name, uint64_t expected_count, uint64_t expected_hash) {
    size_t size_bytes;
    uint8_t *file = test_read_file(test_data_path(name), &size_bytes);
    struct hasher *h;
    struct error err = {0};
    assert_ok(hasher_create(&h, &err), err);
    struct test_tar tar;
    struct test_tar_file f;
    uint64_t count = 0;
    test_tar_init(&tar, file, size_bytes);
    while (test_tar_next(&tar, &f)) {
        if (test_tar_ends(f.name, ".txt")) {
            size_t length;
            char *out = clean((const char *)f.data, f.size_bytes, &length);
            hasher_update(h, out, length);
            hasher_update(h, "\n", 1);
            free(out);
            count++;
        }
    }
    assert_int_equal(count, expected_count);
    assert_true(hasher_value(h) == expected_hash);
    hasher_destroy(h);
    free(file);
}

TEST(agrees_on_real_captions) {
    size_t size_bytes;
    char *text =
        (char *)test_read_file(test_source_path("tests/golden/augment/captions.txt"), &size_bytes);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char name[64];
        uint64_t count, hash;
        assert_int_equal(sscanf(line, "%63s %" SCNu64 " %" SCNx64, name, &count, &hash), 3);
        check_tar(name, count, hash);
    }
    free(text);
}

TEST(vietnamese_letters_survive) {
    const char *in = "Một người đàn ông ĐỨNG cạnh chiếc xe.";
    size_t length;
    char *out = clean(in, strlen(in), &length);
    assert_string_equal(out, "một người đàn ông đứng cạnh chiếc xe");
    free(out);
}

TEST(bytes_that_are_no_utf8_pass) {
    const char in[] = "A\xFF\xC3 B\xE1\xBB!\x80\xC0\xAF\xED\xA0\x80\xF4\x90\x80\x80 \xC3";
    size_t length;
    char *out = clean(in, sizeof(in) - 1, &length);
    assert_memory_equal(out, "a\xFF\xC3 b\xE1\xBB\x80\xC0\xAF\xED\xA0\x80\xF4\x90\x80\x80 \xC3",
                        length);
    free(out);
}

TEST(any_bytes_are_within_the_bound) {
    static const char *const pieces[] = {"\xC8\xBA", "\xC4\xB0", "<person>", "  ",   "-",
                                         "\xFF",     "\xE1\xBA", "A",        "\xF0", "\n"};
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_CAPTION, 0, 0);
    for (int i = 0; i < 2000; i++) {
        char in[256];
        size_t n = 0;
        while (n < 200 && rng_below(&rng, 30) != 0) {
            const char *piece = pieces[rng_below(&rng, 10)];
            size_t bytes = strlen(piece);
            memcpy(in + n, piece, bytes);
            n += bytes;
        }
        size_t length;
        free(clean(in, n, &length));
    }
}
