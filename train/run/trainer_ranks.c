/*
 * trainer_ranks: what the ranks of a run do together, and what must be the same on all of them.
 *
 * Rank r of W has the pairs [rb, (r + 1)b) of every batch of B, b = B / W. In a step
 *
 *   ids      of all pairs are gathered, with a notice of each rank: where it is, what it asks for
 *   X, T     of all pairs are gathered, so that every rank computes the whole loss, dX and dT
 *   rows     [rb, (r + 1)b) of dX and dT go backward through this rank's towers
 *   gradients are added
 *
 * and everything after that is the same on all ranks. With one rank nothing is copied or sent.
 */
#include "train/run/trainer_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "train/comm/comm_device.h"

/* What a rank sends before a step; followed by the ids of its pairs, and with state by caption by
 * their entries. A multiple of 8 bytes. */
struct rank_notice {
    uint64_t step, epoch, batch; /* equal on all */
    uint64_t stop, save;         /* 1: asked to stop; rank 0: a save is due */
    uint64_t replaced_count;
    double work_s, wait_s; /* of its last step; 0: none */
    uint64_t ids[];
};

enum status trainer_agree(struct trainer *t, enum status own, struct error *err) {
    const enum status s = comm_agree(t->comm, own, err);
    t->failed_together = s != STATUS_OK;
    return s;
}

bool trainer_failed_together(const struct trainer *t) {
    return t->failed_together;
}

enum status trainer_check_batch(const struct trainer_options *o, struct error *err) {
    const uint32_t world = o->comm != NULL ? (uint32_t)comm_world(o->comm) : 1;
    const uint32_t below = o->batch_count / world * world;
    if (below == o->batch_count) {
        return STATUS_OK;
    }
    return below < 2
               ? error_set(err, STATUS_USAGE,
                           "--batch-size %u is less than a pair for each of %u ranks; the "
                           "smallest that they divide is %u",
                           o->batch_count, world, world)
               : error_set(err, STATUS_USAGE,
                           "--batch-size %u is the global batch, and %u ranks do not divide it; "
                           "the nearest that they divide are %u and %u",
                           o->batch_count, world, below, below + world);
}

/* ---- memory ---- */

static size_t notice_bytes(const struct trainer *t) {
    const size_t ids = (t->captions != NULL ? 2 : 1) * trainer_local_count(&t->options);
    return sizeof(struct rank_notice) + ids * sizeof(uint64_t);
}

static struct rank_notice *notice_of(const struct trainer *t, int32_t rank) {
    return (struct rank_notice *)((char *)t->notices + (size_t)rank * notice_bytes(t));
}

enum status trainer_open_ranks(struct trainer *t, struct error *err) {
    t->notices = calloc((size_t)comm_world(t->comm), notice_bytes(t));
    return t->notices != NULL ? STATUS_OK : error_set(err, STATUS_NOMEM, "trainer: out of memory");
}

/* ---- what must be equal ---- */

/* A hash of all parameters if their memory is the host's; else 0. */
static uint64_t hash_of_values(struct trainer *t) {
    uint64_t hashes[2] = {0};
    for (int decayed = 0; decayed < 2 && t->dev->stream == NULL; decayed++) {
        const struct tensor values = params_range(trainer_params(t), PARAM_VALUE, decayed == 1);
        hashes[decayed] = hash64(values.data, tensor_size_bytes(&values));
    }
    return hash64(hashes, sizeof hashes);
}

enum status trainer_check_ranks(struct trainer *t, struct error *err) {
    enum { STEP, DATA, WEIGHTS, COUNT };
    const int32_t world = comm_world(t->comm);
    const uint64_t own[COUNT] = {t->step, t->data.fingerprint, world > 1 ? hash_of_values(t) : 0};
    uint64_t(*all)[COUNT] = calloc((size_t)world, sizeof *all);
    TRY_MEMORY(all != NULL, err, "trainer: out of memory");
    enum status s = comm_gather(t->comm, all, own, sizeof own, err);
    for (int32_t r = 1; r < world && s == STATUS_OK; r++) {
        if (all[r][STEP] != all[0][STEP]) {
            s = error_set(err, STATUS_MISMATCH,
                          "rank %d begins after step %" PRIu64 ", rank 0 after step %" PRIu64
                          ": is %s the same folder on all hosts?",
                          (int)r, all[r][STEP], all[0][STEP], t->options.run);
        } else if (all[r][DATA] != all[0][DATA]) {
            s = error_set(err, STATUS_MISMATCH,
                          "rank %d has dataset %016" PRIx64 ", rank 0 has %016" PRIx64, (int)r,
                          all[r][DATA], all[0][DATA]);
        } else if (all[r][WEIGHTS] != all[0][WEIGHTS]) {
            s = error_set(err, STATUS_MISMATCH, "rank %d begins with other weights than rank 0",
                          (int)r);
        }
    }
    free(all);
    t->failed_together = s == STATUS_MISMATCH;
    return s;
}

/* ---- before a step ---- */

static bool save_is_due(const struct trainer *t) {
    const int64_t second_ns = 1000 * 1000 * 1000;
    return t->options.checkpoint_seconds > 0 &&
           (uint64_t)((clock_now_ns() - t->saved_ns) / second_ns) >= t->options.checkpoint_seconds;
}

static enum status check_notice(struct trainer *t, int32_t rank, struct error *err) {
    const struct rank_notice *first = notice_of(t, 0);
    const struct rank_notice *n = notice_of(t, rank);
    if (n->step == first->step && n->epoch == first->epoch && n->batch == first->batch) {
        return STATUS_OK;
    }
    t->failed_together = true;
    return error_set(err, STATUS_MISMATCH,
                     "rank %d is at step %" PRIu64 ", batch %" PRIu64 " of epoch %" PRIu64
                     "; rank 0 at step %" PRIu64 ", batch %" PRIu64 " of epoch %" PRIu64,
                     (int)rank, n->step, n->batch, n->epoch, first->step, first->batch,
                     first->epoch);
}

/* The slowest rank and the fraction of waiting, of the previous step. */
static void take_times(struct trainer *t, struct step_report *r) {
    double wait_s = 0.0;
    double all_s = 0.0;
    double slowest_s = 0.0;
    for (int32_t i = 0; i < comm_world(t->comm); i++) {
        const struct rank_notice *n = notice_of(t, i);
        wait_s += n->wait_s;
        all_s += n->work_s + n->wait_s;
        if (n->work_s > slowest_s) {
            slowest_s = n->work_s;
            r->slowest_rank = (uint32_t)i;
        }
    }
    if (all_s > 0.0 && slowest_s > 0.0) {
        r->slowest_pairs_per_s = (double)t->options.batch_count / slowest_s;
        r->wait_fraction = wait_s / all_s;
    }
}

enum status trainer_meet(struct trainer *t, struct step_flight *f, struct error *err) {
    const int64_t start_ns = clock_now_ns();
    const int32_t world = comm_world(t->comm);
    const uint32_t count = trainer_local_count(&t->options);
    struct rank_notice *own = notice_of(t, comm_rank(t->comm));
    *own = (struct rank_notice){.step = f->step,
                                .epoch = f->batch.epoch,
                                .batch = f->batch.step,
                                .stop = world > 1 && trainer_stop_asked(t) ? 1 : 0,
                                .save = trainer_is_first(t) && save_is_due(t) ? 1 : 0,
                                .replaced_count = f->batch.replaced_count,
                                .work_s = t->work_s,
                                .wait_s = t->wait_s};
    f->rank_wait_ns = comm_counters(t->comm).wait_ns;
    f->report = (struct step_report){.world = (uint32_t)world};
    f->stop = false;
    f->ids = f->batch.sample_ids;
    if (t->captions != NULL) {
        trainer_find_captions(t, world > 1 ? own->ids + count : f->caption_ids, &f->batch);
    }
    if (world > 1) {
        memcpy(own->ids, f->batch.sample_ids, count * sizeof *own->ids);
        TRY(comm_gather(t->comm, t->notices, own, notice_bytes(t), err));
        f->ids = f->gathered_ids;
        take_times(t, &f->report);
    }
    f->save = notice_of(t, 0)->save != 0;
    for (int32_t i = 0; i < world; i++) {
        const struct rank_notice *n = notice_of(t, i);
        TRY(check_notice(t, i, err));
        f->stop = f->stop || n->stop != 0;
        f->report.replaced_count += (uint32_t)n->replaced_count;
        if (world > 1) {
            memcpy(f->gathered_ids + (size_t)i * count, n->ids, count * sizeof *n->ids);
            if (t->captions != NULL) {
                memcpy(f->caption_ids + (size_t)i * count, n->ids + count, count * sizeof *n->ids);
            }
        }
    }
    f->met_s = (double)(clock_now_ns() - start_ns) * 1e-9;
    return STATUS_OK;
}

/* ---- batch norm ---- */

static enum status
gather_statistics(void *cookie, void *all, const void *own, size_t own_bytes, struct error *err) {
    return comm_gather(cookie, all, own, own_bytes, err);
}

enum status
trainer_bn_group(struct trainer *t, const struct batch_norm_group **out, struct error *err) {
    *out = NULL;
    if (!t->options.sync_bn || comm_world(t->comm) == 1) {
        return STATUS_OK;
    }
    FAIL_IF(t->dev->stream != NULL, err, STATUS_UNSUPPORTED,
            "--sync-bn with several ranks is for --device cpu; without it, batch-norm statistics "
            "cover each rank's micro-batches");
    t->bn_group = (struct batch_norm_group){comm_world(t->comm), gather_statistics, t->comm};
    *out = &t->bn_group;
    return STATUS_OK;
}

/* ---- rows ---- */

/* With two views the first views of all ranks come first in `all`, a rank's first views first in
 * its part. */
enum status trainer_gather_rows(struct trainer *t,
                                struct tensor *x,
                                const struct tensor *all,
                                struct error *err) {
    const int64_t views = trainer_task(&t->options)->rows;
    const int64_t count = x->shape[0] / views;
    if (comm_world(t->comm) == 1) {
        return STATUS_OK;
    }
    for (int64_t view = 0; view < views; view++) {
        const struct tensor own = rows_from(*x, view * count, count);
        const struct tensor to = rows_from(*all, view * count * comm_world(t->comm), count);
        TRY(comm_device_gather(t->comm, t->dev, to.data, own.data, tensor_size_bytes(&own), err));
    }
    *x = *all;
    return STATUS_OK;
}

enum status trainer_gather(struct trainer *t, struct tensor x[2], struct error *err) {
    for (int side = 0; side < trainer_task(&t->options)->sides; side++) {
        TRY(trainer_gather_rows(t, &x[side], &t->x[side], err));
    }
    return STATUS_OK;
}

enum status trainer_own_rows(struct trainer *t,
                             struct tensor *out,
                             const struct tensor *memory,
                             const struct tensor *whole,
                             struct error *err) {
    const struct ops *ops = t->dev->ops;
    const int64_t views = trainer_task(&t->options)->rows;
    const int64_t half = whole->shape[0] / views;
    const int64_t count = half / comm_world(t->comm);
    const int64_t first = comm_rank(t->comm) * count;
    if (views == 1 || comm_world(t->comm) == 1) {
        *out = rows_from(*whole, first, views * count);
        return STATUS_OK;
    }
    *out = *memory;
    TRY(ops->fill(t->dev, &(struct fill){.out = *out}, err));
    for (int64_t view = 0; view < views; view++) {
        const struct add rows = {.out = rows_from(*out, view * count, count),
                                 .in = rows_from(*whole, view * half + first, count),
                                 .alpha = 1.0f};
        TRY(ops->add(t->dev, &rows, err));
    }
    return STATUS_OK;
}

/* ---- gradients ---- */

enum status trainer_sum_range(void *cookie, const struct tensor *range, struct error *err) {
    struct trainer *t = cookie;
    return comm_device_begin_sum(t->comm, t->dev, range->data, range->shape[0], err);
}
