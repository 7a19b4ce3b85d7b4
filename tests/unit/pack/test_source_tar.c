/*
 * Plain tars have a reader of their own. Whatever is in one, and however it is damaged, the rows
 * are those that libarchive's reader gives, which reads where somebody asks for every byte.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/rng.h"
#include "formats/shard/shard_internal.h"
#include "pack/source/source.h"
#include "tests/support/source_rows.h"
#include "tests/support/test.h"

static const char jpeg_head[] = "\xFF\xD8\xFF\xE0 looks like one";

/* ---- tars -------------------------------------------------------------------------------------
 */

static struct byte_buffer tar;

static void seal(uint8_t *header) {
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < TAR_BLOCK_BYTES; i++) {
        sum += header[i];
    }
    snprintf((char *)header + 148, 8, "%06o", sum);
}

static void put(const char *name, char type, const void *body, size_t size_bytes) {
    static const uint8_t zeros[TAR_BLOCK_BYTES];
    uint8_t header[TAR_BLOCK_BYTES];
    tar_header(header, name, size_bytes);
    header[156] = (uint8_t)type;
    seal(header);
    assert_int_equal(byte_buffer_append(&tar, header, sizeof(header), NULL), STATUS_OK);
    assert_int_equal(byte_buffer_append(&tar, body, size_bytes, NULL), STATUS_OK);
    assert_int_equal(byte_buffer_append(&tar, zeros, tar_padding(size_bytes), NULL), STATUS_OK);
}

static void put_text(const char *name, char type, const char *body) {
    put(name, type, body, strlen(body));
}

static void put_row(const char *stem) {
    char name[120];
    snprintf(name, sizeof(name), "%s.jpg", stem);
    put(name, '0', jpeg_head, sizeof(jpeg_head) - 1);
    snprintf(name, sizeof(name), "%s.txt", stem);
    put_text(name, '0', "a caption");
}

static void put_end(void) {
    static const uint8_t zeros[TAR_END_BYTES];
    assert_int_equal(byte_buffer_append(&tar, zeros, sizeof(zeros), NULL), STATUS_OK);
}

static void begin(void) {
    byte_buffer_fini(&tar);
    byte_buffer_init(&tar, 0);
}

/* ---- both readers -----------------------------------------------------------------------------
 */

struct reading {
    enum status status;
    uint64_t rows, ignored, sum;
};

static void ignore_bytes(void *cookie, const void *data, size_t size_bytes) {
    (void)cookie;
    (void)data;
    (void)size_bytes;
}

static uint64_t fold(uint64_t sum, const void *data, size_t size_bytes) {
    return sum * 31 + hash64(data, size_bytes);
}

static struct reading read_all(const char *path, enum source_kind kind, bool every_byte) {
    struct source_options how = {.kind = kind, .bytes = every_byte ? ignore_bytes : NULL};
    struct reading r = {0};
    struct source *s = NULL;
    struct source_row row;
    source_row_init(&row);
    r.status = source_open(&s, path, &how, NULL);
    while (r.status == STATUS_OK && (r.status = source_next(s, &row, NULL)) == STATUS_OK) {
        const uint64_t places[] = {row.offset_bytes, row.end_bytes, row.image_offset_bytes};
        r.sum = fold(r.sum, row.key, strlen(row.key));
        r.sum = fold(r.sum, row.image.data, row.image.size_bytes);
        r.sum = fold(r.sum, row.text.data, row.text.size_bytes);
        r.sum = fold(r.sum, row.json.data, row.json.size_bytes);
        r.sum = fold(r.sum, places, sizeof(places));
        r.sum = fold(r.sum, row.detail, strlen(row.detail));
        r.rows++;
    }
    r.ignored = s ? ignored_files(s) : 0;
    source_close(s);
    source_row_fini(&row);
    return r;
}

static void compare(const uint8_t *data, size_t size_bytes) {
    const char *path = test_temp_path("any.tar");
    test_write_file(path, data, size_bytes);
    for (int k = 0; k < 2; k++) {
        enum source_kind kind = k == 0 ? SOURCE_WDS : SOURCE_FOLDERS;
        struct reading own = read_all(path, kind, false);
        struct reading other = read_all(path, kind, true);
        assert_int_equal(own.status, other.status);
        assert_int_equal(own.rows, other.rows);
        assert_int_equal(own.ignored, other.ignored);
        assert_int_equal(own.sum, other.sum);
    }
}

/* Every kind of member between members of the plain kind. */
static void make_mixed(void) {
    static const char *const pax[] = {
        "30 mtime=1700000000.123456789\n", "20 atime=1700000000\n27 mtime=1700000000.12345\n",
        "22 path=other/name.jpg\n",        "18 comment=hello!\n",
        "20 mtime=17000000.5\nx",          "99 mtime=1\n",
    };
    char long_name[200];
    memset(long_name, 'n', sizeof(long_name));
    memcpy(long_name + 150, ".jpg", 5);
    begin();
    put_row("a");
    put("folder/", '5', "", 0);
    put_row("./folder/b");
    for (size_t i = 0; i < sizeof(pax) / sizeof(pax[0]) - 2; i++) {
        char stem[16];
        snprintf(stem, sizeof(stem), "pax%zu", i);
        put_text("./PaxHeaders/x", 'x', pax[i]);
        put_row(stem);
    }
    put("link.jpg", '2', "", 0);
    put("._hidden", '0', "x", 1);
    put_row("c");
    put_text("././@LongLink", 'L', long_name);
    put("short.jpg", '0', jpeg_head, sizeof(jpeg_head) - 1);
    put_row("d");
    put("v7.jpg", '\0', jpeg_head, sizeof(jpeg_head) - 1);
    put("empty.txt", '0', "", 0);
    put_row("\xC3\xA9t\xC3\xA9");
    put_row("e");
    put_end();
}

TEST(any_member_is_read_alike) {
    make_mixed();
    compare(tar.data, tar.size_bytes);
    struct reading r = read_all(test_temp_path("any.tar"), SOURCE_WDS, false);
    assert_int_equal(r.status, STATUS_END);
    assert_true(r.rows >= 10);
    byte_buffer_fini(&tar);
}

TEST(truncated_anywhere) {
    make_mixed();
    for (size_t n = 0; n < tar.size_bytes; n += n % TAR_BLOCK_BYTES == 0 ? 1 : 73) {
        compare(tar.data, n);
        n += n % TAR_BLOCK_BYTES > 400 ? TAR_BLOCK_BYTES - n % TAR_BLOCK_BYTES - 73 : 0;
    }
    byte_buffer_fini(&tar);
}

/* Half of the headers that are changed get a right checksum again. The end mark stays: what follows
 * it is not read where every byte is asked for. */
TEST(whatever_bytes_are_changed) {
    struct rng r;
    rng_init(&r, 11, RNG_ORDER, 0, 0);
    for (int k = 0; k < 400; k++) {
        make_mixed();
        size_t block =
            rng_below(&r, (uint32_t)((tar.size_bytes - TAR_END_BYTES) / TAR_BLOCK_BYTES));
        uint8_t *header = tar.data + block * TAR_BLOCK_BYTES;
        for (uint32_t i = 1 + rng_below(&r, 3); i > 0; i--) {
            size_t at =
                rng_below(&r, 3) == 0 ? rng_below(&r, TAR_BLOCK_BYTES) : 100 + rng_below(&r, 180);
            header[at] = rng_below(&r, 2) == 0 ? (uint8_t)rng_below(&r, 256)
                                               : (uint8_t) "0157xLgKS \0/"[rng_below(&r, 12)];
        }
        if (rng_below(&r, 2) == 0) {
            seal(header);
        }
        compare(tar.data, tar.size_bytes);
    }
    byte_buffer_fini(&tar);
}

/* The number of rows, and what is said about the tar as a whole. */
static uint64_t rows_of(char note[240], const uint8_t *data, size_t size_bytes) {
    const char *path = test_temp_path("whole.tar");
    struct source_options how = {.kind = SOURCE_WDS};
    struct source *s = NULL;
    struct error err = {0};
    uint64_t count = 0;
    test_write_file(path, data, size_bytes);
    assert_ok(source_open(&s, path, &how, &err), err);
    assert_status(source_skip(s, UINT64_MAX, &count, &err), STATUS_END, err);
    snprintf(note, 240, "%s", source_note(s));
    source_close(s);
    return count;
}

/* After an end mark another tar may follow. Both readers find it: libarchive reads from "v7" on. */
TEST(what_follows_an_end_mark_is_read_or_noted) {
    static const uint8_t zeros[TAR_END_BYTES];
    static const size_t marks[] = {TAR_BLOCK_BYTES, TAR_END_BYTES};
    char note[240];
    for (int k = 0; k < 4; k++) {
        const bool old = k / 2 == 1;
        begin();
        put_row("a");
        if (old) {
            put("v7.jpg", '\0', jpeg_head, sizeof(jpeg_head) - 1);
        }
        const uint64_t rows = old ? 2 : 1;
        assert_int_equal(rows_of(note, tar.data, tar.size_bytes), rows);
        assert_non_null(strstr(note, "no end mark"));
        assert_int_equal(byte_buffer_append(&tar, zeros, marks[k % 2], NULL), STATUS_OK);
        assert_int_equal(rows_of(note, tar.data, tar.size_bytes), rows);
        assert_string_equal(note, "");
        put_row("b");
        put_end();
        assert_int_equal(rows_of(note, tar.data, tar.size_bytes), rows + 1);
        assert_string_equal(note, "");
        for (size_t more = 100; more <= 1000; more += 900) { /* no tar */
            assert_int_equal(byte_buffer_append(&tar, jpeg_head, 1, NULL), STATUS_OK);
            assert_int_equal(byte_buffer_append(&tar, zeros, more, NULL), STATUS_OK);
            assert_int_equal(rows_of(note, tar.data, tar.size_bytes), rows + 1);
            assert_non_null(strstr(note, "is not a tar and was not read"));
        }
    }
    byte_buffer_fini(&tar);
}

TEST(large_bodies_are_read_without_the_window) {
    static uint8_t body[700 << 10];
    for (size_t i = 0; i < sizeof(body); i++) {
        body[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    memcpy(body, jpeg_head, sizeof(jpeg_head) - 1);
    begin();
    for (size_t n = 100 << 10; n < sizeof(body); n += 99 << 10) {
        char name[32];
        snprintf(name, sizeof(name), "%zu.jpg", n);
        put(name, '0', body, n);
        snprintf(name, sizeof(name), "%zu.mov", n); /* skipped */
        put(name, '0', body + 1000, n - 1000);
        snprintf(name, sizeof(name), "%zu.txt", n);
        put_text(name, '0', "a large one");
    }
    put_end();
    compare(tar.data, tar.size_bytes);
    compare(tar.data, tar.size_bytes - (200 << 10));
    byte_buffer_fini(&tar);
}
