/*
 * text: one caption to one row of token ids: cleaned, encoded, filled up. What the loader's
 * decoders and struct texts do alike.
 *
 * Threading : a scratch has one owner; distinct ones are independent.
 * Ownership : rows are the caller's memory.
 * Untrusted : the text may be any bytes.
 */
#ifndef LOADER_TEXT_INTERNAL_H
#define LOADER_TEXT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

struct tokenizer;    /* formats/tokenizer.h */
struct text_scratch; /* opaque: room for the cleaned form of the longest caption */

enum status text_scratch_create(struct text_scratch **out, struct error *err); /* OK or NOMEM */
void text_scratch_destroy(struct text_scratch *s);                             /* accepts NULL */

/* Requires size_bytes <= SHARD_MAX_TEXT_BYTES and max_tokens in [2, TOKENIZER_MAX_TOKENS]. Without
 * a tokenizer the row is all zero and its length 0. Returns OK, NOMEM or CORRUPT. */
enum status text_to_row(struct text_scratch *s,
                        int32_t *out_row,
                        int32_t *out_length,
                        const struct tokenizer *tokenizer,
                        const char *text,
                        size_t size_bytes,
                        uint32_t max_tokens,
                        bool clean,
                        struct error *err);

#endif
