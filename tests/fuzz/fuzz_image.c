/*
 * Images of any bytes: an image that probe accepts and that decodes has the size that probe
 * reported, a decoded region has the pixels of the whole decode, and a check without pixels finds
 * the same damage.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/image/image_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

/* Some part of the image, chosen by the file's own end. */
static struct image_rect
pick_region(const struct image_view *whole, const uint8_t *data, size_t size_bytes) {
    uint32_t draw[4] = {0};
    for (size_t i = 0; i < size_bytes && i < 16; i++) {
        draw[i % 4] = draw[i % 4] * 31 + data[size_bytes - 1 - i];
    }
    struct image_rect r;
    r.x = (int32_t)(draw[0] % (uint32_t)whole->width_px);
    r.y = (int32_t)(draw[1] % (uint32_t)whole->height_px);
    r.width = 1 + (int32_t)(draw[2] % (uint32_t)(whole->width_px - r.x));
    r.height = 1 + (int32_t)(draw[3] % (uint32_t)(whole->height_px - r.y));
    return r;
}

static void check_region(struct image_decoder *d,
                         const struct image_view *whole,
                         const uint8_t *data,
                         size_t size_bytes) {
    struct image_decode_options opt = {.region = pick_region(whole, data, size_bytes)};
    const struct image_rect *r = &opt.region;
    struct image_view part;
    struct image_box box;
    demand(image_decode(d, &part, &box, data, size_bytes, &opt, NULL) == STATUS_OK);
    demand(box.width == (double)r->width && box.height == (double)r->height);
    demand(box.x >= 0 && box.x + box.width <= part.width_px);
    demand(box.y >= 0 && box.y + box.height <= part.height_px);
    for (int32_t y = 0; y < r->height; y++) {
        const uint8_t *got =
            part.data + (size_t)((int32_t)box.y + y) * part.stride_bytes + 3 * (size_t)box.x;
        const uint8_t *expected =
            whole->data + (size_t)(r->y + y) * whole->stride_bytes + 3 * (size_t)r->x;
        demand(memcmp(got, expected, 3 * (size_t)r->width) == 0);
    }
    opt.min_width_px = 1 + r->width / 3;
    opt.min_height_px = 1 + r->height / 3;
    demand(image_decode(d, &part, &box, data, size_bytes, &opt, NULL) == STATUS_OK);
    demand(part.width_px > 0 && part.height_px > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct image_limits limits;
    image_limits_default(&limits);
    limits.max_pixels = 1 << 18; /* small, so that a run sees many images */
    struct image_info info;
    enum status probed = image_probe(&info, data, size_bytes, &limits, NULL);
    struct image_decoder *d = NULL;
    struct image_decoder *other = NULL;
    demand(image_decoder_create(&d, &limits, NULL) == STATUS_OK);
    demand(image_decoder_create(&other, &limits, NULL) == STATUS_OK);
    struct image_view whole;
    struct image_decode_options check = {.check_only = true};
    enum status checked = image_decode(other, &whole, NULL, data, size_bytes, &check, NULL);
    demand(whole.data == NULL);
    enum status decoded = image_decode(d, &whole, NULL, data, size_bytes, NULL, NULL);
    demand((checked == STATUS_OK) == (decoded == STATUS_OK));
    if (decoded == STATUS_OK) {
        /* A probe may refuse a broken segment that the decoder steps over. */
        demand(probed == STATUS_CORRUPT ||
               (whole.width_px == info.width_px && whole.height_px == info.height_px));
        check_region(other, &whole, data, size_bytes);
    } else {
        demand(whole.data == NULL);
        struct image_decode_options opt = {.accept_partial = true};
        (void)image_decode(d, &whole, NULL, data, size_bytes, &opt, NULL);
    }
    image_decoder_destroy(d);
    image_decoder_destroy(other);
    return 0;
}
