/*
 * What an image's headers say, read by a walk over the marker segments of a JPEG or the chunks of
 * a PNG, without the libraries: a probe touches a few hundred bytes and allocates nothing. (The
 * files of WebP and GIF do the same for theirs; of lossless WebP the codes are read as well, see
 * image_codec_vp8l.c. Of a PNG without eXIf before its pixels all chunks are walked over.)
 *
 *     JPEG  FFD8 | FF marker, u16 size, ... | ... FFDA (scan: stop)
 *     PNG   signature | u32 size, type, ..., u32 crc | ... IDAT ... eXIf ... IEND (stop)
 *     EXIF  "II*\0" or "MM\0*", u32 offset of a directory: u16 count, 12 bytes each
 */
#include <string.h>

#include "formats/image/image_codec_internal.h"

enum { EXIF_ENTRY_BYTES = 12, EXIF_TAG_ORIENTATION = 0x0112 };

static uint32_t be16(const uint8_t *p) {
    return ((uint32_t)p[0] << 8) | p[1];
}

static uint32_t be32(const uint8_t *p) {
    return (be16(p) << 16) | be16(p + 2);
}

static uint32_t exif_u16(const uint8_t *p, bool big) {
    return big ? be16(p) : ((uint32_t)p[1] << 8) | p[0];
}

static uint32_t exif_u32(const uint8_t *p, bool big) {
    return big ? be32(p) : (exif_u16(p + 2, false) << 16) | exif_u16(p, false);
}

int32_t exif_orientation(const uint8_t *tiff, size_t size_bytes) {
    if (size_bytes >= 6 && memcmp(tiff, "Exif\0\0", 6) == 0) { /* some write it everywhere */
        tiff += 6;
        size_bytes -= 6;
    }
    if (size_bytes < 8) {
        return 0;
    }
    bool big = memcmp(tiff, "MM\0*", 4) == 0;
    if (!big && memcmp(tiff, "II*\0", 4) != 0) {
        return 0;
    }
    size_t at = exif_u32(tiff + 4, big);
    if (at > size_bytes - 2) {
        return 0;
    }
    size_t count = exif_u16(tiff + at, big);
    at += 2;
    for (size_t i = 0; i < count && size_bytes - at >= EXIF_ENTRY_BYTES; i++) {
        const uint8_t *entry = tiff + at;
        if (exif_u16(entry, big) == EXIF_TAG_ORIENTATION) {
            bool is_short = exif_u16(entry + 2, big) == 3;
            uint32_t value = is_short ? exif_u16(entry + 8, big) : exif_u32(entry + 8, big);
            return value >= 1 && value <= 8 ? (int32_t)value : 0;
        }
        at += EXIF_ENTRY_BYTES;
    }
    return 0;
}

/* ------------------------------------------------------------------------------------- JPEG */

struct jpeg_segment {
    uint32_t marker;
    const uint8_t *body;
    size_t body_size_bytes;
};

/* The next segment with a body, from *at on; false at the first scan (whose header is then in
 * *out), the end marker or the end of the data. Bytes that are no marker are stepped over, as
 * libjpeg does. */
static bool
jpeg_next_segment(struct jpeg_segment *out, const uint8_t *data, size_t size_bytes, size_t *at) {
    size_t i = *at;
    *out = (struct jpeg_segment){0};
    for (;;) {
        while (i < size_bytes && data[i] != 0xFF) {
            i++;
        }
        while (i < size_bytes && data[i] == 0xFF) {
            i++;
        }
        if (i >= size_bytes) {
            return false;
        }
        uint32_t marker = data[i++];
        if (marker == 0 || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) {
            continue;
        }
        if (marker == 0xD9 || size_bytes - i < 2) {
            return false;
        }
        size_t length = be16(data + i);
        if (length < 2) {
            return false;
        }
        out->marker = marker;
        out->body = data + i + 2;
        out->body_size_bytes = length - 2;
        if (out->body_size_bytes > size_bytes - i - 2) {
            out->body_size_bytes = size_bytes - i - 2;
        }
        *at = i + 2 + out->body_size_bytes;
        return marker != 0xDA;
    }
}

static int32_t segment_orientation(const struct jpeg_segment *s) {
    if (s->marker != 0xE1 || s->body_size_bytes < 6 || memcmp(s->body, "Exif\0\0", 6) != 0) {
        return 0;
    }
    return exif_orientation(s->body, s->body_size_bytes);
}

static bool is_frame_header(uint32_t marker) {
    return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

/* What a frame header says but for the sampling factors, which are at its end. */
static enum status
read_frame_header(struct image_info *info, const struct jpeg_segment *s, struct error *err) {
    FAIL_IF(s->body_size_bytes < 6, err, STATUS_CORRUPT, "jpeg: the frame header is truncated");
    uint32_t process = s->marker & 3;
    FAIL_IF(s->body[0] != 8 || process == 3 || (s->marker & 7) > 3, err, STATUS_UNSUPPORTED,
            "jpeg: frame type 0x%02x with %u-bit samples is not supported", (unsigned)s->marker,
            (unsigned)s->body[0]);
    info->raw_height_px = (int32_t)be16(s->body + 1);
    info->raw_width_px = (int32_t)be16(s->body + 3);
    info->components = s->body[5];
    info->progressive = process == 2;
    return STATUS_OK;
}

/* From the frame header and the header of the first scan. */
static uint64_t probe_jpeg_codec_bytes(const struct image_info *info,
                                       const struct jpeg_segment *frame,
                                       const struct jpeg_segment *scan) {
    struct jpeg_component_shape shapes[4] = {{0}};
    size_t count = 0;
    while (count < 4 && count < (size_t)info->components &&
           6 + 3 * (count + 1) <= frame->body_size_bytes) {
        uint8_t factors = frame->body[6 + 3 * count + 1];
        shapes[count].h = factors >> 4;
        shapes[count].v = factors & 15;
        count++;
    }
    bool several = info->progressive || scan->marker != 0xDA || scan->body_size_bytes < 1 ||
                   scan->body[0] < info->components;
    return jpeg_codec_bytes((uint32_t)info->raw_width_px, (uint32_t)info->raw_height_px, shapes,
                            count, several);
}

static enum status
probe_jpeg(struct image_info *info, const uint8_t *data, size_t size_bytes, struct error *err) {
    struct jpeg_segment s;
    struct jpeg_segment frame = {0};
    size_t at = 2;
    while (jpeg_next_segment(&s, data, size_bytes, &at)) {
        if (info->orientation == 0) {
            info->orientation = segment_orientation(&s);
        }
        if (is_frame_header(s.marker) && frame.marker == 0) {
            TRY(read_frame_header(info, &s, err));
            frame = s;
        }
    }
    FAIL_IF(frame.marker == 0, err, STATUS_CORRUPT, "jpeg: no frame header in %zu bytes",
            size_bytes);
    info->codec_bytes = probe_jpeg_codec_bytes(info, &frame, &s);
    return STATUS_OK;
}

/* -------------------------------------------------------------------------------------- PNG */

struct png_chunk {
    const uint8_t *type;
    const uint8_t *body;
    size_t body_size_bytes;
};

/* The next chunk that is all there; false at the end. */
static bool
png_next_chunk(struct png_chunk *out, const uint8_t *data, size_t size_bytes, size_t *at) {
    if (size_bytes < 12 || *at > size_bytes - 12) {
        return false;
    }
    const uint8_t *p = data + *at;
    out->body_size_bytes = be32(p);
    out->type = p + 4;
    out->body = p + 8;
    if (memcmp(out->type, "IEND", 4) == 0 || out->body_size_bytes > size_bytes - *at - 12) {
        return false;
    }
    *at += 12 + out->body_size_bytes;
    return true;
}

static int32_t png_orientation(const uint8_t *data, size_t size_bytes) {
    struct png_chunk c;
    size_t at = 8;
    while (png_next_chunk(&c, data, size_bytes, &at)) {
        if (memcmp(c.type, "eXIf", 4) == 0) {
            return exif_orientation(c.body, c.body_size_bytes);
        }
    }
    return 0;
}

static enum status
probe_png(struct image_info *info, const uint8_t *data, size_t size_bytes, struct error *err) {
    static const int8_t channels[8] = {1, 0, 3, 1, 2, 0, 4, 0}; /* by colour type */
    struct png_chunk c;
    size_t at = 8;
    FAIL_IF(!png_next_chunk(&c, data, size_bytes, &at) || memcmp(c.type, "IHDR", 4) != 0 ||
                c.body_size_bytes != 13,
            err, STATUS_CORRUPT, "png: does not begin with a whole IHDR");
    uint32_t width = be32(c.body);
    uint32_t height = be32(c.body + 4);
    FAIL_IF(width > INT32_MAX || height > INT32_MAX || c.body[9] > 7 || channels[c.body[9]] == 0,
            err, STATUS_CORRUPT, "png: IHDR of %u x %u, colour type %u", width, height,
            (unsigned)c.body[9]);
    info->raw_width_px = (int32_t)width;
    info->raw_height_px = (int32_t)height;
    info->components = channels[c.body[9]];
    info->progressive = c.body[12] != 0;
    info->codec_bytes = png_codec_bytes(width, height, info->progressive);
    info->orientation = png_orientation(data, size_bytes);
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------ public */

enum image_format image_format_of(const void *data, size_t size_bytes) {
    const uint8_t *p = data;
    if (size_bytes >= 3 && memcmp(p, "\xFF\xD8\xFF", 3) == 0) {
        return IMAGE_FORMAT_JPEG;
    }
    if (size_bytes >= 8 && memcmp(p, "\x89PNG\r\n\x1a\n", 8) == 0) {
        return IMAGE_FORMAT_PNG;
    }
    if (size_bytes >= 12 && memcmp(p, "RIFF", 4) == 0 && memcmp(p + 8, "WEBP", 4) == 0) {
        return IMAGE_FORMAT_WEBP;
    }
    if (size_bytes >= 6 && (memcmp(p, "GIF87a", 6) == 0 || memcmp(p, "GIF89a", 6) == 0)) {
        return IMAGE_FORMAT_GIF;
    }
    return IMAGE_FORMAT_UNKNOWN;
}

static enum status probe_format(struct image_info *info,
                                const uint8_t *data,
                                size_t size_bytes,
                                const struct image_limits *limits,
                                struct error *err) {
    switch (info->format) {
    case IMAGE_FORMAT_JPEG:
        TRY(probe_jpeg(info, data, size_bytes, err));
        break;
    case IMAGE_FORMAT_PNG:
        TRY(probe_png(info, data, size_bytes, err));
        break;
    case IMAGE_FORMAT_WEBP:
        TRY(webp_probe(info, data, size_bytes, err));
        break;
    case IMAGE_FORMAT_GIF:
        TRY(gif_probe(info, data, size_bytes, err));
        break;
    default:
        return image_format_unknown(err);
    }
    if (info->orientation == 0) {
        info->orientation = 1;
    }
    bool swap = orientation_swaps(info->orientation);
    info->width_px = swap ? info->raw_height_px : info->raw_width_px;
    info->height_px = swap ? info->raw_width_px : info->raw_height_px;
    return image_check_size(info->raw_width_px, info->raw_height_px, limits, err);
}

int32_t image_orientation(const uint8_t *data, size_t size_bytes) {
    struct image_info info = {.format = image_format_of(data, size_bytes)};
    struct image_limits limits;
    image_limits_default(&limits);
    (void)probe_format(&info, data, size_bytes, &limits, NULL);
    return info.orientation > 0 ? info.orientation : 1;
}

enum status image_probe(struct image_info *info,
                        const void *data,
                        size_t size_bytes,
                        const struct image_limits *limits,
                        struct error *err) {
    REQUIRE(info != NULL && (data != NULL || size_bytes == 0));
    struct image_limits standard;
    if (limits == NULL) {
        image_limits_default(&standard);
        limits = &standard;
    }
    *info = (struct image_info){.format = image_format_of(data, size_bytes)};
    enum image_format format = info->format;
    enum status s = probe_format(info, data, size_bytes, limits, err);
    if (s != STATUS_OK) {
        *info = (struct image_info){.format = s == STATUS_UNSUPPORTED ? format : 0};
    }
    return s;
}
