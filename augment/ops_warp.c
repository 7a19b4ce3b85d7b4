/*
 * ops_warp: warps with the arithmetic of OpenCV's warpAffine. The position of each pixel of the
 * result in the input is in fixed point with ten bits of fraction; the terms of row and column are
 * rounded separately and then added. Five bits of the fraction interpolate between four neighbours.
 *
 *     row y of out:   outside | on the border | inside: one loop | on the border | outside
 *
 * The positions of a row are on a straight line, so those whose neighbours are all inside are
 * contiguous: the fast loop processes them, the others are processed pixel by pixel.
 */
#include "augment/ops_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "augment/ops_pixel_internal.h"

enum { TILE_PX = 512, READ_BYTES = 8 };

static const double REACH = 1 << 20; /* positions up to here fit 32 bits, and so do sums */

/* Consecutive pixels of one row of the result. */
struct line {
    const struct image_view *in;
    int32_t x, y; /* position of the row */
    const int32_t *dx, *dy;
    uint8_t fill;
};

static int32_t neighbour(const struct line *l, int32_t x, int32_t y, int c) {
    const struct image_view *in = l->in;
    if (x < 0 || y < 0 || x >= in->width_px || y >= in->height_px) {
        return l->fill;
    }
    return in->data[(size_t)y * in->stride_bytes + (size_t)x * 3 + (size_t)c];
}

static void careful_pixel(uint8_t *out, const struct line *l, int32_t i) {
    int32_t at_x = (l->x + l->dx[i]) >> OP_WARP_DROP_BITS;
    int32_t at_y = (l->y + l->dy[i]) >> OP_WARP_DROP_BITS;
    int32_t x = at_x >> OP_WARP_BITS;
    int32_t y = at_y >> OP_WARP_BITS;
    if (x < -1 || y < -1 || x >= l->in->width_px || y >= l->in->height_px) {
        memset(out, l->fill, 3);
        return;
    }
    for (int c = 0; c < 3; c++) {
        out[c] = pixel_bilinear(neighbour(l, x, y, c), neighbour(l, x + 1, y, c),
                                neighbour(l, x, y + 1, c), neighbour(l, x + 1, y + 1, c),
                                at_x & OP_WARP_FRACTION, at_y & OP_WARP_FRACTION);
    }
}

/* Whether the fast loop may compute pixel i: READ_BYTES from its position, in two rows, are inside.
 */
static bool is_inside(const struct line *l, int32_t i) {
    int32_t x = (l->x + l->dx[i]) >> (OP_WARP_DROP_BITS + OP_WARP_BITS);
    int32_t y = (l->y + l->dy[i]) >> (OP_WARP_DROP_BITS + OP_WARP_BITS);
    return x >= 0 && y >= 0 && 3 * x + READ_BYTES <= 3 * l->in->width_px &&
           y + 1 < l->in->height_px;
}

static void warp_line(const struct op_loops *loops, uint8_t *out, const struct line *l, int32_t n) {
    int32_t begin = 0;
    while (begin < n && !is_inside(l, begin)) {
        careful_pixel(out + 3 * begin, l, begin);
        begin++;
    }
    int32_t end = n;
    while (end > begin && !is_inside(l, end - 1)) {
        end--;
        careful_pixel(out + 3 * end, l, end);
    }
    if (end > begin) {
        loops->warp(out + 3 * begin, l->in->data, l->in->stride_bytes, l->x, l->y, l->dx + begin,
                    l->dy + begin, (size_t)(end - begin));
    }
}

static void fill_all(const struct image_view *out, uint8_t fill) {
    for (int32_t y = 0; y < out->height_px; y++) {
        memset(image_row(out, y), fill, (size_t)out->width_px * 3);
    }
}

/* The map from the result to the input. False if the warp has no inverse. */
static bool inverted(double w[6], const double m[6]) {
    double d = m[0] * m[4] - m[1] * m[3];
    if (d == 0.0) {
        return false;
    }
    d = 1.0 / d;
    w[0] = m[4] * d;
    w[1] = m[1] * -d;
    w[3] = m[3] * -d;
    w[4] = m[0] * d;
    w[2] = -w[0] * m[2] - w[1] * m[5];
    w[5] = -w[3] * m[2] - w[4] * m[5];
    return true;
}

static bool is_within_reach(const double w[6], const struct image_view *v) {
    double x = fabs(w[0]) * v->width_px + fabs(w[1]) * v->height_px + fabs(w[2]);
    double y = fabs(w[3]) * v->width_px + fabs(w[4]) * v->height_px + fabs(w[5]);
    return x < REACH && y < REACH;
}

static int32_t fixed_point(double v) {
    return (int32_t)lrint(v * OP_WARP_ONE);
}

void op_affine(struct op_pass p, const double m[6], uint8_t fill) {
    assert(p.out->width_px == p.in->width_px && p.out->height_px == p.in->height_px);
    assert(p.out->data != p.in->data);
    double w[6];
    if (!inverted(w, m) || !is_within_reach(w, p.in)) {
        fill_all(p.out, fill);
        return;
    }
    int32_t dx[TILE_PX];
    int32_t dy[TILE_PX];
    for (int32_t left = 0; left < p.in->width_px; left += TILE_PX) {
        int32_t n = p.in->width_px - left < TILE_PX ? p.in->width_px - left : TILE_PX;
        for (int32_t i = 0; i < n; i++) {
            dx[i] = fixed_point(w[0] * (left + i));
            dy[i] = fixed_point(w[3] * (left + i));
        }
        struct line l = {.in = p.in, .dx = dx, .dy = dy, .fill = fill};
        for (int32_t y = 0; y < p.in->height_px; y++) {
            l.x = fixed_point(w[1] * y + w[2]) + OP_WARP_ROUND;
            l.y = fixed_point(w[4] * y + w[5]) + OP_WARP_ROUND;
            warp_line(p.loops, image_row(p.out, y) + (size_t)left * 3, &l, n);
        }
    }
}

/* ------------------------------------------------------------------------------------- shears */

/* A shear moves each row or column along itself: two neighbours are interpolated instead of four,
 * and the fraction that op_affine computes for each pixel is the same for a whole row, or for a
 * column of all rows. */

/* out[x] is between in[x + shift] and in[x + shift + 1], `fraction` thirty-seconds from the
 * first. */
static void slide_row(const struct op_loops *loops,
                      uint8_t *out,
                      const uint8_t *in,
                      int32_t width_px,
                      int32_t shift,
                      uint8_t fraction,
                      uint8_t fill) {
    uint8_t fractions[TILE_PX * 3];
    int32_t first = -1 - shift;          /* has only a right neighbour */
    int32_t last = width_px - 1 - shift; /* has only a left neighbour */
    memset(out, fill, (size_t)width_px * 3);
    for (int c = 0; c < 3; c++) {
        if (first >= 0 && first < width_px) {
            out[3 * first + c] = pixel_between(fill, in[c], fraction);
        }
        if (last >= 0 && last < width_px) {
            out[3 * last + c] = pixel_between(in[3 * (width_px - 1) + c], fill, fraction);
        }
    }
    int32_t begin = first + 1 > 0 ? first + 1 : 0;
    int32_t end = last < width_px ? last : width_px;
    memset(fractions, fraction, sizeof(fractions));
    for (int32_t x = begin; x < end; x += TILE_PX) {
        int32_t n = end - x < TILE_PX ? end - x : TILE_PX;
        const uint8_t *from = in + (size_t)(x + shift) * 3;
        loops->between(out + (size_t)x * 3, from, from + 3, fractions, (size_t)n * 3);
    }
}

void op_shear_x(struct op_pass p, float factor, uint8_t fill) {
    assert(p.out->width_px == p.in->width_px && p.out->height_px == p.in->height_px);
    assert(p.out->data != p.in->data);
    const double back = -(double)factor;
    const double w[6] = {1.0, back, 0.0, 0.0, 1.0, 0.0};
    if (!is_within_reach(w, p.in)) {
        fill_all(p.out, fill);
        return;
    }
    for (int32_t y = 0; y < p.in->height_px; y++) {
        int32_t at = (fixed_point(back * y) + OP_WARP_ROUND) >> OP_WARP_DROP_BITS;
        slide_row(p.loops, image_row(p.out, y), image_row(p.in, y), p.in->width_px,
                  at >> OP_WARP_BITS, (uint8_t)(at & OP_WARP_FRACTION), fill);
    }
}

/* Neighbouring columns with the same offset, in every row. */
struct stretch {
    int32_t begin, end; /* columns of the tile */
    int32_t down_px;
};

struct column_tile {
    const struct image_view *in;
    int32_t left_px, width_px;
    uint8_t fill;
    int32_t count;
    struct stretch stretches[TILE_PX];
    uint8_t fractions[TILE_PX * 3];
};

static void find_stretches(struct column_tile *t, double back) {
    t->count = 0;
    for (int32_t i = 0; i < t->width_px; i++) {
        int32_t at = (fixed_point(back * (t->left_px + i)) + OP_WARP_ROUND) >> OP_WARP_DROP_BITS;
        int32_t down_px = at >> OP_WARP_BITS;
        memset(t->fractions + 3 * i, at & OP_WARP_FRACTION, 3);
        if (t->count == 0 || t->stretches[t->count - 1].down_px != down_px) {
            t->stretches[t->count++] = (struct stretch){.begin = i, .down_px = down_px};
        }
        t->stretches[t->count - 1].end = i + 1;
    }
}

/* Gathers the upper input row of row y; the lower one is the upper one of the next row. Tiles are
 * short: they are copied in pieces of sixteen, and the next tile overwrites the surplus. */
static void collect_row(uint8_t *row, const struct column_tile *t, int32_t y) {
    enum { STEP = 16 };
    const struct image_view *in = t->in;
    for (int32_t k = 0; k < t->count; k++) {
        const struct stretch *s = &t->stretches[k];
        size_t at = (size_t)s->begin * 3;
        size_t size_bytes = (size_t)(s->end - s->begin) * 3;
        int32_t from_y = y + s->down_px;
        if (from_y < 0 || from_y >= in->height_px) {
            memset(row + at, t->fill, size_bytes);
            continue;
        }
        size_t x = ((size_t)t->left_px + (size_t)s->begin) * 3;
        const uint8_t *from = image_row(in, from_y) + x;
        if (x + size_bytes + STEP > (size_t)in->width_px * 3) {
            memcpy(row + at, from, size_bytes);
            continue;
        }
        for (size_t i = 0; i < size_bytes; i += STEP) {
            memcpy(row + at + i, from + i, STEP);
        }
    }
}

void op_shear_y(struct op_pass p, float factor, uint8_t fill) {
    assert(p.out->width_px == p.in->width_px && p.out->height_px == p.in->height_px);
    assert(p.out->data != p.in->data);
    const double back = -(double)factor;
    const double w[6] = {1.0, 0.0, 0.0, back, 1.0, 0.0};
    if (!is_within_reach(w, p.in)) {
        fill_all(p.out, fill);
        return;
    }
    struct column_tile t = {.in = p.in, .fill = fill};
    uint8_t rows[2][TILE_PX * 3 + 16];
    for (; t.left_px < p.in->width_px; t.left_px += TILE_PX) {
        t.width_px = p.in->width_px - t.left_px < TILE_PX ? p.in->width_px - t.left_px : TILE_PX;
        find_stretches(&t, back);
        collect_row(rows[0], &t, 0);
        for (int32_t y = 0; y < p.in->height_px; y++) {
            collect_row(rows[(y + 1) % 2], &t, y + 1);
            p.loops->between(image_row(p.out, y) + (size_t)t.left_px * 3, rows[y % 2],
                             rows[(y + 1) % 2], t.fractions, (size_t)t.width_px * 3);
        }
    }
}

void op_rotate(struct op_pass p, double degrees, uint8_t fill) {
    const double pi = 3.14159265358979323846;
    double angle = degrees * (pi / 180.0);
    double a = cos(angle);
    double b = sin(angle);
    double x = p.in->width_px / 2.0;
    double y = p.in->height_px / 2.0;
    const double m[6] = {a, b, (1.0 - a) * x - b * y, -b, a, b * x + (1.0 - a) * y};
    op_affine(p, m, fill);
}

void op_translate(const struct image_view *out,
                  const struct image_view *in,
                  int32_t right_px,
                  int32_t down_px,
                  uint8_t fill) {
    assert(out->width_px == in->width_px && out->height_px == in->height_px);
    assert(out->data != in->data);
    int32_t w = in->width_px;
    int32_t h = in->height_px;
    int32_t right = right_px < -w ? -w : right_px > w ? w : right_px;
    int32_t kept = w - (right < 0 ? -right : right);
    for (int32_t y = 0; y < h; y++) {
        uint8_t *to = image_row(out, y);
        int64_t from_y = (int64_t)y - down_px;
        if (from_y < 0 || from_y >= h) {
            memset(to, fill, (size_t)w * 3);
            continue;
        }
        const uint8_t *from = image_row(in, from_y);
        size_t skip_out = right > 0 ? (size_t)right * 3 : 0;
        size_t skip_in = right < 0 ? (size_t)-right * 3 : 0;
        memset(to, fill, skip_out);
        memcpy(to + skip_out, from + skip_in, (size_t)kept * 3);
        memset(to + skip_out + (size_t)kept * 3, fill, skip_in);
    }
}
