/*
 * pool: maximum, average and whole-plane average over in (N,H,W,C). One thread per V neighbouring
 * channels of an output; backward every input gathers from the windows that hold it, so nothing is
 * added by two threads.
 */
#include "kernels/cuda/device/common.cuh"

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

/* Inputs under output o of an axis, cut at the borders. */
static __device__ __forceinline__ struct range
inputs_of(int64_t o, const struct pool_params &pool, int64_t size) {
    const int64_t begin = o * pool.stride - pool.pad;
    const int64_t end = begin + pool.kernel;
    return {begin < 0 ? 0 : begin, end > size ? size : end};
}

/* Outputs whose window holds input i of an axis. */
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

template <typename T, int V>
static __global__ void
maxpool(T *out, int32_t *argmax, const T *in, struct launch_plane s, int64_t pieces) {
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
static cudaError_t run_maxpool(cudaStream_t stream,
                               void *out,
                               int32_t *argmax,
                               const void *in,
                               const struct launch_plane &s) {
    const int64_t pieces = s.n * s.oh * s.ow * s.c / V;
    if (pieces == 0) {
        return cudaSuccess;
    }
    return launch(stream, blocks_for(pieces), maxpool<T, V>, (T *)out, argmax, (const T *)in, s,
                  pieces);
}

cudaError_t launch_maxpool(cudaStream_t stream,
                           enum dtype real,
                           void *out,
                           int32_t *argmax,
                           const void *in,
                           const struct launch_plane *plane) {
    return BY_TYPE(real, wide(real, plane->c, out, in), run_maxpool, stream, out, argmax, in,
                   *plane);
}

template <typename T, int V>
static __global__ void maxpool_bwd(T *din,
                                   bool add,
                                   const T *dout,
                                   const int32_t *argmax,
                                   struct launch_plane s,
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
static cudaError_t run_maxpool_bwd(cudaStream_t stream,
                                   void *din,
                                   bool add,
                                   const void *dout,
                                   const int32_t *argmax,
                                   const struct launch_plane &s) {
    const int64_t pieces = s.n * s.h * s.w * s.c / V;
    if (pieces == 0) {
        return cudaSuccess;
    }
    return launch(stream, blocks_for(pieces), maxpool_bwd<T, V>, (T *)din, add, (const T *)dout,
                  argmax, s, pieces);
}

cudaError_t launch_maxpool_bwd(cudaStream_t stream,
                               enum dtype real,
                               void *din,
                               enum write_mode mode,
                               const void *dout,
                               const int32_t *argmax,
                               const struct launch_plane *plane) {
    return BY_TYPE(real, wide(real, plane->c, din, dout), run_maxpool_bwd, stream, din,
                   mode == WRITE_ADD, dout, argmax, *plane);
}

/* ---- average ---- */

template <typename T, int V>
static __global__ void avgpool(T *out, const T *in, struct launch_plane s, int64_t pieces) {
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
static cudaError_t
run_avgpool(cudaStream_t stream, void *out, const void *in, const struct launch_plane &s) {
    const int64_t pieces = s.n * s.oh * s.ow * s.c / V;
    if (pieces == 0) {
        return cudaSuccess;
    }
    return launch(stream, blocks_for(pieces), avgpool<T, V>, (T *)out, (const T *)in, s, pieces);
}

cudaError_t launch_avgpool(cudaStream_t stream,
                           enum dtype real,
                           void *out,
                           const void *in,
                           const struct launch_plane *plane) {
    return BY_TYPE(real, wide(real, plane->c, out, in), run_avgpool, stream, out, in, *plane);
}

template <typename T, int V>
static __global__ void
avgpool_bwd(T *din, bool add, const T *dout, struct launch_plane s, int64_t pieces) {
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
static cudaError_t run_avgpool_bwd(cudaStream_t stream,
                                   void *din,
                                   bool add,
                                   const void *dout,
                                   const struct launch_plane &s) {
    const int64_t pieces = s.n * s.h * s.w * s.c / V;
    if (pieces == 0) {
        return cudaSuccess;
    }
    return launch(stream, blocks_for(pieces), avgpool_bwd<T, V>, (T *)din, add, (const T *)dout, s,
                  pieces);
}

cudaError_t launch_avgpool_bwd(cudaStream_t stream,
                               enum dtype real,
                               void *din,
                               enum write_mode mode,
                               const void *dout,
                               const struct launch_plane *plane) {
    return BY_TYPE(real, wide(real, plane->c, din, dout), run_avgpool_bwd, stream, din,
                   mode == WRITE_ADD, dout, *plane);
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
static cudaError_t
run_global_avgpool(cudaStream_t stream, void *out, const void *in, const struct launch_plane &s) {
    const int64_t pieces = s.n * s.c / V;
    if (pieces == 0) {
        return cudaSuccess;
    }
    return launch(stream, blocks_for(pieces), global_avgpool<T, V>, (T *)out, (const T *)in,
                  s.h * s.w, s.c, pieces);
}

cudaError_t launch_global_avgpool(cudaStream_t stream,
                                  enum dtype real,
                                  void *out,
                                  const void *in,
                                  const struct launch_plane *plane) {
    return BY_TYPE(real, wide(real, plane->c, out, in), run_global_avgpool, stream, out, in,
                   *plane);
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
static cudaError_t run_global_avgpool_bwd(cudaStream_t stream,
                                          void *din,
                                          bool add,
                                          const void *dout,
                                          const struct launch_plane &s) {
    const int64_t pieces = s.n * s.h * s.w * s.c / V;
    if (pieces == 0) {
        return cudaSuccess;
    }
    return launch(stream, blocks_for(pieces), global_avgpool_bwd<T, V>, (T *)din, add,
                  (const T *)dout, s.h * s.w, s.c, pieces);
}

cudaError_t launch_global_avgpool_bwd(cudaStream_t stream,
                                      enum dtype real,
                                      void *din,
                                      enum write_mode mode,
                                      const void *dout,
                                      const struct launch_plane *plane) {
    return BY_TYPE(real, wide(real, plane->c, din, dout), run_global_avgpool_bwd, stream, din,
                   mode == WRITE_ADD, dout, *plane);
}
