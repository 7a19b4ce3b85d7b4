#include "tests/support/op_cases.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/log.h"
#include "kernels/bf16.h"
#include "tests/support/test.h"

static double op_row_tolerance(const struct op_row *row, enum dtype real) {
    return real == DTYPE_BF16 ? row->tolerance_bf16 : row->tolerance_f32;
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
        for (int s = 0; s < op_rows[r].sizes_count; s++) {
            for (int v = 0; v < op_rows[r].variants_count; v++) {
                op_describe(&c, &op_rows[r], &op_rows[r].sizes[s], op_rows[r].variants[v], real);
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
        if (a->raw[i] != NULL && a->t[i].data != NULL && c->operands[i].role != ROLE_SCRATCH &&
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
        if (got->t[i].data == NULL || o->role == ROLE_IN || o->role == ROLE_SCRATCH) {
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
