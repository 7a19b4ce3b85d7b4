/*
 * JSON text: commas and nesting, what is escaped, and that wrong UTF-8 cannot get through.
 */
#include "formats/base/json_writer.h"

#include <math.h>
#include <string.h>

#include "formats/base/utf8.h"
#include "tests/support/test.h"

static void assert_text(struct json_writer *w, const char *expected) {
    struct error err = {0};
    assert_ok(json_writer_status(w, &err), err);
    assert_ok(byte_buffer_u8(&w->out, 0, &err), err);
    assert_string_equal((const char *)w->out.data, expected);
    json_writer_fini(w);
}

TEST(values_nest_with_commas_between) {
    struct json_writer w;
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    json_u64(&w, "n", UINT64_MAX);
    json_open_array(&w, "a");
    json_i64(&w, NULL, -1);
    json_open_object(&w, NULL);
    json_close_object(&w);
    json_null(&w, NULL);
    json_close_array(&w);
    json_bool(&w, "b", true);
    json_hex64(&w, "h", 0xABC);
    json_raw(&w, "r", "[1]", 3);
    json_close_object(&w);
    json_newline(&w);
    json_open_object(&w, NULL);
    json_close_object(&w);
    assert_text(&w, "{\"n\":18446744073709551615,\"a\":[-1,{},null],\"b\":true,"
                    "\"h\":\"0000000000000abc\",\"r\":[1]}\n{}");
}

TEST(strings_are_escaped_and_always_utf8) {
    struct json_writer w;
    json_writer_init(&w, 0);
    json_open_array(&w, NULL);
    json_string(&w, NULL, "a\"b\\c\n\t\x01\x7f/");
    json_string_n(&w, NULL, "x\0y", 3);
    json_string(&w, NULL, "\xC3\xA9\xF0\x9F\x99\x82");
    json_string(&w, NULL, "\xC3(\xED\xA0\x80\xFF");
    json_close_array(&w);
    assert_text(&w, "[\"a\\\"b\\\\c\\n\\t\\u0001\\u007f/\",\"x\\u0000y\","
                    "\"\xC3\xA9\xF0\x9F\x99\x82\","
                    "\"\xEF\xBF\xBD(\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"]");
}

TEST(doubles_read_back) {
    struct json_writer w;
    json_writer_init(&w, 0);
    json_open_array(&w, NULL);
    json_double(&w, NULL, 0.1);
    json_double(&w, NULL, 1.0 / 3);
    json_double(&w, NULL, 3600);
    json_double(&w, NULL, (double)NAN);
    json_double(&w, NULL, (double)-INFINITY);
    json_close_array(&w);
    assert_text(&w, "[0.1,0.3333333333333333,3600,null,null]");
}

TEST(computed_numbers_are_rounded) {
    struct json_writer w;
    json_writer_init(&w, 0);
    json_rounded(&w, NULL, 52.650000000000006);
    assert_int_equal(w.out.size_bytes, 5);
    assert_memory_equal(w.out.data, "52.65", 5);
    json_writer_fini(&w);
}

TEST(limit_is_sticky) {
    struct json_writer w;
    json_writer_init(&w, 8);
    json_string(&w, NULL, "0123456789");
    json_null(&w, NULL);
    struct error err = {0};
    assert_status(json_writer_status(&w, &err), STATUS_LIMIT, err);
    json_writer_reset(&w);
    json_u64(&w, NULL, 1);
    assert_text(&w, "1");
}

TEST(invalid_utf8_is_recognised) {
    assert_int_equal(utf8_character("", 0), 0);
    assert_int_equal(utf8_character("a", 1), 1);
    assert_int_equal(utf8_character("\xC2\x80", 2), 2);
    assert_int_equal(utf8_character("\xC2", 1), 0);
    assert_int_equal(utf8_character("\xC1\x80", 2), 0);
    assert_int_equal(utf8_character("\xE0\x9F\xBF", 3), 0);
    assert_int_equal(utf8_character("\xE0\xA0\x80", 3), 3);
    assert_int_equal(utf8_character("\xED\x9F\xBF", 3), 3);
    assert_int_equal(utf8_character("\xED\xA0\x80", 3), 0);
    assert_int_equal(utf8_character("\xF0\x8F\xBF\xBF", 4), 0);
    assert_int_equal(utf8_character("\xF4\x8F\xBF\xBF", 4), 4);
    assert_int_equal(utf8_character("\xF4\x90\x80\x80", 4), 0);
    assert_int_equal(utf8_character("\xF5\x80\x80\x80", 4), 0);
    assert_int_equal(utf8_valid_prefix("ab\xC3\xA9\xFFz", 6), 4);
}
