/*
 * params: one table of all tensors of a model: names, shapes, initial values, and their positions
 * in a few flat blocks of device memory.
 *
 * A model adds its tensors, then params_alloc places them. A tensor is identified by its index,
 * which is also its position in checkpoints.
 *
 *   value   [ decayed ... | undecayed ... | buffers ... ]     each tensor starts at 64 bytes,
 *   grad    [ decayed ... | undecayed ... ]                   except `adjacent` ones; gaps
 *   m, v    [ decayed ... | undecayed ... ]                   between tensors stay zero
 *   working [ decayed ... ]                                   copies in BF16
 *
 * so the optimiser and the global norm run over two flat ranges. Buffers are running statistics:
 * saved with the model, not changed by the optimiser.
 *
 * Order in memory: the last added tensor first. Models add tensors in forward order, and backward
 * finishes gradients in reverse order. So finished gradients are always a prefix of the range,
 * which can be sent to other ranks while backward still runs (train/model/gradients.h). `adjacent`
 * tensors stay in order of addition after their first one.
 *
 * Names are timm's (image) and Hugging Face's (text) after a prefix, or open_clip's. params_read
 * and params_write use PyTorch's layout ("outside"): convolution weights are (O, I, KH, KW) outside
 * and (O, KH, KW, I) in device memory.
 *
 * A BF16 model keeps values, gradients and moments in f32. Operators read BF16 working copies of
 * tensors with two or more dimensions; the optimiser and params_write update them.
 *
 * A locked tensor (params_lock) has a value, but neither gradient nor moments.
 *
 * Decay: every trainable tensor decays, except 1-D tensors and names that end in ".bias".
 *
 * Threading : one owner.
 * Ownership : the table owns its blocks and names; tensors are views until params_destroy. The
 *             device is borrowed and must outlive the table.
 */
#ifndef TRAIN_MODEL_PARAMS_H
#define TRAIN_MODEL_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "kernels/ops.h"

struct params;

enum { PARAM_MAX_NAME_BYTES = 128 }; /* with the prefix and the terminating zero */

enum param_init {
    PARAM_INIT_ZEROS,
    PARAM_INIT_ONES,
    PARAM_INIT_NORMAL,  /* mean 0, std init_scale */
    PARAM_INIT_UNIFORM, /* in [-init_scale, init_scale) */
};

enum param_kind {
    PARAM_TRAINED,
    PARAM_BUFFER, /* running statistics: no gradient, no optimiser state */
    PARAM_LOCKED  /* a weight that is not trained: likewise */
};

struct param_spec {
    const char *module, *name;      /* "MODULE.NAME", or NAME if module is NULL; copied; the table's
                                       prefix is prepended */
    int64_t shape[TENSOR_MAX_DIMS]; /* as in device memory: (O, KH, KW, I), (OUT, IN), (N); ends
                                       at the first 0 */
    bool conv;                      /* shape outside: (O, I, KH, KW) */
    bool transposed;                /* (OUT, IN); shape outside: (IN, OUT) */
    bool adjacent; /* placed directly after the last added tensor with (or without) decay, as this
                      one; it must exist */
    enum param_kind kind;
    enum param_init init;
    double init_scale;
};

struct param_info {
    const char *name; /* with prefix */
    int32_t ndim;
    int64_t shape[TENSOR_MAX_DIMS]; /* outside: PyTorch's */
    int64_t count;                  /* elements */
    enum param_kind kind;
    bool decay;
};

enum param_slot {
    PARAM_VALUE,
    PARAM_GRAD,
    PARAM_M,
    PARAM_V,
    PARAM_AVERAGE /* of values, buffers and locked tensors; if params_keep_average is set */
};

struct params_bytes {
    size_t value_bytes;
    size_t buffer_bytes; /* part of value_bytes that is buffers */
    size_t grad_bytes;
    size_t moments_bytes; /* m and v together */
    size_t average_bytes;
    size_t working_bytes; /* copies in BF16 */
};

enum status params_create(struct params **out, struct error *err);
void params_destroy(struct params *p); /* accepts NULL */

/* The prefix of the tensors added next, e.g. "image."; copied. Returns OK or LIMIT. */
enum status params_set_prefix(struct params *p, const char *prefix, struct error *err);

/* Adds one tensor; *index: 0-based, in order of addition. Not after params_alloc. Returns OK,
 * NOMEM, LIMIT (name too long) or EXISTS (same name). */
enum status
params_add(struct params *p, int32_t *index, const struct param_spec *spec, struct error *err);

/* Moments of the optimiser: 2, m and v (the default), or 1, only m. Not after params_alloc. */
void params_set_moments(struct params *p, int32_t count);
int32_t params_moments(const struct params *p);

/* Whether the table has a moving average of its values; default false. Not after params_alloc. */
void params_keep_average(struct params *p, bool keep);
bool params_has_average(const struct params *p);
/* Sets the average to the values; later updates it: decay average + (1 - decay) values. Each does
 * nothing without an average. Returns OK or what the device returns. */
enum status params_begin_average(struct params *p, struct error *err);
enum status params_average(struct params *p, double decay, struct error *err);

/* The tensor is not trained. Not after params_alloc; not for a buffer. */
void params_lock(struct params *p, int32_t index);

/* Factor of the optimiser's learning rate for this tensor; default 1. */
void params_set_rate(struct params *p, int32_t index, float rate);

/* Elements [from, *end) of params_range(p, slot, decayed) have this rate; false: `from` is the end
 * of the range. */
bool params_same_rate(const struct params *p,
                      bool decayed,
                      int64_t from,
                      int64_t *end,
                      float *rate);

/* What params_alloc will allocate; training: with gradients and moments. */
struct params_bytes params_plan(const struct params *p, enum dtype dtype, bool training);

/* Allocates the blocks, zeroed. dtype: F32, or F64 or BF16 on a device that has it. Without
 * training only values and working copies exist. Returns OK, NOMEM or DEVICE. */
enum status params_alloc(struct params *p,
                         struct device *dev,
                         enum dtype dtype,
                         bool training,
                         struct error *err);

/* Initialises every value, a pure function of seed, index, shape and init. Gradients, m and v
 * become 0. Returns OK, NOMEM or DEVICE. */
enum status params_init(struct params *p, uint64_t seed, struct error *err);

int32_t params_count(const struct params *p);
int32_t params_find(const struct params *p, const char *name); /* -1: none */
struct param_info params_info(const struct params *p, int32_t index);
enum dtype params_dtype(const struct params *p); /* of values: F32 for a BF16 model */

/* Elements of all trained tensors (or of all buffers). */
int64_t params_element_count(const struct params *p, enum param_kind kind);

/* Views in device layout, as operators read them: params_tensor returns the working copy if there
 * is one. params_grad of a buffer is an omitted operand (data NULL, ndim 0). */
struct tensor params_tensor(const struct params *p, int32_t index);
struct tensor params_grad(const struct params *p, int32_t index);

/* One trained tensor of a slot, in device layout and the table's own memory, never the working
 * copy. Slots other than PARAM_VALUE require training. */
struct tensor params_slot(const struct params *p, int32_t index, enum param_slot slot);

/* From now on params_grad returns views of `block`, which has the layout of the table's gradients
 * (params_plan, grad_bytes), instead of those. NULL: of the table's own. params_range and
 * params_read always use the table's own. */
void params_redirect_gradients(struct params *p, void *block);

/* From now on params_tensor of a buffer returns views of `block`, which has the layout of
 * params_buffers. NULL: of the table's own. Passes then write the statistics of their batch to it
 * (params_momentum). */
void params_redirect_buffers(struct params *p, void *block);

/* Weight of a training pass's statistics in buffers: 1 if they are redirected, else 0.1. */
float params_momentum(const struct params *p);

/* All buffers of the table as one flat tensor (1-D, may have 0 elements). */
struct tensor params_buffers(const struct params *p);

/* The length of the shortest prefix of params_range(p, slot, true) with every decayed tensor from
 * `index` on. */
int64_t params_decayed_prefix(const struct params *p, int32_t index);

/* All decayed or all undecayed trained tensors of a slot as one flat tensor (1-D, may have 0
 * elements). Slots other than PARAM_VALUE require training. */
struct tensor params_range(const struct params *p, enum param_slot slot, bool decayed);

/* The working copies of params_range(p, PARAM_VALUE, decayed), as one flat tensor; omitted if there
 * are none. */
struct tensor params_working(const struct params *p, bool decayed);

/* Copies one tensor from or to device memory, in PyTorch's layout and the table's dtype.
 * size_bytes: of info.count elements. Slots other than PARAM_VALUE: only trained tensors of a table
 * with training. Returns OK, NOMEM or DEVICE. */
enum status params_read(const struct params *p,
                        int32_t index,
                        enum param_slot slot,
                        void *host,
                        size_t size_bytes,
                        struct error *err);
/* Maximum elements per params_read_piece: a few MiB, or the whole tensor if its layout in memory is
 * not PyTorch's. */
int64_t params_piece_count(const struct params *p, int32_t index);
/* Elements [first, first + count), as params_read. */
enum status params_read_piece(const struct params *p,
                              int32_t index,
                              enum param_slot slot,
                              int64_t first,
                              int64_t count,
                              void *host,
                              struct error *err);
enum status params_write(struct params *p,
                         int32_t index,
                         enum param_slot slot,
                         const void *host,
                         size_t size_bytes,
                         struct error *err);

#endif
