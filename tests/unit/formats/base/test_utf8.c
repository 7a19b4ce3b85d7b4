/* Characters in and out, and what is no character. */
#include "formats/base/utf8.h"

#include <string.h>

#include "tests/support/test.h"

TEST(every_code_point_is_encoded_and_decoded) {
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000) {
            continue;
        }
        char text[4];
        size_t back = 0;
        size_t n = utf8_encode(text, c);
        assert_int_equal(n, c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
        assert_int_equal(utf8_character(text, n), n);
        assert_true(utf8_decode(text, n, &back) == c);
        assert_int_equal(back, n);
        for (size_t cut = 1; cut < n; cut++) {
            assert_true(utf8_decode(text, cut, &back) == UTF8_NO_CHARACTER);
            assert_int_equal(back, 1);
        }
    }
}

TEST(invalid_bytes_are_characters_of_one_byte) {
    static const char *const wrong[] = {
        "\x80",         "\xBF",         "\xC0\xAF",         "\xC1\xBF",         "\xE0\x9F\xBF",
        "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xFF",         "\xC3(",        "\xE2\x82(",        "\xF0\x9F\x98("};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        size_t n = 0;
        assert_true(utf8_decode(wrong[i], strlen(wrong[i]), &n) == UTF8_NO_CHARACTER);
        assert_int_equal(n, 1);
        assert_int_equal(utf8_valid_prefix(wrong[i], strlen(wrong[i])), 0);
    }
    assert_int_equal(utf8_valid_prefix("caf\xC3\xA9\xC3", 6), 5);
}
