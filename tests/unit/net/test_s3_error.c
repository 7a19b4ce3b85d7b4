/*
 * Errors of S3 servers: as Amazon, MinIO and Ceph write them, cut anywhere, and bodies that are
 * none.
 */
#include "net/s3_error.h"

#include <string.h>

#include "tests/support/test.h"

static const char missing[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message>"
    "<Key>train/dataset.json</Key><RequestId>4442587FB7D0A2F9</RequestId></Error>";

TEST(code_and_message_are_found) {
    struct s3_error e;
    assert_true(s3_error_parse(&e, missing));
    assert_string_equal(e.code, "NoSuchKey");
    assert_string_equal(e.message, "The specified key does not exist.");
    assert_non_null(strstr(s3_error_advice(e.code), "dataset.json"));
    assert_true(s3_error_parse(&e, "<Error><Resource>/b</Resource><Code>Teapot</Code></Error>"));
    assert_string_equal(e.message, "");
    assert_null(s3_error_advice(e.code));
}

TEST(messages_are_bounded_and_printable) {
    struct s3_error e;
    char body[512] = "<Error><Code>A</Code><Message>a &amp;&lt;b&gt;\n\033[31m\xc3\xa9 ";
    const size_t begin = strlen(body);
    assert_true(s3_error_parse(&e, body));
    assert_string_equal(e.message, "a &<b>??[31m?? ");
    memset(body + begin, 'x', sizeof body - 1 - begin);
    assert_true(s3_error_parse(&e, body));
    assert_int_equal(strlen(e.message), S3_ERROR_MESSAGE_BYTES - 1);
}

TEST(other_bodies_are_none) {
    struct s3_error e;
    static const char *const bodies[] = {"",
                                         "not found",
                                         "<html><title>404</title></html>",
                                         "<Code>NoSuchKey</Code>",
                                         "<Error><Code></Code></Error>",
                                         "<Error><Code>No Such Key</Code></Error>",
                                         "<Error><Code>NoSuchKey",
                                         "<Error><Code>\033[2J</Code></Error>"};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        assert_false(s3_error_parse(&e, bodies[i]));
    }
    char body[128] = "<Error><Code>";
    memset(body + 13, 'A', S3_ERROR_CODE_BYTES);
    strcat(body, "</Code>");
    assert_false(s3_error_parse(&e, body));
}
