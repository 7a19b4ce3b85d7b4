/*
 * conv_plan: cuDNN execution plans of plain convolutions by shape: built once, kept, and cached on
 * disk between runs.
 *
 *     problem --> key --> kept plan?  --yes--> execute
 *                           |no
 *                  remembered choice (file)? --> engine + knobs --> plan that executes
 *                           |no, or cuDNN refuses it
 *                  heuristics A, then FALLBACK --> filter by notes --> first plan that executes,
 *                                                  or the fastest of several (autotune)
 *
 * If cuDNN builds a plan but refuses to execute it, the next proposal is tried, which is logged.
 * Everything except execution works without a GPU, for a GPU described by its properties.
 *
 * Threading : one owner.
 * Ownership : conv_plans owns its plans.
 * Untrusted : the file of choices. It is text with limits; a line that does not parse, or names an
 *             engine that cuDNN refuses, is skipped.
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

/* The tensors of a convolution; CONV_UID is a tensor's id in cuDNN. */
enum conv_role { CONV_X, CONV_W, CONV_Y, CONV_ROLES_COUNT };
#define CONV_UID(role) ((int64_t)(role) + 1)

/* One convolution: x (n,h,w,c), weight (k,r,s,c), y (n,oh,ow,k), all NHWC and dense. */
struct conv_problem {
    enum conv_pass pass;
    enum dtype dtype; /* of x, y and weight: F32 or BF16 */
    int64_t n, h, w, c, k, r, s, oh, ow;
    int32_t stride, pad;
    bool add; /* CONV_DATA by cuDNN: x += the gradient, rounded once */
};

/* The GPU that a plan is for. */
struct conv_gpu {
    cudnnHandle_t handle;                /* of an open device, or NULL */
    cudnnBackendDescriptor_t properties; /* of a described GPU (conv_gpu_describe), or NULL */
    int32_t sm;                          /* 90 */
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

/* ---- graphs and their engines (conv_graph.c) ---- */

/* Makes properties from cuDNN's JSON description of a GPU, for work without one. The caller
 * destroys them by cudnnBackendDestroyDescriptor. Returns OK or DEVICE. */
enum status
conv_gpu_describe(cudnnBackendDescriptor_t *properties, const char *text, struct error *err);

/* The operation graph of a problem. */
struct conv_graph {
    cudnnBackendDescriptor_t tensors[CONV_ROLES_COUNT], convolution, operation, graph;
};

/* Returns OK or DEVICE (with cuDNN's reason). On failure there is nothing to destroy. */
enum status conv_graph_create(struct conv_graph *out,
                              const struct conv_problem *p,
                              const struct conv_gpu *gpu,
                              struct error *err);
void conv_graph_destroy(struct conv_graph *g);

/* Leaves NULL. */
void dnn_destroy(cudnnBackendDescriptor_t *d);

/* Engine configurations in the order that `mode` proposes them; *count is set to how many were
 * written, at most room. Each is the caller's to destroy. Returns OK or DEVICE. */
enum status conv_graph_propose(const struct conv_graph *g,
                               const struct conv_gpu *gpu,
                               cudnnBackendHeurMode_t mode,
                               cudnnBackendDescriptor_t *out,
                               int64_t room,
                               int64_t *count,
                               struct error *err);

/* True if the options allow the engine of a configuration: its notes describe whether it is
 * deterministic and in which precision it computes. */
bool conv_config_allowed(cudnnBackendDescriptor_t config,
                         const struct conv_problem *p,
                         const struct device_options *opt);

/* A configuration to numbers and back. Return OK, LIMIT (too many knobs) or DEVICE. */
enum status
conv_choice_of(cudnnBackendDescriptor_t config, struct conv_choice *out, struct error *err);
enum status conv_config_of(const struct conv_graph *g,
                           const struct conv_gpu *gpu,
                           const struct conv_choice *choice,
                           cudnnBackendDescriptor_t *out,
                           struct error *err);

/* The plan of a configuration and the workspace it requires. The caller destroys it. Returns OK,
 * LIMIT (too large a workspace) or DEVICE. */
enum status conv_plan_of(cudnnBackendDescriptor_t config,
                         const struct conv_gpu *gpu,
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
              const struct conv_gpu *gpu,
              const struct device_options *opt);

/* Reads <folder>/conv-plans.txt if it exists. A file that is too large, damaged or of another
 * program costs only time: `skipped` counts the lines that were not used. folder NULL: no file.
 * Returns OK, NOMEM, LIMIT (folder is too long) or IO. */
enum status conv_choices_open(struct conv_choices **out,
                              const char *folder,
                              int32_t *skipped,
                              struct error *err);
void conv_choices_close(struct conv_choices *c); /* accepts NULL */
/* NULL: not known. */
const struct conv_choice *conv_choices_find(const struct conv_choices *c, const char *key);
/* Adds or replaces a choice. Returns OK, NOMEM or LIMIT (more than CONV_MAX_CHOICES). */
enum status conv_choices_put(struct conv_choices *c,
                             const char *key,
                             const struct conv_choice *choice,
                             struct error *err);
/* Writes <folder>/conv-plans.txt if it changed: temporary name, fsync, rename. Returns OK, NOMEM,
 * LIMIT (folder is too long) or a failure of writing. */
enum status conv_choices_save(struct conv_choices *c, const char *folder, struct error *err);

bool conv_same_problem(const struct conv_problem *a, const struct conv_problem *b);

/* ---- plans (conv_plan.c) ---- */

struct conv_plans;

/* cache_folder NULL: choices are not kept on disk. Returns as conv_choices_open. */
enum status conv_plans_create(struct conv_plans **out,
                              const struct conv_gpu *gpu,
                              const struct device_options *opt,
                              const char *cache_folder,
                              struct error *err);
/* Accepts NULL. New choices are saved; a failure to save is not reported: the next run searches
 * again. */
void conv_plans_destroy(struct conv_plans *p);

struct cuda_device;
/* Executes the problem on the device's stream: `x`, `w`, `y` in the roles of struct conv_problem,
 * one of them written. Returns OK, NOMEM, INVALID (an address is not a multiple of 16), UNSUPPORTED
 * (no engine supports it), LIMIT (too many shapes, or a new one in a capture) or DEVICE. */
enum status conv_run(struct cuda_device *dev,
                     const struct conv_problem *p,
                     void *x,
                     void *w,
                     void *y,
                     struct error *err);

/* conv_direct.cu: the same by plain kernels, for any shape. Returns the result of the launch. */
cudaError_t
launch_conv_direct(cudaStream_t stream, const struct conv_problem *p, void *x, void *w, void *y);

/* ---- conv_stem.cu: few channels at stride 2, in a form that cuDNN computes fast ---- */

/* Whether a problem has such a form; conv_stem_problem returns it, for the same pass. */
bool conv_stem_applies(const struct conv_problem *p);
struct conv_problem conv_stem_problem(const struct conv_problem *p);

/* Its operands, in the workspace. */
struct conv_stem {
    void *x, *w;
};
size_t conv_stem_workspace_bytes(const struct conv_problem *p);
/* Fills x and, except for CONV_WEIGHT, w. */
cudaError_t launch_conv_stem_pack(const struct launch_on *on,
                                  const struct conv_problem *p,
                                  const void *x,
                                  const void *w,
                                  struct conv_stem *out);
/* Converts the gradient of the weights back to the shape of the problem. */
cudaError_t launch_conv_stem_unpack(const struct launch_on *on,
                                    const struct conv_problem *p,
                                    const struct conv_stem *from,
                                    void *w);

#ifdef __cplusplus
}
#endif

#endif
