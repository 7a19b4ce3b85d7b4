/*
 * Reading WebP with libwebp. The container is walked here, so that a probe allocates nothing and an
 * animation needs no second library: its first frame is handed to libwebp as the bare chunks.
 *
 *     "RIFF" u32 size "WEBP" | chunk: type, u32 size, body, padding to even ...
 *     still     VP8 (lossy) or VP8L (lossless); or VP8X, ALPH, VP8 ..., EXIF
 *     animated  VP8X, ANIM, ANMF (place on the canvas, then ALPH, VP8 or VP8L) ..., EXIF
 *
 * Of a region of a lossy image a margin is decoded too: chroma upsampling looks at neighbours,
 * and libwebp treats the crop as the image's edge.
 */
#include <stdlib.h>
#include <string.h>
#include <webp/decode.h>

#include "formats/image/image_codec_internal.h"

enum {
    RIFF_HEAD_BYTES = 12,
    CHUNK_HEAD_BYTES = 8,
    FRAME_HEAD_BYTES = 16, /* of an ANMF body */
    WEBP_MARGIN_PX = 2,    /* even: libwebp crops at even positions */
    VP8X_ALPHA = 0x10,
    VP8X_ANIMATION = 0x02,
    ALPH_LOSSLESS = 1, /* how the plane is coded; 0: not at all */
};

/* --------------------------------------------------------------------------------- container */

static uint32_t le16(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t le24(const uint8_t *p) {
    return le16(p) | (uint32_t)p[2] << 16;
}

static uint32_t le32(const uint8_t *p) {
    return le24(p) | (uint32_t)p[3] << 24;
}

struct chunk {
    const uint8_t *head; /* its type */
    const uint8_t *body;
    size_t body_size_bytes; /* what of it is there */
    bool whole;
};

/* The chunk at *at, also where the data ends within its body. */
static bool next_chunk(struct chunk *out, const uint8_t *data, size_t size_bytes, size_t *at) {
    if (*at > size_bytes || size_bytes - *at < CHUNK_HEAD_BYTES) {
        return false;
    }
    size_t left_bytes = size_bytes - *at - CHUNK_HEAD_BYTES;
    size_t body_bytes = le32(data + *at + 4);
    out->head = data + *at;
    out->body = out->head + CHUNK_HEAD_BYTES;
    out->whole = body_bytes <= left_bytes;
    out->body_size_bytes = out->whole ? body_bytes : left_bytes;
    *at += CHUNK_HEAD_BYTES + body_bytes + (body_bytes & 1);
    return true;
}

static bool is(const struct chunk *c, const char *type) {
    return memcmp(c->head, type, 4) == 0;
}

struct webp_layout {
    uint32_t width_px, height_px; /* of the canvas */
    bool alpha, animated, lossless;
    bool whole;           /* all of the file is there */
    const uint8_t *image; /* ALPH and VP8, or VP8L, of the first frame; NULL: not found */
    size_t image_bytes;   /* what of it is there */
    uint32_t frame_x, frame_y, frame_width, frame_height;
    const uint8_t *coded; /* the lossless stream of the image or its alpha plane; NULL: none */
    size_t coded_bytes;
    const uint8_t *exif;
    size_t exif_bytes;
};

/* Size and kind of an image from the head of its VP8 or VP8L chunk. */
static bool read_bitstream_head(struct webp_layout *w, const struct chunk *c) {
    const uint8_t *p = c->body;
    if (is(c, "VP8L")) {
        if (c->body_size_bytes < 5 || p[0] != 0x2F) {
            return false;
        }
        uint32_t bits = le32(p + 1);
        w->frame_width = 1 + (bits & 0x3FFF);
        w->frame_height = 1 + ((bits >> 14) & 0x3FFF);
        w->alpha = w->alpha || ((bits >> 28) & 1) != 0;
        w->lossless = true;
        w->coded = p + 5;
        w->coded_bytes = c->body_size_bytes - 5;
        return true;
    }
    if (c->body_size_bytes < 10 || memcmp(p + 3, "\x9d\x01\x2a", 3) != 0) {
        return false;
    }
    w->frame_width = le16(p + 6) & 0x3FFF;
    w->frame_height = le16(p + 8) & 0x3FFF;
    return true;
}

/* Finds the image in the chunks from *at on: of a file, or of one frame of an animation. */
static void find_image(struct webp_layout *w, const uint8_t *data, size_t size_bytes, size_t at) {
    struct chunk c;
    const uint8_t *begin = NULL;
    while (w->image == NULL && next_chunk(&c, data, size_bytes, &at)) {
        if (is(&c, "ALPH") && begin == NULL) {
            begin = c.head;
            w->alpha = true;
            bool coded = c.body_size_bytes > 1 && (c.body[0] & 3) == ALPH_LOSSLESS;
            w->coded = coded ? c.body + 1 : NULL;
            w->coded_bytes = coded ? c.body_size_bytes - 1 : 0;
        } else if (is(&c, "VP8 ") || is(&c, "VP8L")) {
            if (!read_bitstream_head(w, &c)) {
                return;
            }
            begin = begin != NULL && is(&c, "VP8 ") ? begin : c.head;
            w->image = begin;
            w->image_bytes = (size_t)(c.body - begin) + c.body_size_bytes;
        }
    }
}

/* The chunks after a VP8X. */
static void
read_extended(struct webp_layout *w, const uint8_t *data, size_t size_bytes, size_t at) {
    struct chunk c;
    if (!w->animated) {
        find_image(w, data, size_bytes, at);
    }
    while (next_chunk(&c, data, size_bytes, &at)) {
        if (is(&c, "EXIF") && w->exif == NULL && c.whole) {
            w->exif = c.body;
            w->exif_bytes = c.body_size_bytes;
        } else if (is(&c, "ANMF") && w->animated && w->image == NULL &&
                   c.body_size_bytes >= FRAME_HEAD_BYTES) {
            w->frame_x = 2 * le24(c.body);
            w->frame_y = 2 * le24(c.body + 3);
            find_image(w, c.body, c.body_size_bytes, FRAME_HEAD_BYTES);
            if (w->image != NULL && (w->frame_width != 1 + le24(c.body + 6) ||
                                     w->frame_height != 1 + le24(c.body + 9))) {
                w->image = NULL; /* contradicts itself */
            }
        }
    }
}

static enum status
read_layout(struct webp_layout *w, const uint8_t *data, size_t size_bytes, struct error *err) {
    *w = (struct webp_layout){0};
    uint64_t file_bytes = UINT64_C(8) + le32(data + 4);
    w->whole = file_bytes <= size_bytes;
    size_bytes = w->whole ? (size_t)file_bytes : size_bytes;
    struct chunk c;
    size_t at = RIFF_HEAD_BYTES;
    if (next_chunk(&c, data, size_bytes, &at) && is(&c, "VP8X") && c.body_size_bytes >= 10) {
        w->alpha = (c.body[0] & VP8X_ALPHA) != 0;
        w->animated = (c.body[0] & VP8X_ANIMATION) != 0;
        w->width_px = 1 + le24(c.body + 4);
        w->height_px = 1 + le24(c.body + 7);
        read_extended(w, data, size_bytes, at);
    } else {
        find_image(w, data, size_bytes, RIFF_HEAD_BYTES);
        w->width_px = w->frame_width;
        w->height_px = w->frame_height;
    }
    FAIL_IF(w->image == NULL, err, STATUS_CORRUPT, "webp: no image in %zu bytes", size_bytes);
    FAIL_IF(
        (uint64_t)w->frame_x + w->frame_width > w->width_px ||
            (uint64_t)w->frame_y + w->frame_height > w->height_px ||
            (!w->animated && (w->frame_width != w->width_px || w->frame_height != w->height_px)),
        err, STATUS_CORRUPT, "webp: an image of %u x %u at %u, %u on a canvas of %u x %u",
        (unsigned)w->frame_width, (unsigned)w->frame_height, (unsigned)w->frame_x,
        (unsigned)w->frame_y, (unsigned)w->width_px, (unsigned)w->height_px);
    return STATUS_OK;
}

static int32_t layout_orientation(const struct webp_layout *w) {
    return w->exif != NULL ? exif_orientation(w->exif, w->exif_bytes) : 0;
}

/* False where the image is damaged before the size of its tables is known. */
static bool layout_codec_bytes(const struct webp_layout *w, uint64_t *out) {
    uint64_t table_bytes = 0;
    bool known = w->coded == NULL || vp8l_table_bytes(&table_bytes, w->coded, w->coded_bytes,
                                                      w->frame_width, w->frame_height);
    *out = webp_codec_bytes(w->frame_width, w->frame_height, w->alpha, w->lossless, table_bytes);
    return known;
}

enum status
webp_probe(struct image_info *info, const uint8_t *data, size_t size_bytes, struct error *err) {
    struct webp_layout w;
    TRY(read_layout(&w, data, size_bytes, err));
    info->raw_width_px = (int32_t)w.width_px;
    info->raw_height_px = (int32_t)w.height_px;
    info->components = w.alpha ? 4 : 3;
    info->orientation = layout_orientation(&w);
    (void)layout_codec_bytes(&w, &info->codec_bytes); /* damage is for the decoder to say */
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------ decode */

/* Since 1.4 libwebp reports some damage as lack of memory. It needs at most codec_bytes: where
 * these can be had, the file is at fault. */
static enum status out_of_memory(uint64_t codec_bytes, struct error *err) {
    void *volatile as_much = codec_bytes <= SIZE_MAX ? malloc((size_t)codec_bytes) : NULL;
    bool available = as_much != NULL;
    free(as_much);
    return available ? error_set(err, STATUS_CORRUPT, "webp: damaged data")
                     : error_set(err, STATUS_NOMEM, "no memory for libwebp");
}

static enum status webp_failed(VP8StatusCode code, uint64_t codec_bytes, struct error *err) {
    switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY:
        return out_of_memory(codec_bytes, err);
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return error_set(err, STATUS_UNSUPPORTED, "webp: uses a feature that libwebp lacks");
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
        return error_set(err, STATUS_CORRUPT, "webp: data ends early");
    default:
        return error_set(err, STATUS_CORRUPT, "webp: damaged data (libwebp's code %d)", (int)code);
    }
}

static int32_t min_px(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static int32_t max_px(int32_t a, int32_t b) {
    return a > b ? a : b;
}

/* The part of the frame that a wanted part of the canvas shows; not positive where none. */
static struct image_rect frame_part(const struct webp_layout *w, const struct image_rect *r) {
    int32_t x0 = max_px(r->x - (int32_t)w->frame_x, 0);
    int32_t y0 = max_px(r->y - (int32_t)w->frame_y, 0);
    int32_t x1 = min_px(r->x + r->width - (int32_t)w->frame_x, (int32_t)w->frame_width);
    int32_t y1 = min_px(r->y + r->height - (int32_t)w->frame_y, (int32_t)w->frame_height);
    return (struct image_rect){x0, y0, x1 - x0, y1 - y0};
}

static struct image_rect with_margin(const struct image_rect *part, const struct webp_layout *w) {
    int32_t x0 = max_px((part->x & ~1) - WEBP_MARGIN_PX, 0);
    int32_t y0 = max_px((part->y & ~1) - WEBP_MARGIN_PX, 0);
    int32_t x1 = min_px(part->x + part->width + WEBP_MARGIN_PX, (int32_t)w->frame_width);
    int32_t y1 = min_px(part->y + part->height + WEBP_MARGIN_PX, (int32_t)w->frame_height);
    return (struct image_rect){x0, y0, x1 - x0, y1 - y0};
}

/* Decodes the part `crop` of the frame to `out`, which has room for it, RGB or RGBA; for a check
 * shrunk to a pixel, for which all the data is read. */
static enum status run_libwebp(uint8_t *out,
                               WebPDecoderConfig *config,
                               const struct decode_job *job,
                               const struct webp_layout *w,
                               const struct image_rect *crop,
                               struct error *err) {
    size_t channels = config->input.has_alpha ? 4 : 3;
    size_t row_bytes = (size_t)crop->width * channels;
    WebPDecoderOptions *how = &config->options;
    if (job->opt->check_only) {
        how->use_scaling = 1;
        how->scaled_width = crop->width;
        how->scaled_height = crop->height;
    } else {
        how->use_cropping = 1;
        how->crop_left = crop->x;
        how->crop_top = crop->y;
        how->crop_width = crop->width;
        how->crop_height = crop->height;
    }
    config->output.colorspace = channels == 4 ? MODE_RGBA : MODE_RGB;
    config->output.is_external_memory = 1;
    config->output.u.RGBA.rgba = out;
    config->output.u.RGBA.stride = (int)row_bytes;
    config->output.u.RGBA.size = row_bytes * (size_t)crop->height;
    VP8StatusCode code = WebPDecode(w->image, w->image_bytes, config);
    WebPFreeDecBuffer(&config->output);
    return code == VP8_STATUS_OK ? STATUS_OK : webp_failed(code, job->codec_bytes, err);
}

/* The size and kind that libwebp finds; they must agree with the walk above. */
static enum status ask_libwebp(WebPDecoderConfig *config,
                               const struct decode_job *job,
                               const struct webp_layout *w,
                               struct error *err) {
    FAIL_IF(!WebPInitDecoderConfig(config), err, STATUS_UNSUPPORTED,
            "libwebp has another version than its header");
    VP8StatusCode code = WebPGetFeatures(w->image, w->image_bytes, &config->input);
    RETURN_IF(code != VP8_STATUS_OK, webp_failed(code, job->codec_bytes, err));
    FAIL_IF(
        config->input.width != (int)w->frame_width || config->input.height != (int)w->frame_height,
        err, STATUS_CORRUPT, "webp: %d x %d pixels, but %u x %u by its header", config->input.width,
        config->input.height, (unsigned)w->frame_width, (unsigned)w->frame_height);
    return STATUS_OK;
}

static void fill_white(const struct image_view *view) {
    for (int32_t y = 0; y < view->height_px; y++) {
        memset(image_row(view, (size_t)y), 255, (size_t)view->width_px * 3);
    }
}

/* The part of the frame by way of `rows`: what is transparent or not covered is white. */
static enum status lay_over_white(struct pixel_buffer *rows,
                                  WebPDecoderConfig *config,
                                  struct decode_job *job,
                                  const struct webp_layout *w,
                                  const struct image_rect *region,
                                  const struct image_rect *part,
                                  struct error *err) {
    TRY(decode_job_alloc(job, region->width, region->height, err));
    job->box = (struct image_box){0, 0, region->width, region->height};
    fill_white(&job->view);
    if (part->width <= 0 || part->height <= 0) {
        return STATUS_OK; /* the first frame leaves it free */
    }
    struct image_rect crop = with_margin(part, w);
    int channels = config->input.has_alpha ? 4 : 3;
    size_t stride_bytes = (size_t)crop.width * (size_t)channels;
    TRY(pixel_buffer_reserve(rows, stride_bytes * (size_t)crop.height, err));
    TRY(run_libwebp(rows->data, config, job, w, &crop, err));
    int32_t to_x = (int32_t)w->frame_x + part->x - region->x;
    int32_t to_y = (int32_t)w->frame_y + part->y - region->y;
    for (int32_t y = 0; y < part->height; y++) {
        const uint8_t *from = rows->data + (size_t)(part->y - crop.y + y) * stride_bytes +
                              (size_t)(part->x - crop.x) * (size_t)channels;
        uint8_t *to = image_row(&job->view, (size_t)(to_y + y));
        image_row_opaque(job, to + (size_t)to_x * 3, from, part->width, channels);
    }
    return STATUS_OK;
}

static enum status decode_webp(struct pixel_buffer *rows,
                               struct decode_job *job,
                               const struct webp_layout *w,
                               struct error *err) {
    WebPDecoderConfig config;
    TRY(ask_libwebp(&config, job, w, err));
    struct image_rect region;
    TRY(decode_job_region(job, &region, (int32_t)w->width_px, (int32_t)w->height_px, err));
    if (job->opt->check_only) {
        static const struct image_rect pixel = {0, 0, 1, 1};
        TRY(decode_job_alloc(job, 1, 1, err));
        TRY(pixel_buffer_reserve(rows, 4, err));
        return run_libwebp(rows->data, &config, job, w, &pixel, err);
    }
    struct image_rect part = frame_part(w, &region);
    bool covered = part.width == region.width && part.height == region.height;
    if (config.input.has_alpha || !covered) {
        return lay_over_white(rows, &config, job, w, &region, &part, err);
    }
    struct image_rect crop = with_margin(&part, w);
    TRY(decode_job_alloc(job, crop.width, crop.height, err));
    job->box = (struct image_box){
        .x = part.x - crop.x, .y = part.y - crop.y, .width = region.width, .height = region.height};
    return run_libwebp(job->view.data, &config, job, w, &crop, err);
}

enum status
webp_reader_decode(struct pixel_buffer *rows, struct decode_job *job, struct error *err) {
    struct webp_layout w;
    TRY(read_layout(&w, job->data, job->size_bytes, err));
    FAIL_IF(!w.whole, err, STATUS_CORRUPT, "webp: data ends early: %zu bytes of %llu",
            job->size_bytes, (unsigned long long)le32(job->data + 4) + 8);
    TRY(image_check_size(w.width_px, w.height_px, job->limits, err));
    FAIL_IF(!layout_codec_bytes(&w, &job->codec_bytes), err, STATUS_CORRUPT,
            "webp: its codes are damaged or end early");
    return decode_webp(rows, job, &w, err);
}
