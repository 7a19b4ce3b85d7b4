#include "loader/remote/cache_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "loader/remote/remote_internal.h"
#include "tests/support/test.h"

#define URL  "https://host/data/shard-000000.tar.zst"
#define ETAG "\"e1\""

enum { PIECE_BYTES = 1000000 };

static struct cache *open_cache(uint64_t max_bytes) {
    struct cache *c = NULL;
    struct error err = {0};
    assert_ok(cache_open(&c, test_temp_path("cache"), max_bytes, NULL, &err), err);
    return c;
}

static struct cache_key some_key(void) {
    return cache_key_of(URL, ETAG, 5000000);
}

static void put(struct cache *c, uint32_t number, int seed) {
    uint8_t *bytes = malloc(PIECE_BYTES);
    assert_non_null(bytes);
    memset(bytes, seed, PIECE_BYTES);
    cache_put(c, some_key(), number, bytes, PIECE_BYTES);
    free(bytes);
}

static bool is_there(struct cache *c, uint32_t number, int seed) {
    int fd = -1;
    uint8_t byte = 0;
    struct error err = {0};
    const enum status s = cache_get(c, &fd, some_key(), number, PIECE_BYTES, true, &err);
    if (s != STATUS_OK) {
        assert_status(s, STATUS_NOTFOUND, err);
        assert_int_equal(fd, -1);
        return false;
    }
    assert_true(remote_read_fd(fd, &byte, 1, PIECE_BYTES - 1));
    assert_int_equal(byte, seed);
    close(fd);
    return true;
}

/* The file of a piece, by the documented name. */
static const char *path_of(uint32_t number) {
    const struct cache_key key = some_key();
    return test_temp_path("cache/ccstream-cache-1/%02x/%016" PRIx64 "%016" PRIx64 "-%u",
                          (unsigned)(key.hash[0] >> 56), key.hash[0], key.hash[1], number);
}

static void set_age(const char *path, time_t seconds) {
    const struct timespec then = {.tv_sec = time(NULL) - seconds};
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[2]){then, then}, 0), 0);
}

TEST(pieces_come_back_in_another_process_s_cache) {
    struct cache *c = open_cache(1 << 30);
    assert_false(is_there(c, 3, 7));
    assert_false(cache_has(c, some_key(), 3));
    put(c, 3, 7);
    assert_true(cache_has(c, some_key(), 3));
    cache_close(c);
    c = open_cache(1 << 30);
    assert_true(is_there(c, 3, 7));
    assert_false(is_there(c, 4, 7));
    cache_remove(c, some_key(), 3);
    assert_false(is_there(c, 3, 7));
    cache_close(c);
}

TEST(versions_and_files_have_keys_of_their_own) {
    const struct cache_key a = some_key();
    const struct cache_key others[] = {cache_key_of(URL, "\"e2\"", 5000000),
                                       cache_key_of(URL, ETAG, 5000001),
                                       cache_key_of(URL "x", ETAG, 5000000)};
    const struct cache_key signed_url = cache_key_of(URL "?signature=1", ETAG, 5000000);
    for (size_t i = 0; i < 3; i++) {
        assert_memory_not_equal(a.hash, others[i].hash, sizeof a.hash);
    }
    assert_memory_equal(a.hash, signed_url.hash,
                        sizeof a.hash); /* a signature ends, the file is the same */
    assert_true(a.hash[0] != a.hash[1]);
}

/* In a folder that others may write, a file that this user wrote is used under its name alone. */
TEST(shared_pieces_of_ones_own_have_one_name) {
    struct cache *c = open_cache(1 << 30);
    assert_false(cache_key_own(c, some_key()).own);
    cache_close(c);
    assert_int_equal(chmod(test_temp_path("cache"), 0777), 0);
    c = open_cache(1 << 30);
    const struct cache_key a = cache_key_own(c, some_key());
    const struct cache_key b = cache_key_own(c, cache_key_of(URL, "\"e2\"", 5000000));
    const uint8_t bytes[4] = {1, 2, 3, 4};
    char from[256];
    int fd = -1;
    assert_true(a.own && a.hash[0] != some_key().hash[0]);
    cache_put(c, a, CACHE_WHOLE, bytes, sizeof bytes);
    assert_int_equal(cache_get(c, &fd, a, CACHE_WHOLE, sizeof bytes, true, NULL), STATUS_OK);
    close(fd);
    (void)snprintf(from, sizeof from, "%s",
                   test_temp_path("cache/ccstream-cache-1/%02x/%016" PRIx64 "%016" PRIx64 "-whole",
                                  (unsigned)(a.hash[0] >> 56), a.hash[0], a.hash[1]));
    assert_int_equal(
        rename(from,
               test_temp_path("cache/ccstream-cache-1/%02x/%016" PRIx64 "%016" PRIx64 "-whole",
                              (unsigned)(b.hash[0] >> 56), b.hash[0], b.hash[1])),
        0);
    assert_int_equal(cache_get(c, &fd, b, CACHE_WHOLE, sizeof bytes, true, NULL), STATUS_NOTFOUND);
    cache_close(c);
}

TEST(damaged_pieces_are_removed) {
    struct cache *c = open_cache(1 << 30);
    for (int damage = 0; damage < 3; damage++) {
        put(c, 1, 9);
        const int fd = open(path_of(1), O_WRONLY);
        assert_true(fd >= 0);
        if (damage == 0) {
            assert_int_equal(pwrite(fd, "x", 1, PIECE_BYTES / 2), 1);
        } else if (damage == 1) {
            assert_int_equal(ftruncate(fd, PIECE_BYTES), 0);
        } else {
            assert_int_equal(pwrite(fd, "x", 1, PIECE_BYTES + 3), 1);
        }
        close(fd);
        assert_false(is_there(c, 1, 9));
        assert_int_equal(access(path_of(1), F_OK), -1);
    }
    cache_close(c);
}

TEST(what_was_not_used_for_longest_goes_first) {
    const uint64_t limit = 10 * (PIECE_BYTES + CACHE_TRAILER_BYTES) + 1000;
    struct cache *c = open_cache(limit);
    for (uint32_t i = 0; i < 10; i++) {
        put(c, i, 5);
        set_age(path_of(i), 10000 - i);
    }
    uint8_t byte = 1;
    cache_put(c, some_key(), CACHE_WHOLE, &byte, 1);
    assert_true(is_there(c, 0, 5)); /* a use */
    put(c, 10, 5);
    assert_true(is_there(c, 0, 5));
    assert_false(is_there(c, 1, 5));
    assert_true(is_there(c, 9, 5));
    assert_true(is_there(c, 10, 5));
    assert_true(cache_has(c, some_key(), CACHE_WHOLE));
    cache_close(c);
    c = open_cache(limit / 2);
    uint32_t left = 0;
    for (uint32_t i = 0; i <= 10; i++) {
        left += is_there(c, i, 5);
    }
    assert_true(left >= 3 && left <= 5);
    assert_true(cache_has(c, some_key(), CACHE_WHOLE));
    cache_close(c);
}

TEST(nothing_else_is_removed) {
    static const char *const names[] = {
        "notes.txt", "0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef-x",
        "0123456789abcdef0123456789abcdeF-1", "0123456789abcdef0123456789abcdef-1.txt"};
    char path[4096];
    cache_close(open_cache(1 << 30));
    for (size_t i = 0; i < 5; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", test_temp_path("cache/ccstream-cache-1/01"),
                       names[i]);
        const int fd = open(path, O_WRONLY | O_CREAT, 0666);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, 1 << 20), 0);
        close(fd);
        set_age(path, 100000);
    }
    struct cache *c = open_cache(1000);
    put(c, 0, 1);
    put(c, 1, 1);
    cache_close(c);
    for (size_t i = 0; i < 5; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", test_temp_path("cache/ccstream-cache-1/01"),
                       names[i]);
        assert_int_equal(access(path, F_OK), 0);
    }
}

TEST(temporary_files_of_killed_processes_are_removed_when_they_are_old) {
    char path[2][4096];
    cache_close(open_cache(1 << 30));
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path[i], sizeof path[i], "%s.77-%d.tmp", path_of(5), i);
        const int fd = open(path[i], O_WRONLY | O_CREAT, 0666);
        assert_true(fd >= 0);
        close(fd);
        set_age(path[i], i == 0 ? 10 : 1000);
    }
    cache_close(open_cache(1 << 30));
    assert_int_equal(access(path[0], F_OK), 0);
    assert_int_equal(access(path[1], F_OK), -1);
}

TEST(a_full_disk_is_none_of_the_run) {
    struct cache *c = open_cache(1 << 30);
    if (geteuid() == 0) { /* the folder of the piece is missing: root may write anywhere else */
        char *folder = strdup(path_of(2));
        *strrchr(folder, '/') = '\0';
        assert_int_equal(rmdir(folder), 0);
        free(folder);
    }
    put(c, 2, 1);
    assert_true(geteuid() != 0 || !is_there(c, 2, 1));
    cache_close(c);
}

TEST(heads_are_true_of_one_generation) {
    struct cache *c = open_cache(1 << 30);
    struct head head = {.generation = "\"m1\"", .etag = ETAG, .size_bytes = 12345678901};
    struct head got;
    assert_false(heads_recall(c, &got, URL, "\"m1\""));
    heads_remember(c, URL, &head);
    assert_true(heads_recall(c, &got, URL "?signature=2", "\"m1\""));
    assert_string_equal(got.etag, ETAG);
    assert_true(got.size_bytes == 12345678901 && !got.missing);
    assert_false(heads_recall(c, &got, URL, "\"m2\""));
    assert_false(heads_recall(c, &got, URL "x", "\"m1\""));
    head.missing = true;
    heads_remember(c, URL, &head);
    assert_true(heads_recall(c, &got, URL, "\"m1\"") && got.missing);
    heads_forget(c, URL);
    assert_false(heads_recall(c, &got, URL, "\"m1\""));
    cache_close(c);
}

TEST(damaged_heads_are_none) {
    struct cache *c = open_cache(1 << 30);
    const struct head head = {.generation = "\"m1\"", .etag = ETAG, .size_bytes = 77};
    struct byte_buffer text = {0};
    struct head got;
    heads_remember(c, URL, &head);
    assert_int_equal(cache_get_head(c, &text, cache_key_of(URL, "head", 0)), STATUS_OK);
    const char *bytes = (const char *)text.data;
    assert_true(head_parse(&got, URL, bytes, text.size_bytes));
    for (size_t i = 0; i < text.size_bytes; i++) {
        text.data[i] ^= 1;
        assert_false(head_parse(&got, URL, bytes, text.size_bytes));
        text.data[i] ^= 1;
        assert_false(head_parse(&got, URL, bytes, i));
    }
    byte_buffer_fini(&text);
    cache_close(c);
}
