/* Cursor bounds at 0, 1 and the maximum; the buffer's limit; hashes and host memory. */
#include "formats/base/bytes.h"

#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "formats/base/host_memory.h"
#include "tests/support/test.h"

static const uint8_t sample[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0xff};

TEST(cursor_reads_little_endian) {
    struct cursor c;
    cursor_init(&c, sample, sizeof sample);
    assert_ptr_equal(cursor_take(&c, 1), sample);
    assert_int_equal(cursor_u16(&c), 0x0302);
    assert_int_equal(cursor_u32(&c), 0x07060504);
    assert_true(cursor_u64(&c) == 0x0f0e0d0c0b0a0908u);
    assert_int_equal(cursor_left(&c), 1);
    assert_ptr_equal(cursor_take(&c, 1), sample + 15);
    assert_true(cursor_ok(&c));
    assert_int_equal(cursor_left(&c), 0);
    assert_non_null(cursor_take(&c, 0));
    assert_true(cursor_ok(&c));
}

TEST(cursor_error_is_sticky) {
    for (size_t size = 0; size < 8; size++) {
        struct cursor c;
        cursor_init(&c, sample, size);
        assert_true(cursor_u64(&c) == 0);
        assert_false(cursor_ok(&c));
        assert_int_equal(cursor_left(&c), 0);
        assert_null(cursor_take(&c, 0)); /* although a byte would be there */
    }
    struct cursor c;
    cursor_init(&c, sample, sizeof sample);
    assert_int_equal(cursor_u16(&c), 0x0201);
    assert_null(cursor_take(&c, SIZE_MAX));
    assert_false(cursor_ok(&c));
}

TEST(cursor_over_nothing) {
    struct cursor c;
    cursor_init(&c, NULL, 0);
    assert_true(cursor_ok(&c));
    assert_non_null(cursor_take(&c, 0));
    assert_int_equal(cursor_u16(&c), 0);
    assert_false(cursor_ok(&c));
    cursor_init(&c, NULL, 5);
    assert_false(cursor_ok(&c));
}

TEST(loads_undo_stores) {
    uint8_t p[8];
    store_u32(p, 0xdeadbeefu);
    assert_int_equal(p[0], 0xef);
    assert_true(load_u32(p) == 0xdeadbeefu);
    store_u64(p, 0x0123456789abcdefu);
    assert_int_equal(p[7], 0x01);
    assert_true(load_u64(p) == 0x0123456789abcdefu);
}

TEST(buffer_grows_to_its_limit_and_no_further) {
    struct error err = {0};
    struct byte_buffer b;
    byte_buffer_init(&b, 1000);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_ok(byte_buffer_u8(&b, (uint8_t)i, &err), err);
    }
    assert_int_equal(b.size_bytes, 1000);
    assert_true(b.capacity_bytes <= 1000);
    assert_status(byte_buffer_u8(&b, 1, &err), STATUS_LIMIT, err);
    assert_status(byte_buffer_reserve(&b, SIZE_MAX, &err), STATUS_LIMIT, err);
    assert_ok(byte_buffer_append(&b, NULL, 0, &err), err);
    assert_ok(byte_buffer_reserve(&b, 0, &err), err);
    assert_int_equal(b.data[999], (uint8_t)999);
    byte_buffer_fini(&b);
    assert_null(b.data);
    assert_ok(byte_buffer_append(&b, sample, 2, &err), err);
    assert_ok(byte_buffer_u32(&b, 0x06050403, &err), err);
    assert_ok(byte_buffer_u64(&b, 0x0e0d0c0b0a090807u, &err), err);
    assert_memory_equal(b.data, sample, 14);
    byte_buffer_fini(&b);
}

TEST(buffer_without_a_limit_stops_at_one_gib) {
    struct error err = {0};
    struct byte_buffer b = {0};
    assert_status(byte_buffer_reserve(&b, ((size_t)1 << 30) + 1, &err), STATUS_LIMIT, err);
    assert_null(b.data);
}

TEST(hash_is_canonical_xxh64) {
    struct error err = {0};
    assert_true(hash64("", 0) == 0xef46db3751d8e999u);
    assert_true(hash64("abc", 3) == 0x44bc2cf5ad770999u);
    struct hasher *h = NULL;
    assert_ok(hasher_create(&h, &err), err);
    for (size_t cut = 0; cut <= sizeof sample; cut++) {
        hasher_reset(h);
        hasher_update(h, sample, cut);
        hasher_update(h, sample + cut, sizeof sample - cut);
        assert_true(hasher_value(h) == hash64(sample, sizeof sample));
    }
    hasher_destroy(h);
    hasher_destroy(NULL);
}

TEST(host_memory_is_aligned) {
    struct host_memory m = host_memory_default();
    static const size_t sizes[] = {0, 1, 64, 65, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *p = m.alloc(m.cookie, sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 1, sizes[i]);
        m.release(m.cookie, p);
    }
    /* Large pieces are made of whole large pages. */
    void *large = m.alloc(m.cookie, (4 << 20) + 1);
    assert_non_null(large);
    assert_int_equal((uintptr_t)large % (2 << 20), 0);
    memset(large, 1, (4 << 20) + 1);
    m.release(m.cookie, large);
    assert_null(m.alloc(m.cookie, SIZE_MAX));
    m.release(m.cookie, NULL);
}

TEST(clocks_go_forward) {
    int64_t a = clock_now_ns();
    int64_t cpu = clock_thread_cpu_ns();
    volatile uint32_t x = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        x += i;
    }
    assert_true(clock_now_ns() > a);
    assert_true(clock_thread_cpu_ns() >= cpu);
}
