/*
 * Locations: URLs of files, percent-encoding, endpoints, and what requests carry.
 */
#include "net/location.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "tests/support/clean_environment.h"
#include "tests/support/fault_server.h"
#include "tests/support/test.h"

static struct error err;

static void check_url(const char *text,
                      const struct location_options *opt,
                      const char *name,
                      const char *expected) {
    struct location *l = NULL;
    char url[HTTP_MAX_URL_BYTES];
    assert_ok(location_create(&l, text, opt, &err), err);
    assert_ok(location_url(l, url, name, &err), err);
    assert_string_equal(url, expected);
    location_destroy(l);
}

static void check_refused(const char *text, const struct location_options *opt) {
    struct location *l = NULL;
    assert_status(location_create(&l, text, opt, &err), STATUS_USAGE, err);
    assert_null(l);
}

TEST(http_locations) {
    check_url("https://h/a", NULL, "b", "https://h/a/b");
    check_url("HTTP://h:8080/a/", NULL, "b/c", "HTTP://h:8080/a/b/c");
    check_url("https://h", NULL, "b", "https://h/b");
    check_url("https://h/a%20b?sig=x%2F", NULL, "c", "https://h/a%20b/c?sig=x%2F");
    check_url("https://h/a/?sig=/", NULL, "c d", "https://h/a/c%20d?sig=/");
    check_refused("https://", NULL);
    check_refused("https:///a", NULL);
    check_refused("https://h/a#b", NULL);
    check_refused("ftp://h/a", NULL);
    check_refused("folder", NULL);
    assert_true(location_is_remote("https://h") && location_is_remote("s3://b"));
    assert_true(location_is_remote("hf://datasets/a/b") && location_is_remote("Http://h"));
    assert_false(location_is_remote("https:/h") || location_is_remote("/s3://b"));
}

TEST(names_are_percent_encoded) {
    struct location *l = NULL;
    char name[256];
    char url[HTTP_MAX_URL_BYTES];
    assert_ok(location_create(&l, "https://h", NULL, &err), err);
    for (int c = 1; c < 256; c++) {
        name[c - 1] = (char)(c == '/' ? 'x' : c);
    }
    name[255] = '\0';
    assert_ok(location_url(l, url, name, &err), err);
    const char *at = url + strlen("https://h/");
    for (int c = 1; c < 256; c++) {
        char expected[4];
        const bool plain = c == '/' || (c < 128 && strchr("-._~", c)) || (c >= '0' && c <= '9') ||
                           (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        snprintf(expected, sizeof(expected), plain ? "%c" : "%%%02X", c == '/' ? 'x' : c);
        assert_int_equal(strncmp(at, expected, strlen(expected)), 0);
        at += strlen(expected);
    }
    assert_int_equal(*at, '\0');
    location_destroy(l);
}

TEST(names_stay_in_the_folder) {
    static const char *const names[] = {"", ".", "..", "../a", "a/..", "a/./b", "/a", "a//b", "a/"};
    struct location *l = NULL;
    char url[HTTP_MAX_URL_BYTES];
    assert_ok(location_create(&l, "s3://bucket/x", NULL, &err), err);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_status(location_url(l, url, names[i], &err), STATUS_INVALID, err);
    }
    assert_ok(location_url(l, url, "...", &err), err);
    char *name = malloc(HTTP_MAX_URL_BYTES);
    assert_non_null(name);
    const size_t most = HTTP_MAX_URL_BYTES - 1 - strlen("https://bucket.s3.amazonaws.com/x/");
    memset(name, 'a', HTTP_MAX_URL_BYTES);
    name[most - 2] = '\0'; /* the encoder asks for room for an encoding */
    assert_ok(location_url(l, url, name, &err), err);
    name[most - 2] = 'a';
    name[most + 1] = '\0';
    assert_status(location_url(l, url, name, &err), STATUS_LIMIT, err);
    free(name);
    location_destroy(l);
}

TEST(buckets_at_amazon) {
    clean_environment();
    check_url("s3://my-bucket/a/b", NULL, "c", "https://my-bucket.s3.amazonaws.com/a/b/c");
    check_url("s3://my-bucket", NULL, "c", "https://my-bucket.s3.amazonaws.com/c");
    check_url("s3://my-bucket/", NULL, "c", "https://my-bucket.s3.amazonaws.com/c");
    check_url("s3://my-bucket/a//", NULL, "c", "https://my-bucket.s3.amazonaws.com/a//c");
    check_url("s3://b-1/k=1/a+b@c", NULL, "x", "https://b-1.s3.amazonaws.com/k%3D1/a%2Bb%40c/x");
    setenv("AWS_REGION", "eu-central-1", 1);
    check_url("s3://bucket", NULL, "c", "https://bucket.s3.eu-central-1.amazonaws.com/c");
    check_url("s3://my.bucket/a", NULL, "c", "https://s3.eu-central-1.amazonaws.com/my.bucket/a/c");
    check_url("s3://Old_B/a", NULL, "c", "https://s3.eu-central-1.amazonaws.com/Old_B/a/c");
    setenv("AWS_REGION", "cn-north-1", 1);
    check_url("s3://bucket", NULL, "c", "https://bucket.s3.cn-north-1.amazonaws.com.cn/c");
    setenv("AWS_REGION", "evil.example/", 1);
    check_refused("s3://bucket/a", NULL);
    unsetenv("AWS_REGION");
    check_refused("s3://", NULL);
    check_refused("s3:///key", NULL);
    check_refused("s3://a@b/key", NULL);
    check_refused("s3://../key", NULL);
    check_refused("s3://bucket/a/../b", NULL);
}

TEST(buckets_at_an_endpoint) {
    clean_environment();
    const struct location_options opt = {.endpoint = "http://127.0.0.1:9000/"};
    check_url("s3://bucket/a", &opt, "c", "http://127.0.0.1:9000/bucket/a/c");
    setenv("AWS_ENDPOINT_URL", "https://storage.googleapis.com", 1);
    check_url("s3://bucket/a", NULL, "c", "https://storage.googleapis.com/bucket/a/c");
    check_url("s3://bucket/a", &opt, "c", "http://127.0.0.1:9000/bucket/a/c");
    const struct location_options bad[] = {
        {.endpoint = "localhost:9000"}, {.endpoint = "http://h/?x"}, {.endpoint = "ftp://h"}};
    for (size_t i = 0; i < 3; i++) {
        check_refused("s3://bucket/a", &bad[i]);
    }
}

TEST(datasets_of_the_hub) {
    clean_environment();
    check_url("hf://datasets/o/n", NULL, "a", "https://huggingface.co/datasets/o/n/resolve/main/a");
    check_url("hf://datasets/o/n@v1.0/d/e/", NULL, "a b",
              "https://huggingface.co/datasets/o/n/resolve/v1.0/d/e/a%20b");
    check_url("hf://datasets/o/n@refs%2Fconvert%2Fparquet", NULL, "a",
              "https://huggingface.co/datasets/o/n/resolve/refs%2Fconvert%2Fparquet/a");
    setenv("HF_ENDPOINT", "http://localhost:1", 1);
    check_url("hf://datasets/o/n/d", NULL, "a", "http://localhost:1/datasets/o/n/resolve/main/d/a");
    static const char *const bad[] = {"hf://",
                                      "hf://models/o/n",
                                      "hf://o/n",
                                      "hf://datasets/",
                                      "hf://datasets/o",
                                      "hf://datasets/o/",
                                      "hf://datasets/o@x/n",
                                      "hf://datasets/o/n@",
                                      "hf://datasets/o/n@/a",
                                      "hf://datasets/../n",
                                      "hf://datasets/o/n/../../x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        check_refused(bad[i], NULL);
    }
}

/* What a request to the location carries: its header or NULL, and whether it is signed. */
static void check_authorized(const char *text, const char *header, const char *access_key) {
    struct location *l = NULL;
    struct http_request request = {.url = text};
    assert_ok(location_create(&l, text, NULL, &err), err);
    assert_ok(location_authorize(l, &request, &err), err);
    assert_int_equal(request.header_count, header ? 1 : 0);
    if (header) {
        assert_string_equal(request.headers[0], header);
    }
    assert_int_equal(request.signature != NULL, access_key != NULL);
    if (access_key) {
        assert_string_equal(request.signature->access_key, access_key);
        assert_string_equal(request.signature->service, "s3");
    }
    location_destroy(l);
}

TEST(tokens_of_the_hub) {
    clean_environment();
    check_authorized("hf://datasets/o/n", NULL, NULL);
    mkdir(test_temp_path(".cache"), 0700);
    mkdir(test_temp_path(".cache/huggingface"), 0700);
    test_write_file(test_temp_path(".cache/huggingface/token"), "hf_home\n", 8);
    check_authorized("hf://datasets/o/n", "Authorization: Bearer hf_home", NULL);
    test_write_file(test_temp_path("token"), "hf_file", 7);
    setenv("HF_HOME", test_temp_dir(), 1);
    check_authorized("hf://datasets/o/n", "Authorization: Bearer hf_file", NULL);
    setenv("HF_TOKEN", "hf_variable", 1);
    check_authorized("hf://datasets/o/n", "Authorization: Bearer hf_variable", NULL);
    check_authorized("https://h/a", NULL, NULL);
    setenv("HF_TOKEN", "a\x01", 1);
    check_refused("hf://datasets/o/n", NULL);
}

TEST(requests_to_s3_are_signed_if_there_are_keys) {
    clean_environment();
    check_authorized("s3://bucket", NULL, NULL);
    setenv("AWS_ACCESS_KEY_ID", "AKIA", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    /* SHA-256 of no bytes. */
    check_authorized(
        "s3://bucket",
        "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "AKIA");
    check_authorized("https://h/a", NULL, NULL);
}

/* --- the metadata service */

static void write_role(const char *access_key, time_t end_s) {
    char text[512];
    struct tm t;
    gmtime_r(&end_s, &t);
    const int n = snprintf(text, sizeof(text),
                           "{\n  \"Code\" : \"Success\",\n  \"Type\" : \"AWS-HMAC\",\n"
                           "  \"AccessKeyId\" : \"%s\",\n  \"SecretAccessKey\" : \"s\\/+=\",\n"
                           "  \"Token\" : \"t==\",\n"
                           "  \"Expiration\" : \"%04d-%02d-%02dT%02d:%02d:%02dZ\"\n}",
                           access_key, t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour,
                           t.tm_min, t.tm_sec);
    test_write_file(test_temp_path("latest/meta-data/iam/security-credentials/role"), text,
                    (size_t)n);
}

/* A folder whose index is the list of roles. */
static void start_service(struct fault_server *s, const char *options) {
    static const char *const folders[] = {"latest", "latest/meta-data", "latest/meta-data/iam",
                                          "latest/meta-data/iam/security-credentials"};
    char url[64];
    for (size_t i = 0; i < 4; i++) {
        mkdir(test_temp_path("%s", folders[i]), 0700);
    }
    test_write_file(test_temp_path("%s/index", folders[3]), "role\n", 5);
    fault_server_start(s, test_temp_dir(), options);
    snprintf(url, sizeof(url), "http://127.0.0.1:%d/", s->port);
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url, 1);
}

static int requests_of(const struct fault_server *s) {
    char *stats = fault_server_stats(s);
    int count = -1;
    assert_int_equal(sscanf(stats, "{\"requests\": %d", &count), 1);
    free(stats);
    return count;
}

TEST(keys_of_the_machine_are_fetched_and_refreshed) {
    static const struct location_options opt = {.instance_metadata = true};
    struct fault_server s;
    struct location *l = NULL;
    struct http_request r = {0};
    clean_environment();
    start_service(&s, "--imds");
    write_role("first", time(NULL) + 200); /* ends soon: asked for again next time */
    assert_ok(location_create(&l, "s3://bucket", &opt, &err), err);
    assert_ok(location_authorize(l, &r, &err), err);
    assert_string_equal(r.signature->access_key, "first");
    assert_string_equal(r.signature->secret_key, "s/+=");
    assert_string_equal(r.signature->session_token, "t==");
    assert_int_equal(requests_of(&s), 3);
    location_destroy(l);
    write_role("second", time(NULL) - 10); /* ended */
    assert_ok(location_create(&l, "s3://bucket", &opt, &err), err);
    assert_ok(location_authorize(l, &r, &err), err);
    write_role("third", time(NULL) + 3600);
    assert_ok(location_authorize(l, &r, &err), err);
    assert_string_equal(r.signature->access_key, "third");
    assert_int_equal(requests_of(&s), 9);
    write_role("fourth", time(NULL) + 3600);
    assert_ok(location_authorize(l, &r, &err), err);
    assert_string_equal(r.signature->access_key, "third");
    assert_int_equal(requests_of(&s), 9);
    location_destroy(l);
    /* Keys that are set have precedence; without the option nothing is asked. */
    assert_ok(location_create(&l, "s3://bucket", NULL, &err), err);
    assert_ok(location_authorize(l, &r, &err), err);
    assert_null(r.signature);
    location_destroy(l);
    setenv("AWS_ACCESS_KEY_ID", "AKIA", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    assert_ok(location_create(&l, "s3://bucket", &opt, &err), err);
    assert_ok(location_authorize(l, &r, &err), err);
    assert_string_equal(r.signature->access_key, "AKIA");
    location_destroy(l);
    assert_int_equal(requests_of(&s), 9);
    fault_server_stop(&s);
}

TEST(a_service_that_fails_is_an_error_only_without_valid_keys) {
    static const struct location_options opt = {.instance_metadata = true};
    struct fault_server s;
    struct location *l = NULL;
    struct http_request r = {0};
    clean_environment();
    start_service(&s, "--imds");
    write_role("first", time(NULL) + 200);
    assert_ok(location_create(&l, "s3://bucket", &opt, &err), err);
    assert_ok(location_authorize(l, &r, &err), err);
    fault_server_stop(&s);
    assert_ok(location_authorize(l, &r, &err), err);
    assert_string_equal(r.signature->access_key, "first");
    location_destroy(l);
    assert_ok(location_create(&l, "s3://bucket", &opt, &err), err);
    assert_status(location_authorize(l, &r, &err), STATUS_IO, err);
    start_service(&s, "--imds --faults 404=1");
    assert_status(location_authorize(l, &r, &err), STATUS_NOTFOUND, err);
    fault_server_stop(&s);
    start_service(&s, "--imds");
    test_write_file(test_temp_path("latest/meta-data/iam/security-credentials/role"), "{}", 2);
    assert_status(location_authorize(l, &r, &err), STATUS_CORRUPT, err);
    fault_server_stop(&s);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    assert_status(location_authorize(l, &r, &err), STATUS_UNSUPPORTED, err);
    location_destroy(l);
}
