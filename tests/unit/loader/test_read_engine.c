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
            struct read_request r = {fd, slot, buffers[slot], SIZE, offsets[slot]};
            ops->submit(e, &r);
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
    ops->destroy(e);
    close(fd);
}

static void check_edges(const struct read_engine_ops *ops) {
    int fd = open_pattern();
    struct read_engine *e = create(ops, 2);
    uint8_t buffer[2][64];
    struct read_completion done[2];

    struct read_request across = {fd, 0, buffer[0], 64, FILE_BYTES - 10};
    ops->submit(e, &across);
    assert_int_equal(ops->reap(e, done, 2), 1);
    assert_int_equal(done[0].result, 10);

    struct read_request beyond = {fd, 1, buffer[1], 64, FILE_BYTES + 5};
    ops->submit(e, &beyond);
    assert_int_equal(ops->reap(e, done, 2), 1);
    assert_int_equal(done[0].slot, 1);
    assert_int_equal(done[0].result, 0);

    struct read_request closed = {-1, 1, buffer[1], 64, 0};
    ops->submit(e, &closed);
    assert_int_equal(ops->reap(e, done, 2), 1);
    assert_int_equal(done[0].result, -EBADF);

    /* Destroyed with a request outstanding: the buffer is ours again afterwards. */
    ops->submit(e, &across);
    ops->destroy(e);
    ops->destroy(NULL);
    close(fd);
}

TEST(pread_reads_what_is_there) {
    check_reads(read_engine_pread());
}

TEST(uring_reads_what_is_there) {
    check_reads(read_engine_uring());
}

TEST(pread_reports_ends_and_errors) {
    check_edges(read_engine_pread());
}

TEST(uring_reports_ends_and_errors) {
    check_edges(read_engine_uring());
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
    assert_ok(shard_files_create(&f, SHARDS + 1, numbered, dir, &err), err);
    int fd;
    for (uint32_t i = 0; i < SHARDS; i++) {
        uint32_t value = 0;
        assert_ok(shard_files_acquire(f, &fd, i, &err), err);
        assert_int_equal(pread(fd, &value, sizeof(value), 0), sizeof(value));
        assert_int_equal(value, i);
        shard_files_release(f, i);
    }
    assert_status(shard_files_acquire(f, &fd, SHARDS, &err), STATUS_NOTFOUND, err);
    assert_non_null(strstr(err.text, "cannot open this shard"));
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
