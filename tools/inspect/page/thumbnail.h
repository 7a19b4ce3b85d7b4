/*
 * thumbnail: an image of a stranger, decoded and encoded again as a small JPEG, as text for pages
 * and other programs.
 *
 * Threading : single-owner.
 * Untrusted : the image.
 */
#ifndef TOOLS_INSPECT_PAGE_THUMBNAIL_H
#define TOOLS_INSPECT_PAGE_THUMBNAIL_H

#include "formats/base/json_writer.h"
#include "formats/image/image_codec.h"
#include "tools/inspect/input.h"

/* Appends a data: URI of the image with a longer side of at most `most_px`; it is not enlarged.
 * Returns OK, NOMEM, LIMIT, or why it does not decode. */
enum status thumbnail_make(struct byte_buffer *out,
                           struct image_decoder *decoder,
                           int32_t most_px,
                           const void *data,
                           size_t size_bytes,
                           struct error *err);

/* An element of an open array, or an object: the sample's "id", "captions", and "thumbnail", or
 * "missing": why there is none. */
void thumbnail_write(struct json_writer *w,
                     struct image_decoder *decoder,
                     int32_t most_px,
                     const struct sample_facts *f,
                     const struct sample_content *content);

#endif
