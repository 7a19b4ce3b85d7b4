/*
 * robots.txt: the examples of RFC 9309, the cases that Google's parser is known for, and limits.
 */
#include "net/robots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/test.h"

static struct error err;

static bool allows(const char *text, const char *agent, const char *path) {
    struct robots *r = NULL;
    assert_ok(robots_create(&r, text, strlen(text), agent, &err), err);
    const bool allowed = robots_allows(r, path);
    robots_destroy(r);
    return allowed;
}

/* Whether one rule line, of the group of everybody, has an effect on a path. */
static bool rule_matches(const char *pattern, const char *path) {
    char text[512];
    snprintf(text, sizeof(text), "user-agent: *\ndisallow: %s\n", pattern);
    return !allows(text, "ccstream", path);
}

/* RFC 9309, section 5.1. */
static const char simple_example[] = "User-Agent: *\n"
                                     "Disallow: *.gif$\n"
                                     "Disallow: /example/\n"
                                     "Allow: /publications/\n"
                                     "\n"
                                     "User-Agent: foobot\n"
                                     "Disallow:/\n"
                                     "Allow:/example/page.html\n"
                                     "Allow:/example/allowed.gif\n"
                                     "\n"
                                     "User-Agent: barbot\n"
                                     "User-Agent: bazbot\n"
                                     "Disallow: /example/page.html\n"
                                     "\n"
                                     "User-Agent: quxbot\n";

TEST(simple_example_of_the_rfc) {
    assert_false(allows(simple_example, "foobot", "/"));
    assert_true(allows(simple_example, "foobot", "/example/page.html"));
    assert_true(allows(simple_example, "foobot", "/example/allowed.gif"));
    assert_false(allows(simple_example, "foobot", "/example/"));
    for (int i = 0; i < 2; i++) {
        const char *agent = i ? "BarBot" : "bazbot";
        assert_false(allows(simple_example, agent, "/example/page.html"));
        assert_true(allows(simple_example, agent, "/example/"));
        assert_true(allows(simple_example, agent, "/a.gif"));
    }
    assert_true(allows(simple_example, "quxbot", "/example/a.gif"));
    assert_false(allows(simple_example, "ccstream", "/a.gif"));
    assert_true(allows(simple_example, "ccstream", "/a.gif?x"));
    assert_false(allows(simple_example, "ccstream", "/example/b"));
    assert_true(allows(simple_example, "ccstream", "/publications/a"));
}

/* Section 5.2: the most octets decide. */
TEST(longest_match_decides) {
    static const char text[] = "User-Agent: foobot\n"
                               "Allow: /example/page/\n"
                               "Disallow: /example/page/disallowed.gif\n";
    assert_false(allows(text, "foobot", "/example/page/disallowed.gif"));
    assert_true(allows(text, "foobot", "/example/page/"));
    /* Google's ID_LongestMatch. */
    assert_false(allows("user-agent: FooBot\ndisallow: /x/page.html\nallow: /x/\n", "FooBot",
                        "/x/page.html"));
    assert_true(allows("user-agent: FooBot\nallow: /x/page.html\ndisallow: /x/\n", "FooBot",
                       "/x/page.html"));
    assert_false(allows("user-agent: FooBot\ndisallow: \nallow: \ndisallow: /x\n", "FooBot", "/x"));
    assert_true(allows("user-agent: FooBot\ndisallow: /x/page.html\nallow: /x/page.html\n",
                       "FooBot", "/x/page.html"));
    assert_true(
        allows("user-agent: FooBot\ndisallow: /page\nallow: /*.html\n", "FooBot", "/page.html"));
    assert_false(allows("user-agent: FooBot\ndisallow: /x/page.\nallow: /*.html\n", "FooBot",
                        "/x/page.html"));
    assert_true(allows("User-agent: *\nDisallow: /x/\nUser-agent: FooBot\nDisallow: /y/\n",
                       "FooBot", "/x/page"));
}

/* Section 2.2.1: all groups of a crawler are one; those of * are for crawlers without a group. */
TEST(groups_of_one_crawler_are_merged) {
    static const char text[] = "user-agent: ExampleBot\n"
                               "disallow: /foo\n"
                               "disallow: /bar\n"
                               "\n"
                               "user-agent: OtherBot\n"
                               "disallow: /other\n"
                               "user-agent: ExampleBot\n"
                               "disallow: /baz\n"
                               "user-agent: *\n"
                               "disallow: /all\n"
                               "user-agent: *\n"
                               "disallow: /more\n";
    assert_false(allows(text, "ExampleBot", "/foo"));
    assert_false(allows(text, "examplebot", "/baz"));
    assert_true(allows(text, "ExampleBot", "/all"));
    assert_true(allows(text, "ExampleBot", "/other"));
    assert_false(allows(text, "third", "/all"));
    assert_false(allows(text, "third", "/more"));
    assert_true(allows(text, "third", "/foo"));
}

TEST(other_lines_do_not_end_a_group) {
    static const char text[] = "User-agent: BarBot\n"
                               "Sitemap: https://foo.bar/sitemap\n"
                               "Crawl-delay: 3\n"
                               "User-agent: *\n"
                               "Unknown\n"
                               "Disallow: /\n";
    assert_false(allows(text, "FooBot", "/"));
    assert_false(allows(text, "BarBot", "/"));
}

TEST(rules_outside_groups_are_ignored) {
    static const char text[] = "allow: /foo/bar/\n\nuser-agent: FooBot\ndisallow: /\n"
                               "allow: /x/\nuser-agent: BarBot\ndisallow: /\nallow: /y/\n\n\n"
                               "allow: /w/\nuser-agent: BazBot\n\nuser-agent: FooBot\nallow: /z/\n";
    assert_true(allows(text, "FooBot", "/x/b"));
    assert_true(allows(text, "FooBot", "/z/d"));
    assert_false(allows(text, "FooBot", "/y/c"));
    assert_true(allows(text, "BarBot", "/y/c"));
    assert_true(allows(text, "BarBot", "/w/a"));
    assert_false(allows(text, "BarBot", "/z/d"));
    assert_true(allows(text, "BazBot", "/z/d"));
    assert_false(allows(text, "FooBot", "/foo/bar/"));
    assert_true(allows("disallow: /\n", "FooBot", "/"));
}

TEST(keys_and_tokens_match_in_any_case_paths_do_not) {
    assert_false(allows("USER-AGENT: fooBOT\nDISALLOW: /x\n", "FooBot", "/x"));
    assert_true(allows("user-agent: FooBot\ndisallow: /X\n", "FooBot", "/x"));
    assert_false(allows("user-agent: FooBot/1.2\ndisallow: /x\n", "FooBot", "/x"));
    assert_false(allows("user-agent: FooBot Bar\ndisallow: /x\n", "FooBot", "/x"));
    assert_true(allows("user-agent: FooBotty\ndisallow: /x\n", "FooBot", "/x"));
    assert_true(allows("user-agent: Foo\ndisallow: /x\n", "FooBot", "/x"));
    assert_false(allows("user-agent: * \ndisallow: /x\n", "FooBot", "/x"));
    assert_false(allows("user-agent: * comment\ndisallow: /x\n", "FooBot", "/x"));
    assert_true(allows("user-agent: *x\ndisallow: /x\n", "FooBot", "/x"));
}

TEST(sloppy_lines_are_understood) {
    assert_false(allows("user-agent FooBot\ndisallow /\n", "FooBot", "/x"));
    assert_false(
        allows("  user-agent\t:\tFooBot  # us\n\tdisallow :  /x  # all\n", "FooBot", "/x/y"));
    assert_true(allows("foo: FooBot\nbar: /\n", "FooBot", "/x"));
    assert_false(allows("useragent: FooBot\ndisalow: /\n", "FooBot", "/x"));
    assert_false(allows("User Agent: FooBot\nDissallow: /\n", "FooBot", "/x"));
    assert_true(allows("user-agent: FooBot\ndisallow: x\n", "FooBot", "/x"));
    assert_true(allows("user-agent: FooBot\ndisallow-x: /\n", "FooBot", "/x"));
}

TEST(every_line_end_and_a_byte_order_mark_are_accepted) {
    static const char *const ends[] = {"\n", "\r\n", "\r", "\n\n", "\r\r"};
    for (size_t i = 0; i < 5; i++) {
        char text[128];
        snprintf(text, sizeof(text),
                 "\xEF\xBB\xBFuser-agent: a%sdisallow: /x%suser-agent: b%sdisallow: /y", ends[i],
                 ends[i], ends[i]);
        assert_false(allows(text, "a", "/x"));
        assert_true(allows(text, "a", "/y"));
        assert_false(allows(text, "b", "/y"));
    }
    static const char zero[] = "user-agent: a\0\ndisallow: /x\ndisallow: /\0z\n";
    struct robots *r = NULL;
    assert_ok(robots_create(&r, zero, sizeof(zero) - 1, "a", &err), err);
    assert_false(robots_allows(r, "/x"));
    assert_true(robots_allows(r, "/y"));
    robots_destroy(r);
}

/* Section 2.2.3 and Google's documentation. */
TEST(stars_and_dollars) {
    static const struct {
        const char *pattern, *path;
        bool match;
    } cases[] = {
        {"/", "/", true},
        {"/*", "/fish", true},
        {"/fish", "/fish", true},
        {"/fish", "/fish.html", true},
        {"/fish", "/fishheads/yummy.html", true},
        {"/fish", "/fish.php?id=anything", true},
        {"/fish", "/Fish.asp", false},
        {"/fish", "/catfish", false},
        {"/fish", "/?id=fish", false},
        {"/fish*", "/fish", true},
        {"/fish*", "/fishheads", true},
        {"/fish*", "/desert/fish", false},
        {"/fish/", "/fish/salmon.htm", true},
        {"/fish/", "/fish", false},
        {"/fish/", "/fish.html", false},
        {"/*.php", "/index.php", true},
        {"/*.php", "/folder/filename.php?parameters", true},
        {"/*.php", "/folder/any.php.file.html", true},
        {"/*.php", "/", false},
        {"/*.php", "/windows.PHP", false},
        {"/*.php$", "/filename.php", true},
        {"/*.php$", "/a.php.php", true},
        {"/*.php$", "/filename.php?parameters", false},
        {"/*.php$", "/filename.php/", false},
        {"/*.php$", "/filename.php5", false},
        {"/fish*.php", "/fish.php", true},
        {"/fish*.php", "/fishheads/catfish.php?parameters", true},
        {"/fish*.php", "/Fish.PHP", false},
        {"/$", "/", true},
        {"/$", "/a", false},
        {"/a$b", "/a$bc", true},
        {"/a$b", "/a", false},
        {"/**a***b", "/xaxb", true},
        {"/a*a*a*b", "/aaaaaaaaaaaaaaaaaaaaaa", false},
        {"*x", "/x", true},
        {"/foo/bar/*/qux$", "/foo/bar/a/b/qux", true},
        {"/foo/bar/*/qux$", "/foo/bar/qux", false},
        {"/path/file-with-a-%2A.html", "/path/file-with-a-*.html", true},
        {"/path/file-with-a-%2A.html", "/path/file-with-a-x.html", false},
        {"/path/foo-%24", "/path/foo-$", true},
        {"/path/foo-%24", "/path/foo-", false},
        {"/x", "/y#/x", false},
        {"/y$", "/y#fragment", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (rule_matches(cases[i].pattern, cases[i].path) != cases[i].match) {
            fail_msg("%s and %s", cases[i].pattern, cases[i].path);
        }
    }
}

/* The table of section 2.2.2, in both directions, and what is not equal. */
TEST(percent_encodings_are_equal_to_their_octets) {
    static const char *const equal[][2] = {
        {"/foo/bar?baz=quz", "/foo/bar?baz=quz"},
        {"/foo/bar?baz=http://foo.bar", "/foo/bar?baz=http%3A%2F%2Ffoo.bar"},
        {"/foo/bar/\xE3\x83\x84", "/foo/bar/%E3%83%84"},
        {"/foo/bar/%e3%83%84", "/foo/bar/%E3%83%84"},
        {"/foo/bar/%62%61%7A", "/foo/bar/baz"},
        {"/a%20b", "/a b"},
        {"/a%b", "/a%25b"},
        {"/a%", "/a%25"},
        {"/~x", "/%7ex"},
    };
    for (size_t i = 0; i < sizeof(equal) / sizeof(equal[0]); i++) {
        for (int j = 0; j < 2; j++) {
            if (!rule_matches(equal[i][j], equal[i][1 - j])) {
                fail_msg("%s and %s", equal[i][j], equal[i][1 - j]);
            }
        }
    }
    assert_false(rule_matches("/a%2Fb", "/a/b"));
    assert_true(rule_matches("/a%2fb", "/a%2Fb"));
    assert_false(rule_matches("/a?b", "/a%3Fb"));
    /* An encoding is one octet when rules are compared. */
    static const char text[] = "user-agent: *\ndisallow: /%61%62\nallow: /abc\n";
    assert_true(allows(text, "x", "/abcd"));
}

TEST(robots_txt_itself_is_allowed) {
    assert_true(allows("user-agent: *\ndisallow: /\n", "x", "/robots.txt"));
    assert_false(allows("user-agent: *\ndisallow: /\n", "x", "/robots.txt?"));
}

TEST(files_without_rules_for_us_keep_nothing) {
    static const char *const texts[] = {"", "user-agent: other\ndisallow: /\n",
                                        "user-agent: *\ndisallow:\n",
                                        "<!DOCTYPE html>\n<p>Disallow: / here</p>\n",
                                        "user-agent: *\ndisallow: /\nuser-agent: us\n"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct robots *r = NULL;
        assert_ok(robots_create(&r, texts[i], strlen(texts[i]), "us", &err), err);
        assert_null(r);
        assert_true(robots_allows(r, "/"));
        assert_int_equal(robots_memory_bytes(r), 0);
    }
    struct robots *r = NULL;
    assert_ok(robots_create(&r, NULL, 0, "us", &err), err);
    assert_null(r);
}

TEST(wrong_tokens_are_refused) {
    static const char *const tokens[] = {"", "a b", "bot/1.0", "*", "caf\xC3\xA9"};
    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++) {
        struct robots *r = NULL;
        assert_status(robots_create(&r, "a", 1, tokens[i], &err), STATUS_INVALID, err);
        assert_null(r);
    }
}

/* `count` rules /NNNNNN, then one more line. */
static char *long_file(size_t *size_bytes, size_t count, const char *last) {
    char *text = malloc(64 + 24 * count + strlen(last));
    assert_non_null(text);
    size_t n = (size_t)sprintf(text, "user-agent: *\n");
    for (size_t i = 0; i < count; i++) {
        n += (size_t)sprintf(text + n, "disallow: /%06zu\n", i);
    }
    *size_bytes = n + (size_t)sprintf(text + n, "%s", last);
    return text;
}

TEST(rules_beyond_the_limits) {
    struct robots *r = NULL;
    size_t size_bytes = 0;
    char *text = long_file(&size_bytes, 65536 / 9, "");
    assert_ok(robots_create(&r, text, size_bytes, "a", &err), err);
    assert_in_range(robots_memory_bytes(r), 65000, ROBOTS_MAX_KEPT_BYTES + 64);
    assert_false(robots_allows(r, "/007280"));
    assert_true(robots_allows(r, "/007281"));
    robots_destroy(r);
    free(text);
    text = long_file(&size_bytes, 65536 / 9 + 1, "");
    assert_status(robots_create(&r, text, size_bytes, "a", &err), STATUS_LIMIT, err);
    assert_null(r);
    /* As many for others are no burden. */
    memcpy(text, "user-agent: b", 13);
    assert_ok(robots_create(&r, text, size_bytes, "a", &err), err);
    assert_null(r);
    free(text);
}

TEST(lines_beyond_500_kib_are_ignored) {
    char *text = malloc(ROBOTS_MAX_BYTES + 100);
    struct robots *r = NULL;
    assert_non_null(text);
    memset(text, '#', ROBOTS_MAX_BYTES + 100);
    memcpy(text, "user-agent: *\ndisallow: /first\n", 31);
    memcpy(text + ROBOTS_MAX_BYTES - 18, "\ndisallow: /second\ndisallow: /third\n", 36);
    assert_ok(robots_create(&r, text, ROBOTS_MAX_BYTES + 100, "a", &err), err);
    assert_false(robots_allows(r, "/first"));
    assert_false(robots_allows(r, "/second"));
    assert_true(robots_allows(r, "/third"));
    robots_destroy(r);
    /* A line across the limit is ignored as a whole. */
    memcpy(text + ROBOTS_MAX_BYTES - 18, "#\ndisallow: /second/x\n", 22);
    assert_ok(robots_create(&r, text, ROBOTS_MAX_BYTES + 100, "a", &err), err);
    assert_true(robots_allows(r, "/second/x"));
    assert_false(robots_allows(r, "/first"));
    robots_destroy(r);
    free(text);
}

/* CPU seconds of deciding on a path of 4,000 octets under `count` rules of `stars`, octets and b.
 */
static double seconds_of(const char *stars, size_t octets, size_t count, bool *allowed) {
    static char text[1 << 16];
    static char path[4002] = "/";
    size_t at = (size_t)snprintf(text, sizeof text, "user-agent: *\n");
    for (size_t i = 0; i < count; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "disallow: /%s%0*db\n", stars,
                               (int)octets, 0);
    }
    assert_true(at < sizeof text);
    memset(path + 1, '0', sizeof path - 2);
    struct robots *r = NULL;
    assert_ok(robots_create(&r, text, at, "ccstream", &err), err);
    const clock_t begun = clock();
    *allowed = robots_allows(r, path);
    const double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    robots_destroy(r);
    return seconds;
}

TEST(rules_made_to_be_slow_cost_little_and_forbid) {
    bool allowed = true;
    assert_true(seconds_of("*", 1850, 33, &allowed) < 0.5);
    assert_false(allowed);
    assert_true(seconds_of("*", 1, 4000, &allowed) < 0.5);
    assert_false(allowed);
    assert_true(seconds_of("*", 1, 100, &allowed) < 0.5); /* as many as sites have */
    assert_true(allowed);
    assert_true(seconds_of("", 1850, 33, &allowed) < 0.5);
    assert_true(allowed);
}
