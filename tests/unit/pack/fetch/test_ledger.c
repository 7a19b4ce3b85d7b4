#include <string.h>

#include "pack/fetch/fetch_internal.h"
#include "tests/support/file_memory.h"
#include "tests/support/test.h"

struct seen {
    uint64_t rows[16], begins[16];
    size_t count, retries;
    struct ledger_entry last;
};

static enum status see(void *cookie, const struct ledger_entry *entry, struct error *err) {
    struct seen *s = cookie;
    (void)err;
    if (entry->is_retry || entry->is_list) {
        s->retries++;
    } else {
        s->begins[s->count] = entry->begin_bytes;
        s->rows[s->count++] = entry->line.row;
    }
    s->last = *entry;
    return STATUS_OK;
}

static const struct ledger_line fetched = {
    .row = 7,
    .state = LEDGER_FETCHED,
    .http_status = 200,
    .attempts = 2,
    .time_s = 1700000000,
    .elapsed_ms = 12,
    .bytes = 345,
    .hash = UINT64_C(0x0123456789abcdef),
    .url_hash = UINT64_C(0xfedcba9876543210),
    .etag = "\"a b\"",
};

static const struct ledger_line failed = {.row = 8,
                                          .state = LEDGER_FAILED,
                                          .reason = "http-404",
                                          .detail = "x \"y\" \xc3\xa9"};

/* A ledger with lines of rows 7 and 8 and of a retry. */
static void write_ledger(struct file_system *fs) {
    struct ledger *l;
    struct error err = {0};
    assert_ok(ledger_open(&l, fs, "ledger", 0, &err), err);
    assert_ok(ledger_add(l, &fetched, &err), err);
    assert_ok(ledger_add(l, &failed, &err), err);
    assert_ok(ledger_add_retry(l, "failed,5xx", &err), err);
    ledger_close(l);
}

static struct seen scan(struct file_system *fs, uint64_t *good_bytes) {
    struct seen s = {.count = 0};
    struct error err = {0};
    assert_ok(ledger_scan(fs, "ledger", see, &s, good_bytes, &err), err);
    return s;
}

TEST(lines_are_read_as_they_were_written) {
    struct file_system *fs;
    struct byte_buffer text;
    struct error err = {0};
    assert_ok(file_memory_create(&fs, &err), err);
    write_ledger(fs);
    assert_ok(file_read_all(fs, &text, "ledger", 1 << 20, &err), err);
    const char *at = (const char *)text.data;
    struct ledger_entry entry;
    assert_ok(ledger_parse(&entry, (const uint8_t *)at, strcspn(at, "\n"), &err), err);
    assert_false(entry.is_retry);
    assert_memory_equal(&entry.line, &fetched, sizeof(fetched));
    at = strchr(at, '\n') + 1;
    assert_ok(ledger_parse(&entry, (const uint8_t *)at, strcspn(at, "\n"), &err), err);
    assert_memory_equal(&entry.line, &failed, sizeof(failed));
    at = strchr(at, '\n') + 1;
    assert_ok(ledger_parse(&entry, (const uint8_t *)at, strcspn(at, "\n"), &err), err);
    assert_true(entry.is_retry);
    assert_string_equal(entry.retry, "failed,5xx");
    byte_buffer_fini(&text);
    file_memory_destroy(fs);
}

TEST(the_beginning_of_another_list_is_read_as_it_was_written) {
    struct file_system *fs;
    struct ledger *l;
    struct error err = {0};
    uint64_t good_bytes;
    assert_ok(file_memory_create(&fs, &err), err);
    assert_ok(ledger_open(&l, fs, "ledger", 0, &err), err);
    assert_ok(ledger_add_list(l, "more.tsv", UINT64_C(1) << 40, &err), err);
    ledger_close(l);
    const struct seen s = scan(fs, &good_bytes);
    assert_true(s.last.is_list && !s.last.is_retry && s.last.first_row == UINT64_C(1) << 40);
    assert_string_equal(s.last.retry, "more.tsv");
    file_memory_destroy(fs);
}

TEST(a_line_is_read_again_where_it_begins) {
    struct file_system *fs;
    struct ledger *l;
    struct ledger_line line;
    struct error err = {0};
    uint64_t good_bytes;
    assert_ok(file_memory_create(&fs, &err), err);
    write_ledger(fs);
    const struct seen s = scan(fs, &good_bytes);
    assert_ok(ledger_open(&l, fs, "ledger", good_bytes, &err), err);
    assert_true(ledger_line_at(l, &line, s.begins[0]));
    assert_memory_equal(&line, &fetched, sizeof(fetched));
    assert_true(ledger_line_at(l, &line, s.begins[1]));
    assert_memory_equal(&line, &failed, sizeof(failed));
    assert_false(ledger_line_at(l, &line, s.begins[1] + 1));
    assert_false(ledger_line_at(l, &line, s.last.begin_bytes)); /* the retry's */
    assert_false(ledger_line_at(l, &line, good_bytes));
    ledger_close(l);
    file_memory_destroy(fs);
}

TEST(the_longest_line_is_read_again) {
    struct file_system *fs;
    struct ledger *l;
    struct ledger_line longest = {INT64_MAX, LEDGER_FETCHED, .bytes = INT64_MAX, .hash = 1};
    struct ledger_line line;
    struct error err = {0};
    uint64_t good_bytes;
    longest.http_status = longest.attempts = UINT32_MAX;
    longest.time_s = longest.elapsed_ms = INT64_MAX;
    memset(longest.reason, 1, sizeof(longest.reason) - 1); /* JSON writes six bytes for each */
    memset(longest.etag, 1, sizeof(longest.etag) - 1);
    memset(longest.detail, 1, sizeof(longest.detail) - 1);
    assert_ok(file_memory_create(&fs, &err), err);
    assert_ok(ledger_open(&l, fs, "ledger", 0, &err), err);
    assert_ok(ledger_add(l, &longest, &err), err);
    assert_int_equal(scan(fs, &good_bytes).count, 1);
    assert_true(good_bytes > 3000 && good_bytes < 4000);
    assert_true(ledger_line_at(l, &line, 0));
    assert_memory_equal(&line, &longest, sizeof(longest));
    ledger_close(l);
    file_memory_destroy(fs);
}

TEST(a_torn_end_is_cut_off_at_every_byte) {
    struct file_system *fs;
    struct byte_buffer whole;
    struct error err = {0};
    assert_ok(file_memory_create(&fs, &err), err);
    write_ledger(fs);
    assert_ok(file_read_all(fs, &whole, "ledger", 1 << 20, &err), err);
    const char *text = (const char *)whole.data;
    const size_t first = strcspn(text, "\n") + 1;
    const size_t second = first + strcspn(text + first, "\n") + 1;
    for (size_t n = 0; n <= whole.size_bytes; n++) {
        uint64_t good_bytes = 0;
        struct ledger *l;
        assert_ok(file_write_atomic(fs, "ledger", whole.data, n, &err), err);
        const struct seen s = scan(fs, &good_bytes);
        const size_t expected = n == whole.size_bytes ? n
                                : n >= second         ? second
                                : n >= first          ? first
                                                      : 0;
        assert_int_equal(good_bytes, expected);
        assert_int_equal(s.count, (n >= first) + (n >= second));
        assert_ok(ledger_open(&l, fs, "ledger", good_bytes, &err), err);
        assert_ok(ledger_add(l, &failed, &err), err);
        ledger_close(l);
        assert_int_equal(scan(fs, &good_bytes).count, s.count + 1);
    }
    byte_buffer_fini(&whole);
    file_memory_destroy(fs);
}

TEST(a_damaged_line_counts_as_not_written) {
    struct file_system *fs;
    struct byte_buffer whole;
    struct error err = {0};
    uint64_t good_bytes;
    assert_ok(file_memory_create(&fs, &err), err);
    write_ledger(fs);
    assert_ok(file_read_all(fs, &whole, "ledger", 1 << 20, &err), err);
    const size_t first = strcspn((const char *)whole.data, "\n") + 1;
    for (size_t i = 0; i + 1 < first; i++) {
        whole.data[i] ^= 1;
        assert_ok(file_write_atomic(fs, "ledger", whole.data, whole.size_bytes, &err), err);
        const struct seen s = scan(fs, &good_bytes);
        assert_int_equal(s.count, 1);
        assert_int_equal(s.rows[0], 8);
        assert_int_equal(s.retries, 1);
        assert_int_equal(good_bytes, whole.size_bytes);
        whole.data[i] ^= 1;
    }
    byte_buffer_fini(&whole);
    file_memory_destroy(fs);
}

TEST(a_ledger_that_is_not_there_has_no_lines) {
    struct file_system *fs;
    struct error err = {0};
    uint64_t good_bytes = 1;
    assert_ok(file_memory_create(&fs, &err), err);
    assert_int_equal(scan(fs, &good_bytes).count, 0);
    assert_int_equal(good_bytes, 0);
    file_memory_destroy(fs);
}
