/*
 * The cursor never moves past its end: a read that does not fit marks it failed and gives zero, so
 * a parser reads a whole record and asks once. The buffer grows by half of itself up to its
 * maximum, so appending n bytes costs O(n).
 */
#include "formats/base/bytes.h"

#include <stdlib.h>
#include <string.h>

void cursor_init(struct cursor *c, const void *data, size_t size_bytes) {
    c->data = data;
    c->size_bytes = data ? size_bytes : 0;
    c->position = 0;
    c->failed = !data && size_bytes > 0;
}

bool cursor_ok(const struct cursor *c) {
    return !c->failed;
}

size_t cursor_left(const struct cursor *c) {
    return c->failed ? 0 : c->size_bytes - c->position;
}

const uint8_t *cursor_take(struct cursor *c, size_t size_bytes) {
    if (c->failed || size_bytes > c->size_bytes - c->position) {
        c->failed = true;
        return NULL;
    }
    if (!c->data) {
        /* Nothing taken from nothing: still a pointer, so that NULL always means failure. */
        return (const uint8_t *)"";
    }
    const uint8_t *p = c->data + c->position;
    c->position += size_bytes;
    return p;
}

uint16_t cursor_u16(struct cursor *c) {
    const uint8_t *p = cursor_take(c, 2);
    return p ? (uint16_t)(p[0] | (unsigned)p[1] << 8) : 0;
}

uint32_t cursor_u32(struct cursor *c) {
    const uint8_t *p = cursor_take(c, 4);
    return p ? load_u32(p) : 0;
}

uint64_t cursor_u64(struct cursor *c) {
    const uint8_t *p = cursor_take(c, 8);
    return p ? load_u64(p) : 0;
}

uint32_t load_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint64_t load_u64(const uint8_t *p) {
    return (uint64_t)load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
}

void store_u32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) {
        p[i] = (uint8_t)(v >> (8 * i));
    }
}

void store_u64(uint8_t *p, uint64_t v) {
    for (int i = 0; i < 8; i++) {
        p[i] = (uint8_t)(v >> (8 * i));
    }
}

enum { DEFAULT_MAX_BYTES = 1 << 30, FIRST_CAPACITY_BYTES = 256 };

void byte_buffer_init(struct byte_buffer *b, size_t max_bytes) {
    *b = (struct byte_buffer){.max_bytes = max_bytes};
}

void byte_buffer_fini(struct byte_buffer *b) {
    free(b->data);
    *b = (struct byte_buffer){.max_bytes = b->max_bytes};
}

enum status byte_buffer_reserve(struct byte_buffer *b, size_t extra_bytes, struct error *err) {
    size_t max = b->max_bytes ? b->max_bytes : DEFAULT_MAX_BYTES;
    FAIL_IF(b->size_bytes > max || extra_bytes > max - b->size_bytes, err, STATUS_LIMIT,
            "buffer of %zu bytes cannot grow by %zu: its limit is %zu bytes", b->size_bytes,
            extra_bytes, max);
    size_t need = b->size_bytes + extra_bytes;
    if (need <= b->capacity_bytes) {
        return STATUS_OK;
    }
    size_t capacity = b->capacity_bytes + b->capacity_bytes / 2;
    capacity = capacity < FIRST_CAPACITY_BYTES ? FIRST_CAPACITY_BYTES : capacity;
    capacity = capacity > max ? max : capacity;
    capacity = capacity < need ? need : capacity;
    uint8_t *data = realloc(b->data, capacity);
    TRY_MEMORY(data, err, "out of memory for a buffer of %zu bytes", capacity);
    b->data = data;
    b->capacity_bytes = capacity;
    return STATUS_OK;
}

enum status
byte_buffer_append(struct byte_buffer *b, const void *data, size_t size_bytes, struct error *err) {
    REQUIRE(data || size_bytes == 0);
    if (size_bytes == 0) {
        return STATUS_OK;
    }
    TRY(byte_buffer_reserve(b, size_bytes, err));
    memcpy(b->data + b->size_bytes, data, size_bytes);
    b->size_bytes += size_bytes;
    return STATUS_OK;
}

enum status byte_buffer_u8(struct byte_buffer *b, uint8_t v, struct error *err) {
    return byte_buffer_append(b, &v, 1, err);
}

enum status byte_buffer_u32(struct byte_buffer *b, uint32_t v, struct error *err) {
    uint8_t p[4];
    store_u32(p, v);
    return byte_buffer_append(b, p, sizeof p, err);
}

enum status byte_buffer_u64(struct byte_buffer *b, uint64_t v, struct error *err) {
    uint8_t p[8];
    store_u64(p, v);
    return byte_buffer_append(b, p, sizeof p, err);
}
