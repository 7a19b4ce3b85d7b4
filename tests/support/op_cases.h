/*
 * op_cases: shared by tests of operators over the rows of kernels/op_cases: opens a device, visits
 * every case, fills its operands, compares results.
 *
 * Threading : single-owner.
 */
#ifndef TESTS_SUPPORT_OP_CASES_H
#define TESTS_SUPPORT_OP_CASES_H

#include <stdbool.h>

#include "kernels/op_cases/op_rows.h"

enum {
    OP_CASES_DEVICES = 2,
    OP_MAX_SIZES = 12,    /* sizes of a row */
    OP_MAX_VARIANTS = 10, /* flag sets of a row */
};

/* What a row is tested at. */
struct op_trial {
    const char *name;     /* of the row */
    double tolerance_f32; /* of cpu against cpu-ref, relative to the largest value of the operand or
                             1 */
    double tolerance_bf16; /* the same in a BF16 call, normwise; one element: four times that, and a
                              step of rounding */
    double tolerance_f64;  /* of the gradient against finite differences, likewise */
    int sizes_count;
    struct op_size sizes[OP_MAX_SIZES];
    int variants_count;
    unsigned variants[OP_MAX_VARIANTS];
};

const struct op_trial *op_trial_of(const struct op_row *row);

/* The devices of every build: the reference and the CPU. */
extern const char *const op_cases_devices[OP_CASES_DEVICES];

/* Opens it with two threads, or fails. */
struct device *op_cases_open(const char *name);

/* The GPU, with a log of cuDNN's engines on stderr. A case without one is skipped with the reason;
 * it fails where CCSTREAM_TEST_DEVICE names cuda. */
struct device *op_cases_open_cuda(void);

/* False, with the reason on stdout, where the CPU lacks the type; a GPU that lacks it fails. */
bool op_cases_computes(struct device *dev, enum dtype dtype);

/* "conv_bn, f32, size 2 5 7 ..., flags 4" for messages; valid until the next call. */
const char *op_cases_name(const struct op_case *c);

/* Calls `visit` for every row, size and variant. A script continues after a row that ended the
 * process: rows are numbered through the process, CCSTREAM_TEST_FIRST_ROW is the first to visit,
 * and the file CCSTREAM_TEST_ROW_FILE holds "NUMBER NAME TYPE" of the one under way. */
void op_cases_each(enum dtype real, void (*visit)(struct op_case *c, void *cookie), void *cookie);

/* The largest step between numbers of the type, relative to them; 0 for F32 and F64. */
double op_rounding_step(enum dtype t);
double op_value(const struct tensor *t, int64_t index);
void op_data_copy(struct op_data *to, const struct op_data *from, const struct op_case *c);

/* Filled operands, `shift` elements off the 64-byte boundary. */
void op_cases_make(struct op_data *d, const struct op_case *c, int shift, struct device *dev);

/* Fails where memory beside an operand was written. */
void op_cases_check_guards(const struct op_data *d, const struct op_case *c);

/* Fails where an input is not as it was. */
void op_cases_check_inputs(const struct op_data *d,
                           const struct op_data *before,
                           const struct op_case *c);

/* Reports a difference on stderr and counts it, so that one run names every row that is wrong: a
 * GPU may be available for minutes only. */
void __attribute__((format(printf, 2, 3)))
op_cases_differs(const struct op_case *c, const char *fmt, ...);

/* Reports every operand that the call wrote and that is not as the reference has it: each element
 * within the row's tolerance, and in a BF16 call also the norm of the operand. */
void op_cases_compare(const struct op_case *c,
                      const struct op_data *got,
                      const struct op_data *ref);

/* Reports operand `name` where |got - ref| exceeds the tolerance of |ref|, or of ones. */
void op_cases_compare_norms(const struct op_case *c,
                            const char *name,
                            const struct tensor *got,
                            const struct tensor *ref,
                            double tolerance);

/* Fails if a difference was reported. */
void op_cases_fail_where_it_differed(void);

double op_cases_largest(const struct tensor *t); /* absolute value */

/* Fails where an operand that is no workspace differs; `how` ends the message. */
void op_cases_same_bits(const struct op_case *c,
                        const struct op_data *a,
                        const struct op_data *b,
                        const char *how);

#endif
