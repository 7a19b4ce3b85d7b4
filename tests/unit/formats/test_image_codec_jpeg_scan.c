#include "formats/image/image_codec_jpeg_scan_internal.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

/* DC: 0 is a value of no bits, 10 one of 3, 110 one of 15. AC: 0 ends the block, 10 is a value of 1
 * bit, 110 sixteen zeros, 1110 fifteen zeros and a value of 2 bits, and 14 bits a value of 10. */
static const struct jpeg_scan_code DC = {.counts = {0, 1, 1, 1}, .symbols = {0, 3, 15}};
static const struct jpeg_scan_code AC = {.counts = {[1] = 1, [2] = 1, [3] = 1, [4] = 1, [14] = 1},
                                         .symbols = {0x00, 0x01, 0xf0, 0xf2, 0x0a}};

struct stream {
    uint8_t bytes[512];
    size_t size;
    unsigned free_bits; /* in the last byte */
};

/* Appends bits, written as text, with a zero after each byte FF. */
static void put(struct stream *s, const char *bits) {
    for (; *bits != '\0'; bits++) {
        if (*bits == ' ') {
            continue;
        }
        if (s->free_bits == 0) {
            if (s->size > 0 && s->bytes[s->size - 1] == 0xff) {
                s->bytes[s->size++] = 0;
            }
            s->bytes[s->size++] = 0;
            s->free_bits = 8;
        }
        s->free_bits--;
        s->bytes[s->size - 1] |= (uint8_t)((*bits - '0') << s->free_bits);
    }
}

/* Fills the last byte with ones and appends FF and the marker. */
static void put_marker(struct stream *s, uint8_t marker) {
    while (s->free_bits > 0) {
        s->bytes[s->size - 1] |= (uint8_t)(1 << --s->free_bits);
    }
    if (s->size > 0 && s->bytes[s->size - 1] == 0xff) {
        s->bytes[s->size++] = 0;
    }
    s->bytes[s->size++] = 0xff;
    s->bytes[s->size++] = marker;
}

static bool judge_with(const struct stream *s,
                       const struct jpeg_scan_code *dc,
                       const struct jpeg_scan_code *ac,
                       uint64_t units,
                       uint32_t restart_interval) {
    struct jpeg_scan scan = {.size_bytes = s->size,
                             .dc = {dc},
                             .ac = {ac},
                             .block_count = 1,
                             .unit_count = units,
                             .restart_interval = restart_interval};
    uint8_t *copy = malloc(s->size); /* of the exact size, for AddressSanitizer */
    struct jpeg_scan_tables *t = jpeg_scan_tables_create();
    assert_non_null(copy);
    assert_non_null(t);
    memcpy(copy, s->bytes, s->size);
    scan.data = copy;
    const bool sound = jpeg_scan_is_sound(t, &scan);
    assert_int_equal(jpeg_scan_is_sound(t, &scan), sound); /* with tables that are there */
    jpeg_scan_tables_destroy(t);
    free(copy);
    return sound;
}

static bool judge(const struct stream *s, uint64_t units, uint32_t restart_interval) {
    return judge_with(s, &DC, &AC, units, restart_interval);
}

TEST(blocks_that_end_with_the_end_marker_are_sound) {
    struct stream s = {0};
    for (int i = 0; i < 100; i++) {
        put(&s, i % 2 == 0 ? "0 0" : "10 101 10 1 1110 01 0");
    }
    put_marker(&s, 0xd9);
    assert_true(judge(&s, 100, 0));
    assert_false(judge(&s, 99, 0)); /* more than a byte is left */
    assert_false(judge(&s, 101, 0));
    for (size_t size = 0; size < s.size; size++) {
        struct stream cut = s;
        cut.size = size;
        assert_false(judge(&cut, 100, 0));
    }
}

TEST(long_codes_and_stuffed_bytes_are_read) {
    struct stream s = {0};
    put(&s, "110 111111111111111 11110000000000 1111111111 11110000000000 1111111111 0");
    put(&s, "110 111111111111111 0");
    put_marker(&s, 0xd9);
    assert_non_null(memmem(s.bytes, s.size, "\xff\0", 2));
    assert_true(judge(&s, 2, 0));
}

TEST(full_blocks_have_no_end_code) {
    struct stream s = {0};
    put(&s, "0");
    for (int i = 0; i < 63; i++) {
        put(&s, "10 1");
    }
    put(&s, "0 110 110 110 1110 11"); /* 3 * 16 zeros, 15 more: the last is coefficient 63 + 1 */
    put(&s, "0 0");
    put_marker(&s, 0xd9);
    assert_true(judge(&s, 3, 0));
}

TEST(codes_that_do_not_exist_are_not_sound) {
    struct stream s = {0};
    put(&s, "0 11111 0000000000000000000000");
    put_marker(&s, 0xd9);
    assert_false(judge(&s, 1, 0));
    struct stream dc = {0};
    put(&dc, "111 0000000000000000000000");
    put_marker(&dc, 0xd9);
    assert_false(judge(&dc, 1, 0));
}

TEST(tables_that_libjpeg_refuses_are_not_sound) {
    struct stream s = {0};
    put(&s, "0 0");
    put_marker(&s, 0xd9);
    assert_true(judge(&s, 1, 0));
    const struct jpeg_scan_code full = {.counts = {0, 2}, .symbols = {0, 1}}; /* also all ones */
    const struct jpeg_scan_code large = {.counts = {0, 1, 1}, .symbols = {0, 16}};
    const struct jpeg_scan_code many = {.counts = {[9] = 255, [10] = 2}};
    assert_false(judge_with(&s, &full, &AC, 1, 0));
    assert_false(judge_with(&s, &large, &AC, 1, 0));
    assert_false(judge_with(&s, &DC, &many, 1, 0));
}

TEST(restart_markers_stand_in_their_places) {
    struct stream s = {0};
    for (int i = 0; i < 20; i++) {
        if (i > 0 && i % 2 == 0) {
            put_marker(&s, (uint8_t)(0xd0 + (i / 2 - 1) % 8));
            s.free_bits = 0;
        }
        put(&s, "10 101 10 1 0");
    }
    put_marker(&s, 0xd9);
    assert_true(judge(&s, 20, 2));
    assert_false(judge(&s, 20, 3));
    assert_false(judge(&s, 20, 0));
    for (size_t i = 0; i + 1 < s.size; i++) {
        if (s.bytes[i] == 0xff && s.bytes[i + 1] >= 0xd0 && s.bytes[i + 1] < 0xd8) {
            struct stream other = s;
            other.bytes[i + 1] ^= 1;
            assert_false(judge(&other, 20, 2));
        }
    }
}

TEST(bytes_between_data_and_end_marker_are_not_sound) {
    static const char *const between[] = {"\0", "\xff", "\xff\xd0", "\xff\xfe"};
    for (size_t i = 0; i < 4; i++) {
        struct stream s = {0};
        put(&s, "10 101 10 1 0");
        put_marker(&s, 0xd9);
        const size_t size = i == 0 ? 1 : strlen(between[i]);
        memmove(s.bytes + s.size - 2 + size, s.bytes + s.size - 2, 2);
        memcpy(s.bytes + s.size - 2, between[i], size);
        s.size += size;
        assert_false(judge(&s, 1, 0));
    }
}
