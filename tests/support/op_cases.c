#include "tests/support/op_cases.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/log.h"
#include "kernels/bf16.h"
#include "tests/support/test.h"

/* ---- sizes, variants and tolerances ---- */

#define SIZES(n, ...)    .sizes_count = (n), .sizes = {__VA_ARGS__}
#define VARIANTS(n, ...) .variants_count = (n), .variants = {__VA_ARGS__}

#define CONV_SIZES                                                                                 \
    SIZES(12, {{2, 4, 5, 65, 9, 1, 1, 0}}, {{2, 2, 2, 64, 17, 3, 1, 1}},                           \
          {{1, 5, 3, 67, 8, 3, 2, 1}}, {{1, 1, 1, 1, 1, 1, 1, 0}}, {{2, 1, 1, 3, 5, 1, 1, 0}},     \
          {{2, 5, 7, 3, 17, 3, 2, 1}}, {{1, 8, 8, 16, 16, 3, 1, 1}}, {{3, 7, 5, 9, 33, 3, 1, 1}},  \
          {{2, 6, 9, 17, 8, 1, 2, 0}}, {{1, 9, 9, 3, 8, 7, 2, 3}}, {{2, 3, 2, 7, 1, 3, 3, 2}},     \
          {{3, 1, 4, 2, 31, 1, 1, 1}})
#define MAXPOOL_SIZES                                                                              \
    SIZES(6, {{1, 1, 1, 1, 1, 1, 0}}, {{2, 7, 5, 3, 3, 2, 1}}, {{1, 8, 8, 16, 3, 2, 1}},           \
          {{3, 4, 6, 17, 2, 2, 0}}, {{2, 5, 5, 9, 3, 1, 1}}, {{1, 9, 4, 33, 2, 3, 0}})
#define AVGPOOL_SIZES                                                                              \
    SIZES(6, {{1, 1, 1, 1, 2, 2, 0}}, {{2, 7, 5, 3, 2, 2, 0}}, {{1, 8, 8, 16, 2, 2, 0}},           \
          {{3, 5, 6, 17, 3, 2, 1}}, {{2, 5, 5, 9, 3, 1, 1}}, {{1, 9, 4, 33, 2, 3, 1}})
#define PLANE_SIZES SIZES(4, {{1, 1, 1, 1}}, {{2, 3, 5, 7}}, {{3, 2, 2, 33}}, {{5, 4, 4, 16}})
#define PATCH_SIZES SIZES(4, {{1, 1, 1, 1}}, {{2, 3, 5, 1}}, {{2, 6, 4, 2}}, {{3, 32, 48, 16}})
#define PRODUCT_SIZES                                                                              \
    SIZES(6, {{1, 1, 1}}, {{1, 7, 3}}, {{17, 1, 33}}, {{33, 17, 1}}, {{16, 8, 32}}, {{19, 31, 23}})
#define EMBEDDING_SIZES                                                                            \
    SIZES(4, {{1, 1, 1, 1, 1}}, {{3, 5, 7, 4, 6}}, {{2, 9, 33, 11, 9}}, {{4, 8, 16, 3, 8}})
#define LAYERNORM_SIZES SIZES(5, {{1, 2}}, {{1, 33}}, {{7, 5}}, {{19, 16}}, {{35, 31}})
#define ATTENTION_SIZES                                                                            \
    SIZES(7, {{1, 1, 1, 1}}, {{2, 3, 1, 5}}, {{3, 7, 3, 4}}, {{2, 16, 2, 16}}, {{1, 17, 1, 33}},   \
          {{5, 2, 4, 1}}, {{1, 70, 2, 3}})
#define DROPOUT_SIZES SIZES(5, {{1, 1, 1}}, {{3, 1, 7}}, {{2, 5, 9}}, {{4, 8, 16}}, {{2, 31, 37}})
#define L2_SIZES      SIZES(5, {{1, 1}}, {{1, 2}}, {{3, 7}}, {{5, 33}}, {{16, 16}})
#define FLAT_SIZES    SIZES(5, {{1, 1}}, {{7, 2}}, {{16, 10}}, {{1001, 1000}}, {{40007, 3}})

/* In the order of op_rows. */
static const struct op_trial trials[] = {
    {.name = "fill", .tolerance_f32 = 0, .tolerance_bf16 = 0, FLAT_SIZES, VARIANTS(1, 0)},
    {.name = "cast", .tolerance_f32 = 0, .tolerance_bf16 = 0, FLAT_SIZES, VARIANTS(2, 0, OP_ALT)},
    {.name = "normalize_u8",
     .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3,
     PATCH_SIZES,
     VARIANTS(1, 0)},
    {.name = "conv_bn",
     .tolerance_f32 = 1e-5,
     .tolerance_bf16 = 4e-3,
     CONV_SIZES,
     VARIANTS(7,
              0,
              OP_ACT,
              OP_PLAIN,
              OP_PLAIN | OP_ACT,
              OP_EVAL | OP_ACT,
              OP_EVAL | OP_PLAIN,
              OP_OMIT | OP_ACT)},
    {.name = "conv_bn_bwd",
     .tolerance_f32 = 2e-5,
     .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6,
     CONV_SIZES,
     VARIANTS(8,
              0,
              OP_ACT,
              OP_ACT | OP_ADD,
              OP_PLAIN | OP_ACT,
              OP_PLAIN | OP_ADD,
              OP_ALIAS | OP_ACT,
              OP_OMIT | OP_ACT,
              OP_OMIT | OP_ACT | OP_ADD)},
    {.name = "conv_gn",
     .tolerance_f32 = 1e-5,
     .tolerance_bf16 = 4e-3,
     CONV_SIZES,
     VARIANTS(6, 0, OP_ACT, OP_PLAIN, OP_ALT, OP_ALT | OP_ACT, OP_ALT | OP_PLAIN | OP_ACT)},
    {.name = "conv_gn_bwd",
     .tolerance_f32 = 2e-5,
     .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6,
     CONV_SIZES,
     VARIANTS(10,
              0,
              OP_ACT,
              OP_ACT | OP_ADD,
              OP_PLAIN | OP_ADD,
              OP_ALIAS | OP_ACT,
              OP_OMIT | OP_ACT,
              OP_ALT | OP_ACT,
              OP_ALT | OP_ACT | OP_ADD,
              OP_ALT | OP_ALIAS | OP_ACT,
              OP_ALT | OP_OMIT)},
    {.name = "maxpool", .tolerance_f32 = 0, .tolerance_bf16 = 0, MAXPOOL_SIZES, VARIANTS(1, 0)},
    {.name = "maxpool_bwd",
     .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6,
     MAXPOOL_SIZES,
     VARIANTS(2, 0, OP_ADD)},
    {.name = "avgpool",
     .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3,
     AVGPOOL_SIZES,
     VARIANTS(1, 0)},
    {.name = "avgpool_bwd",
     .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6,
     AVGPOOL_SIZES,
     VARIANTS(2, 0, OP_ADD)},
    {.name = "global_avgpool",
     .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3,
     PLANE_SIZES,
     VARIANTS(1, 0)},
    {.name = "global_avgpool_bwd",
     .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6,
     PLANE_SIZES,
     VARIANTS(2, 0, OP_ADD)},
    /* bf16: cuBLASLt adds a bias of the result's type, so cuda rounds twice, by up to 2^-8 each */
    {.name = "linear",
     .tolerance_f32 = 2e-6,
     .tolerance_bf16 = 8e-3,
     PRODUCT_SIZES,
     VARIANTS(6, 0, OP_PLAIN, OP_ACT, OP_ACT | OP_PLAIN, OP_ACT | OP_ALT, OP_ACT | OP_THIRD)},
    {.name = "gelu",
     .tolerance_f32 = 2e-6,
     .tolerance_bf16 = 4e-3,
     SIZES(4, {{1, 1}}, {{3, 17}}, {{37, 96}}, {{2, 1500}}),
     VARIANTS(3, 0, OP_ALT, OP_THIRD)},
    {.name = "linear_bwd",
     .tolerance_f32 = 2e-6,
     .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6,
     PRODUCT_SIZES,
     VARIANTS(10,
              0,
              OP_ADD,
              OP_PLAIN,
              OP_ACT,
              OP_ACT | OP_ALT,
              OP_ACT | OP_THIRD,
              OP_ACT | OP_ADD,
              OP_ACT | OP_PLAIN | OP_ADD,
              OP_OMIT,
              OP_OMIT | OP_ACT | OP_ADD)},
    {.name = "matmul",
     .tolerance_f32 = 2e-6,
     .tolerance_bf16 = 4e-3,
     PRODUCT_SIZES,
     VARIANTS(6,
              0,
              OP_ADD,
              OP_TRANSPOSE_A,
              OP_TRANSPOSE_B | OP_ADD,
              OP_TRANSPOSE_A | OP_TRANSPOSE_B,
              OP_ALT | OP_TRANSPOSE_B)},
    {.name = "embedding",
     .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3,
     EMBEDDING_SIZES,
     VARIANTS(2, 0, OP_PACKED)},
    {.name = "embedding_bwd",
     .tolerance_f32 = 2e-6,
     .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6,
     EMBEDDING_SIZES,
     VARIANTS(4, 0, OP_ADD, OP_PACKED, OP_OMIT)},
    {.name = "layernorm",
     .tolerance_f32 = 5e-6,
     .tolerance_bf16 = 4e-3,
     LAYERNORM_SIZES,
     VARIANTS(4, 0, OP_PLAIN, OP_ALIAS, OP_ALIAS | OP_PLAIN)},
    {.name = "layernorm_bwd",
     .tolerance_f32 = 5e-6,
     .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6,
     LAYERNORM_SIZES,
     VARIANTS(3, 0, OP_ADD, OP_PLAIN)},
    {.name = "attention",
     .tolerance_f32 = 5e-6,
     .tolerance_bf16 = 4e-3,
     ATTENTION_SIZES,
     VARIANTS(5, 0, OP_DROP, OP_DROP | OP_PACKED, OP_ALT, OP_ALT | OP_DROP | OP_PACKED)},
    {.name = "attention_bwd",
     .tolerance_f32 = 5e-6,
     .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6,
     ATTENTION_SIZES,
     VARIANTS(5, 0, OP_DROP, OP_DROP | OP_PACKED, OP_ALT, OP_ALT | OP_DROP | OP_PACKED)},
    {.name = "dropout",
     .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3,
     DROPOUT_SIZES,
     VARIANTS(3, 0, OP_ALIAS, OP_PACKED)},
    {.name = "dropout (gradient)",
     .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6,
     DROPOUT_SIZES,
     VARIANTS(2, 0, OP_PACKED)},
    {.name = "segment_mean",
     .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3,
     DROPOUT_SIZES,
     VARIANTS(2, 0, OP_PACKED)},
    {.name = "segment_mean_bwd",
     .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6,
     DROPOUT_SIZES,
     VARIANTS(3, 0, OP_ADD, OP_PACKED)},
    {.name = "gather_rows",
     .tolerance_f32 = 0,
     .tolerance_bf16 = 0,
     SIZES(4, {{1, 1, 1}}, {{5, 3, 7}}, {{9, 31, 33}}, {{16, 16, 16}}),
     VARIANTS(1, 0)},
    {.name = "scatter_rows",
     .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3,
     SIZES(4, {{1, 1, 1}}, {{3, 5, 7}}, {{9, 31, 33}}, {{16, 16, 16}}),
     VARIANTS(2, 0, OP_ADD)},
    {.name = "l2_normalize",
     .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3,
     L2_SIZES,
     VARIANTS(1, 0)},
    {.name = "l2_normalize_bwd",
     .tolerance_f32 = 2e-6,
     .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6,
     L2_SIZES,
     VARIANTS(1, 0)},
    {.name = "add", .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, FLAT_SIZES, VARIANTS(1, 0)},
    {.name = "sum_squares",
     .tolerance_f32 = 1e-12,
     .tolerance_bf16 = 1e-12,
     FLAT_SIZES,
     VARIANTS(1, 0)},
    {.name = "grad_scale",
     .tolerance_f32 = 1e-12,
     .tolerance_bf16 = 1e-12,
     SIZES(4, {{1, 0}}, {{2, 0}}, {{2, 1}}, {{1, 100000}}),
     VARIANTS(1, 0)},
    {.name = "adamw",
     .tolerance_f32 = 2e-6,
     .tolerance_bf16 = 1e-4,
     FLAT_SIZES,
     VARIANTS(2, 0, OP_OMIT)},
    {.name = "sgdm",
     .tolerance_f32 = 2e-6,
     .tolerance_bf16 = 1e-4,
     FLAT_SIZES,
     VARIANTS(3, 0, OP_OMIT, OP_ALT)},
    {.name = "lars",
     .tolerance_f32 = 2e-6,
     .tolerance_bf16 = 1e-4,
     FLAT_SIZES,
     VARIANTS(2, 0, OP_OMIT)},
};

const struct op_trial *op_trial_of(const struct op_row *row) {
    const struct op_trial *t = &trials[row - op_rows];
    assert_string_equal(t->name, row->name);
    return t;
}

static double op_row_tolerance(const struct op_row *row, enum dtype real) {
    return real == DTYPE_BF16 ? op_trial_of(row)->tolerance_bf16 : op_trial_of(row)->tolerance_f32;
}

double op_rounding_step(enum dtype t) {
    return t == DTYPE_BF16 ? 0x1p-7 : 0.0;
}

const char *const op_cases_devices[OP_CASES_DEVICES] = {"cpu-ref", "cpu"};

struct device *op_cases_open(const char *name) {
    struct device *dev;
    struct error err = {0};
    assert_ok(device_open(&dev, name, 2, &err), err);
    return dev;
}

/* Whether the GPU is requested by name: what it cannot do is then a failure. */
static bool cuda_is_demanded(void) {
    const char *device = getenv("CCSTREAM_TEST_DEVICE");
    return device != NULL && strncmp(device, "cuda", 4) == 0;
}

struct device *op_cases_open_cuda(void) {
    static struct log_sink log;
    struct device_options opt;
    struct device *dev;
    struct error err = {0};
    log = log_stderr("cuda", LOG_LEVEL_DEBUG);
    device_options_default(&opt);
    opt.threads_count = 2;
    opt.log = &log;
    if (device_open_with(&dev, "cuda", &opt, &err) != STATUS_OK) {
        if (cuda_is_demanded()) {
            fail_msg("%s", err.text);
        }
        test_skip("%s", err.text);
    }
    return dev;
}

bool op_cases_computes(struct device *dev, enum dtype dtype) {
    struct error err = {0};
    const enum status s = dev->ops->supports(dev, dtype, &err);
    if (s == STATUS_OK) {
        return true;
    }
    assert_status(s, STATUS_UNSUPPORTED, err);
    if (strcmp(dev->ops->name, "cuda") == 0) { /* every GPU that opens has both types */
        fail_msg("%s", err.text);
    }
    print_message("%s\n", err.text);
    return false;
}

const char *op_cases_name(const struct op_case *c) {
    static char text[200];
    int used = snprintf(text, sizeof text, "%s, %s, size", c->row->name, dtype_name(c->real));
    for (int i = 0; i < 8; i++) {
        used += snprintf(text + used, sizeof text - (size_t)used, " %d", (int)c->size.v[i]);
    }
    (void)snprintf(text + used, sizeof text - (size_t)used, ", flags %u", c->flags);
    return text;
}

/* Counts the rows that this process visits, of every type. False for one below the first that
 * CCSTREAM_TEST_FIRST_ROW asks for. The number of the others goes to the file that
 * CCSTREAM_TEST_ROW_FILE names, so that a script can resume after a row that ended the process. */
static bool row_is_asked_for(const struct op_row *row, enum dtype real) {
    static int rows_count;
    const char *first = getenv("CCSTREAM_TEST_FIRST_ROW");
    const char *path = getenv("CCSTREAM_TEST_ROW_FILE");
    const int number = rows_count++;
    if (first != NULL && number < atoi(first)) {
        return false;
    }
    if (path != NULL) {
        char text[128];
        const int size =
            snprintf(text, sizeof text, "%d %s %s\n", number, row->name, dtype_name(real));
        test_write_file(path, text, (size_t)size);
    }
    return true;
}

void op_cases_each(enum dtype real, void (*visit)(struct op_case *c, void *cookie), void *cookie) {
    static struct op_case c;
    for (int r = 0; r < op_rows_count; r++) {
        if (!row_is_asked_for(&op_rows[r], real)) {
            continue;
        }
        for (int s = 0; s < op_trial_of(&op_rows[r])->sizes_count; s++) {
            for (int v = 0; v < op_trial_of(&op_rows[r])->variants_count; v++) {
                op_describe(&c, &op_rows[r], &op_trial_of(&op_rows[r])->sizes[s],
                            op_trial_of(&op_rows[r])->variants[v], real);
                visit(&c, cookie);
            }
        }
    }
}

void op_cases_make(struct op_data *d, const struct op_case *c, int shift, struct device *dev) {
    struct error err = {0};
    assert_ok(op_data_create(d, c, shift, &err), err);
    assert_ok(op_data_fill(d, c, test_seed(), dev, &err), err);
}

void op_data_copy(struct op_data *to, const struct op_data *from, const struct op_case *c) {
    for (int i = 0; i < c->count; i++) {
        if (to->raw[i] != NULL && from->t[i].data != NULL) {
            memcpy(to->t[i].data, from->t[i].data, tensor_size_bytes(&to->t[i]));
        }
    }
}

/* The first operand whose surroundings were written, or NULL. */
static const char *op_data_broken_guard(const struct op_data *d, const struct op_case *c) {
    for (int i = 0; i < c->count; i++) {
        if (d->raw[i] == NULL) {
            continue;
        }
        const unsigned char *data = d->t[i].data;
        const unsigned char *after = data + tensor_size_bytes(&c->operands[i].shape);
        for (const unsigned char *p = d->raw[i]; p < after + OP_GUARD_BYTES; p++) {
            if (p == data) {
                p = after;
            }
            if (*p != OP_GUARD_BYTE) {
                return c->operands[i].name;
            }
        }
    }
    return NULL;
}

double op_value(const struct tensor *t, int64_t index) {
    switch (t->dtype) {
    case DTYPE_F32:
        return (double)((const float *)t->data)[index];
    case DTYPE_F64:
        return ((const double *)t->data)[index];
    case DTYPE_I32:
        return (double)((const int32_t *)t->data)[index];
    case DTYPE_BF16:
        return (double)bf16_to_f32(((const uint16_t *)t->data)[index]);
    case DTYPE_U64:
        return (double)((const uint64_t *)t->data)[index];
    case DTYPE_U8:
        return (double)((const uint8_t *)t->data)[index];
    }
    return (double)NAN;
}

void op_cases_check_guards(const struct op_data *d, const struct op_case *c) {
    const char *broken = op_data_broken_guard(d, c);
    if (broken != NULL) {
        fail_msg("%s: memory beside %s was written", op_cases_name(c), broken);
    }
}

void op_cases_check_inputs(const struct op_data *d,
                           const struct op_data *before,
                           const struct op_case *c) {
    for (int i = 0; i < c->count; i++) {
        if (d->raw[i] != NULL && c->operands[i].role == ROLE_IN &&
            memcmp(d->t[i].data, before->t[i].data, tensor_size_bytes(&d->t[i])) != 0) {
            fail_msg("%s: input %s was written", op_cases_name(c), c->operands[i].name);
        }
    }
}

void op_cases_same_bits(const struct op_case *c,
                        const struct op_data *a,
                        const struct op_data *b,
                        const char *how) {
    for (int i = 0; i < c->count; i++) {
        if (a->raw[i] != NULL && a->t[i].data != NULL && c->operands[i].role != ROLE_WORKSPACE &&
            memcmp(a->t[i].data, b->t[i].data, tensor_size_bytes(&a->t[i])) != 0) {
            fail_msg("%s: %s %s", op_cases_name(c), c->operands[i].name, how);
        }
    }
}

/* ---- agreement with the reference ---- */

double op_cases_largest(const struct tensor *t) {
    double most = 0.0;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        most = fmax(most, fabs(op_value(t, i)));
    }
    return most;
}

enum { MAX_DIFFERENCES_REPORTED = 40 };
static int differences_count;

void op_cases_differs(const struct op_case *c, const char *fmt, ...) {
    va_list args;
    if (differences_count++ < MAX_DIFFERENCES_REPORTED) {
        fprintf(stderr, "%s: ", op_cases_name(c));
        va_start(args, fmt);
        vfprintf(stderr, fmt, args);
        va_end(args);
        fprintf(stderr, "\n");
    }
}

void op_cases_fail_where_it_differed(void) {
    if (differences_count > 0) {
        fail_msg("%d operands or calls are not as the reference has them", differences_count);
    }
}

/* Elements: within the row's tolerance, relative to the largest element or to 1, the size of the
 * inputs: a gradient of batch norm over two values is the rounding error of a difference of such
 * numbers. A bf16 element may also be rounded to the neighbour. */
static void compare_elements(const struct op_case *c,
                             const char *name,
                             const struct tensor *got,
                             const struct tensor *ref,
                             double tolerance) {
    const double size = fmax(op_cases_largest(ref), 1.0);
    const double step = op_rounding_step(got->dtype);
    for (int64_t e = 0; e < tensor_count(got); e++) {
        const double x = op_value(got, e);
        const double y = op_value(ref, e);
        const double bar = tolerance * size + step * fabs(y);
        if (!(fabs(x - y) <= bar)) {
            op_cases_differs(c, "%s[%d of %d] is %.9g, the reference has %.9g, allowed %.3g", name,
                             (int)e, (int)tensor_count(got), x, y, bar);
            return;
        }
    }
}

void op_cases_compare_norms(const struct op_case *c,
                            const char *name,
                            const struct tensor *got,
                            const struct tensor *ref,
                            double tolerance) {
    double difference = 0.0;
    double size = 0.0;
    for (int64_t e = 0; e < tensor_count(got); e++) {
        difference += pow(op_value(got, e) - op_value(ref, e), 2.0);
        size += pow(op_value(ref, e), 2.0);
    }
    size = fmax(size, (double)tensor_count(got));
    if (!(sqrt(difference) <= tolerance * sqrt(size))) {
        op_cases_differs(c, "%s differs by %.3g of its norm, allowed %.3g", name,
                         sqrt(difference / size), tolerance);
    }
}

void op_cases_compare(const struct op_case *c,
                      const struct op_data *got,
                      const struct op_data *ref) {
    for (int i = 0; i < c->count; i++) {
        const struct op_operand *o = &c->operands[i];
        if (got->t[i].data == NULL || o->role == ROLE_IN || o->role == ROLE_WORKSPACE) {
            continue;
        }
        const double tolerance = op_row_tolerance(c->row, c->real);
        const bool half = c->real == DTYPE_BF16;
        if (half) {
            op_cases_compare_norms(c, o->name, &got->t[i], &ref->t[i], tolerance);
        }
        compare_elements(c, o->name, &got->t[i], &ref->t[i], (half ? 4.0 : 1.0) * tolerance);
    }
}
