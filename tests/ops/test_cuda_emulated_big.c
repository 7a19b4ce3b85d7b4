/*
 * Tensors of up to 17 GiB on the emulated GPU, where 32-bit indices would wrap: the first, middle
 * and last blocks of each launch, on memory that is reserved and not backed. An access outside of
 * its tensor ends the program, or is a fault where tests/ptx/run executes nvcc's code.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "formats/base/image_norm.h"
#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/device/cuda_internal.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/test.h"

enum { MAX_TENSORS = 64, GAP_BYTES = 1 << 20 };

static struct {
    struct {
        unsigned char *data;
        size_t size_bytes;
    } all[MAX_TENSORS];
    int count;
    int32_t fault;
} memory;

/* Zeros, between two gaps that cannot be accessed. */
static void *reserve(size_t size_bytes) {
    const size_t whole = (size_bytes + GAP_BYTES - 1) / GAP_BYTES * GAP_BYTES;
    unsigned char *data =
        mmap(NULL, whole + 2 * GAP_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(data != MAP_FAILED && memory.count < MAX_TENSORS);
    assert_int_equal(mmap(data + GAP_BYTES, whole, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                          0) == data + GAP_BYTES,
                     1);
    memory.all[memory.count].data = data;
    memory.all[memory.count++].size_bytes = whole + 2 * GAP_BYTES;
    emulation_announce(data + GAP_BYTES, size_bytes);
    return data + GAP_BYTES;
}

static struct tensor big(enum dtype d, int32_t ndim, int64_t a, int64_t b, int64_t c, int64_t e) {
    const int64_t shape[4] = {a, b, c, e};
    struct tensor t = tensor_view(NULL, d, ndim, shape);
    t.data = reserve(tensor_size_bytes(&t));
    return t;
}

static struct launch_on on_bytes(size_t workspace_bytes) {
    memory.fault = 0;
    emulation_announce(&memory.fault, sizeof memory.fault);
    return (struct launch_on){.fault = &memory.fault,
                              .workspace = workspace_bytes > 0 ? reserve(workspace_bytes) : NULL};
}

static void begin(void) {
    if (test_sanitizer()[0] != '\0') {
        test_skip("sanitizers do not follow jumps between the stacks of fibers");
    }
    emulation_sample_blocks(true);
}

/* Large launches each touch what they need again: give it back. */
static void release(void) {
    for (int i = 0; i < memory.count; i++) {
        emulation_forget(memory.all[i].data + GAP_BYTES);
        assert_int_equal(munmap(memory.all[i].data, memory.all[i].size_bytes), 0);
    }
    assert_int_equal(memory.fault, 0);
    memory.count = 0;
}

#define RUN(call) assert_int_equal((call), cudaSuccess)

static void images_in(enum dtype d) {
    enum { N = 4096, SIDE = 128, C = 64, HALF = SIDE / 2 };
    const struct tensor pre = big(d, 4, N, SIDE, SIDE, C);
    const struct tensor out = big(d, 4, N, SIDE, SIDE, C);
    const struct tensor third = big(d, 4, N, SIDE, SIDE, C);
    struct tensor c[8];
    for (int i = 0; i < 8; i++) {
        c[i] = big(DTYPE_F32, 1, C, 1, 1, 1);
    }
    const struct conv_bn forward = {.pre = pre,
                                    .out = out,
                                    .residual = third,
                                    .mean = c[0],
                                    .rstd = c[1],
                                    .gamma = c[2],
                                    .beta = c[3],
                                    .running_mean = c[4],
                                    .running_var = c[5],
                                    .conv = {1, 1, ACTIVATION_RELU},
                                    .training = true,
                                    .eps = 1e-5f,
                                    .momentum = 0.1f};
    struct launch_on on = on_bytes(batch_norm_statistics_workspace_bytes(&forward));
    RUN(launch_batch_norm_statistics(&on, &forward));
    RUN(launch_batch_norm_apply(&on, &forward));
    const struct conv_bn_bwd backward = {.dpre = big(d, 4, N, SIDE, SIDE, C),
                                         .dresidual = big(d, 4, N, SIDE, SIDE, C),
                                         .dout = third,
                                         .out = out,
                                         .pre = pre,
                                         .mean = c[0],
                                         .rstd = c[1],
                                         .gamma = c[2],
                                         .dgamma = c[6],
                                         .dbeta = c[7],
                                         .conv = {1, 1, ACTIVATION_RELU}};
    on = on_bytes(batch_norm_bwd_workspace_bytes(&backward));
    RUN(launch_batch_norm_bwd(&on, &backward));
    const struct tensor pooled = big(d, 4, N, HALF, HALF, C);
    const struct tensor argmax = big(DTYPE_I32, 4, N, HALF, HALF, C);
    const struct maxpool pool = {.out = pooled, .argmax = argmax, .in = out, .pool = {3, 2, 1}};
    RUN(launch_maxpool(&on, &pool));
    const struct maxpool_bwd unpool = {
        .din = third, .dout = pooled, .argmax = argmax, .pool = {3, 2, 1}};
    RUN(launch_maxpool_bwd(&on, &unpool));
    const struct avgpool mean = {.out = pooled, .in = out, .pool = {2, 2, 0}};
    RUN(launch_avgpool(&on, &mean));
    const struct avgpool_bwd unmean = {.din = third, .dout = pooled, .pool = {2, 2, 0}};
    RUN(launch_avgpool_bwd(&on, &unmean));
    const struct add sum = {.out = out, .in = pre, .alpha = 1.0f};
    RUN(launch_add(&on, &sum));
    release();
}

TEST(images_in_f32) {
    begin();
    images_in(DTYPE_F32);
}

TEST(images_in_bf16) {
    begin();
    images_in(DTYPE_BF16);
}

TEST(input_images_and_casts) {
    static const struct image_norm norm = {NULL, {0, 0, 0}, {1, 1, 1}};
    begin();
    const struct tensor in = big(DTYPE_U8, 4, 16384, 256, 256, 3);
    const struct tensor out = big(DTYPE_F32, 4, 16384, 256, 256, 3);
    const struct tensor half = big(DTYPE_BF16, 4, 16384, 256, 256, 3);
    const struct launch_on on = on_bytes(0);
    const struct normalize_u8 both[] = {{.out = out, .in = in, .norm = &norm, .patch = 1},
                                        {.out = half, .in = in, .norm = &norm, .patch = 1}};
    RUN(launch_normalize_u8(&on, &both[0]));
    RUN(launch_normalize_u8(&on, &both[1]));
    const struct cast narrow = {.out = half, .in = out};
    const struct cast widen = {.out = out, .in = half};
    RUN(launch_cast(&on, &narrow));
    RUN(launch_cast(&on, &widen));
    release();
}

static void text_in(enum dtype d) {
    enum { CAPTIONS = 32768, T = 60, ROWS = CAPTIONS * T, D = 768, HIDDEN = 3072, HEADS = 12 };
    struct tensor starts = big(DTYPE_I32, 1, CAPTIONS, 1, 1, 1);
    struct tensor lengths = big(DTYPE_I32, 1, CAPTIONS, 1, 1, 1);
    uint64_t *ids = reserve(CAPTIONS * sizeof *ids);
    struct step_values *values = reserve(sizeof *values);
    for (int32_t i = 0; i < CAPTIONS; i++) {
        ((int32_t *)starts.data)[i] = i * T;
        ((int32_t *)lengths.data)[i] = T;
    }
    const struct segments segments = {starts, lengths};
    const struct dropout_params dropout = {.p = 0.1f, .values = values, .sample_ids = ids};
    const struct tensor qkv = big(d, 2, ROWS, 3 * D, 1, 1);
    const struct tensor out = big(d, 2, ROWS, D, 1, 1);
    const struct tensor dout = big(d, 2, ROWS, D, 1, 1);
    const struct tensor lse = big(DTYPE_F32, 3, CAPTIONS, HEADS, T, 1);
    struct launch_on on = on_bytes(0);
    const struct attention attention = {.out = out,
                                        .lse = lse,
                                        .qkv = qkv,
                                        .segments = segments,
                                        .heads = HEADS,
                                        .dropout = dropout};
    RUN(launch_attention(&on, &attention));
    const struct attention_bwd attention_bwd = {.dqkv = big(d, 2, ROWS, 3 * D, 1, 1),
                                                .dout = dout,
                                                .out = out,
                                                .lse = lse,
                                                .qkv = qkv,
                                                .segments = segments,
                                                .heads = HEADS,
                                                .dropout = dropout};
    on = on_bytes(attention_bwd_workspace_bytes(&attention_bwd));
    RUN(launch_attention_bwd(&on, &attention_bwd));
    const struct dropout drop = {.out = out, .in = dout, .segments = segments, .dropout = dropout};
    RUN(launch_dropout(&on, &drop));
    const struct tensor hidden = big(d, 2, ROWS, HIDDEN, 1, 1);
    const struct linear linear = {.out = big(d, 2, ROWS, HIDDEN, 1, 1), .pre = hidden};
    RUN(launch_gelu(&on, &linear));
    const struct linear_bwd linear_bwd = {.dout = linear.out,
                                          .pre = hidden,
                                          .dpre = big(d, 2, ROWS, HIDDEN, 1, 1),
                                          .dbias = big(DTYPE_F32, 1, HIDDEN, 1, 1, 1)};
    on = on_bytes(gelu_bwd_workspace_bytes(&linear_bwd));
    RUN(launch_gelu_bwd(&on, &linear_bwd));
    const struct tensor mean = big(DTYPE_F32, 1, ROWS, 1, 1, 1);
    const struct tensor rstd = big(DTYPE_F32, 1, ROWS, 1, 1, 1);
    struct tensor p[4];
    for (int i = 0; i < 4; i++) {
        p[i] = big(DTYPE_F32, 1, D, 1, 1, 1);
    }
    const struct layernorm norm = {.out = out,
                                   .sum = dout,
                                   .a = dout,
                                   .mean = mean,
                                   .rstd = rstd,
                                   .gamma = p[0],
                                   .beta = p[1],
                                   .eps = 1e-12f};
    RUN(launch_layernorm(&on, &norm));
    const struct layernorm_bwd norm_bwd = {.dsum = out,
                                           .dout = dout,
                                           .sum = dout,
                                           .mean = mean,
                                           .rstd = rstd,
                                           .gamma = p[0],
                                           .dgamma = p[2],
                                           .dbeta = p[3]};
    on = on_bytes(layernorm_bwd_workspace_bytes(&norm_bwd));
    RUN(launch_layernorm_bwd(&on, &norm_bwd));
    const struct embedding embedding = {.out = out,
                                        .tokens = big(DTYPE_I32, 1, ROWS, 1, 1, 1),
                                        .segments = segments,
                                        .table = big(d, 2, 30522, D, 1, 1),
                                        .positions = big(d, 2, 512, D, 1, 1)};
    RUN(launch_embedding(&on, &embedding));
    release();
}

TEST(text_in_f32) {
    begin();
    text_in(DTYPE_F32);
}

TEST(text_in_bf16) {
    begin();
    text_in(DTYPE_BF16);
}

/* The kernel that waits, which only autotuning launches. */
TEST(delay_ends) {
    begin();
    RUN(launch_delay(NULL, 100000));
}

/* All weights and pixels of a stem are in its other form once; the rest of that form is zeros. */
TEST(stems_are_packed_and_unpacked) {
    enum {
        N = 2,
        SIDE = 16,
        C = 3,
        K = 8,
        R = 7,
        WEIGHTS = K * R * R * C,
        PIXELS = N * SIDE * SIDE * C
    };
    struct conv_problem p = {CONV_FORWARD, DTYPE_BF16, N, SIDE,  SIDE, C, K, R, R,
                             SIDE / 2,     SIDE / 2,   2, R / 2, false};
    begin();
    emulation_sample_blocks(false);
    assert_true(conv_stem_applies(&p));
    const struct tensor x = big(DTYPE_BF16, 4, N, SIDE, SIDE, C);
    const struct tensor w = big(DTYPE_BF16, 4, K, R, R, C);
    const struct tensor back = big(DTYPE_BF16, 4, K, R, R, C);
    const size_t workspace_bytes = conv_stem_workspace_bytes(&p);
    const struct launch_on on = on_bytes(workspace_bytes);
    struct conv_stem stem;
    for (int i = 0; i < PIXELS; i++) {
        ((uint16_t *)x.data)[i] = (uint16_t)(1 + i);
    }
    for (int i = 0; i < WEIGHTS; i++) {
        ((uint16_t *)w.data)[i] = (uint16_t)(1 + i);
    }
    RUN(launch_conv_stem_pack(&on, &p, x.data, w.data, &stem));
    int filled = 0;
    for (size_t i = 0; i < workspace_bytes / sizeof(uint16_t); i++) {
        filled += ((const uint16_t *)on.workspace)[i] != 0;
    }
    assert_int_equal(filled, PIXELS + WEIGHTS);
    RUN(launch_conv_stem_unpack(&on, &p, &stem, back.data));
    assert_memory_equal(back.data, w.data, WEIGHTS * sizeof(uint16_t));
    release();
}
