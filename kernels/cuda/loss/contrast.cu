/*
 * contrast: kernels/contrast.h on a GPU. A block of threads has one row of the tile, or COLUMNS
 * adjacent columns, so that neighbouring threads read neighbouring elements:
 *
 *   a row        thread t has the elements t, t + THREADS, ...
 *   columns      thread t of column t % COLUMNS has the elements t / COLUMNS, ... of that column
 *
 * The order of additions depends only on the shape of the tile.
 */
#include "kernels/contrast.h"

#include "kernels/cuda/device/common.cuh"
#include "kernels/cuda/loss/loss_internal.h"

enum { COLUMNS = 32 };

struct tile {
    float *s;
    int64_t rows, columns;
};

/* Calls f(k, element) for this thread's elements of the line; k is the number of the line of the
 * other side. LINES is 1 or COLUMNS. */
template <int LINES, typename F>
static __device__ __forceinline__ void each_element(const struct tile &t, int64_t line, F f) {
    const int64_t count = LINES == 1 ? t.columns : t.rows;
    for (int64_t k = threadIdx.x / LINES; k < count && (LINES == 1 || line < t.columns);
         k += THREADS / LINES) {
        f(k, t.s[LINES == 1 ? line * t.columns + k : k * t.columns + line]);
    }
}

struct larger {
    static __device__ __forceinline__ double of(double a, double b) {
        return fmax(a, b);
    }
};
struct added {
    static __device__ __forceinline__ double of(double a, double b) {
        return a + b;
    }
};

/* Reduces x over the threads of a line; all of them receive the result. */
template <int LINES, typename OP>
static __device__ __forceinline__ double over_line(double x, double (&room)[THREADS]) {
    room[threadIdx.x] = x;
    for (unsigned n = THREADS / 2; n >= LINES; n /= 2) {
        __syncthreads();
        if (threadIdx.x < n) {
            room[threadIdx.x] = OP::of(room[threadIdx.x], room[threadIdx.x + n]);
        }
    }
    __syncthreads();
    x = room[threadIdx.x % LINES];
    __syncthreads();
    return x;
}

static __device__ __forceinline__ double power(float s, double shift, double rate, double largest) {
    return (double)expf((float)(((double)s - shift) * rate - largest));
}

/* Sums of anchors `a`, one per line, over their negatives c. */
template <int LINES>
static __global__ void
contrast_sums(struct tile t, struct contrast_lines a, struct contrast_lines c) {
    __shared__ double room[THREADS];
    const int64_t line = (int64_t)blockIdx.x * LINES + threadIdx.x % LINES;
    const bool exists = LINES == 1 || line < t.columns;
    const double rate = exists ? a.rate[line] : 0.0;
    const double before = exists ? a.largest[line] : 0.0;
    double largest = before;
    each_element<LINES>(t, line, [&](int64_t k, float s) {
        largest = fmax(largest, ((double)s - c.shift[k]) * rate);
    });
    largest = over_line<LINES, larger>(largest, room);
    double sum = 0.0;
    double weighted = 0.0;
    each_element<LINES>(t, line, [&](int64_t k, float s) {
        const double p = power(s, c.shift[k], rate, largest);
        sum += p;
        weighted += p * (double)s;
    });
    sum = over_line<LINES, added>(sum, room);
    weighted = over_line<LINES, added>(weighted, room);
    if (threadIdx.x < LINES && exists) {
        const double scale = exp(before - largest);
        a.largest[line] = largest;
        a.sum[line] = a.sum[line] * scale + sum;
        a.weighted[line] = a.weighted[line] * scale + weighted;
    }
}

/* `taken` of the lines x, as negatives of the anchors o; rows also replace S by G. */
template <int LINES>
static __global__ void
contrast_gradient(struct tile t, struct contrast_lines x, struct contrast_lines o) {
    __shared__ double room[THREADS];
    const int64_t line = (int64_t)blockIdx.x * LINES + threadIdx.x % LINES;
    double taken = 0.0;
    each_element<LINES>(t, line, [&](int64_t k, float &s) {
        const double q = power(s, x.shift[line], o.rate[k], o.largest[k]);
        taken += o.popularity[k] * q;
        if (LINES == 1) {
            const double p = power(s, o.shift[k], x.rate[line], x.largest[line]);
            s = (float)(x.weight[line] * p + o.weight[k] * q);
        }
    });
    taken = over_line<LINES, added>(taken, room);
    if (threadIdx.x < LINES && (LINES == 1 || line < t.columns)) {
        x.taken[line] += taken;
    }
}

/* Copies `count` positives of S from `first` on to `out`; replaces them by `in`, or hides them. */
static __global__ void
contrast_own(float *first, int64_t step, int64_t count, double *out, const double *in) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) {
        float *at = first + i * step;
        if (out != NULL) {
            out[i] = (double)*at;
        }
        *at = in != NULL ? (float)in[i] : CONTRAST_HIDDEN;
    }
}

/* ---- host side ---- */

static struct tile tile_of(const struct contrast_tile *t) {
    return {(float *)t->s.data, t->s.shape[0], t->s.shape[1]};
}

/* The lines from `at` on: the tile's rows or columns. */
static struct contrast_lines lines_of(const struct contrast_lines *x, int64_t at) {
    return {x->rate + at,       x->shift + at,
            x->largest + at,    x->sum + at,
            x->weighted + at,   x->weight + at,
            x->popularity + at, x->taken + at,
            x->positive + at,   x->positive_gradient + at};
}

/* Positives are the elements of S whose row and column numbers are equal. */
static cudaError_t
launch_own(cudaStream_t stream, const struct contrast_tile *t, bool report, bool replace) {
    const int64_t first = t->row > t->column ? t->row : t->column;
    const int64_t rows = t->row + t->s.shape[0];
    const int64_t columns = t->column + t->s.shape[1];
    const int64_t count = (rows < columns ? rows : columns) - first;
    const int64_t width = t->s.shape[1];
    return count <= 0 ? cudaSuccess
                      : launch(stream, dim3((unsigned)ceil_div(count, THREADS)), contrast_own,
                               (float *)t->s.data + (first - t->row) * width + first - t->column,
                               width + 1, count, report ? t->rows->positive + first : NULL,
                               replace ? t->rows->positive_gradient + first : NULL);
}

cudaError_t launch_contrast_sums(cudaStream_t stream, const struct contrast_tile *t) {
    const struct contrast_lines rows = lines_of(t->rows, t->row);
    const struct contrast_lines columns = lines_of(t->columns, t->column);
    const dim3 blocks((unsigned)ceil_div(t->s.shape[1], COLUMNS));
    TRY_LAUNCH(launch_own(stream, t, true, false));
    TRY_LAUNCH(launch(stream, blocks, contrast_sums<COLUMNS>, tile_of(t), columns, rows));
    return launch(stream, dim3((unsigned)t->s.shape[0]), contrast_sums<1>, tile_of(t), rows,
                  columns);
}

cudaError_t launch_contrast_gradient(cudaStream_t stream, const struct contrast_tile *t) {
    const struct contrast_lines rows = lines_of(t->rows, t->row);
    const struct contrast_lines columns = lines_of(t->columns, t->column);
    const dim3 blocks((unsigned)ceil_div(t->s.shape[1], COLUMNS));
    TRY_LAUNCH(launch_own(stream, t, false, false));
    TRY_LAUNCH(launch(stream, blocks, contrast_gradient<COLUMNS>, tile_of(t), columns, rows));
    TRY_LAUNCH(launch(stream, dim3((unsigned)t->s.shape[0]), contrast_gradient<1>, tile_of(t), rows,
                      columns));
    return launch_own(stream, t, false, true);
}
