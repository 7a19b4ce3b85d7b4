/*
 * thumbnail: an untrusted image, decoded and re-encoded as a small JPEG, as a data: URI for pages
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

/* Writes a JSON object: the sample's "id", "captions", and "thumbnail", a data: URI with a longer
 * side of at most `most_px`, never enlarged, or "missing": why there is none.
 */
void thumbnail_write(struct json_writer *w,
                     struct image_decoder *decoder,
                     int32_t most_px,
                     const struct sample_facts *f,
                     const struct sample_content *content);

#endif
