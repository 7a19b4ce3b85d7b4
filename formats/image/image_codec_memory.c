/*
 * What decoding takes, from the headers alone. The libraries' parts are upper estimates of what
 * they allocate; test_image_codec_memory.c holds them against what they really take.
 */
#include "formats/image/image_codec_internal.h"

enum {
    LIBRARY_BYTES = 256 << 10,    /* a library's structures, tables, windows */
    ROW_BYTES_PER_SAMPLE = 72,    /* libjpeg's rows around the one that is being made, upsampled */
    PNG_ROW_BYTES_PER_PIXEL = 32, /* libpng's, before and after the filter, of at most 8 bytes */
    WEBP_ROW_BYTES_PER_PIXEL = 256, /* libwebp's rows of blocks and of pixels */
};

static uint64_t round_up(uint64_t value, uint64_t to) {
    return (value + to - 1) / to * to;
}

uint64_t jpeg_codec_bytes(uint32_t width_px,
                          uint32_t height_px,
                          const struct jpeg_component_shape *components,
                          size_t component_count,
                          bool several_scans) {
    uint32_t h_max = 1;
    uint32_t v_max = 1;
    for (size_t i = 0; i < component_count; i++) {
        h_max = components[i].h > h_max ? components[i].h : h_max;
        v_max = components[i].v > v_max ? components[i].v : v_max;
    }
    uint64_t wide = round_up(width_px, UINT64_C(8) * h_max);
    uint64_t high = round_up(height_px, UINT64_C(8) * v_max);
    uint64_t total = LIBRARY_BYTES + wide * component_count * ROW_BYTES_PER_SAMPLE;
    for (size_t i = 0; several_scans && i < component_count; i++) {
        uint64_t samples = (wide * components[i].h / h_max) * (high * components[i].v / v_max);
        total += samples * sizeof(int16_t);
    }
    return total;
}

uint64_t png_codec_bytes(uint32_t width_px, uint32_t height_px, bool interlaced) {
    uint64_t rows = interlaced ? height_px : 1; /* kept by png_reader, of at most 4 bytes a pixel */
    return LIBRARY_BYTES + PIXEL_BUFFER_SPARE_BYTES + rows * width_px * 4 +
           (uint64_t)width_px * PNG_ROW_BYTES_PER_PIXEL;
}

uint64_t webp_codec_bytes(uint32_t width_px,
                          uint32_t height_px,
                          bool alpha,
                          bool lossless,
                          uint64_t table_bytes) {
    uint64_t pixels = (uint64_t)width_px * height_px;
    uint64_t total = LIBRARY_BYTES + PIXEL_BUFFER_SPARE_BYTES + table_bytes +
                     (uint64_t)width_px * WEBP_ROW_BYTES_PER_PIXEL;
    if (lossless) {
        total += pixels * 5; /* ARGB, and the images that steer its transforms */
    } else if (alpha) {
        total += pixels * 6; /* the plane; what a lossless decoder for it takes */
    }
    return total + (alpha ? pixels * 4 : 0); /* RGBA, before it is laid over white */
}

uint64_t gif_codec_bytes(uint32_t width_px) {
    return LIBRARY_BYTES + PIXEL_BUFFER_SPARE_BYTES + width_px;
}

/* Stored pixels that are kept of a wanted side: whole iMCUs, margins for the upsampling. */
static uint64_t kept_px(int32_t wanted_px, int32_t raw_px, unsigned by) {
    uint64_t kept = ((uint64_t)wanted_px + by - 1) / by + 48;
    uint64_t all = ((uint64_t)raw_px + by - 1) / by;
    return kept < all ? kept : all;
}

uint64_t image_decode_memory_bytes(const struct image_info *info,
                                   const struct image_decode_options *opt) {
    static const struct image_decode_options whole;
    struct decode_job job = {.opt = opt != NULL ? opt : &whole, .orientation = info->orientation};
    struct image_rect raw = {0, 0, info->raw_width_px, info->raw_height_px};
    if (job.opt->region.width > 0 && !job.opt->check_only) {
        bool swap = orientation_swaps(info->orientation);
        raw.width = swap ? job.opt->region.height : job.opt->region.width;
        raw.height = swap ? job.opt->region.width : job.opt->region.height;
    }
    unsigned by = info->format == IMAGE_FORMAT_JPEG ? decode_reduction(&job, &raw) : 1;
    uint64_t width = kept_px(raw.width, info->raw_width_px, by);
    uint64_t height = job.opt->check_only ? 1 : kept_px(raw.height, info->raw_height_px, by);
    uint64_t pixels = 3 * width * height + PIXEL_BUFFER_SPARE_BYTES;
    bool turned = info->orientation != 1 && !job.opt->check_only;
    return info->codec_bytes + (turned ? 2 : 1) * pixels;
}
