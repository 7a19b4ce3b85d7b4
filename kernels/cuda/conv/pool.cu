/*
 * pool: maximum, average and whole-plane average over in (N,H,W,C). One thread per V neighbouring
 * channels of an output. In the backward pass every input gathers from the windows that contain it,
 * so no two threads add to one element.
 */
#include "kernels/cuda/device/common.cuh"

struct plane {
    int64_t n, h, w, c, oh, ow;
    struct pool_params pool;
};

struct plane_place {
    int64_t n, y, x, c;
};

/* Of piece `i` of V channels in a tensor (N,h,w,C). */
template <int V>
static __device__ __forceinline__ struct plane_place
place_of(int64_t i, int64_t h, int64_t w, int64_t channels) {
    const int64_t pieces = channels / V;
    struct plane_place p;
    p.c = i % pieces * V;
    i /= pieces;
    p.x = i % w;
    i /= w;
    p.y = i % h;
    p.n = i / h;
    return p;
}

struct range {
    int64_t begin, end;
};

/* Inputs of output o along an axis, truncated at the borders. */
static __device__ __forceinline__ struct range
inputs_of(int64_t o, const struct pool_params &pool, int64_t size) {
    const int64_t begin = o * pool.stride - pool.pad;
    const int64_t end = begin + pool.kernel;
    return {begin < 0 ? 0 : begin, end > size ? size : end};
}

/* Outputs whose window contains input i of an axis. */
static __device__ __forceinline__ struct range
outputs_of(int64_t i, const struct pool_params &pool, int64_t out_size) {
    const int64_t from = i + pool.pad - pool.kernel + 1; /* smallest o * stride */
    const int64_t begin = from <= 0 ? 0 : (from + pool.stride - 1) / pool.stride;
    const int64_t end = (i + pool.pad) / pool.stride + 1;
    return {begin, end > out_size ? out_size : end};
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
            in.shape[1],
            in.shape[2],
            in.shape[3],
            whole ? 1 : out.shape[1],
            whole ? 1 : out.shape[2],
            pool};
}

template <typename T, int V>
static __global__ void
maxpool(T *out, int32_t *argmax, const T *in, struct plane s, int64_t pieces) {
    int64_t step;
    for (int64_t i = first_piece(&step); i < pieces; i += step) {
        const struct plane_place p = place_of<V>(i, s.oh, s.ow, s.c);
        const struct range ys = inputs_of(p.y, s.pool, s.h);
        const struct range xs = inputs_of(p.x, s.pool, s.w);
        float best[V] = {};
        int32_t cell[V];
#pragma unroll
        for (int k = 0; k < V; k++) {
            cell[k] = -1;
        }
        for (int64_t y = ys.begin; y < ys.end; y++) {
            for (int64_t x = xs.begin; x < xs.end; x++) {
                const int64_t ky = y - (p.y * s.pool.stride - s.pool.pad);
                const int64_t kx = x - (p.x * s.pool.stride - s.pool.pad);
                float value[V];
                load(value, in + ((p.n * s.h + y) * s.w + x) * s.c + p.c);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    if (cell[k] < 0 || value[k] > best[k]) {
                        best[k] = value[k];
                        cell[k] = (int32_t)(ky * s.pool.kernel + kx);
                    }
                }
            }
        }
        store(out + i * V, best);
#pragma unroll
        for (int k = 0; k < V; k++) {
            argmax[i * V + k] = cell[k];
        }
    }
}

template <typename T, int V>
static cudaError_t run_maxpool(const struct launch_on &on, const struct maxpool &op) {
    const struct plane s = plane_of(op.in, op.out, op.pool);
    const int64_t pieces = s.n * s.oh * s.ow * s.c / V;
    return launch(on.stream, blocks_for(pieces), maxpool<T, V>, (T *)op.out.data,
                  (int32_t *)op.argmax.data, (const T *)op.in.data, s, pieces);
}

cudaError_t launch_maxpool(const struct launch_on *on, const struct maxpool *op) {
    const enum dtype real = op->in.dtype;
    return BY_TYPE(real, wide(real, op->in.shape[3], op->in.data, op->out.data), run_maxpool, *on,
                   *op);
}

template <typename T, int V>
static __global__ void maxpool_bwd(T *din,
                                   bool add,
                                   const T *dout,
                                   const int32_t *argmax,
                                   struct plane s,
                                   int64_t pieces) {
    int64_t step;
    for (int64_t i = first_piece(&step); i < pieces; i += step) {
        const struct plane_place p = place_of<V>(i, s.h, s.w, s.c);
        const struct range ys = outputs_of(p.y, s.pool, s.oh);
        const struct range xs = outputs_of(p.x, s.pool, s.ow);
        float sum[V] = {};
        for (int64_t oy = ys.begin; oy < ys.end; oy++) {
            for (int64_t ox = xs.begin; ox < xs.end; ox++) {
                const int64_t ky = p.y + s.pool.pad - oy * s.pool.stride;
                const int64_t kx = p.x + s.pool.pad - ox * s.pool.stride;
                const int64_t o = ((p.n * s.oh + oy) * s.ow + ox) * s.c + p.c;
                float g[V];
                load(g, dout + o);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    sum[k] += argmax[o + k] == ky * s.pool.kernel + kx ? g[k] : 0.0f;
                }
            }
        }
        store_mode(din + i * V, sum, add);
    }
}

template <typename T, int V>
static cudaError_t run_maxpool_bwd(const struct launch_on &on, const struct maxpool_bwd &op) {
    const struct plane s = plane_of(op.din, op.dout, op.pool);
    const int64_t pieces = s.n * s.h * s.w * s.c / V;
    return launch(on.stream, blocks_for(pieces), maxpool_bwd<T, V>, (T *)op.din.data,
                  op.mode == WRITE_ADD, (const T *)op.dout.data, (const int32_t *)op.argmax.data, s,
                  pieces);
}

cudaError_t launch_maxpool_bwd(const struct launch_on *on, const struct maxpool_bwd *op) {
    const enum dtype real = op->din.dtype;
    return BY_TYPE(real, wide(real, op->din.shape[3], op->din.data, op->dout.data), run_maxpool_bwd,
                   *on, *op);
}

/* ---- average ---- */

template <typename T, int V>
static __global__ void avgpool(T *out, const T *in, struct plane s, int64_t pieces) {
    int64_t step;
    for (int64_t i = first_piece(&step); i < pieces; i += step) {
        const struct plane_place p = place_of<V>(i, s.oh, s.ow, s.c);
        const struct range ys = inputs_of(p.y, s.pool, s.h);
        const struct range xs = inputs_of(p.x, s.pool, s.w);
        float sum[V] = {};
        for (int64_t y = ys.begin; y < ys.end; y++) {
            for (int64_t x = xs.begin; x < xs.end; x++) {
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
        store(out + i * V, sum);
    }
}

template <typename T, int V>
static cudaError_t run_avgpool(const struct launch_on &on, const struct avgpool &op) {
    const struct plane s = plane_of(op.in, op.out, op.pool);
    const int64_t pieces = s.n * s.oh * s.ow * s.c / V;
    return launch(on.stream, blocks_for(pieces), avgpool<T, V>, (T *)op.out.data,
                  (const T *)op.in.data, s, pieces);
}

cudaError_t launch_avgpool(const struct launch_on *on, const struct avgpool *op) {
    const enum dtype real = op->in.dtype;
    return BY_TYPE(real, wide(real, op->in.shape[3], op->in.data, op->out.data), run_avgpool, *on,
                   *op);
}

template <typename T, int V>
static __global__ void
avgpool_bwd(T *din, bool add, const T *dout, struct plane s, int64_t pieces) {
    int64_t step;
    for (int64_t i = first_piece(&step); i < pieces; i += step) {
        const struct plane_place p = place_of<V>(i, s.h, s.w, s.c);
        const struct range ys = outputs_of(p.y, s.pool, s.oh);
        const struct range xs = outputs_of(p.x, s.pool, s.ow);
        float sum[V] = {};
        for (int64_t oy = ys.begin; oy < ys.end; oy++) {
            for (int64_t ox = xs.begin; ox < xs.end; ox++) {
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
        store_mode(din + i * V, sum, add);
    }
}

template <typename T, int V>
static cudaError_t run_avgpool_bwd(const struct launch_on &on, const struct avgpool_bwd &op) {
    const struct plane s = plane_of(op.din, op.dout, op.pool);
    const int64_t pieces = s.n * s.h * s.w * s.c / V;
    return launch(on.stream, blocks_for(pieces), avgpool_bwd<T, V>, (T *)op.din.data,
                  op.mode == WRITE_ADD, (const T *)op.dout.data, s, pieces);
}

cudaError_t launch_avgpool_bwd(const struct launch_on *on, const struct avgpool_bwd *op) {
    const enum dtype real = op->din.dtype;
    return BY_TYPE(real, wide(real, op->din.shape[3], op->din.data, op->dout.data), run_avgpool_bwd,
                   *on, *op);
}

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
                  (const T *)op.in.data, s.h * s.w, s.c, pieces);
}

cudaError_t launch_global_avgpool(const struct launch_on *on, const struct global_avgpool *op) {
    const enum dtype real = op->in.dtype;
    return BY_TYPE(real, wide(real, op->in.shape[3], op->in.data, op->out.data), run_global_avgpool,
                   *on, *op);
}

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
                  op.mode == WRITE_ADD, (const T *)op.dout.data, s.h * s.w, s.c, pieces);
}

cudaError_t launch_global_avgpool_bwd(const struct launch_on *on,
                                      const struct global_avgpool_bwd *op) {
    const enum dtype real = op->din.dtype;
    return BY_TYPE(real, wide(real, op->din.shape[3], op->din.data, op->dout.data),
                   run_global_avgpool_bwd, *on, *op);
}
