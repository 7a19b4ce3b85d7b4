/*
 * The common part of the image codecs: limits, the choice of a reader by content, and EXIF
 * orientation. The readers deliver pixels in stored orientation, with the requested region mapped
 * to it; here only that region is turned upright, in one pass.
 *
 *     wanted region --(inverse turn)--> stored region --reader--> stored pixels + box
 *     view + box    <----------------------(turn)----------------------'
 */
#include "formats/image/image_codec.h"

#include <stdlib.h>
#include <string.h>

#include "formats/image/image_codec_internal.h"

enum { TURN_TILE_PX = 16 };

struct image_decoder {
    struct image_limits limits;
    struct jpeg_reader *jpeg;
    struct pixel_buffer rows;   /* of the readers of other formats */
    struct pixel_buffer pixels; /* as stored */
    struct pixel_buffer turned; /* upright, if that differs */
    unsigned ignored;
};

static const struct {
    const char *name, *extension;
} formats[] = {
    [IMAGE_FORMAT_UNKNOWN] = {"unknown", "bin"}, [IMAGE_FORMAT_JPEG] = {"jpeg", "jpg"},
    [IMAGE_FORMAT_PNG] = {"png", "png"},         [IMAGE_FORMAT_WEBP] = {"webp", "webp"},
    [IMAGE_FORMAT_GIF] = {"gif", "gif"},
};

/* Any number is accepted. */
static size_t known_format(enum image_format f) {
    return (size_t)f < sizeof(formats) / sizeof(formats[0]) ? (size_t)f : IMAGE_FORMAT_UNKNOWN;
}

const char *image_format_name(enum image_format f) {
    return formats[known_format(f)].name;
}

const char *image_format_extension(enum image_format f) {
    return formats[known_format(f)].extension;
}

enum status image_format_unknown(struct error *err) {
    return error_set(err, STATUS_UNSUPPORTED,
                     "the first bytes are not those of a JPEG, PNG, WebP or GIF image");
}

/* -------------------------------------------------------------------------- buffers, limits */

enum status pixel_buffer_reserve(struct pixel_buffer *b, size_t size_bytes, struct error *err) {
    if (size_bytes <= b->capacity_bytes) {
        return STATUS_OK;
    }
    /* Some more than asked: a row of growing images does not reallocate at each one. */
    size_t spare = size_bytes / 3;
    size_t capacity =
        size_bytes + (spare < PIXEL_BUFFER_SPARE_BYTES ? spare : PIXEL_BUFFER_SPARE_BYTES);
    uint8_t *data = malloc(capacity);
    TRY_MEMORY(data, err, "no memory for %zu bytes of pixels", capacity);
    free(b->data);
    b->data = data;
    b->capacity_bytes = capacity;
    return STATUS_OK;
}

void pixel_buffer_fini(struct pixel_buffer *b) {
    free(b->data);
    *b = (struct pixel_buffer){0};
}

static void pixel_buffer_trim(struct pixel_buffer *b, size_t keep_bytes) {
    if (b->capacity_bytes > keep_bytes) {
        pixel_buffer_fini(b);
    }
}

void image_limits_default(struct image_limits *limits) {
    *limits = (struct image_limits){
        .max_side_px = IMAGE_MAX_SIDE_PX,
        .max_pixels = INT64_C(128) << 20,
        .max_memory_bytes = (size_t)512 << 20,
    };
}

enum status image_check_size(int64_t width_px,
                             int64_t height_px,
                             const struct image_limits *limits,
                             struct error *err) {
    FAIL_IF(width_px <= 0 || height_px <= 0, err, STATUS_CORRUPT, "image of %lld x %lld pixels",
            (long long)width_px, (long long)height_px);
    FAIL_IF(width_px > limits->max_side_px || height_px > limits->max_side_px ||
                width_px * height_px > limits->max_pixels,
            err, STATUS_LIMIT, "image of %lld x %lld pixels; at most %d a side and %lld in all",
            (long long)width_px, (long long)height_px, (int)limits->max_side_px,
            (long long)limits->max_pixels);
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------ orientation */

bool orientation_swaps(int32_t orientation) {
    return orientation >= 5;
}

static bool orientation_mirrors_x(int32_t orientation) {
    return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

static bool orientation_mirrors_y(int32_t orientation) {
    return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}

enum status decode_job_region(const struct decode_job *job,
                              struct image_rect *raw,
                              int32_t raw_width_px,
                              int32_t raw_height_px,
                              struct error *err) {
    struct image_rect r = job->opt->region;
    if (r.width == 0 || job->opt->check_only) {
        *raw = (struct image_rect){0, 0, raw_width_px, raw_height_px};
        return STATUS_OK;
    }
    if (orientation_swaps(job->orientation)) {
        r = (struct image_rect){r.y, r.x, r.height, r.width};
    }
    FAIL_IF(r.width > raw_width_px - r.x || r.height > raw_height_px - r.y, err, STATUS_CORRUPT,
            "requested %d x %d pixels at %d, %d of an image of %d x %d", (int)r.width,
            (int)r.height, (int)r.x, (int)r.y, (int)raw_width_px, (int)raw_height_px);
    if (orientation_mirrors_x(job->orientation)) {
        r.x = raw_width_px - r.x - r.width;
    }
    if (orientation_mirrors_y(job->orientation)) {
        r.y = raw_height_px - r.y - r.height;
    }
    *raw = r;
    return STATUS_OK;
}

enum status
decode_job_alloc(struct decode_job *job, int32_t width_px, int32_t height_px, struct error *err) {
    bool check = job->opt->check_only;
    size_t stride = (size_t)width_px * 3;
    size_t size_bytes = check ? stride : stride * (size_t)height_px;
    bool turned = job->orientation != 1 && !check;
    uint64_t memory = size_bytes * (turned ? UINT64_C(2) : 1) + job->codec_bytes;
    FAIL_IF(memory > job->limits->max_memory_bytes, err, STATUS_LIMIT,
            "decoding needs %llu bytes of memory, the limit is %zu", (unsigned long long)memory,
            job->limits->max_memory_bytes);
    TRY(pixel_buffer_reserve(job->pixels, size_bytes, err));
    job->view = (struct image_view){.data = job->pixels->data,
                                    .width_px = width_px,
                                    .height_px = height_px,
                                    .stride_bytes = check ? 0 : stride};
    return STATUS_OK;
}

unsigned decode_reduction(const struct decode_job *job, const struct image_rect *raw) {
    if (job->opt->check_only) {
        return 8;
    }
    bool swap = orientation_swaps(job->orientation);
    int64_t min_width = swap ? job->opt->min_height_px : job->opt->min_width_px;
    int64_t min_height = swap ? job->opt->min_width_px : job->opt->min_height_px;
    if (min_width <= 0 || min_height <= 0) {
        return 1;
    }
    unsigned by = 8;
    while (by > 1 && (raw->width < min_width * by || raw->height < min_height * by)) {
        by /= 2;
    }
    return by;
}

void image_row_opaque(struct decode_job *job,
                      uint8_t *out,
                      const uint8_t *in,
                      int32_t width_px,
                      int channels) {
    const bool drop = job->opt->as_stored;
    if (channels == 3) {
        memcpy(out, in, (size_t)width_px * 3);
        return;
    }
    for (int32_t x = 0; x < width_px; x++) {
        uint32_t a = drop ? 255 : in[3];
        job->ignored |= in[3] < a ? IMAGE_IGNORED_TRANSPARENCY : 0;
        uint32_t white = 255 * (255 - a);
        for (int c = 0; c < 3; c++) {
            out[c] = (uint8_t)((in[c] * a + white + 127) / 255);
        }
        in += 4;
        out += 3;
    }
}

/* Copies a tile-sized part of the stored image to where it is looked at. A stored pixel (x, y)
 * goes to out + x * step_x + y * step_y. */
static void turn_tile(uint8_t *out,
                      ptrdiff_t step_x,
                      ptrdiff_t step_y,
                      const struct image_view *in,
                      int32_t x0,
                      int32_t y0) {
    int32_t x1 = x0 + TURN_TILE_PX < in->width_px ? x0 + TURN_TILE_PX : in->width_px;
    int32_t y1 = y0 + TURN_TILE_PX < in->height_px ? y0 + TURN_TILE_PX : in->height_px;
    for (int32_t y = y0; y < y1; y++) {
        const uint8_t *from = image_row(in, (size_t)y) + (size_t)x0 * 3;
        uint8_t *to = out + x0 * step_x + y * step_y;
        for (int32_t x = x0; x < x1; x++) {
            to[0] = from[0];
            to[1] = from[1];
            to[2] = from[2];
            from += 3;
            to += step_x;
        }
    }
}

/* Turns job->view and job->box, into `turned`. */
static enum status turn(struct decode_job *job, struct pixel_buffer *turned, struct error *err) {
    const struct image_view in = job->view;
    bool swap = orientation_swaps(job->orientation);
    bool mirror_x = orientation_mirrors_x(job->orientation);
    bool mirror_y = orientation_mirrors_y(job->orientation);
    job->pixels = turned;
    job->codec_bytes = 0; /* this much is free again */
    TRY(decode_job_alloc(job, swap ? in.height_px : in.width_px, swap ? in.width_px : in.height_px,
                         err));
    ptrdiff_t step_x = swap ? (ptrdiff_t)job->view.stride_bytes : 3;
    ptrdiff_t step_y = swap ? 3 : (ptrdiff_t)job->view.stride_bytes;
    uint8_t *origin = job->view.data;
    struct image_box b = job->box;
    if (mirror_x) {
        origin += step_x * (in.width_px - 1);
        step_x = -step_x;
        b.x = in.width_px - b.x - b.width;
    }
    if (mirror_y) {
        origin += step_y * (in.height_px - 1);
        step_y = -step_y;
        b.y = in.height_px - b.y - b.height;
    }
    for (int32_t y = 0; y < in.height_px; y += TURN_TILE_PX) {
        for (int32_t x = 0; x < in.width_px; x += TURN_TILE_PX) {
            turn_tile(origin, step_x, step_y, &in, x, y);
        }
    }
    job->box = swap ? (struct image_box){b.y, b.x, b.height, b.width} : b;
    return STATUS_OK;
}

/* ----------------------------------------------------------------------------------- public */

enum status image_decoder_create(struct image_decoder **out,
                                 const struct image_limits *limits,
                                 struct error *err) {
    REQUIRE(out != NULL);
    *out = NULL;
    REQUIRE(limits == NULL || (limits->max_side_px >= 1 && limits->max_pixels >= 1));
    REQUIRE(limits == NULL || limits->max_side_px <= IMAGE_MAX_SIDE_PX);
    struct image_decoder *d = calloc(1, sizeof(*d));
    TRY_MEMORY(d, err, "no memory for an image decoder");
    image_limits_default(&d->limits);
    d->limits = limits != NULL ? *limits : d->limits;
    enum status s = jpeg_reader_create(&d->jpeg, err);
    RETURN_CREATED(s, out, d, image_decoder_destroy);
}

void image_decoder_destroy(struct image_decoder *d) {
    if (d == NULL) {
        return;
    }
    jpeg_reader_destroy(d->jpeg);
    pixel_buffer_fini(&d->rows);
    pixel_buffer_fini(&d->pixels);
    pixel_buffer_fini(&d->turned);
    free(d);
}

/* Pixels as they are stored, by the reader of the format. */
static enum status read_image(struct image_decoder *d, struct decode_job *job, struct error *err) {
    switch (image_format_of(job->data, job->size_bytes)) {
    case IMAGE_FORMAT_JPEG:
        return jpeg_reader_decode(d->jpeg, job, err);
    case IMAGE_FORMAT_PNG:
        return png_reader_decode(&d->rows, job, err);
    case IMAGE_FORMAT_WEBP:
        return webp_reader_decode(&d->rows, job, err);
    case IMAGE_FORMAT_GIF:
        return gif_reader_decode(&d->rows, job, err);
    default:
        return image_format_unknown(err);
    }
}

unsigned image_decoder_ignored(const struct image_decoder *d) {
    return d->ignored;
}

void image_decoder_trim(struct image_decoder *d, size_t keep_bytes) {
    pixel_buffer_trim(&d->pixels, keep_bytes);
    pixel_buffer_trim(&d->turned, keep_bytes);
    pixel_buffer_trim(&d->rows, keep_bytes);
}

enum status image_decode(struct image_decoder *d,
                         struct image_view *view,
                         struct image_box *box,
                         const void *data,
                         size_t size_bytes,
                         const struct image_decode_options *opt,
                         struct error *err) {
    static const struct image_decode_options whole;
    REQUIRE(d != NULL && view != NULL && (data != NULL || size_bytes == 0));
    *view = (struct image_view){0};
    if (opt == NULL) {
        opt = &whole;
    }
    REQUIRE(opt->region.x >= 0 && opt->region.y >= 0 && opt->region.width >= 0);
    REQUIRE(opt->region.width == 0 || opt->region.height > 0);

    struct decode_job job = {.data = data,
                             .size_bytes = size_bytes,
                             .limits = &d->limits,
                             .opt = opt,
                             .orientation = image_orientation(data, size_bytes),
                             .pixels = &d->pixels};
    if (opt->as_stored && job.orientation != 1) {
        job.orientation = 1;
        job.ignored = IMAGE_IGNORED_ORIENTATION;
    }
    TRY(read_image(d, &job, err));
    d->ignored = job.ignored;
    if (opt->check_only) {
        return STATUS_OK;
    }
    if (job.orientation != 1) {
        TRY(turn(&job, &d->turned, err));
    }
    *view = job.view;
    if (box != NULL) {
        *box = job.box;
    }
    return STATUS_OK;
}
