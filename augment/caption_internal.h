/*
 * caption_internal: properties of letters beyond ASCII.
 */
#ifndef AUGMENT_CAPTION_INTERNAL_H
#define AUGMENT_CAPTION_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/* The lower-case form of a code point, or the code point itself. The caller handles U+0130, which
 * becomes two. */
uint32_t caption_lower(uint32_t code_point);

/* The two properties that decide whether a capital sigma is the last letter of its word. Characters
 * such as accents and apostrophes are case-ignorable. Any number is accepted. */
bool caption_is_cased(uint32_t code_point);
bool caption_is_case_ignorable(uint32_t code_point);

#endif
