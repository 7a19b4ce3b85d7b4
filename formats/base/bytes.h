/*
 * bytes: little-endian numbers in memory: a bounds-checked cursor to read them, and a growable
 * buffer with a stated maximum to write them.
 *
 * Threading : single-owner.
 * Ownership : a cursor borrows its bytes; a buffer owns its storage until byte_buffer_fini.
 * Untrusted : everything a cursor points at. Its error is sticky: after the first read beyond the
 *             end every read gives zero and cursor_ok is false, so a parser checks once per record.
 */
#ifndef FORMATS_BASE_BYTES_H
#define FORMATS_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cursor {
    const uint8_t *data;
    size_t size_bytes;
    size_t position;
    bool failed;
};

void cursor_init(struct cursor *c, const void *data, size_t size_bytes);
bool cursor_ok(const struct cursor *c);
size_t cursor_left(const struct cursor *c);
uint16_t cursor_u16(struct cursor *c);
uint32_t cursor_u32(struct cursor *c);
uint64_t cursor_u64(struct cursor *c);

/* `size_bytes` bytes borrowed from the cursor, or NULL (and a failed cursor) when fewer are left.
 */
const uint8_t *cursor_take(struct cursor *c, size_t size_bytes);

/* Little-endian numbers at `p`, whose bounds the caller has checked. */
uint32_t load_u32(const uint8_t *p);
uint64_t load_u64(const uint8_t *p);
void store_u32(uint8_t *p, uint32_t v);
void store_u64(uint8_t *p, uint64_t v);

/* Growable bytes. Zero-initialise, then set max_bytes (0 means 1 GiB); data is NULL while empty. */
struct byte_buffer {
    uint8_t *data;
    size_t size_bytes;
    size_t capacity_bytes;
    size_t max_bytes;
};

void byte_buffer_init(struct byte_buffer *b, size_t max_bytes);
void byte_buffer_fini(struct byte_buffer *b);

/* Makes room for `extra_bytes` more. Returns OK, NOMEM, or LIMIT beyond max_bytes. */
enum status byte_buffer_reserve(struct byte_buffer *b, size_t extra_bytes, struct error *err);

/* Appends. `data` may be NULL when size_bytes is 0. Returns OK, NOMEM or LIMIT. */
enum status
byte_buffer_append(struct byte_buffer *b, const void *data, size_t size_bytes, struct error *err);
enum status byte_buffer_u8(struct byte_buffer *b, uint8_t v, struct error *err);
enum status byte_buffer_u32(struct byte_buffer *b, uint32_t v, struct error *err);
enum status byte_buffer_u64(struct byte_buffer *b, uint64_t v, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
