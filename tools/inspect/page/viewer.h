/*
 * viewer: viewer.js and viewer.css, embedded by ccs_embed. Not terminated.
 */
#ifndef TOOLS_INSPECT_PAGE_VIEWER_H
#define TOOLS_INSPECT_PAGE_VIEWER_H

#include <stddef.h>

extern const unsigned char viewer_js[], viewer_css[];
extern const size_t viewer_js_bytes, viewer_css_bytes;

#endif
