/*
 * The packer's threads: one reads, `jobs` check and build, the caller's commits in order. They hand
 * rows over in a ring of slots; a row's number modulo the ring's size is its slot.
 *
 *     committed <= claimed <= read <= committed + slots
 *
 * A wake-up costs about as much as a tenth of an image's decode, so threads are woken and locks
 * taken for batches of rows, not for single ones. Only rows of a pipe, which may be silent at any
 * time, are handed over one by one. The reader sleeps until half of the ring is free, the caller
 * until a quarter of it is built or no more rows can come, and then commits all that are built.
 *
 * The bytes of the rows in the ring are taken from the run's budget (budget_internal.h).
 *
 * Shutdown: `stop` is set and all threads woken; the reader and the workers leave at their next
 * check, are joined, and the slots are freed.
 */
#include "pack/run/ring_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/clock.h"
#include "net/location.h"
#include "pack/run/identity_internal.h"
#include "pack/run/worker_internal.h"

enum { WAIT_MS = 100, SLOTS_PER_JOB = 64 };

/* A batch is full with so many rows, or bytes of them. */
enum { BATCH_ROWS = 16, BATCH_BYTES = 256 << 10 };

struct slot {
    struct pack_item item; /* owned by the thread whose turn it is */
    bool built;            /* guarded by the ring's mutex, as the next */
    uint64_t bytes;        /* taken from the budget */
};

struct ring {
    const struct pack_options *opt;
    struct pack_plan *plan;
    struct pack_budget budget;
    /* the reader's own: rows up to `filled` are in the ring, of which those from `read` on, with
     * `batch_bytes`, wait for their batch to fill; slots up to `free_end` may be filled */
    uint64_t filled, batch_bytes, free_end;
    bool live;        /* the source may be silent: no batches */
    uint64_t *starts; /* of each source among the bytes of all; one more than sources; NULL: the
                       * size of a source is not known */

    pthread_mutex_t mutex;
    pthread_cond_t room, work, built; /* what the reader, the workers and the caller wait for */
    struct slot *slots;
    size_t slot_count;
    /* guarded by mutex */
    uint64_t read, claimed, committed;
    uint64_t wanted;  /* the caller sleeps until all rows before this one are built; 0: awake */
    uint32_t idle;    /* workers that wait */
    uint32_t starved; /* threads that wait for the budget */
    struct source_ignored ignored; /* of the sources that are read */
    bool reader_done, stop;
    enum status reader_status;
    struct error reader_error;
};

struct worker_thread {
    pthread_t thread;
    bool started;
    struct ring *ring;
    struct pack_worker *worker;
};

/* The number of built rows from the first uncommitted one on. */
static uint64_t count_built(const struct ring *r) {
    uint64_t row = r->committed;
    while (row < r->read && r->slots[row % r->slot_count].built) {
        row++;
    }
    return row - r->committed;
}

/* Whether the caller sleeps although it has enough to do, or another thread waits for memory. */
static bool must_wake_caller(const struct ring *r) {
    if (r->wanted == 0) {
        return false;
    }
    uint64_t built = count_built(r);
    uint64_t end = r->committed + built;
    return end >= r->wanted || (r->starved > 0 && built > 0) || (r->reader_done && end == r->read);
}

/* Takes bytes for a row from the budget. Requires the mutex, which it releases while it waits. */
static void take_memory(struct ring *r, uint64_t row, uint64_t bytes) {
    if (!pack_budget_try_row(&r->budget, row, bytes)) {
        r->starved++;
        if (must_wake_caller(r)) {
            pthread_cond_signal(&r->built);
        }
        if (r->idle > 0) { /* some of the rows before it may just have been handed over */
            pthread_cond_signal(&r->work);
        }
        pthread_mutex_unlock(&r->mutex);
        pack_budget_wait_row(&r->budget, row, bytes);
        pthread_mutex_lock(&r->mutex);
        r->starved--;
    }
    r->slots[row % r->slot_count].bytes += bytes;
}

/* ---- reading ---- */

/* Hands the rows of the batch to the workers. */
static void hand_over(struct ring *r) {
    pthread_mutex_lock(&r->mutex);
    while (r->read < r->filled) {
        struct slot *slot = &r->slots[r->read % r->slot_count];
        uint64_t bytes = slot->bytes;
        slot->bytes = 0;
        take_memory(r, r->read, bytes);
        r->read++;
    }
    r->batch_bytes = 0;
    if (r->idle > 0) {
        pthread_cond_signal(&r->work);
    }
    pthread_mutex_unlock(&r->mutex);
}

/* The slot for the next row; NULL when the run ends. */
static struct slot *wait_for_slot(struct ring *r) {
    if (r->filled == r->free_end) {
        hand_over(r);
        pthread_mutex_lock(&r->mutex);
        bool full = r->read - r->committed == r->slot_count;
        while (!r->stop && full) {
            pthread_cond_wait(&r->room, &r->mutex);
            full = r->read - r->committed > r->slot_count / 2;
        }
        bool stop = r->stop;
        r->free_end = r->committed + r->slot_count;
        pthread_mutex_unlock(&r->mutex);
        if (stop) {
            return NULL;
        }
    }
    return &r->slots[r->filled % r->slot_count];
}

/* Adds the row that was just read to the batch. */
static void add_to_batch(struct ring *r, struct slot *slot) {
    const struct source_row *row = &slot->item.row;
    uint64_t bytes = (uint64_t)row->image.size_bytes + row->text.size_bytes + row->json.size_bytes;
    if (row->image.capacity_bytes > PACK_KEPT_BYTES) {
        bytes += row->image.capacity_bytes - row->image.size_bytes;
    }
    slot->built = false;
    slot->bytes = bytes;
    r->filled++;
    r->batch_bytes += bytes;
    if (r->live || r->filled % BATCH_ROWS == 0 || r->batch_bytes >= BATCH_BYTES) {
        hand_over(r);
    }
}

static void fill_item(struct ring *r, struct pack_item *item, struct source *s, uint64_t base) {
    uint64_t size_bytes;
    const struct pack_classes *classes = &r->plan->classes;
    source_position(s, &item->position_bytes, &size_bytes);
    item->id = r->opt->ids == PACK_IDS_KEY ? item->row.number : base + item->row.row;
    item->label = pack_classes_label(classes, item->row.class_index);
    item->class_count = classes->count; /* only this thread changes it */
    item->ignored = r->ignored;         /* likewise */
    item->content = source_content(s);
    item->place = source_place(s);
}

static enum status
read_rows(struct ring *r, struct source *s, size_t index, uint64_t base, struct error *err) {
    const struct pack_point *end = &r->plan->end;
    uint64_t limit = index == end->source ? end->row : UINT64_MAX;
    enum status status = pack_classes_open_source(&r->plan->classes, s, err);
    pack_plan_columns(r->plan, index, source_columns(s));
    while (status == STATUS_OK && source_rows_read(s) < limit) {
        struct slot *slot = wait_for_slot(r);
        if (!slot) {
            return STATUS_INTERRUPTED;
        }
        slot->item.source = index;
        status = source_next(s, &slot->item.row, err);
        if (status == STATUS_OK) {
            fill_item(r, &slot->item, s, base);
            add_to_batch(r, slot);
        }
    }
    return status == STATUS_END ? pack_plan_note(r->plan, index, source_note(s), err) : status;
}

/* Not a file or folder, such as standard input: its rows are handed over one by one, because the
 * next one may be long in coming. */
static bool is_live(const char *path) {
    struct stat info;
    return strcmp(path, "-") == 0 ||
           (stat(path, &info) != 0 ? !location_is_remote(path)
                                   : !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode));
}

static enum status
read_source(struct ring *r, size_t index, uint64_t base, uint64_t *rows, struct error *err) {
    TRY(pack_identity_sample(&r->plan->sources[index], r->opt->sources[index], err));
    TRY(pack_identity_check_file(r->plan, index, err));
    struct source *s = r->plan->opened;
    r->plan->opened = NULL;
    if (!s) {
        struct source_options how;
        pack_plan_source_options(&how, r->plan);
        TRY(r->plan->open_source(&s, r->opt->sources[index], &how, err));
    }
    r->live = r->opt->fetch || is_live(r->opt->sources[index]);
    enum status status = read_rows(r, s, index, base, err);
    hand_over(r);
    *rows = source_rows_read(s);
    pthread_mutex_lock(&r->mutex);
    const struct source_ignored ignored = source_ignored(s);
    source_ignored_add(&r->ignored, &ignored);
    pthread_mutex_unlock(&r->mutex);
    source_close(s);
    return status;
}

static void *reader_main(void *cookie) {
    struct ring *r = cookie;
    const struct pack_plan *p = r->plan;
    struct error err = {0};
    enum status s = STATUS_OK;
    uint64_t base = pack_plan_base(p, p->point.source);
    for (size_t i = p->point.source; i < r->opt->source_count && s == STATUS_OK; i++) {
        uint64_t rows = 0;
        if (i > p->end.source || (i == p->end.source && p->end.row == 0)) {
            break;
        }
        s = read_source(r, i, base, &rows, &err);
        base += rows;
    }
    pthread_mutex_lock(&r->mutex);
    r->reader_done = true;
    r->reader_status = s;
    r->reader_error = err;
    pthread_cond_broadcast(&r->work);
    pthread_cond_signal(&r->built);
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

/* ---- building ---- */

/* The size of an image that will be loaded from its own file. */
static uint64_t file_bytes(const struct source_row *row) {
    struct stat info;
    if (row->path[0] == '\0' || row->reason != REASON_NONE || stat(row->path, &info) != 0 ||
        !S_ISREG(info.st_mode) || info.st_size <= 0 || info.st_size > SOURCE_MAX_IMAGE_BYTES) {
        return 0;
    }
    return (uint64_t)info.st_size;
}

/* How many rows from `claimed` on one worker takes at once: a batch, or its share of the rows. A
 * row with a file of its own is taken alone, because a row may have to wait for memory, and no row
 * that is built must wait with it. Requires the mutex and a row. */
static uint64_t count_batch(const struct ring *r) {
    uint64_t share = (r->read - r->claimed + r->opt->jobs - 1) / r->opt->jobs;
    uint64_t limit = share < BATCH_ROWS ? share : BATCH_ROWS;
    uint64_t bytes = 0;
    uint64_t count = 0;
    while (count < limit && bytes < BATCH_BYTES) {
        const struct slot *slot = &r->slots[(r->claimed + count) % r->slot_count];
        if (slot->item.row.path[0] != '\0') {
            return count > 0 ? count : 1;
        }
        bytes += slot->bytes;
        count++;
    }
    return count;
}

static void *worker_main(void *cookie) {
    struct worker_thread *t = cookie;
    struct ring *r = t->ring;
    pthread_mutex_lock(&r->mutex);
    for (;;) {
        while (!r->stop && r->claimed == r->read && !r->reader_done) {
            r->idle++;
            pthread_cond_wait(&r->work, &r->mutex);
            r->idle--;
        }
        if (r->stop || r->claimed == r->read) {
            break;
        }
        uint64_t begin = r->claimed;
        uint64_t end = begin + count_batch(r);
        r->claimed = end;
        if (end < r->read && r->idle > 0) {
            pthread_cond_signal(&r->work);
        }
        pthread_mutex_unlock(&r->mutex);
        for (uint64_t row = begin; row < end; row++) {
            struct pack_item *item = &r->slots[row % r->slot_count].item;
            uint64_t bytes = file_bytes(&item->row);
            if (bytes > 0) {
                pthread_mutex_lock(&r->mutex);
                take_memory(r, row, bytes);
                pthread_mutex_unlock(&r->mutex);
            }
            pack_worker_run(t->worker, item);
        }
        pthread_mutex_lock(&r->mutex);
        for (uint64_t row = begin; row < end; row++) {
            r->slots[row % r->slot_count].built = true;
        }
        if (must_wake_caller(r)) {
            pthread_cond_signal(&r->built);
        }
    }
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

/* ---- committing ---- */

static bool interrupted(const struct ring *r) {
    return r->opt->interrupted && r->opt->interrupted(r->opt->cookie);
}

static void tell(const struct ring *r, const struct pack_commit *c) {
    const struct pack_summary *s = c->summary;
    if (r->opt->progress) {
        const struct pack_progress p = {
            .rows = s->rows,
            .samples = s->samples,
            .rejected = s->rejected,
            .resumed = s->resumed,
            .bytes = s->bytes - c->resumed_bytes,
            .done = c->done,
        };
        r->opt->progress(r->opt->cookie, &p);
    }
}

/* The number of rows to commit next, in order; 0 after the last, or when the run is interrupted.
 * Checks every WAIT_MS, because a signal wakes no thread, and then takes the rows there are,
 * because a slow source may leave the ring nearly empty. */
static uint64_t wait_for_built(struct ring *r, const struct pack_commit *c) {
    pthread_mutex_lock(&r->mutex);
    uint64_t count = count_built(r);
    while (count == 0 && !interrupted(r) && !(r->reader_done && r->committed == r->read)) {
        r->wanted = r->committed + (r->starved > 0 ? 1 : r->slot_count / 4);
        clock_wait_ms(&r->built, &r->mutex, WAIT_MS);
        r->wanted = 0;
        pthread_mutex_unlock(&r->mutex);
        tell(r, c); /* what it waits for */
        pthread_mutex_lock(&r->mutex);
        count = count_built(r);
    }
    pthread_mutex_unlock(&r->mutex);
    return count;
}

/* The share of all sources' bytes up to this row; negative when it is not known. */
static double share_done(const struct ring *r, const struct pack_item *item, uint64_t rows) {
    if (r->plan->totals) {
        return r->plan->part_rows > 0 ? (double)rows / (double)r->plan->part_rows : 1;
    }
    if (!r->starts || r->starts[r->opt->source_count] == 0) {
        return -1;
    }
    uint64_t all = r->starts[r->opt->source_count];
    uint64_t at = r->starts[item->source] + item->position_bytes;
    return at < all ? (double)at / (double)all : 1;
}

static enum status
commit_row(struct ring *r, struct pack_commit *c, struct pack_item *item, struct error *err) {
    c->done = share_done(r, item, c->summary->rows + 1);
    TRY(pack_commit_add(c, item, err));
    tell(r, c);
    return STATUS_OK;
}

static void free_slots(struct ring *r, uint64_t count) {
    uint64_t bytes = 0;
    pthread_mutex_lock(&r->mutex);
    for (uint64_t i = 0; i < count; i++) {
        bytes += r->slots[(r->committed + i) % r->slot_count].bytes;
    }
    r->committed += count;
    pack_budget_give_rows(&r->budget, r->committed, bytes);
    if (r->read - r->committed <= r->slot_count / 2) {
        pthread_cond_signal(&r->room);
    }
    pthread_mutex_unlock(&r->mutex);
}

static enum status commit_rows(struct ring *r, struct pack_commit *c, struct error *err) {
    for (;;) {
        uint64_t count = wait_for_built(r, c);
        for (uint64_t i = 0; i < count && !interrupted(r); i++) {
            /* Only this thread moves `committed`. */
            struct pack_item *item = &r->slots[(r->committed + i) % r->slot_count].item;
            TRY(commit_row(r, c, item, err));
            pack_item_trim(item);
        }
        FAIL_IF(interrupted(r), err, STATUS_INTERRUPTED, "stopped on request");
        if (count == 0) {
            return STATUS_OK;
        }
        free_slots(r, count);
    }
}

/* ---- the whole ---- */

static void stop_threads(struct ring *r, struct worker_thread *workers, const pthread_t *reader) {
    atomic_store_explicit(&r->plan->stop, true, memory_order_relaxed);
    pthread_mutex_lock(&r->mutex);
    r->stop = true;
    pthread_cond_signal(&r->room);
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->mutex);
    pack_budget_stop(&r->budget);
    if (reader) {
        pthread_join(*reader, NULL);
    }
    for (uint32_t i = 0; i < r->opt->jobs; i++) {
        if (workers[i].started) {
            pthread_join(workers[i].thread, NULL);
        }
        pack_worker_destroy(workers[i].worker);
    }
}

static enum status
start_worker(struct ring *r, struct worker_thread *t, struct pack_keys *keys, struct error *err) {
    t->ring = r;
    TRY(pack_worker_create(&t->worker, r->opt, &r->budget, keys, r->plan->dedup, err));
    FAIL_IF(pthread_create(&t->thread, NULL, worker_main, t) != 0, err, STATUS_NOMEM,
            "cannot start a thread");
    t->started = true;
    return STATUS_OK;
}

/* Reads, builds and commits until the end or the first failure. */
static enum status run_threads(struct ring *r, struct pack_commit *c, struct error *err) {
    struct worker_thread *workers = calloc(r->opt->jobs, sizeof(*workers));
    TRY_MEMORY(workers, err, "out of memory for threads");
    enum status s = STATUS_OK;
    for (uint32_t i = 0; i < r->opt->jobs && s == STATUS_OK; i++) {
        s = start_worker(r, &workers[i], &c->keys, err);
    }
    pthread_t reader;
    bool reading = false;
    if (s == STATUS_OK) {
        reading = pthread_create(&reader, NULL, reader_main, r) == 0;
        s = reading ? commit_rows(r, c, err)
                    : error_set(err, STATUS_NOMEM, "cannot start a thread");
    }
    stop_threads(r, workers, reading ? &reader : NULL);
    free(workers);
    return s == STATUS_OK && r->reader_status != STATUS_OK
               ? error_pass(err, r->reader_status, &r->reader_error)
               : s;
}

/* Where each source begins among the bytes of all; not when one of them is no file. */
static enum status measure_sources(struct ring *r, struct error *err) {
    size_t count = r->opt->source_count;
    r->starts = calloc(count + 1, sizeof(*r->starts));
    TRY_MEMORY(r->starts, err, "out of memory for rows");
    for (size_t i = 0; i < count; i++) {
        struct stat info;
        if (stat(r->opt->sources[i], &info) != 0 || !S_ISREG(info.st_mode)) {
            free(r->starts);
            r->starts = NULL;
            return STATUS_OK;
        }
        r->starts[i + 1] = r->starts[i] + (uint64_t)info.st_size;
    }
    return STATUS_OK;
}

static enum status open_ring(struct ring *r, struct error *err) {
    r->slot_count = (size_t)SLOTS_PER_JOB * (r->opt->jobs + 1);
    r->slots = calloc(r->slot_count, sizeof(*r->slots));
    TRY_MEMORY(r->slots, err, "out of memory for rows");
    for (size_t i = 0; i < r->slot_count; i++) {
        pack_item_init(&r->slots[i].item);
    }
    return measure_sources(r, err);
}

enum status pack_ring_run(struct pack_commit *c, struct error *err) {
    struct ring r = {.opt = c->opt, .plan = c->plan, .ignored = c->plan->point.ignored};
    pthread_mutex_init(&r.mutex, NULL);
    pthread_cond_init(&r.room, NULL);
    pthread_cond_init(&r.work, NULL);
    pthread_cond_init(&r.built, NULL);
    pack_budget_limit_malloc();
    pack_budget_init(&r.budget, r.opt->jobs);
    enum status s = open_ring(&r, err);
    THEN(s, run_threads(&r, c, err));
    c->summary->ignored = r.ignored;
    if (s == STATUS_OK) {
        c->point.ignored = r.ignored;
    }
    for (size_t i = 0; r.slots && i < r.slot_count; i++) {
        pack_item_fini(&r.slots[i].item);
    }
    free(r.slots);
    free(r.starts);
    pthread_cond_destroy(&r.room);
    pthread_cond_destroy(&r.work);
    pthread_cond_destroy(&r.built);
    pack_budget_fini(&r.budget);
    pthread_mutex_destroy(&r.mutex);
    return s;
}
