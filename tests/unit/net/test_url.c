#include "net/url.h"

#include <arpa/inet.h>
#include <string.h>

#include "tests/support/test.h"

static struct url read_url(const char *text, const char *base) {
    struct error err = {0};
    struct url u;
    const enum status s = url_init(&u, text, base, &err);
    if (s == STATUS_UNSUPPORTED) {
        test_skip("%s", err.text);
    }
    assert_ok(s, err);
    return u;
}

static void expect(const char *text, const char *base, const char *normal, const char *origin) {
    struct url u = read_url(text, base);
    assert_int_equal(strcasecmp(u.text, normal), 0); /* versions of libcurl write %c3 or %C3 */
    assert_string_equal(u.origin, origin);
    assert_null(strstr(u.text, "Example"));
    assert_int_equal(u.path[0], '/');
    url_fini(&u);
}

TEST(urls_are_normalised) {
    expect("HTTP://Example.ORG", NULL, "http://example.org/", "http://example.org:80");
    expect("https://example.org:443/a?b#c", NULL, "https://example.org:443/a?b",
           "https://example.org:443");
    expect("http://example.org/a b/\xc3\xa9?q=x y", NULL, "http://example.org/a%20b/%C3%A9?q=x+y",
           "http://example.org:80");
    expect("http://example.org/a/../b/./c", NULL, "http://example.org/b/c",
           "http://example.org:80");
    expect("http://[::1]:8080/x", NULL, "http://[::1]:8080/x", "http://[::1]:8080");
    expect("http://a b:%40%20\xc3\xa9@h.org", NULL, "http://a%20b:%40%20%C3%A9@h.org/",
           "http://h.org:80");
}

TEST(hosts_of_other_scripts_are_written_in_ascii) {
    struct url u = read_url("http://M\xc3\xbcnchen.test:81/\xc3\xbc", NULL);
    assert_string_equal(u.host, "xn--mnchen-3ya.test");
    assert_string_equal(u.origin, "http://xn--mnchen-3ya.test:81");
    assert_int_equal(strcasecmp(u.text, "http://xn--mnchen-3ya.test:81/%c3%bc"), 0);
    url_fini(&u);
}

TEST(relative_urls_are_resolved) {
    expect("../c", "http://h.org/a/b/d?x", "http://h.org/a/c", "http://h.org:80");
    expect("/c", "http://h.org/a/b", "http://h.org/c", "http://h.org:80");
    expect("//other.org/c", "https://h.org/a/b", "https://other.org/c", "https://other.org:443");
    expect("?q", "http://h.org/a/b", "http://h.org/a/b?q", "http://h.org:80");
}

TEST(addresses_have_a_scope) {
    static const struct {
        const char *text;
        enum address_scope scope;
    } cases[] = {
        {"127.0.0.1", ADDRESS_LOOPBACK},
        {"10.1.2.3", ADDRESS_PRIVATE},
        {"172.16.0.1", ADDRESS_PRIVATE},
        {"172.32.0.1", ADDRESS_PUBLIC},
        {"192.168.9.9", ADDRESS_PRIVATE},
        {"169.254.169.254", ADDRESS_LINK},
        {"100.64.0.1", ADDRESS_PRIVATE},
        {"100.128.0.1", ADDRESS_PUBLIC},
        {"0.0.0.0", ADDRESS_LOOPBACK},
        {"224.0.0.1", ADDRESS_PRIVATE},
        {"255.255.255.255", ADDRESS_PRIVATE},
        {"8.8.8.8", ADDRESS_PUBLIC},
        {"192.0.3.1", ADDRESS_PUBLIC},
        {"198.20.0.1", ADDRESS_PUBLIC},
        {"::1", ADDRESS_LOOPBACK},
        {"::", ADDRESS_LOOPBACK},
        {"fe80::1", ADDRESS_LINK},
        {"fd00::1", ADDRESS_PRIVATE},
        {"ff02::1", ADDRESS_PRIVATE},
        {"::ffff:10.0.0.1", ADDRESS_PRIVATE},
        {"::ffff:8.8.8.8", ADDRESS_PUBLIC},
        {"64:ff9b::7f00:1", ADDRESS_LOOPBACK},
        {"64:ff9b::808:808", ADDRESS_PUBLIC},
        {"2002:7f00:1::1", ADDRESS_LOOPBACK},
        {"2002:808:808::1", ADDRESS_PUBLIC},
        {"2001:db8::1", ADDRESS_PRIVATE},
        {"2606:4700::1111", ADDRESS_PUBLIC},
        {"100.100.100.200", ADDRESS_LINK},
        {"168.63.129.16", ADDRESS_LINK},
        {"192.88.99.1", ADDRESS_PRIVATE},
        {"fd00:ec2::254", ADDRESS_LINK},
        {"::ffff:169.254.169.254", ADDRESS_LINK},
        {"::7f00:1", ADDRESS_PRIVATE},
        {"2001::1", ADDRESS_PRIVATE},
        {"2001:2::1", ADDRESS_PRIVATE},
        {"2001:200::1", ADDRESS_PUBLIC},
        {"3fff::1", ADDRESS_PRIVATE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t address[16];
        const bool v6 = strchr(cases[i].text, ':') != NULL;
        assert_int_equal(inet_pton(v6 ? AF_INET6 : AF_INET, cases[i].text, address), 1);
        assert_int_equal(v6 ? address_scope_v6(address) : address_scope_v4(address),
                         cases[i].scope);
    }
}

TEST(hosts_written_as_addresses_are_judged) {
    static const char *const private_ones[] = {
        "http://127.0.0.1/",   "http://localhost/",
        "http://a.LOCALHOST/", "http://[::1]/",
        "http://0x7f.0.0.1/",  "http://2130706433/",
        "http://localhost./",  "http://nas/",
        "http://nas.local/",   "http://metadata.google.internal/"};
    static const char *const public_ones[] = {"http://8.8.8.8/", "http://localhost.org/",
                                              "http://[2606:4700::1111]/"};
    for (size_t i = 0; i < sizeof private_ones / sizeof private_ones[0]; i++) {
        struct url u = read_url(private_ones[i], NULL);
        assert_true(url_host_scope(&u) > ADDRESS_PUBLIC);
        url_fini(&u);
    }
    for (size_t i = 0; i < sizeof public_ones / sizeof public_ones[0]; i++) {
        struct url u = read_url(public_ones[i], NULL);
        assert_int_equal(url_host_scope(&u), ADDRESS_PUBLIC);
        url_fini(&u);
    }
}

TEST(long_urls_are_refused) {
    static char text[2 * URL_MAX_BYTES];
    struct error err = {0};
    struct url u;
    memset(text, 'x', sizeof text - 1);
    memcpy(text, "http://h.org/", 13);
    const enum status s = url_init(&u, text, NULL, &err);
    if (s == STATUS_UNSUPPORTED) {
        test_skip("%s", err.text);
    }
    assert_int_equal(s, STATUS_LIMIT);
    url_fini(&u);
}
