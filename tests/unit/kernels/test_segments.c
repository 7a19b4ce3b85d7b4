/*
 * segments: the same captions padded and packed give the same bits, on every device and in every
 * type, with dropout, through embedding, dropout, attention, both gradients, and the mean.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/ops.h"
#include "tests/support/test.h"

enum {
    N = 5,
    T = 9,
    HEADS = 3,
    WIDTH = 12,
    VOCAB = 20,
    PADDED = N * T,
    MAX_VALUES = PADDED * 3 * WIDTH + N * HEADS * T * T,
    BUFFERS = 9
};

static const int32_t lengths[N] = {4, 9, 1, 7, 2};
static const uint64_t sample_ids[N] = {11, 5, 1ull << 40, 3, 12};

/* Inputs and results of one run. */
struct run {
    int32_t starts[N], tokens[PADDED];
    int64_t rows;
    unsigned char *data[BUFFERS];
};

enum { TABLE, POSITIONS, QKV, DOUT, EMBEDDED, OUT, LSE, DQKV, MEAN };

static void put_value(void *data, enum dtype type, int64_t at, uint32_t seed) {
    const float value = (float)(seed * 2654435761u >> 8) * (1.0f / 8388608.0f) - 1.0f;
    if (type == DTYPE_BF16) {
        ((uint16_t *)data)[at] = bf16_from_f32(value);
    } else {
        ((float *)data)[at] = value;
    }
}

/* Values by caption and position, so that both layouts hold the same; NaN between captions. */
static void
fill_rows(const struct run *r, int which, enum dtype type, int64_t width, uint32_t seed) {
    memset(r->data[which], 0xff, (size_t)(r->rows * width) * dtype_size_bytes(type));
    for (int64_t n = 0; n < N; n++) {
        for (int64_t e = 0; e < lengths[n] * width; e++) {
            put_value(r->data[which], type, r->starts[n] * width + e,
                      seed + (uint32_t)(n * 1000 + e));
        }
    }
}

static void make_run(struct run *r, bool packed, enum dtype type) {
    int32_t next = 0;
    memset(r, 0, sizeof *r);
    memset(r->tokens, 0xff, sizeof r->tokens);
    for (int i = 0; i < BUFFERS; i++) {
        r->data[i] = calloc(MAX_VALUES, sizeof(float));
        assert_non_null(r->data[i]);
    }
    for (int n = 0; n < N; n++) {
        r->starts[n] = packed ? next : n * T;
        next += lengths[n];
        for (int t = 0; t < lengths[n]; t++) {
            r->tokens[r->starts[n] + t] = (n * 7 + t * 3) % VOCAB;
        }
    }
    r->rows = packed ? next : PADDED;
    for (int64_t e = 0; e < VOCAB * WIDTH; e++) {
        put_value(r->data[TABLE], type, e, 1 + (uint32_t)e);
    }
    for (int64_t e = 0; e < T * WIDTH; e++) {
        put_value(r->data[POSITIONS], type, e, 5000 + (uint32_t)e);
    }
    fill_rows(r, QKV, type, 3 * WIDTH, 9000);
    fill_rows(r, DOUT, type, WIDTH, 70000);
}

static void compute(struct run *r, struct device *dev, enum dtype type) {
    struct error err = {0};
    const struct ops *ops = dev->ops;
    int32_t length[N];
    memcpy(length, lengths, sizeof length);
    const struct segments seg = {tensor_1d(r->starts, DTYPE_I32, N),
                                 tensor_1d(length, DTYPE_I32, N)};
    const struct tensor embedded = tensor_2d(r->data[EMBEDDED], type, r->rows, WIDTH);
    const struct tensor qkv = tensor_2d(r->data[QKV], type, r->rows, 3 * WIDTH);
    const struct tensor out = tensor_2d(r->data[OUT], type, r->rows, WIDTH);
    const struct tensor lse = tensor_3d(r->data[LSE], DTYPE_F32, N, HEADS, T);
    const struct step_values values = {.step = 9};
    const struct dropout_params drop = {
        .p = 0.2f, .seed = 3, .layer = 1, .values = &values, .sample_ids = sample_ids};
    const struct embedding embedding = {
        .out = embedded,
        .tokens = tensor_1d(r->tokens, DTYPE_I32, r->rows),
        .segments = seg,
        .table = tensor_2d(r->data[TABLE], type, VOCAB, WIDTH),
        .positions = tensor_2d(r->data[POSITIONS], type, T, WIDTH),
    };
    const struct dropout dropout = {
        .out = embedded, .in = embedded, .segments = seg, .dropout = drop};
    const struct attention attention = {
        .out = out, .lse = lse, .qkv = qkv, .segments = seg, .heads = HEADS, .dropout = drop};
    const struct attention_bwd attention_bwd = {
        .dqkv = tensor_2d(r->data[DQKV], type, r->rows, 3 * WIDTH),
        .dout = tensor_2d(r->data[DOUT], type, r->rows, WIDTH),
        .out = out,
        .lse = lse,
        .qkv = qkv,
        .segments = seg,
        .heads = HEADS,
        .dropout = drop,
    };
    const struct segment_mean mean = {
        .out = tensor_2d(r->data[MEAN], type, N, WIDTH), .in = out, .segments = seg};
    assert_ok(ops->embedding(dev, &embedding, &err), err);
    assert_ok(ops->dropout(dev, &dropout, &err), err);
    assert_ok(ops->attention(dev, &attention, &err), err);
    assert_ok(ops->attention_bwd(dev, &attention_bwd, &err), err);
    assert_ok(ops->segment_mean(dev, &mean, &err), err);
}

/* Rows of captions agree; other rows are zeros. */
static void same_rows(const struct run *a, const struct run *b, int which, size_t row_bytes) {
    unsigned char *belongs = calloc(PADDED, 1);
    assert_non_null(belongs);
    for (int n = 0; n < N; n++) {
        for (int t = 0; t < lengths[n]; t++) {
            assert_memory_equal(a->data[which] + (size_t)(a->starts[n] + t) * row_bytes,
                                b->data[which] + (size_t)(b->starts[n] + t) * row_bytes, row_bytes);
            belongs[a->starts[n] + t] = 1;
        }
    }
    for (size_t e = 0; e < (size_t)a->rows * row_bytes; e++) {
        assert_true(belongs[e / row_bytes] != 0 || a->data[which][e] == 0);
    }
    free(belongs);
}

static void compare_layouts(const char *name, enum dtype type) {
    struct run padded;
    struct run packed;
    struct device *dev;
    struct error err = {0};
    const size_t row = WIDTH * dtype_size_bytes(type);
    assert_ok(device_open(&dev, name, 2, &err), err);
    if (dev->ops->supports(dev, type, &err) != STATUS_OK) {
        device_close(dev);
        return;
    }
    make_run(&padded, false, type);
    make_run(&packed, true, type);
    assert_true(packed.rows < padded.rows);
    compute(&padded, dev, type);
    compute(&packed, dev, type);
    same_rows(&padded, &packed, EMBEDDED, row);
    same_rows(&padded, &packed, OUT, row);
    same_rows(&padded, &packed, DQKV, 3 * row);
    assert_memory_equal(padded.data[LSE], packed.data[LSE],
                        (size_t)(N * HEADS * T * T) * dtype_size_bytes(type));
    assert_memory_equal(padded.data[MEAN], packed.data[MEAN], N * row);
    for (int i = 0; i < BUFFERS; i++) {
        free(padded.data[i]);
        free(packed.data[i]);
    }
    device_close(dev);
}

TEST(packed_and_padded_captions_give_the_same_bits) {
    compare_layouts("cpu-ref", DTYPE_F32);
    compare_layouts("cpu-ref", DTYPE_BF16);
    compare_layouts("cpu", DTYPE_F32);
    compare_layouts("cpu", DTYPE_BF16);
}

TEST(without_segments_each_row_is_the_first_of_its_sample) {
    static const char *const names[] = {"cpu-ref", "cpu"};
    for (size_t d = 0; d < sizeof names / sizeof names[0]; d++) {
        static float in[N * WIDTH];
        static float alone[N * WIDTH];
        static float first[N * WIDTH];
        int32_t starts[N];
        int32_t ones[N];
        struct device *dev;
        struct error err = {0};
        assert_ok(device_open(&dev, names[d], 1, &err), err);
        for (int i = 0; i < N * WIDTH; i++) {
            in[i] = (float)(i + 1);
        }
        for (int n = 0; n < N; n++) {
            starts[n] = n;
            ones[n] = 1;
        }
        const struct step_values values = {.step = 2};
        struct dropout op = {
            .out = tensor_2d(alone, DTYPE_F32, N, WIDTH),
            .in = tensor_2d(in, DTYPE_F32, N, WIDTH),
            .dropout = {
                .p = 0.5f, .seed = 1, .layer = 3, .values = &values, .sample_ids = sample_ids}};
        assert_ok(dev->ops->dropout(dev, &op, &err), err);
        op.out.data = first;
        op.segments =
            (struct segments){tensor_1d(starts, DTYPE_I32, N), tensor_1d(ones, DTYPE_I32, N)};
        assert_ok(dev->ops->dropout(dev, &op, &err), err);
        assert_memory_equal(alone, first, sizeof alone);
        assert_memory_not_equal(alone, in, sizeof alone);
        device_close(dev);
    }
}
