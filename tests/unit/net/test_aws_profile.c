/*
 * Keys, region and endpoint: which source has precedence, and what the files of the AWS tools look
 * like.
 */
#include "net/aws_profile.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/clean_environment.h"
#include "tests/support/test.h"

static struct error err;

static void write_aws_file(const char *name, const char *text) {
    mkdir(test_temp_path(".aws"), 0700);
    test_write_file(test_temp_path(".aws/%s", name), text, strlen(text));
}

static void check(const char *got, const char *expected) {
    if (expected == NULL) {
        assert_null(got);
    } else {
        assert_non_null(got);
        assert_string_equal(got, expected);
    }
}

/* What is found for a profile; NULL: not set. */
static void check_found(const char *name,
                        const char *access,
                        const char *secret,
                        const char *token,
                        const char *region,
                        const char *endpoint) {
    struct aws_profile p;
    assert_ok(aws_profile_find(&p, name, &err), err);
    check(p.access_key, access);
    check(p.secret_key, secret);
    check(p.session_token, token);
    check(p.region, region);
    check(p.endpoint, endpoint);
    aws_profile_fini(&p);
}

static void check_refused(const char *name, enum status status, const char *message) {
    struct aws_profile p;
    assert_status(aws_profile_find(&p, name, &err), status, err);
    if (strstr(err.text, message) == NULL) {
        fail_msg("'%s' is not in: %s", message, err.text);
    }
    assert_null(p.access_key);
    assert_null(p.region);
}

static void write_two_profiles(void) {
    write_aws_file("credentials", "[default]\n"
                                  "aws_access_key_id = AKIA1\n"
                                  "aws_secret_access_key = s+/=1\n"
                                  "[ other ]\n"
                                  "aws_access_key_id=AKIA2\r\n"
                                  "aws_secret_access_key=secret2\r\n"
                                  "aws_session_token = token2\r\n");
    write_aws_file("config", "# comment\n"
                             "[default]\n"
                             "region = eu-west-1\n"
                             "[profile other]\n"
                             "region = us-west-2 ; comment\n"
                             "endpoint_url = http://localhost:9000\n"
                             "s3 =\n"
                             "    region = nested\n"
                             "[other]\n"
                             "region = not-a-profile\n"
                             "[profile \"only config\"]\n"
                             "aws_access_key_id = AKIA3\n"
                             "aws_secret_access_key = 3#;x\n");
}

TEST(nothing_set_is_nothing_found) {
    clean_environment();
    check_found(NULL, NULL, NULL, NULL, NULL, NULL);
    unsetenv("HOME");
    check_found(NULL, NULL, NULL, NULL, NULL, NULL);
}

TEST(profiles_of_both_files) {
    clean_environment();
    write_two_profiles();
    check_found(NULL, "AKIA1", "s+/=1", NULL, "eu-west-1", NULL);
    check_found("other", "AKIA2", "secret2", "token2", "us-west-2", "http://localhost:9000");
    check_found("only config", "AKIA3", "3#;x", NULL, NULL, NULL);
    setenv("AWS_PROFILE", "other", 1);
    check_found(NULL, "AKIA2", "secret2", "token2", "us-west-2", "http://localhost:9000");
    check_found("default", "AKIA1", "s+/=1", NULL, "eu-west-1", NULL);
}

TEST(variables_have_precedence) {
    clean_environment();
    write_two_profiles();
    setenv("AWS_ACCESS_KEY_ID", "AKIA9", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret9", 1);
    setenv("AWS_DEFAULT_REGION", "ap-south-1", 1);
    setenv("AWS_ENDPOINT_URL", "http://a", 1);
    check_found(NULL, "AKIA9", "secret9", NULL, "ap-south-1", "http://a");
    setenv("AWS_SESSION_TOKEN", "token9", 1);
    setenv("AWS_REGION", "sa-east-1", 1);
    setenv("AWS_ENDPOINT_URL_S3", "http://b", 1);
    check_found(NULL, "AKIA9", "secret9", "token9", "sa-east-1", "http://b");
    /* A profile that is asked for has its own keys. */
    check_found("other", "AKIA2", "secret2", "token2", "sa-east-1", "http://b");
    setenv("AWS_ACCESS_KEY_ID", "", 1);
    check_refused(NULL, STATUS_INVALID, "AWS_ACCESS_KEY_ID is not");
    setenv("AWS_SECRET_ACCESS_KEY", "", 1);
    check_found(NULL, "AKIA1", "s+/=1", NULL, "sa-east-1", "http://b");
    setenv("AWS_REGION", "a\nb", 1);
    check_refused(NULL, STATUS_INVALID, "AWS_REGION");
}

TEST(files_may_lie_elsewhere) {
    clean_environment();
    static const char text[] = "[default]\naws_access_key_id=A\naws_secret_access_key=B\n";
    test_write_file(test_temp_path("c"), text, sizeof(text) - 1);
    test_write_file(test_temp_path("d"), "[default]\nregion=r\n", 19);
    setenv("AWS_SHARED_CREDENTIALS_FILE", test_temp_path("c"), 1);
    setenv("AWS_CONFIG_FILE", test_temp_path("d"), 1);
    check_found(NULL, "A", "B", NULL, "r", NULL);
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    check_found(NULL, "A", "B", NULL, NULL, NULL);
}

TEST(the_last_of_equal_keys_and_sections_counts) {
    clean_environment();
    write_aws_file("config", "[default]\nregion = a\nregion = b\n[x]\nregion = c\n[default]\n"
                             "aws_access_key_id = A\naws_secret_access_key = B");
    check_found(NULL, "A", "B", NULL, "b", NULL);
}

TEST(named_profiles_must_exist) {
    clean_environment();
    check_refused("none", STATUS_NOTFOUND, "'none'");
    setenv("AWS_PROFILE", "absent", 1);
    check_refused(NULL, STATUS_NOTFOUND, "'absent'");
    setenv("AWS_ACCESS_KEY_ID", "A", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "B", 1);
    check_found(NULL, "A", "B", NULL, NULL, NULL);
}

TEST(keys_from_elsewhere_are_an_error_that_helps) {
    clean_environment();
    write_aws_file("config", "[default]\nregion = a\n[profile sso]\nsso_session = x\n");
    check_refused("sso", STATUS_UNSUPPORTED, "aws configure export-credentials --profile sso");
    check_found(NULL, NULL, NULL, NULL, "a", NULL);
    write_aws_file("credentials", "[sso]\naws_access_key_id = A\naws_secret_access_key = B\n");
    check_found("sso", "A", "B", NULL, NULL, NULL);
}

TEST(malformed_files_are_refused_by_line) {
    clean_environment();
    write_aws_file("credentials", "[default]\naws_access_key_id = A\n");
    check_refused(NULL, STATUS_CORRUPT, "no aws_secret_access_key");
    write_aws_file("credentials", "[default]\naws_secret_access_key = A\n");
    check_refused(NULL, STATUS_CORRUPT, "no aws_access_key_id");
    write_aws_file("credentials", "[x]\n\n[default\n");
    check_refused(NULL, STATUS_CORRUPT, "credentials:3");
    write_aws_file("credentials", "[x]\nanything\n[default]\nregion\n");
    check_refused(NULL, STATUS_CORRUPT, "credentials:4");
    write_aws_file("credentials", "[default]\nregion = a b\n");
    check_refused(NULL, STATUS_CORRUPT, "value of region");
    char *large = calloc(1, AWS_MAX_FILE_BYTES + 1);
    assert_non_null(large);
    test_write_file(test_temp_path(".aws/credentials"), large, AWS_MAX_FILE_BYTES + 1);
    free(large);
    check_refused(NULL, STATUS_LIMIT, "credentials");
}
