/*
 * caption_internal: letters beyond ASCII.
 */
#ifndef AUGMENT_CAPTION_INTERNAL_H
#define AUGMENT_CAPTION_INTERNAL_H

#include <stdint.h>

/* The lower-case form of a code point, or itself. U+0130, which becomes two, is the caller's. */
uint32_t caption_lower(uint32_t code_point);

#endif
