/*
 * contrast: kernels/contrast.h on a CPU. Each thread takes blocks of a tile's rows. A block is
 * processed in chunks that fit into the cache, for rows and columns at once. Its partial sums of a
 * column are a part, and parts are added in block order: the order of additions depends only on the
 * shape of the tile.
 *
 *            CHUNK     CHUNK
 *         +---------+---------+--
 *   block | ------> | ------> |     largest of each line, then sums
 *         +---------+---------+--
 *           parts     parts
 */
#include "kernels/contrast.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/exp_negative.h"

/* Maximum of blocks per tile, minimum of rows per block, and columns of a chunk. */
enum { BLOCKS = 64, BLOCK_ROWS = 32, CHUNK = 256 };

/* A block's numbers of columns: planes with one number per column of the tile. In the second pass
 * only one plane, of `taken`. */
enum part { PART_LARGEST, PART_SUM, PART_WEIGHTED, PARTS };

/* ---- loops over `count` elements of row r, of columns x ---- */

static inline float power(float s, double shift, double rate, double largest) {
    return exp_negative((float)(((double)s - shift) * rate - largest));
}

/* Raises the largest of row and columns, and rescales the row's sums accordingly. */
static CPU_CLONES void raise_largest(const struct contrast_lines *r,
                                     double *part,
                                     const float *s,
                                     const struct contrast_lines *x,
                                     int64_t count) {
    const double *x_rate = x->rate;
    const double *x_shift = x->shift;
    const double rate = r->rate[0];
    const double shift = r->shift[0];
    double largest = r->largest[0];
#pragma omp simd reduction(max : largest)
    for (int64_t c = 0; c < count; c++) {
        const double of_row = ((double)s[c] - x_shift[c]) * rate;
        const double of_column = ((double)s[c] - shift) * x_rate[c];
        largest = of_row > largest ? of_row : largest;
        part[c] = of_column > part[c] ? of_column : part[c];
    }
    if (largest > r->largest[0]) {
        const double scale = exp(r->largest[0] - largest);
        r->largest[0] = largest;
        r->sum[0] *= scale;
        r->weighted[0] *= scale;
    }
}

static CPU_CLONES void add_sums(const struct contrast_lines *r,
                                const double *part_largest,
                                double *part_sum,
                                double *part_weighted,
                                const float *s,
                                const struct contrast_lines *x,
                                int64_t count) {
    const double *x_rate = x->rate;
    const double *x_shift = x->shift;
    const double rate = r->rate[0];
    const double shift = r->shift[0];
    const double largest = r->largest[0];
    double sum = 0.0;
    double weighted = 0.0;
#pragma omp simd reduction(+ : sum, weighted)
    for (int64_t c = 0; c < count; c++) {
        const double p = (double)power(s[c], x_shift[c], rate, largest);
        const double q = (double)power(s[c], shift, x_rate[c], part_largest[c]);
        sum += p;
        weighted += p * (double)s[c];
        part_sum[c] += q;
        part_weighted[c] += q * (double)s[c];
    }
    r->sum[0] += sum;
    r->weighted[0] += weighted;
}

/* S becomes G. */
static CPU_CLONES void weigh(const struct contrast_lines *r,
                             double *part_taken,
                             float *s,
                             const struct contrast_lines *x,
                             int64_t count) {
    const struct contrast_lines of = *x;
    const double rate = r->rate[0];
    const double shift = r->shift[0];
    const double largest = r->largest[0];
    const double weight = r->weight[0];
    const double popularity = r->popularity[0];
    double taken = 0.0;
#pragma omp simd reduction(+ : taken)
    for (int64_t c = 0; c < count; c++) {
        const double p = (double)power(s[c], of.shift[c], rate, largest);
        const double q = (double)power(s[c], shift, of.rate[c], of.largest[c]);
        s[c] = (float)(weight * p + of.weight[c] * q);
        taken += of.popularity[c] * q;
        part_taken[c] += popularity * p;
    }
    r->taken[0] += taken;
}

/* ---- a block ---- */

struct block {
    const struct contrast_tile *tile;
    int64_t first, end; /* rows of the tile */
    double *parts;      /* (PARTS, columns of the tile) */
};

static float *element(const struct contrast_tile *t, int64_t row, int64_t column) {
    return (float *)t->s.data + row * t->s.shape[1] + column;
}

static struct contrast_lines lines_from(const struct contrast_lines *x, int64_t at) {
    return (struct contrast_lines){.rate = x->rate + at,
                                   .shift = x->shift + at,
                                   .largest = x->largest + at,
                                   .sum = x->sum + at,
                                   .weighted = x->weighted + at,
                                   .weight = x->weight + at,
                                   .popularity = x->popularity + at,
                                   .taken = x->taken + at};
}

static void sum_chunk(const struct block *b, int64_t column, int64_t count) {
    const struct contrast_tile *t = b->tile;
    const struct contrast_lines x = lines_from(t->columns, t->column + column);
    double *part[PARTS];
    for (int k = 0; k < PARTS; k++) {
        part[k] = b->parts + k * t->s.shape[1] + column;
        memset(part[k], 0, (size_t)count * sizeof *part[k]);
    }
    memcpy(part[PART_LARGEST], x.largest, (size_t)count * sizeof *x.largest);
    for (int64_t i = b->first; i < b->end; i++) {
        const struct contrast_lines r = lines_from(t->rows, t->row + i);
        raise_largest(&r, part[PART_LARGEST], element(t, i, column), &x, count);
    }
    for (int64_t i = b->first; i < b->end; i++) {
        const struct contrast_lines r = lines_from(t->rows, t->row + i);
        add_sums(&r, part[PART_LARGEST], part[PART_SUM], part[PART_WEIGHTED], element(t, i, column),
                 &x, count);
    }
}

static void weigh_chunk(const struct block *b, int64_t column, int64_t count) {
    const struct contrast_tile *t = b->tile;
    const struct contrast_lines x = lines_from(t->columns, t->column + column);
    memset(b->parts + column, 0, (size_t)count * sizeof *b->parts);
    for (int64_t i = b->first; i < b->end; i++) {
        const struct contrast_lines r = lines_from(t->rows, t->row + i);
        weigh(&r, b->parts + column, element(t, i, column), &x, count);
    }
}

/* ---- a tile ---- */

/* Copies the diagonal of S to `out`, and hides it or replaces it by `in`; both by row of S. */
static void diagonal(const struct contrast_tile *t, double *out, const double *in) {
    for (int64_t r = 0; r < t->s.shape[0]; r++) {
        const int64_t c = t->row + r - t->column;
        if (c >= 0 && c < t->s.shape[1]) {
            float *at = element(t, r, c);
            if (out != NULL) {
                out[t->row + r] = (double)*at;
            }
            *at = in != NULL ? (float)in[t->row + r] : CONTRAST_HIDDEN;
        }
    }
}

/* Adds a block's part of column c. */
static void close_sums(const struct contrast_tile *t, const double *parts, int64_t c) {
    const int64_t width = t->s.shape[1];
    const struct contrast_lines x = lines_from(t->columns, t->column + c);
    const double before = x.largest[0];
    const double part = parts[PART_LARGEST * width + c];
    const double old = part > before ? exp(before - part) : 1.0;
    const double added = part < before ? exp(part - before) : 1.0;
    x.largest[0] = part > before ? part : before;
    x.sum[0] = x.sum[0] * old + parts[PART_SUM * width + c] * added;
    x.weighted[0] = x.weighted[0] * old + parts[PART_WEIGHTED * width + c] * added;
}

static void close_taken(const struct contrast_tile *t, const double *parts, int64_t c) {
    t->columns->taken[t->column + c] += parts[c];
}

static enum status each_block(struct device *dev,
                              const struct contrast_tile *t,
                              void (*work)(const struct block *, int64_t column, int64_t count),
                              void (*close)(const struct contrast_tile *, const double *, int64_t),
                              struct error *err) {
    const int64_t rows = t->s.shape[0];
    const int64_t width = t->s.shape[1];
    const int64_t even = (rows + BLOCKS - 1) / BLOCKS;
    const int64_t each = even > BLOCK_ROWS ? even : BLOCK_ROWS;
    const int64_t blocks = (rows + each - 1) / each;
    void *parts = NULL;
    TRY(cpu_workspace(dev, (size_t)(blocks * PARTS * width) * sizeof(double), &parts, err));
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < blocks; i++) {
            const struct block b = {.tile = t,
                                    .first = i * each,
                                    .end = i + 1 < blocks ? (i + 1) * each : rows,
                                    .parts = (double *)parts + i * PARTS * width};
            for (int64_t c = 0; c < width; c += CHUNK) {
                work(&b, c, width - c < CHUNK ? width - c : CHUNK);
            }
        }
#pragma omp for schedule(static)
        for (int64_t c = 0; c < width; c++) {
            for (int64_t i = 0; i < blocks; i++) {
                close(t, (const double *)parts + i * PARTS * width, c);
            }
        }
    }
    return STATUS_OK;
}

static enum status
cpu_contrast_sums(struct device *dev, const struct contrast_tile *t, struct error *err) {
    diagonal(t, t->rows->positive, NULL);
    return each_block(dev, t, sum_chunk, close_sums, err);
}

static enum status
cpu_contrast_gradient(struct device *dev, const struct contrast_tile *t, struct error *err) {
    diagonal(t, NULL, NULL);
    TRY(each_block(dev, t, weigh_chunk, close_taken, err));
    diagonal(t, NULL, t->rows->positive_gradient);
    return STATUS_OK;
}

const struct device_contrasts cpu_contrasts = {.sums = cpu_contrast_sums,
                                               .gradient = cpu_contrast_gradient};
