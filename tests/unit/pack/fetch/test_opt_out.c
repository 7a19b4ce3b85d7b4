#include <stdio.h>
#include <string.h>

#include "pack/fetch/fetch_internal.h"
#include "tests/support/file_memory.h"
#include "tests/support/test.h"

static struct opt_out *list(struct file_system **fs, const char *text) {
    struct opt_out *o;
    struct error err = {0};
    assert_ok(file_memory_create(fs, &err), err);
    assert_ok(file_write_atomic(*fs, "list", text, strlen(text), &err), err);
    const enum status s = opt_out_open(&o, *fs, "list", &err);
    if (s == STATUS_UNSUPPORTED) {
        test_skip("%s", err.text);
    }
    assert_ok(s, err);
    return o;
}

static bool has(const struct opt_out *o, const char *text) {
    struct url u;
    struct error err = {0};
    assert_ok(url_init(&u, text, NULL, &err), err);
    const bool yes = opt_out_has_url(o, &u);
    url_fini(&u);
    return yes;
}

TEST(hosts_urls_and_images_are_found) {
    struct file_system *fs;
    struct opt_out *o = list(&fs, "# a comment\r\n\r\n Example.ORG \n.below.net\n"
                                  "https://one.com/a b.jpg?x=1#part\n0123456789abcdef\n");
    assert_true(has(o, "http://example.org/x"));
    assert_true(has(o, "https://a.b.example.org:8080/"));
    assert_true(has(o, "http://www.below.net/"));
    assert_true(has(o, "https://ONE.com/a%20b.jpg?x=1"));
    assert_false(has(o, "https://one.com/a%20b.jpg?x=2"));
    assert_false(has(o, "http://notexample.org/"));
    assert_false(has(o, "http://org/"));
    assert_true(opt_out_has_image(o, UINT64_C(0x0123456789abcdef)));
    assert_false(opt_out_has_image(o, 1));
    assert_false(opt_out_has_image(NULL, 1));
    opt_out_close(o);
    file_memory_destroy(fs);
}

TEST(an_empty_list_has_nothing) {
    struct file_system *fs;
    struct opt_out *o = list(&fs, "\n# only this");
    assert_false(has(o, "http://example.org/"));
    opt_out_close(o);
    file_memory_destroy(fs);
}

TEST(a_line_that_is_none_of_the_three_is_named) {
    static const char *const wrong[] = {"a/b", "ftp://x.org/", "two words", "http://"};
    struct error err = {0};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct file_system *fs;
        struct opt_out *o;
        char text[64];
        (void)snprintf(text, sizeof(text), "good.org\n%s\n", wrong[i]);
        assert_ok(file_memory_create(&fs, &err), err);
        assert_ok(file_write_atomic(fs, "list", text, strlen(text), &err), err);
        const enum status s = opt_out_open(&o, fs, "list", &err);
        if (s == STATUS_UNSUPPORTED) {
            test_skip("%s", err.text);
        }
        assert_int_equal(s, STATUS_CORRUPT);
        assert_non_null(strstr(err.text, "line 2"));
        memset(&err, 0, sizeof(err));
        file_memory_destroy(fs);
    }
}
