/*
 * pool: maximum, average and whole-plane average over in (N,H,W,C). One thread per V neighbouring
 * channels of an output. In the backward pass every input gathers from the windows that contain it,
 * so no two threads add to one element.
 */
#include "kernels/cuda/device/common.cuh"

struct plane {
    int64_t n;
    int32_t h, w, c, oh, ow;
    struct pool_params pool;
};

struct plane_place {
    int64_t n;
    int32_t y, x, c;
};

/* Calls f(place, element) for this thread's groups of V channels of a tensor (N,h,w,C). A block
 * takes whole rows, so that only 32-bit numbers are divided for every piece. */
template <int V, typename F>
static __device__ __forceinline__ void
each_piece(int64_t n, int32_t h, int32_t w, int32_t channels, F f) {
    const int32_t across = channels / V;
    const int32_t pieces = w * across;
    for (int64_t row = blockIdx.x; row < n * h; row += gridDim.x) {
        for (int32_t i = threadIdx.x; i < pieces; i += THREADS) {
            const struct plane_place p = {row / h, (int32_t)(row % h), i / across, i % across * V};
            f(p, (row * pieces + i) * V);
        }
    }
}

struct range {
    int32_t begin, end;
};

/* Inputs of output o along an axis, truncated at the borders. */
static __device__ __forceinline__ struct range
inputs_of(int32_t o, const struct pool_params &pool, int32_t size) {
    const int32_t begin = o * pool.stride - pool.pad;
    const int32_t end = begin + pool.kernel;
    return {begin < 0 ? 0 : begin, end > size ? size : end};
}

/* Outputs whose window contains input i of an axis. */
static __device__ __forceinline__ struct range
outputs_of(int32_t i, const struct pool_params &pool, int32_t out_size) {
    const int32_t from = i + pool.pad - pool.kernel + 1; /* smallest o * stride */
    const int32_t begin = from <= 0 ? 0 : (from + pool.stride - 1) / pool.stride;
    const int32_t end = (i + pool.pad) / pool.stride + 1;
    return {begin, end > out_size ? out_size : end};
}

/* V elements of an argmax, 16 bytes at a time. */
template <int V>
static __device__ __forceinline__ void load_places(int32_t (&x)[V], const int32_t *from) {
    constexpr int PIECE = V < 4 ? V : 4;
#pragma unroll
    for (int i = 0; i < V; i += PIECE) {
        const vector<int32_t, PIECE> piece = load_vector<int32_t, PIECE>(from + i);
        memcpy(x + i, &piece, sizeof piece);
    }
}

template <int V>
static __device__ __forceinline__ void store_places(int32_t *to, const int32_t (&x)[V]) {
    constexpr int PIECE = V < 4 ? V : 4;
    typedef typename access<PIECE * sizeof(int32_t)>::word word;
#pragma unroll
    for (int i = 0; i < V; i += PIECE) {
        word w;
        memcpy(&w, x + i, sizeof w);
        put_word(reinterpret_cast<word *>(to + i), w);
    }
}

static __device__ __forceinline__ int64_t first_piece(int64_t *step) {
    *step = (int64_t)gridDim.x * THREADS;
    return (int64_t)blockIdx.x * THREADS + threadIdx.x;
}

/* in (N,H,W,C), out (N,OH,OW,C) or, of a whole plane, (N,C) */
static struct plane
plane_of(const struct tensor &in, const struct tensor &out, const struct pool_params &pool) {
    const bool whole = out.ndim == 2;
    return {in.shape[0],
            (int32_t)in.shape[1],
            (int32_t)in.shape[2],
            (int32_t)in.shape[3],
            whole ? 1 : (int32_t)out.shape[1],
            whole ? 1 : (int32_t)out.shape[2],
            pool};
}

template <typename T, int V>
static __global__ void maxpool(T *out, int32_t *argmax, const T *in, struct plane s) {
    each_piece<V>(s.n, s.oh, s.ow, s.c, [&](const struct plane_place &p, int64_t at) {
        const struct range ys = inputs_of(p.y, s.pool, s.h);
        const struct range xs = inputs_of(p.x, s.pool, s.w);
        float best[V] = {};
        int32_t cell[V];
#pragma unroll
        for (int k = 0; k < V; k++) {
            cell[k] = -1;
        }
        for (int32_t y = ys.begin; y < ys.end; y++) {
            for (int32_t x = xs.begin; x < xs.end; x++) {
                const int32_t ky = y - (p.y * s.pool.stride - s.pool.pad);
                const int32_t kx = x - (p.x * s.pool.stride - s.pool.pad);
                float value[V];
                load(value, in + ((p.n * s.h + y) * s.w + x) * s.c + p.c);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    if (cell[k] < 0 || value[k] > best[k]) {
                        best[k] = value[k];
                        cell[k] = ky * s.pool.kernel + kx;
                    }
                }
            }
        }
        store(out + at, best);
        store_places(argmax + at, cell);
    });
}

template <typename T, int V>
static cudaError_t run_maxpool(const struct launch_on &on, const struct maxpool &op) {
    const struct plane s = plane_of(op.in, op.out, op.pool);
    return launch(on.stream, blocks_for(s.n * s.oh * THREADS), maxpool<T, V>, (T *)op.out.data,
                  (int32_t *)op.argmax.data, (const T *)op.in.data, s);
}

LAUNCHER(maxpool, maxpool, in, wide(op->in, op->out, op->argmax))

template <typename T, int V>
static __global__ void
maxpool_bwd(T *din, bool add, const T *dout, const int32_t *argmax, struct plane s) {
    each_piece<V>(s.n, s.h, s.w, s.c, [&](const struct plane_place &p, int64_t at) {
        const struct range ys = outputs_of(p.y, s.pool, s.oh);
        const struct range xs = outputs_of(p.x, s.pool, s.ow);
        float sum[V] = {};
        for (int32_t oy = ys.begin; oy < ys.end; oy++) {
            for (int32_t ox = xs.begin; ox < xs.end; ox++) {
                const int32_t ky = p.y + s.pool.pad - oy * s.pool.stride;
                const int32_t kx = p.x + s.pool.pad - ox * s.pool.stride;
                const int32_t cell = ky * s.pool.kernel + kx;
                const int64_t o = ((p.n * s.oh + oy) * s.ow + ox) * s.c + p.c;
                float g[V];
                int32_t places[V];
                load(g, dout + o);
                load_places(places, argmax + o);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    sum[k] += places[k] == cell ? g[k] : 0.0f;
                }
            }
        }
        store_mode(din + at, sum, add);
    });
}

template <typename T, int V>
static cudaError_t run_maxpool_bwd(const struct launch_on &on, const struct maxpool_bwd &op) {
    const struct plane s = plane_of(op.din, op.dout, op.pool);
    return launch(on.stream, blocks_for(s.n * s.h * THREADS), maxpool_bwd<T, V>, (T *)op.din.data,
                  op.mode == WRITE_ADD, (const T *)op.dout.data, (const int32_t *)op.argmax.data,
                  s);
}

LAUNCHER(maxpool_bwd, maxpool_bwd, din, wide(op->din, op->dout, op->argmax))

/* ---- average ---- */

template <typename T, int V> static __global__ void avgpool(T *out, const T *in, struct plane s) {
    each_piece<V>(s.n, s.oh, s.ow, s.c, [&](const struct plane_place &p, int64_t at) {
        const struct range ys = inputs_of(p.y, s.pool, s.h);
        const struct range xs = inputs_of(p.x, s.pool, s.w);
        float sum[V] = {};
        for (int32_t y = ys.begin; y < ys.end; y++) {
            for (int32_t x = xs.begin; x < xs.end; x++) {
                float value[V];
                load(value, in + ((p.n * s.h + y) * s.w + x) * s.c + p.c);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    sum[k] += value[k];
                }
            }
        }
        const float count = (float)((ys.end - ys.begin) * (xs.end - xs.begin));
#pragma unroll
        for (int k = 0; k < V; k++) {
            sum[k] /= count;
        }
        store(out + at, sum);
    });
}

template <typename T, int V>
static cudaError_t run_avgpool(const struct launch_on &on, const struct avgpool &op) {
    const struct plane s = plane_of(op.in, op.out, op.pool);
    return launch(on.stream, blocks_for(s.n * s.oh * THREADS), avgpool<T, V>, (T *)op.out.data,
                  (const T *)op.in.data, s);
}

LAUNCHER(avgpool, avgpool, in, wide(op->in, op->out))

template <typename T, int V>
static __global__ void avgpool_bwd(T *din, bool add, const T *dout, struct plane s) {
    each_piece<V>(s.n, s.h, s.w, s.c, [&](const struct plane_place &p, int64_t at) {
        const struct range ys = outputs_of(p.y, s.pool, s.oh);
        const struct range xs = outputs_of(p.x, s.pool, s.ow);
        float sum[V] = {};
        for (int32_t oy = ys.begin; oy < ys.end; oy++) {
            for (int32_t ox = xs.begin; ox < xs.end; ox++) {
                const struct range wy = inputs_of(oy, s.pool, s.h);
                const struct range wx = inputs_of(ox, s.pool, s.w);
                const float count = (float)((wy.end - wy.begin) * (wx.end - wx.begin));
                float g[V];
                load(g, dout + ((p.n * s.oh + oy) * s.ow + ox) * s.c + p.c);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    sum[k] += g[k] / count;
                }
            }
        }
        store_mode(din + at, sum, add);
    });
}

template <typename T, int V>
static cudaError_t run_avgpool_bwd(const struct launch_on &on, const struct avgpool_bwd &op) {
    const struct plane s = plane_of(op.din, op.dout, op.pool);
    return launch(on.stream, blocks_for(s.n * s.h * THREADS), avgpool_bwd<T, V>, (T *)op.din.data,
                  op.mode == WRITE_ADD, (const T *)op.dout.data, s);
}

LAUNCHER(avgpool_bwd, avgpool_bwd, din, wide(op->din, op->dout))

/* ---- the whole plane: one thread per V channels of an image ---- */

template <typename T, int V>
static __global__ void
global_avgpool(T *out, const T *in, int64_t pixels, int64_t channels, int64_t pieces) {
    int64_t step;
    for (int64_t i = first_piece(&step); i < pieces; i += step) {
        const int64_t n = i / (channels / V);
        const int64_t c = i % (channels / V) * V;
        float sum[V] = {};
#pragma unroll 4
        for (int64_t pixel = 0; pixel < pixels; pixel++) {
            float x[V];
            load(x, in + (n * pixels + pixel) * channels + c);
#pragma unroll
            for (int k = 0; k < V; k++) {
                sum[k] += x[k];
            }
        }
#pragma unroll
        for (int k = 0; k < V; k++) {
            sum[k] /= (float)pixels;
        }
        store(out + i * V, sum);
    }
}

template <typename T, int V>
static cudaError_t run_global_avgpool(const struct launch_on &on, const struct global_avgpool &op) {
    const struct plane s = plane_of(op.in, op.out, {});
    const int64_t pieces = s.n * s.c / V;
    return launch(on.stream, blocks_for(pieces), global_avgpool<T, V>, (T *)op.out.data,
                  (const T *)op.in.data, (int64_t)s.h * s.w, s.c, pieces);
}

LAUNCHER(global_avgpool, global_avgpool, in, wide(op->in, op->out))

template <typename T, int V>
static __global__ void global_avgpool_bwd(T *din,
                                          bool add,
                                          const T *dout,
                                          int64_t pixels,
                                          int64_t channels,
                                          int64_t pieces) {
    int64_t step;
    for (int64_t i = first_piece(&step); i < pieces; i += step) {
        const int64_t n = i / (pixels * (channels / V));
        const int64_t c = i % (channels / V) * V;
        float x[V];
        load(x, dout + n * channels + c);
#pragma unroll
        for (int k = 0; k < V; k++) {
            x[k] /= (float)pixels;
        }
        store_mode(din + i * V, x, add);
    }
}

template <typename T, int V>
static cudaError_t run_global_avgpool_bwd(const struct launch_on &on,
                                          const struct global_avgpool_bwd &op) {
    const struct plane s = plane_of(op.din, op.dout, {});
    const int64_t pieces = s.n * s.h * s.w * s.c / V;
    return launch(on.stream, blocks_for(pieces), global_avgpool_bwd<T, V>, (T *)op.din.data,
                  op.mode == WRITE_ADD, (const T *)op.dout.data, (int64_t)s.h * s.w, s.c, pieces);
}

LAUNCHER(global_avgpool_bwd, global_avgpool_bwd, din, wide(op->din, op->dout))
