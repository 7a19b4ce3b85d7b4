/*
 * utf8: checks whether text is UTF-8, and reads and writes single characters.
 *
 * Threading : pure functions.
 * Untrusted : the text. Overlong forms, surrogates and code points above U+10FFFF are not UTF-8.
 */
#ifndef FORMATS_BASE_UTF8_H
#define FORMATS_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Size of the well-formed character at the start of `text`: 1 to 4, or 0 if there is none. */
size_t utf8_character(const char *text, size_t size_bytes);

#define UTF8_NO_CHARACTER UINT32_MAX

/* The code point at the front of `text`, which is not empty, and its bytes; UTF8_NO_CHARACTER and 1
 * when there is no well-formed character. */
uint32_t utf8_decode(const char *text, size_t size_bytes, size_t *character_bytes);

/* Writes a code point (no surrogate, at most U+10FFFF) in 1 to 4 bytes; returns how many. */
size_t utf8_encode(char *out, uint32_t code_point);

/* Whether the character can control a terminal or change the direction or line breaks of a text:
 * C0, C1, line and paragraph separators, directional marks, overrides and isolates, interlinear
 * annotation. */
bool utf8_is_control(uint32_t code_point);

/* Replaces every such character, and every byte that is not UTF-8, by '?'; a tab by a space. */
void utf8_clean(char *text);

/* Bytes of the longest well-formed prefix: size_bytes when all of it is UTF-8. */
size_t utf8_valid_prefix(const char *text, size_t size_bytes);

#endif
