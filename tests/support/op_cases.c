#include "tests/support/op_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/log.h"
#include "tests/support/test.h"

const char *const op_cases_devices[OP_CASES_DEVICES] = {"cpu-ref", "cpu"};

struct device *op_cases_open(const char *name) {
    struct device *dev;
    struct error err = {0};
    assert_ok(device_open(&dev, name, 2, &err), err);
    return dev;
}

/* Whether the GPU was asked for by name: what it cannot do is then a failure. */
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
