/* Statuses, their messages and exit codes; checked arithmetic; the log. */
#include "formats/base/status.h"

#include <errno.h>
#include <string.h>

#include "formats/base/checked.h"
#include "formats/base/log.h"
#include "tests/support/test.h"

TEST(names_and_sentences_cover_the_list) {
    assert_string_equal(status_name(STATUS_OK), "OK");
    assert_string_equal(status_name(STATUS_TIMEOUT), "TIMEOUT");
    assert_string_equal(status_name((enum status) - 99), "UNKNOWN");
#define X(name, value, text)                                                                       \
    assert_string_equal(status_name((enum status)(value)), #name);                                 \
    assert_string_equal(status_text((enum status)(value)), text);                                  \
    assert_true(((value) >= 0) == (status_exit_code((enum status)(value)) == 0));
    STATUS_LIST(X)
#undef X
}

TEST(exit_codes_are_those_of_sysexits) {
    assert_int_equal(status_exit_code(STATUS_USAGE), 64);
    assert_int_equal(status_exit_code(STATUS_CORRUPT), 65);
    assert_int_equal(status_exit_code(STATUS_NOTFOUND), 66);
    assert_int_equal(status_exit_code(STATUS_DEVICE), 69);
    assert_int_equal(status_exit_code(STATUS_EXISTS), 73);
    assert_int_equal(status_exit_code(STATUS_IO), 74);
    assert_int_equal(status_exit_code(STATUS_INTERRUPTED), 130);
}

TEST(messages_are_recorded_and_truncated) {
    struct error err = {0};
    assert_int_equal(error_set(&err, STATUS_LIMIT, "row %d", 7), STATUS_LIMIT);
    assert_string_equal(err.text, "row 7");
    assert_int_equal(error_set(NULL, STATUS_IO, "x"), STATUS_IO);

    char path[2000];
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    errno = ENOSPC;
    assert_int_equal(error_set_errno(&err, "%s", path), STATUS_IO);
    assert_non_null(strstr(err.text, strerror(ENOSPC))); /* the reason survives a long path */
    errno = ENOENT;
    assert_int_equal(error_set_errno(&err, "a"), STATUS_NOTFOUND);
    errno = EEXIST;
    assert_int_equal(error_set_errno(NULL, "a"), STATUS_EXISTS);
    errno = ENOMEM;
    assert_int_equal(error_set_errno(NULL, "a"), STATUS_NOMEM);
}

TEST(checked_arithmetic_refuses_overflow) {
    uint64_t u = 5;
    assert_true(checked_add_u64(UINT64_MAX - 1, 1, &u));
    assert_true(u == UINT64_MAX);
    assert_false(checked_add_u64(UINT64_MAX, 1, &u));
    assert_true(u == UINT64_MAX);
    assert_true(checked_mul_u64(0, UINT64_MAX, &u));
    assert_true(u == 0);
    assert_true(checked_mul_u64(1u << 31, (uint64_t)1 << 32, &u));
    assert_false(checked_mul_u64((uint64_t)1 << 32, (uint64_t)1 << 32, &u));
    assert_true(u == (uint64_t)1 << 63);
    size_t z = 1;
    assert_false(checked_mul_size(SIZE_MAX, 2, &z));
    assert_int_equal(z, 1);
    uint32_t n = 3;
    assert_true(checked_u32(UINT32_MAX, &n));
    assert_false(checked_u32((uint64_t)UINT32_MAX + 1, &n));
    assert_true(n == UINT32_MAX);
    assert_true(checked_size(SIZE_MAX, &z));
}

struct seen {
    int count;
    char text[2048];
};

static void remember(void *cookie, enum log_level level, const char *text) {
    struct seen *s = cookie;
    (void)level;
    s->count++;
    strncpy(s->text, text, sizeof s->text - 1);
}

TEST(log_filters_truncates_and_cleans) {
    struct seen seen = {0};
    struct log_sink sink = {.write = remember, .cookie = &seen, .max_level = LOG_LEVEL_WARN};
    log_write(NULL, LOG_LEVEL_ERROR, "nobody");
    log_write(&sink, LOG_LEVEL_INFO, "too quiet");
    assert_int_equal(seen.count, 0);
    log_write(&sink, LOG_LEVEL_WARN, "a\x1b[31mb\nc\td %d", 4);
    assert_string_equal(seen.text, "a?[31mb?c d 4");
    char longer[3000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    log_write(&sink, LOG_LEVEL_ERROR, "%s", longer);
    assert_int_equal(strlen(seen.text), 1023);
}
