/*
 * trainer_overlap: steps on a device that computes while the host goes on (device.stream).
 *
 *   copies     | batch n+1 ------>|                | batch n+2 ------>|
 *   compute    | step n ---------------->| step n+1 ---------------->|
 *   host       | loader: n+1 | report of n-1 | start n+1 | loader: n+2 | report of n | ...
 *
 * Two flights take turns: while one is computed, the other's report is read, and then the next
 * batch goes to its place on the device. So the host is at most one step ahead, and the device
 * always has the next step before it is done with this one, unless the loader is late. What a step
 * reports it leaves in device memory; a copy brings it to the host, which reads it one step later.
 * Up to then a step that was not sound has changed no parameter, and nor has the one behind it
 * (`sound` sticks).
 *
 * A step is a function of device memory, so that it can be recorded: the first of a shape is done
 * op by op, which makes plans and scratch, the second is recorded, and then that is repeated.
 */
#include "train/run/trainer_internal.h"

#include <inttypes.h>

#include "formats/base/clock.h"
#include "kernels/device_stream.h"

/* Marks: one of copies for each flight; times of a step live until the step after the next. */
enum { MARK_COPIED = 0, MARK_BEGUN = 2, MARK_DONE = 6, STEP_MARKS = 4 };

static int32_t mark_of(int32_t first, uint64_t step) {
    return first + (int32_t)(step % STEP_MARKS);
}

bool trainer_overlaps(const struct trainer *t) {
    return t->dev->stream != NULL;
}

/* ---- memory ---- */

enum status trainer_overlap_open(struct trainer *t, struct error *err) {
    for (int i = 0; trainer_overlaps(t) && i < TRAINER_FLIGHTS; i++) {
        struct step_flight *f = &t->flights[i];
        void *data;
        f->slot = i + 1;
        TRY(t->dev->stream->alloc_host(t->dev, 2 * sizeof *f->sent, &data, err));
        f->sent = data;
        f->came_back = f->sent + 1;
    }
    t->records = t->options.record_steps;
    return STATUS_OK;
}

void trainer_overlap_close(struct trainer *t) {
    if (t->dev == NULL || t->dev->stream == NULL) {
        return;
    }
    struct error ignored = {0};
    (void)t->dev->ops->sync(t->dev, &ignored);
    const struct device_counters c = t->dev->stream->counters(t->dev);
    if (c.recordings > 0) {
        log_write(t->options.log, LOG_LEVEL_INFO,
                  "%s: %" PRIu64 " steps as one of %" PRIu64 " graphs of %" PRIu64
                  " launches; %.1f GiB of the device's memory in use",
                  t->dev->ops->name, c.replays, c.recordings, c.recorded_launches,
                  (double)c.memory_bytes / (1024.0 * 1024.0 * 1024.0));
    }
    for (int i = 0; i < TRAINER_FLIGHTS; i++) {
        struct step_flight *f = &t->flights[i];
        if (f->held) { /* copies may be on their way out of it */
            (void)t->dev->stream->wait(t->dev, MARK_COPIED + i, &ignored);
            loader_release(t->loader, &f->batch);
        }
        t->dev->stream->free_host(t->dev, f->sent);
        *f = (struct step_flight){0};
    }
    for (int i = 0; i < TRAINER_RECORDINGS; i++) {
        t->dev->stream->record_free(t->dev, t->recordings[i].steps);
        t->recordings[i] = (struct step_recording){0};
    }
}

/* ---- recordings ---- */

/* That of a shape, or the one that was not wanted for longest, emptied. */
static struct step_recording *recording_of(struct trainer *t, uint64_t shape, bool *met) {
    struct step_recording *oldest = &t->recordings[0];
    for (int i = 0; i < TRAINER_RECORDINGS; i++) {
        struct step_recording *r = &t->recordings[i];
        if (r->used > 0 && r->shape == shape) {
            *met = true;
            r->used = t->step + 1;
            return r;
        }
        oldest = r->used < oldest->used ? r : oldest;
    }
    *met = false;
    t->dev->stream->record_free(t->dev, oldest->steps);
    *oldest = (struct step_recording){.shape = shape, .used = t->step + 1};
    return oldest;
}

struct recorded_step {
    struct trainer *t;
    struct step_flight *f;
    struct step_report ignored;
};

static enum status compute_recorded(void *cookie, struct error *err) {
    struct recorded_step *r = cookie;
    return trainer_compute(r->t, &r->ignored, &r->f->batch, r->f->slot, err);
}

/* Where a step cannot be recorded, it and all later ones are computed op by op. */
static enum status
record(struct trainer *t, struct step_recording *r, struct step_flight *f, struct error *err) {
    struct recorded_step step = {t, f, f->report};
    struct error why = {0};
    TRY(device_record(t->dev, &r->steps, compute_recorded, &step, &why, err));
    if (r->steps == NULL) {
        t->records = false;
        log_write(t->options.log, LOG_LEVEL_INFO, "steps run op by op: %s", why.text);
    }
    return STATUS_OK;
}

static enum status compute(struct trainer *t, struct step_flight *f, struct error *err) {
    if (t->records) {
        bool met;
        const uint64_t shape = t->views != NULL ? view_encoder_shape(t->views, f->slot)
                                                : dual_encoder_shape(t->model, f->slot);
        struct step_recording *r = recording_of(t, shape, &met);
        if (met && r->steps == NULL) {
            TRY(record(t, r, f, err));
        }
        if (r->steps != NULL) {
            return t->dev->stream->replay(t->dev, r->steps, err);
        }
    }
    return trainer_compute(t, &f->report, &f->batch, f->slot, err);
}

/* ---- one step ---- */

/* The batch to its place on the device, on the queue of copies. */
static enum status put(struct trainer *t, const struct step_flight *f, struct error *err) {
    if (t->views != NULL) {
        const struct view_encoder_batch views = trainer_views_batch(&f->batch, f->slot);
        return view_encoder_put(t->views, &views, err);
    }
    const struct dual_encoder_batch pairs = trainer_encoder_batch(t, &f->batch, f->slot);
    return dual_encoder_put(t->model, &pairs, err);
}

/* The next batch, and its way to the device. */
static enum status load(struct trainer *t, struct step_flight *f, struct error *err) {
    const struct loader_state place = loader_state(t->loader);
    const int64_t start_ns = clock_now_ns();
    TRY(loader_acquire(t->loader, &f->batch, err));
    f->held = true;
    f->place = place;
    f->waited_s = (double)(clock_now_ns() - start_ns) * 1e-9;
    TRY(put(t, f, err));
    return t->dev->stream->mark(t->dev, QUEUE_COPY, MARK_COPIED + f->slot - 1, err);
}

static enum status launch(struct trainer *t, struct step_flight *f, struct error *err) {
    const struct device_stream *stream = t->dev->stream;
    const uint64_t launches_before = stream->launches(t->dev);
    f->step = t->step;
    f->start_ns = clock_now_ns();
    f->report = (struct step_report){0};
    trainer_rates(t, &f->report, &f->batch);
    *f->sent = trainer_values(t, &f->report, &f->batch);
    TRY(stream->follow(t->dev, QUEUE_COMPUTE, MARK_COPIED + f->slot - 1, err));
    TRY(stream->mark(t->dev, QUEUE_COMPUTE, mark_of(MARK_BEGUN, f->step), err));
    TRY(trainer_put_values(t, f->sent, &f->batch, err));
    TRY(compute(t, f, err));
    TRY(stream->copy_out(t->dev, f->came_back, t->values, sizeof *f->came_back, err));
    TRY(stream->mark(t->dev, QUEUE_COMPUTE, mark_of(MARK_DONE, f->step), err));
    f->report.launches_count = stream->launches(t->dev) - launches_before;
    f->launched = true;
    t->step++;
    return STATUS_OK;
}

/* Where the step before went on into this one, the device's own times; else the host's. */
static enum status take_times(struct trainer *t, struct step_flight *f, struct error *err) {
    const struct device_stream *stream = t->dev->stream;
    double elapsed_s = (double)(clock_now_ns() - f->start_ns) * 1e-9 + f->waited_s;
    double waited_s = f->waited_s;
    if (f->follows) {
        const int32_t before = mark_of(MARK_DONE, f->step - 1);
        TRY(stream->seconds(t->dev, &waited_s, before, mark_of(MARK_BEGUN, f->step), err));
        TRY(stream->seconds(t->dev, &elapsed_s, before, mark_of(MARK_DONE, f->step), err));
    }
    f->report.stall_fraction = elapsed_s > 0.0 ? waited_s / elapsed_s : 0.0;
    f->report.pairs_per_s = elapsed_s > 0.0 ? (double)t->options.batch_count / elapsed_s : 0.0;
    return STATUS_OK;
}

/* The gradients on the device are those of a later step by now: makes them once more, for the dump.
 * Its inputs are where they were, and parameters have not changed. */
static void compute_again(struct trainer *t, struct step_flight *f) {
    struct error ignored = {0};
    struct step_report report = f->report;
    t->step = f->step;
    if (t->dev->ops->sync(t->dev, &ignored) == STATUS_OK &&
        trainer_put_values(t, f->sent, &f->batch, &ignored) == STATUS_OK) {
        (void)trainer_compute(t, &report, &f->batch, f->slot, &ignored);
    }
}

/* Waits for the step and tells what became of it. */
static enum status finish(struct trainer *t, struct step_flight *f, struct error *err) {
    TRY(t->dev->stream->wait(t->dev, mark_of(MARK_DONE, f->step), err));
    enum status s = trainer_read_values(t, &f->report, f->came_back, err);
    if (s == STATUS_CORRUPT) {
        compute_again(t, f);
        trainer_tell_unsound(t, &f->report, &f->batch, err);
    }
    if (s == STATUS_OK) {
        s = take_times(t, f, err);
    }
    f->report.step = f->step + 1;
    f->report.epoch = f->batch.epoch;
    f->report.replaced_count = f->batch.replaced_count;
    f->launched = false;
    f->held = false;
    loader_release(t->loader, &f->batch);
    return s == STATUS_OK ? trainer_tell_step(t, &f->report, err) : s;
}

enum status trainer_overlapped_step(struct trainer *t, bool *epoch_ended, struct error *err) {
    struct step_flight *f = &t->flights[t->flight];
    struct step_flight *other = &t->flights[1 - t->flight];
    if (!f->held) {
        TRY(load(t, f, err));
    }
    f->follows = other->launched;
    enum status s = launch(t, f, err);
    if (s == STATUS_CORRUPT) { /* of a loss that the host computes */
        if (other->launched) {
            TRY(finish(t, other, err));
        }
        trainer_tell_unsound(t, &f->report, &f->batch, err);
    }
    TRY(s);
    *epoch_ended = f->batch.step + 1 == t->data.steps_per_epoch;
    t->flight = 1 - t->flight;
    if (other->launched) {
        TRY(finish(t, other, err));
    }
    if (t->step == trainer_last_step(t)) {
        return STATUS_OK;
    }
    struct error later = {0}; /* the loader says it again when this batch's turn has come */
    s = load(t, other, &later);
    return s == STATUS_OK || !other->held ? STATUS_OK : error_set(err, s, "%s", later.text);
}

enum status trainer_drain(struct trainer *t, struct error *err) {
    struct step_flight *last = &t->flights[1 - t->flight];
    return last->launched ? finish(t, last, err) : STATUS_OK;
}

struct loader_state trainer_place(const struct trainer *t) {
    const struct step_flight *next = &t->flights[t->flight];
    return next->held && !next->launched ? next->place : loader_state(t->loader);
}
