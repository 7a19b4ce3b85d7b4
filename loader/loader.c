/*
 * loader: opens, starts, stops. The stages and what goes between them:
 *
 *   sampler            readers              decoders               consumer
 *   position of    --> claim, read      --> decode, crop, scale -> acquire
 *   (batch, index)     io_uring | pread     clean, tokenize        release
 *        ^                 |   ^                 |  |                 |
 *        |          read slots |  free stack     |  |  batch slots    |
 *        |          (buffers)  '-----------------'  '-> FILLING READY HELD
 *        '---------------- FREE batch slot <--------------------------'
 *
 * A read slot is one image's buffer; a batch slot is the memory of one batch. Batch number k
 * (counted from the start) lives in slot k modulo their number, so batches come out in order
 * whatever order their samples are finished in. Everything that moves between threads is in
 * struct pipeline, under one lock, taken three times per sample.
 *
 * Shutdown: flag, wake all, join all, let the engines reap what the kernel still has, free.
 */
#include "loader/loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/checked.h"
#include "formats/base/clock.h"
#include "formats/base/file_io.h"
#include "loader/filter_internal.h"
#include "loader/pipeline_internal.h"
#include "loader/sample_work.h"

enum { MAX_READERS = 16 };

struct loader_thread {
    struct loader *loader;
    pthread_t thread;
    struct read_engine *engine; /* of a reader: made before its thread, destroyed after it */
    struct sample_work *work;   /* of a decoder */
    bool running;
};

struct loader {
    struct pipeline p;
    struct dataset *dataset;
    struct tokenizer *tokenizer;
    struct loader_thread *threads; /* (reader_count + thread_count), readers first */
    uint8_t *read_memory;
    bool has_sync; /* lock and conditions exist */
};

void loader_options_default(struct loader_options *opt) {
    *opt = (struct loader_options){
        .batch_count = 512,
        .rank = 0,
        .world = 1,
        .image_size_px = 256,
        .augment = LOADER_AUGMENT_TRAIN,
        .captions = LOADER_CAPTIONS_DRAWN,
        .order = LOADER_ORDER_GLOBAL,
        .block_count = 1024,
        .block_window = 16,
        .views = 1,
        .drop_last = true,
        .max_tokens = 30,
        .clean_captions = true,
        .engine = LOADER_ENGINE_AUTO,
        .read_depth = 64,
        .prefetch_batches = 2,
        .verify_images = true,
        .max_corrupt_count = 1000,
        .wait_timeout_ms = 60000,
        .host_memory = host_memory_default(),
    };
    loader_filter_default(&opt->filter);
}

static enum status check_options(const struct loader_options *opt) {
    REQUIRE(opt->batch_count >= 1 && opt->batch_count <= LOADER_MAX_BATCH);
    REQUIRE(opt->world >= 1 && opt->world <= LOADER_MAX_WORLD && opt->rank < opt->world);
    REQUIRE(opt->image_size_px >= LOADER_MIN_IMAGE_SIDE_PX &&
            opt->image_size_px <= LOADER_MAX_IMAGE_SIDE_PX);
    REQUIRE(opt->max_tokens >= 2 && opt->max_tokens <= TOKENIZER_MAX_TOKENS);
    REQUIRE(opt->threads <= LOADER_MAX_THREADS);
    REQUIRE(opt->read_depth >= 1 && opt->read_depth <= LOADER_MAX_READ_DEPTH);
    REQUIRE(opt->prefetch_batches >= 1 && opt->prefetch_batches <= LOADER_MAX_PREFETCH);
    REQUIRE(opt->max_corrupt_count <= LOADER_MAX_CORRUPT_LIST);
    REQUIRE(opt->wait_timeout_ms >= 0);
    REQUIRE(opt->host_memory.alloc != NULL && opt->host_memory.release != NULL);
    return STATUS_OK;
}

/* --- threads --- */

static void *thread_main(void *arg) {
    struct loader_thread *t = arg;
    if (t->engine != NULL) {
        reader_run(&t->loader->p, t->engine);
    } else {
        decode_run(&t->loader->p, t->work);
    }
    return NULL;
}

static void stop_threads(struct loader *l) {
    struct pipeline *p = &l->p;
    if (l->threads == NULL || !l->has_sync) {
        return;
    }
    pipeline_stop(p);
    for (uint32_t i = 0; i < p->reader_count + p->thread_count; i++) {
        struct loader_thread *t = &l->threads[i];
        if (t->running) {
            pthread_join(t->thread, NULL);
            t->running = false;
        }
        if (t->engine != NULL) {
            p->engine->destroy(t->engine);
            t->engine = NULL;
        }
    }
    shard_files_release_all(p->files);
}

/* Everything free, the order at p->take_step. No thread runs. */
static void reset_pipeline(struct pipeline *p) {
    p->stopping = false;
    p->failed = false;
    p->failure = (struct error){0};
    p->free_count = 0;
    p->ready_first = 0;
    p->ready_count = 0;
    for (uint32_t i = p->read_slot_count; i-- > 0;) {
        p->read_slots[i].state = READ_SLOT_FREE;
        p->free_slots[p->free_count++] = i;
    }
    for (uint32_t i = 0; i < p->batch_slot_count; i++) {
        p->batch_slots[i].state = BATCH_FREE;
    }
    p->claim_open = false;
    p->claim_step = p->take_step;
    p->held_count = 0;
    uint64_t corrupt_count = p->stats.corrupt_count;
    p->stats = (struct loader_stats){.corrupt_count = corrupt_count};
    p->start_ns = clock_now_ns();
}

static enum status start_threads(struct loader *l, struct error *err) {
    struct pipeline *p = &l->p;
    enum status s = STATUS_OK;
    reset_pipeline(p);
    for (uint32_t i = 0; i < p->reader_count && s == STATUS_OK; i++) {
        s = p->engine->create(&l->threads[i].engine, p->reader_depth, err);
    }
    /* Signals are for the program's own threads. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (uint32_t i = 0; i < p->reader_count + p->thread_count && s == STATUS_OK; i++) {
        struct loader_thread *t = &l->threads[i];
        t->loader = l;
        int e = pthread_create(&t->thread, NULL, thread_main, t);
        if (e != 0) {
            s = error_set(err, STATUS_NOMEM, "cannot start a thread: %s", strerror(e));
        } else {
            t->running = true;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (s < STATUS_OK) {
        pipeline_fail(p, s, err);
    }
    return s;
}

/* --- open --- */

static uint32_t cpu_count(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        return 1;
    }
    int n = CPU_COUNT(&set);
    return n < 1 ? 1 : n > LOADER_MAX_THREADS ? LOADER_MAX_THREADS : (uint32_t)n;
}

static enum status open_tokenizer(struct loader *l, const char *dir, struct error *err) {
    const struct loader_options *opt = &l->p.opt;
    if (opt->tokenizer_model != NULL) {
        return tokenizer_open(&l->tokenizer, opt->tokenizer_model, opt->tokenizer_model_size_bytes,
                              err);
    }
    const struct file_system *fs = file_posix();
    char path[PATH_MAX_BYTES];
    bool exists = false;
    TRY(path_join(path, sizeof(path), dir, "tokenizer.model", err));
    TRY(fs->exists(fs->context, path, &exists, err));
    if (!exists) {
        return STATUS_OK;
    }
    struct byte_buffer model;
    TRY(file_read_all(fs, &model, path, TOKENIZER_MAX_MODEL_BYTES, err));
    enum status s = tokenizer_open(&l->tokenizer, model.data, model.size_bytes, err);
    byte_buffer_fini(&model);
    return s;
}

static enum status state_to_step(const struct pipeline *p,
                                 uint64_t *out_step,
                                 const struct loader_state *state,
                                 struct error *err) {
    uint64_t fingerprint = dataset_fingerprint(p->dataset);
    uint64_t step;
    if (state->fingerprint != fingerprint) {
        return error_set(err, STATUS_MISMATCH,
                         "the saved position belongs to a dataset with fingerprint %016" PRIx64
                         ", this one has %016" PRIx64 ": other samples, captions or ids",
                         state->fingerprint, fingerprint);
    }
    if (state->seed != p->sampler.seed) {
        return error_set(err, STATUS_MISMATCH,
                         "the saved position belongs to seed %" PRIu64 ", the loader has seed "
                         "%" PRIu64 ": the order would be another",
                         state->seed, p->sampler.seed);
    }
    if (state->step > p->sampler.steps_per_epoch) {
        return error_set(err, STATUS_MISMATCH,
                         "the saved position is step %" PRIu64 " of an epoch, which has only "
                         "%" PRIu64 " steps here: was it saved with another batch size?",
                         state->step, p->sampler.steps_per_epoch);
    }
    if (!checked_mul_u64(state->epoch, p->sampler.steps_per_epoch, &step) ||
        !checked_add_u64(step, state->step, &step)) {
        return error_set(err, STATUS_MISMATCH, "the saved position is epoch %" PRIu64,
                         state->epoch);
    }
    *out_step = step;
    return STATUS_OK;
}

static enum status choose_engine(struct loader *l, struct error *err) {
    struct pipeline *p = &l->p;
    enum loader_engine wanted = p->opt.engine;
    struct error why = {0};
    if (p->engine == NULL && wanted != LOADER_ENGINE_PREAD) {
        const struct read_engine_ops *ops = read_engine_uring();
        struct read_engine *probe = NULL;
        enum status s = ops->create(&probe, 1, &why);
        ops->destroy(probe);
        if (s == STATUS_OK) {
            p->engine = ops;
        } else if (wanted == LOADER_ENGINE_URING || s != STATUS_UNSUPPORTED) {
            return error_set(err, s, "%s", why.text);
        } else {
            log_write(p->opt.log, LOG_LEVEL_INFO, "%s: reading with pread", why.text);
        }
    }
    if (p->engine == NULL) {
        p->engine = read_engine_pread();
    }
    p->reader_count = p->engine->max_threads < MAX_READERS ? p->engine->max_threads : MAX_READERS;
    p->reader_depth =
        p->engine->max_depth < p->opt.read_depth ? p->engine->max_depth : p->opt.read_depth;
    return STATUS_OK;
}

/* A buffer must hold the largest image of the dataset; memory that no image needs is never touched,
 * so that one very large image costs address space only. */
static enum status make_read_slots(struct loader *l, struct error *err) {
    struct pipeline *p = &l->p;
    uint64_t largest = dataset_max_image_span_bytes(p->dataset);
    if (largest > LOADER_MAX_IMAGE_BYTES) {
        return error_set(err, STATUS_LIMIT,
                         "the dataset holds an image of %" PRIu64 " bytes, the loader takes up to "
                         "%d: pack it with --resize",
                         largest, LOADER_MAX_IMAGE_BYTES);
    }
    size_t stride = ((size_t)largest + 2 * READ_BUFFER_PADDING_BYTES - 1) /
                    READ_BUFFER_PADDING_BYTES * READ_BUFFER_PADDING_BYTES;
    size_t fit = ((size_t)READ_MEMORY_MAX_MIB << 20) / stride;
    uint32_t wanted = p->opt.read_depth + p->thread_count;
    p->read_slot_count = fit < 2 ? 2 : fit < wanted ? (uint32_t)fit : wanted;
    p->wake_free_count = p->read_slot_count / 4 > 0 ? p->read_slot_count / 4 : 1;
    l->read_memory = aligned_alloc(READ_BUFFER_PADDING_BYTES, stride * p->read_slot_count);
    p->read_slots = calloc(p->read_slot_count, sizeof(*p->read_slots));
    p->free_slots = calloc(p->read_slot_count, sizeof(*p->free_slots));
    p->ready_slots = calloc(p->read_slot_count, sizeof(*p->ready_slots));
    if (l->read_memory == NULL || p->read_slots == NULL || p->free_slots == NULL ||
        p->ready_slots == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for %u read buffers of %zu bytes",
                         p->read_slot_count, stride);
    }
    for (uint32_t i = 0; i < p->read_slot_count; i++) {
        p->read_slots[i].buffer = l->read_memory + i * stride;
    }
    return STATUS_OK;
}

static size_t round_64(size_t n) {
    return (n + 63) / 64 * 64;
}

static enum status make_batch_slots(struct loader *l, struct error *err) {
    struct pipeline *p = &l->p;
    size_t count = sampler_max_count(&p->sampler);
    p->image_bytes = (size_t)p->opt.image_size_px * p->opt.image_size_px * 3;
    size_t images = round_64(count * p->image_bytes);
    size_t tokens = round_64(count * p->opt.max_tokens * sizeof(int32_t));
    size_t lengths = round_64(count * sizeof(int32_t));
    size_t ids = round_64(count * sizeof(uint64_t));
    p->batch_slot_count = p->opt.prefetch_batches + 1;
    p->batch_slots = calloc(p->batch_slot_count, sizeof(*p->batch_slots));
    if (p->batch_slots == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for the batches");
    }
    for (uint32_t i = 0; i < p->batch_slot_count; i++) {
        struct batch_slot *b = &p->batch_slots[i];
        size_t size = images + tokens + 2 * lengths + 2 * ids;
        uint8_t *at = p->opt.host_memory.alloc(p->opt.host_memory.cookie, size);
        if (at == NULL) {
            return error_set(err, STATUS_NOMEM,
                             "out of memory for %u batches of %zu bytes: lower the batch or "
                             "prefetch_batches",
                             p->batch_slot_count, size);
        }
        b->block = at;
        b->images = at;
        b->tokens = (int32_t *)(void *)(at + images);
        b->lengths = (int32_t *)(void *)(at + images + tokens);
        b->sample_ids = (uint64_t *)(void *)(at + images + tokens + lengths);
        b->text_ids = (uint64_t *)(void *)(at + images + tokens + lengths + ids);
        b->labels = (int32_t *)(void *)(at + images + tokens + lengths + 2 * ids);
        memset(at + images, 0, size - images);
    }
    return STATUS_OK;
}

static enum status make_threads(struct loader *l, struct error *err) {
    struct pipeline *p = &l->p;
    l->threads = calloc(p->reader_count + p->thread_count, sizeof(*l->threads));
    p->corrupt_list = calloc(LOADER_MAX_CORRUPT_LIST, sizeof(*p->corrupt_list));
    if (l->threads == NULL || p->corrupt_list == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for %u threads", p->thread_count);
    }
    for (uint32_t i = 0; i < p->thread_count; i++) {
        TRY(sample_work_create(&l->threads[p->reader_count + i].work, &p->opt, p->dataset,
                               p->tokenizer, err));
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->for_reader, &monotonic);
    pthread_cond_init(&p->for_decode, &monotonic);
    pthread_cond_init(&p->for_batch, &monotonic);
    pthread_condattr_destroy(&monotonic);
    l->has_sync = true;
    return STATUS_OK;
}

static const char *shard_path(const void *cookie, uint32_t shard) {
    return dataset_shard_path(cookie, shard);
}

static enum status
open_parts(struct loader *l, const char *dir, const struct loader_state *start, struct error *err) {
    struct pipeline *p = &l->p;
    TRY(dataset_open(&l->dataset, dir, NULL, err));
    p->dataset = l->dataset;
    if (p->opt.captions != LOADER_CAPTIONS_NONE) {
        TRY(open_tokenizer(l, dir, err));
    }
    p->tokenizer = l->tokenizer;
    TRY(sampler_init(&p->sampler, dataset_sample_count(l->dataset), &p->opt, err));
    if (start != NULL) {
        TRY(state_to_step(p, &p->take_step, start, err));
    }
    TRY(shard_files_create(&p->files, dataset_shard_count(l->dataset), shard_path, l->dataset,
                           err));
    p->thread_count = p->opt.threads != 0 ? p->opt.threads : cpu_count();
    TRY(choose_engine(l, err));
    TRY(make_read_slots(l, err));
    TRY(make_batch_slots(l, err));
    TRY(make_threads(l, err));
    return start_threads(l, err);
}

enum status loader_open_with_engine(struct loader **out,
                                    const char *dataset_dir,
                                    const struct loader_options *opt,
                                    const struct read_engine_ops *engine,
                                    struct error *err) {
    REQUIRE(out != NULL && dataset_dir != NULL && opt != NULL);
    *out = NULL;
    TRY(check_options(opt));
    struct loader *l = calloc(1, sizeof(*l));
    if (l == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for the loader");
    }
    l->p.opt = *opt;
    l->p.opt.start = NULL;
    l->p.engine = engine;
    enum status s = open_parts(l, dataset_dir, opt->start, err);
    /* The caller's bytes were copied. */
    l->p.opt.tokenizer_model = NULL;
    if (s < STATUS_OK) {
        loader_close(l);
        return s;
    }
    *out = l;
    return STATUS_OK;
}

enum status loader_open(struct loader **out,
                        const char *dataset_dir,
                        const struct loader_options *opt,
                        struct error *err) {
    return loader_open_mix(out, &(struct loader_source){.directory = dataset_dir}, 1, opt, err);
}

enum status loader_open_mix(struct loader **out,
                            const struct loader_source *sources,
                            uint32_t source_count,
                            const struct loader_options *opt,
                            struct error *err) {
    REQUIRE(out != NULL && sources != NULL && opt != NULL && source_count >= 1);
    if (source_count > 1 || opt->views != 1 || opt->order == LOADER_ORDER_BLOCK || opt->direct ||
        opt->quarantine_path != NULL || !filter_is_open(&opt->filter)) {
        return error_set(err, STATUS_UNSUPPORTED, "not in this build");
    }
    return loader_open_with_engine(out, sources[0].directory, opt, NULL, err);
}

void loader_close(struct loader *l) {
    if (l == NULL) {
        return;
    }
    struct pipeline *p = &l->p;
    stop_threads(l);
    if (l->threads != NULL) {
        for (uint32_t i = 0; i < p->thread_count; i++) {
            sample_work_destroy(l->threads[p->reader_count + i].work);
        }
    }
    if (l->has_sync) {
        pthread_cond_destroy(&p->for_reader);
        pthread_cond_destroy(&p->for_decode);
        pthread_cond_destroy(&p->for_batch);
        pthread_mutex_destroy(&p->lock);
    }
    for (uint32_t i = 0; p->batch_slots != NULL && i < p->batch_slot_count; i++) {
        p->opt.host_memory.release(p->opt.host_memory.cookie, p->batch_slots[i].block);
    }
    free(p->batch_slots);
    free(p->read_slots);
    free(p->free_slots);
    free(p->ready_slots);
    free(p->corrupt_list);
    free(l->read_memory);
    free(l->threads);
    shard_files_destroy(p->files);
    tokenizer_close(l->tokenizer);
    dataset_close(l->dataset);
    free(l);
}

/* --- use --- */

enum status loader_acquire(struct loader *l, struct loader_batch *out, struct error *err) {
    REQUIRE(l != NULL && out != NULL);
    struct batch_slot *b = NULL;
    *out = (struct loader_batch){0};
    enum status s = pipeline_acquire(&l->p, &b, err);
    if (s != STATUS_OK) {
        return s;
    }
    *out = (struct loader_batch){
        .images = b->images,
        .tokens = b->tokens,
        .lengths = b->lengths,
        .sample_ids = b->sample_ids,
        .text_ids = b->text_ids,
        .labels = b->labels,
        .count = b->batch.count,
        .replaced_count = b->replaced_count,
        .epoch = b->batch.epoch,
        .step = b->batch.step,
        .global_step = b->batch.global_step,
        .slot = (uint32_t)(b - l->p.batch_slots),
    };
    return STATUS_OK;
}

void loader_release(struct loader *l, const struct loader_batch *batch) {
    if (l != NULL && batch != NULL && batch->images != NULL) {
        pipeline_release(&l->p, batch->slot);
    }
}

struct loader_state loader_state(const struct loader *l) {
    const struct pipeline *p = &l->p;
    return (struct loader_state){
        .fingerprint = dataset_fingerprint(p->dataset),
        .seed = p->sampler.seed,
        .epoch = p->take_step / p->sampler.steps_per_epoch,
        .step = p->take_step % p->sampler.steps_per_epoch,
    };
}

enum status loader_seek(struct loader *l, const struct loader_state *state, struct error *err) {
    REQUIRE(l != NULL && state != NULL);
    uint64_t step = 0;
    TRY(state_to_step(&l->p, &step, state, err));
    if (l->p.held_count != 0) {
        return error_set(err, STATUS_INVALID, "%u batches are held: release them before seeking",
                         l->p.held_count);
    }
    stop_threads(l);
    l->p.take_step = step;
    return start_threads(l, err);
}

void loader_info(const struct loader *l, struct loader_info *out) {
    const struct pipeline *p = &l->p;
    *out = (struct loader_info){
        .sample_count = dataset_sample_count(p->dataset),
        .id_space = dataset_id_space(p->dataset),
        .text_count = dataset_text_count(p->dataset),
        .fingerprint = dataset_fingerprint(p->dataset),
        .source_count = 1,
        .steps_per_epoch = p->sampler.steps_per_epoch,
        .max_local_count = sampler_max_count(&p->sampler),
        .vocab_count = p->tokenizer != NULL ? tokenizer_vocab_count(p->tokenizer) : 0,
        .threads = p->thread_count,
        .engine = p->engine->name,
    };
}

struct pipeline *loader_pipeline(struct loader *l) {
    return &l->p;
}

const struct dataset *loader_dataset(const struct loader *l, uint32_t source) {
    return source == 0 ? l->dataset : NULL;
}

const struct tokenizer *loader_tokenizer(const struct loader *l) {
    return l->tokenizer;
}
