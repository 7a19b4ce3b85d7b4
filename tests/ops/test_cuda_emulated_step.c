/*
 * Captured steps on the emulated GPU. Calls between begin and end are captured, not executed. A
 * replay reads the values on the device at that time (step, rate, soundness, inputs) and gives the
 * bits of the same calls made one by one. Waits and copies cannot be captured.
 */
#include <math.h>
#include <string.h>

#include "kernels/cuda/device/cuda_internal.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/test.h"

enum { ROWS = 6, WIDTH = 32, COUNT = ROWS * WIDTH, STEPS = 5 };
enum buffer { VALUE, GRAD, M, V, DROPPED, PRODUCT, BUFFERS };

struct side {
    struct device *dev;
    struct step_values *values; /* on the device, as the next */
    uint64_t *ids;
    struct tensor flat[BUFFERS], matrix[BUFFERS];
    struct step_values *sent; /* of alloc_host */
    float *input;
    struct captured_step *steps;
};

static void open_side(struct side *s) {
    static const struct step_values first = {.grad_scale = 1.0, .sound = 1};
    static const uint64_t ids[ROWS] = {5, 1, 4, 1, 5, 9};
    struct error err = {0};
    struct device_options how;
    void *data;
    memset(s, 0, sizeof *s);
    device_options_default(&how);
    assert_ok(cuda_open(&s->dev, 0, &how, &err), err);
    const struct ops *ops = s->dev->ops;
    assert_ok(ops->alloc(s->dev, sizeof first, &data, &err), err);
    s->values = data;
    assert_ok(ops->upload(s->dev, data, &first, sizeof first, &err), err);
    assert_ok(ops->alloc(s->dev, sizeof ids, &data, &err), err);
    s->ids = data;
    assert_ok(ops->upload(s->dev, data, ids, sizeof ids, &err), err);
    for (int i = 0; i < BUFFERS; i++) {
        assert_ok(ops->alloc(s->dev, COUNT * sizeof(float), &data, &err), err);
        s->flat[i] = tensor_1d(data, DTYPE_F32, COUNT);
        s->matrix[i] = tensor_2d(data, DTYPE_F32, ROWS, WIDTH);
    }
    s->matrix[PRODUCT] = tensor_2d(s->matrix[PRODUCT].data, DTYPE_F32, ROWS, ROWS);
    assert_ok(s->dev->stream->alloc_host(s->dev, sizeof *s->sent, &data, &err), err);
    s->sent = data;
    assert_ok(s->dev->stream->alloc_host(s->dev, COUNT * sizeof(float), &data, &err), err);
    s->input = data;
}

static void close_side(struct side *s) {
    s->dev->stream->captured_free(s->dev, s->steps);
    s->dev->stream->free_host(s->dev, s->sent);
    s->dev->stream->free_host(s->dev, s->input);
    for (int i = 0; i < BUFFERS; i++) {
        s->dev->ops->free(s->dev, s->flat[i].data);
    }
    s->dev->ops->free(s->dev, s->values);
    s->dev->ops->free(s->dev, s->ids);
    device_close(s->dev);
}

/* grad += dropout(grad) + a product's trace of it; then clipping and AdamW. */
static enum status compute(struct side *s, struct error *err) {
    const struct ops *ops = s->dev->ops;
    const struct dropout drop = {
        .out = s->matrix[DROPPED],
        .in = s->matrix[GRAD],
        .dropout = {.p = 0.3f, .seed = 3, .layer = 1, .values = s->values, .sample_ids = s->ids}};
    const struct matmul product = {.out = s->matrix[PRODUCT],
                                   .a = s->matrix[DROPPED],
                                   .b = s->matrix[GRAD],
                                   .transpose_b = true,
                                   .alpha = 0.5f};
    const struct matmul trace = {.out = s->matrix[GRAD],
                                 .a = s->matrix[PRODUCT],
                                 .b = s->matrix[DROPPED],
                                 .mode = WRITE_ADD,
                                 .alpha = 1.0f};
    const struct sum_squares squares = {.sum = tensor_1d(&s->values->squares[0], DTYPE_F64, 1),
                                        .in = s->flat[GRAD]};
    const struct grad_scale clip = {.values = s->values, .count = 1, .clip_norm = 2.0};
    const struct adamw adamw = {.value = s->flat[VALUE],
                                .grad = s->flat[GRAD],
                                .m = s->flat[M],
                                .v = s->flat[V],
                                .beta1 = 0.9f,
                                .lr_scale = 1.0f,
                                .beta2 = 0.999f,
                                .eps = 1e-8f,
                                .weight_decay = 0.1f,
                                .values = s->values};
    TRY(ops->dropout(s->dev, &drop, err));
    TRY(ops->matmul(s->dev, &product, err));
    TRY(ops->matmul(s->dev, &trace, err));
    TRY(ops->sum_squares(s->dev, &squares, err));
    TRY(ops->grad_scale(s->dev, &clip, err));
    return ops->adamw(s->dev, &adamw, err);
}

enum { NOT_FINITE = 1 << 8 }; /* of a step: one of its gradients */

static void one_step(struct side *s, int how, bool captures) {
    const int step = how & ~NOT_FINITE;
    const struct device_stream *stream = s->dev->stream;
    struct error err = {0};
    for (int i = 0; i < COUNT; i++) {
        s->input[i] = (float)((i * 7 + step * 13) % 23) * 0.1f - 1.1f;
    }
    s->input[7] = (how & NOT_FINITE) != 0 ? INFINITY : s->input[7];
    assert_ok(stream->copy_in(s->dev, s->flat[GRAD].data, s->input, COUNT * sizeof(float), &err),
              err);
    assert_ok(stream->mark(s->dev, QUEUE_COPY, 0, &err), err);
    assert_ok(stream->follow(s->dev, QUEUE_COMPUTE, 0, &err), err);
    *s->sent = (struct step_values){.step = (uint64_t)step, .lr = 1e-2 / (step + 1)};
    assert_ok(s->dev->ops->upload(s->dev, s->values, s->sent, STEP_VALUES_SET_BYTES, &err), err);
    if (captures && step == 1) {
        const uint64_t before = emulation_launches_count();
        assert_ok(stream->capture_begin(s->dev, &err), err);
        assert_ok(compute(s, &err), err);
        assert_ok(stream->capture_end(s->dev, &s->steps, &err), err);
        assert_int_equal(emulation_launches_count(), before); /* noted, not done */
        assert_int_equal(stream->counters(s->dev).captured_launches, 7);
    }
    assert_ok(s->steps != NULL ? stream->replay(s->dev, s->steps, &err) : compute(s, &err), err);
    assert_ok(stream->mark(s->dev, QUEUE_COMPUTE, 1, &err), err);
    assert_ok(stream->wait(s->dev, 1, &err), err);
}

static void same(struct side *a, struct side *b) {
    struct error err = {0};
    struct step_values x;
    struct step_values y;
    assert_ok(a->dev->ops->download(a->dev, &x, a->values, sizeof x, &err), err);
    assert_ok(b->dev->ops->download(b->dev, &y, b->values, sizeof y, &err), err);
    assert_memory_equal(&x, &y, sizeof x);
    assert_int_equal(x.sound, 1);
    assert_true(x.grad_norm > 2.0 && x.grad_scale < 1.0);
    for (int i = 0; i < BUFFERS; i++) {
        float p[COUNT];
        float q[COUNT];
        assert_ok(a->dev->ops->download(a->dev, p, a->flat[i].data, sizeof p, &err), err);
        assert_ok(b->dev->ops->download(b->dev, q, b->flat[i].data, sizeof q, &err), err);
        assert_memory_equal(p, q, sizeof p);
    }
}

TEST(captured_steps_give_the_same_bits) {
    static struct side eager;
    static struct side captured;
    open_side(&eager);
    open_side(&captured);
    for (int step = 0; step < STEPS; step++) {
        one_step(&eager, step, false);
        one_step(&captured, step, true);
        same(&eager, &captured);
    }
    const struct device_counters c = captured.dev->stream->counters(captured.dev);
    assert_true(c.captures == 1 && c.replays == STEPS - 1);
    assert_int_equal(eager.dev->stream->counters(eager.dev).captures, 0);
    close_side(&eager);
    close_side(&captured);
}

static struct step_values values_of(struct side *s) {
    struct error err = {0};
    struct step_values v;
    assert_ok(s->dev->ops->download(s->dev, &v, s->values, sizeof v, &err), err);
    return v;
}

/* One captured step: from the first step whose gradient is not finite, value and moments keep their
 * bits. */
TEST(replayed_steps_change_nothing_after_an_unsound_one) {
    static const int steps[] = {0, 1, 2 | NOT_FINITE, 3};
    static const enum buffer kept[] = {VALUE, M, V};
    static struct side sides[2]; /* op by op, captured */
    struct error err = {0};
    for (int k = 0; k < 2; k++) {
        struct side *s = &sides[k];
        float before[3][COUNT];
        float after[3][COUNT];
        open_side(s);
        for (int i = 0; i < 4; i++) {
            memcpy(before, after, sizeof before);
            one_step(s, steps[i], k == 1);
            assert_int_equal(values_of(s).sound, i < 2);
            for (int b = 0; b < 3; b++) {
                assert_ok(s->dev->ops->download(s->dev, after[b], s->flat[kept[b]].data,
                                                sizeof after[b], &err),
                          err);
            }
            assert_int_equal(memcmp(before, after, sizeof before) == 0, i >= 2);
        }
    }
    assert_int_equal(sides[1].dev->stream->counters(sides[1].dev).replays, 3);
    close_side(&sides[0]);
    close_side(&sides[1]);
}

TEST(waits_and_copies_cannot_be_recorded) {
    static struct side s;
    struct error err = {0};
    void *more = NULL;
    float host = 0.0f;
    open_side(&s);
    const struct ops *ops = s.dev->ops;
    assert_ok(s.dev->stream->capture_begin(s.dev, &err), err);
    assert_status(ops->sync(s.dev, &err), STATUS_UNSUPPORTED, err);
    assert_status(ops->download(s.dev, &host, s.values, 4, &err), STATUS_UNSUPPORTED, err);
    assert_status(ops->upload(s.dev, s.values, &host, 4, &err), STATUS_UNSUPPORTED, err);
    assert_status(ops->alloc(s.dev, 4, &more, &err), STATUS_UNSUPPORTED, err);
    assert_ok(s.dev->stream->capture_end(s.dev, NULL, &err), err);
    assert_ok(ops->sync(s.dev, &err), err);
    assert_int_equal(s.dev->stream->counters(s.dev).captures, 0);
    close_side(&s);
}

/* A call that a driver refuses during a capture invalidates the capture and nothing else. */
TEST(an_invalid_capture_leaves_the_device_usable) {
    static struct side s;
    struct error err = {0};
    void *more = NULL;
    open_side(&s);
    const struct ops *ops = s.dev->ops;
    assert_ok(ops->alloc(s.dev, 4, &more, &err), err);
    assert_ok(s.dev->stream->capture_begin(s.dev, &err), err);
    assert_ok(compute(&s, &err), err);
    ops->free(s.dev, more); /* refused, but it returns no status */
    assert_status(s.dev->stream->capture_end(s.dev, &s.steps, &err), STATUS_DEVICE, err);
    assert_true(s.steps == NULL);
    assert_ok(ops->sync(s.dev, &err), err);
    ops->free(s.dev, more);
    assert_ok(compute(&s, &err), err);
    close_side(&s);
}

TEST(marks_out_of_range_are_refused) {
    static struct side s;
    struct error err = {0};
    double seconds;
    open_side(&s);
    const struct device_stream *stream = s.dev->stream;
    assert_status(stream->mark(s.dev, QUEUE_COPY, DEVICE_MARK_COUNT, &err), STATUS_INVALID, err);
    assert_status(stream->wait(s.dev, -1, &err), STATUS_INVALID, err);
    assert_status(stream->seconds(s.dev, &seconds, 0, 99, &err), STATUS_INVALID, err);
    close_side(&s);
}
