/*
 * resize: resamples in two separable passes, as Pillow does: along the rows first, into an 8-bit
 * image of the final width that holds only the input rows that the second pass needs, then
 * across.
 *
 *     in (box) --rows--> middle (input rows x output width, u8) --column--> out
 *
 * The weights of every output pixel are computed in double, normalised, and rounded to 16-bit fixed
 * point with as many fraction bits as the largest weight allows; the rounding error of their sum is
 * added to the largest, so a flat area keeps its value exactly. All products and sums are integers,
 * so vector code is byte-identical to the plain loops. A flip costs nothing: the table of the first
 * pass is filled from the other end.
 */
#include "augment/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "augment/resize_internal.h"

enum {
    MAX_BITS = 21,      /* 255 * 2^21 * (sum of |weights|, below 2) stays below 2^31 */
    MAX_WEIGHT = 32000, /* of an int16, with room for the correction of the sum */
    ALIGN_BYTES = 64,
};

/* ------------------------------------------------------------------------------------ weights */

/* The filters at the pixels begin, begin + 1, ..., relative to `centre`: without branches, so that
 * the compiler vectorises the first two. */
static void triangle(double *w, int32_t n, int32_t begin, double centre, double inverse) {
    for (int32_t i = 0; i < n; i++) {
        double x = fabs((begin + i - centre + 0.5) * inverse);
        w[i] = x < 1.0 ? 1.0 - x : 0.0;
    }
}

static void cubic(double *w, int32_t n, int32_t begin, double centre, double inverse) {
    const double a = -0.5;
    for (int32_t i = 0; i < n; i++) {
        double x = fabs((begin + i - centre + 0.5) * inverse);
        double inner = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
        double outer = (((x - 5.0) * x + 8.0) * x - 4.0) * a;
        outer = x < 2.0 ? outer : 0.0;
        w[i] = x < 1.0 ? inner : outer;
    }
}

/* With s = sin(pi x / 3), sin(pi x) is 3 s - 4 s^3. */
static void lanczos(double *w, int32_t n, int32_t begin, double centre, double inverse) {
    const double pi = 3.14159265358979323846;
    for (int32_t i = 0; i < n; i++) {
        double x = fabs((begin + i - centre + 0.5) * inverse);
        double s = sin(pi / 3.0 * x);
        double product = s * s * (3.0 - 4.0 * s * s) * 3.0 / (pi * pi * x * x);
        w[i] = x < 1e-9 ? 1.0 : x < 3.0 ? product : 0.0;
    }
}

static const struct filter {
    double support;
    void (*weigh)(double *w, int32_t n, int32_t begin, double centre, double inverse);
} filters[] = {
    [RESIZE_BILINEAR] = {1.0, triangle},
    [RESIZE_BICUBIC] = {2.0, cubic},
    [RESIZE_LANCZOS] = {3.0, lanczos},
};

/* An interval of one axis of the input. */
struct span {
    double from, length;
};

/* One axis of a job: the span of input becomes `count` pixels. */
struct axis_plan {
    double from, scale, support, stretch;
    int32_t first, last; /* input pixels that may be used: [first, last) */
    int32_t used;        /* largest number of inputs of one output */
    int32_t taps;        /* the same, rounded up to groups */
    int32_t count;
};

static struct axis_plan plan_axis(struct span span,
                                  struct span within,
                                  int32_t limit,
                                  int32_t count,
                                  enum resize_filter filter) {
    struct axis_plan p = {.from = span.from, .scale = span.length / count, .count = count};
    p.stretch = p.scale < 1.0 ? 1.0 : p.scale;
    p.support = filters[filter].support * p.stretch;
    p.first = (int32_t)floor(within.from);
    double end = ceil(within.from + within.length);
    p.last = end < limit ? (int32_t)end : limit;
    if (p.first >= p.last) {
        p.first = p.last - 1;
    }
    int32_t used = (int32_t)ceil(2.0 * p.support);
    int32_t most = p.last - p.first;
    p.used = used < most ? used : most;
    p.taps = (p.used + RESIZE_TAP_GROUP - 1) / RESIZE_TAP_GROUP * RESIZE_TAP_GROUP;
    return p;
}

/* Computes the weights of one output pixel in double, starting at input pixel *start, then zeros up
 * to p->taps. Returns their number. */
static int32_t real_weights(double *w,
                            int32_t *start,
                            const struct axis_plan *p,
                            enum resize_filter filter,
                            int32_t index) {
    double centre = p->from + (index + 0.5) * p->scale;
    double low = centre - p->support + 0.5;
    double high = centre + p->support + 0.5;
    int32_t begin = low > p->first ? (int32_t)low : p->first;
    int32_t end = high < p->last ? (int32_t)high : p->last;
    if (end <= begin) { /* only by rounding, at the edge of the box */
        begin = begin < p->last ? begin : p->last - 1;
        end = begin + 1;
    }
    end = end - begin > p->used ? begin + p->used : end; /* by rounding: it has no weight */
    int32_t n = end - begin;
    double inverse = 1.0 / p->stretch;
    filters[filter].weigh(w, n, begin, centre, inverse);
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        sum += w[i];
    }
    if (sum == 0.0) {
        w[0] = sum = 1.0;
    }
    double scale = 1.0 / sum;
    for (int32_t i = 0; i < n; i++) {
        w[i] *= scale;
    }
    for (int32_t i = n; i < p->taps; i++) {
        w[i] = 0.0;
    }
    *start = begin;
    return n;
}

/* Converts the weights to fixed point, after `offset` zeros; weights that would then exceed `taps`
 * are zero. */
static void fixed_weights(int16_t *out, const double *w, int32_t taps, int32_t offset, double one) {
    int32_t left = (int32_t)one;
    int32_t largest = 0;
    for (int32_t i = 0; i < offset; i++) {
        out[i] = 0;
    }
    out += offset;
    for (int32_t i = 0; i < taps - offset; i++) {
        int32_t v = (int32_t)(w[i] * one + copysign(0.5, w[i]));
        out[i] = (int16_t)v;
        left -= v;
    }
    for (int32_t i = 1; i < taps - offset; i++) {
        largest = w[i] > w[largest] ? i : largest;
    }
    out[largest] = (int16_t)(out[largest] + left);
}

/* Fills the table of an axis. `real` has room for count * taps numbers. A window of taps never
 * begins after last_start: it then begins earlier, with leading zero weights. */
static void fill_axis(struct resize_axis *axis,
                      double *real,
                      const struct axis_plan *p,
                      enum resize_filter filter,
                      bool mirror,
                      int32_t last_start) {
    double largest = 0.0;
    for (int32_t i = 0; i < p->count; i++) {
        double *w = real + (size_t)i * (size_t)p->taps;
        int32_t used = real_weights(w, &axis->starts[i], p, filter, i);
        for (int32_t j = 0; j < used; j++) {
            largest = w[j] > largest ? w[j] : largest;
        }
    }
    axis->taps = p->taps;
    axis->used = p->used;
    axis->count = p->count;
    axis->bits = MAX_BITS;
    while (axis->bits > 0 && largest * (double)(1 << axis->bits) > MAX_WEIGHT) {
        axis->bits--;
    }
    for (int32_t i = 0; i < p->count; i++) {
        int32_t from = mirror ? p->count - 1 - i : i;
        const double *w = real + (size_t)from * (size_t)p->taps;
        int32_t start = axis->starts[from];
        int32_t offset = start > last_start ? start - last_start : 0;
        fixed_weights(axis->weights + (size_t)i * (size_t)p->taps, w, p->taps, offset,
                      (double)(1 << axis->bits));
    }
    for (int32_t i = 0, j = p->count - 1; mirror && i < j; i++, j--) {
        int32_t t = axis->starts[i];
        axis->starts[i] = axis->starts[j];
        axis->starts[j] = t;
    }
    for (int32_t i = 0; i < p->count; i++) {
        axis->starts[i] = axis->starts[i] < last_start ? axis->starts[i] : last_start;
    }
}

/* ---------------------------------------------------------------------------------- the loops */

static uint8_t clamp_u8(int32_t v) {
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void
plain_rows(uint8_t *const *out, const uint8_t *const *in, const struct resize_axis *axis) {
    int32_t half = (1 << axis->bits) >> 1;
    for (int32_t r = 0; r < RESIZE_ROWS_AT_ONCE; r++) {
        const int16_t *w = axis->weights;
        uint8_t *to = out[r];
        for (int32_t i = 0; i < axis->count; i++) {
            const uint8_t *from = in[r] + (size_t)axis->starts[i] * 3;
            int32_t left = axis->limit - axis->starts[i];
            int32_t taps = axis->taps < left ? axis->taps : left;
            int32_t sum[3] = {half, half, half};
            for (int32_t j = 0; j < taps; j++) {
                for (int32_t c = 0; c < 3; c++) {
                    sum[c] += w[j] * from[3 * j + c];
                }
            }
            for (int32_t c = 0; c < 3; c++) {
                to[c] = clamp_u8(sum[c] >> axis->bits);
            }
            w += axis->taps;
            to += 3;
        }
    }
}

static void plain_column(uint8_t *out,
                         const uint8_t *in,
                         size_t stride_bytes,
                         int32_t row_count,
                         size_t size_bytes,
                         const int16_t *weights,
                         const struct resize_axis *axis) {
    int32_t rows = axis->used < row_count ? axis->used : row_count;
    for (size_t x = 0; x < size_bytes; x++) {
        int32_t sum = (1 << axis->bits) >> 1;
        for (int32_t j = 0; j < rows; j++) {
            sum += weights[j] * in[(size_t)j * stride_bytes + x];
        }
        out[x] = clamp_u8(sum >> axis->bits);
    }
}

const struct resize_kernels *resize_kernels_plain(void) {
    static const struct resize_kernels plain = {
        .name = "plain",
        .rows = plain_rows,
        .column = plain_column,
        .reads_windows = false,
    };
    return &plain;
}

/* -------------------------------------------------------------------------------- one resize */

void resize_workspace_init(struct resize_workspace *s) {
    *s = (struct resize_workspace){0};
}

void resize_workspace_fini(struct resize_workspace *s) {
    free(s->data);
    *s = (struct resize_workspace){0};
}

static size_t padded(size_t size_bytes) {
    return (size_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* Offsets of the parts of the workspace, in their order. */
struct layout {
    size_t x_starts, x_weights, y_starts, y_weights, real, table, last_row, middle, total;
};

static struct layout plan_layout(const struct axis_plan *x,
                                 const struct axis_plan *y,
                                 const struct resize_kernels *k,
                                 size_t row_bytes,
                                 size_t middle_bytes) {
    size_t x_count = (size_t)x->count * (size_t)x->taps;
    size_t y_count = (size_t)y->count * (size_t)y->taps;
    size_t most = x_count > y_count ? x_count : y_count;
    struct layout l = {0};
    l.x_starts = 0;
    l.x_weights = l.x_starts + padded((size_t)x->count * sizeof(int32_t));
    l.y_starts = l.x_weights + padded(x_count * sizeof(int16_t));
    l.y_weights = l.y_starts + padded((size_t)y->count * sizeof(int32_t));
    l.real = l.y_weights + padded(y_count * sizeof(int16_t));
    l.table = l.real + padded(most * sizeof(double));
    l.last_row = l.table + (k->table_bytes != NULL ? padded(k->table_bytes(x->count, x->taps)) : 0);
    l.middle = l.last_row + padded(row_bytes + RESIZE_OVERREAD_BYTES);
    l.total = l.middle + padded(middle_bytes);
    return l;
}

enum status
resize_workspace_reserve(struct resize_workspace *s, size_t size_bytes, struct error *err) {
    if (size_bytes <= s->capacity_bytes) {
        return STATUS_OK;
    }
    size_t capacity = padded(size_bytes + size_bytes / 3);
    uint8_t *data = aligned_alloc(ALIGN_BYTES, capacity);
    TRY_MEMORY(data, err, "out of memory for an image: %zu bytes", capacity);
    free(s->data);
    s->data = data;
    s->capacity_bytes = capacity;
    return STATUS_OK;
}

/* The first pass, computed on demand of the second one, so that the intermediate rows are still in
 * the L1 cache when they are read. */
struct middle {
    uint8_t *data;
    size_t stride_bytes;
    const struct image_view *in;
    const uint8_t *last_row; /* the input's last row, or a copy that may be read beyond its end */
    int32_t first;           /* input row of the first row here */
    int32_t rows;            /* needed in total */
    int32_t made;            /* so far, perhaps more than `rows` */
};

static void make_rows(struct middle *m,
                      int32_t until,
                      const struct resize_kernels *k,
                      const struct resize_axis *axis) {
    until = until < m->rows ? until : m->rows;
    for (; m->made < until; m->made += RESIZE_ROWS_AT_ONCE) {
        uint8_t *to[RESIZE_ROWS_AT_ONCE];
        const uint8_t *from[RESIZE_ROWS_AT_ONCE];
        for (int32_t r = 0; r < RESIZE_ROWS_AT_ONCE; r++) {
            int32_t row = m->made + r < m->rows ? m->made + r : m->rows - 1;
            bool last = m->first + row == m->in->height_px - 1;
            to[r] = m->data + (size_t)row * m->stride_bytes;
            from[r] = last ? m->last_row : image_row(m->in, m->first + row);
        }
        k->rows(to, from, axis);
    }
}

enum status resize_image_with(const struct resize_kernels *k,
                              const struct image_view *out,
                              const struct image_view *in,
                              const struct image_box *box,
                              const struct image_box *within,
                              enum resize_filter filter,
                              bool mirror,
                              struct resize_workspace *workspace,
                              struct error *err) {
    struct axis_plan px =
        plan_axis((struct span){box->x, box->width}, (struct span){within->x, within->width},
                  in->width_px, out->width_px, filter);
    struct axis_plan py =
        plan_axis((struct span){box->y, box->height}, (struct span){within->y, within->height},
                  in->height_px, out->height_px, filter);
    size_t row_bytes = (size_t)out->width_px * 3;
    size_t middle_stride = padded(row_bytes + RESIZE_OVERWRITE_BYTES);
    int32_t rows = py.last - py.first;
    struct layout l =
        plan_layout(&px, &py, k, (size_t)in->width_px * 3, middle_stride * (size_t)rows);
    TRY(resize_workspace_reserve(workspace, l.total, err));
    uint8_t *base = workspace->data;
    double *real = (double *)(void *)(base + l.real);
    struct resize_axis ax = {.starts = (int32_t *)(void *)(base + l.x_starts),
                             .weights = (int16_t *)(void *)(base + l.x_weights),
                             .limit = in->width_px};
    struct resize_axis ay = {.starts = (int32_t *)(void *)(base + l.y_starts),
                             .weights = (int16_t *)(void *)(base + l.y_weights),
                             .limit = in->height_px};
    bool windows = k->reads_windows && in->width_px >= px.taps;
    int32_t last_start = windows ? in->width_px - px.taps : INT32_MAX;
    const struct resize_kernels *row_kernels = windows ? k : resize_kernels_plain();
    if (windows) {
        memcpy(base + l.last_row, image_row(in, in->height_px - 1), (size_t)in->width_px * 3);
    }
    fill_axis(&ax, real, &px, filter, mirror, last_start);
    fill_axis(&ay, real, &py, filter, false, INT32_MAX);
    if (row_kernels->fill_table != NULL && row_kernels->fill_table(base + l.table, &ax)) {
        ax.table = base + l.table;
    }
    struct middle m = {.data = base + l.middle,
                       .stride_bytes = middle_stride,
                       .in = in,
                       .last_row = windows ? base + l.last_row : image_row(in, in->height_px - 1),
                       .first = py.first,
                       .rows = rows};
    for (int32_t y = 0; y < out->height_px; y++) {
        int32_t first = ay.starts[y] - py.first;
        make_rows(&m, first + ay.taps, row_kernels, &ax);
        k->column(image_row(out, y), m.data + (size_t)first * middle_stride, middle_stride,
                  rows - first, row_bytes, ay.weights + (size_t)y * (size_t)ay.taps, &ay);
    }
    return STATUS_OK;
}

const struct resize_kernels *resize_kernels_fastest(void) {
    const struct resize_kernels *wide = resize_kernels_avx512();
    wide = wide != NULL ? wide : resize_kernels_avx2();
    return wide != NULL ? wide : resize_kernels_plain();
}

enum status resize_image(const struct image_view *out,
                         const struct image_view *in,
                         const struct image_box *box,
                         const struct image_box *within,
                         enum resize_filter filter,
                         bool mirror,
                         struct resize_workspace *workspace,
                         struct error *err) {
    const double slack = 1e-6; /* a box computed with quotients may exceed by a rounding error */
    REQUIRE(out != NULL && in != NULL && box != NULL && workspace != NULL);
    within = within != NULL ? within : box;
    REQUIRE(filter >= RESIZE_BILINEAR && filter <= RESIZE_LANCZOS);
    REQUIRE(out->width_px >= 1 && out->width_px <= IMAGE_MAX_SIDE_PX);
    REQUIRE(out->height_px >= 1 && out->height_px <= IMAGE_MAX_SIDE_PX);
    REQUIRE(box->width > 0 && box->height > 0 && within->x >= 0 && within->y >= 0);
    REQUIRE(box->x >= within->x - slack && box->y >= within->y - slack);
    REQUIRE(box->x + box->width <= within->x + within->width + slack);
    REQUIRE(box->y + box->height <= within->y + within->height + slack);
    REQUIRE(within->x + within->width <= in->width_px + slack);
    REQUIRE(within->y + within->height <= in->height_px + slack);
    return resize_image_with(resize_kernels_fastest(), out, in, box, within, filter, mirror,
                             workspace, err);
}

bool resize_short_size(int32_t *out_width_px,
                       int32_t *out_height_px,
                       int32_t width_px,
                       int32_t height_px,
                       int32_t short_px) {
    int32_t shorter = width_px < height_px ? width_px : height_px;
    *out_width_px = width_px;
    *out_height_px = height_px;
    if (shorter <= short_px) {
        return false;
    }
    int64_t half = shorter / 2;
    *out_width_px = (int32_t)(((int64_t)width_px * short_px + half) / shorter);
    *out_height_px = (int32_t)(((int64_t)height_px * short_px + half) / shorter);
    return true;
}
