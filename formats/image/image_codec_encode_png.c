/*
 * Writing PNG with libpng, straight into a byte buffer: 8-bit RGB, all filters tried, no metadata.
 */
#include <png.h>
#include <setjmp.h>

#include "formats/image/image_codec_internal.h"

struct png_writer {
    jmp_buf jump;
    png_structp png;
    png_infop info;
    struct byte_buffer *out;
    struct error *err;
    enum status status;
};

static void on_error(png_structp png, png_const_charp message) {
    struct png_writer *w = png_get_error_ptr(png);
    if (w->status == STATUS_OK) {
        w->status = error_set(w->err, STATUS_NOMEM, "png: %s", message);
    }
    longjmp(w->jump, 1);
}

static void on_warning(png_structp png, png_const_charp message) {
    (void)png;
    (void)message;
}

static void on_write(png_structp png, png_bytep data, size_t size_bytes) {
    struct png_writer *w = png_get_io_ptr(png);
    w->status = byte_buffer_append(w->out, data, size_bytes, w->err);
    if (w->status != STATUS_OK) {
        longjmp(w->jump, 1);
    }
}

static void on_flush(png_structp png) {
    (void)png;
}

static void encode(struct png_writer *w, const struct image_view *view) {
    if (setjmp(w->jump) != 0) {
        return;
    }
    w->png = png_create_write_struct(PNG_LIBPNG_VER_STRING, w, on_error, on_warning);
    w->info = w->png ? png_create_info_struct(w->png) : NULL;
    if (!w->info) {
        w->status = error_set(w->err, STATUS_NOMEM, "png: out of memory");
        return;
    }
    png_set_write_fn(w->png, w, on_write, on_flush);
    png_set_IHDR(w->png, w->info, (png_uint_32)view->width_px, (png_uint_32)view->height_px, 8,
                 PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(w->png, w->info);
    for (int32_t y = 0; y < view->height_px; y++) {
        png_write_row(w->png, image_row(view, (size_t)y));
    }
    png_write_end(w->png, NULL);
}

enum status
image_encode_png(struct byte_buffer *out, const struct image_view *view, struct error *err) {
    REQUIRE(out != NULL && view != NULL && view->data != NULL);
    REQUIRE(view->width_px >= 1 && view->width_px <= IMAGE_MAX_SIDE_PX);
    REQUIRE(view->height_px >= 1 && view->height_px <= IMAGE_MAX_SIDE_PX);
    struct png_writer w = {.out = out, .err = err};
    size_t former_size = out->size_bytes;
    encode(&w, view);
    png_destroy_write_struct(&w.png, &w.info);
    if (w.status != STATUS_OK) {
        out->size_bytes = former_size;
    }
    return w.status;
}
