/*
 * The packer's threads: one reads, `jobs` check and build, the caller's commits in order. They hand
 * rows over in a ring of slots; a row's number modulo the ring's size is its slot.
 *
 *     committed <= claimed <= read <= committed + slots
 *
 * Nobody is woken for a single row where it can be helped, because a wake-up costs about as much as
 * a tenth of a picture's decode: the reader sleeps until half of the ring is free, the caller until
 * a quarter of it is built or there is no more to wait for, and takes all that is built at once.
 *
 * Shutdown: `stop` is set and everybody woken; the reader and the workers leave at their next look,
 * are joined, and the slots are freed.
 */
#include "pack/pack.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "pack/pack_internal.h"

enum { WAIT_MS = 100, SLOTS_PER_JOB = 8 };

struct slot {
    struct pack_item item; /* owned by whoever's turn it is */
    bool built;            /* guarded by the ring's mutex */
};

struct ring {
    const struct pack_options *opt;
    struct source *first; /* opened before the directory is touched; NULL once the reader has it */
    uint64_t *rows;       /* committed of each source */
    uint64_t *starts; /* of each source among the bytes of all; one more than sources; NULL: there
                       * is one whose size nobody knows */

    pthread_mutex_t mutex;
    pthread_cond_t room, work, built; /* what the reader, the workers and the caller wait for */
    struct slot *slots;
    size_t slot_count;
    /* guarded by mutex */
    uint64_t read, claimed, committed;
    uint64_t wanted;  /* the caller sleeps until all rows before this one are built; 0: awake */
    uint32_t idle;    /* workers that wait */
    uint64_t ignored; /* of the sources that are read */
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

void pack_options_default(struct pack_options *opt) {
    *opt = (struct pack_options){
        .fs = file_posix(),
        .quality = IMAGE_JPEG_QUALITY_DEFAULT,
        .level = 3,
        .jobs = 1,
        .shard_samples = 10000,
        .shard_size_bytes = (uint64_t)1 << 30,
        .max_bad = {.percent = 10},
        .created_by = "ccpack " CCSTREAM_VERSION,
    };
}

static bool must_stop(void *cookie) {
    struct ring *r = cookie;
    pthread_mutex_lock(&r->mutex);
    bool stop = r->stop;
    pthread_mutex_unlock(&r->mutex);
    return stop || (r->opt->interrupted && r->opt->interrupted(r->opt->cookie));
}

/* ---- reading ----------------------------------------------------------------------------------
 */

/* The slot of the next row, or NULL when the run ends. */
static struct slot *wait_for_slot(struct ring *r) {
    pthread_mutex_lock(&r->mutex);
    bool full = r->read - r->committed == r->slot_count;
    while (!r->stop && full) {
        pthread_cond_wait(&r->room, &r->mutex);
        full = r->read - r->committed > r->slot_count / 2;
    }
    struct slot *slot = r->stop ? NULL : &r->slots[r->read % r->slot_count];
    pthread_mutex_unlock(&r->mutex);
    return slot;
}

/* The row that has just been read may be built. */
static void hand_over(struct ring *r, struct slot *slot) {
    pthread_mutex_lock(&r->mutex);
    slot->built = false;
    r->read++;
    if (r->idle > 0) {
        pthread_cond_signal(&r->work);
    }
    pthread_mutex_unlock(&r->mutex);
}

static enum status
read_source(struct ring *r, size_t index, uint64_t base, uint64_t *rows, struct error *err) {
    struct source *s = r->first;
    r->first = NULL;
    if (!s) {
        struct source_options how = {
            .kind = r->opt->kind, .images = r->opt->images, .stop = must_stop, .stop_cookie = r};
        TRY(source_open(&s, r->opt->sources[index], &how, err));
    }
    enum status status = STATUS_OK;
    while (status == STATUS_OK) {
        struct slot *slot = wait_for_slot(r);
        if (!slot) {
            status = STATUS_INTERRUPTED;
            break;
        }
        struct pack_item *item = &slot->item;
        status = source_next(s, &item->row, err);
        if (status == STATUS_OK) {
            item->source = index;
            uint64_t size_bytes;
            source_position(s, &item->position_bytes, &size_bytes);
            item->id = r->opt->ids == PACK_IDS_KEY ? item->row.number : base + item->row.row;
            hand_over(r, slot);
        }
    }
    *rows = source_rows_read(s);
    pthread_mutex_lock(&r->mutex);
    r->ignored += source_ignored(s);
    pthread_mutex_unlock(&r->mutex);
    source_close(s);
    return status == STATUS_END ? STATUS_OK : status;
}

static void *reader_main(void *cookie) {
    struct ring *r = cookie;
    struct error err = {0};
    enum status s = STATUS_OK;
    uint64_t base = 0;
    for (size_t i = 0; i < r->opt->source_count && s == STATUS_OK; i++) {
        uint64_t rows = 0;
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

/* ---- building ---------------------------------------------------------------------------------
 */

/* How many rows from the first uncommitted one on are built. */
static uint64_t count_built(const struct ring *r) {
    uint64_t row = r->committed;
    while (row < r->read && r->slots[row % r->slot_count].built) {
        row++;
    }
    return row - r->committed;
}

/* Whether the caller sleeps and what it waits for is there. */
static bool must_wake_caller(const struct ring *r) {
    if (r->wanted == 0) {
        return false;
    }
    uint64_t end = r->committed + count_built(r);
    return end >= r->wanted || (r->reader_done && end == r->read);
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
        struct slot *slot = &r->slots[r->claimed++ % r->slot_count];
        pthread_mutex_unlock(&r->mutex);
        pack_worker_run(t->worker, &slot->item);
        pthread_mutex_lock(&r->mutex);
        slot->built = true;
        if (must_wake_caller(r)) {
            pthread_cond_signal(&r->built);
        }
    }
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

/* ---- committing -------------------------------------------------------------------------------
 */

static bool interrupted(const struct ring *r) {
    return r->opt->interrupted && r->opt->interrupted(r->opt->cookie);
}

/* The number of rows to commit next, in order; 0 behind the last, or when the run is interrupted.
 * Looks up every WAIT_MS, because a signal wakes nobody, and takes what there is then, because a
 * slow source may leave the ring nearly empty. */
static uint64_t wait_for_built(struct ring *r) {
    pthread_mutex_lock(&r->mutex);
    uint64_t count = count_built(r);
    while (count == 0 && !interrupted(r) && !(r->reader_done && r->committed == r->read)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += (long)WAIT_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        r->wanted = r->committed + r->slot_count / 4;
        pthread_cond_timedwait(&r->built, &r->mutex, &until);
        r->wanted = 0;
        count = count_built(r);
    }
    pthread_mutex_unlock(&r->mutex);
    return count;
}

/* Share of all the sources' bytes up to this row; negative when it is not known. */
static double share_done(const struct ring *r, const struct pack_item *item) {
    if (!r->starts || r->starts[r->opt->source_count] == 0) {
        return -1;
    }
    uint64_t all = r->starts[r->opt->source_count];
    uint64_t at = r->starts[item->source] + item->position_bytes;
    return at < all ? (double)at / (double)all : 1;
}

static enum status
commit_row(struct ring *r, struct pack_commit *c, struct pack_item *item, struct error *err) {
    r->rows[item->source]++;
    TRY(pack_commit_add(c, item, err));
    if (r->opt->progress) {
        const struct pack_summary *s = c->summary;
        struct pack_progress p = {s->rows, s->samples, s->rejected, s->bytes, share_done(r, item)};
        r->opt->progress(r->opt->cookie, &p);
    }
    return STATUS_OK;
}

static enum status commit_rows(struct ring *r, struct pack_commit *c, struct error *err) {
    for (;;) {
        uint64_t count = wait_for_built(r);
        for (uint64_t i = 0; i < count && !interrupted(r); i++) {
            /* Only this thread moves `committed`. */
            TRY(commit_row(r, c, &r->slots[(r->committed + i) % r->slot_count].item, err));
        }
        if (interrupted(r)) {
            return error_set(err, STATUS_INTERRUPTED, "stopped on request");
        }
        if (count == 0) {
            return STATUS_OK;
        }
        pthread_mutex_lock(&r->mutex);
        r->committed += count;
        if (r->read - r->committed <= r->slot_count / 2) {
            pthread_cond_signal(&r->room);
        }
        pthread_mutex_unlock(&r->mutex);
    }
}

/* ---- the whole --------------------------------------------------------------------------------
 */

static void stop_threads(struct ring *r, struct worker_thread *workers, pthread_t *reader) {
    pthread_mutex_lock(&r->mutex);
    r->stop = true;
    pthread_cond_signal(&r->room);
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->mutex);
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

static enum status start_worker(struct ring *r, struct worker_thread *t, struct error *err) {
    t->ring = r;
    TRY(pack_worker_create(&t->worker, r->opt, err));
    if (pthread_create(&t->thread, NULL, worker_main, t) != 0) {
        return error_set(err, STATUS_NOMEM, "cannot start a thread");
    }
    t->started = true;
    return STATUS_OK;
}

/* Reads, builds and commits until the end or the first failure. */
static enum status run_threads(struct ring *r, struct pack_commit *c, struct error *err) {
    struct worker_thread *workers = calloc(r->opt->jobs, sizeof(*workers));
    if (!workers) {
        return error_set(err, STATUS_NOMEM, "out of memory for threads");
    }
    enum status s = STATUS_OK;
    for (uint32_t i = 0; i < r->opt->jobs && s == STATUS_OK; i++) {
        s = start_worker(r, &workers[i], err);
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
    if (s == STATUS_OK && r->reader_status != STATUS_OK) {
        s = r->reader_status;
        if (err) {
            *err = r->reader_error;
        }
    }
    return s;
}

/* Whether what came before the end of the run is kept, as a dataset where there are samples, and as
 * the list of rejects: it was the input that failed, or somebody who stopped it. */
static bool keeps_rows(enum status s, const struct pack_summary *sum) {
    return sum->rows > 0 && (s == STATUS_CORRUPT || s == STATUS_NOTFOUND || s == STATUS_LIMIT ||
                             s == STATUS_INTERRUPTED);
}

static enum status run(struct ring *r, struct pack_summary *out, struct error *err) {
    struct pack_commit c;
    enum status s = pack_commit_open(&c, r->opt, out, err);
    if (s == STATUS_OK) {
        s = run_threads(r, &c, err);
        if (s == STATUS_OK) {
            s = pack_commit_judge(&c, err);
        }
        if (s == STATUS_OK) {
            s = pack_commit_finish(&c, r->rows, r->opt->source_count, false, err);
        } else if (keeps_rows(s, out)) {
            pack_commit_finish(&c, r->rows, r->opt->source_count, true, NULL);
        }
    }
    out->samples = s == STATUS_OK || out->is_dataset ? out->samples : c.finished_samples;
    out->bytes = c.finished_bytes;
    out->ignored = r->ignored;
    pack_commit_close(&c);
    return s;
}

/* Where each source begins among the bytes of all; nothing when one is no file. */
static enum status measure_sources(struct ring *r, struct error *err) {
    size_t count = r->opt->source_count;
    r->starts = calloc(count + 1, sizeof(*r->starts));
    if (!r->starts) {
        return error_set(err, STATUS_NOMEM, "out of memory for rows");
    }
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

static enum status prepare(struct ring *r, struct error *err) {
    const struct pack_options *o = r->opt;
    for (size_t i = 0; i < o->source_count; i++) {
        enum source_kind kind;
        enum status s = source_kind_of(&kind, o->sources[i], err);
        if (s != STATUS_OK && (o->kind == SOURCE_AUTO || s != STATUS_CORRUPT)) {
            return s;
        }
    }
    r->slot_count = (size_t)SLOTS_PER_JOB * (o->jobs + 1);
    r->slots = calloc(r->slot_count, sizeof(*r->slots));
    r->rows = calloc(o->source_count, sizeof(*r->rows));
    if (!r->slots || !r->rows) {
        return error_set(err, STATUS_NOMEM, "out of memory for rows");
    }
    for (size_t i = 0; i < r->slot_count; i++) {
        pack_item_init(&r->slots[i].item);
    }
    TRY(measure_sources(r, err));
    struct source_options how = {
        .kind = o->kind, .images = o->images, .stop = must_stop, .stop_cookie = r};
    return source_open(&r->first, o->sources[0], &how, err);
}

enum status pack_run(const struct pack_options *opt, struct pack_summary *out, struct error *err) {
    REQUIRE(opt && out && opt->fs && opt->directory && opt->sources && opt->source_count > 0);
    REQUIRE(opt->jobs >= 1 && opt->jobs <= PACK_MAX_JOBS && opt->created_by);
    REQUIRE(opt->shard_samples >= 1 && opt->shard_samples <= SHARD_MAX_SAMPLES);
    REQUIRE(opt->quality >= 1 && opt->quality <= 100 && opt->resize_short_px >= 0);
    memset(out, 0, sizeof(*out));
    struct ring r = {.opt = opt};
    pthread_mutex_init(&r.mutex, NULL);
    pthread_cond_init(&r.room, NULL);
    pthread_cond_init(&r.work, NULL);
    pthread_cond_init(&r.built, NULL);
    enum status s = prepare(&r, err);
    if (s == STATUS_OK) {
        s = run(&r, out, err);
    }
    source_close(r.first);
    for (size_t i = 0; r.slots && i < r.slot_count; i++) {
        pack_item_fini(&r.slots[i].item);
    }
    free(r.slots);
    free(r.rows);
    free(r.starts);
    pthread_cond_destroy(&r.room);
    pthread_cond_destroy(&r.work);
    pthread_cond_destroy(&r.built);
    pthread_mutex_destroy(&r.mutex);
    return s;
}
