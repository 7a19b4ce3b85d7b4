/*
 * Untrusted text on a terminal: widths, truncation, wrapping, and no control characters.
 */
#include "tools/cli/cli_text.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "formats/base/utf8.h"
#include "tests/support/test.h"

/* What cli_text_put writes; freed by the caller. */
static char *put(const char *text, size_t size_bytes, size_t max_columns, size_t *columns) {
    char *out = NULL;
    size_t out_bytes = 0;
    FILE *f = open_memstream(&out, &out_bytes);
    assert_non_null(f);
    *columns = cli_text_put(f, text, size_bytes, max_columns);
    assert_int_equal(fclose(f), 0);
    return out;
}

static void assert_put(const char *text, size_t max_columns, const char *wanted, size_t columns) {
    size_t got = 0;
    char *out = put(text, strlen(text), max_columns, &got);
    assert_string_equal(out, wanted);
    assert_int_equal(got, columns);
    free(out);
}

static void assert_wrap(const char *text, size_t indent, size_t columns, const char *wanted) {
    char *out = NULL;
    size_t out_bytes = 0;
    FILE *f = open_memstream(&out, &out_bytes);
    assert_non_null(f);
    cli_text_wrap(f, text, strlen(text), indent, columns);
    assert_int_equal(fclose(f), 0);
    assert_string_equal(out, wanted);
    free(out);
}

TEST(widths_are_those_of_terminals) {
    static const struct {
        const char *text;
        size_t columns;
    } cases[] = {
        {"", 0},
        {"abc", 3},
        {"na\xC3\xAFve", 5},
        {"e\xCC\x81", 1},                        /* e and a combining acute */
        {"Ng\xC6\xB0\xE1\xBB\x9Di", 5},          /* Người */
        {"\xE7\x8C\xAB\xE3\x81\xA8", 4},         /* 猫と */
        {"\xED\x95\x9C\xEA\xB8\x80", 4},         /* 한글 */
        {"\xF0\x9F\x90\x88", 2},                 /* a cat */
        {"\xF0\x9F\x91\x8B\xF0\x9F\x8F\xBD", 2}, /* a hand and its colour */
        {"a\xFF"
         "b",
         3},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(cli_text_columns(cases[i].text, strlen(cases[i].text)), cases[i].columns);
    }
}

TEST(long_texts_end_in_an_ellipsis) {
    assert_put("abcdef", 0, "abcdef", 6);
    assert_put("abcdef", 6, "abcdef", 6);
    assert_put("abcdef", 5, "abcd\xE2\x80\xA6", 5);
    assert_put("abcdef", 1, "\xE2\x80\xA6", 1);
    assert_put("\xE7\x8C\xAB\xE7\x8C\xAB\xE7\x8C\xAB", 4, "\xE7\x8C\xAB\xE2\x80\xA6", 3);
    assert_put("\xE7\x8C\xAB\xE7\x8C\xAB\xE7\x8C\xAB", 6, "\xE7\x8C\xAB\xE7\x8C\xAB\xE7\x8C\xAB",
               6);
}

TEST(control_characters_are_replaced) {
    assert_put("a\x1b[2J\x07\x7f"
               "b",
               0, "a [2J  b", 8);
    assert_put("a\xC2\x9B"
               "31mb",
               0, "a 31mb", 6); /* the one-byte CSI as UTF-8 */
    assert_put("a\xE2\x80\xAE"
               "b\xE2\x81\xA6",
               0, "a b ", 4); /* turned direction */
    assert_put("a\x80\xFF", 0, "a\xEF\xBF\xBD\xEF\xBF\xBD", 3);
    assert_put("a\nb\tc\r", 0, "a b c ", 6);
}

TEST(texts_are_wrapped_at_spaces_and_long_lists_at_bars) {
    assert_wrap("", 2, 20, "\n");
    assert_wrap("  one\n two  ", 2, 20, "one two\n");
    assert_wrap("one two three", 2, 10, "one two\n  three\n");
    assert_wrap("one two three", 2, 0, "one two three\n");
    assert_wrap("abcdefghijklmno p", 2, 12, "abcdefghij\n  klmno p\n");
    assert_wrap("a abcdefghijklmno", 2, 12, "a abcdefgh\n  ijklmno\n");
    assert_wrap("x abc|defg|hi|jklm p|q", 2, 12, "x abc|\n  defg|hi|\n  jklm p|q\n");
    assert_wrap("one ab|cd", 2, 8, "one\n  ab|cd\n");
    assert_wrap("one two", 40, 10, "one two\n"); /* an indent beyond the width leaves eight */
}

/* The output is UTF-8 without control characters, and no wider than asked for. */
TEST(random_bytes_become_valid_text) {
    struct rng r;
    rng_init(&r, test_seed(), RNG_ORDER, 5, 6);
    for (int round = 0; round < 3000; round++) {
        char text[64];
        size_t n = rng_below(&r, sizeof(text) + 1);
        for (size_t i = 0; i < n; i++) {
            text[i] = (char)(rng_below(&r, 3) ? rng_below(&r, 256) : 0xE0 + rng_below(&r, 20));
        }
        size_t limit = rng_below(&r, 20);
        size_t columns = 0;
        char *out = put(text, n, limit, &columns);
        size_t out_bytes = strlen(out);
        assert_int_equal(utf8_valid_prefix(out, out_bytes), out_bytes);
        assert_int_equal(cli_text_columns(out, out_bytes), columns);
        assert_true(limit == 0 || columns <= limit);
        for (size_t i = 0; i < out_bytes; i++) {
            assert_true((unsigned char)out[i] >= ' ' && out[i] != 0x7F);
        }
        free(out);
    }
}
