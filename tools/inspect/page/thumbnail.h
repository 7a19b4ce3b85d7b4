/*
 * thumbnail: an image of a stranger, decoded and encoded again as a small JPEG, as text for pages.
 *
 * Threading : single-owner.
 * Untrusted : the image.
 */
#ifndef TOOLS_INSPECT_PAGE_THUMBNAIL_H
#define TOOLS_INSPECT_PAGE_THUMBNAIL_H

#include "formats/base/bytes.h"
#include "formats/image/image_codec.h"

enum status
base64_append(struct byte_buffer *out, const void *data, size_t size_bytes, struct error *err);

/* Appends a data: URI of the image with a longer side of at most `most_px`; it is not enlarged.
 * Returns OK, NOMEM, LIMIT, or why it does not decode. */
enum status thumbnail_make(struct byte_buffer *out,
                           struct image_decoder *decoder,
                           int32_t most_px,
                           const void *data,
                           size_t size_bytes,
                           struct error *err);

#endif
