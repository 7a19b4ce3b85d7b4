/*
 * caption_internal: letters beyond ASCII.
 */
#ifndef AUGMENT_CAPTION_INTERNAL_H
#define AUGMENT_CAPTION_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/* The lower-case form of a code point, or itself. U+0130, which becomes two, is the caller's. */
uint32_t caption_lower(uint32_t code_point);

/* What decides whether a capital sigma is the last letter of its word: letters with case, and
 * characters that are looked past, such as accents and apostrophes. Any number may be asked for. */
bool caption_is_cased(uint32_t code_point);
bool caption_is_case_ignorable(uint32_t code_point);

#endif
