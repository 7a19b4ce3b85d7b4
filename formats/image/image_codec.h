/*
 * image_codec: decodes stored images to RGB pixels, and encodes pixels. Only its files include
 * libjpeg-turbo, libpng, libwebp and giflib.
 *
 * Every image becomes upright 8-bit RGB:
 *
 *   orientation   all eight of EXIF, in JPEG's APP1, PNG's eXIf and WebP's EXIF; damaged EXIF is
 *                 ignored
 *   gray          repeated over the three channels
 *   palette       looked up
 *   CMYK, YCCK    converted without a profile; taken as inverted, as Adobe stores them and Pillow
 *                 reads them, with Adobe's marker or without
 *   16 bits       scaled to 8, rounded
 *   transparency  blended over white, also what an animation or a GIF leaves uncovered; background
 *                 colours of files are not used
 *   progressive   read whole, like interlaced ones
 *   several       (animations, MPO, gain maps) the first one counts, on its whole canvas. A GIF's
 *                 canvas grows where its first image reaches beyond it.
 *   profiles      colour profiles and gamma are not applied
 *
 * What counts as damage (CORRUPT):
 *   JPEG  coded data that ends early, contradicts itself or is more than the image needs, also
 *         if libjpeg would continue with a warning. Not: odd bytes between the headers, damaged
 *         metadata, a missing end marker, anything after the end marker.
 *   PNG   image data that ends early, does not unpack or fails its checksum. Not: other chunks.
 *   WebP  a file shorter than its header says, or one whose parts disagree in size.
 *   GIF   codes that are wrong, or end before the image and its terminator do; a colour that is
 *         in no table. Not: what follows the first image.
 *
 * Only what is read is checked: rows below the requested region are not.
 *
 * Threading : a decoder has one owner; distinct decoders are independent. image_probe and
 *             the encoders are free of state.
 * Ownership : the decoder owns its pixels; a view is borrowed until the next call on it.
 * Untrusted : every byte of the image, and so the sizes it claims; see struct image_limits.
 * Memory    : a decoder's own buffers only grow, until image_decoder_trim, so it stops allocating
 *             once it has seen the largest images; the libraries take and free their own
 *             inside each call. image_decode_memory_bytes says beforehand how much.
 */
#ifndef FORMATS_IMAGE_IMAGE_CODEC_H
#define FORMATS_IMAGE_IMAGE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/bytes.h"
#include "formats/base/image.h"
#include "formats/base/status.h"

/* Stored in shards: never renumbered. */
enum image_format {
    IMAGE_FORMAT_UNKNOWN = 0,
    IMAGE_FORMAT_JPEG = 1,
    IMAGE_FORMAT_PNG = 2,
    IMAGE_FORMAT_WEBP = 3,
    IMAGE_FORMAT_GIF = 4,
};

const char *image_format_name(enum image_format f);      /* "jpeg"; "unknown" */
const char *image_format_extension(enum image_format f); /* "jpg" ; "bin" */

/* By the first bytes, never by a name. */
enum image_format image_format_of(const void *data, size_t size_bytes);

enum { IMAGE_MAX_SCANS = 500 }; /* of one JPEG; fewer for very large ones */

struct image_limits {
    int32_t max_side_px;     /* of width and height, [1, IMAGE_MAX_SIDE_PX]; default: the maximum */
    int64_t max_pixels;      /* width * height, at least 1; default 128 Mi */
    size_t max_memory_bytes; /* memory for decoding one image; default 512 MiB */
};

void image_limits_default(struct image_limits *limits);

struct image_info {
    enum image_format format;
    int32_t width_px, height_px;         /* upright: after the orientation */
    int32_t raw_width_px, raw_height_px; /* as stored, before the EXIF rotation */
    int32_t components;   /* 1 gray or palette, 2 gray+alpha, 3, 4 with alpha or CMYK */
    int32_t orientation;  /* EXIF, 1..8; 1 = as stored */
    bool progressive;     /* progressive JPEG, interlaced PNG or GIF */
    uint64_t codec_bytes; /* estimate: memory of the format's library, without the pixels */
};

/* Reads the headers only. `limits` NULL: the defaults. Returns OK; UNSUPPORTED with info->format
 * set (unknown, or a rare kind of JPEG) and sizes 0; CORRUPT; LIMIT. After a failure other than
 * UNSUPPORTED *info is zero. */
enum status image_probe(struct image_info *info,
                        const void *data,
                        size_t size_bytes,
                        const struct image_limits *limits,
                        struct error *err);

struct image_decoder; /* opaque */

/* `limits` NULL: the defaults. Returns OK, NOMEM or INVALID. */
enum status image_decoder_create(struct image_decoder **out,
                                 const struct image_limits *limits,
                                 struct error *err);
void image_decoder_destroy(struct image_decoder *d); /* accepts NULL */

/* All zero is the default: the whole image at full size. */
struct image_decode_options {
    /* The part to decode, in pixels of the upright image; width 0: all of it. */
    struct image_rect region;
    /* The size to which the region will be scaled. If both are given, a JPEG may be decoded at 1/2,
     * 1/4 or 1/8 as long as the region stays at least this large; 0: full size only. */
    int32_t min_width_px, min_height_px;
    /* A damaged JPEG is decoded as far as possible, with OK. */
    bool accept_partial;
    /* As Pillow's convert("RGB") reads it: the orientation is ignored, so that the region is one
     * of the stored image, and transparency of PNG and WebP is dropped, which shows the colours
     * that it hides. Not of GIF. */
    bool as_stored;
    /* Only whether the whole image decodes is of interest: finds the same damage, keeps no
     * pixels, and *view is empty. `region` and the sizes above are ignored. */
    bool check_only;
};

/* Upper estimate of the memory that image_decode takes for this image with these options: its
 * own buffers and the library's. More than max_memory_bytes is refused with LIMIT. `opt` may be
 * NULL. */
uint64_t image_decode_memory_bytes(const struct image_info *info,
                                   const struct image_decode_options *opt);

/* Frees each of the decoder's own buffers that has grown beyond `keep_bytes`; for callers that
 * meet a large image now and then. The last view becomes invalid. */
void image_decoder_trim(struct image_decoder *d, size_t keep_bytes);

/* Decodes into the decoder's own pixels. `*view` then holds the region, perhaps with a margin, and
 * `*box` is the region's rectangle in the view: integers at full size, fractions of pixels after a
 * reduction by 2, 4 or 8. `opt` and `box` may be NULL. At full size the pixels inside the box equal
 * those of a whole decode. Returns OK; CORRUPT (also for a region that is not inside the image: the
 * caller's record of its size and the file disagree); UNSUPPORTED; LIMIT; NOMEM. On failure *view
 * is empty. */
enum status image_decode(struct image_decoder *d,
                         struct image_view *view,
                         struct image_box *box,
                         const void *data,
                         size_t size_bytes,
                         const struct image_decode_options *opt,
                         struct error *err);

/* Features of the last decoded image that as_stored ignored. */
enum { IMAGE_IGNORED_ORIENTATION = 1, IMAGE_IGNORED_TRANSPARENCY = 2 };
unsigned image_decoder_ignored(const struct image_decoder *d);

enum { IMAGE_JPEG_QUALITY_DEFAULT = 90 };

/* Appends a baseline 4:2:0 JPEG with optimised Huffman tables and no metadata. Deterministic: equal
 * pixels and quality give equal bytes. Requires quality in [1, 100] and sides in [1,
 * IMAGE_MAX_SIDE_PX]. Returns OK, NOMEM or LIMIT; on failure `out` keeps its former size. */
enum status image_encode_jpeg(struct byte_buffer *out,
                              const struct image_view *view,
                              int32_t quality,
                              struct error *err);

/* Appends a PNG of 8-bit RGB that decodes to the same pixels, without metadata. The same pixels
 * give the same bytes with the same libpng and zlib. Requires sides in [1, IMAGE_MAX_SIDE_PX].
 * Returns OK, NOMEM or LIMIT; on failure `out` keeps its former size. */
enum status
image_encode_png(struct byte_buffer *out, const struct image_view *view, struct error *err);

#endif
