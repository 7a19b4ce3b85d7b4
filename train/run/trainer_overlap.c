/*
 * trainer_overlap: how a step is run: on a CPU at once; the rest is about a device that computes
 * while the host continues (device.stream).
 *
 *   copies     | batch n+1 ------>|                | batch n+2 ------>|
 *   compute    | step n ---------------->| step n+1 ---------------->|
 *   host       | loader: n+1 | report of n-1 | start n+1 | loader: n+2 | report of n | ...
 *
 * Two flights alternate: while the device computes one, the host reads the report of the other and
 * sends the next batch to its slot on the device. So the host is at most one step ahead, and the
 * device always has the next step before it completes this one, unless the loader is late. A step
 * writes its report to device memory; it is copied to the host, which reads it one step later. A
 * step that was not sound changes no parameter, and neither does the step after it
 * (step_values.sound stays 0).
 *
 * A step is a function of device memory, so it can be captured as a CUDA graph: the first step of a
 * shape runs op by op, which creates plans and workspace, the second is captured, and later ones
 * replay it. With several ranks each decides this by the shapes of its own captions: collectives
 * are not captured but divide the graph (kernels/device_ranks.h), and every rank makes them in
 * the same order in any case.
 */
#include "train/run/trainer_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "kernels/device_stream.h"

/* Marks: one of copies per flight; a step's times are kept until the step after the next. */
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

/* ---- memory ---- */

enum status trainer_open_flights(struct trainer *t, struct error *err) {
    const size_t ids_count = comm_world(t->comm) > 1 ? t->options.batch_count : 0;
    const size_t captions_count = t->captions != NULL ? t->options.batch_count : 0;
    const size_t keys_count =
        trainer_positives(&t->options) > 1 ? trainer_local_count(&t->options) : 0;
    const size_t size_bytes = 2 * sizeof(struct step_values) +
                              (ids_count + captions_count + keys_count) * sizeof(uint64_t);
    for (int i = 0; i < TRAINER_FLIGHTS; i++) {
        struct step_flight *f = &t->flights[i];
        void *data;
        f->slot = trainer_overlaps(t) ? i + 1 : 0;
        if (trainer_overlaps(t)) {
            TRY(t->dev->stream->alloc_host(t->dev, size_bytes, &data, err));
        } else if ((data = calloc(1, size_bytes)) == NULL) {
            return error_set(err, STATUS_NOMEM, "trainer: out of memory");
        }
        f->sent = data;
        f->received = f->sent + 1;
        uint64_t *rows = (uint64_t *)(f->sent + 2);
        f->gathered_ids = ids_count > 0 ? rows : NULL;
        f->caption_ids = captions_count > 0 ? rows + ids_count : NULL;
        f->dropout_keys = keys_count > 0 ? rows + ids_count + captions_count : NULL;
    }
    t->captures = trainer_overlaps(t) && t->options.cuda_graph;
    return STATUS_OK;
}

/* Waits for all queued work of the device, and frees captured graphs. */
static void close_stream(struct trainer *t) {
    struct error ignored = {0};
    (void)t->dev->ops->sync(t->dev, &ignored);
    const struct device_counters c = t->dev->stream->counters(t->dev);
    if (c.captures > 0) {
        log_write(t->options.log, LOG_LEVEL_INFO,
                  "%s: %" PRIu64 " steps as one of %" PRIu64 " graphs of %" PRIu64
                  " launches; %.1f GiB of the device's memory in use",
                  t->dev->ops->name, c.replays, c.captures, c.captured_launches,
                  (double)c.memory_bytes / (1024.0 * 1024.0 * 1024.0));
    }
    for (int i = 0; i < TRAINER_FLIGHTS; i++) {
        if (t->flights[i].held) { /* copies may still read its batch */
            (void)t->dev->stream->wait(t->dev, copied_mark(&t->flights[i]), &ignored);
        }
    }
    for (int i = 0; i < TRAINER_GRAPHS; i++) {
        t->dev->stream->captured_free(t->dev, t->graphs[i].steps);
        t->graphs[i] = (struct shape_graph){0};
    }
}

void trainer_close_flights(struct trainer *t) {
    if (t->dev == NULL) {
        return;
    }
    if (trainer_overlaps(t)) {
        close_stream(t);
    }
    for (int i = 0; i < TRAINER_FLIGHTS; i++) {
        struct step_flight *f = &t->flights[i];
        if ((f->held || f->kept) && t->loader != NULL) {
            loader_release(t->loader, &f->batch);
        }
        if (trainer_overlaps(t)) {
            t->dev->stream->free_host(t->dev, f->sent);
        } else {
            free(f->sent);
        }
        *f = (struct step_flight){0};
    }
    trainer_free_given(t);
}

/* ---- captured graphs ---- */

/* The captured graph of a shape; if there is none, the least recently used one, emptied. */
static struct shape_graph *graph_of(struct trainer *t, uint64_t shape, bool *met) {
    struct shape_graph *oldest = &t->graphs[0];
    for (int i = 0; i < TRAINER_GRAPHS; i++) {
        struct shape_graph *g = &t->graphs[i];
        if (g->used > 0 && g->shape == shape) {
            *met = true;
            g->used = t->step + 1;
            return g;
        }
        oldest = g->used < oldest->used ? g : oldest;
    }
    *met = false;
    t->dev->stream->captured_free(t->dev, oldest->steps);
    *oldest = (struct shape_graph){.shape = shape, .used = t->step + 1};
    return oldest;
}

struct step_to_capture {
    struct trainer *t;
    struct step_flight *f;
};

static enum status compute_step(void *cookie, struct error *err) {
    struct step_to_capture *step = cookie;
    return trainer_compute(step->t, step->f, err);
}

/* If a step cannot be captured, it and later ones of its shape run op by op. */
static enum status
capture(struct trainer *t, struct shape_graph *g, struct step_flight *f, struct error *err) {
    struct step_to_capture step = {t, f};
    struct error why = {0};
    TRY(device_capture(t->dev, &g->steps, compute_step, &step, &why, err));
    if (g->steps == NULL) {
        g->refused = true;
        log_write(t->options.log, LOG_LEVEL_INFO, "steps run op by op: %s", why.text);
    }
    return STATUS_OK;
}

static enum status compute(struct trainer *t, struct step_flight *f, struct error *err) {
    if (t->captures) {
        bool met;
        struct shape_graph *g = graph_of(t, trainer_shape(t, f->slot), &met);
        if (met && g->steps == NULL && !g->refused) {
            TRY(capture(t, g, f, err));
        }
        if (g->steps != NULL) {
            return t->dev->stream->replay(t->dev, g->steps, err);
        }
    }
    return trainer_compute(t, f, err);
}

/* ---- the parts of a step ---- */

enum status trainer_send_batch(struct trainer *t, const struct step_flight *f, struct error *err) {
    if (!trainer_overlaps(t)) {
        return STATUS_OK;
    }
    const struct tower_input in = trainer_input(f);
    TRY(trainer_put(t, &in, err));
    return t->dev->stream->mark(t->dev, QUEUE_COPY, copied_mark(f), err);
}

/* Copies f->sent and the sample ids to the device. */
static enum status send_values(struct trainer *t, const struct step_flight *f, struct error *err) {
    if (t->loss_device != NULL) {
        TRY(loss_device_put_ids(t->loss_device, f->ids, err));
    }
    return t->dev->ops->upload(t->dev, t->values, f->sent, STEP_VALUES_SET_BYTES, err);
}

static enum status run_now(struct trainer *t, struct step_flight *f, struct error *err) {
    TRY(send_values(t, f, err));
    TRY(trainer_compute(t, f, err));
    return t->dev->ops->download(t->dev, f->received, t->values, sizeof *f->received, err);
}

static enum status run_queued(struct trainer *t, struct step_flight *f, struct error *err) {
    const struct device_stream *stream = t->dev->stream;
    const uint64_t launches_before = stream->launches(t->dev);
    TRY(stream->follow(t->dev, QUEUE_COMPUTE, copied_mark(f), err));
    TRY(stream->mark(t->dev, QUEUE_COMPUTE, mark_of(MARK_BEGUN, f->step), err));
    TRY(send_values(t, f, err));
    TRY(compute(t, f, err));
    TRY(stream->copy_out(t->dev, f->received, t->values, sizeof *f->received, err));
    TRY(stream->mark(t->dev, QUEUE_COMPUTE, mark_of(MARK_DONE, f->step), err));
    f->report.launches_count = stream->launches(t->dev) - launches_before;
    return STATUS_OK;
}

enum status trainer_run_flight(struct trainer *t, struct step_flight *f, struct error *err) {
    f->follows = t->flights[1 - t->flight].launched;
    TRY((trainer_overlaps(t) ? run_queued : run_now)(t, f, err));
    f->launched = true;
    return STATUS_OK;
}

struct step_flight *trainer_next_flight(struct trainer *t) {
    t->flight = trainer_overlaps(t) ? 1 - t->flight : t->flight;
    return &t->flights[t->flight];
}

enum status trainer_await(struct trainer *t, const struct step_flight *f, struct error *err) {
    return trainer_overlaps(t) ? t->dev->stream->wait(t->dev, mark_of(MARK_DONE, f->step), err)
                               : STATUS_OK;
}

void trainer_compute_again(struct trainer *t, struct step_flight *f) {
    struct error ignored = {0};
    const struct step_report report = f->report;
    if (trainer_overlaps(t) && t->dev->ops->sync(t->dev, &ignored) == STATUS_OK &&
        send_values(t, f, &ignored) == STATUS_OK) {
        (void)trainer_compute(t, f, &ignored);
    }
    f->report = report;
}

enum status trainer_device_times(struct trainer *t,
                                 const struct step_flight *f,
                                 double *idle_s,
                                 double *elapsed_s,
                                 struct error *err) {
    if (!f->follows) {
        return STATUS_OK;
    }
    const struct device_stream *stream = t->dev->stream;
    const int32_t before = mark_of(MARK_DONE, f->step - 1);
    TRY(stream->seconds(t->dev, idle_s, before, mark_of(MARK_BEGUN, f->step), err));
    return stream->seconds(t->dev, elapsed_s, before, mark_of(MARK_DONE, f->step), err);
}

/* Asking the driver costs tens of microseconds, and memory grows in the first steps: asks in these
 * and in every 64th later one. */
uint64_t trainer_device_bytes(struct trainer *t) {
    if (trainer_overlaps(t) && (t->reported_steps < 8 || t->reported_steps % 64 == 0)) {
        const uint64_t now = t->dev->stream->counters(t->dev).memory_bytes;
        t->device_bytes = now > t->device_bytes ? now : t->device_bytes;
    }
    t->reported_steps++;
    return t->device_bytes;
}
