/*
 * pixels: see the header. A value has 256 possible results in each channel, which are computed in
 * double precision and rounded once, to the nearest and in ties to even; an image is looked up.
 */
#include "bindings/c/pixels_internal.h"

#include <math.h>
#include <string.h>

static const char *const type_names[] = {"uint8", "float16", "bfloat16", "float32"};
static const uint32_t type_bytes[] = {1, 2, 2, 4};

/* x as an integer multiple of 2^exponent, which halves round to even. */
static double round_to(double x, int exponent) {
    return ldexp(nearbyint(ldexp(x, -exponent)), exponent);
}

/* The bits of the float16 or bfloat16 next to x: significands of 11 and 8 bits. */
static uint16_t half_of(double x, int significand_bits, int exponent_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int fraction_bits = significand_bits - 1;
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    int exponent = 0;
    if (x == 0.0) {
        return sign;
    }
    (void)frexp(x, &exponent); /* |x| in [2^(exponent - 1), 2^exponent) */
    exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    const double rounded = fabs(round_to(x, exponent - fraction_bits));
    if (rounded >= ldexp(1.0, bias + 1)) {
        return sign | (uint16_t)((2 * bias + 1) << fraction_bits);
    }
    /* Counted in units of the last place; one that is rounded up to the next power carries. */
    const uint32_t units = (uint32_t)ldexp(rounded, fraction_bits - exponent);
    const uint32_t hidden = UINT32_C(1) << fraction_bits;
    const uint32_t field =
        units < hidden ? units : units - hidden + ((uint32_t)(exponent + bias) << fraction_bits);
    return sign | (uint16_t)field;
}

static void set_value(struct pixel_table *t, int channel, int value, double x) {
    switch (t->type) {
    case CCS_PIXELS_UINT8:
        t->values[channel].u8[value] = (uint8_t)value;
        break;
    case CCS_PIXELS_FLOAT16:
        t->values[channel].u16[value] = half_of(x, 11, 5);
        break;
    case CCS_PIXELS_BFLOAT16:
        t->values[channel].u16[value] = half_of(x, 8, 8);
        break;
    case CCS_PIXELS_FLOAT32:
        t->values[channel].f32[value] = (float)x;
        break;
    }
}

enum status
pixel_table_init(struct pixel_table *t, const struct ccs_loader_options *o, struct error *err) {
    *t = (struct pixel_table){.planar = o->planar, .side_px = o->image_size_px};
    const char *name = o->pixels != NULL ? o->pixels : type_names[0];
    int type = 0;
    while (type < 4 && strcmp(name, type_names[type]) != 0) {
        type++;
    }
    FAIL_IF(type == 4, err, STATUS_USAGE,
            "pixels is '%.40s', expected uint8, float16, bfloat16 or float32", name);
    t->type = (enum ccs_pixels)type;
    t->element_bytes = type_bytes[type];
    FAIL_IF(o->normalized && t->type == CCS_PIXELS_UINT8, err, STATUS_USAGE,
            "uint8 images cannot be normalised: choose pixels float16, bfloat16 or float32");
    for (int c = 0; c < 3; c++) {
        const double mean = o->normalized ? (double)o->mean[c] : 0.0;
        const double deviation = o->normalized ? (double)o->deviation[c] : 1.0;
        FAIL_IF(!isfinite(mean) || !isfinite(deviation) || deviation <= 0.0, err, STATUS_USAGE,
                "mean %g and std %g of a channel: expected finite values, std above 0", mean,
                deviation);
        for (int v = 0; v < 256; v++) {
            set_value(t, c, v, (v / 255.0 - mean) / deviation);
        }
    }
    return STATUS_OK;
}

bool pixel_table_is_plain(const struct pixel_table *t) {
    return t->type == CCS_PIXELS_UINT8 && !t->planar;
}

/* Where channel c begins, and from one pixel of it to the next, in elements. */
struct layout {
    size_t begin, step;
};

static struct layout layout_of(const struct pixel_table *t, int channel, size_t count) {
    return t->planar ? (struct layout){(size_t)channel * count, 1}
                     : (struct layout){(size_t)channel, 3};
}

static void
look_up_u8(uint8_t *out, const uint8_t *rgb, const uint8_t *values, size_t count, size_t step) {
    for (size_t i = 0; i < count; i++) {
        out[i * step] = values[rgb[3 * i]];
    }
}

static void
look_up_u16(uint16_t *out, const uint8_t *rgb, const uint16_t *values, size_t count, size_t step) {
    for (size_t i = 0; i < count; i++) {
        out[i * step] = values[rgb[3 * i]];
    }
}

static void
look_up_f32(float *out, const uint8_t *rgb, const float *values, size_t count, size_t step) {
    for (size_t i = 0; i < count; i++) {
        out[i * step] = values[rgb[3 * i]];
    }
}

void pixel_table_write(const struct pixel_table *t, void *out, const uint8_t *rgb) {
    const size_t count = (size_t)t->side_px * t->side_px;
    for (int c = 0; c < 3; c++) {
        const struct layout l = layout_of(t, c, count);
        switch (t->element_bytes) {
        case 1:
            look_up_u8((uint8_t *)out + l.begin, rgb + c, t->values[c].u8, count, l.step);
            break;
        case 2:
            look_up_u16((uint16_t *)out + l.begin, rgb + c, t->values[c].u16, count, l.step);
            break;
        default:
            look_up_f32((float *)out + l.begin, rgb + c, t->values[c].f32, count, l.step);
            break;
        }
    }
}
