/*
 * image_codec_internal: what the files of the image codec share.
 *
 *     image_codec.c             limits, dispatch, turning by orientation
 *     image_codec_memory.c      what decoding takes
 *     image_codec_probe.c       headers of JPEG and PNG, EXIF
 *     image_codec_jpeg.c        libjpeg-turbo, reading
 *     image_codec_jpeg_scan.c   codes of a JPEG, walked without decoding
 *     image_codec_encode.c      libjpeg-turbo, writing
 *     image_codec_png.c         libpng, reading
 *     image_codec_encode_png.c  libpng, writing
 *     image_codec_webp.c        libwebp, and headers of WebP
 *     image_codec_vp8l.c        what a lossless WebP makes libwebp allocate
 *     image_codec_gif.c         giflib, and headers of GIF
 */
#ifndef FORMATS_IMAGE_IMAGE_CODEC_INTERNAL_H
#define FORMATS_IMAGE_IMAGE_CODEC_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/image.h"
#include "formats/base/status.h"
#include "formats/image/image_codec.h"

enum { PIXEL_BUFFER_SPARE_BYTES = 1 << 20 }; /* at most so much more than asked for */

/* Bytes that only grow. Content is lost when they do. */
struct pixel_buffer {
    uint8_t *data;
    size_t capacity_bytes;
};

enum status pixel_buffer_reserve(struct pixel_buffer *b, size_t size_bytes, struct error *err);
void pixel_buffer_fini(struct pixel_buffer *b);

/* One decode, as the readers of the single formats see it: pixels as they are stored. */
struct decode_job {
    const uint8_t *data;
    size_t size_bytes;
    const struct image_limits *limits;
    const struct image_decode_options *opt;
    int32_t orientation;
    uint64_t codec_bytes; /* set by the reader before decode_job_alloc */
    /* out */
    struct pixel_buffer *pixels; /* where to put them */
    struct image_view view;
    struct image_box box;
    unsigned ignored; /* of image_decoder_ignored */
};

/* UNSUPPORTED, with a message. */
enum status image_format_unknown(struct error *err);

/* Whether an EXIF orientation swaps the axes, after it has mirrored them or not. */
bool orientation_swaps(int32_t orientation);

/* CORRUPT for empty images, LIMIT beyond the limits. */
enum status image_check_size(int64_t width_px,
                             int64_t height_px,
                             const struct image_limits *limits,
                             struct error *err);

/* The wanted region, in pixels as stored, for a stored size that has been checked. */
enum status decode_job_region(const struct decode_job *job,
                              struct image_rect *raw,
                              int32_t raw_width_px,
                              int32_t raw_height_px,
                              struct error *err);

/* Makes job->view: rows of 3 * width bytes in job->pixels; for check_only one row, which stands for
 * all: stride 0. LIMIT where that, the turned copy and job->codec_bytes are too much. */
enum status
decode_job_alloc(struct decode_job *job, int32_t width_px, int32_t height_px, struct error *err);

/* Largest of 8, 4, 2, 1 by which a region, as stored, can be divided and stay as large as it will
 * be shown. */
unsigned decode_reduction(const struct decode_job *job, const struct image_rect *raw);

/* What libjpeg takes besides the output; coefficients are kept where several scans bring them. */
struct jpeg_component_shape {
    uint32_t h, v; /* sampling factors */
};
uint64_t jpeg_codec_bytes(uint32_t width_px,
                          uint32_t height_px,
                          const struct jpeg_component_shape *components,
                          size_t component_count,
                          bool several_scans);

/* What the other libraries take, and our readers of their formats. */
uint64_t png_codec_bytes(uint32_t width_px, uint32_t height_px, bool interlaced);
uint64_t webp_codec_bytes(uint32_t width_px,
                          uint32_t height_px,
                          bool alpha,
                          bool lossless,
                          uint64_t table_bytes);
uint64_t gif_codec_bytes(uint32_t width_px);

/* The size in libwebp of the code tables of a lossless stream (the body of a VP8L after its size,
 * or of a coded ALPH). False if the stream is damaged before that is known. */
bool vp8l_table_bytes(uint64_t *out,
                      const uint8_t *stream,
                      size_t size_bytes,
                      uint32_t width_px,
                      uint32_t height_px);

/* RGB from RGB (3 channels) or from RGBA (4) laid over white; as_stored without its transparency.
 */
void image_row_opaque(struct decode_job *job,
                      uint8_t *out,
                      const uint8_t *in,
                      int32_t width_px,
                      int channels);

/* Orientation from a TIFF block, or 0. Damage means "not said": EXIF never fails an image. */
int32_t exif_orientation(const uint8_t *tiff, size_t size_bytes);

/* The same of an image; 1 where it has none. */
int32_t image_orientation(const uint8_t *data, size_t size_bytes);

/* Fill what they know of *info, whose format is set: OK or CORRUPT. */
enum status
webp_probe(struct image_info *info, const uint8_t *data, size_t size_bytes, struct error *err);
enum status
gif_probe(struct image_info *info, const uint8_t *data, size_t size_bytes, struct error *err);

struct jpeg_reader; /* opaque */

enum status jpeg_reader_create(struct jpeg_reader **out, struct error *err);
void jpeg_reader_destroy(struct jpeg_reader *r); /* accepts NULL */
enum status jpeg_reader_decode(struct jpeg_reader *r, struct decode_job *job, struct error *err);

/* `rows` is theirs to use: rows that are not yet what job->view holds. */
enum status png_reader_decode(struct pixel_buffer *rows, struct decode_job *job, struct error *err);
enum status
webp_reader_decode(struct pixel_buffer *rows, struct decode_job *job, struct error *err);
enum status gif_reader_decode(struct pixel_buffer *rows, struct decode_job *job, struct error *err);

#endif
