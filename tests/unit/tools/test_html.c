/*
 * What html makes of texts and pictures that nobody has checked.
 */
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/html.h"

/* What is appended to a page by `text`; the caller frees it. */
static char *escaped(const char *text, size_t size_bytes, size_t most) {
    struct html_page p;
    html_init(&p, "page");
    const size_t from = p.out.size_bytes;
    if (most > 0) {
        html_excerpt(&p, (struct shard_text){text, size_bytes}, most);
    } else {
        html_text(&p, text, size_bytes);
    }
    assert_int_equal(p.status, STATUS_OK);
    const size_t n = p.out.size_bytes - from;
    char *out = calloc(n + 1, 1);
    assert_non_null(out);
    memcpy(out, p.out.data + from, n);
    html_fini(&p);
    return out;
}

static void assert_escaped(const char *text, size_t size_bytes, size_t most, const char *wanted) {
    char *got = escaped(text, size_bytes, most);
    assert_string_equal(got, wanted);
    free(got);
}

TEST(markup_is_text) {
    static const char text[] = "</script><b a=\"1\"> & \xC3\xA9\n";
    assert_escaped(text, sizeof text - 1, 0,
                   "&lt;/script&gt;&lt;b a=&quot;1&quot;&gt; &amp; \xC3\xA9\n");
}

TEST(controls_and_overrides_become_spaces) {
    static const char text[] = "a\0b\033c\x7F"
                               "d\xC2\x85"
                               "e\xE2\x80\xAE"
                               "f\tg";
    assert_escaped(text, sizeof text - 1, 0, "a b c d e f g");
}

TEST(bytes_that_are_no_utf8_are_replaced) {
    static const char text[] = "x\xFF\xC3(\xED\xA0\x80\xE2\x82";
    char *got = escaped(text, sizeof text - 1, 0);
    assert_int_equal(strncmp(got, "x\xEF\xBF\xBD\xEF\xBF\xBD(\xEF\xBF\xBD", 11), 0);
    for (const char *at = got; *at != '\0'; at++) {
        assert_true((unsigned char)*at != 0xFF && (unsigned char)*at != 0xED);
    }
    free(got);
}

TEST(an_excerpt_ends_between_characters) {
    static const char text[] = "\xC3\xA9<\xC3\xA9\xC3\xA9";
    assert_escaped(text, sizeof text - 1, 2, "\xC3\xA9&lt;&hellip;");
    assert_escaped(text, sizeof text - 1, 4, "\xC3\xA9&lt;\xC3\xA9\xC3\xA9");
}

TEST(a_page_that_is_full_has_no_further_pictures) {
    struct html_page p;
    html_init(&p, "page");
    p.images_until_bytes = 10;
    const size_t from = p.out.size_bytes;
    html_image(&p, "no picture", 10, (struct shard_text){"alt", 3});
    assert_int_equal(p.status, STATUS_OK);
    assert_true(p.out.size_bytes - from < 60);
    assert_non_null(strstr((const char *)p.out.data + from, "omitted"));
    html_fini(&p);
}
