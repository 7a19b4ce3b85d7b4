/*
 * The CUDA module on the host: its operators and its own kernels, compiled as C++ over
 * tests/support/cuda_emulation, against the reference. Proves indices, barriers, orders of sums and
 * edge shapes of every kernel without a GPU. cuDNN and cuBLASLt are absent: convolutions run on the
 * module's plain kernels, matrix products on the reference.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/cuda/device/cuda_internal.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/cuda_emulation/executor.h"
#include "tests/support/op_cases.h"
#include "tests/support/test.h"

static struct device *open_emulated(void) {
    struct device *dev;
    struct device_options opt;
    struct error err = {0};
    device_options_default(&opt);
    if (test_sanitizer()[0] != '\0') {
        test_skip("sanitizers do not follow jumps between the stacks of fibers");
    }
    emulation_convolutions(false); /* the module's own */
    assert_ok(cuda_open(&dev, 0, &opt, &err), err);
    return dev;
}

/* Shapes that the rows omit because they matter only on a GPU: whole vectors, rows longer than a
 * warp holds, several strips and chunks of a walk, short attention with every size of tile. */
static const struct {
    const char *op;
    struct op_size size;
} more[] = {
    {"attention", {{2, 13, 2, 64}}},
    {"attention", {{2, 33, 1, 64}}},
    {"attention", {{1, 64, 2, 64}}},
    {"attention", {{3, 32, 1, 64}}},
    {"attention", {{1, 65, 1, 64}}},
    {"attention", {{2, 130, 1, 64}}},
    {"attention", {{2, 16, 1, 32}}},
    {"attention", {{2, 35, 1, 20}}},
    {"attention", {{1, 40, 2, 80}}},
    {"conv_bn", {{2, 33, 31, 4, 64, 1, 1, 0}}},
    {"conv_bn", {{1, 40, 40, 3, 7, 1, 1, 0}}},
    {"conv_bn", {{2, 3, 5, 2, 132, 1, 1, 0}}},
    {"conv_bn", {{1, 17, 16, 3, 8, 1, 1, 0}}},
    {"maxpool", {{1, 9, 9, 64, 3, 2, 1}}},
    {"avgpool", {{1, 7, 7, 24, 2, 2, 0}}},
    {"global_avgpool", {{2, 7, 7, 72}}},
    {"linear", {{70, 3, 264}}},
    {"linear", {{300, 2, 40}}},
    {"embedding", {{9, 40, 8, 5, 40}}},
    {"embedding", {{3, 90, 264, 3, 90}}},
    {"layernorm", {{5, 1024}}},
    {"layernorm", {{3, 1032}}},
    {"layernorm", {{2, 1031}}},
    {"layernorm", {{70, 72}}},
    {"layernorm", {{9, 300}}},
    {"dropout", {{3, 7, 264}}},
    {"dropout", {{2, 3, 1030}}},
    {"segment_mean", {{9, 5, 264}}},
    {"gather_rows", {{40, 9, 264}}},
    {"scatter_rows", {{9, 40, 264}}},
    {"l2_normalize", {{9, 264}}},
    {"l2_normalize", {{3, 257}}},
    {"normalize_u8", {{3, 19, 17, 1}}},
    {"normalize_u8", {{2, 28, 14, 7}}},
};
enum { MORE_COUNT = sizeof more / sizeof more[0] };

/* The plain kernel of a weight's gradient uses a block for each weight: too slow here for many
 * weights. */
static bool is_heavy(const struct op_case *c) {
    const int weight = op_operand_find(c, "weight");
    return weight >= 0 && c->operands[weight].shape.ndim == 4 &&
           tensor_count(&c->operands[weight].shape) > 300;
}

typedef void visit_case(struct op_case *c, void *cookie);

static void variants(const struct op_row *row,
                     const struct op_size *size,
                     enum dtype real,
                     visit_case *visit,
                     void *cookie) {
    static struct op_case c;
    for (int v = 0; v < op_trial_of(row)->variants_count; v++) {
        op_describe(&c, row, size, op_trial_of(row)->variants[v], real);
        if (!is_heavy(&c)) {
            visit(&c, cookie);
        }
    }
}

/* CCSTREAM_TEST_OP in the environment chooses one operator (tests/ptx/run). */
static bool is_chosen(const struct op_row *row) {
    const char *only = getenv("CCSTREAM_TEST_OP");
    return only == NULL || strcmp(only, op_info(row->op)->name) == 0;
}

/* A row's own sizes and those of `more` that name it or its forward row. */
static void each_case(enum dtype real, visit_case *visit, void *cookie) {
    for (int r = 0; r < op_rows_count; r++) {
        const struct op_row *row = &op_rows[r];
        if (!is_chosen(row)) {
            continue;
        }
        for (int s = 0; s < op_trial_of(row)->sizes_count; s++) {
            variants(row, &op_trial_of(row)->sizes[s], real, visit, cookie);
        }
        for (int m = 0; m < MORE_COUNT; m++) {
            if (strcmp(more[m].op, row->name) == 0 ||
                (row->forward != NULL && strcmp(more[m].op, row->forward) == 0)) {
                variants(row, &more[m].size, real, visit, cookie);
            }
        }
    }
}

struct pair {
    struct device *ref, *emulated;
};

/* Runs the case on the emulated device, `shift` elements off a vector's boundary, with threads in
 * forward or backward order.
 */
static void run_emulated(struct device *dev,
                         const struct op_case *c,
                         struct op_data *out,
                         const struct op_data *start,
                         int shift,
                         bool backwards) {
    struct error err = {0};
    assert_ok(op_data_create(out, c, shift, &err), err);
    op_data_copy(out, start, c);
    emulation_backwards(backwards);
    const enum status s = op_run(dev, c, out, &err);
    if (s != STATUS_OK) {
        fail_msg("%s: %s", op_cases_name(c), err.text);
    }
    assert_ok(dev->ops->sync(dev, &err), err);
    op_cases_check_guards(out, c);
    op_cases_check_inputs(out, start, c);
}

static void agree(struct op_case *c, void *cookie) {
    const struct pair *p = cookie;
    struct op_data start;
    struct op_data ref;
    struct op_data forward;
    struct op_data other;
    struct error err = {0};
    if (!op_available(p->emulated, c->row->op)) {
        return;
    }
    op_cases_make(&start, c, 0, p->ref);
    assert_ok(op_data_create(&ref, c, 0, &err), err);
    op_data_copy(&ref, &start, c);
    assert_ok(op_run(p->ref, c, &ref, &err), err);

    run_emulated(p->emulated, c, &forward, &start, 0, false);
    op_cases_compare(c, &forward, &ref);
    run_emulated(p->emulated, c, &other, &start, 0, true);
    op_cases_same_bits(c, &forward, &other, "depends on the order in which threads run");
    op_data_destroy(&other);
    run_emulated(p->emulated, c, &other, &start, 1, false);
    op_cases_compare(c, &other, &ref);
    op_data_destroy(&other);

    op_data_destroy(&forward);
    op_data_destroy(&ref);
    op_data_destroy(&start);
}

static void agree_in(enum dtype real) {
    struct pair p = {.ref = op_cases_open("cpu-ref"), .emulated = open_emulated()};
    const uint64_t before = emulation_launches_count();
    each_case(real, agree, &p);
    assert_true(emulation_launches_count() > before + 1000 || getenv("CCSTREAM_TEST_OP") != NULL);
    device_close(p.ref);
    device_close(p.emulated);
    op_cases_fail_where_it_differed();
}

TEST(kernels_agree_with_the_reference_in_f32) {
    agree_in(DTYPE_F32);
}

TEST(kernels_agree_with_the_reference_in_bf16) {
    agree_in(DTYPE_BF16);
}

TEST(no_member_of_the_table_is_missing) {
    const struct ops *table = ops_cuda();
#define ONE(name) +1
    const size_t absent = 0 OPS_CPU_LIST(ONE); /* the last members */
#undef ONE
    for (size_t at = 0; at < sizeof *table - absent * sizeof(void *); at += sizeof(void *)) {
        void *member;
        memcpy(&member, (const char *)table + at, sizeof member);
        if (member == NULL) {
            fail_msg("member %zu of the table cuda is NULL", at / sizeof(void *));
        }
    }
}

/* INVALID at the next wait, once. */
static void
expect_fault(struct device *dev, enum status of_the_call, const struct error *call_err) {
    struct error err = {0};
    assert_ok(of_the_call, *call_err);
    assert_status(dev->ops->sync(dev, &err), STATUS_INVALID, err);
    assert_ok(dev->ops->sync(dev, &err), err);
}

TEST(indices_out_of_range_are_reported_at_the_next_wait) {
    enum { WIDTH = 8, ROWS = 4, CAPTIONS = 2 };
    static float in[ROWS * 3 * WIDTH];
    static float out[ROWS * WIDTH];
    static float lse[CAPTIONS * 2];
    int32_t bad_rows[] = {0, -1};
    int32_t bad_tokens[ROWS] = {0, 1, 1 << 30, 0};
    int32_t starts[CAPTIONS] = {0, 2};
    int32_t lengths[CAPTIONS] = {2, 2};
    int32_t long_lengths[CAPTIONS] = {2, 3};
    struct device *dev = open_emulated();
    struct error err = {0};
    const struct ops *ops = dev->ops;
    const struct tensor moved = tensor_2d(out, DTYPE_F32, 2, WIDTH);
    const struct tensor table = tensor_2d(in, DTYPE_F32, 3, WIDTH);
    const struct tensor rows = tensor_1d(bad_rows, DTYPE_I32, 2);
    const struct gather_rows gather = {.out = moved, .in = table, .rows = rows};
    const struct scatter_rows scatter = {.out = table, .in = moved, .rows = rows};
    expect_fault(dev, ops->gather_rows(dev, &gather, &err), &err);
    expect_fault(dev, ops->scatter_rows(dev, &scatter, &err), &err);

    const struct tensor first = tensor_1d(starts, DTYPE_I32, CAPTIONS);
    const struct segments good = {first, tensor_1d(lengths, DTYPE_I32, CAPTIONS)};
    const struct segments past_the_rows = {first, tensor_1d(long_lengths, DTYPE_I32, CAPTIONS)};
    const struct tensor states = tensor_2d(out, DTYPE_F32, ROWS, WIDTH);
    const struct tensor tokens = tensor_1d(bad_tokens, DTYPE_I32, ROWS);
    const struct embedding embedding = {
        .out = states, .tokens = tokens, .segments = good, .table = table, .positions = table};
    const struct embedding_bwd embedding_bwd = {.dtable = table,
                                                .dpositions = table,
                                                .dout = states,
                                                .tokens = tokens,
                                                .segments = good,
                                                .mode = WRITE_ADD};
    expect_fault(dev, ops->embedding(dev, &embedding, &err), &err);
    expect_fault(dev, ops->embedding_bwd(dev, &embedding_bwd, &err), &err);
    const struct attention attention = {.out = states,
                                        .lse = tensor_3d(lse, DTYPE_F32, CAPTIONS, 1, 2),
                                        .qkv = tensor_2d(in, DTYPE_F32, ROWS, 3 * WIDTH),
                                        .segments = past_the_rows,
                                        .heads = 1};
    expect_fault(dev, ops->attention(dev, &attention, &err), &err);
    const struct segment_mean mean = {
        .out = tensor_2d(in, DTYPE_F32, CAPTIONS, WIDTH), .in = states, .segments = past_the_rows};
    expect_fault(dev, ops->segment_mean(dev, &mean, &err), &err);
    device_close(dev);
}

/* A mean of 100 deviations: E[x^2] - E[x]^2 in f32 would have no correct digit. */
TEST(statistics_survive_a_mean_of_a_hundred_deviations) {
    enum { ROWS = 5000, CHANNELS = 8 };
    static float x[ROWS * CHANNELS];
    float mean[CHANNELS];
    float rstd[CHANNELS];
    uint32_t draw = 1;
    for (int i = 0; i < ROWS * CHANNELS; i++) {
        draw = draw * 1664525u + 1013904223u;
        x[i] = 100.0f * (float)(1 + i % CHANNELS) + (float)(draw >> 8) * 0x1p-24f * 3.46f;
    }
    device_close(open_emulated()); /* or skip */
    const struct conv_bn op = {.pre = tensor_4d(x, DTYPE_F32, 1, ROWS, 1, CHANNELS),
                               .mean = tensor_1d(mean, DTYPE_F32, CHANNELS),
                               .rstd = tensor_1d(rstd, DTYPE_F32, CHANNELS)};
    const size_t workspace_bytes = batch_norm_statistics_workspace_bytes(&op);
    const struct launch_on on = {.workspace = malloc(workspace_bytes)};
    assert_non_null(on.workspace);
    emulation_announce(x, sizeof x);
    emulation_announce(mean, sizeof mean);
    emulation_announce(rstd, sizeof rstd);
    emulation_announce(on.workspace, workspace_bytes);
    executor_operands_set(0); /* no operator's: what the host has written may be read */
    assert_int_equal(launch_batch_norm_statistics(&on, &op), cudaSuccess);
    free(on.workspace);
    for (int c = 0; c < CHANNELS; c++) {
        double sum = 0.0;
        double squares = 0.0;
        for (int r = 0; r < ROWS; r++) {
            sum += (double)x[r * CHANNELS + c] / ROWS;
        }
        for (int r = 0; r < ROWS; r++) {
            squares += pow((double)x[r * CHANNELS + c] - sum, 2.0) / ROWS;
        }
        assert_true(fabs((double)mean[c] - sum) <= 1e-7 * sum);
        assert_true(fabs((double)rstd[c] * sqrt(squares) - 1.0) <= 1e-5);
    }
}

static enum status
no_gather(void *cookie, void *all, const void *own, size_t own_bytes, struct error *err) {
    (void)cookie;
    (void)all;
    (void)own;
    (void)own_bytes;
    return error_set(err, STATUS_INVALID, "gather was called");
}

TEST(batch_norm_over_ranks_is_refused) {
    static const char *const rows[] = {"conv_bn", "conv_bn_bwd"};
    static struct op_case c;
    const struct batch_norm_group group = {.ranks_count = 2, .gather = no_gather};
    struct device *ref = op_cases_open("cpu-ref");
    struct device *dev = open_emulated();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct op_row *row = op_row_find(rows[i]);
        struct op_data d;
        struct op_data before;
        struct error err = {0};
        op_describe(&c, row, &op_trial_of(row)->sizes[0], 0, DTYPE_F32);
        op_cases_make(&d, &c, 0, ref);
        assert_ok(op_data_create(&before, &c, 0, &err), err);
        op_data_copy(&before, &d, &c);
        if (row->op == OP_conv_bn) {
            c.args.conv_bn.group = &group;
        } else {
            c.args.conv_bn_bwd.group = &group;
        }
        assert_status(op_run(dev, &c, &d, &err), STATUS_UNSUPPORTED, err);
        assert_non_null(strstr(err.text, "several ranks"));
        op_cases_same_bits(&c, &d, &before, "was written by a refused call");
        op_data_destroy(&before);
        op_data_destroy(&d);
    }
    device_close(dev);
    device_close(ref);
}
