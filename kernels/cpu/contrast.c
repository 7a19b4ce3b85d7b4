/*
 * contrast: kernels/contrast.h on a CPU. A line, which is a row or a column, has one thread and one
 * order of additions. Columns are copied to lines of their own, GROUP at a time.
 */
#include "kernels/contrast.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/exp_negative.h"

/* Columns that are copied together, and the floats between two lines beyond their elements: without
 * them lines of 2,048 would share their places in the cache. */
enum { GROUP = 16, GAP = 16 };

struct line {
    const float *s;       /* its elements, */
    float *g;             /* and their gradient */
    int64_t at;           /* its place in `own` */
    int64_t first, count; /* the elements' places in `others` */
    const struct contrast_lines *own, *others;
    bool takes;
};

/* ---- loops ---- */

static inline float power(float s, double shift, double rate, double largest) {
    return exp_negative((float)(((double)s - shift) * rate - largest));
}

static CPU_CLONES double
largest_of(const float *s, const double *shift, double rate, double largest, int64_t count) {
#pragma omp simd reduction(max : largest)
    for (int64_t c = 0; c < count; c++) {
        const double e = ((double)s[c] - shift[c]) * rate;
        largest = e > largest ? e : largest;
    }
    return largest;
}

static CPU_CLONES void add_sums(double *sum,
                                double *weighted,
                                const float *s,
                                const double *shift,
                                double rate,
                                double largest,
                                int64_t count) {
    double total = 0.0;
    double moment = 0.0;
#pragma omp simd reduction(+ : total, moment)
    for (int64_t c = 0; c < count; c++) {
        const double p = (double)power(s[c], shift[c], rate, largest);
        total += p;
        moment += p * (double)s[c];
    }
    *sum += total;
    *weighted += moment;
}

static CPU_CLONES void add_weights(float *g,
                                   const float *s,
                                   const double *shift,
                                   double rate,
                                   double largest,
                                   double weight,
                                   int64_t count) {
#pragma omp simd
    for (int64_t c = 0; c < count; c++) {
        g[c] = (float)((double)g[c] + weight * (double)power(s[c], shift[c], rate, largest));
    }
}

/* Of a line as the contrast of anchors. */
static CPU_CLONES double taken_by(const double *popularity,
                                  const double *rate,
                                  const double *largest,
                                  const float *s,
                                  double shift,
                                  int64_t count) {
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int64_t a = 0; a < count; a++) {
        sum += popularity[a] * (double)power(s[a], shift, rate[a], largest[a]);
    }
    return sum;
}

/* ---- a line ---- */

static void sum_line(const struct line *l) {
    const struct contrast_lines *o = l->own;
    const double *shift = l->others->shift + l->first;
    const double before = o->largest[l->at];
    const double rate = o->rate[l->at];
    const double largest = largest_of(l->s, shift, rate, before, l->count);
    o->largest[l->at] = largest;
    o->sum[l->at] *= exp(before - largest);
    o->weighted[l->at] *= exp(before - largest);
    add_sums(&o->sum[l->at], &o->weighted[l->at], l->s, shift, rate, largest, l->count);
}

static void weigh_line(const struct line *l) {
    const struct contrast_lines *o = l->own;
    const struct contrast_lines *x = l->others;
    add_weights(l->g, l->s, x->shift + l->first, o->rate[l->at], o->largest[l->at],
                o->weight[l->at], l->count);
    if (l->takes) {
        o->taken[l->at] += taken_by(x->popularity + l->first, x->rate + l->first,
                                    x->largest + l->first, l->s, o->shift[l->at], l->count);
    }
}

/* ---- a tile ---- */

/* Elements of m on the diagonal of S: to `out`, and hidden or replaced by `in`; both by row of S.
 */
static void
diagonal(const struct contrast_tile *t, const struct tensor *m, double *out, double *in) {
    for (int64_t r = 0; r < m->shape[0]; r++) {
        const int64_t c = t->row + r - t->column;
        if (c >= 0 && c < m->shape[1]) {
            float *at = (float *)m->data + r * m->shape[1] + c;
            if (out != NULL) {
                out[t->row + r] = (double)*at;
            }
            *at = in != NULL ? (float)in[t->row + r] : CONTRAST_HIDDEN;
        }
    }
}

/* `count` columns of the tile, of `rows` elements, from m to lines or added back to m. */
static void
move_columns(float *lines, float *m, int64_t width, int64_t rows, int64_t count, bool back) {
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t k = 0; k < count; k++) {
            if (back) {
                m[r * width + k] += lines[k * (rows + GAP) + r];
            } else {
                lines[k * (rows + GAP) + r] = m[r * width + k];
            }
        }
    }
}

static enum status each_line(struct device *dev,
                             const struct contrast_tile *t,
                             bool columns,
                             void (*work)(const struct line *),
                             struct error *err) {
    const int64_t width = t->s.shape[1];
    const int64_t lines = columns ? width : t->s.shape[0];
    const int64_t count = columns ? t->s.shape[0] : width;
    const int64_t stride = columns ? count + GAP : width;
    const bool weighs = work == weigh_line;
    void *room = NULL;
    TRY(cpu_scratch(dev, (size_t)(omp_get_max_threads() * 2 * GROUP * stride) * sizeof(float),
                    &room, err));
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < lines; first += GROUP) {
        const int64_t n = lines - first < GROUP ? lines - first : GROUP;
        float *s = (float *)t->s.data + first * width;
        float *g = (float *)t->g.data + first * width;
        if (columns) {
            s = (float *)room + omp_get_thread_num() * 2 * GROUP * stride;
            g = s + GROUP * stride;
            move_columns(s, (float *)t->s.data + first, width, count, n, false);
            memset(g, 0, (size_t)(n * stride) * sizeof *g);
        }
        for (int64_t k = 0; k < n; k++) {
            work(&(struct line){.s = s + k * stride,
                                .g = g + k * stride,
                                .at = (columns ? t->column : t->row) + first + k,
                                .first = columns ? t->row : t->column,
                                .count = count,
                                .own = columns ? t->columns : t->rows,
                                .others = columns ? t->rows : t->columns,
                                .takes = t->takes});
        }
        if (columns && weighs) {
            move_columns(g, (float *)t->g.data + first, width, count, n, true);
        }
    }
    return STATUS_OK;
}

static enum status
cpu_contrast_sums(struct device *dev, const struct contrast_tile *t, struct error *err) {
    diagonal(t, &t->s, t->rows->own, NULL);
    TRY(each_line(dev, t, false, sum_line, err));
    return each_line(dev, t, true, sum_line, err);
}

static enum status
cpu_contrast_gradient(struct device *dev, const struct contrast_tile *t, struct error *err) {
    diagonal(t, &t->s, NULL, NULL);
    memset(t->g.data, 0, tensor_size_bytes(&t->g));
    TRY(each_line(dev, t, false, weigh_line, err));
    TRY(each_line(dev, t, true, weigh_line, err));
    diagonal(t, &t->g, NULL, t->rows->own_gradient);
    return STATUS_OK;
}

const struct device_contrasts cpu_contrasts = {.sums = cpu_contrast_sums,
                                               .gradient = cpu_contrast_gradient};
