/*
 * reader: a reading thread. It claims samples in order, starts their reads, and passes complete
 * images to the decoders. Requests of many batches are in flight at once; short reads are
 * continued, errors are retried a few times, and a persistent error ends the run with the name of
 * the shard and the offset.
 *
 * Samples that were claimed together and lie next to each other in a shard, as they do in
 * sequential and block order, become one request: each image goes to its own buffer, and the few
 * bytes between two images to memory that is never read.
 *
 *   file       .. image 7 | head of 8 | image 8 | head of 9 | image 9 ..
 *   parts         slot a    junk        slot b    junk        slot c
 *
 * With O_DIRECT, offset, size and memory are multiples of READ_DIRECT_ALIGN_BYTES: a request is one
 * image with a margin before and after it, so the image begins inside its buffer.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/base/clock.h"
#include "loader/pipeline_internal.h"
#include "loader/remote/remote_internal.h"

/* ---- the plan: walks the order ahead of a reading thread and has the pieces of remote shards
 * fetched into the cache before they are needed. The order is arithmetic, so this costs a look-up
 * for each sample. ---- */

enum {
    PLAN_MAX_PIECES = 64,       /* fetched and not used yet */
    PLAN_MAX_SAMPLES = 1 << 16, /* walked ahead */
    PLAN_RECENT = 1 << 12,
};

struct plan {
    const struct pipeline *p;
    uint64_t step; /* of the batch after `batch` */
    struct sampler_batch batch;
    uint32_t index;
    uint64_t walked_count;
    uint64_t uses[PLAN_MAX_PIECES]; /* a ring: the samples for which pieces were planned */
    uint32_t use_first, use_count;
    struct { /* pieces of the last samples, by hash */
        const struct remote_object *object;
        uint64_t number, seen;
    } recent[PLAN_RECENT];
};

enum { WALK_AT_ONCE = 1024 };

/* Begins at the batch that is claimed next. */
static void plan_init(struct plan *plan, const struct pipeline *p) {
    memset(plan, 0, sizeof *plan);
    plan->p = p;
    plan->step = p->claim_step;
}

static bool next_place(struct plan *plan, struct sampler_place *out) {
    const struct sampler *sampler = &plan->p->sampler;
    while (plan->index == plan->batch.count) {
        if (sampler_batch_at(sampler, plan->step, &plan->batch) != STATUS_OK) {
            plan->batch.count = plan->index = 0;
            return false;
        }
        plan->step++;
        plan->index = 0;
    }
    *out = sampler_place_at(sampler, &plan->batch, plan->index++);
    plan->walked_count++;
    return true;
}

/* Whether samples shortly before needed the same piece. */
static bool is_recent(struct plan *plan, const struct remote_object *o, uint64_t number) {
    const size_t i = ((uintptr_t)o / 64 + number) % PLAN_RECENT;
    const bool recent = plan->recent[i].object == o && plan->recent[i].number == number &&
                        plan->walked_count - plan->recent[i].seen < PLAN_MAX_SAMPLES / 2;
    plan->recent[i].object = o;
    plan->recent[i].number = number;
    plan->recent[i].seen = plan->walked_count;
    return recent;
}

static void plan_sample(struct plan *plan, const struct source_sample *s) {
    struct remote_object *o = shard_files_remote(plan->p->files, s->shard);
    if (o == NULL) {
        return;
    }
    const uint64_t first = s->sample.image_offset / REMOTE_PIECE_BYTES;
    const uint64_t last =
        (s->sample.image_offset + s->sample.image_span_bytes - 1) / REMOTE_PIECE_BYTES;
    bool planned = false;
    for (uint64_t number = first; number <= last; number++) {
        planned =
            (!is_recent(plan, o, number) && remote_object_plan(o, number * REMOTE_PIECE_BYTES)) ||
            planned;
    }
    if (planned) {
        plan->uses[(plan->use_first + plan->use_count++) % PLAN_MAX_PIECES] = plan->walked_count;
    }
}

/* Goes on, when so many samples were claimed since the beginning. */
static void plan_ahead(struct plan *plan, uint64_t claimed_count) {
    const uint32_t limit = remote_plan_limit(PLAN_MAX_PIECES);
    struct sampler_place place;
    while (plan->use_count > 0 && plan->uses[plan->use_first] <= claimed_count) {
        plan->use_first = (plan->use_first + 1) % PLAN_MAX_PIECES;
        plan->use_count--;
    }
    for (int i = 0;
         i < WALK_AT_ONCE && plan->use_count < limit &&
         plan->walked_count < claimed_count + PLAN_MAX_SAMPLES && next_place(plan, &place);
         i++) {
        struct source_sample s;
        if (sources_sample_at(plan->p->sources, place.source, place.ordinal, &s, NULL) ==
            STATUS_OK) {
            plan_sample(plan, &s);
        }
    }
}

enum {
    GROUP_MAX_SLOTS = (READ_MAX_PARTS + 1) / 2,
    GROUP_MAX_BYTES = 4 << 20,
    GROUP_MAX_GAP_BYTES = 16 << 10,
};

/* One request: neighbouring images. */
struct group {
    uint32_t slots[GROUP_MAX_SLOTS];
    uint32_t slot_count;
    uint32_t shard;
    int fd;
    uint32_t tries;
    uint64_t offset;   /* of the next missing byte */
    size_t need_bytes; /* that are missing */
    uint32_t part_first, part_count;
    struct iovec parts[READ_MAX_PARTS];
};

struct reader {
    struct pipeline *p;
    struct read_engine *engine;
    struct group *groups;  /* (depth) */
    uint32_t *free_groups; /* (depth) a stack */
    uint32_t depth;
    uint32_t free_count;
    uint8_t *junk; /* GROUP_MAX_GAP_BYTES */
    struct read_done done;
    struct plan *plan; /* NULL: nothing is cached */
    uint64_t claimed_count;
};

/* --- groups --- */

static void start_group(struct group *g, const struct pipeline *p, uint32_t id) {
    struct read_slot *slot = &p->read_slots[id];
    const struct dataset_sample *s = &slot->source.sample;
    size_t lead = p->opt.direct ? (size_t)(s->image_offset % READ_DIRECT_ALIGN_BYTES) : 0;
    size_t size = lead + s->image_span_bytes;
    slot->data = slot->buffer + lead;
    g->slots[0] = id;
    g->slot_count = 1;
    g->shard = slot->source.shard;
    g->tries = 0;
    g->offset = s->image_offset - lead;
    g->need_bytes = size;
    if (p->opt.direct) {
        size = (size + READ_DIRECT_ALIGN_BYTES - 1) / READ_DIRECT_ALIGN_BYTES *
               READ_DIRECT_ALIGN_BYTES;
    }
    g->part_first = 0;
    g->part_count = 1;
    g->parts[0] = (struct iovec){slot->buffer, size};
}

/* Adds the image to the request if it lies shortly after its end. */
static bool join_group(struct group *g, const struct pipeline *p, uint8_t *junk, uint32_t id) {
    struct read_slot *slot = &p->read_slots[id];
    const struct dataset_sample *s = &slot->source.sample;
    uint64_t end = g->offset + g->need_bytes;
    if (p->opt.direct || g->slot_count == GROUP_MAX_SLOTS || slot->source.shard != g->shard ||
        s->image_offset < end || s->image_offset - end > GROUP_MAX_GAP_BYTES ||
        s->image_offset - g->offset + s->image_span_bytes > GROUP_MAX_BYTES) {
        return false;
    }
    size_t gap = (size_t)(s->image_offset - end);
    if (gap > 0) {
        g->parts[g->part_count++] = (struct iovec){junk, gap};
    }
    slot->data = slot->buffer;
    g->parts[g->part_count++] = (struct iovec){slot->buffer, s->image_span_bytes};
    g->slots[g->slot_count++] = id;
    g->need_bytes += gap + s->image_span_bytes;
    return true;
}

/* --- the result of a read --- */

/* 10, 40, 160 ms: long enough for a controller reset, short enough to stop soon. */
static void back_off(uint32_t tries) {
    int64_t ms = 10;
    for (uint32_t i = 1; i < tries; i++) {
        ms *= 4;
    }
    nanosleep(&(struct timespec){.tv_nsec = (long)(ms * 1000000)}, NULL);
}

static enum status
read_error(struct error *err, const struct pipeline *p, const struct group *g, int e) {
    return error_set(err, STATUS_IO,
                     "%s: cannot read %zu bytes at offset %" PRIu64 " after %d tries: %s",
                     sources_shard_path(p->sources, g->shard), g->need_bytes, g->offset, READ_TRIES,
                     strerror(e));
}

static enum status
short_file_error(struct error *err, const struct pipeline *p, const struct group *g) {
    return error_set(err, STATUS_CORRUPT,
                     "%s: the file ends at offset %" PRIu64 ", sample %" PRIu64
                     " needs it up to %" PRIu64 ": the shard was truncated or replaced",
                     sources_shard_path(p->sources, g->shard), g->offset,
                     p->read_slots[g->slots[g->slot_count - 1]].source.sample.sample_id,
                     g->offset + g->need_bytes);
}

static void advance(struct group *g, size_t got) {
    g->offset += got;
    g->need_bytes -= got;
    while (got > 0) {
        struct iovec *part = &g->parts[g->part_first];
        size_t step = got < part->iov_len ? got : part->iov_len;
        part->iov_base = (uint8_t *)part->iov_base + step;
        part->iov_len -= step;
        got -= step;
        g->part_first += part->iov_len == 0;
    }
}

/* Handles the result of one read. Returns OK when the group is complete, AGAIN when the rest must
 * be requested, or the failure. */
static enum status take_result(struct pipeline *p,
                               struct group *g,
                               int64_t result,
                               uint32_t *retried_count,
                               struct error *err) {
    if (result == -EINTR || result == -EAGAIN) {
        return STATUS_AGAIN;
    }
    if (result < 0) {
        RETURN_IF(++g->tries >= READ_TRIES, read_error(err, p, g, (int)-result));
        ++*retried_count;
        back_off(g->tries);
        return STATUS_AGAIN;
    }
    size_t got = (size_t)result;
    if (got >= g->need_bytes) {
        g->need_bytes = 0;
        return STATUS_OK;
    }
    if (p->opt.direct) {
        /* Continues at an aligned offset; less than one block is the end of the file. */
        got = got / READ_DIRECT_ALIGN_BYTES * READ_DIRECT_ALIGN_BYTES;
    }
    RETURN_IF(got == 0, short_file_error(err, p, g));
    advance(g, got);
    return STATUS_AGAIN;
}

/* Shards on network disks may be missing for a moment; a replaced shard stays replaced. */
static enum status open_shard(struct pipeline *p, struct group *g, struct error *err) {
    for (uint32_t tries = 1;; tries++) {
        struct error why = {0};
        enum status s = shard_files_acquire(p->files, &g->fd, g->shard, &why);
        if (s == STATUS_OK || tries >= READ_TRIES || (s != STATUS_NOTFOUND && s != STATUS_IO)) {
            return s < STATUS_OK ? error_pass(err, s, &why) : s;
        }
        back_off(tries);
    }
}

static enum status
load_remote(struct pipeline *p, struct group *g, struct remote_object *remote, struct error *err) {
    size_t got = 0;
    TRY(remote_object_pread(remote, g->parts[0].iov_base, &got, g->need_bytes, g->offset, err));
    return got == g->need_bytes ? STATUS_OK : short_file_error(err, p, g);
}

enum status reader_load(struct pipeline *p, struct read_slot *slot, struct error *err) {
    struct group g;
    uint32_t retried_count = 0;
    start_group(&g, p, (uint32_t)(slot - p->read_slots));
    TRY(open_shard(p, &g, err));
    enum status s = STATUS_AGAIN;
    struct remote_object *remote = shard_files_remote(p->files, g.shard);
    if (remote != NULL) {
        s = load_remote(p, &g, remote, err);
    }
    while (s == STATUS_AGAIN) {
        ssize_t got = preadv(g.fd, g.parts + g.part_first, (int)(g.part_count - g.part_first),
                             (off_t)g.offset);
        s = take_result(p, &g, got < 0 ? -errno : got, &retried_count, err);
    }
    shard_files_release(p->files, g.shard);
    return s;
}

/* --- the thread --- */

static void submit(struct reader *r, uint32_t id) {
    const struct group *g = &r->groups[id];
    struct read_request request = {
        .fd = g->fd,
        .remote = shard_files_remote(r->p->files, g->shard),
        .slot = id,
        .offset = g->offset,
        .parts = g->parts + g->part_first,
        .part_count = g->part_count - g->part_first,
    };
    r->p->engine->submit(r->engine, &request);
    r->done.requests_count++;
}

/* Looks up where the samples are stored and starts requests for them. */
static enum status
start_reads(struct reader *r, const uint32_t *claimed, uint32_t count, struct error *err) {
    struct pipeline *p = r->p;
    uint32_t i = 0;
    while (i < count) {
        struct group *g = NULL;
        for (; i < count; i++) {
            struct read_slot *slot = &p->read_slots[claimed[i]];
            slot->why = (struct error){0};
            enum status s = sources_sample_at(p->sources, slot->place.source, slot->place.ordinal,
                                              &slot->source, &slot->why);
            slot->damaged = s < STATUS_OK;
            if (slot->damaged || !pipeline_reads_images(p)) {
                r->done.ids[r->done.count++] = claimed[i];
            } else if (g == NULL) {
                g = &r->groups[r->free_groups[--r->free_count]];
                start_group(g, p, claimed[i]);
            } else if (!join_group(g, p, r->junk, claimed[i])) {
                break;
            }
        }
        if (g != NULL) {
            TRY(open_shard(p, g, err));
            submit(r, (uint32_t)(g - r->groups));
        }
    }
    return STATUS_OK;
}

static enum status
finish_read(struct reader *r, const struct read_completion *c, struct error *err) {
    struct group *g = &r->groups[c->slot];
    r->done.bytes += c->result > 0 ? (uint64_t)c->result : 0;
    r->done.retried_count += c->retried_count;
    if (c->failure != NULL) {
        shard_files_release(r->p->files, g->shard);
        *err = *c->failure;
        return err->status;
    }
    enum status s = take_result(r->p, g, c->result, &r->done.retried_count, err);
    if (s == STATUS_AGAIN) {
        submit(r, c->slot);
        return STATUS_OK;
    }
    shard_files_release(r->p->files, g->shard);
    if (s == STATUS_OK) {
        for (uint32_t i = 0; i < g->slot_count; i++) {
            r->done.ids[r->done.count++] = g->slots[i];
        }
        r->free_groups[r->free_count++] = c->slot;
    }
    return s;
}

/* One round: claims samples, starts reads, waits for some, passes them on. */
static enum status reader_round(struct reader *r, struct error *err) {
    struct pipeline *p = r->p;
    uint32_t claimed[LOADER_MAX_READ_DEPTH];
    uint32_t n = pipeline_claim(p, claimed, r->free_count, r->free_count == r->depth);
    int64_t begin_ns = clock_now_ns();
    r->done.count = 0;
    r->done.bytes = 0;
    r->done.requests_count = 0;
    r->done.retried_count = 0;
    TRY(start_reads(r, claimed, n, err));
    r->claimed_count += n;
    if (r->plan != NULL) {
        plan_ahead(r->plan, r->claimed_count);
    }
    if (r->free_count < r->depth) {
        struct read_completion completions[LOADER_MAX_READ_DEPTH];
        uint32_t got = p->engine->reap(r->engine, completions, LOADER_MAX_READ_DEPTH);
        for (uint32_t i = 0; i < got; i++) {
            TRY(finish_read(r, &completions[i], err));
        }
    }
    r->done.busy_ns = clock_now_ns() - begin_ns;
    pipeline_read_done(p, &r->done);
    return STATUS_OK;
}

void reader_run(struct reader *r) {
    struct error err = {0};
    while (!pipeline_is_over(r->p)) {
        enum status s = reader_round(r, &err);
        if (s < STATUS_OK) {
            pipeline_fail(r->p, s, &err);
        }
    }
}

/* --- life --- */

enum status reader_create(struct reader **out, struct pipeline *p, struct error *err) {
    *out = NULL;
    struct reader *r = calloc(1, sizeof(*r));
    if (r != NULL) {
        r->p = p;
        r->depth = p->reader_depth;
        r->groups = calloc(r->depth, sizeof(*r->groups));
        r->free_groups = calloc(r->depth, sizeof(*r->free_groups));
        r->junk = malloc(GROUP_MAX_GAP_BYTES);
    }
    const bool planned =
        remote_plan_limit(1) > 0 && p->engine == read_engine_remote() && pipeline_reads_images(p);
    if (r != NULL && planned) {
        r->plan = malloc(sizeof *r->plan);
    }
    if (r == NULL || r->groups == NULL || r->free_groups == NULL || r->junk == NULL ||
        (planned && r->plan == NULL)) {
        reader_destroy(r);
        return error_set(err, STATUS_NOMEM, "out of memory for a reading thread");
    }
    *out = r;
    return STATUS_OK;
}

enum status reader_start(struct reader *r, struct error *err) {
    r->free_count = r->depth;
    for (uint32_t i = 0; i < r->depth; i++) {
        r->free_groups[i] = i;
    }
    r->claimed_count = 0;
    if (r->plan != NULL) {
        plan_init(r->plan, r->p);
    }
    return r->p->engine->create(&r->engine, r->depth, err);
}

bool reader_stop(struct reader *r, int64_t timeout_ms) {
    bool quiet = r->engine == NULL || r->p->engine->destroy(r->engine, timeout_ms);
    r->engine = NULL;
    return quiet;
}

void reader_destroy(struct reader *r) {
    if (r != NULL) {
        free(r->groups);
        free(r->free_groups);
        free(r->junk);
        free(r->plan);
        free(r);
    }
}
