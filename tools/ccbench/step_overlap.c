/*
 * ccbench step on a device that computes asynchronously (device.stream): the next batch is copied
 * while a step is computed, and a step of a known shape is recorded once and repeated, as in the
 * trainer.
 */
#include <string.h>

#include "formats/base/clock.h"
#include "kernels/device_stream.h"
#include "tools/ccbench/step_internal.h"

/* Marks: one for the copies of each flight; begin and end of a step, which are read while the next
 * one runs. */
enum { MARK_COPIED = 0, MARK_BEGUN = 2, MARK_DONE = 6, STEP_MARKS = 4 };

static int32_t mark_of(int32_t first, uint64_t step) {
    return first + (int32_t)(step % STEP_MARKS);
}

bool bench_step_overlaps(const struct bench_step *b) {
    return b->dev->stream != NULL && b->both != NULL && b->loss_device != NULL;
}

static void *pinned_alloc(void *cookie, size_t size_bytes) {
    struct device *dev = cookie;
    struct error ignored = {0};
    void *data = NULL;
    return dev->stream->alloc_host(dev, size_bytes, &data, &ignored) == STATUS_OK ? data : NULL;
}

static void pinned_release(void *cookie, void *data) {
    struct device *dev = cookie;
    dev->stream->free_host(dev, data);
}

struct host_memory bench_step_host_memory(struct device *dev) {
    return dev->stream != NULL ? (struct host_memory){pinned_alloc, pinned_release, dev}
                               : host_memory_default();
}

struct recorded_step {
    struct bench_step *b;
    struct bench_flight *f;
};

static enum status compute_recorded(void *cookie, struct error *err) {
    const struct recorded_step *r = cookie;
    return bench_step_compute(r->b, &r->f->batch, err);
}

/* The second batch of a shape in a row is recorded. Where that fails, all steps from then on are
 * computed op by op. */
static enum status compute(struct bench_step *b, struct bench_flight *f, struct error *err) {
    struct recorded_step step = {b, f};
    struct error why = {0};
    if (b->o->cuda_graph == STEP_OFF || b->not_recorded) {
        return bench_step_compute(b, &f->batch, err);
    }
    const uint64_t shape = dual_encoder_shape(b->both, f->batch.slot);
    if (!f->met || f->shape != shape) {
        b->dev->stream->record_free(b->dev, f->recording);
        f->recording = NULL;
        f->met = true;
        f->shape = shape;
        return bench_step_compute(b, &f->batch, err);
    }
    if (f->recording == NULL) {
        TRY(device_record(b->dev, &f->recording, compute_recorded, &step, &why, err));
    }
    if (f->recording == NULL) {
        b->not_recorded = true;
        log_write(&b->log, LOG_LEVEL_WARN, "steps run op by op: %s", why.text);
        return bench_step_compute(b, &f->batch, err);
    }
    return b->dev->stream->replay(b->dev, f->recording, err);
}

/* Waits for what the flight did last; its slot and its batch are then free. How long the queue of
 * kernels worked on it, and how long it had nothing to do since the step before. */
static enum status land(struct bench_step *b, int32_t number, struct error *err) {
    const struct device_stream *stream = b->dev->stream;
    struct bench_flight *f = &b->flights[number];
    const int32_t begun = mark_of(MARK_BEGUN, f->step);
    const int32_t done = mark_of(MARK_DONE, f->step);
    double busy_s;
    double idle_s = 0.0;
    if (!f->flying) {
        return STATUS_OK;
    }
    f->flying = false;
    TRY(stream->wait(b->dev, done, err));
    TRY(stream->seconds(b->dev, &busy_s, begun, done, err));
    if (f->follows) {
        TRY(stream->seconds(b->dev, &idle_s, mark_of(MARK_DONE, f->step - 1), begun, err));
    }
    b->busy_s += busy_s;
    b->idle_s += idle_s;
    return STATUS_OK;
}

static enum status take_off(struct bench_step *b, int32_t number, bool follows, struct error *err) {
    const struct device_stream *stream = b->dev->stream;
    struct bench_flight *f = &b->flights[number];
    TRY(bench_step_take_batch(b, &f->held, &f->held_used, err));
    f->batch = bench_step_batch(b, f->held_used ? &f->held : NULL);
    f->batch.slot = number + 1;
    f->step = b->step;
    f->follows = follows;
    TRY(dual_encoder_put(b->both, &f->batch, err));
    TRY(stream->mark(b->dev, QUEUE_COPY, MARK_COPIED + number, err));
    TRY(stream->follow(b->dev, QUEUE_COMPUTE, MARK_COPIED + number, err));
    TRY(stream->mark(b->dev, QUEUE_COMPUTE, mark_of(MARK_BEGUN, f->step), err));
    TRY(bench_step_put_values(b, &f->batch, err));
    TRY(compute(b, f, err));
    b->step++;
    f->flying = true;
    return stream->mark(b->dev, QUEUE_COMPUTE, mark_of(MARK_DONE, f->step), err);
}

enum status
bench_step_overlapped(struct bench_step *b, uint64_t count, double *seconds, struct error *err) {
    const int64_t start_ns = clock_now_ns();
    b->busy_s = 0.0;
    b->idle_s = 0.0;
    for (uint64_t i = 0; i < count; i++) {
        const int32_t number = (int32_t)(b->step % BENCH_FLIGHTS);
        TRY(land(b, number, err));
        TRY(take_off(b, number, i > 0, err));
        FAIL_IF(cli_interrupted(), err, STATUS_INTERRUPTED, "stopped on request");
    }
    for (int i = 0; i < BENCH_FLIGHTS; i++) {
        TRY(land(b, (int32_t)((b->step + (uint64_t)i) % BENCH_FLIGHTS), err));
    }
    *seconds = (double)(clock_now_ns() - start_ns) * 1e-9;
    return STATUS_OK;
}

void bench_step_overlap_close(struct bench_step *b) {
    struct error ignored = {0};
    if (b->dev == NULL || b->dev->stream == NULL) {
        return;
    }
    (void)b->dev->ops->sync(b->dev, &ignored);
    for (int i = 0; i < BENCH_FLIGHTS; i++) {
        b->dev->stream->record_free(b->dev, b->flights[i].recording);
        if (b->flights[i].held_used) {
            loader_release(b->loader, &b->flights[i].held);
        }
    }
}
