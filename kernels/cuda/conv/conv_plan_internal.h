/*
 * conv_plan: cuDNN execution plans of plain convolutions by shape: built once, kept, and remembered
 * on disk between runs.
 *
 *     problem --> key --> kept plan?  --yes--> run
 *                           |no
 *                  remembered choice (file)? --> engine + knobs --> plan
 *                           |no, or cuDNN refuses it
 *                  heuristics A, then FALLBACK --> filter by notes --> first plan that builds,
 *                                                  or the fastest of several (autotune)
 *
 * All of it but running works without a GPU, for a chip described by its properties, and is tested
 * so.
 *
 * Threading : one owner.
 * Ownership : conv_plans owns its plans.
 * Untrusted : the file of choices. It is text with limits; what does not parse, or names an engine
 *             that cuDNN refuses, is passed over.
 */
#ifndef KERNELS_CUDA_CONV_CONV_PLAN_INTERNAL_H
#define KERNELS_CUDA_CONV_CONV_PLAN_INTERNAL_H

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/cuda/device/kernels_internal.h"
#include "kernels/ops.h"

enum conv_pass { CONV_FORWARD, CONV_DATA, CONV_WEIGHT };

/* What cuDNN does in one plan with a convolution (conv_operations.c). Only fp16 has engines for the
 * sums. */
enum conv_fusion {
    CONV_ALONE,
    CONV_STATISTICS,  /* of CONV_FORWARD */
    CONV_HANDOVER,    /* of CONV_DATA: the mask by the taker's pre */
    CONV_HANDOVER_OUT /* of CONV_DATA: the mask by the taker's out */
};

/* The tensors of a plan. x, w, y are there always; (k) sum, squares with statistics; the others
 * with a handover: like x pre, with an addition branch, and of the taker out; (c) the rest, of
 * which the last three are written and of no use. */
enum conv_role {
    CONV_X,
    CONV_W,
    CONV_Y,
    CONV_SUM,
    CONV_SQUARES,
    CONV_PRE,
    CONV_OUT,
    CONV_BRANCH,
    CONV_MEAN,
    CONV_RSTD,
    CONV_GAMMA,
    CONV_BETA,
    CONV_DGAMMA,
    CONV_DBETA,
    CONV_DY_SCALE,
    CONV_PRE_SCALE,
    CONV_BIAS,
    CONV_ROLES_COUNT
};
#define CONV_UID(role) ((int64_t)(role) + 1) /* its name to cuDNN */

/* One convolution: x (n,h,w,c), weight (k,r,s,c), y (n,oh,ow,k), all NHWC and dense. */
struct conv_problem {
    enum conv_pass pass;
    enum dtype dtype; /* of x, y and weight: F32, BF16 or F16 */
    int64_t n, h, w, c, k, r, s, oh, ow;
    int32_t stride, pad;
    bool add; /* CONV_DATA for cuDNN: x += the gradient, rounded once; in a handover, branch */
    enum conv_fusion fusion;
};

/* What a plan is for beside its shape. */
struct conv_chip {
    cudnnHandle_t handle; /* of an open device, or NULL */
    cudnnBackendDescriptor_t
        properties; /* of a chip that is not here (conv_chip_describe), or NULL */
    int32_t sm;     /* 90 */
    const char *name;
};

/* An engine and its settings: what heuristics choose and a file can remember. */
enum { CONV_MAX_KNOBS = 32 };
struct conv_choice {
    int64_t engine;
    int32_t knobs_count;
    struct {
        int64_t type, value;
    } knobs[CONV_MAX_KNOBS];
};

/* ---- graphs (conv_operations.c), engines (conv_graph.c) ---- */

/* The chip that cuDNN's JSON `text` describes, for what needs no GPU. properties goes back through
 * cudnnBackendDestroyDescriptor. Returns OK or DEVICE. */
enum status
conv_chip_describe(cudnnBackendDescriptor_t *properties, const char *text, struct error *err);

/* The operation graph of a problem: backend descriptors and the parts they are made of. */
enum { CONV_MAX_PARTS = 20, CONV_MAX_OPERATIONS = 10 };
struct conv_graph {
    cudnnBackendDescriptor_t tensors[CONV_ROLES_COUNT]; /* NULL: not in it */
    cudnnBackendDescriptor_t parts[CONV_MAX_PARTS], operations[CONV_MAX_OPERATIONS];
    int32_t parts_count, operations_count;
    cudnnBackendDescriptor_t graph;
};

/* Returns OK or DEVICE (cuDNN's own reason). On failure nothing is left. */
enum status conv_graph_create(struct conv_graph *out,
                              const struct conv_problem *p,
                              const struct conv_chip *chip,
                              struct error *err);
void conv_graph_destroy(struct conv_graph *g);
enum status conv_graph_engines_count(const struct conv_graph *g, int64_t *out, struct error *err);

/* Engine configurations in the order that `mode` proposes them; *count is set to how many were
 * written, at most room. Each is the caller's to destroy. Returns OK or DEVICE. */
enum status conv_graph_propose(const struct conv_graph *g,
                               const struct conv_chip *chip,
                               cudnnBackendHeurMode_t mode,
                               cudnnBackendDescriptor_t *out,
                               int64_t room,
                               int64_t *count,
                               struct error *err);

/* True when the options allow the engine of a configuration: its notes say whether it repeats to
 * the bit and in what precision it computes. */
bool conv_config_allowed(cudnnBackendDescriptor_t config,
                         const struct conv_problem *p,
                         const struct device_options *opt);

/* A configuration to numbers and back. Return OK, LIMIT (too many knobs) or DEVICE. */
enum status
conv_choice_of(cudnnBackendDescriptor_t config, struct conv_choice *out, struct error *err);
enum status conv_config_of(const struct conv_graph *g,
                           const struct conv_chip *chip,
                           const struct conv_choice *choice,
                           cudnnBackendDescriptor_t *out,
                           struct error *err);

/* The plan of a configuration and the scratch it wants. The caller destroys it. Returns OK, LIMIT
 * (more scratch than a kernel is worth) or DEVICE. */
enum status conv_plan_of(cudnnBackendDescriptor_t config,
                         const struct conv_chip *chip,
                         cudnnBackendDescriptor_t *out,
                         int64_t *workspace_bytes,
                         struct error *err);

/* ---- choices on disk (conv_choices.c) ---- */

enum {
    CONV_KEY_CHARS = 224,
    CONV_MAX_CHOICES = 4096,
    CONV_CHOICES_MAX_BYTES = 4 << 20 /* of the file */
};

struct conv_choices; /* opaque: key -> choice */

/* The key of a problem under the options: every number that changes which engine is best. */
void conv_key(char out[CONV_KEY_CHARS],
              const struct conv_problem *p,
              const struct conv_chip *chip,
              const struct device_options *opt);

/* Reads <folder>/conv-plans.txt where there is one. A file that is not ours, too large, or damaged
 * costs only time: `passed_over` counts lines that were not taken. folder NULL: there is no file.
 * Returns OK, NOMEM or IO. */
enum status conv_choices_open(struct conv_choices **out,
                              const char *folder,
                              int32_t *passed_over,
                              struct error *err);
void conv_choices_close(struct conv_choices *c); /* accepts NULL */
/* NULL: not known. */
const struct conv_choice *conv_choices_find(const struct conv_choices *c, const char *key);
/* Adds or replaces. Returns OK, NOMEM or LIMIT (more than CONV_MAX_CHOICES). */
enum status conv_choices_put(struct conv_choices *c,
                             const char *key,
                             const struct conv_choice *choice,
                             struct error *err);
/* Writes <folder>/conv-plans.txt if something was put: temporary name, fsync, rename. Returns OK or
 * IO. */
enum status conv_choices_save(struct conv_choices *c, const char *folder, struct error *err);

/* Ways to run a convolution with what belongs to it (conv_variant.c): cuDNN, our own products by
 * mma.sync and by wgmma, and plans of cuDNN that take channel sums (conv_fused.c). Numbers stand in
 * the plan cache: they keep their meaning. */
enum conv_variant {
    VARIANT_LIBRARY = 0,
    VARIANT_OWN = 1,
    VARIANT_WGMMA = 2,
    VARIANT_FUSED = 3,
    VARIANTS_COUNT
};

/* The key of a problem in a form (conv_variant_internal.h), under the options and the generation of
 * our own kernels. */
enum {
    CONV_MAX_VARIANTS = 512,
    CONV_FORM_CHARS = 16,
    CONV_OWN_GENERATION = 2 /* raised when the speed of our kernels changes, or their number */
};
void conv_variant_key(char out[CONV_KEY_CHARS],
                      const struct conv_problem *p,
                      const char *form,
                      const struct conv_chip *chip,
                      const struct device_options *opt);
/* Which variant was the fastest, -1: not known. */
int32_t conv_variant_recall(struct conv_choices *c,
                            const struct conv_problem *p,
                            const char *form,
                            const struct conv_chip *chip,
                            const struct device_options *opt);
/* Returns OK, NOMEM or LIMIT (kept, but not for the file). */
enum status conv_variant_remember(struct conv_choices *c,
                                  const struct conv_problem *p,
                                  const char *form,
                                  const struct conv_chip *chip,
                                  const struct device_options *opt,
                                  int32_t variant,
                                  struct error *err);
bool conv_same_problem(const struct conv_problem *a, const struct conv_problem *b);

/* ---- plans (conv_plan.c) ---- */

struct conv_plans;

/* cache_folder NULL: nothing is remembered. Returns OK, NOMEM or IO. */
enum status conv_plans_create(struct conv_plans **out,
                              const struct conv_chip *chip,
                              const struct device_options *opt,
                              const char *cache_folder,
                              struct error *err);
/* Accepts NULL. New choices are saved; a failure to save is not reported: the next run searches
 * again. */
void conv_plans_destroy(struct conv_plans *p);

struct cuda_device;
/* Runs the problem on the device's stream: `x`, `w`, `y` in the roles of struct conv_problem, one
 * of them written. Returns OK, NOMEM, UNSUPPORTED (no engine takes it) or DEVICE. */
enum status conv_run(struct cuda_device *dev,
                     const struct conv_problem *p,
                     void *x,
                     void *w,
                     void *y,
                     struct error *err);

/* The same of a problem with a fusion: `data` by role, NULL where the plan has no such tensor. */
enum status conv_run_fused(struct cuda_device *dev,
                           const struct conv_problem *p,
                           void *const data[CONV_ROLES_COUNT],
                           struct error *err);

/* conv_variant_recall and _remember of a device's plans. */
int32_t conv_plans_recall(struct conv_plans *plans, const struct conv_problem *p, const char *form);
void conv_plans_remember(struct conv_plans *plans,
                         const struct conv_problem *p,
                         const char *form,
                         int32_t variant);

/* conv_direct.cu: the same by plain loops on the device, for any shape. Returns that of the launch.
 */
cudaError_t
launch_conv_direct(cudaStream_t stream, const struct conv_problem *p, void *x, void *w, void *y);

/* ---- conv_1x1.cu: 1x1 convolutions in a half type on tensor cores, with what comes after them
 * ---- */

/* Whether these take the problem at these addresses: bf16, 1x1, no padding, channels in multiples
 * of 8, 16-byte alignment. */
bool conv_1x1_fits(const struct conv_problem *p, const void *x, const void *w, const void *y);

/* Whether VARIANT_WGMMA is compiled in for a chip: beside the above, Hopper (sm 90). */
bool conv_1x1_has_wgmma(int32_t sm);

/* Whether a handoff's memory can be read as these read it. */
bool conv_1x1_handoff_fits(const void *out, const void *pre, const float *mean, const float *rstd);

/* The forward pass and the data gradient leave partial sums of their result (count, 2, channels), a
 * pair per chunk of rows_per_chunk rows of y. */
struct conv_1x1_chunks {
    int64_t rows_per_chunk;
    int32_t count;
};
struct conv_1x1_chunks conv_1x1_chunks_of(const struct conv_problem *p);
size_t conv_1x1_partials_bytes(const struct conv_problem *p);

/* An x that is yet to be made: act of a norm of pre, rounded as stored. */
struct launch_take {
    const void *pre; /* like x, apart from it */
    struct launch_norm norm;
    enum activation act;
};

/* Whether a forward pass that conv_1x1_fits also makes x: stride 1, 512 channels of y at most,
 * 16-byte alignment. */
bool conv_1x1_take_fits(const struct conv_problem *p, const struct launch_take *t);

/* Each by one of the own variants, with the same results but for the order of sums over K.
 * partials: sums of y - s and (y - s)^2, s being y in the chunk's first row; NULL: none.
 * take: x is made out of it and written, with the bits of launch_batch_norm_apply; NULL: x is read,
 * and not written. */
cudaError_t launch_conv_1x1_forward(cudaStream_t stream,
                                    enum conv_variant variant,
                                    const struct conv_problem *p,
                                    void *y,
                                    void *x,
                                    const struct launch_take *take,
                                    const void *w,
                                    float *partials);

/* Whose batch norm x came out of: out (the mask; NULL: no ReLU), pre like x, mean, rstd (c). */
struct launch_handoff {
    const void *out, *pre;
    const float *mean, *rstd;
};
/* x = or += the gradient. With a handoff x is then masked, and partials get the sums of x and of
 * x (pre - mean) rstd. */
cudaError_t launch_conv_1x1_data(cudaStream_t stream,
                                 enum conv_variant variant,
                                 const struct conv_problem *p,
                                 void *x,
                                 bool add,
                                 const void *y,
                                 const void *w,
                                 const struct launch_handoff *handoff,
                                 float *partials);
/* total (width) = the `count` rows of partials added up. */
cudaError_t launch_conv_1x1_total(cudaStream_t stream,
                                  float *total,
                                  const float *partials,
                                  int64_t width,
                                  int32_t count);
size_t launch_conv_1x1_weight_workspace_bytes(const struct conv_problem *p);
cudaError_t launch_conv_1x1_weight(cudaStream_t stream,
                                   enum conv_variant variant,
                                   const struct conv_problem *p,
                                   float *w,
                                   bool add,
                                   const void *y,
                                   const void *x,
                                   void *workspace);

#ifdef __cplusplus
}
#endif

#endif
