#include "net/http.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/http_server.h"
#include "tests/support/test.h"

#define OBJECT "0123456789"

/* What came of one request. */
struct got {
    bool done;
    enum http_outcome outcome;
    struct http_response response;
    char url[256];
    char message[256];
    char error_body[16];
    char body[1024];
    size_t body_bytes;
    uint32_t heads;
    bool stop_at_head, stop_at_body;
};

static bool on_head(void *cookie, const struct http_response *response) {
    struct got *g = cookie;
    (void)response;
    g->heads++;
    return !g->stop_at_head;
}

static bool on_body(void *cookie, const void *bytes, size_t size_bytes) {
    struct got *g = cookie;
    assert_true(size_bytes <= sizeof g->body - 1 - g->body_bytes);
    memcpy(g->body + g->body_bytes, bytes, size_bytes);
    g->body_bytes += size_bytes;
    return !g->stop_at_body;
}

static void on_done(void *cookie, const struct http_result *r) {
    struct got *g = cookie;
    assert_false(g->done);
    g->done = true;
    g->outcome = r->outcome;
    g->response = *r->response;
    (void)snprintf(g->url, sizeof g->url, "%s", r->response->url);
    (void)snprintf(g->message, sizeof g->message, "%.255s", r->message);
    (void)snprintf(g->error_body, sizeof g->error_body, "%.15s", r->error_body);
    assert_int_equal(r->body_bytes, g->body_bytes);
}

/* Whether the head asks for `path`, with or without a query. */
static bool asks(const char *head, const char *path) {
    const size_t size = strlen(path);
    const char *at = strchr(head, ' ') + 1;
    return strncmp(at, path, size) == 0 && (at[size] == ' ' || at[size] == '?');
}

static void say_object(int socket, const char *head) {
    unsigned first = 0;
    unsigned last = 9;
    const char *range = strstr(head, "\r\nRange: bytes=");
    if (range == NULL) {
        http_server_say(socket, "HTTP/1.1 200 OK\r\nETag: \"e1\"\r\nContent-Type: text/plain\r\n"
                                "Content-Length: 10\r\n\r\n" OBJECT);
        return;
    }
    range += strlen("\r\nRange: bytes=");
    if (range[0] == '-') {
        (void)sscanf(range, "-%u", &last);
        first = last < 10 ? 10 - last : 0;
        last = 9;
    } else {
        (void)sscanf(range, "%u-%u", &first, &last);
    }
    last = last < 9 ? last : 9;
    http_server_say(socket,
                    "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %u-%u/10\r\n"
                    "Content-Length: %u\r\n\r\n%.*s",
                    first, last, last - first + 1, (int)(last - first + 1), OBJECT + first);
}

/* cookie: the port of another server, or NULL. */
static bool answer(void *cookie, const char *head, int socket) {
    if (asks(head, "/object")) {
        say_object(socket, head);
    } else if (asks(head, "/missing")) {
        http_server_say(socket, "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nsorry");
    } else if (asks(head, "/busy")) {
        http_server_say(socket, "HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n");
    } else if (asks(head, "/ignores-ranges")) {
        http_server_say(socket, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" OBJECT);
    } else if (asks(head, "/other-range")) {
        http_server_say(socket, "HTTP/1.1 206 OK\r\nContent-Range: bytes 3-4/10\r\n"
                                "Content-Length: 2\r\n\r\n34");
    } else if (asks(head, "/half")) {
        http_server_say(socket, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234");
        return false;
    } else if (asks(head, "/half-range")) {
        http_server_say(socket, "HTTP/1.1 206 OK\r\nContent-Range: bytes 2-5/10\r\n\r\n23");
        return false;
    } else if (asks(head, "/chunks")) {
        http_server_say(socket, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                                "5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n");
    } else if (asks(head, "/drops")) {
        return false;
    } else if (asks(head, "/silent")) {
        char byte;
        (void)recv(socket, &byte, 1, 0); /* until the client closes the connection */
        return false;
    } else if (asks(head, "/drip")) {
        http_server_say(socket, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
        for (int i = 0; i < 10; i++) {
            http_server_say(socket, "%d", i);
            (void)usleep(50000);
        }
    } else if (asks(head, "/slow-object")) {
        (void)usleep(20000);
        say_object(socket, head);
    } else if (asks(head, "/long-headers")) {
        http_server_say(socket, "HTTP/1.1 200 OK\r\n");
        for (int i = 0; i < 3000; i++) {
            http_server_say(socket, "X-%d: %0100d\r\n", i, i);
        }
        http_server_say(socket, "Content-Length: 0\r\n\r\n");
    } else if (asks(head, "/nonsense")) {
        http_server_say(socket, "SSH-2.0-OpenSSH_9.2\r\n\r\n");
        return false;
    } else if (asks(head, "/loop")) {
        http_server_say(socket,
                        "HTTP/1.1 302 Found\r\nLocation: loop?\r\nContent-Length: 0\r\n\r\n");
    } else if (asks(head, "/relative")) {
        http_server_say(socket, "HTTP/1.1 301 Moved\r\nLocation: ./a/../object#part\r\n"
                                "Content-Length: 5\r\n\r\nmoved");
    } else if (asks(head, "/to-file")) {
        http_server_say(socket, "HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n"
                                "Content-Length: 0\r\n\r\n");
    } else if (asks(head, "/elsewhere")) {
        http_server_say(socket,
                        "HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:%u/echo\r\n"
                        "Content-Length: 0\r\n\r\n",
                        cookie != NULL ? *(const uint16_t *)cookie : 0u);
    } else if (asks(head, "/tagged")) {
        http_server_say(socket,
                        "HTTP/1.1 200 OK\r\nX-Robots-Tag: other: noai\r\n"
                        "X-Robots-Tag: ccstream-test: NoImageAI\r\nContent-Length: 0\r\n\r\n");
    } else if (asks(head, "/tagged-others")) {
        http_server_say(socket, "HTTP/1.1 200 OK\r\nX-Robots-Tag: other: noai, noindex\r\n"
                                "Content-Length: 0\r\n\r\n");
    } else { /* /echo */
        http_server_say(socket, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(head),
                        head);
    }
    return true;
}

static struct http_options local_options(void) {
    struct http_options o;
    http_options_default(&o);
    o.allow_private = true;
    o.user_agent = "ccstream-test/1 (+https://example.org)";
    return o;
}

static struct http *local_http(void) {
    struct error err = {0};
    struct http *h;
    const struct http_options o = local_options();
    const enum status s = http_create(&h, &o, &err);
    if (s == STATUS_UNSUPPORTED) {
        test_skip("%s", err.text);
    }
    assert_int_equal(s, STATUS_OK);
    return h;
}

static void start(struct http *h, struct got *g, const struct http_request *request) {
    struct error err = {0};
    struct http_request r = *request;
    r.max_bytes = r.max_bytes != 0 ? r.max_bytes : 1000;
    r.cookie = g;
    r.on_head = on_head;
    r.on_body = on_body;
    r.on_done = on_done;
    assert_ok(http_start(h, &r, &err), err);
}

static void run_all(struct http *h) {
    struct error err = {0};
    while (http_pending(h) > 0) {
        assert_ok(http_run(h, 1000, &err), err);
    }
}

/* The answer to one request for `path`; other fields of *request may be set. */
static void
get(struct http *h, struct http_server *s, struct got *g, const char *path, struct http_request r) {
    char url[256];
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u%s", http_server_port(s), path);
    r.url = url;
    start(h, g, &r);
    run_all(h);
    assert_true(g->done);
}

/* One request with a server, options and connections of its own. */
static struct got get_alone(const char *path, struct http_request r) {
    struct got g = {0};
    struct http *h = local_http();
    struct http_server *s = http_server_start(answer, NULL);
    get(h, s, &g, path, r);
    http_destroy(h);
    http_server_stop(s);
    return g;
}

TEST(body_and_headers_arrive) {
    const struct got g = get_alone("/object", (struct http_request){0});
    assert_int_equal(g.outcome, HTTP_OK);
    assert_int_equal(g.response.status, 200);
    assert_string_equal(g.body, OBJECT);
    assert_string_equal(g.response.etag, "\"e1\"");
    assert_string_equal(g.response.content_type, "text/plain");
    assert_string_equal(g.response.address, "127.0.0.1");
    assert_int_equal(g.response.content_length, 10);
    assert_int_equal(g.response.retry_after_ms, -1);
    assert_int_equal(g.heads, 1);
}

TEST(another_status_is_reported_with_its_body) {
    const struct got g = get_alone("/missing", (struct http_request){0});
    assert_int_equal(g.outcome, HTTP_STATUS);
    assert_int_equal(g.response.status, 404);
    assert_int_equal(g.heads, 0);
    assert_int_equal(g.body_bytes, 0);
    assert_string_equal(g.error_body, "sorry");
    assert_non_null(strstr(g.message, "404"));
}

TEST(retry_after_is_read) {
    const struct got g = get_alone("/busy", (struct http_request){0});
    assert_int_equal(g.outcome, HTTP_STATUS);
    assert_int_equal(g.response.retry_after_ms, 7000);
}

TEST(ranges_are_exact_and_end_with_the_object) {
    struct got g = get_alone("/object", (struct http_request){.range_first = 2, .range_bytes = 3});
    assert_int_equal(g.outcome, HTTP_OK);
    assert_string_equal(g.body, "234");
    assert_int_equal(g.response.range_first, 2);
    assert_int_equal(g.response.range_total, 10);
    g = get_alone("/object", (struct http_request){.range_first = 8, .range_bytes = 100});
    assert_int_equal(g.outcome, HTTP_OK);
    assert_string_equal(g.body, "89");
    g = get_alone("/object", (struct http_request){.range_first = HTTP_UNKNOWN, .range_bytes = 4});
    assert_int_equal(g.outcome, HTTP_OK);
    assert_string_equal(g.body, "6789");
    g = get_alone("/object", (struct http_request){.range_first = HTTP_UNKNOWN, .range_bytes = 40});
    assert_int_equal(g.outcome, HTTP_OK);
    assert_string_equal(g.body, OBJECT);
}

TEST(another_range_than_asked_for_is_an_error) {
    const struct http_request range = {.range_first = 2, .range_bytes = 4};
    struct got g = get_alone("/ignores-ranges", range);
    assert_int_equal(g.outcome, HTTP_PROTOCOL);
    assert_non_null(strstr(g.message, "ignores ranges"));
    assert_int_equal(g.body_bytes, 0);
    g = get_alone("/other-range", range);
    assert_int_equal(g.outcome, HTTP_PROTOCOL);
    assert_int_equal(g.body_bytes, 0);
    g = get_alone("/half-range", range);
    assert_int_equal(g.outcome, HTTP_PARTIAL);
}

TEST(lost_connections_are_partial) {
    assert_int_equal(get_alone("/half", (struct http_request){0}).outcome, HTTP_PARTIAL);
    assert_int_equal(get_alone("/drops", (struct http_request){0}).outcome, HTTP_PARTIAL);
}

TEST(size_limit_holds_with_and_without_announced_length) {
    const struct http_request small = {.max_bytes = 9};
    struct got g = get_alone("/object", small);
    assert_int_equal(g.outcome, HTTP_TOO_LARGE);
    assert_int_equal(g.body_bytes, 0);
    assert_int_equal(get_alone("/chunks", small).outcome, HTTP_TOO_LARGE);
    assert_int_equal(get_alone("/chunks", (struct http_request){.max_bytes = 10}).outcome, HTTP_OK);
}

TEST(what_is_not_http_is_an_error_of_protocol) {
    assert_int_equal(get_alone("/nonsense", (struct http_request){0}).outcome, HTTP_PROTOCOL);
    const struct got g = get_alone("/long-headers", (struct http_request){0});
    assert_int_equal(g.outcome, HTTP_PROTOCOL);
}

TEST(receiver_stops_a_request) {
    struct http *h = local_http();
    struct http_server *s = http_server_start(answer, NULL);
    struct got at_head = {.stop_at_head = true};
    struct got at_body = {.stop_at_body = true};
    get(h, s, &at_head, "/object", (struct http_request){0});
    get(h, s, &at_body, "/object", (struct http_request){0});
    assert_int_equal(at_head.outcome, HTTP_STOPPED);
    assert_int_equal(at_head.body_bytes, 0);
    assert_int_equal(at_body.outcome, HTTP_STOPPED);
    http_destroy(h);
    http_server_stop(s);
}

TEST(timeouts_of_first_byte_and_whole_are_apart) {
    struct error err = {0};
    struct http *h;
    struct http_options o = local_options();
    struct http_server *s = http_server_start(answer, NULL);
    o.first_byte_timeout_ms = 400; /* a drip takes longer, and a busy machine begins in time */
    assert_ok(http_create(&h, &o, &err), err);
    struct got silent = {0};
    struct got drip = {0};
    get(h, s, &silent, "/silent", (struct http_request){0});
    get(h, s, &drip, "/drip", (struct http_request){0});
    assert_int_equal(silent.outcome, HTTP_TIMEOUT);
    assert_int_equal(drip.outcome, HTTP_OK);
    http_destroy(h);
    o.first_byte_timeout_ms = 20000;
    o.total_timeout_ms = 100;
    assert_ok(http_create(&h, &o, &err), err);
    struct got cut = {0};
    get(h, s, &cut, "/drip", (struct http_request){0});
    assert_int_equal(cut.outcome, HTTP_TIMEOUT);
    http_destroy(h);
    http_server_stop(s);
}

TEST(redirects_are_followed_within_their_limit) {
    struct got g = get_alone("/relative", (struct http_request){0});
    assert_int_equal(g.outcome, HTTP_OK);
    assert_string_equal(g.body, OBJECT);
    assert_non_null(strstr(g.url, "/object"));
    assert_null(strchr(g.url, '#'));
    assert_int_equal(g.heads, 1);
    g = get_alone("/loop", (struct http_request){0});
    assert_int_equal(g.outcome, HTTP_REFUSED);
    assert_non_null(strstr(g.message, "too many redirects"));
    g = get_alone("/to-file", (struct http_request){0});
    assert_int_equal(g.outcome, HTTP_REFUSED);
}

static struct got get_with_secrets(uint16_t *to, struct http_server *s, const char *path) {
    static const char *const headers[] = {"Authorization: Bearer secret"};
    static const struct http_signature signature = {.access_key = "key",
                                                    .secret_key = "hidden",
                                                    .session_token = "session",
                                                    .region = "us-east-1",
                                                    .service = "s3"};
    (void)to;
    struct got g = {0};
    struct http *h = local_http();
    get(h, s, &g, path,
        (struct http_request){.headers = headers, .header_count = 1, .if_match = "\"e1\""});
    assert_int_equal(g.outcome, HTTP_OK);
    struct got signed_one = {0};
    get(h, s, &signed_one, path, (struct http_request){.signature = &signature});
    assert_string_equal(signed_one.message, "");
    assert_int_equal(signed_one.outcome, HTTP_OK);
    http_destroy(h);
    const size_t used = strlen(g.body);
    assert_true(snprintf(g.body + used, sizeof g.body - used, "%s", signed_one.body) <
                (int)(sizeof g.body - used));
    return g;
}

TEST(secrets_go_to_the_origin_alone) {
    struct http_server *other = http_server_start(answer, NULL);
    uint16_t port = http_server_port(other);
    struct http_server *s = http_server_start(answer, &port);
    struct got g = get_with_secrets(&port, s, "/echo");
    assert_non_null(strstr(g.body, "Authorization: Bearer secret"));
    assert_non_null(strstr(g.body, "If-Match: \"e1\""));
    assert_non_null(strstr(g.body, "AWS4-HMAC-SHA256 Credential=key/"));
    assert_non_null(strstr(g.body, "x-amz-security-token: session"));
    g = get_with_secrets(&port, s, "/elsewhere");
    assert_non_null(strstr(g.body, "User-Agent: ccstream-test/1"));
    assert_null(strstr(g.body, "secret"));
    assert_null(strstr(g.body, "If-Match"));
    assert_null(strstr(g.body, "Authorization"));
    assert_null(strstr(g.body, "x-amz"));
    http_server_stop(s);
    http_server_stop(other);
}

TEST(private_addresses_are_refused_unless_allowed) {
    struct error err = {0};
    struct http *h;
    struct http_options o = local_options();
    o.allow_private = false;
    struct http_server *s = http_server_start(answer, NULL);
    assert_ok(http_create(&h, &o, &err), err);
    const char *const hosts[] = {"127.0.0.1", "localhost",  "[::1]",
                                 "0x7f.1",    "2130706433", "[::ffff:127.0.0.1]"};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        char url[128];
        struct got g = {0};
        (void)snprintf(url, sizeof url, "http://%s:%u/object", hosts[i], http_server_port(s));
        start(h, &g, &(struct http_request){.url = url});
        run_all(h);
        assert_int_equal(g.outcome, HTTP_PRIVATE);
    }
    http_destroy(h);
    struct got g = {0};
    h = local_http();
    get(h, s, &g, "/object", (struct http_request){0});
    assert_int_equal(http_server_connections(s), 1); /* none before that of this request */
    http_destroy(h);
    http_server_stop(s);
}

TEST(nobody_listens_is_an_error_of_connection) {
    struct http_server *s = http_server_start(answer, NULL);
    char url[64];
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/", http_server_port(s));
    http_server_stop(s);
    struct http *h = local_http();
    struct got g = {0};
    start(h, &g, &(struct http_request){.url = url});
    run_all(h);
    assert_int_equal(g.outcome, HTTP_CONNECT);
    struct got unknown = {0};
    start(h, &unknown, &(struct http_request){.url = "http://no-such-host.invalid/"});
    run_all(h);
    assert_true(unknown.outcome == HTTP_DNS || unknown.outcome == HTTP_CONNECT);
    http_destroy(h);
}

TEST(bad_urls_are_refused_at_the_start) {
    struct http *h = local_http();
    const char *const urls[] = {"",
                                "/path",
                                "ftp://example.org/x",
                                "http://",
                                "http://[::1/",
                                "file:///etc/passwd",
                                "http://host:99999/"};
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        struct error err = {0};
        const struct http_request r = {.url = urls[i], .max_bytes = 1, .on_done = on_done};
        assert_status(http_start(h, &r, &err), STATUS_INVALID, err);
    }
    assert_int_equal(http_pending(h), 0);
    http_destroy(h);
}

TEST(connections_are_reused) {
    struct http *h = local_http();
    struct http_server *s = http_server_start(answer, NULL);
    for (int i = 0; i < 5; i++) {
        struct got g = {0};
        get(h, s, &g, i % 2 == 0 ? "/object" : "/missing", (struct http_request){0});
    }
    assert_int_equal(http_server_connections(s), 1);
    http_destroy(h);
    http_server_stop(s);
}

TEST(a_host_gets_no_more_requests_at_once_than_allowed) {
    struct http *h = local_http();
    struct http_server *s = http_server_start(answer, NULL);
    static struct got got[20];
    char url[64];
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/slow-object", http_server_port(s));
    for (int i = 0; i < 20; i++) {
        start(h, &got[i], &(struct http_request){.url = url});
    }
    assert_int_equal(http_pending(h), 20);
    run_all(h);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(got[i].outcome, HTTP_OK);
    }
    assert_int_equal(http_server_most_at_once(s), 2);
    assert_int_equal(http_server_connections(s), 2);
    http_destroy(h);
    http_server_stop(s);
}

TEST(destroy_cancels_what_is_queued_and_what_runs) {
    struct error err = {0};
    struct http *h = local_http();
    struct http_server *s = http_server_start(answer, NULL);
    static struct got got[5];
    char url[64];
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/silent", http_server_port(s));
    for (int i = 0; i < 5; i++) {
        start(h, &got[i], &(struct http_request){.url = url});
    }
    assert_ok(http_run(h, 20, &err), err);
    http_destroy(h);
    for (int i = 0; i < 5; i++) {
        assert_true(got[i].done);
        assert_int_equal(got[i].outcome, HTTP_CANCELLED);
    }
    http_server_stop(s);
}

static void *wake(void *http) {
    (void)usleep(20000);
    http_wake(http);
    return NULL;
}

TEST(another_thread_ends_the_wait) {
    struct error err = {0};
    pthread_t thread;
    struct http *h = local_http();
    assert_int_equal(pthread_create(&thread, NULL, wake, h), 0);
    assert_ok(http_run(h, 3600000, &err), err); /* an hour is beyond the time limit of a test */
    assert_int_equal(pthread_join(thread, NULL), 0);
    http_destroy(h);
}

TEST(opt_out_headers_are_read_for_our_name) {
    assert_true(get_alone("/tagged", (struct http_request){0}).response.robots_noai);
    assert_false(get_alone("/tagged-others", (struct http_request){0}).response.robots_noai);
}
