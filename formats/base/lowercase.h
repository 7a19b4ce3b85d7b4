/*
 * lowercase: white space, and the lower-case form of text in UTF-8, as Python's str.lower of
 * Unicode 14: a capital sigma that ends a word becomes the final one, and U+0130 becomes two
 * characters.
 *
 * Threading : pure functions.
 * Untrusted : the text. A byte that begins no character is copied.
 */
#ifndef FORMATS_BASE_LOWERCASE_H
#define FORMATS_BASE_LOWERCASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the form of the character at text[at] to `out`, which has room for 4 bytes; returns how
 * many. *character_bytes is the size of the character itself; the form has at most half more. */
size_t lowercase_character(char *out,
                           const char *text,
                           size_t size_bytes,
                           size_t at,
                           size_t *character_bytes);

/* What Python's \s matches and str.split() splits at. */
bool unicode_is_space(uint32_t c);

#endif
