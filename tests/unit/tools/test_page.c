/*
 * What page makes of texts and images that nobody has checked.
 */
#include "tests/support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "tools/inspect/page/page.h"

/* Ends the page and returns its file; the caller frees it. */
static char *end(struct page *p) {
    struct byte_buffer text;
    struct error err = {0};
    const char *file = test_temp_path("page.html");
    assert_int_equal(page_end(p, file, &err), STATUS_OK);
    assert_int_equal(file_read_all(file_posix(), &text, file, 1 << 20, &err), STATUS_OK);
    assert_int_equal(byte_buffer_append(&text, "", 1, &err), STATUS_OK);
    char *copy = strdup((const char *)text.data);
    assert_non_null(copy);
    byte_buffer_fini(&text);
    page_fini(p);
    return copy;
}

/* What a text becomes in DATA. */
static void assert_text(const char *text, size_t size_bytes, size_t most, const char *wanted) {
    struct page p;
    char member[256];
    page_begin(&p, "page");
    page_section(&p, NULL, false);
    page_item(&p, "text", NULL);
    page_excerpt(&p, "text", (struct shard_text){text, size_bytes}, most);
    json_close_object(page_json(&p));
    char *page = end(&p);
    (void)snprintf(member, sizeof member, "\"text\":\"%s\"}", wanted);
    if (strstr(page, member) == NULL) {
        fail_msg("no %s in %s", member, strstr(page, "ccstream-page"));
    }
    free(page);
}

TEST(markup_is_text) {
    static const char text[] = "</script><b a=\"1\"> & \xC3\xA9\n\\u003c";
    assert_text(text, sizeof text - 1, 1000,
                "\\u003c/script>\\u003cb a=\\\"1\\\"> & \xC3\xA9\\n\\\\u003c");
}

TEST(controls_become_spaces_and_overrides_are_marked) {
    static const char text[] = "a\0b\033c\x7F"
                               "d\xC2\x85"
                               "e\xE2\x80\xAE"
                               "f";
    assert_text(text, sizeof text - 1, 1000, "a b c d e[U+202E]f");
}

TEST(bytes_that_are_no_utf8_are_replaced) {
    static const char text[] = "x\xFF\xC3(y";
    assert_text(text, sizeof text - 1, 1000, "x\xEF\xBF\xBD\xEF\xBF\xBD(y");
}

TEST(an_excerpt_ends_between_characters) {
    static const char text[] = "\xC3\xA9<\xC3\xA9\xC3\xA9";
    assert_text(text, sizeof text - 1, 2, "\xC3\xA9\\u003c\xE2\x80\xA6");
    assert_text(text, sizeof text - 1, 4, "\xC3\xA9\\u003c\xC3\xA9\xC3\xA9");
}

TEST(the_summary_is_escaped) {
    struct page p;
    const char *const columns[] = {"<a>", "b"};
    const char *const cells[] = {"\"1\" & \xE2\x80\xAE", NULL};
    page_begin(&p, "<title>");
    page_summary(&p, &(struct page_table){"<s>", columns, 2, cells, 1});
    char *page = end(&p);
    assert_non_null(strstr(page, "<h1>&lt;title&gt;</h1>"));
    assert_non_null(strstr(page, "<p class=\"note\">&lt;s&gt;</p>"));
    assert_non_null(strstr(page, "<dt>&lt;a&gt;</dt><dd>&quot;1&quot; &amp; [U+202E]</dd>"));
    assert_null(strstr(page, "<dt>b"));
    free(page);
}

TEST(a_page_that_is_full_has_no_further_images) {
    struct page p;
    page_begin(&p, "page");
    p.images_until_bytes = 10;
    page_section(&p, NULL, false);
    page_images(&p, NULL, "cards");
    page_card(&p, NULL, "no image", 8, (struct shard_text){"caption", 7});
    page_card_end(&p);
    p.images_until_bytes = PAGE_MAX_BYTES;
    page_card(&p, NULL, "no image", 8, (struct shard_text){"caption", 7});
    page_line(&p, "right", "%d", 1);
    page_card_end(&p);
    page_images_end(&p);
    char *page = end(&p);
    assert_non_null(strstr(page, "{\"missing\":\"image omitted\",\"caption\":\"caption\"},"
                                 "{\"missing\":\""));
    assert_non_null(strstr(page, "\"lines\":[{\"mark\":\"right\",\"text\":\"1\"}]}"));
    free(page);
}

TEST(bars_have_their_numbers_and_a_plain_figure) {
    struct page p;
    const char *const names[] = {"a", "<b>", "c"};
    const char *const texts[] = {"1 %", "2 %", "3 %"};
    const double values[] = {0.5, (double)NAN, 16777217.0};
    page_begin(&p, "page");
    page_section(&p, "s", true);
    page_bars(&p, &(struct page_bars){.title = "t",
                                      .x = "side",
                                      .y = "count",
                                      .names = names,
                                      .values = values,
                                      .texts = texts,
                                      .count = 3});
    char *page = end(&p);
    assert_non_null(strstr(page, "\"y\":{\"title\":\"count\"}"));
    assert_non_null(strstr(page, "\"y\":[0.5,null,16777217]"));
    assert_non_null(strstr(page, "<rect"));
    assert_non_null(strstr(page, "&lt;b&gt;"));
    free(page);
}
