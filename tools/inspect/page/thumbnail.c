#include "tools/inspect/page/thumbnail.h"

#include <stdlib.h>
#include <string.h>

#include "augment/resize.h"

enum { QUALITY = 80 };

static enum status
base64_append(struct byte_buffer *out, const void *data, size_t size_bytes, struct error *err) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *in = data;
    for (size_t i = 0; i < size_bytes; i += 3) {
        const size_t left = size_bytes - i;
        const uint32_t group = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
                               (left > 2 ? (uint32_t)in[i + 2] : 0);
        const char four[4] = {digits[group >> 18], digits[group >> 12 & 63],
                              left > 1 ? digits[group >> 6 & 63] : '=',
                              left > 2 ? digits[group & 63] : '='};
        TRY(byte_buffer_append(out, four, sizeof four, err));
    }
    return STATUS_OK;
}

static enum status make_jpeg(struct byte_buffer *jpeg,
                             struct image_decoder *decoder,
                             int32_t most_px,
                             const void *data,
                             size_t size_bytes,
                             struct error *err) {
    struct image_info info;
    struct image_view view;
    struct image_box box;
    TRY(image_probe(&info, data, size_bytes, NULL, err));
    const int32_t longer = info.width_px > info.height_px ? info.width_px : info.height_px;
    const int32_t most = longer < most_px ? longer : most_px;
    const int32_t width = (int32_t)((int64_t)info.width_px * most / longer);
    const int32_t height = (int32_t)((int64_t)info.height_px * most / longer);
    const struct image_decode_options how = {.min_width_px = width > 0 ? width : 1,
                                             .min_height_px = height > 0 ? height : 1};
    TRY(image_decode(decoder, &view, &box, data, size_bytes, &how, err));
    struct image_view out = {.width_px = how.min_width_px,
                             .height_px = how.min_height_px,
                             .stride_bytes = (size_t)how.min_width_px * 3};
    out.data = malloc(out.stride_bytes * (size_t)out.height_px);
    TRY_MEMORY(out.data, err, "out of memory for an image");
    struct resize_workspace workspace;
    resize_workspace_init(&workspace);
    enum status s = resize_image(&out, &view, &box, NULL, RESIZE_BICUBIC, false, &workspace, err);
    THEN(s, image_encode_jpeg(jpeg, &out, QUALITY, err));
    resize_workspace_fini(&workspace);
    free(out.data);
    return s;
}

void thumbnail_write(struct json_writer *w,
                     struct image_decoder *decoder,
                     int32_t most_px,
                     const struct sample_facts *f,
                     const struct sample_content *content) {
    static const char type[] = "data:image/jpeg;base64,";
    struct byte_buffer jpeg;
    struct byte_buffer uri;
    struct error why = {0};
    byte_buffer_init(&jpeg, 0);
    byte_buffer_init(&uri, 0);
    json_open_object(w, NULL);
    json_u64(w, "id", f->id);
    json_open_array(w, "captions");
    for (uint32_t k = 0; k < f->caption_count; k++) {
        json_string_n(w, NULL, content->captions[k].data, content->captions[k].size_bytes);
    }
    json_close_array(w);
    enum status s = make_jpeg(&jpeg, decoder, most_px, content->image, f->image_bytes, &why);
    THEN(s, byte_buffer_append(&uri, type, strlen(type), &why));
    THEN(s, base64_append(&uri, jpeg.data, jpeg.size_bytes, &why));
    if (s == STATUS_OK) {
        json_string_n(w, "thumbnail", (const char *)uri.data, uri.size_bytes);
    } else {
        json_string(w, "missing", why.text);
    }
    json_close_object(w);
    byte_buffer_fini(&jpeg);
    byte_buffer_fini(&uri);
}
