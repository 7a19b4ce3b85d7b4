/*
 * Reading GIF with giflib: records one by one, up to the end of the first image; its rows go
 * straight to where they belong, so interlaced images need no room of their own.
 *
 *     "GIF89a" | screen: u16 width, height, u8 flags, 2 bytes | colours | records ...
 *     record   '!' extension: u8 kind, sub-blocks | ',' image: u16 left, top, width, height,
 *              u8 flags, colours, LZW in sub-blocks | ';' end
 *
 * The canvas is the logical screen, and larger where the first image reaches beyond it (as
 * browsers and Pillow do); what the image does not cover or leaves transparent is white. The
 * background colour is not used: hardly any viewer draws it.
 */
#include <gif_lib.h>
#include <string.h>

#include "formats/image/image_codec_internal.h"

enum { GIF_HEAD_BYTES = 13, GIF_IMAGE_BYTES = 9, NO_COLOUR = -1 };

/* ------------------------------------------------------------------------------------- probe */

static int32_t le16(const uint8_t *p) {
    return p[0] | p[1] << 8;
}

/* Bytes of the colour table that a flags byte announces. */
static size_t colours_bytes(uint8_t flags) {
    return (flags & 0x80) != 0 ? (size_t)3 << ((flags & 7) + 1) : 0;
}

static int32_t canvas_side(int32_t screen_px, int32_t offset_px, int32_t image_px) {
    int32_t needed_px = offset_px + image_px;
    return needed_px > screen_px ? needed_px : screen_px;
}

enum status
gif_probe(struct image_info *info, const uint8_t *data, size_t size_bytes, struct error *err) {
    size_t at = GIF_HEAD_BYTES;
    FAIL_IF(size_bytes < at, err, STATUS_CORRUPT, "gif: ends within its header");
    at += colours_bytes(data[10]);
    while (at < size_bytes && data[at] == '!') {
        at += 2;
        while (at < size_bytes && data[at] != 0) {
            at += 1 + (size_t)data[at];
        }
        at++;
    }
    FAIL_IF(at >= size_bytes || data[at] != ',' || size_bytes - at - 1 < GIF_IMAGE_BYTES, err,
            STATUS_CORRUPT, "gif: no image in %zu bytes", size_bytes);
    const uint8_t *p = data + at + 1;
    FAIL_IF(le16(p + 4) == 0 || le16(p + 6) == 0, err, STATUS_CORRUPT,
            "gif: image of %d x %d pixels", (int)le16(p + 4), (int)le16(p + 6));
    info->raw_width_px = canvas_side(le16(data + 6), le16(p), le16(p + 4));
    info->raw_height_px = canvas_side(le16(data + 8), le16(p + 2), le16(p + 6));
    info->components = 1;
    info->progressive = (p[8] & 0x40) != 0;
    info->codec_bytes = gif_codec_bytes((uint32_t)info->raw_width_px);
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------ decode */

struct gif_state {
    GifFileType *file;
    const uint8_t *data;
    size_t left_bytes;
    struct decode_job *job;
    struct error *err;
    int transparent;         /* colour number, or NO_COLOUR */
    struct image_rect frame; /* of the first image, on the canvas */
    struct image_rect region;
};

static int on_read(GifFileType *file, GifByteType *out, int wanted) {
    struct gif_state *st = file->UserData;
    size_t n = (size_t)wanted;
    n = n < st->left_bytes ? n : st->left_bytes;
    if (n > 0) {
        memcpy(out, st->data, n);
        st->data += n;
        st->left_bytes -= n;
    }
    return (int)n;
}

static enum status gif_failed(struct gif_state *st, int code) {
    FAIL_IF(code == D_GIF_ERR_NOT_ENOUGH_MEM, st->err, STATUS_NOMEM, "no memory for giflib");
    FAIL_IF(st->left_bytes == 0, st->err, STATUS_CORRUPT, "gif: data ends early");
    const char *text = GifErrorString(code);
    return error_set(st->err, STATUS_CORRUPT, "gif: %s", text != NULL ? text : "not a valid image");
}

/* Skips an extension; a graphics control extension names the transparent colour. */
static enum status read_extension(struct gif_state *st) {
    int kind = 0;
    GifByteType *block = NULL; /* its size, then its bytes */
    int ok = DGifGetExtension(st->file, &kind, &block);
    while (ok == GIF_OK && block != NULL) {
        GraphicsControlBlock control;
        if (kind == GRAPHICS_EXT_FUNC_CODE &&
            DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK) {
            st->transparent = control.TransparentColor;
        }
        ok = DGifGetExtensionNext(st->file, &block);
    }
    return ok == GIF_OK ? STATUS_OK : gif_failed(st, st->file->Error);
}

/* Up to the first image's data. */
static enum status find_image(struct gif_state *st) {
    for (;;) {
        GifRecordType type;
        RETURN_IF(DGifGetRecordType(st->file, &type) != GIF_OK, gif_failed(st, st->file->Error));
        if (type == EXTENSION_RECORD_TYPE) {
            TRY(read_extension(st));
        } else if (type == IMAGE_DESC_RECORD_TYPE) {
            break;
        } else {
            return error_set(st->err, STATUS_CORRUPT, "gif: no image in it");
        }
    }
    RETURN_IF(DGifGetImageDesc(st->file) != GIF_OK, gif_failed(st, st->file->Error));
    const GifImageDesc *d = &st->file->Image;
    st->frame = (struct image_rect){d->Left, d->Top, d->Width, d->Height};
    FAIL_IF(d->Width <= 0 || d->Height <= 0, st->err, STATUS_CORRUPT,
            "gif: image of %d x %d pixels", d->Width, d->Height);
    return STATUS_OK;
}

/* One row of the image as colours, where the region has it. */
static enum status paint_row(struct gif_state *st, int32_t frame_y, const uint8_t *numbers) {
    const ColorMapObject *map =
        st->file->Image.ColorMap != NULL ? st->file->Image.ColorMap : st->file->SColorMap;
    int32_t y = st->frame.y + frame_y - st->region.y;
    int32_t begin = st->frame.x > st->region.x ? st->frame.x : st->region.x;
    int32_t frame_end = st->frame.x + st->frame.width;
    int32_t region_end = st->region.x + st->region.width;
    int32_t end = frame_end < region_end ? frame_end : region_end;
    uint8_t *row = image_row(&st->job->view, (size_t)y);
    for (int32_t x = begin; x < end; x++) {
        int number = numbers[x - st->frame.x];
        if (number == st->transparent) {
            continue; /* white already */
        }
        FAIL_IF(number >= map->ColorCount, st->err, STATUS_CORRUPT,
                "gif: colour %d of %d in row %d", number, map->ColorCount, (int)frame_y);
        const GifColorType *c = &map->Colors[number];
        uint8_t *out = row + (size_t)(x - st->region.x) * 3;
        out[0] = c->Red;
        out[1] = c->Green;
        out[2] = c->Blue;
    }
    return STATUS_OK;
}

static enum status read_rows(struct gif_state *st, struct pixel_buffer *numbers) {
    static const struct {
        int32_t first, step;
    } passes[5] = {{0, 1}, {0, 8}, {4, 8}, {2, 4}, {1, 2}};
    bool interlaced = st->file->Image.Interlace;
    int32_t top = st->region.y - st->frame.y;
    int32_t bottom = top + st->region.height;
    TRY(pixel_buffer_reserve(numbers, (size_t)st->frame.width, st->err));
    for (int pass = interlaced ? 1 : 0; pass < (interlaced ? 5 : 1); pass++) {
        for (int32_t y = passes[pass].first; y < st->frame.height; y += passes[pass].step) {
            if (!interlaced && y >= bottom) {
                return STATUS_OK; /* the rest is not wanted */
            }
            RETURN_IF(DGifGetLine(st->file, numbers->data, st->frame.width) != GIF_OK,
                      gif_failed(st, st->file->Error));
            if (y >= top && y < bottom) {
                TRY(paint_row(st, y, numbers->data));
            }
        }
    }
    return STATUS_OK;
}

static enum status read_gif(struct gif_state *st, struct pixel_buffer *numbers) {
    TRY(find_image(st));
    FAIL_IF(st->file->Image.ColorMap == NULL && st->file->SColorMap == NULL, st->err,
            STATUS_CORRUPT, "gif: no colours");
    struct decode_job *job = st->job;
    int32_t width_px = canvas_side(st->file->SWidth, st->frame.x, st->frame.width);
    int32_t height_px = canvas_side(st->file->SHeight, st->frame.y, st->frame.height);
    TRY(image_check_size(width_px, height_px, job->limits, st->err));
    job->codec_bytes = gif_codec_bytes((uint32_t)width_px);
    TRY(decode_job_region(job, &st->region, width_px, height_px, st->err));
    TRY(decode_job_alloc(job, st->region.width, st->region.height, st->err));
    job->box = (struct image_box){0, 0, st->region.width, st->region.height};
    for (int32_t y = 0; y < st->region.height; y++) {
        memset(image_row(&job->view, (size_t)y), 255, (size_t)st->region.width * 3);
    }
    return read_rows(st, numbers);
}

enum status
gif_reader_decode(struct pixel_buffer *rows, struct decode_job *job, struct error *err) {
    struct gif_state st = {.data = job->data,
                           .left_bytes = job->size_bytes,
                           .job = job,
                           .err = err,
                           .transparent = NO_COLOUR};
    int code = 0;
    st.file = DGifOpen(&st, on_read, &code);
    RETURN_IF(st.file == NULL, gif_failed(&st, code));
    enum status s = read_gif(&st, rows);
    DGifCloseFile(st.file, NULL);
    return s;
}
