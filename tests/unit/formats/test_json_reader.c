/* JSON read back: kinds, order, what is refused. */
#include "formats/json/json_reader.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/test.h"

static enum status parse(struct json_document **d, const char *text, struct error *err) {
    return json_document_parse(d, "x.json", text, strlen(text), err);
}

TEST(values_have_their_kinds) {
    struct error err = {0};
    struct json_document *d = NULL;
    assert_ok(parse(&d,
                    "{\"z\":[1,-2,2.5,true,null,\"t\\u00e9\"],\"a\":9223372036854775807,\"m\":{}}",
                    &err),
              err);
    const struct json_value *root = json_document_root(d);
    assert_true(json_value_is_object(root));
    assert_int_equal(json_value_count(root), 3);
    const struct json_value *z = json_value_get(root, "z");
    assert_true(json_value_is_array(z));
    assert_int_equal(json_value_count(z), 6);
    uint64_t u = 77;
    int64_t i = 77;
    double x = 77;
    bool b = false;
    size_t size = 0;
    assert_true(json_value_u64(json_value_at(z, 0), &u));
    assert_int_equal(u, 1);
    assert_false(json_value_u64(json_value_at(z, 1), &u));
    assert_true(json_value_i64(json_value_at(z, 1), &i));
    assert_int_equal(i, -2);
    assert_false(json_value_i64(json_value_at(z, 2), &i));
    assert_true(json_value_double(json_value_at(z, 2), &x));
    assert_true(x == 2.5);
    assert_true(json_value_bool(json_value_at(z, 3), &b) && b);
    assert_false(json_value_double(json_value_at(z, 4), &x));
    assert_string_equal(json_value_string(json_value_at(z, 5), &size), "t\xc3\xa9");
    assert_int_equal(size, 3);
    assert_true(json_value_u64(json_value_get(root, "a"), &u));
    assert_true(u == INT64_MAX);
    json_document_destroy(d);
}

TEST(missing_values_are_null) {
    struct error err = {0};
    struct json_document *d = NULL;
    uint64_t u;
    assert_ok(parse(&d, "[{}]", &err), err);
    const struct json_value *root = json_document_root(d);
    assert_null(json_value_get(root, "a"));
    assert_null(json_value_at(root, 1));
    assert_null(json_value_at(json_value_at(root, 0), 0));
    assert_null(json_value_get(json_value_get(NULL, "a"), "b"));
    assert_null(json_value_string(NULL, NULL));
    assert_false(json_value_u64(NULL, &u));
    assert_int_equal(json_value_count(NULL), 0);
    assert_false(json_value_is_object(NULL));
    json_document_destroy(d);
    json_document_destroy(NULL);
}

TEST(members_come_in_the_order_of_the_text) {
    struct error err = {0};
    struct json_document *d = NULL;
    assert_ok(parse(&d, "{\"b\":0,\"a\":1,\"c\":2}", &err), err);
    void *position = NULL;
    const char *key = NULL;
    const struct json_value *value = NULL;
    char keys[4] = "";
    while (json_value_next_member(json_document_root(d), &position, &key, &value)) {
        strcat(keys, key);
    }
    assert_string_equal(keys, "bac");
    position = NULL;
    assert_false(json_value_next_member(value, &position, &key, &value));
    json_document_destroy(d);
}

TEST(bad_text_is_refused_with_its_place) {
    static const char *const rows[] = {"",
                                       "{",
                                       "{} x",
                                       "{\"a\":1,\"a\":2}",
                                       "[\"\\u0000\"]",
                                       "[\"\xff\"]",
                                       "[1,]",
                                       "[99999999999999999999]",
                                       "nul"};
    struct error err = {0};
    struct json_document *d = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_status(parse(&d, rows[i], &err), STATUS_CORRUPT, err);
        assert_null(d);
    }
    assert_status(parse(&d, "{\n  \"a\": ?}", &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "x.json: bad JSON at line 2"));
    static char deep[10000];
    memset(deep, '[', sizeof deep - 1);
    assert_status(parse(&d, deep, &err), STATUS_CORRUPT, err);
}

/* The quick look takes what datasets hold, and never what the parser refuses. */
TEST(plain_text_is_recognised_without_parsing) {
    static const char *const plain[] = {
        "{}",
        " [ ] ",
        "0",
        "-12.5e+10",
        "\"text\"",
        "{\"url\": \"http://a/b.jpg\", \"width\": 640, \"exif\": \"{}\", \"error\": null, "
        "\"captions\": [\"one \\\"two\\\"\", \"na\xC3\xAFve\"], \"ok\": true, \"score\": 0.25}\n",
        "[[1, 2], [{\"a\": 1}, {\"a\": 1}], false]",
    };
    static const char *const others[] = {
        "",
        " ",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\":1 2}",
        "01",
        "1.",
        ".5",
        "-",
        "+1",
        "1e",
        "1e+",
        "1e999",
        "truee",
        "nul",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\x\"",
        "\"\t\"",
        "{} x",
        "\"\xFF\"",
        "{\"a\":1,\"a\":2}",
        "[1}",
        "{1:2}",
        "99999999999999999999",
        "\"\\u0000\"",
        "\xEF\xBB\xBF{}",
    };
    struct error err = {0};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        struct json_document *d = NULL;
        assert_true(json_text_is_plain(plain[i], strlen(plain[i])));
        assert_ok(parse(&d, plain[i], &err), err);
        json_document_destroy(d);
        for (size_t size = 0; size < strlen(plain[i]); size++) { /* every cut */
            struct json_document *cut = NULL;
            bool taken = json_document_parse(&cut, "x", plain[i], size, &err) == STATUS_OK;
            assert_true(taken || !json_text_is_plain(plain[i], size));
            json_document_destroy(cut);
        }
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_false(json_text_is_plain(others[i], strlen(others[i])));
    }
    assert_false(json_text_is_plain("\"a\0b\"", 5));
    static char deep[200];
    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    assert_false(json_text_is_plain(deep, 200)); /* left to the parser */
    char keys[4096] = "{";
    for (int i = 0; i < 300; i++) {
        snprintf(keys + strlen(keys), 16, "%s\"k%d\":0", i > 0 ? "," : "", i);
    }
    strcat(keys, "}");
    assert_false(json_text_is_plain(keys, strlen(keys)));
}

/* Strings are looked at eight bytes at a time: what ends one is found at every place. */
TEST(the_scan_checks_every_byte_of_a_string) {
    enum { LENGTH = 40 };
    static const uint8_t wrong[] = {0, 1, 0x1F, '"', '\\', 0x80, 0xC3, 0xFF};
    char text[LENGTH + 2];
    for (size_t at = 1; at <= LENGTH; at++) {
        memset(text, 'x', sizeof(text));
        text[0] = '"';
        text[LENGTH + 1] = '"';
        assert_true(json_text_is_plain(text, sizeof(text)));
        for (size_t i = 0; i < sizeof(wrong); i++) {
            text[at] = (char)wrong[i];
            assert_false(json_text_is_plain(text, sizeof(text)));
        }
        text[at] = 'x';
        if (at < LENGTH) {
            memcpy(text + at, "\\n", 2);
            assert_true(json_text_is_plain(text, sizeof(text)));
            memcpy(text + at, "\xC3\xA9", 2);
            assert_true(json_text_is_plain(text, sizeof(text)));
        }
    }
}
