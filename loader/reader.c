/*
 * reader: a reading thread. It claims positions in order, starts their reads, and passes complete
 * images on to the decoders. Requests of many batches are in flight at once; short reads are
 * continued, errors retried a few times, and what stays broken stops the run with the name of the
 * shard and the offset.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "loader/pipeline_internal.h"

struct reader {
    struct pipeline *p;
    struct read_engine *engine;
    uint32_t in_flight;
    uint32_t retried_count;
    uint64_t done_bytes;
    uint32_t done_count;
    uint32_t done[LOADER_MAX_READ_DEPTH]; /* complete, not yet passed on */
};

static bool is_transient(int e) {
    return e == EINTR || e == EAGAIN;
}

/* 10, 40, 160 ms: long enough for a controller reset, short enough to notice a stop. */
static void back_off(uint32_t tries) {
    int64_t ms = 10;
    for (uint32_t i = 1; i < tries; i++) {
        ms *= 4;
    }
    nanosleep(&(struct timespec){.tv_nsec = (long)(ms * 1000000)}, NULL);
}

static enum status
read_error(struct error *err, const struct pipeline *p, const struct read_slot *slot, int e) {
    enum status s = error_set(
        err, STATUS_IO,
        "%s: cannot read %" PRIu64 " bytes at offset %" PRIu64 " after %d tries: %s",
        dataset_shard_path(p->dataset, slot->sample.shard), (uint64_t)slot->sample.image_span_bytes,
        slot->sample.image_offset, READ_TRIES, strerror(e));
    if (err != NULL) {
        err->os_errno = e;
    }
    return s;
}

static enum status
short_file_error(struct error *err, const struct pipeline *p, const struct read_slot *slot) {
    return error_set(err, STATUS_CORRUPT,
                     "%s: the file ends at offset %" PRIu64 ", sample %" PRIu64
                     " needs it up to %" PRIu64 ": the shard was cut or replaced",
                     dataset_shard_path(p->dataset, slot->sample.shard),
                     slot->sample.image_offset + slot->done_bytes, slot->sample.sample_id,
                     slot->sample.image_offset + slot->sample.image_span_bytes);
}

enum status reader_load(struct pipeline *p, struct read_slot *slot, struct error *err) {
    TRY(shard_files_acquire(p->files, &slot->fd, slot->sample.shard, err));
    enum status s = STATUS_OK;
    uint32_t tries = 0;
    slot->done_bytes = 0;
    while (s == STATUS_OK && slot->done_bytes < slot->sample.image_span_bytes) {
        ssize_t got = pread(slot->fd, slot->buffer + slot->done_bytes,
                            slot->sample.image_span_bytes - slot->done_bytes,
                            (off_t)(slot->sample.image_offset + slot->done_bytes));
        if (got > 0) {
            slot->done_bytes += (size_t)got;
        } else if (got == 0) {
            s = short_file_error(err, p, slot);
        } else if (errno != EINTR) {
            int e = errno;
            if (++tries >= READ_TRIES) {
                s = read_error(err, p, slot, e);
            } else {
                back_off(tries);
            }
        }
    }
    shard_files_release(p->files, slot->sample.shard);
    return s;
}

/* Asks the engine for what is still missing. */
static void submit_rest(struct reader *r, uint32_t id) {
    struct read_slot *slot = &r->p->read_slots[id];
    struct read_request request = {
        .fd = slot->fd,
        .slot = id,
        .buffer = slot->buffer + slot->done_bytes,
        .size_bytes = slot->sample.image_span_bytes - slot->done_bytes,
        .offset = slot->sample.image_offset + slot->done_bytes,
    };
    r->p->engine->submit(r->engine, &request);
    r->in_flight++;
}

static enum status start_read(struct reader *r, uint32_t id, struct error *err) {
    struct read_slot *slot = &r->p->read_slots[id];
    TRY(dataset_sample_at(r->p->dataset, slot->position, &slot->sample, err));
    slot->tries = 0;
    slot->done_bytes = 0;
    TRY(shard_files_acquire(r->p->files, &slot->fd, slot->sample.shard, err));
    submit_rest(r, id);
    return STATUS_OK;
}

static enum status
finish_read(struct reader *r, const struct read_completion *c, struct error *err) {
    struct read_slot *slot = &r->p->read_slots[c->slot];
    r->in_flight--;
    enum status s = STATUS_OK;
    if (c->result < 0 && is_transient(-c->result)) {
        submit_rest(r, c->slot);
        return STATUS_OK;
    }
    if (c->result < 0) {
        if (++slot->tries < READ_TRIES) {
            r->retried_count++;
            back_off(slot->tries);
            submit_rest(r, c->slot);
            return STATUS_OK;
        }
        s = read_error(err, r->p, slot, -c->result);
    } else if (c->result == 0) {
        s = short_file_error(err, r->p, slot);
    } else {
        slot->done_bytes += (size_t)c->result;
        if (slot->done_bytes < slot->sample.image_span_bytes) {
            submit_rest(r, c->slot);
            return STATUS_OK;
        }
        r->done[r->done_count++] = c->slot;
        r->done_bytes += slot->done_bytes;
    }
    shard_files_release(r->p->files, slot->sample.shard);
    return s;
}

/* One round: claim, start, wait for some, pass on. */
static enum status reader_round(struct reader *r, struct error *err) {
    struct pipeline *p = r->p;
    uint32_t claimed[LOADER_MAX_READ_DEPTH];
    uint32_t n = pipeline_claim(p, claimed, p->reader_depth - r->in_flight, r->in_flight == 0);
    int64_t begin_ns = clock_now_ns();
    r->done_count = 0;
    r->done_bytes = 0;
    r->retried_count = 0;
    for (uint32_t i = 0; i < n; i++) {
        TRY(start_read(r, claimed[i], err));
    }
    if (r->in_flight > 0) {
        struct read_completion completions[LOADER_MAX_READ_DEPTH];
        uint32_t got = p->engine->reap(r->engine, completions, LOADER_MAX_READ_DEPTH);
        for (uint32_t i = 0; i < got; i++) {
            TRY(finish_read(r, &completions[i], err));
        }
    }
    pipeline_read_done(p, r->done, r->done_count, r->done_bytes, clock_now_ns() - begin_ns,
                       r->retried_count);
    return STATUS_OK;
}

void reader_run(struct pipeline *p, struct read_engine *engine) {
    struct reader r = {.p = p, .engine = engine};
    struct error err = {0};
    while (!pipeline_is_over(p)) {
        enum status s = reader_round(&r, &err);
        if (s < STATUS_OK) {
            pipeline_fail(p, s, &err);
        }
    }
}
