/* Both reading engines against the same small file, and the table of open shards. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/read_engine_internal.h"
#include "loader/shard_files_internal.h"
#include "tests/support/test.h"

enum { FILE_BYTES = 100000 };

static int open_pattern(void) {
    uint8_t *data = malloc(FILE_BYTES);
    for (uint32_t i = 0; i < FILE_BYTES; i++) {
        data[i] = (uint8_t)(i * 2654435761u >> 24);
    }
    const char *path = test_temp_path("pattern");
    test_write_file(path, data, FILE_BYTES);
    free(data);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    return fd;
}

static struct read_engine *create(const struct read_engine_ops *ops, uint32_t depth) {
    struct read_engine *e = NULL;
    struct error err = {0};
    enum status s = ops->create(&e, depth, &err);
    if (s == STATUS_UNSUPPORTED) {
        test_skip("%s", err.text);
    }
    assert_ok(s, err);
    return e;
}

/* One piece of memory per slot is enough here; it must outlive the request. */
static void submit(const struct read_engine_ops *ops,
                   struct read_engine *e,
                   int fd,
                   uint32_t slot,
                   uint8_t *buffer,
                   size_t size,
                   uint64_t offset) {
    static struct iovec parts[4];
    parts[slot] = (struct iovec){buffer, size};
    struct read_request r = {fd, slot, offset, &parts[slot], 1, NULL};
    ops->submit(e, &r);
}

static void check_reads(const struct read_engine_ops *ops) {
    enum { DEPTH = 4, TOTAL = 400, SIZE = 700 };
    int fd = open_pattern();
    struct read_engine *e = create(ops, DEPTH);
    uint8_t buffers[DEPTH][SIZE];
    uint64_t offsets[DEPTH];
    uint32_t started = 0;
    uint32_t finished = 0;
    while (finished < TOTAL) {
        struct read_completion done[DEPTH];
        while (started < TOTAL && started - finished < DEPTH && finished % DEPTH == 0) {
            uint32_t slot = started % DEPTH;
            offsets[slot] = (uint64_t)started * 7919 % (FILE_BYTES - SIZE);
            submit(ops, e, fd, slot, buffers[slot], SIZE, offsets[slot]);
            started++;
        }
        uint32_t n = ops->reap(e, done, DEPTH);
        assert_true(n >= 1 && n <= DEPTH);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(done[i].result, SIZE);
            uint32_t slot = done[i].slot;
            for (uint32_t k = 0; k < SIZE; k++) {
                uint32_t at = (uint32_t)offsets[slot] + k;
                assert_int_equal(buffers[slot][k], (uint8_t)(at * 2654435761u >> 24));
            }
        }
        finished += n;
    }
    /* Neighbouring bytes into several pieces. */
    struct iovec three[3] = {{buffers[0], 10}, {buffers[1], SIZE}, {buffers[2], 20}};
    struct read_request r = {fd, 3, 500, three, 3, NULL};
    struct read_completion done;
    ops->submit(e, &r);
    assert_int_equal(ops->reap(e, &done, 1), 1);
    assert_int_equal(done.slot, 3);
    assert_int_equal(done.result, 10 + SIZE + 20);
    assert_int_equal(buffers[1][0], (uint8_t)(510 * 2654435761u >> 24));
    assert_int_equal(buffers[2][0], (uint8_t)((510 + SIZE) * 2654435761u >> 24));
    assert_true(ops->destroy(e, 1000));
    close(fd);
}

static void check_edges(const struct read_engine_ops *ops) {
    int fd = open_pattern();
    struct read_engine *e = create(ops, 2);
    uint8_t buffer[2][64];
    struct read_completion done[2];

    submit(ops, e, fd, 0, buffer[0], 64, FILE_BYTES - 10);
    assert_int_equal(ops->reap(e, done, 2), 1);
    assert_int_equal(done[0].result, 10);

    submit(ops, e, fd, 1, buffer[1], 64, FILE_BYTES + 5);
    assert_int_equal(ops->reap(e, done, 2), 1);
    assert_int_equal(done[0].slot, 1);
    assert_int_equal(done[0].result, 0);

    submit(ops, e, -1, 1, buffer[1], 64, 0);
    assert_int_equal(ops->reap(e, done, 2), 1);
    assert_int_equal(done[0].result, -EBADF);

    /* Destroyed with a request outstanding: the buffer is ours again afterwards. */
    submit(ops, e, fd, 0, buffer[0], 64, FILE_BYTES - 10);
    assert_true(ops->destroy(e, 1000));
    assert_true(ops->destroy(NULL, 0));
    close(fd);
}

TEST(pread_reads_all_bytes) {
    check_reads(read_engine_pread());
}

TEST(uring_reads_all_bytes) {
    check_reads(read_engine_uring());
}

TEST(pread_reports_ends_and_errors) {
    check_edges(read_engine_pread());
}

TEST(uring_reports_ends_and_errors) {
    check_edges(read_engine_uring());
}

/* A pipe that nobody writes to: a read that does not end by itself. */
TEST(uring_cancels_reads_after_the_timeout) {
    const struct read_engine_ops *ops = read_engine_uring();
    struct read_engine *e = create(ops, 2);
    int ends[2];
    uint8_t buffer[8];
    struct read_completion done;
    assert_int_equal(pipe(ends), 0);
    submit(ops, e, ends[0], 1, buffer, sizeof(buffer), 0);
    assert_int_equal(ops->reap(e, &done, 1), 0);
    assert_true(ops->destroy(e, 5000));
    close(ends[0]);
    close(ends[1]);
}

static const char *numbered(const void *cookie, uint32_t shard) {
    static char path[4200];
    snprintf(path, sizeof(path), "%s/%u", (const char *)cookie, shard);
    return path;
}

TEST(open_shards_are_bounded_and_reused) {
    enum { SHARDS = SHARD_FILES_MAX_OPEN + 40 };
    const char *dir = test_temp_dir();
    for (uint32_t i = 0; i < SHARDS; i++) {
        test_write_file(numbered(dir, i), &i, sizeof(i));
    }
    struct shard_files *f = NULL;
    struct error err = {0};
    assert_ok(shard_files_create(&f, SHARDS, false, numbered, dir, &err), err);
    int fd;
    for (uint32_t i = 0; i < SHARDS; i++) {
        uint32_t value = 0;
        assert_ok(shard_files_acquire(f, &fd, i, &err), err);
        assert_int_equal(pread(fd, &value, sizeof(value), 0), sizeof(value));
        assert_int_equal(value, i);
        shard_files_release(f, i);
    }
    /* All borrowed: one more is refused, not waited for. */
    for (uint32_t i = 0; i < SHARD_FILES_MAX_OPEN; i++) {
        assert_ok(shard_files_acquire(f, &fd, i, &err), err);
    }
    assert_status(shard_files_acquire(f, &fd, SHARDS - 1, &err), STATUS_LIMIT, err);
    shard_files_release_all(f);
    assert_ok(shard_files_acquire(f, &fd, SHARDS - 1, &err), err);
    shard_files_destroy(f);
    shard_files_destroy(NULL);
}

TEST(replaced_shard_is_refused) {
    const char *dir = test_temp_dir();
    struct shard_files *f = NULL;
    struct error err = {0};
    int fd;
    assert_status(shard_files_create(&f, 1, false, numbered, dir, &err), STATUS_NOTFOUND, err);
    assert_null(f);
    for (uint32_t i = 0; i < 3; i++) {
        test_write_file(numbered(dir, i), "first", 5);
    }
    assert_ok(shard_files_create(&f, 3, false, numbered, dir, &err), err);
    assert_ok(shard_files_acquire(f, &fd, 0, &err), err);
    assert_ok(shard_files_check(f, 0, &err), err);
    assert_int_equal(remove(numbered(dir, 0)), 0);
    assert_status(shard_files_check(f, 0, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "was removed"));
    shard_files_release(f, 0); /* stays open: what is open can still be read */
    assert_ok(shard_files_acquire(f, &fd, 0, &err), err);
    shard_files_release(f, 0);

    assert_int_equal(remove(numbered(dir, 1)), 0);
    assert_status(shard_files_acquire(f, &fd, 1, &err), STATUS_NOTFOUND, err);
    assert_non_null(strstr(err.text, "cannot open this shard"));
    test_write_file(numbered(dir, 1), "other", 5);
    assert_status(shard_files_acquire(f, &fd, 1, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "was replaced or written to"));

    assert_int_equal(truncate(numbered(dir, 2), 3), 0);
    assert_status(shard_files_acquire(f, &fd, 2, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "had 5 bytes when loading began, now it has 3"));
    shard_files_destroy(f);
}
