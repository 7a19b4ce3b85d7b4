#include "augment/caption.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/rng.h"
#include "tests/support/captions.h"
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

static void hash_cleaned(void *cookie, const char *text, size_t size_bytes) {
    size_t length;
    char *out = clean(text, size_bytes, &length);
    hasher_update(cookie, out, length);
    hasher_update(cookie, "\n", 1);
    free(out);
}

TEST(agrees_on_every_caption_of_the_data) {
    (void)test_data_path("pairs"); /* skips before anything is made */
    size_t size_bytes;
    char *text =
        (char *)test_read_file(test_source_path("tests/golden/augment/captions.txt"), &size_bytes);
    struct hasher *h;
    struct error err = {0};
    assert_ok(hasher_create(&h, &err), err);
    int files = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char name[64];
        uint64_t count, hash;
        assert_int_equal(sscanf(line, "%63s %" SCNu64 " %" SCNx64, name, &count, &hash), 3);
        hasher_reset(h);
        assert_int_equal(test_captions(name, hash_cleaned, h), count);
        assert_true(hasher_value(h) == hash);
        files++;
    }
    assert_int_equal(files, 9);
    hasher_destroy(h);
    free(text);
}

/* None of the rules can apply to a clean caption. */
TEST(cleaning_again_changes_nothing) {
    static const char *const pieces[] = {"Dog", " ",  "\xC3\x89",     "-",        "/",
                                         ".",   "\n", "\t",           "\xCE\xA3", "1",
                                         "  ",  "'",  "\xE3\x80\x80", "z"};
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_CAPTION, 1, 0);
    for (int i = 0; i < 2000; i++) {
        char in[256];
        size_t n = 0;
        while (n < 200 && rng_below(&rng, 40) != 0) {
            const char *piece = pieces[rng_below(&rng, sizeof(pieces) / sizeof(pieces[0]))];
            memcpy(in + n, piece, strlen(piece));
            n += strlen(piece);
        }
        size_t once_length, twice_length;
        char *once = clean(in, n, &once_length);
        char *twice = clean(once, once_length, &twice_length);
        assert_int_equal(once_length, twice_length);
        assert_memory_equal(once, twice, once_length);
        free(once);
        free(twice);
    }
}

TEST(vietnamese_letters_survive) {
    const char *in = "Một người đàn ông ĐỨNG cạnh chiếc xe.";
    size_t length;
    char *out = clean(in, strlen(in), &length);
    assert_string_equal(out, "một người đàn ông đứng cạnh chiếc xe");
    free(out);
}

TEST(bytes_that_are_not_utf8_are_kept) {
    const char in[] = "A\xFF\xC3 B\xE1\xBB!\x80\xC0\xAF\xED\xA0\x80\xF4\x90\x80\x80 \xC3";
    size_t length;
    char *out = clean(in, sizeof(in) - 1, &length);
    assert_memory_equal(out, "a\xFF\xC3 b\xE1\xBB\x80\xC0\xAF\xED\xA0\x80\xF4\x90\x80\x80 \xC3",
                        length);
    free(out);
}

TEST(output_is_within_the_bound_for_any_bytes) {
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
