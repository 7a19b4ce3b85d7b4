/*
 * Many shards at once, with their faults in order. Workers take shards in order; each shard has a
 * slot that keeps its faults as lines until all earlier shards are done.
 *
 *     next ->  slot 5   being checked, faults kept
 *              slot 4   done, 2 faults kept
 *     head ->  slot 3   being checked, faults printed at once
 *
 * A worker with a full slot waits until its shard is the head. The head never waits, so memory is
 * bounded for any number of faults. The main thread shows progress and watches for Ctrl-C.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/file_io.h"
#include "formats/image/image_codec.h"
#include "formats/shard/shard_reader.h"
#include "tools/ccdump/ccdump_internal.h"
#include "tools/ccdump/verify.h"

enum { MAX_THREADS = 1024, SLOT_FULL_BYTES = 256 << 10, WAIT_MS = 100 };

struct slot {
    struct byte_buffer lines;
    bool done;
};

struct pool {
    const struct verify_options *options;
    const char *path;
    const struct shard_summary *expected;
    size_t shard_count;
    const struct manifest *manifest; /* NULL: a single shard */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* a slot was printed, a worker has ended, or stop was set */
    /* guarded by lock: */
    struct cli_progress progress;
    struct slot *slots; /* (shard_count) */
    size_t next, head;
    size_t running; /* workers */
    bool stop;
    enum status status; /* the first failure that is not a fault */
    struct error error;
    unsigned damage; /* VERIFY_DAMAGE_... */
    uint64_t faults, samples, done_bytes;
};

struct worker {
    struct pool *pool;
    pthread_t thread;
    struct image_decoder *decoder; /* NULL: images are not decoded */
    size_t shard;
    const char *name; /* of the shard's file */
    char path[PATH_MAX_BYTES];
    uint64_t samples, faults; /* of the shard being checked */
    unsigned parts;           /* (1 << enum shard_part) with faults, likewise */
};

/* Requires the lock. Keeps the first failure. */
static void fail(struct pool *p, enum status s, const struct error *why) {
    if (p->status == STATUS_OK) {
        p->status = s;
        p->error = *why;
    }
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
}

/* Requires the lock. Prints the faults of the head, and of later shards as far as all earlier ones
 * are done. */
static void print_ready(struct pool *p) {
    while (p->head < p->shard_count) {
        struct slot *slot = &p->slots[p->head];
        struct error why = {0};
        if (slot->lines.size_bytes > 0) {
            cli_progress_clear(&p->progress);
            const enum status s = cli_put(slot->lines.data, slot->lines.size_bytes, &why);
            byte_buffer_fini(&slot->lines);
            if (s != STATUS_OK) {
                fail(p, s, &why);
            }
        }
        if (!slot->done) {
            break;
        }
        p->head++;
    }
    pthread_cond_broadcast(&p->changed);
}

/* ---- one sample ------------------------------------------------------------------------------ */

/* Compares the image with its record in the index. */
static enum status check_image(const struct sample_view *view, struct error *err) {
    const struct shard_record *r = &view->record;
    struct image_info info;
    TRY(image_probe(&info, view->image, view->image_bytes, NULL, err));
    FAIL_IF(info.format != r->format, err, STATUS_CORRUPT, "the index records %s, the image is %s",
            image_format_name(r->format), image_format_name(info.format));
    bool unknown = r->width_px == 0 && r->height_px == 0;
    FAIL_IF(!unknown && (r->width_px != (uint32_t)info.width_px ||
                         r->height_px != (uint32_t)info.height_px),
            err, STATUS_CORRUPT, "the index records %u x %u pixels, the image has %d x %d",
            r->width_px, r->height_px, info.width_px, info.height_px);
    return STATUS_OK;
}

enum status verify_sample(struct image_decoder *decoder,
                          const struct sample_view *view,
                          size_t class_count,
                          struct error *err) {
    const int32_t label = view->record.label;
    struct image_view pixels;
    struct image_decode_options check = {.check_only = true};
    FAIL_IF(class_count > 0 && label != SHARD_NO_LABEL && (size_t)label >= class_count, err,
            STATUS_CORRUPT, "its label is %d, there are %zu classes", label, class_count);
    if (!decoder) {
        return STATUS_OK;
    }
    TRY(image_decode(decoder, &pixels, NULL, view->image, view->image_bytes, &check, err));
    return check_image(view, err);
}

/* ---- the workers ----------------------------------------------------------------------------- */

static void
on_fault(void *cookie, enum shard_part part, uint64_t id, uint64_t offset, const char *text) {
    struct worker *w = cookie;
    struct pool *p = w->pool;
    struct verify_fault f = {.id = id, .offset = offset, .shard = w->name, .text = text};
    struct error why = {0};
    pthread_mutex_lock(&p->lock);
    struct slot *slot = &p->slots[w->shard];
    while (slot->lines.size_bytes >= SLOT_FULL_BYTES && !p->stop) {
        pthread_cond_wait(&p->changed, &p->lock);
    }
    p->faults++;
    w->faults++;
    w->parts |= 1u << part;
    enum status s = verify_fault_line(&slot->lines, p->options, w->path, &f, &why);
    if (s != STATUS_OK) {
        fail(p, s, &why);
    }
    print_ready(p);
    pthread_mutex_unlock(&p->lock);
}

static bool on_progress(void *cookie, uint64_t bytes) {
    struct worker *w = cookie;
    struct pool *p = w->pool;
    pthread_mutex_lock(&p->lock);
    p->done_bytes += bytes;
    const bool more = !p->stop;
    pthread_mutex_unlock(&p->lock);
    return more;
}

static enum status on_sample(void *cookie, const struct sample_view *view, struct error *err) {
    struct worker *w = cookie;
    const struct manifest *m = w->pool->manifest;
    if (m && manifest_is_removed(m, view->record.sample_id)) {
        return STATUS_OK;
    }
    TRY(verify_sample(w->decoder, view, m ? m->class_count : 0, err));
    w->samples++;
    return STATUS_OK;
}

static enum status verify_one(struct worker *w, struct error *err) {
    struct pool *p = w->pool;
    const struct shard_summary *expected = p->expected ? &p->expected[w->shard] : NULL;
    struct shard_verify how = {
        .expected = expected,
        .fault = on_fault,
        .progress = on_progress,
        .sample = on_sample,
        .cookie = w,
    };
    const char *base = p->manifest ? p->manifest->base : NULL;
    char beside[PATH_MAX_BYTES];
    TRY(path_join(w->path, sizeof(w->path), expected ? p->path : "",
                  expected ? expected->name : p->path, err));
    if (base) {
        TRY(shard_index_name(beside, sizeof(beside), w->path, err));
        TRY(path_join(w->path, sizeof(w->path), base, expected->name, err));
        how.index = beside;
        const struct file_system *fs = file_system_of(base);
        TRY(fs->expect ? fs->expect(fs->context, w->path, expected->etag, expected->size_bytes,
                                    p->path, err)
                       : STATUS_OK);
    }
    const char *slash = strrchr(w->path, '/');
    w->name = slash ? slash + 1 : w->path;
    return shard_verify(file_system_of(w->path), w->path, &how, err);
}

/* A damaged shard does not match the manifest either; an intact one that does not match shows that
 * the manifest is damaged. */
static unsigned damage_of(const struct pool *p, unsigned parts) {
    if (parts == 0) {
        return 0;
    }
    if (p->manifest && p->manifest->container == SHARD_CONTAINER_TAR_FOREIGN) {
        return VERIFY_DAMAGE_FOREIGN;
    }
    const bool shard = (parts & 1u << SHARD_PART_SHARD) != 0;
    const bool manifest = (parts & 1u << SHARD_PART_MANIFEST) != 0;
    const bool sidecar = (parts & 1u << SHARD_PART_SIDECAR) != 0;
    return (shard ? VERIFY_DAMAGE_SHARD : 0u) |
           (sidecar || (manifest && !shard) ? VERIFY_DAMAGE_REBUILT : 0u);
}

/* Requires the lock, which it releases while it checks the shard. */
static void verify_next(struct worker *w) {
    struct pool *p = w->pool;
    struct error why = {0};
    w->shard = p->next++;
    pthread_mutex_unlock(&p->lock);
    w->samples = 0;
    w->faults = 0;
    w->parts = 0;
    enum status s = verify_one(w, &why);
    /* Faults inside the shard are already reported; an unreadable file is a fault itself. */
    if (damage_is(s) && w->faults == 0) {
        on_fault(w, SHARD_PART_SHARD, SHARD_NO_SAMPLE, 0, why.text);
    }
    pthread_mutex_lock(&p->lock);
    p->samples += w->samples;
    p->damage |= damage_of(p, w->parts);
    p->slots[w->shard].done = true;
    if (s != STATUS_OK && !damage_is(s)) {
        fail(p, s, &why);
    }
    print_ready(p);
}

static void *run(void *cookie) {
    struct worker *w = cookie;
    struct pool *p = w->pool;
    pthread_mutex_lock(&p->lock);
    while (!p->stop && p->next < p->shard_count) {
        verify_next(w);
    }
    p->running--;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- the main thread ------------------------------------------------------------------------- */

/* Runs until all workers have finished. */
static void watch(struct pool *p, uint64_t total_bytes) {
    struct error why = {0};
    pthread_mutex_lock(&p->lock);
    while (p->running > 0) {
        if (cli_interrupted() && !p->stop) {
            error_set(&why, STATUS_INTERRUPTED, "interrupted in %s", p->path);
            fail(p, STATUS_INTERRUPTED, &why);
        }
        clock_wait_ms(&p->changed, &p->lock, WAIT_MS);
        cli_progress_update(&p->progress, p->done_bytes >> 20, total_bytes >> 20, p->done_bytes,
                            NULL);
    }
    cli_progress_clear(&p->progress);
    pthread_mutex_unlock(&p->lock);
}

static size_t thread_count(const struct verify_options *o, size_t shard_count) {
    uint64_t n = o->jobs;
    if (n == 0) {
        long processors = sysconf(_SC_NPROCESSORS_ONLN);
        n = processors > 0 ? (uint64_t)processors : 1;
    }
    n = n < shard_count ? n : shard_count;
    return n < MAX_THREADS ? (size_t)n : MAX_THREADS;
}

/* Starts as many workers as possible; one suffices. Returns how many, with an error if none. */
static size_t start(struct pool *p, struct worker *workers, size_t count, struct error *err) {
    size_t started = 0;
    enum status s = STATUS_OK;
    pthread_mutex_lock(&p->lock);
    while (started < count && s == STATUS_OK) {
        struct worker *w = &workers[started];
        w->pool = p;
        s = p->options->decode ? image_decoder_create(&w->decoder, NULL, err) : STATUS_OK;
        if (s == STATUS_OK && pthread_create(&w->thread, NULL, run, w) != 0) {
            image_decoder_destroy(w->decoder);
            s = error_set(err, STATUS_NOMEM, "cannot start a thread");
        }
        started += s == STATUS_OK;
    }
    p->running = started;
    pthread_mutex_unlock(&p->lock);
    return started;
}

static enum status
run_pool(struct pool *p, struct worker *workers, size_t count, uint64_t bytes, struct error *err) {
    size_t started = start(p, workers, count, err);
    if (started == 0) {
        return STATUS_NOMEM;
    }
    watch(p, 2 * bytes); /* read once for the hash of the file, once for its contents */
    for (size_t i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        image_decoder_destroy(workers[i].decoder);
    }
    if (p->status != STATUS_OK && err) {
        *err = p->error;
    }
    return p->status;
}

enum status verify_shards(const struct verify_options *o,
                          const char *path,
                          const struct manifest *m,
                          struct verify_result *result,
                          struct error *err) {
    const size_t shard_count = m ? m->shard_count : 1;
    struct pool p = {.options = o,
                     .path = path,
                     .expected = m ? m->shards : NULL,
                     .shard_count = shard_count,
                     .manifest = m};
    size_t threads = thread_count(o, shard_count);
    struct worker *workers = calloc(threads + 1, sizeof(*workers));
    p.slots = calloc(shard_count + 1, sizeof(*p.slots));
    enum status s = STATUS_OK;
    if (!workers || !p.slots) {
        s = error_set(err, STATUS_NOMEM, "%s: out of memory to check %zu shards", path,
                      shard_count);
    } else if (shard_count > 0) {
        pthread_mutex_init(&p.lock, NULL);
        pthread_cond_init(&p.changed, NULL);
        cli_progress_init(&p.progress, "MiB", o->quiet);
        s = run_pool(&p, workers, threads, result->bytes, err);
        pthread_cond_destroy(&p.changed);
        pthread_mutex_destroy(&p.lock);
    }
    for (size_t i = 0; p.slots && i < shard_count; i++) {
        byte_buffer_fini(&p.slots[i].lines);
    }
    free(p.slots);
    free(workers);
    result->faults += p.faults;
    result->damage |= p.damage;
    result->samples += p.samples;
    return s;
}
