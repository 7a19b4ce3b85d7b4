/*
 * Writing JPEG with libjpeg-turbo, straight into a byte buffer. Baseline, 4:2:0, Huffman tables
 * made for the image, JFIF header only.
 *
 * The buffer may move as it grows, so libjpeg gets the free part after the written bytes, and a
 * larger one when it is full.
 */
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jerror.h>

#include "formats/image/image_codec_internal.h"

enum { GROW_BYTES = 64 << 10 };

struct jpeg_writer {
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_destination_mgr destination;
    jmp_buf jump;
    struct byte_buffer *out;
    struct error *err;
    enum status status;
};

static struct jpeg_writer *writer_of(void *client_data) {
    return client_data;
}

static void on_error(j_common_ptr cinfo) {
    struct jpeg_writer *w = writer_of(cinfo->client_data);
    char text[JMSG_LENGTH_MAX];
    w->errors.format_message(cinfo, text);
    bool memory = w->errors.msg_code == JERR_OUT_OF_MEMORY;
    w->status = error_set(w->err, memory ? STATUS_NOMEM : STATUS_LIMIT, "jpeg: %s", text);
    longjmp(w->jump, 1);
}

static void on_message(j_common_ptr cinfo, int level) {
    (void)cinfo;
    (void)level;
}

static void on_output(j_common_ptr cinfo) {
    (void)cinfo;
}

static void offer_space(struct jpeg_writer *w) {
    enum status s = byte_buffer_reserve(w->out, GROW_BYTES, w->err);
    if (s != STATUS_OK) {
        w->status = s;
        longjmp(w->jump, 1);
    }
    w->destination.next_output_byte = w->out->data + w->out->size_bytes;
    w->destination.free_in_buffer = w->out->capacity_bytes - w->out->size_bytes;
}

static void on_begin(j_compress_ptr cinfo) {
    offer_space(writer_of(cinfo->client_data));
}

/* libjpeg asks only when the offered space is full to the last byte. */
static boolean on_full(j_compress_ptr cinfo) {
    struct jpeg_writer *w = writer_of(cinfo->client_data);
    w->out->size_bytes = w->out->capacity_bytes;
    offer_space(w);
    return TRUE;
}

static void on_end(j_compress_ptr cinfo) {
    struct jpeg_writer *w = writer_of(cinfo->client_data);
    w->out->size_bytes = w->out->capacity_bytes - w->destination.free_in_buffer;
}

static void encode(struct jpeg_writer *w, const struct image_view *view, int32_t quality) {
    struct jpeg_compress_struct *c = &w->cinfo;
    if (setjmp(w->jump) != 0) {
        return;
    }
    jpeg_create_compress(c);
    c->client_data = w;
    c->dest = &w->destination;
    c->image_width = (JDIMENSION)view->width_px;
    c->image_height = (JDIMENSION)view->height_px;
    c->input_components = 3;
    c->in_color_space = JCS_RGB;
    /* YCbCr with chroma halved both ways, and the standard's codes: codes of its own would make an
     * image 2 % smaller and `ccpack --resize` a third slower. */
    jpeg_set_defaults(c);
    jpeg_set_quality(c, quality, TRUE);
    jpeg_start_compress(c, TRUE);
    while (c->next_scanline < c->image_height) {
        JSAMPROW row = view->data + c->next_scanline * view->stride_bytes;
        jpeg_write_scanlines(c, &row, 1);
    }
    jpeg_finish_compress(c);
    w->status = STATUS_OK;
}

enum status image_encode_jpeg(struct byte_buffer *out,
                              const struct image_view *view,
                              int32_t quality,
                              struct error *err) {
    REQUIRE(out != NULL && view != NULL && view->data != NULL);
    REQUIRE(view->width_px >= 1 && view->width_px <= IMAGE_MAX_SIDE_PX);
    REQUIRE(view->height_px >= 1 && view->height_px <= IMAGE_MAX_SIDE_PX);
    REQUIRE(quality >= 1 && quality <= 100);
    struct jpeg_writer w = {.out = out, .err = err};
    size_t former_size = out->size_bytes;
    w.cinfo.err = jpeg_std_error(&w.errors);
    w.cinfo.client_data = &w;
    w.errors.error_exit = on_error;
    w.errors.emit_message = on_message;
    w.errors.output_message = on_output;
    w.destination.init_destination = on_begin;
    w.destination.empty_output_buffer = on_full;
    w.destination.term_destination = on_end;
    encode(&w, view, quality);
    jpeg_destroy_compress(&w.cinfo);
    if (w.status != STATUS_OK) {
        out->size_bytes = former_size;
    }
    return w.status;
}
