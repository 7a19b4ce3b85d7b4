/*
 * operands: one description of every operator of ops.h: its operands with their roles, types and
 * shapes, the rules for its numbers, and its cost. The checks of all backends, the memory of tests
 * and measurements (op_cases/), and the bytes and FLOPs that ccbench reports are derived from it.
 *
 * Threading : pure functions over constant tables.
 */
#ifndef KERNELS_OPERANDS_H
#define KERNELS_OPERANDS_H

#include "kernels/ops.h"

#define OPERANDS_ID(name) OP_##name,
enum op_id { OPS_LIST(OPERANDS_ID) OPS_COUNT };
#undef OPERANDS_ID

/* Room for the arguments of any operator. */
#define OPERANDS_MEMBER(name) struct name name;
union op_args {
    OPS_LIST(OPERANDS_MEMBER)
};
#undef OPERANDS_MEMBER

enum op_role {
    ROLE_IN,
    ROLE_OUT,      /* overwritten, or added to with WRITE_ADD */
    ROLE_BOTH,     /* read and written */
    ROLE_WORKSPACE /* written; the contents have no meaning */
};

enum operand_type {
    TYPE_REAL,          /* the real type of the call */
    TYPE_PARAM,         /* param_dtype of it */
    TYPE_REAL_OR_PARAM, /* either */
    TYPE_CAST,          /* F32 or BF16, on every device */
    TYPE_BF16,
    TYPE_F64,
    TYPE_I32,
    TYPE_U8,
    TYPE_VALUES, /* not a tensor but a struct step_values * */
    TYPE_IDS     /* not a tensor but a const uint64_t *: sample ids */
};

struct operand {
    const char *name;
    size_t offset; /* in the argument struct */
    enum op_role role;
    enum operand_type type;
    const char *shape; /* see OPS_TENSOR in ops.h */
    bool optional;
    char below; /* i32: values are in [0, size of that letter), lengths in [1, size]; 0: any */
    size_t mode_offset; /* of its enum write_mode; 0: it has none */
    bool is_sparse;     /* only rows that an index names are read or written */
};

struct op_info {
    const char *name;
    size_t args_bytes;
    const struct operand *operands;
    int32_t operands_count;
    /* Conditions beyond types and shapes; sizes: by letter. NULL: none. */
    enum status (*rules)(const void *args, const int64_t *sizes, struct error *err);
    double (*flops)(const void *args); /* NULL: 0 */
};

const struct op_info *op_info(enum op_id id);

static inline bool operand_is_tensor(const struct operand *o) {
    return o->type != TYPE_VALUES && o->type != TYPE_IDS;
}

static inline const struct tensor *operand_tensor(const struct operand *o, const void *args) {
    return (const struct tensor *)(const void *)((const char *)args + o->offset);
}

static inline enum write_mode operand_mode(const struct operand *o, const void *args) {
    return o->mode_offset == 0
               ? WRITE_SET
               : *(const enum write_mode *)(const void *)((const char *)args + o->mode_offset);
}

/* The type of a tensor operand in a call of type `real`. */
enum dtype operand_dtype(const struct operand *o, enum dtype real);

/* Reads the next dimension of a shape: *factor times the size of *letter (0: *factor). False at the
 * end. */
bool operand_next_dimension(const char **shape, int64_t *factor, char *letter);

/* Checks the arguments of a call: the type against the device, then all operands and numbers; with
 * `indices` also the values of indices and captions, which must then be in host memory.
 * Returns OK, UNSUPPORTED, or INVALID with a message that names operator, operand, found and
 * expected. */
enum status
op_check(struct device *dev, enum op_id id, const void *args, bool indices, struct error *err);

/* Whether the device has the operator. */
bool op_available(const struct device *dev, enum op_id id);

/* Calls an operator by its number. Returns its status, or UNSUPPORTED if the device lacks it. */
enum status op_call(struct device *dev, enum op_id id, const void *args, struct error *err);

/* Bytes of operands, each read or written once, or both (added to). */
double op_bytes(enum op_id id, const void *args);
/* Additions and multiplications; 0 if only memory traffic counts. */
double op_flops(enum op_id id, const void *args);

int64_t conv_out_size(int64_t in, int64_t kernel, int64_t stride, int64_t pad);    /* floor form */
int64_t avgpool_out_size(int64_t in, int64_t kernel, int64_t stride, int64_t pad); /* ceil form */

/* A backend defines each operator as BACKEND_NAME(dev, op, err). Its table holds a wrapper that
 * checks the arguments first, so the operators themselves check nothing:
 *
 *     OPS_DECLARE   the prototype
 *     OPS_CHECKED   the wrapper; indices: as op_check's
 *     OPS_ENTRY     its entry in the initialiser of the table
 */
#define OPS_DECLARE(backend, name)                                                                 \
    enum status backend##_##name(struct device *dev, const struct name *op, struct error *err);
#define OPS_CHECKED(backend, name, indices)                                                        \
    static enum status checked_##name(struct device *dev, const struct name *op,                   \
                                      struct error *err) {                                         \
        TRY(op_check(dev, OP_##name, op, indices, err));                                           \
        return backend##_##name(dev, op, err);                                                     \
    }
#define OPS_ENTRY(name) .name = checked_##name,

#endif
