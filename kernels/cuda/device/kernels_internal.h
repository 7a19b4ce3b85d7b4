/*
 * kernels: the launchers of ccstream's own CUDA kernels, callable from C. Shapes, types and
 * roundings are those of kernels/ops.h, whose ops they carry out; here stands what that leaves
 * open.
 *
 * Threading : pure functions; work goes to `stream` in order. Nothing waits, nothing is allocated.
 * Ownership : every pointer is borrowed device memory (or host memory that the device reads at the
 *             same address). A workspace is the caller's, aligned to 16 bytes, needed until the
 *             work is done; its size comes from the _workspace_bytes function beside the launcher
 *             and its contents mean nothing before and after.
 * Types     : `real` is DTYPE_F32 or DTYPE_BF16, the type of every `void *`; anything
 *             else gives cudaErrorInvalidValue. float * is F32 in all cases.
 * Alignment : that of an element. Rows of multiples of 16 bytes at addresses of multiples of 16
 *             bytes are moved 16 bytes at a time, others element by element.
 * Shapes    : checked by the caller. Counts of 0 launch nothing.
 * Order     : every sum has one order that follows from the shape alone, never from the chip or
 *             from which block came first: same input, same bits. No atomics on numbers.
 * Faults    : kernels that read indices stay in bounds whatever they read, and write the first
 *             fault they meet to *fault (may be NULL), which the caller zeroes and reads.
 * Returns   : that of the launch; cudaSuccess or what cudaLaunchKernelExC answers.
 */
#ifndef KERNELS_CUDA_DEVICE_KERNELS_INTERNAL_H
#define KERNELS_CUDA_DEVICE_KERNELS_INTERNAL_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/ops.h"

/* Every launcher calls it for each kernel, copy or fill it starts, see launched(). */
void cuda_count_launch(void);

enum fault { FAULT_NONE, FAULT_TOKEN, FAULT_ROW, FAULT_SEGMENT };

/* struct segments on the device: captions in a list of `rows` rows. */
struct launch_segments {
    const int32_t *starts, *lengths; /* (count), as in ops.h */
    int64_t count, rows;
    int32_t *fault; /* FAULT_SEGMENT when a caption leaves the rows or is longer than allowed */
};

/* struct dropout_params made ready. Kernels make key and tweak of dropout_stream_init themselves,
 * once in each thread (dropout_begin): the step lies on the device. */
struct launch_dropout {
    uint32_t seed[2], layer;
    uint32_t threshold; /* dropout_threshold */
    float scale;        /* 1 / (1 - p) */
    uint32_t key[2], tweak;
    const uint64_t *step;       /* on the device */
    const uint64_t *sample_ids; /* (N), on the device */
};

/* ---- input.cu ---- */

cudaError_t
launch_fill(cudaStream_t stream, enum dtype real, void *out, int64_t count, float value);

/* A kernel that takes `cycles` of the GPU's clock and does nothing: launches that follow are queued
 * meanwhile, and can then be timed without the host. */
cudaError_t launch_delay(cudaStream_t stream, int64_t cycles);
/* out (type `to`) = in (type `from`), both real. */
cudaError_t launch_cast(cudaStream_t stream,
                        enum dtype to,
                        void *out,
                        enum dtype from,
                        const void *in,
                        int64_t count);
/* out (type `to`) += alpha in (type `from`), both real. */
cudaError_t launch_add(cudaStream_t stream,
                       enum dtype to,
                       void *out,
                       enum dtype from,
                       const void *in,
                       int64_t count,
                       float alpha);
/* out = (in / 255 - mean[c]) / std[c], c = index % 3; mean and std in host memory. */
cudaError_t launch_normalize_u8(cudaStream_t stream,
                                enum dtype real,
                                void *out,
                                const uint8_t *in,
                                int64_t count,
                                const float mean[3],
                                const float std[3]);

/* ---- dropout.cu: out (R,D) = mask(in); segments NULL: row n is position 0 of sample n ---- */

cudaError_t launch_dropout(cudaStream_t stream,
                           enum dtype real,
                           void *out,
                           const void *in,
                           int64_t rows,
                           int64_t width,
                           const struct launch_segments *segments,
                           const struct launch_dropout *dropout);

/* ---- rows.cu ---- */

/* out (count,width) = in (in_rows,width)[rows]; a row outside is a fault and gives zeros. */
cudaError_t launch_gather_rows(cudaStream_t stream,
                               enum dtype real,
                               void *out,
                               const void *in,
                               const int32_t *rows,
                               int64_t count,
                               int64_t width,
                               int64_t in_rows,
                               int32_t *fault);
/* out (out_rows,width)[rows] = or += in (count,width); rows distinct; a row outside is a fault and
 * is not written. */
cudaError_t launch_scatter_rows(cudaStream_t stream,
                                enum dtype real,
                                void *out,
                                enum write_mode mode,
                                const void *in,
                                const int32_t *rows,
                                int64_t count,
                                int64_t width,
                                int64_t out_rows,
                                int32_t *fault);
/* out (rows,width) f32 = in / max(|in|, 1e-12), norm (rows) f32 */
cudaError_t launch_l2_normalize(cudaStream_t stream,
                                enum dtype real,
                                float *out,
                                float *norm,
                                const void *in,
                                int64_t rows,
                                int64_t width);
/* din (rows,width) of type real; the rest f32 */
cudaError_t launch_l2_normalize_bwd(cudaStream_t stream,
                                    enum dtype real,
                                    void *din,
                                    const float *dout,
                                    const float *out,
                                    const float *norm,
                                    int64_t rows,
                                    int64_t width);
/* out (count,width) = mean of each caption's rows of in (rows,width) */
cudaError_t launch_segment_mean(cudaStream_t stream,
                                enum dtype real,
                                void *out,
                                const void *in,
                                int64_t width,
                                const struct launch_segments *segments);
cudaError_t launch_segment_mean_bwd(cudaStream_t stream,
                                    enum dtype real,
                                    void *din,
                                    enum write_mode mode,
                                    const void *dout,
                                    int64_t width,
                                    const struct launch_segments *segments);

/* ---- columns.cu ---- */

/* out (width) f32 = or += sum over the rows of in (rows,width): the gradient of a bias. */
size_t launch_column_sums_workspace_bytes(int64_t rows, int64_t width);
cudaError_t launch_column_sums(cudaStream_t stream,
                               enum dtype real,
                               float *out,
                               enum write_mode mode,
                               const void *in,
                               int64_t rows,
                               int64_t width,
                               void *workspace);

/* ---- embedding.cu: tokens (R) i32, R = segments->rows; table (V,D), positions (P,D) ---- */

/* A token outside the table, or a caption longer than P, is a fault; it reads row 0. */
cudaError_t launch_embedding(cudaStream_t stream,
                             enum dtype real,
                             void *out,
                             const int32_t *tokens,
                             const void *table,
                             const void *positions,
                             int64_t width,
                             int64_t vocab_count,
                             int64_t position_count,
                             const struct launch_segments *segments);
/* dtable (V,D), dpositions (P,D) f32; dout (R,D) real. Rows are brought into the order of their
 * tokens on the device (R^2 / 2 comparisons: microseconds up to 10^5 rows), then each token's rows
 * are added in order by one block. */
size_t launch_embedding_bwd_workspace_bytes(int64_t rows);
cudaError_t launch_embedding_bwd(cudaStream_t stream,
                                 enum dtype real,
                                 float *dtable,
                                 float *dpositions,
                                 enum write_mode mode,
                                 const void *dout,
                                 const int32_t *tokens,
                                 int64_t width,
                                 int64_t vocab_count,
                                 int64_t position_count,
                                 const struct launch_segments *segments,
                                 void *workspace);

/* ---- layernorm.cu: rows of `width` ---- */

/* b may be NULL; sum may alias a. */
cudaError_t launch_layernorm(cudaStream_t stream,
                             enum dtype real,
                             void *out,
                             void *sum,
                             float *mean,
                             float *rstd,
                             const void *a,
                             const void *b,
                             const float *gamma,
                             const float *beta,
                             int64_t rows,
                             int64_t width,
                             float eps);
size_t launch_layernorm_bwd_workspace_bytes(int64_t rows, int64_t width);
cudaError_t launch_layernorm_bwd(cudaStream_t stream,
                                 enum dtype real,
                                 void *dsum,
                                 enum write_mode dsum_mode,
                                 float *dgamma,
                                 float *dbeta,
                                 enum write_mode param_mode,
                                 const void *dout,
                                 const void *sum,
                                 const float *mean,
                                 const float *rstd,
                                 const float *gamma,
                                 int64_t rows,
                                 int64_t width,
                                 void *workspace);

/* ---- attention.cu: qkv (R,3,heads,head_width), out (R,heads,head_width), probs (N,heads,T,T);
 * R = segments->rows, N = segments->count, T = tokens. Captions of up to 64 tokens and heads 64
 * wide take one block per head; other shapes a slower way. dropout NULL: none. ---- */

cudaError_t launch_attention(cudaStream_t stream,
                             enum dtype real,
                             void *out,
                             void *probs,
                             const void *qkv,
                             int64_t tokens,
                             int64_t heads,
                             int64_t head_width,
                             const struct launch_segments *segments,
                             const struct launch_dropout *dropout);
size_t launch_attention_bwd_workspace_bytes(int64_t captions,
                                            int64_t tokens,
                                            int64_t heads,
                                            int64_t head_width);
cudaError_t launch_attention_bwd(cudaStream_t stream,
                                 enum dtype real,
                                 void *dqkv,
                                 const void *dout,
                                 const void *probs,
                                 const void *qkv,
                                 int64_t tokens,
                                 int64_t heads,
                                 int64_t head_width,
                                 const struct launch_segments *segments,
                                 const struct launch_dropout *dropout,
                                 void *workspace);

/* ---- gelu.cu: the erf form, over (rows,width) ---- */

/* bias not NULL: pre += bias first, and pre is stored; out = gelu(pre as stored). */
cudaError_t launch_gelu(cudaStream_t stream,
                        enum dtype real,
                        void *out,
                        void *pre,
                        const float *bias,
                        int64_t rows,
                        int64_t width);
/* dpre = dout gelu'(pre); dbias (width) = or += its column sums, unless NULL. dpre may alias dout.
 */
size_t launch_gelu_bwd_workspace_bytes(int64_t rows, int64_t width);
cudaError_t launch_gelu_bwd(cudaStream_t stream,
                            enum dtype real,
                            void *dpre,
                            float *dbias,
                            enum write_mode mode,
                            const void *dout,
                            const void *pre,
                            int64_t rows,
                            int64_t width,
                            void *workspace);

/* ---- pool.cu: in (N,H,W,C), out (N,OH,OW,C) ---- */

struct launch_plane {
    int64_t n, h, w, c, oh, ow;
    struct pool_params pool; /* not used by the global average */
};

cudaError_t launch_maxpool(cudaStream_t stream,
                           enum dtype real,
                           void *out,
                           int32_t *argmax,
                           const void *in,
                           const struct launch_plane *plane);
/* Every input gathers from the windows that chose it. */
cudaError_t launch_maxpool_bwd(cudaStream_t stream,
                               enum dtype real,
                               void *din,
                               enum write_mode mode,
                               const void *dout,
                               const int32_t *argmax,
                               const struct launch_plane *plane);
cudaError_t launch_avgpool(cudaStream_t stream,
                           enum dtype real,
                           void *out,
                           const void *in,
                           const struct launch_plane *plane);
cudaError_t launch_avgpool_bwd(cudaStream_t stream,
                               enum dtype real,
                               void *din,
                               enum write_mode mode,
                               const void *dout,
                               const struct launch_plane *plane);
/* out (N,C); oh and ow are not read */
cudaError_t launch_global_avgpool(cudaStream_t stream,
                                  enum dtype real,
                                  void *out,
                                  const void *in,
                                  const struct launch_plane *plane);
cudaError_t launch_global_avgpool_bwd(cudaStream_t stream,
                                      enum dtype real,
                                      void *din,
                                      enum write_mode mode,
                                      const void *dout,
                                      const struct launch_plane *plane);

/* ---- batch_norm.cu: pre, out (rows,channels), rows = N OH OW ---- */

/* mean, rstd over the rows; running_mean and running_var both NULL: not moved. Two stages: shifted
 * sums of pieces of the rows in f32, merged in double. */
size_t launch_batch_norm_statistics_workspace_bytes(int64_t rows, int64_t channels);
cudaError_t launch_batch_norm_statistics(cudaStream_t stream,
                                         enum dtype real,
                                         float *mean,
                                         float *rstd,
                                         float *running_mean,
                                         float *running_var,
                                         const void *pre,
                                         int64_t rows,
                                         int64_t channels,
                                         float eps,
                                         float momentum,
                                         void *workspace);
/* The inference form: mean = running_mean, rstd = 1 / sqrt(running_var + eps). */
cudaError_t launch_batch_norm_running(cudaStream_t stream,
                                      float *mean,
                                      float *rstd,
                                      const float *running_mean,
                                      const float *running_var,
                                      int64_t channels,
                                      float eps);
/* out = act((pre - mean) rstd gamma + beta + residual), act NONE or RELU, residual may be NULL; one
 * pass, from the last row to the first: what the statistics read last is still in the cache. */
cudaError_t launch_batch_norm_apply(cudaStream_t stream,
                                    enum dtype real,
                                    void *out,
                                    const void *pre,
                                    const float *mean,
                                    const float *rstd,
                                    const float *gamma,
                                    const float *beta,
                                    const void *residual,
                                    enum activation act,
                                    int64_t rows,
                                    int64_t channels);
/* dgamma and dbeta from one pass over dout, out (the mask; not read without RELU) and pre; then
 * dpre and dresidual (may be NULL; with SET it may alias dout) in a second pass over the same
 * three, from the last row to the first. */
size_t launch_batch_norm_bwd_workspace_bytes(int64_t rows, int64_t channels);
cudaError_t launch_batch_norm_bwd(cudaStream_t stream,
                                  enum dtype real,
                                  void *dpre,
                                  void *dresidual,
                                  enum write_mode dresidual_mode,
                                  float *dgamma,
                                  float *dbeta,
                                  enum write_mode param_mode,
                                  const void *dout,
                                  const void *out,
                                  const void *pre,
                                  const float *mean,
                                  const float *rstd,
                                  const float *gamma,
                                  enum activation act,
                                  int64_t rows,
                                  int64_t channels,
                                  void *workspace);

/* ---- optimizer.cu: flat ranges; working (BF16) may be NULL; one pass
 * ---- */

cudaError_t launch_adamw(cudaStream_t stream,
                         float *value,
                         void *working,
                         const float *grad,
                         float *m,
                         float *v,
                         int64_t count,
                         const struct adamw_params *p);
cudaError_t launch_sgdm(cudaStream_t stream,
                        float *value,
                        void *working,
                        const float *grad,
                        float *m,
                        int64_t count,
                        const struct sgdm_params *p);
/* grad_norm, grad_scale and sound of the values from their first `count` squares. */
cudaError_t
launch_grad_scale(cudaStream_t stream, struct step_values *values, int32_t count, double clip_norm);
/* *out = sum of squares, in double; two stages. */
size_t launch_sum_squares_workspace_bytes(int64_t count);
cudaError_t launch_sum_squares(cudaStream_t stream,
                               enum dtype real,
                               double *out,
                               const void *in,
                               int64_t count,
                               void *workspace);

#ifdef __cplusplus
}
#endif

#endif
