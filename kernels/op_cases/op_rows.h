/*
 * op_rows: how tests and benchmarks call every operator: its variants and the contents of its
 * operands (described in kernels/operands.h). tools/ccbench/ops.c times the rows, tests/ops tests
 * them, with the sizes and tolerances of tests/support/op_cases.c.
 *
 * A backward row names its forward row. Operands of equal name in both hold the same values:
 * filling a backward case runs the forward one and copies what it kept. The gradient of operand x
 * is called dx, or names x in `gradient_of`.
 *
 * Threading : none. One owner.
 * Ownership : op_data owns its memory: create/destroy; op_placed owns its memory on a device.
 */
#ifndef KERNELS_OP_CASES_OP_ROWS_H
#define KERNELS_OP_CASES_OP_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/operands.h"

enum {
    OP_MAX_OPERANDS = 20,
    OP_MAX_SAMPLES = 256, /* batch, for dropout's sample ids */
    OP_GUARD_BYTES = 256, /* on both sides of every operand */
    OP_GUARD_BYTE = 0xA5  /* their value */
};

/* Flags of a variant. */
enum op_flag {
    OP_ADD = 1,   /* gradients are added instead of set */
    OP_PLAIN = 2, /* without residual, bias or second summand */
    OP_ACT = 4,   /* with ReLU or GELU */
    OP_DROP = 8,  /* with dropout */
    OP_TRANSPOSE_A = 16,
    OP_TRANSPOSE_B = 32,
    OP_ALIAS = 64,   /* the aliasing that the op allows */
    OP_EVAL = 128,   /* inference form */
    OP_OMIT = 256,   /* optional gradients, running statistics or copies are omitted */
    OP_PACKED = 512, /* packed captions, instead of T rows apart */
    OP_ALT = 1024,   /* the op's other form: cast back, a product in its inputs' type, Nesterov,
                       no norm, causal, the quick GELU */
    OP_THIRD = 2048  /* its third form: the tanh GELU */
};

enum op_content {
    CONTENT_REAL,     /* uniform in (-2, 2) */
    CONTENT_POSITIVE, /* uniform in (0.5, 2.5) */
    CONTENT_INDEX,    /* below limit, often repeated */
    CONTENT_LENGTH,   /* 1 to limit */
    CONTENT_DISTINCT, /* below limit, all different */
    CONTENT_START,    /* starts of captions, at most limit rows; the next operand has lengths */
    CONTENT_BYTE,
    CONTENT_VALUES, /* the case's step values */
    CONTENT_IDS     /* sample ids, all different */
};

/* An operand of a case. Step values and sample ids are tensors of numbers here. */
struct op_operand {
    const struct operand *of;
    const char *name;
    enum op_role role;
    enum op_content content;
    int32_t limit;
    bool optional;           /* may be omitted */
    bool added;              /* ROLE_BOTH because of OP_ADD: result = before + gradient */
    bool plain;              /* the op receives only its address: no shape is wrong */
    bool free_shape;         /* the only operand of any shape: no shape is wrong */
    bool free_last;          /* the only operand with its last size: no last size is wrong */
    bool by_caption;         /* an input whose rows outside captions must not be read */
    const char *gradient_of; /* forward operand; NULL: none */
    int alias;               /* index of the operand whose memory it shares, or -1 */
    struct tensor shape;     /* without data; ndim 0: omitted in this case */
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
    int64_t sizes[128]; /* by letter of the operands' shapes */
    int count;
    struct op_operand operands[OP_MAX_OPERANDS];
    union op_args args; /* numbers and modes; operands are set at the call */
    struct step_values values;
};

struct op_row {
    const char *name;
    enum op_id op;
    const char *letters; /* letters of the operands' shapes that the first sizes set */
    const char *forward; /* row whose gradient this is; NULL: none */
    /* Sets other letters and the numbers of the arguments, calls op_add_operands, and changes
     * operands that differ from their table. NULL: only op_add_operands. */
    void (*describe)(struct op_case *c, const int64_t *size);
};

extern const struct op_row op_rows[];
extern const int op_rows_count;

const struct op_row *op_row_find(const char *name); /* NULL: no such row */
void op_describe(struct op_case *c,
                 const struct op_row *row,
                 const struct op_size *size,
                 unsigned flags,
                 enum dtype real);
/* Adds the operands of the operator's table, in the sizes and type of the case. */
void op_add_operands(struct op_case *c);
int op_operand_find(const struct op_case *c, const char *name); /* -1: none */

struct op_data {
    struct tensor t[OP_MAX_OPERANDS];
    unsigned char *raw[OP_MAX_OPERANDS]; /* guard, data, guard */
    size_t raw_bytes[OP_MAX_OPERANDS];
};

/* Allocates every operand with guards around it, `shift` elements off a 64-byte boundary. Returns
 * OK or NOMEM. */
enum status
op_data_create(struct op_data *d, const struct op_case *c, int shift, struct error *err);
void op_data_destroy(struct op_data *d);

/* Fills all operands, deterministically by seed. A backward case runs its forward case on the
 * device. Returns OK, NOMEM, or the status of that call. */
enum status op_data_fill(struct op_data *d,
                         const struct op_case *c,
                         uint64_t seed,
                         struct device *dev,
                         struct error *err);

/* Sets the arguments of the case, with these operands. */
void op_case_args(union op_args *out, const struct op_case *c, const struct tensor *t);

/* Makes the call. If the device has its own memory, operands are copied there and back, with their
 * guards. Returns the status of the call or of a copy. */
enum status
op_run(struct device *dev, const struct op_case *c, const struct op_data *d, struct error *err);

/* Operands in the memory of a device, for calls that are timed. */
struct op_placed {
    struct tensor t[OP_MAX_OPERANDS];
    void *raw[OP_MAX_OPERANDS];
};

/* Copies the operands to the device. Returns as alloc and upload. */
enum status op_place(struct op_placed *p,
                     struct device *dev,
                     const struct op_case *c,
                     const struct op_data *d,
                     struct error *err);
void op_placed_free(struct op_placed *p, struct device *dev);

#endif
