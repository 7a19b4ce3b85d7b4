#include "formats/base/redact.h"

#include <string.h>

#include "tests/support/test.h"

TEST(secrets_of_locations_are_taken_out) {
    static const char *const cases[][2] = {
        {"https://user:pw@host/d?X-Amz-Signature=s", "https://host/d?..."},
        {"cannot read 's3://key:se/cret@bucket/d': x", "cannot read 's3://bucket/d': x"},
        {"http://token@host:80/d, and more", "http://host:80/d, and more"},
        {"http://h/d?a=b: HTTP status 404", "http://h/d?...: HTTP status 404"},
        {"http://h/d#token=x", "http://h/d?..."},
        {"http://user:passwordthatwascu", "http://"},
        {"http://u:1p", "http://"},
        {"http://h/d?x", "http://h/d?."},
        {"{\"data\":[\"http://u:p@h/d?s\",\"http://h/e\"]}",
         "{\"data\":[\"http://h/d?.\",\"http://h/e\"]}"},
        {"two: http://a:b@c/ http://d:e@f/?g=hijk.", "two: http://c/ http://f/?...."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128];
        strcpy(text, cases[i][0]);
        assert_true(redact_locations(text));
        assert_string_equal(text, cases[i][1]);
        assert_true(!redact_locations(text) || strstr(text, "?.") != NULL);
    }
}

TEST(other_texts_stay) {
    static const char *const cases[] = {"",
                                        "://",
                                        "no location: a@b?c",
                                        "http://127.0.0.1:1: no answer",
                                        "http://[::1]:80/d",
                                        "'http://host:8080', and",
                                        "hf://datasets/owner/name@main/d",
                                        "http://h/d?...",
                                        "what is http://h/d? A place"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128];
        strcpy(text, cases[i]);
        assert_false(redact_locations(text));
        assert_string_equal(text, cases[i]);
    }
}
