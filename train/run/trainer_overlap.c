/*
 * trainer_overlap: what a step does on a device that computes while the host continues
 * (device.stream).
 *
 *   copies     | batch n+1 ------>|                | batch n+2 ------>|
 *   compute    | step n ---------------->| step n+1 ---------------->|
 *   host       | loader: n+1 | report of n-1 | start n+1 | loader: n+2 | report of n | ...
 *
 * Two flights alternate: while the device computes one, the host reads the report of the other and
 * sends the next batch to its slot on the device. So the host is at most one step ahead, and the
 * device always has the next step before it completes this one, unless the loader is late. A step
 * leaves its report in device memory; a copy brings it to the host, which reads it one step later.
 * Until then a step that was not sound has changed no parameter, and neither has the step after it
 * (step_values.sound stays 0).
 *
 * A step is a function of device memory, so it can be recorded: the first step of a shape runs op
 * by op, which makes plans and scratch memory, the second is recorded, and all later ones replay
 * the recording. Of several ranks each decides this for itself, by the shapes of its own captions:
 * collectives are not recorded but divide a recording (kernels/device_ranks.h), and every rank
 * makes them in the same order in any case.
 */
#include "train/run/trainer_internal.h"

#include <inttypes.h>

#include "kernels/device_stream.h"

/* Marks: one of copies for each flight; times of a step live until the step after the next. */
enum { MARK_COPIED = 0, MARK_BEGUN = 2, MARK_DONE = 6, STEP_MARKS = 4 };

static int32_t copied_mark(const struct step_flight *f) {
    return MARK_COPIED + f->slot - 1;
}

static int32_t mark_of(int32_t first, uint64_t step) {
    return first + (int32_t)(step % STEP_MARKS);
}

bool trainer_overlaps(const struct trainer *t) {
    return t->dev->stream != NULL;
}

void trainer_overlap_close(struct trainer *t) {
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
        if (t->flights[i].held) { /* copies may still read its batch */
            (void)t->dev->stream->wait(t->dev, copied_mark(&t->flights[i]), &ignored);
        }
    }
    for (int i = 0; i < TRAINER_RECORDINGS; i++) {
        t->dev->stream->record_free(t->dev, t->recordings[i].steps);
        t->recordings[i] = (struct step_recording){0};
    }
}

/* ---- recordings ---- */

/* The recording of a shape; if there is none, the one not used for longest, emptied. */
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
};

static enum status compute_recorded(void *cookie, struct error *err) {
    struct recorded_step *r = cookie;
    return trainer_compute(r->t, r->f, err);
}

/* If a step cannot be recorded, it and all later ones run op by op. */
static enum status
record(struct trainer *t, struct step_recording *r, struct step_flight *f, struct error *err) {
    struct recorded_step step = {t, f};
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
        struct step_recording *r = recording_of(t, trainer_towers_shape(t, f->slot), &met);
        if (met && r->steps == NULL) {
            TRY(record(t, r, f, err));
        }
        if (r->steps != NULL) {
            return t->dev->stream->replay(t->dev, r->steps, err);
        }
    }
    return trainer_compute(t, f, err);
}

/* ---- the parts of a step ---- */

enum status trainer_overlap_put(struct trainer *t, const struct step_flight *f, struct error *err) {
    TRY(trainer_towers_put(t, f, err));
    return t->dev->stream->mark(t->dev, QUEUE_COPY, copied_mark(f), err);
}

enum status trainer_overlap_run(struct trainer *t, struct step_flight *f, struct error *err) {
    const struct device_stream *stream = t->dev->stream;
    const uint64_t launches_before = stream->launches(t->dev);
    TRY(stream->follow(t->dev, QUEUE_COMPUTE, copied_mark(f), err));
    TRY(stream->mark(t->dev, QUEUE_COMPUTE, mark_of(MARK_BEGUN, f->step), err));
    TRY(trainer_send_values(t, f, err));
    TRY(compute(t, f, err));
    TRY(stream->copy_out(t->dev, f->received, t->values, sizeof *f->received, err));
    TRY(stream->mark(t->dev, QUEUE_COMPUTE, mark_of(MARK_DONE, f->step), err));
    f->report.launches_count = stream->launches(t->dev) - launches_before;
    return STATUS_OK;
}

enum status
trainer_overlap_wait(struct trainer *t, const struct step_flight *f, struct error *err) {
    return t->dev->stream->wait(t->dev, mark_of(MARK_DONE, f->step), err);
}

enum status trainer_overlap_times(struct trainer *t,
                                  const struct step_flight *f,
                                  double *idle_s,
                                  double *elapsed_s,
                                  struct error *err) {
    const struct device_stream *stream = t->dev->stream;
    const int32_t before = mark_of(MARK_DONE, f->step - 1);
    TRY(stream->seconds(t->dev, idle_s, before, mark_of(MARK_BEGUN, f->step), err));
    return stream->seconds(t->dev, elapsed_s, before, mark_of(MARK_DONE, f->step), err);
}
