/*
 * pipeline: the shared state of the stages and every transfer of a slot from one owner to the next.
 * All waiting is here; the stages themselves (reader.c, decode.c) hold no lock while they work.
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "formats/base/clock.h"
#include "formats/base/sort.h"
#include "formats/image/image_codec.h"
#include "loader/pipeline_internal.h"

void pipeline_fail(struct pipeline *p, enum status s, const struct error *err) {
    pthread_mutex_lock(&p->lock);
    if (!p->failed) {
        p->failed = true;
        p->failure = err != NULL ? *err : (struct error){0};
        p->failure.status = s;
        pthread_cond_broadcast(&p->for_reader);
        pthread_cond_broadcast(&p->for_decode);
        pthread_cond_broadcast(&p->for_batch);
    }
    pthread_mutex_unlock(&p->lock);
}

void pipeline_stop(struct pipeline *p) {
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->for_reader);
    pthread_cond_broadcast(&p->for_decode);
    pthread_cond_signal(&p->for_record);
    pthread_mutex_unlock(&p->lock);
}

bool pipeline_is_over(struct pipeline *p) {
    pthread_mutex_lock(&p->lock);
    bool over = p->stopping || p->failed;
    pthread_mutex_unlock(&p->lock);
    return over;
}

/* --- readers --- */

static int by_place(const void *a, const void *b) {
    const struct sampler_place *x = &((const struct claim *)a)->place;
    const struct sampler_place *y = &((const struct claim *)b)->place;
    if (x->source != y->source) {
        return x->source < y->source ? -1 : 1;
    }
    return (x->ordinal > y->ordinal) - (x->ordinal < y->ordinal);
}

/* A batch need not be read in the order of its rows: in block order, where it comes from few places
 * of the disk, it is read from the first place to the last. */
static void list_claims(struct pipeline *p, const struct sampler_batch *batch) {
    for (uint32_t i = 0; i < batch->count; i++) {
        p->claims[i] = (struct claim){sampler_place_at(&p->sampler, batch, i), i};
    }
    sort_in_place(p->claims, batch->count, sizeof *p->claims, by_place);
}

/* Starts the next batch, if its slot is free. Empty batches (a rank's share of a small last batch)
 * are ready at once. */
static bool open_next_batch(struct pipeline *p) {
    while (!p->claim_open) {
        struct batch_slot *slot = &p->batch_slots[p->claim_step % p->batch_slot_count];
        if (slot->state != BATCH_FREE ||
            sampler_batch_at(&p->sampler, p->claim_step, &slot->batch) != STATUS_OK) {
            return false;
        }
        p->claim_slot = (uint32_t)(p->claim_step % p->batch_slot_count);
        p->claim_index = 0;
        p->claim_step++;
        slot->remaining_count = slot->batch.count;
        slot->replaced_count = 0;
        slot->state = slot->batch.count > 0 ? BATCH_FILLING : BATCH_READY;
        p->claim_open = slot->batch.count > 0;
        if (!p->claim_open) {
            pthread_cond_signal(&p->for_batch);
        } else if (p->claims != NULL) {
            list_claims(p, &slot->batch);
        }
    }
    return true;
}

static uint32_t claim_now(struct pipeline *p, uint32_t *out, uint32_t max) {
    uint32_t n = 0;
    int64_t now_ns = clock_now_ns();
    while (n < max && p->free_count > 0 && open_next_batch(p)) {
        struct batch_slot *batch = &p->batch_slots[p->claim_slot];
        uint32_t id = p->free_slots[--p->free_count];
        struct read_slot *slot = &p->read_slots[id];
        slot->state = READ_SLOT_READING;
        slot->since_ns = now_ns;
        slot->batch_slot = p->claim_slot;
        if (p->claims != NULL) {
            slot->place = p->claims[p->claim_index].place;
            slot->index = p->claims[p->claim_index].index;
        } else {
            slot->place = sampler_place_at(&p->sampler, &batch->batch, p->claim_index);
            slot->index = p->claim_index;
        }
        if (++p->claim_index == batch->batch.count) {
            p->claim_open = false;
        }
        out[n++] = id;
    }
    return n;
}

uint32_t pipeline_claim(struct pipeline *p, uint32_t *out, uint32_t max, bool may_wait) {
    uint32_t n = 0;
    int64_t begin_ns = clock_now_ns();
    pthread_mutex_lock(&p->lock);
    while (!p->stopping && !p->failed) {
        /* A sleeping reader waits for several free buffers, so that it wakes once for all of
         * them instead of once for each image. */
        if (!may_wait || p->free_count >= p->wake_free_count) {
            n = claim_now(p, out, max);
        }
        if (n > 0 || !may_wait) {
            break;
        }
        pthread_cond_wait(&p->for_reader, &p->lock);
    }
    p->stats.read.wait_ns += clock_now_ns() - begin_ns;
    pthread_mutex_unlock(&p->lock);
    return n;
}

void pipeline_read_done(struct pipeline *p, const struct read_done *done) {
    pthread_mutex_lock(&p->lock);
    int64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; i < done->count; i++) {
        uint32_t id = done->ids[i];
        p->read_slots[id].state = READ_SLOT_READ;
        p->read_slots[id].since_ns = now_ns;
        p->ready_slots[(p->ready_first + p->ready_count++) % p->read_slot_count] = id;
    }
    p->stats.read.items_count += done->count;
    p->stats.read.bytes += done->bytes;
    p->stats.read.busy_ns += done->busy_ns;
    p->stats.requests_count += done->requests_count;
    p->stats.retried_reads_count += done->retried_count;
    if (done->count == 1) {
        pthread_cond_signal(&p->for_decode);
    } else if (done->count > 1) {
        pthread_cond_broadcast(&p->for_decode);
    }
    pthread_mutex_unlock(&p->lock);
}

/* --- decoders --- */

bool pipeline_take_read(struct pipeline *p, uint32_t *id) {
    int64_t begin_ns = clock_now_ns();
    pthread_mutex_lock(&p->lock);
    while (!p->stopping && !p->failed && p->ready_count == 0) {
        pthread_cond_wait(&p->for_decode, &p->lock);
    }
    bool got = !p->stopping && !p->failed;
    int64_t now_ns = clock_now_ns();
    if (got) {
        *id = p->ready_slots[p->ready_first];
        p->ready_first = (p->ready_first + 1) % p->read_slot_count;
        p->ready_count--;
        p->read_slots[*id].state = READ_SLOT_DECODING;
        p->read_slots[*id].since_ns = now_ns;
    }
    p->stats.decode.wait_ns += now_ns - begin_ns;
    pthread_mutex_unlock(&p->lock);
    return got;
}

void pipeline_decode_done(struct pipeline *p,
                          uint32_t id,
                          bool replaced,
                          uint64_t bytes,
                          unsigned ignored) {
    struct read_slot *slot = &p->read_slots[id];
    pthread_mutex_lock(&p->lock);
    p->stats.decode.items_count++;
    p->stats.decode.bytes += bytes;
    p->stats.decode.busy_ns += clock_now_ns() - slot->since_ns;
    p->stats.unturned_count += (ignored & IMAGE_IGNORED_ORIENTATION) != 0;
    p->stats.opaque_count += (ignored & IMAGE_IGNORED_TRANSPARENCY) != 0;
    struct batch_slot *batch = &p->batch_slots[slot->batch_slot];
    batch->replaced_count += replaced;
    if (--batch->remaining_count == 0) {
        batch->state = BATCH_READY;
        pthread_cond_signal(&p->for_batch);
    }
    slot->state = READ_SLOT_FREE;
    p->free_slots[p->free_count++] = id;
    if (p->free_count >= p->wake_free_count) {
        pthread_cond_signal(&p->for_reader);
    }
    pthread_mutex_unlock(&p->lock);
}

/* Requires the lock. Adds the sample to the list; false if it is there. */
static bool list_corrupt(struct pipeline *p, const struct loader_corrupt *row) {
    for (uint32_t i = 0; i < p->corrupt_listed_count; i++) {
        const struct loader_corrupt *old = &p->corrupt_list[i];
        if (old->source == row->source && old->position == row->position) {
            return false;
        }
    }
    p->stats.corrupt_count++;
    if (p->corrupt_listed_count < LOADER_MAX_CORRUPT_LIST) {
        p->corrupt_list[p->corrupt_listed_count++] = *row;
        pthread_cond_signal(&p->for_record);
    }
    return true;
}

enum status pipeline_corrupt(struct pipeline *p,
                             const struct source_sample *sample,
                             const struct error *why,
                             struct error *err) {
    struct loader_corrupt row = {
        .sample_id = sample->sample.sample_id,
        .position = sample->position,
        .source = sample->source,
    };
    snprintf(row.reason, sizeof(row.reason), "%.*s", (int)sizeof(row.reason) - 1, why->text);
    pthread_mutex_lock(&p->lock);
    bool is_new = list_corrupt(p, &row);
    uint64_t count = p->stats.corrupt_count;
    pthread_mutex_unlock(&p->lock);
    char name[64];
    if (row.sample_id == LOADER_NO_SAMPLE) {
        snprintf(name, sizeof(name), "the sample at position %" PRIu64, row.position);
    } else {
        snprintf(name, sizeof(name), "sample %" PRIu64, row.sample_id);
    }
    if (is_new) {
        log_write(p->opt.log, LOG_LEVEL_WARN, "%s of %s: %s", name,
                  p->sources->items[row.source].directory, row.reason);
    }
    FAIL_IF(count > p->opt.max_corrupt_count, err, STATUS_CORRUPT,
            "%" PRIu64 " damaged samples, %" PRIu64 " are allowed; the last one: %s: %s", count,
            p->opt.max_corrupt_count, name, row.reason);
    return STATUS_OK;
}

/* --- the quarantine thread --- */

const struct loader_corrupt *pipeline_next_pending(struct pipeline *p) {
    pthread_mutex_lock(&p->lock);
    /* Decoders list samples until they leave: what they found is written even when the run ends. */
    while (p->quarantined_count == p->corrupt_listed_count &&
           !(p->stopping && p->running_decoders_count == 0)) {
        pthread_cond_wait(&p->for_record, &p->lock);
    }
    bool pending = p->quarantined_count < p->corrupt_listed_count;
    const struct loader_corrupt *row = pending ? &p->corrupt_list[p->quarantined_count] : NULL;
    pthread_mutex_unlock(&p->lock);
    return row;
}

void pipeline_quarantined(struct pipeline *p) {
    pthread_mutex_lock(&p->lock);
    if (++p->quarantined_count == p->corrupt_listed_count) {
        pthread_cond_signal(&p->for_batch); /* the end of the run waits for it */
    }
    pthread_mutex_unlock(&p->lock);
}

/* --- consumer --- */

static struct timespec deadline_in(int64_t ms) {
    int64_t ns = clock_now_ns() + ms * 1000000;
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* Requires the lock. Every batch of the run was acquired. */
static bool is_at_end(const struct pipeline *p) {
    return p->take_step >= p->sampler.steps_total;
}

/* Requires the lock. Names what delays the batch that the consumer waits for: the slot that has
 * been in its state for the longest time. */
static enum status name_stuck_stage(struct pipeline *p, int64_t waited_ms, struct error *err) {
    double waited_s = (double)waited_ms / 1e3;
    FAIL_IF(is_at_end(p), err, STATUS_TIMEOUT,
            "not finished within %.1f s: %u of %u records are not in the quarantine file", waited_s,
            p->corrupt_listed_count - p->quarantined_count, p->corrupt_listed_count);
    const struct read_slot *oldest = NULL;
    uint32_t reading = 0;
    for (uint32_t i = 0; i < p->read_slot_count; i++) {
        const struct read_slot *slot = &p->read_slots[i];
        if (slot->state == READ_SLOT_FREE) {
            continue;
        }
        reading += slot->state == READ_SLOT_READING;
        if (oldest == NULL || slot->since_ns < oldest->since_ns) {
            oldest = slot;
        }
    }
    FAIL_IF(oldest == NULL, err, STATUS_TIMEOUT,
            "no batch within %.1f s: the sampler is stuck (%u of %u batch slots held by "
            "the caller)",
            waited_s, p->held_count, p->batch_slot_count);
    double stuck_s = (double)(clock_now_ns() - oldest->since_ns) / 1e9;
    struct source_sample at;
    (void)sources_sample_at(p->sources, oldest->place.source, oldest->place.ordinal, &at, NULL);
    FAIL_IF(oldest->state == READ_SLOT_READING, err, STATUS_TIMEOUT,
            "no batch within %.1f s: stuck in read, %s at offset %" PRIu64
            " for %.1f s (%u reads in flight)",
            waited_s, sources_shard_path(p->sources, at.shard), at.sample.image_offset, stuck_s,
            reading);
    return error_set(err, STATUS_TIMEOUT,
                     "no batch within %.1f s: stuck in decode, sample %" PRIu64 " %s for %.1f s",
                     waited_s, at.sample.sample_id,
                     oldest->state == READ_SLOT_READ ? "waits" : "is being decoded", stuck_s);
}

/* Requires the lock. The end of the run comes after all records of damaged samples. */
static bool is_ready(const struct pipeline *p, const struct batch_slot *slot) {
    if (is_at_end(p)) {
        return p->quarantine == NULL || p->quarantined_count == p->corrupt_listed_count;
    }
    return slot->state == BATCH_READY && slot->batch.global_step == p->take_step;
}

static enum status
wait_ready(struct pipeline *p, struct batch_slot *slot, int64_t timeout_ms, struct error *err) {
    struct timespec deadline = deadline_in(timeout_ms);
    for (;;) {
        /* A batch may still be completed after a failure that was reported. */
        if (!p->failure_reported && is_ready(p, slot)) {
            return STATUS_OK;
        }
        if (p->failed) {
            p->failure_reported = true;
            return error_pass(err, p->failure.status, &p->failure);
        }
        if (pthread_cond_clockwait(&p->for_batch, &p->lock, CLOCK_MONOTONIC, &deadline) != 0) {
            return name_stuck_stage(p, timeout_ms, err);
        }
    }
}

enum status pipeline_acquire(struct pipeline *p,
                             struct batch_slot **out,
                             int64_t timeout_ms,
                             struct error *err) {
    int64_t begin_ns = clock_now_ns();
    pthread_mutex_lock(&p->lock);
    struct batch_slot *slot = &p->batch_slots[p->take_step % p->batch_slot_count];
    enum status s;
    if (!is_at_end(p) && slot->state == BATCH_HELD) {
        s = error_set(err, STATUS_INVALID,
                      "the batch of epoch %" PRIu64 ", step %" PRIu64
                      " still holds its buffer; release it before requesting another batch (%u of "
                      "%u are held)",
                      slot->batch.epoch, slot->batch.step, p->held_count, p->batch_slot_count);
    } else {
        s = wait_ready(p, slot, timeout_ms, err);
    }
    int64_t waited_ns = clock_now_ns() - begin_ns;
    if (p->stats.first_batch_ns != 0) {
        p->stats.consumer_stall_ns += waited_ns;
    }
    if (s == STATUS_OK && is_at_end(p)) {
        s = STATUS_END;
    } else if (s == STATUS_OK) {
        slot->state = BATCH_HELD;
        p->held_count++;
        p->take_step++;
        if (p->stats.first_batch_ns == 0) {
            p->stats.first_batch_ns = clock_now_ns() - p->start_ns;
        }
        p->stats.deliver.items_count++;
        p->stats.deliver.bytes += slot->batch.count * (p->opt.views * p->image_bytes +
                                                       p->opt.max_tokens * sizeof(int32_t));
        p->stats.samples_count += slot->batch.count;
        p->stats.replaced_count += slot->replaced_count;
        *out = slot;
    }
    pthread_mutex_unlock(&p->lock);
    return s;
}

void pipeline_release(struct pipeline *p, uint32_t slot) {
    pthread_mutex_lock(&p->lock);
    if (slot < p->batch_slot_count && p->batch_slots[slot].state == BATCH_HELD) {
        p->batch_slots[slot].state = BATCH_FREE;
        p->held_count--;
        pthread_cond_broadcast(&p->for_reader);
    }
    pthread_mutex_unlock(&p->lock);
}
