/*
 * caption: the cleaning that the papers apply to captions before the tokenizer, in training and
 * evaluation.
 *
 * In this order: letters become lower case as by Python's str.lower; the characters
 * , . ' ! ? " ( ) * # : ; ~ are removed; - and / become spaces; "<person>" becomes "person"; two or
 * more consecutive white-space characters become one space; newlines at the end, then spaces at
 * both ends are removed; of the words, separated by single spaces, the first 30 are kept. Bytes
 * that are not UTF-8 are copied unchanged.
 *
 * Threading : pure.
 * Untrusted : the caption may be any bytes.
 */
#ifndef AUGMENT_CAPTION_H
#define AUGMENT_CAPTION_H

#include <stddef.h>

enum { CAPTION_MAX_WORDS = 30 };

/* Upper bound of the size of a cleaned caption; a lower-case letter can be longer than the
 * upper-case one. */
#define CAPTION_CLEAN_BOUND_BYTES(size_bytes) ((size_bytes) + (size_bytes) / 2 + 1)

/* Writes the cleaned caption and a NUL to `out`, which has CAPTION_CLEAN_BOUND_BYTES(size_bytes)
 * bytes and does not overlap `text`; returns its length without the NUL. */
size_t caption_clean(char *out, const char *text, size_t size_bytes);

#endif
