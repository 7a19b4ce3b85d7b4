/*
 * utf8: is a text UTF-8, and where does it stop being so.
 *
 * Threading : pure functions.
 * Untrusted : the text. Overlong forms, surrogates and code points above U+10FFFF are not UTF-8.
 */
#ifndef FORMATS_BASE_UTF8_H
#define FORMATS_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the well-formed character at the front of `text`: 1 to 4, or 0 when there is none. */
size_t utf8_character(const char *text, size_t size_bytes);

/* Bytes of the longest well-formed prefix: size_bytes when all of it is UTF-8. */
size_t utf8_valid_prefix(const char *text, size_t size_bytes);

#ifdef __cplusplus
}
#endif

#endif
