/*
 * caption: the cleaning that the papers apply to captions before the tokenizer, in training and
 * evaluation alike.
 *
 * In this order: lower case as Python's str.lower has it; the characters , . ' ! ? " ( ) * # : ; ~
 * go; - and / become spaces; "<person>" becomes "person"; two or more white-space characters in a
 * row become one space; newlines at the end, then spaces at both ends go; of the words, parted by
 * single spaces, the first 30 stay. Bytes that are not UTF-8 pass unchanged.
 *
 * Threading : pure.
 * Untrusted : the caption may be any bytes.
 */
#ifndef AUGMENT_CAPTION_H
#define AUGMENT_CAPTION_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CAPTION_MAX_WORDS = 30 };

/* Room that the cleaned form of any caption of this size fits in: lower case can be longer. */
#define CAPTION_CLEAN_BOUND_BYTES(size_bytes) ((size_bytes) + (size_bytes) / 2 + 1)

/* Writes the cleaned caption and a NUL to `out`, which has CAPTION_CLEAN_BOUND_BYTES(size_bytes)
 * bytes and does not overlap `text`; returns its length without the NUL. */
size_t caption_clean(char *out, const char *text, size_t size_bytes);

#ifdef __cplusplus
}
#endif

#endif
