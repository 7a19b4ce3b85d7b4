/*
 * The walk over somebody's tar: every form of name and size that is understood, and everything that
 * must be refused because a body would not be where its header says.
 */
#include "formats/shard/tar.h"

#include <stdio.h>
#include <string.h>

#include "formats/shard/shard_internal.h"
#include "tests/support/test.h"

static struct error err;

/* A tar in the making. */
struct tar {
    uint8_t data[32 * 1024];
    size_t size_bytes;
};

static void seal(uint8_t *header) {
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < 512; i++) {
        sum += header[i];
    }
    snprintf((char *)header + 148, 8, "%06o", sum);
}

/* Appends a header; body and padding follow by put_body. */
static uint8_t *put_header(struct tar *t, const char *name, char type, size_t size_bytes) {
    uint8_t *header = t->data + t->size_bytes;
    assert_true(t->size_bytes + 512 <= sizeof(t->data));
    tar_header(header, name, size_bytes);
    header[156] = (uint8_t)type;
    seal(header);
    t->size_bytes += 512;
    return header;
}

static void put_body(struct tar *t, const void *data, size_t size_bytes) {
    size_t padded = size_bytes + tar_padding(size_bytes);
    assert_true(t->size_bytes + padded <= sizeof(t->data));
    memcpy(t->data + t->size_bytes, data, size_bytes);
    memset(t->data + t->size_bytes + size_bytes, 0, padded - size_bytes);
    t->size_bytes += padded;
}

static void put_file(struct tar *t, const char *name, char type, const char *body) {
    put_header(t, name, type, strlen(body));
    put_body(t, body, strlen(body));
}

static void assert_member(struct tar_walk *w, const char *name, const char *body) {
    struct tar_walk_member m;
    assert_ok(tar_walk_next(w, &m, &err), err);
    assert_int_equal(m.name_bytes, strlen(name));
    assert_memory_equal(m.name, name, m.name_bytes);
    assert_int_equal(m.is_file, body != NULL);
    if (body) {
        assert_int_equal(m.size_bytes, strlen(body));
        assert_memory_equal(m.body, body, m.size_bytes);
        assert_ptr_equal(m.body, w->data + m.body_offset);
    }
}

static void assert_end(struct tar_walk *w) {
    struct tar_walk_member m;
    assert_status(tar_walk_next(w, &m, &err), STATUS_END, err);
}

TEST(plain_members_of_every_old_kind) {
    static struct tar t;
    struct tar_walk w;
    put_file(&t, "a.jpg", '0', "picture");
    put_file(&t, "./d/b.txt", '\0', "");
    put_file(&t, "c", '7', "x");
    put_header(&t, "folder/", '5', 0);
    put_header(&t, "link", '2', 0);
    uint8_t *v7 = put_header(&t, "old", '0', 3);
    memset(v7 + 257, 0, 8);
    seal(v7);
    put_body(&t, "abc", 3);
    tar_walk_init(&w, t.data, t.size_bytes);
    assert_member(&w, "a.jpg", "picture");
    assert_member(&w, "d/b.txt", "");
    assert_member(&w, "c", "x");
    assert_member(&w, "folder/", NULL);
    assert_member(&w, "link", NULL);
    assert_member(&w, "old", "abc");
    assert_end(&w);
}

TEST(names_of_every_form) {
    static struct tar t;
    struct tar_walk w;
    char longest[300];
    memset(longest, 'n', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    uint8_t *prefixed = put_header(&t, "base.txt", '0', 1);
    memcpy(prefixed + 345, "some/folder", 11);
    seal(prefixed);
    put_body(&t, "1", 1);
    uint8_t *gnu =
        put_header(&t, "gnu.txt", '0', 1); /* where ustar has its prefix, GNU has times */
    memcpy(gnu + 257, "ustar  ", 8);
    memcpy(gnu + 345, "14000000000", 11);
    seal(gnu);
    put_body(&t, "2", 1);
    put_header(&t, "././@LongLink", 'K', 4); /* where a link leads to: of no use here */
    put_body(&t, "abc", 4);
    put_header(&t, "././@LongLink", 'L', sizeof(longest));
    put_body(&t, longest, sizeof(longest));
    put_file(&t, "cut", '0', "3");
    put_header(&t, "pax", 'x', 30);
    put_body(&t, "13 path=p/ax\n17 mtime=1.234567", 30);
    t.size_bytes -= 512;
    memcpy(t.data + t.size_bytes, "13 path=p/ax\n17 comment=none!\n", 30);
    t.size_bytes += 512;
    put_file(&t, "cut", '0', "4");
    uint8_t *full = put_header(&t, "x", '0', 0);
    memset(full, 'f', 100); /* a name without room for its NUL */
    seal(full);
    tar_walk_init(&w, t.data, t.size_bytes);
    assert_member(&w, "some/folder/base.txt", "1");
    assert_member(&w, "gnu.txt", "2");
    assert_member(&w, longest, "3");
    assert_member(&w, "p/ax", "4");
    struct tar_walk_member m;
    assert_ok(tar_walk_next(&w, &m, &err), err);
    assert_int_equal(m.name_bytes, 100);
    assert_end(&w);
}

/* SHARD_FORMAT.md, section 5: the latest name before a member counts, and one "./" goes. */
TEST(the_latest_long_name_counts) {
    static struct tar t;
    struct tar_walk w;
    put_file(&t, "././@LongLink", 'L', "gnu first");
    put_file(&t, "pax", 'x', "12 path=pax\n");
    put_file(&t, "short", '0', "1");
    put_file(&t, "pax", 'x', "12 path=pax\n");
    put_file(&t, "././@LongLink", 'L', "./gnu");
    put_file(&t, "short", '0', "2");
    put_file(&t, "pax", 'x', "11 path=ab\n11 path=cd\n");
    put_file(&t, "short", '0', "3");
    put_file(&t, "././a.jpg", '0', "4");
    put_file(&t, "/./a.jpg", '0', "5");
    tar_walk_init(&w, t.data, t.size_bytes);
    assert_member(&w, "pax", "1");
    assert_member(&w, "gnu", "2");
    assert_member(&w, "cd", "3");
    assert_member(&w, "./a.jpg", "4");
    assert_member(&w, "/./a.jpg", "5");
    assert_end(&w);
}

TEST(checksums_of_signed_bytes_are_accepted) {
    static struct tar t;
    struct tar_walk w;
    struct tar_walk_member m;
    uint8_t *header = put_header(&t, "caf\xc3\xa9", '0', 0);
    snprintf((char *)header + 148, 8, "%06o", tar_header_sum(header) - 2 * 256);
    tar_walk_init(&w, t.data, t.size_bytes);
    assert_ok(tar_walk_next(&w, &m, &err), err);
    snprintf((char *)header + 148, 8, "%06o", tar_header_sum(header) - 256);
    tar_walk_init(&w, t.data, t.size_bytes);
    assert_status(tar_walk_next(&w, &m, &err), STATUS_CORRUPT, err);
}

TEST(sizes_of_every_form) {
    static struct tar t;
    struct tar_walk w;
    uint8_t *spaces = put_header(&t, "spaces", '0', 0);
    memcpy(spaces + 124, "         5 \0", 12);
    seal(spaces);
    put_body(&t, "12345", 5);
    uint8_t *binary = put_header(&t, "binary", '0', 0);
    memset(binary + 124, 0, 12);
    binary[124] = 0x80;
    binary[135] = 3;
    seal(binary);
    put_body(&t, "abc", 3);
    put_header(&t, "pax", 'x', 9);
    put_body(&t, "9 size=2\n", 9);
    put_header(&t, "by-pax", '0', 7777);
    put_body(&t, "xy", 2);
    tar_walk_init(&w, t.data, t.size_bytes);
    assert_member(&w, "spaces", "12345");
    assert_member(&w, "binary", "abc");
    assert_member(&w, "by-pax", "xy");
    assert_end(&w);
}

static void assert_refused(const struct tar *t, size_t size_bytes) {
    struct tar_walk w;
    struct tar_walk_member m;
    enum status s = STATUS_OK;
    tar_walk_init(&w, t->data, size_bytes);
    while (s == STATUS_OK) {
        s = tar_walk_next(&w, &m, &err);
    }
    assert_status(s, STATUS_CORRUPT, err);
}

/* One member that is refused for one thing. */
static void refuse(char type, const char *body, size_t body_bytes) {
    static struct tar t;
    t.size_bytes = 0;
    put_header(&t, "m", type, body_bytes);
    put_body(&t, body, body_bytes);
    put_file(&t, "n", '0', "next");
    assert_refused(&t, t.size_bytes);
}

TEST(unsupported_headers_are_refused) {
    static const char types[] = {'1', '2', '5', 'S', 'D', 'M', 'V', 'N', 'A', '8'};
    for (size_t i = 0; i < sizeof(types); i++) {
        refuse(types[i], "body", 4);
    }
    refuse('S', "", 0);
    static const char *const pax[] = {
        "x",
        "9 size=2",
        "9 size=x\n",
        "9 size=\n\n",
        "8 size=2\n",
        "999 size=2\n",
        "99999999999999999999999 size=2\n",
        "4 a\n",
        "9size=12\n",
        "0 a=b\n",
        "2 a=b\n",
        "20 GNU.sparse.map=1\n",
    };
    for (size_t i = 0; i < sizeof(pax) / sizeof(pax[0]); i++) {
        refuse('x', pax[i], strlen(pax[i]));
    }
}

TEST(truncated_files_and_damaged_headers_are_refused) {
    static struct tar t;
    static struct tar damaged;
    t.size_bytes = 0;
    put_header(&t, "long", 'L', 9);
    put_body(&t, "long name", 9);
    put_file(&t, "a", '0', "some text");
    for (size_t size = 1; size < t.size_bytes; size++) {
        assert_refused(&t, size);
    }
    for (size_t bit = 0; bit < 8 * 512; bit++) {
        if (bit / 8 >= 148 && bit / 8 < 156) {
            continue; /* the checksum itself, which has other good forms */
        }
        damaged = t;
        damaged.data[1024 + bit / 8] ^= (uint8_t)(1U << bit % 8);
        assert_refused(&damaged, t.size_bytes);
    }
    memset(damaged.data, 0, 1024);
    assert_refused(&damaged, 1024);
}

TEST(stems_end_at_the_base_names_first_or_last_dot) {
    static const struct {
        const char *name;
        size_t first, last;
    } cases[] = {{"a.jpg", 1, 1},   {"d.e/a.b.jpg", 5, 7}, {"a", 1, 1},  {"d.e/a", 5, 5},
                 {".hidden", 0, 0}, {"d/.x", 2, 2},        {"d/", 2, 2}, {"", 0, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t n = strlen(cases[i].name);
        assert_int_equal(tar_stem_bytes(cases[i].name, n, false), cases[i].first);
        assert_int_equal(tar_stem_bytes(cases[i].name, n, true), cases[i].last);
    }
    struct tar_walk_member m = {.name = "d/a.JSON", .name_bytes = 8, .is_file = true};
    assert_true(tar_member_is(&m, "d/a", 3, "json"));
    assert_false(tar_member_is(&m, "d/b", 3, "json"));
    assert_false(tar_member_is(&m, "d/a", 3, "jso"));
    m.name = "d/a.x.json";
    m.name_bytes = 10;
    assert_true(tar_member_is(&m, "d/a.x", 5, "json"));
    assert_false(tar_member_is(&m, "d/a", 3, "json"));
    m.is_file = false;
    assert_false(tar_member_is(&m, "d/a.x", 5, "json"));
}
