/*
 * Reading PNG with libpng: rows are expanded to RGB or RGBA by libpng, laid over white here, and
 * only the wanted rows and columns are kept; rows below them are not read. Interlaced images
 * need all their rows at once. Metadata is not parsed at all, so damage in it cannot fail an
 * image.
 */
#include <png.h>
#include <setjmp.h>
#include <string.h>

#include "formats/image/image_codec_internal.h"

enum { PNG_MAX_CHUNK_BYTES = 8 << 20 };

struct png_state {
    jmp_buf jump;
    png_structp png;
    png_infop info;
    const uint8_t *data;
    size_t left_bytes;
    struct error *err;
    enum status status;
};

static void on_error(png_structp png, png_const_charp message) {
    struct png_state *st = png_get_error_ptr(png);
    st->status = error_set(st->err, STATUS_CORRUPT, "png: %s", message);
    longjmp(st->jump, 1);
}

static void on_warning(png_structp png, png_const_charp message) {
    (void)png;
    (void)message;
}

static void on_read(png_structp png, png_bytep out, size_t size_bytes) {
    struct png_state *st = png_get_io_ptr(png);
    if (size_bytes > st->left_bytes) {
        png_error(png, "data ends early");
    }
    memcpy(out, st->data, size_bytes);
    st->data += size_bytes;
    st->left_bytes -= size_bytes;
}

/* Leaves through st->status at the first failure that is ours, not libpng's. */
static void check(struct png_state *st, enum status s) {
    if (s != STATUS_OK) {
        st->status = s;
        longjmp(st->jump, 1);
    }
}

/* Skips every chunk that does not make pixels without reading it. */
static void ignore_metadata(png_structp png) {
    static const png_byte names[] = "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0"
                                    "sBIT\0sCAL\0sPLT\0sRGB\0sTER\0tEXt\0tIME\0zTXt";
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, names, (int)(sizeof(names) / 5));
    png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_WARN_DISCARD);
}

static void read_rows(struct png_state *st,
                      struct pixel_buffer *kept,
                      struct decode_job *job,
                      const struct image_rect *region,
                      int32_t height_px) {
    size_t row_bytes = png_get_rowbytes(st->png, st->info);
    int channels = png_get_channels(st->png, st->info);
    bool interlaced = png_get_interlace_type(st->png, st->info) != PNG_INTERLACE_NONE;
    size_t rows = interlaced ? (size_t)height_px : 1;
    check(st, pixel_buffer_reserve(kept, rows * row_bytes, st->err));
    int passes = png_set_interlace_handling(st->png);
    for (int pass = 1; pass < passes; pass++) {
        for (size_t y = 0; y < rows; y++) {
            png_read_row(st->png, kept->data + y * row_bytes, NULL);
        }
    }
    for (int32_t y = 0; y < region->y + region->height; y++) {
        uint8_t *row = kept->data + (interlaced ? (size_t)y * row_bytes : 0);
        png_read_row(st->png, row, NULL);
        if (y >= region->y) {
            image_row_opaque(job, image_row(&job->view, (size_t)(y - region->y)),
                             row + (size_t)region->x * (size_t)channels, region->width, channels);
        }
    }
}

static void read_png(struct png_state *st, struct pixel_buffer *kept, struct decode_job *job) {
    if (setjmp(st->jump) != 0) {
        return;
    }
    png_set_read_fn(st->png, st, on_read);
    png_set_user_limits(st->png, IMAGE_MAX_SIDE_PX, IMAGE_MAX_SIDE_PX);
    png_set_chunk_malloc_max(st->png, PNG_MAX_CHUNK_BYTES);
    ignore_metadata(st->png);
    png_read_info(st->png, st->info);
    uint32_t width = png_get_image_width(st->png, st->info);
    uint32_t height = png_get_image_height(st->png, st->info);
    check(st, image_check_size(width, height, job->limits, st->err));

    png_set_expand(st->png);
    png_set_scale_16(st->png);
    png_set_gray_to_rgb(st->png);
    png_set_interlace_handling(st->png);
    png_read_update_info(st->png, st->info);

    bool interlaced = png_get_interlace_type(st->png, st->info) != PNG_INTERLACE_NONE;
    job->codec_bytes = png_codec_bytes(width, height, interlaced);
    struct image_rect region;
    check(st, decode_job_region(job, &region, (int32_t)width, (int32_t)height, st->err));
    check(st, decode_job_alloc(job, region.width, region.height, st->err));
    job->box = (struct image_box){0, 0, region.width, region.height};
    read_rows(st, kept, job, &region, (int32_t)height);
    st->status = STATUS_OK;
}

enum status
png_reader_decode(struct pixel_buffer *kept, struct decode_job *job, struct error *err) {
    struct png_state st = {
        .data = job->data, .left_bytes = job->size_bytes, .err = err, .status = STATUS_NOMEM};
    st.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &st, on_error, on_warning);
    st.info = st.png != NULL ? png_create_info_struct(st.png) : NULL;
    if (st.info == NULL) {
        error_set(err, STATUS_NOMEM, "no memory for libpng");
    } else {
        read_png(&st, kept, job);
    }
    png_destroy_read_struct(&st.png, &st.info, NULL);
    return st.status;
}
