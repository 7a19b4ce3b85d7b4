/* Files: the POSIX system and the one in memory behave alike; atomic writes survive every fault. */
#include "formats/base/file_io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/test.h"

static struct file_system *memory(void) {
    struct error err = {0};
    struct file_system *fs = NULL;
    assert_ok(file_memory_create(&fs, &err), err);
    return fs;
}

static void
expect_content(const struct file_system *fs, const char *path, const char *text, int line) {
    struct error err = {0};
    struct byte_buffer b;
    if (file_read_all(fs, &b, path, 1 << 20, &err) != STATUS_OK) {
        fail_msg("line %d: %s", line, err.text);
    }
    if (b.size_bytes != strlen(text) || strcmp((const char *)b.data, text) != 0) {
        fail_msg("line %d: %s holds \"%s\", not \"%s\"", line, path, (const char *)b.data, text);
    }
    byte_buffer_fini(&b);
}

#define EXPECT(fs, path, text) expect_content((fs), (path), (text), __LINE__)

static const char *in(const char *directory, const char *name) {
    static char paths[64][PATH_MAX_BYTES];
    static unsigned next;
    char *out = paths[next++ % 64];
    assert_int_equal(path_join(out, PATH_MAX_BYTES, directory, name, NULL), STATUS_OK);
    return out;
}

static void check_files(const struct file_system *fs, const char *dir) {
    struct error err = {0};
    struct file *f = NULL;
    void *ctx = fs->context;
    const char *a = in(dir, "a");
    assert_status(fs->open(ctx, &f, a, FILE_READ, &err), STATUS_NOTFOUND, err);
    assert_non_null(strstr(err.text, a));
    assert_null(f);
    assert_ok(fs->open(ctx, &f, a, FILE_CREATE, &err), err);
    assert_ok(fs->write(f, "hello", 5, &err), err);
    assert_ok(fs->write(f, "", 0, &err), err);
    assert_ok(fs->sync(f, &err), err);
    fs->close(f);
    assert_status(fs->open(ctx, &f, a, FILE_CREATE, &err), STATUS_EXISTS, err);
    assert_ok(fs->open(ctx, &f, a, FILE_APPEND_WRITE, &err), err);
    assert_ok(fs->write(f, "!", 1, &err), err);
    fs->close(f);
    EXPECT(fs, a, "hello!");

    assert_ok(fs->open(ctx, &f, a, FILE_READ, &err), err);
    uint64_t size = 0;
    char got[16] = {0};
    size_t n = 99;
    assert_ok(fs->size(f, &size, &err), err);
    assert_int_equal(size, 6);
    assert_ok(fs->pread(f, got, &n, sizeof got, 3, &err), err);
    assert_int_equal(n, 3);
    assert_memory_equal(got, "lo!", 3);
    assert_ok(fs->pread(f, got, &n, sizeof got, 6, &err), err);
    assert_int_equal(n, 0);
    assert_ok(fs->pread(f, got, &n, sizeof got, (uint64_t)1 << 40, &err), err);
    assert_int_equal(n, 0);
    assert_status(fs->write(f, "x", 1, &err), STATUS_IO, err);
    fs->close(f);
    fs->close(NULL);

    assert_ok(fs->open(ctx, &f, a, FILE_REUSE, &err), err);
    assert_ok(fs->write(f, "re", 2, &err), err);
    assert_ok(fs->write(f, "us", 2, &err), err);
    fs->close(f);
    assert_ok(fs->truncate(ctx, a, 4, &err), err);
    EXPECT(fs, a, "reus");
    assert_ok(fs->remove(ctx, a, &err), err);
    assert_status(fs->open(ctx, &f, a, FILE_REUSE, &err), STATUS_NOTFOUND, err);

    assert_ok(fs->open(ctx, &f, a, FILE_REPLACE, &err), err);
    fs->close(f);
    EXPECT(fs, a, "");
}

/* The names in `dir` are a and b, in either order. */
static void
expect_two_names(const struct file_system *fs, const char *dir, const char *a, const char *b) {
    struct error err = {0};
    struct byte_buffer names;
    byte_buffer_init(&names, 0);
    assert_ok(fs->list(fs->context, dir, &names, &err), err);
    assert_int_equal(names.size_bytes, strlen(a) + strlen(b) + 2);
    const char *first = (const char *)names.data;
    const char *second = first + strlen(first) + 1;
    assert_true((strcmp(first, a) == 0 && strcmp(second, b) == 0) ||
                (strcmp(first, b) == 0 && strcmp(second, a) == 0));
    byte_buffer_fini(&names);
}

static void check_names(const struct file_system *fs, const char *dir) {
    struct error err = {0};
    struct file *f = NULL;
    void *ctx = fs->context;
    bool exists = true;
    const char *sub = in(dir, "sub");
    assert_status(fs->make_directory(ctx, in(sub, "deep"), &err), STATUS_NOTFOUND, err);
    assert_ok(fs->make_directory(ctx, sub, &err), err);
    assert_ok(fs->make_directory(ctx, sub, &err), err);
    assert_status(fs->open(ctx, &f, in(dir, "none/x"), FILE_CREATE, &err), STATUS_NOTFOUND, err);
    assert_ok(fs->exists(ctx, in(sub, "x"), &exists, &err), err);
    assert_false(exists);
    assert_ok(file_write_atomic(fs, in(sub, "x"), "one", 3, &err), err);
    assert_ok(fs->exists(ctx, in(sub, "x"), &exists, &err), err);
    assert_true(exists);
    assert_false(file_any_temporary(fs, sub, false));
    assert_status(fs->make_directory(ctx, in(sub, "x"), &err), STATUS_EXISTS, err);
    assert_ok(file_write_atomic(fs, in(sub, "y"), "two", 3, &err), err);
    assert_ok(fs->rename(ctx, in(sub, "x"), in(sub, "y"), &err), err);
    EXPECT(fs, in(sub, "y"), "one");
    assert_status(fs->rename(ctx, in(sub, "x"), in(sub, "z"), &err), STATUS_NOTFOUND, err);

    assert_ok(file_make_parents(fs, in(dir, "p//b/c/"), &err), err);
    assert_ok(fs->exists(ctx, in(dir, "p/b"), &exists, &err), err);
    assert_true(exists);
    assert_ok(fs->exists(ctx, in(dir, "p/b/c"), &exists, &err), err);
    assert_false(exists);
    assert_ok(file_make_parents(fs, in(sub, "y/x"), &err), err); /* y is there */
    assert_true(file_make_parents(fs, in(sub, "y/x/z"), &err) < STATUS_OK);

    assert_ok(fs->link(ctx, "sub/y", in(dir, "last"), &err), err);
    EXPECT(fs, in(dir, "last"), "one");
    assert_ok(file_write_atomic(fs, in(sub, "z"), "three", 5, &err), err);
    assert_ok(fs->link(ctx, "sub/z", in(dir, "last"), &err), err);
    EXPECT(fs, in(dir, "last"), "three");
    expect_two_names(fs, sub, "y", "z");
    struct byte_buffer names = {0};
    assert_status(fs->list(ctx, in(dir, "none"), &names, &err), STATUS_NOTFOUND, err);
    byte_buffer_fini(&names);
    assert_ok(fs->sync_directory(ctx, dir, &err), err);
    assert_status(fs->sync_directory(ctx, in(dir, "none"), &err), STATUS_NOTFOUND, err);

    assert_true(fs->remove(ctx, sub, &err) < STATUS_OK); /* not empty */
    assert_ok(fs->remove(ctx, in(sub, "z"), &err), err);
    assert_ok(fs->exists(ctx, in(dir, "last"), &exists, &err), err);
    assert_false(exists); /* leads nowhere */
    assert_status(fs->remove(ctx, in(sub, "z"), &err), STATUS_NOTFOUND, err);
    assert_ok(fs->remove(ctx, in(sub, "y"), &err), err);
    assert_ok(fs->remove(ctx, sub, &err), err);
}

TEST(posix_files) {
    check_files(file_posix(), test_temp_dir());
    check_names(file_posix(), test_temp_dir());
}

TEST(memory_files_behave_like_posix) {
    struct file_system *fs = memory();
    check_files(fs, "");
    check_names(fs, ".");
    file_memory_destroy(fs);
    file_memory_destroy(NULL);
}

TEST(read_all_keeps_its_limit) {
    struct error err = {0};
    struct file_system *fs = memory();
    struct byte_buffer b;
    static char big[70000];
    memset(big, 'b', sizeof big);
    assert_ok(file_write_atomic(fs, "a", big, sizeof big, &err), err);
    assert_ok(file_write_atomic(fs, "e", NULL, 0, &err), err);
    assert_status(file_read_all(fs, &b, "a", sizeof big - 1, &err), STATUS_LIMIT, err);
    assert_null(b.data);
    assert_ok(file_read_all(fs, &b, "a", sizeof big, &err), err);
    assert_int_equal(b.size_bytes, sizeof big);
    assert_int_equal(b.data[sizeof big], 0);
    byte_buffer_fini(&b);
    assert_ok(file_read_all(fs, &b, "e", 0, &err), err);
    assert_int_equal(b.size_bytes, 0);
    assert_int_equal(b.data[0], 0);
    byte_buffer_fini(&b);
    assert_status(file_read_all(fs, &b, "none", 9, &err), STATUS_NOTFOUND, err);
    file_memory_destroy(fs);
    /* A file that says its size is 0 and still has bytes; and a directory. */
    assert_ok(file_read_all(file_posix(), &b, "/proc/self/status", 1 << 20, &err), err);
    assert_true(b.size_bytes > 100);
    byte_buffer_fini(&b);
    assert_status(file_read_all(file_posix(), &b, "/proc/self/status", 10, &err), STATUS_LIMIT,
                  err);
    assert_status(file_read_all(file_posix(), &b, test_temp_dir(), 10, &err), STATUS_IO, err);
}

TEST(a_crash_drops_unsynced_data) {
    struct error err = {0};
    struct file_system *fs = memory();
    struct file *f = NULL;
    bool exists = true;
    assert_ok(file_write_atomic(fs, "kept", "safe", 4, &err), err);
    assert_ok(fs->open(fs->context, &f, "kept", FILE_APPEND_WRITE, &err), err);
    assert_ok(fs->write(f, " lost", 5, &err), err);
    fs->close(f);
    assert_ok(fs->open(fs->context, &f, "nameless", FILE_CREATE, &err), err);
    assert_ok(fs->write(f, "x", 1, &err), err);
    assert_ok(fs->sync(f, &err), err);
    fs->close(f);
    EXPECT(fs, "kept", "safe lost");
    file_memory_crash(fs);
    EXPECT(fs, "kept", "safe");
    assert_ok(fs->exists(fs->context, "nameless", &exists, &err), err);
    assert_false(exists);
    file_memory_destroy(fs);
}

/* The old or the new content, never a part: for a fault of any kind at any call, before and after a
 * power failure. */
TEST(atomic_write_survives_every_fault) {
    struct error err = {0};
    static const enum file_fault kinds[] = {FILE_FAULT_ERROR, FILE_FAULT_SHORT_WRITE,
                                            FILE_FAULT_DEAD};
    struct file_system *fs = memory();
    struct file_system *faulty = NULL;
    assert_ok(file_fault_create(&faulty, fs, UINT64_MAX, FILE_FAULT_ERROR, &err), err);
    assert_ok(file_write_atomic(faulty, "a", "new content", 11, &err), err);
    const uint64_t calls = file_fault_count(faulty);
    assert_int_equal(calls, 5); /* open, write, sync, rename, sync_directory */
    file_fault_destroy(faulty);
    file_memory_destroy(fs);
    for (size_t kind = 0; kind < 3; kind++) {
        for (uint64_t nth = 0; nth < calls; nth++) {
            fs = memory();
            assert_ok(file_write_atomic(fs, "a", "old", 3, &err), err);
            assert_ok(file_fault_create(&faulty, fs, nth, kinds[kind], &err), err);
            err = (struct error){0};
            assert_status(file_write_atomic(faulty, "a", "new content", 11, &err), STATUS_IO, err);
            assert_non_null(strstr(err.text, "injected"));
            bool renamed = nth == calls - 1;
            EXPECT(fs, "a", renamed ? "new content" : "old");
            assert_int_equal(file_any_temporary(fs, ".", false),
                             kinds[kind] == FILE_FAULT_DEAD && nth > 0 && !renamed);
            file_memory_crash(fs);
            EXPECT(fs, "a", "old"); /* the new name was never made durable */
            file_fault_destroy(faulty);
            file_memory_destroy(fs);
        }
    }
}

TEST(a_power_failure_after_an_atomic_write_keeps_the_new) {
    struct error err = {0};
    struct file_system *fs = memory();
    assert_ok(file_write_atomic(fs, "a", "old", 3, &err), err);
    assert_ok(file_write_atomic(fs, "a", "new", 3, &err), err);
    file_memory_crash(fs);
    EXPECT(fs, "a", "new");
    file_memory_destroy(fs);
}

TEST(a_dead_file_system_does_nothing_more) {
    struct error err = {0};
    struct file_system *fs = memory();
    struct file_system *faulty = NULL;
    struct file *f = NULL;
    bool exists;
    assert_ok(file_write_atomic(fs, "a", "x", 1, &err), err);
    assert_ok(file_fault_create(&faulty, fs, 0, FILE_FAULT_DEAD, &err), err);
    assert_ok(faulty->open(faulty->context, &f, "a", FILE_READ, &err), err);
    assert_status(faulty->make_directory(faulty->context, "d", &err), STATUS_IO, err);
    assert_status(faulty->exists(faulty->context, "a", &exists, &err), STATUS_IO, err);
    assert_status(faulty->remove(faulty->context, "a", &err), STATUS_IO, err);
    assert_status(faulty->link(faulty->context, "a", "b", &err), STATUS_IO, err);
    faulty->close(f);
    EXPECT(fs, "a", "x");
    file_fault_destroy(faulty);
    file_memory_destroy(fs);
}

TEST(offsets_above_four_gib) {
    struct error err = {0};
    const struct file_system *fs = file_posix();
    const char *path = test_temp_path("sparse");
    const uint64_t place = 5ull << 30;
    test_write_file(path, "a", 1);
    assert_int_equal(truncate(path, (off_t)place), 0);
    struct file *f = NULL;
    assert_ok(fs->open(fs->context, &f, path, FILE_APPEND_WRITE, &err), err);
    assert_ok(fs->write(f, "far", 3, &err), err);
    fs->close(f);
    assert_ok(fs->open(fs->context, &f, path, FILE_READ, &err), err);
    uint64_t size = 0;
    char got[8];
    size_t n = 0;
    assert_ok(fs->size(f, &size, &err), err);
    assert_true(size == place + 3);
    assert_ok(fs->pread(f, got, &n, sizeof got, place, &err), err);
    assert_int_equal(n, 3);
    assert_memory_equal(got, "far", 3);
    assert_status(fs->pread(f, got, &n, sizeof got, UINT64_MAX - 2, &err), STATUS_IO, err);
    fs->close(f);
}

TEST(paths) {
    struct error err = {0};
    char out[8];
    assert_ok(path_join(out, sizeof out, "a", "b", &err), err);
    assert_string_equal(out, "a/b");
    assert_ok(path_join(out, sizeof out, "a/", "b", &err), err);
    assert_string_equal(out, "a/b");
    assert_ok(path_join(out, sizeof out, "", "b", &err), err);
    assert_string_equal(out, "b");
    assert_ok(path_join(out, sizeof out, "a", "/b", &err), err);
    assert_string_equal(out, "/b");
    assert_ok(path_join(out, sizeof out, "abc", "def", &err), err);
    assert_status(path_join(out, sizeof out, "abcd", "def", &err), STATUS_LIMIT, err);
    assert_ok(path_directory(out, sizeof out, "x", &err), err);
    assert_string_equal(out, ".");
    assert_ok(path_directory(out, sizeof out, "/x", &err), err);
    assert_string_equal(out, "/");
    assert_ok(path_directory(out, sizeof out, "a/b/x", &err), err);
    assert_string_equal(out, "a/b");
    assert_status(path_directory(out, sizeof out, "abcdefgh/x", &err), STATUS_LIMIT, err);
    char longest[PATH_MAX_BYTES + 8];
    memset(longest, 'p', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    struct file_system *fs = memory();
    assert_status(file_write_atomic(fs, longest, "x", 1, &err), STATUS_LIMIT, err);
    file_memory_destroy(fs);
}

static void check_hard_link_and_truncate(const struct file_system *fs, const char *dir) {
    struct error err = {0};
    char a[512], b[512];
    snprintf(a, sizeof a, "%s/one", dir);
    snprintf(b, sizeof b, "%s/two", dir);
    assert_ok(file_write_atomic(fs, a, "twelve bytes", 12, &err), err);
    assert_ok(fs->hard_link(fs->context, a, b, &err), err);
    EXPECT(fs, b, "twelve bytes");
    assert_status(fs->hard_link(fs->context, a, b, &err), STATUS_EXISTS, err);
    assert_ok(fs->truncate(fs->context, a, 6, &err), err);
    EXPECT(fs, b, "twelve");
    assert_status(fs->truncate(fs->context, a, 7, &err), STATUS_CORRUPT, err);
    EXPECT(fs, a, "twelve");
    assert_ok(fs->remove(fs->context, a, &err), err);
    EXPECT(fs, b, "twelve");
    assert_status(fs->hard_link(fs->context, a, b, &err), STATUS_NOTFOUND, err);
    assert_status(fs->truncate(fs->context, a, 0, &err), STATUS_NOTFOUND, err);
}

TEST(a_file_may_have_two_names_and_be_truncated) {
    struct file_system *fs = memory();
    check_hard_link_and_truncate(fs, ".");
    file_memory_destroy(fs);
    check_hard_link_and_truncate(file_posix(), test_temp_dir());
}

TEST(a_truncation_is_durable_once_synced) {
    struct error err = {0};
    struct file_system *fs = memory();
    struct file *f = NULL;
    assert_ok(file_write_atomic(fs, "a", "twelve bytes", 12, &err), err);
    assert_ok(fs->truncate(fs->context, "a", 6, &err), err);
    file_memory_crash(fs);
    EXPECT(fs, "a", "twelve bytes");
    assert_ok(fs->truncate(fs->context, "a", 6, &err), err);
    assert_ok(fs->open(fs->context, &f, "a", FILE_APPEND_WRITE, &err), err);
    assert_ok(fs->sync(f, &err), err);
    fs->close(f);
    file_memory_crash(fs);
    EXPECT(fs, "a", "twelve");
    file_memory_destroy(fs);
}

TEST(every_reading_call_can_fail) {
    struct error err = {0};
    struct file_system *fs = memory();
    assert_ok(file_write_atomic(fs, "a", "x", 1, &err), err);
    for (uint64_t nth = 0; nth < 4; nth++) { /* open, size, pread; the fourth never comes */
        struct file_system *faulty = NULL;
        struct byte_buffer text;
        assert_ok(file_fault_create(&faulty, fs, nth, FILE_FAULT_READ, &err), err);
        assert_ok(file_write_atomic(faulty, "b", "y", 1, &err), err);
        enum status s = file_read_all(faulty, &text, "a", 10, &err);
        assert_int_equal(s, nth < 3 ? STATUS_IO : STATUS_OK);
        if (s == STATUS_OK) {
            byte_buffer_fini(&text);
        }
        assert_int_equal(file_fault_count(faulty), nth < 3 ? nth + 1 : 3);
        file_fault_destroy(faulty);
    }
    file_memory_destroy(fs);
}

static enum status
count_bytes(void *cookie, const void *data, size_t size_bytes, struct error *err) {
    uint64_t *left = cookie;
    (void)data;
    if (size_bytes > *left) {
        return error_set(err, STATUS_INTERRUPTED, "enough");
    }
    *left -= size_bytes;
    return STATUS_OK;
}

TEST(append_copies_the_first_bytes_of_a_file) {
    enum { FILE_BYTES = (1 << 20) + 5 };
    const struct file_system *fs = file_posix();
    struct error err = {0};
    struct byte_buffer text = {0};
    struct file *to = NULL;
    char from[300];
    uint64_t left = FILE_BYTES;
    uint64_t size = 0;
    uint8_t *data = malloc(FILE_BYTES);
    assert_non_null(data);
    for (size_t i = 0; i < FILE_BYTES; i++) {
        data[i] = (uint8_t)(i * 7 + (i >> 9));
    }
    snprintf(from, sizeof(from), "%s", test_temp_path("from"));
    test_write_file(from, data, FILE_BYTES);
    assert_ok(file_size(fs, &size, from, &err), err);
    assert_int_equal(size, FILE_BYTES);
    assert_ok(fs->open(fs->context, &to, test_temp_path("to"), FILE_REPLACE, &err), err);
    assert_ok(file_append(fs, to, from, 3, NULL, NULL, &err), err);
    assert_ok(file_append(fs, to, from, FILE_BYTES, count_bytes, &left, &err), err);
    assert_int_equal(left, 0);
    assert_status(file_append(fs, to, from, 1, count_bytes, &left, &err), STATUS_INTERRUPTED, err);
    assert_status(file_append(fs, to, from, FILE_BYTES + 1, NULL, NULL, &err), STATUS_CORRUPT, err);
    fs->close(to);
    assert_ok(file_read_all(fs, &text, test_temp_path("to"), 8 << 20, &err), err);
    assert_true(text.size_bytes >= 3 + FILE_BYTES);
    assert_memory_equal(text.data, data, 3);
    assert_memory_equal(text.data + 3, data, FILE_BYTES);
    byte_buffer_fini(&text);
    free(data);
}
