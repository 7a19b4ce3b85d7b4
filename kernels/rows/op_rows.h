/*
 * op_rows: every operator of kernels/ops.h described once: its operands, the sizes and variants it
 * is tried at, how it is called, what it costs and how exact it must be. tests/ops turns the rows
 * into tests, tools/ccbench/ops.c into a benchmark.
 *
 * A backward row names its forward row. Operands of equal name in both hold the same values:
 * filling a backward case runs the forward one and copies what it kept. The gradient of operand x
 * is called dx, or says in `gradient_of` what it belongs to.
 *
 * Threading : none. One owner.
 * Ownership : op_data owns its memory: create/destroy; op_placed what it took on a device.
 */
#ifndef KERNELS_ROWS_OP_ROWS_H
#define KERNELS_ROWS_OP_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

enum {
    OP_MAX_OPERANDS = 20,
    OP_MAX_SIZES = 12,    /* sizes that a row is tried at */
    OP_MAX_VARIANTS = 10, /* flag sets that a row is tried with */
    OP_MAX_SAMPLES = 256, /* batch, for dropout's sample ids */
    OP_GUARD_BYTES = 256  /* on both sides of every operand */
};

/* Flags of a variant; a row lists the sets that mean something to it. */
enum op_flag {
    OP_ADD = 1,   /* gradients are added instead of set */
    OP_PLAIN = 2, /* without residual, bias or second summand */
    OP_ACT = 4,   /* with ReLU or GELU */
    OP_DROP = 8,  /* with dropout */
    OP_TRANSPOSE_A = 16,
    OP_TRANSPOSE_B = 32,
    OP_ALIAS = 64,     /* the aliasing that the op allows */
    OP_EVAL = 128,     /* inference form */
    OP_UNWANTED = 256, /* gradients, running statistics or copies that may be left out are */
    OP_PACKED = 512,   /* captions one behind the other instead of T rows apart */
    OP_ALT = 1024      /* the op's other form: cast back, a product in its inputs' type, Nesterov */
};

enum op_role {
    ROLE_IN,
    ROLE_OUT,    /* overwritten */
    ROLE_BOTH,   /* read and written */
    ROLE_SCRATCH /* written, content says nothing */
};

enum op_content {
    CONTENT_REAL,     /* uniform in (-2, 2) */
    CONTENT_POSITIVE, /* uniform in (0.5, 2.5) */
    CONTENT_INDEX,    /* below limit, equal ones likely */
    CONTENT_LENGTH,   /* 1 to limit */
    CONTENT_DISTINCT, /* below limit, no two equal */
    CONTENT_START,    /* where captions of at most limit rows begin; its lengths come next */
    CONTENT_BYTE
};

struct op_operand {
    const char *name;
    enum op_role role;
    enum op_content content;
    int32_t limit;
    bool optional;           /* may be not wanted */
    bool added;              /* ROLE_BOTH because of OP_ADD: result = before + gradient */
    bool plain;              /* the op takes its address alone: there is no wrong shape */
    bool by_caption;         /* an input whose rows outside captions must not be read */
    const char *gradient_of; /* forward operand; NULL: none */
    int alias;               /* index of the operand whose memory it shares, or -1 */
    struct tensor shape;     /* without data; ndim 0: not wanted in this case */
};

struct op_size {
    int64_t v[8];
};

struct op_row;

/* One row at one size in one variant. */
struct op_case {
    const struct op_row *row;
    struct op_size size;
    unsigned flags;
    enum dtype real;
    int count;
    struct op_operand operands[OP_MAX_OPERANDS];
    double flops; /* 0: only memory traffic counts */
    enum write_mode mode;
    enum activation act;
    struct conv_bn_params conv;
    struct pool_params pool;
    struct dropout_params dropout;
    struct attention_params attention;
    struct adamw_params adamw;
    struct sgdm_params sgdm;
    struct step_values values; /* what the parameters above point to, */
    uint64_t sample_ids[OP_MAX_SAMPLES];
};

struct op_row {
    const char *name;
    size_t member;       /* offset in struct ops */
    const char *forward; /* row whose gradient this is; NULL: none */
    void (*describe)(struct op_case *c, const int64_t *size);
    enum status (*call)(const struct ops *ops,
                        struct device *dev,
                        const struct tensor *t,
                        const struct op_case *c,
                        struct error *err);
    double tolerance_f32; /* of cpu against cpu-ref, relative to the largest value of the operand or
                             1 */
    double tolerance_bf16; /* the same in a BF16 call, normwise; one element: four times that, and a
                              step of rounding */
    double tolerance_f64;  /* of the gradient against finite differences, likewise */
    bool any_shape;        /* a single operand of any shape: no wrong one exists */
    int sizes_count;
    struct op_size sizes[OP_MAX_SIZES];
    int variants_count;
    unsigned variants[OP_MAX_VARIANTS];
};

extern const struct op_row op_rows[];
extern const int op_rows_count;

const struct op_row *op_row_find(const char *name);                 /* NULL: no such row */
double op_row_tolerance(const struct op_row *row, enum dtype real); /* F32 or BF16 */
/* The largest step between numbers of the type, relative to them; 0 for F32 and F64. */
double op_rounding_step(enum dtype t);
void op_describe(struct op_case *c,
                 const struct op_row *row,
                 const struct op_size *size,
                 unsigned flags,
                 enum dtype real);
double op_case_bytes(const struct op_case *c); /* each operand read once, written once */
int op_operand_find(const struct op_case *c, const char *name); /* -1: none */

struct op_data {
    struct tensor t[OP_MAX_OPERANDS];
    unsigned char *raw[OP_MAX_OPERANDS]; /* guard, data, guard */
    size_t raw_bytes[OP_MAX_OPERANDS];
};

/* Memory for every operand, guards around it. `shift` elements off the 64-byte boundary. Returns
 * OK or NOMEM. */
enum status
op_data_create(struct op_data *d, const struct op_case *c, int shift, struct error *err);
void op_data_destroy(struct op_data *d);

/* The same seed gives the same values. A backward case runs its forward one on the device. Returns
 * OK or what that answers. */
enum status op_data_fill(struct op_data *d,
                         const struct op_case *c,
                         uint64_t seed,
                         struct device *dev,
                         struct error *err);
void op_data_copy(struct op_data *to, const struct op_data *from, const struct op_case *c);
/* The first operand whose surroundings were written, or NULL. */
const char *op_data_broken_guard(const struct op_data *d, const struct op_case *c);
double op_value(const struct tensor *t, int64_t index);

/* Makes the call. Where the device has a memory of its own, operands go there and come back, guards
 * and all. */
enum status
op_run(struct device *dev, const struct op_case *c, const struct op_data *d, struct error *err);

/* Operands in the memory of a device, whichever it is, for calls that are timed: those of
 * on_device. Not to be copied. */
struct op_placed {
    struct tensor t[OP_MAX_OPERANDS];
    void *raw[OP_MAX_OPERANDS];
    struct op_case on_device; /* the case whose parameters point to the device's memory */
    void *values;             /* step values and sample ids there */
};

/* Copies the operands there. Returns OK, or what alloc and upload answer. */
enum status op_place(struct op_placed *p,
                     struct device *dev,
                     const struct op_case *c,
                     const struct op_data *d,
                     struct error *err);
/* Copies them back, guards and all. */
enum status op_fetch(const struct op_placed *p,
                     struct device *dev,
                     const struct op_case *c,
                     const struct op_data *d,
                     struct error *err);
void op_placed_free(struct op_placed *p, struct device *dev);

#endif
