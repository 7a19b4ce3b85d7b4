/*
 * loader: opens, starts, stops. The stages and what moves between them:
 *
 *   sampler            readers              decoders               consumer
 *   position of    --> claim, read      --> decode, crop, scale -> acquire
 *   (batch, index)     io_uring | pread     clean, tokenize        release
 *        ^                 |   ^                 |  |                 |
 *        |          read slots |  free stack     |  |  batch slots    |
 *        |          (buffers)  '-----------------'  '-> FILLING READY HELD
 *        '---------------- FREE batch slot <--------------------------'
 *
 * A read slot is the buffer of one image; a batch slot is the memory of one batch. Batch number k
 * (counted from the start) lives in slot k modulo the number of slots, so batches come out in
 * order, in whatever order their samples are finished. Everything that moves between threads is in
 * struct pipeline, under one lock, which is taken three times per sample.
 *
 * threads.c describes the shutdown.
 */
#include "loader/loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/checked.h"
#include "formats/base/file_io.h"
#include "formats/base/hash.h"
#include "formats/dataset/dataset_tokenizer.h"
#include "loader/caption_columns_internal.h"
#include "loader/classes_internal.h"
#include "loader/filter_internal.h"
#include "loader/loader_internal.h"
#include "loader/options_internal.h"
#include "loader/pipeline_internal.h"
#include "loader/sample_work.h"
#include "loader/text_internal.h"

/* ---- a position of a run. It means nothing in another order, so everything that the order depends
 * on is compared, and the message names what differs. ---- */

/* From the top: order (8 bits), positives less 1 (4), window (20, of blocks), block (32); 0 for the
 * global order of single rows. */
static uint64_t order_code(const struct loader_options *opt) {
    uint64_t code = (uint64_t)opt->order << 56 | (uint64_t)(opt->positives - 1) << 52;
    return opt->order == LOADER_ORDER_BLOCK
               ? code | (uint64_t)opt->block_window << 32 | opt->block_count
           : opt->order == LOADER_ORDER_CLASSES ? code | opt->block_count
                                                : code;
}

static struct loader_state state_make(const struct pipeline *p, uint64_t global_step) {
    struct loader_state s = {
        .fingerprint = sources_fingerprint(p->sources),
        .seed = p->sampler.seed,
        .epoch = global_step / p->sampler.steps_per_epoch,
        .step = global_step % p->sampler.steps_per_epoch,
        .filter = filter_hash(&p->opt.filter) ^ caption_columns_hash(p->sources->captions) ^
                  p->columns.hash,
        .order = order_code(&p->opt),
        .mix = sources_mix_hash(p->sources),
        .pair_noise = p->opt.pair_noise,
        .batch_count = p->opt.batch_count,
        .source_count = p->sources->count,
    };
    for (uint32_t i = 0; i < s.source_count; i++) {
        s.sources[i].fingerprint = dataset_fingerprint(p->sources->items[i].dataset);
        s.sources[i].id_offset = p->sources->items[i].id_offset;
    }
    return s;
}

/* Names the dataset that differs, as far as the state holds it. */
static enum status
other_data(const struct pipeline *p, const struct loader_state *state, struct error *err) {
    uint32_t count = p->sources->count;
    FAIL_IF(state->source_count != 0 && state->source_count != count, err, STATUS_MISMATCH,
            "the saved position belongs to %u datasets, the loader has %u", state->source_count,
            count);
    for (uint32_t i = 0; i < state->source_count && i < LOADER_MAX_SOURCES; i++) {
        uint64_t fingerprint = dataset_fingerprint(p->sources->items[i].dataset);
        uint64_t offset = p->sources->items[i].id_offset;
        FAIL_IF(state->sources[i].fingerprint != fingerprint, err, STATUS_MISMATCH,
                "%s: the saved position belongs to a dataset with fingerprint "
                "%016" PRIx64 ", this one has %016" PRIx64 ": other samples, captions or ids",
                p->sources->items[i].directory, state->sources[i].fingerprint, fingerprint);
        FAIL_IF(state->sources[i].id_offset != offset, err, STATUS_MISMATCH,
                "%s: its ids started at %" PRIu64 " in the saved run, and now start at %" PRIu64
                ": a dataset before it has grown",
                p->sources->items[i].directory, state->sources[i].id_offset, offset);
    }
    return error_set(err, STATUS_MISMATCH,
                     "the saved position belongs to data with fingerprint %016" PRIx64
                     ", this has %016" PRIx64 ": other samples, captions or ids",
                     state->fingerprint, sources_fingerprint(p->sources));
}

/* "the global order", "blocks of 1024 in windows of 16" */
static void order_text(char *out, size_t size, uint64_t code) {
    uint64_t order = code >> 56;
    unsigned positives = (unsigned)(code >> 52 & 0xF) + 1;
    int used;
    if (order == LOADER_ORDER_BLOCK) {
        used = snprintf(out, size, "blocks of %" PRIu32 " in windows of %u", (uint32_t)code,
                        (uint32_t)(code >> 32 & 0xFFFFF));
    } else if (order == LOADER_ORDER_CLASSES) {
        used = snprintf(out, size, "blocks of %" PRIu32 " of one class", (uint32_t)code);
    } else {
        used = snprintf(out, size, "%s",
                        order == LOADER_ORDER_GLOBAL ? "the global order" : "the sequential order");
    }
    if (positives > 1) {
        snprintf(out + used, size - (size_t)used, " with %u rows a sample", positives);
    }
}

static enum status
other_plan(const struct loader_state *state, const struct loader_state *own, struct error *err) {
    char saved[80];
    char now[80];
    FAIL_IF(state->seed != own->seed, err, STATUS_MISMATCH,
            "the saved position belongs to seed %" PRIu64 ", the loader has seed "
            "%" PRIu64 ": the order would differ",
            state->seed, own->seed);
    FAIL_IF(state->filter != own->filter, err, STATUS_MISMATCH,
            "the saved position belongs to another filter or other columns (%016" PRIx64
            ", these %016" PRIx64 ", 0 is none): other samples, captions or values take part",
            state->filter, own->filter);
    FAIL_IF(state->mix != own->mix, err, STATUS_MISMATCH,
            "the saved position belongs to other weights of the datasets");
    FAIL_IF(state->pair_noise != own->pair_noise, err, STATUS_MISMATCH,
            "the saved position belongs to pairs with noise %g, the loader has %g",
            state->pair_noise, own->pair_noise);
    if (state->order != own->order) {
        order_text(saved, sizeof(saved), state->order);
        order_text(now, sizeof(now), own->order);
        return error_set(err, STATUS_MISMATCH,
                         "the saved position belongs to %s, the loader has %s", saved, now);
    }
    FAIL_IF(state->batch_count != 0 && state->batch_count != own->batch_count, err, STATUS_MISMATCH,
            "the saved position counts batches of %u, the loader has %u", state->batch_count,
            own->batch_count);
    return STATUS_OK;
}

/* Returns OK, or MISMATCH with a message that names the difference. */
static enum status state_to_step(const struct pipeline *p,
                                 uint64_t *out_step,
                                 const struct loader_state *state,
                                 struct error *err) {
    struct loader_state own = state_make(p, 0);
    uint64_t samples = 0;
    uint64_t step = 0;
    RETURN_IF(state->fingerprint != own.fingerprint, other_data(p, state, err));
    TRY(other_plan(state, &own, err));
    FAIL_IF(state->step > p->sampler.steps_per_epoch, err, STATUS_MISMATCH,
            "the saved position is step %" PRIu64 " of an epoch, which has only "
            "%" PRIu64 " steps here: was it saved with another batch size?",
            state->step, p->sampler.steps_per_epoch);
    FAIL_IF(state->epoch >= UINT64_MAX - 1 ||
                !checked_mul_u64(state->epoch + 2, p->sampler.sample_count, &samples) ||
                !checked_mul_u64(state->epoch, p->sampler.steps_per_epoch, &step) ||
                !checked_add_u64(step, state->step, &step),
            err, STATUS_MISMATCH,
            "the saved position is epoch %" PRIu64 ", which exceeds the limit", state->epoch);
    *out_step = step;
    return STATUS_OK;
}

enum { MAX_READERS = 16 };

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
    return dataset_tokenizer_open(&l->tokenizer, dir,
                                  dataset_manifest(l->sources->items[0].dataset),
                                  file_system_of(dir), err);
}

/* Counts the token caches that fit and logs why another one is not used; each decoder opens them
 * itself. */
static void count_caches(struct loader *l) {
    for (uint32_t i = 0; l->tokenizer != NULL && i < l->sources->count; i++) {
        struct text_cache cache;
        struct error why = {0};
        enum status s = text_cache_init(&cache, l->sources->items[i].dataset, l->tokenizer,
                                        l->p.opt.clean_captions, &why);
        l->cached_count += s == STATUS_OK;
        if (s < STATUS_OK && s != STATUS_NOTFOUND) {
            log_write(l->p.opt.log, LOG_LEVEL_INFO, "captions are tokenized: %s", why.text);
        }
    }
}

static enum status choose_engine(struct loader *l, struct error *err) {
    struct pipeline *p = &l->p;
    enum loader_engine wanted = p->opt.engine;
    struct error why = {0};
    for (uint32_t i = 0; i < l->sources->count && p->engine == NULL; i++) {
        const char *directory = l->sources->items[i].directory;
        const bool remote = path_is_remote(directory) ||
                            dataset_manifest(l->sources->items[i].dataset)->base != NULL;
        FAIL_IF(remote && wanted != LOADER_ENGINE_AUTO, err, STATUS_USAGE,
                "%.300s: io_uring and pread read local files", directory);
        if (remote) {
            p->engine = read_engine_remote();
            p->opt.read_depth = LOADER_MAX_READ_DEPTH; /* against the latency of a network */
        }
    }
    if (p->engine == NULL && wanted != LOADER_ENGINE_PREAD) {
        const struct read_engine_ops *ops = read_engine_uring();
        struct read_engine *probe = NULL;
        enum status s = ops->create(&probe, 1, &why);
        (void)ops->destroy(probe, 0);
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

size_t read_buffer_bytes(const struct pipeline *p, size_t *align_bytes) {
    size_t align = p->opt.direct ? READ_DIRECT_ALIGN_BYTES : READ_BUFFER_PADDING_BYTES;
    *align_bytes = align;
    /* Room before the image for alignment, and after it for padding. */
    return ((size_t)sources_max_span_bytes(p->sources) + 3 * align - 1) / align * align;
}

/* Each buffer holds the largest image of the dataset. Memory that no image needs is never touched,
 * so one very large image costs only address space. */
static enum status make_read_slots(struct loader *l, struct error *err) {
    struct pipeline *p = &l->p;
    uint64_t largest = sources_max_span_bytes(p->sources);
    FAIL_IF(largest > LOADER_MAX_IMAGE_BYTES, err, STATUS_LIMIT,
            "the dataset holds an image of %" PRIu64 " bytes, the loader accepts up to "
            "%d: pack it with --resize",
            largest, LOADER_MAX_IMAGE_BYTES);
    size_t align = 0;
    size_t stride = read_buffer_bytes(p, &align);
    size_t fit = ((size_t)READ_MEMORY_MAX_MIB << 20) / stride;
    uint32_t wanted = p->opt.read_depth + p->thread_count;
    p->read_slot_count = fit < 2 ? 2 : fit < wanted ? (uint32_t)fit : wanted;
    p->wake_free_count = p->read_slot_count / 4 > 0 ? p->read_slot_count / 4 : 1;
    l->read_memory = aligned_alloc(align, stride * p->read_slot_count);
    p->read_slots = calloc(p->read_slot_count, sizeof(*p->read_slots));
    p->free_slots = calloc(p->read_slot_count, sizeof(*p->free_slots));
    p->ready_slots = calloc(p->read_slot_count, sizeof(*p->ready_slots));
    FAIL_IF(l->read_memory == NULL || p->read_slots == NULL || p->free_slots == NULL ||
                p->ready_slots == NULL,
            err, STATUS_NOMEM, "out of memory for %u read buffers of %zu bytes", p->read_slot_count,
            stride);
    for (uint32_t i = 0; i < p->read_slot_count; i++) {
        p->read_slots[i].buffer = l->read_memory + i * stride;
    }
    return STATUS_OK;
}

static size_t round_64(size_t n) {
    return (n + 63) / 64 * 64;
}

enum status
batch_slot_alloc(struct batch_slot *b, const struct pipeline *p, size_t count, struct error *err) {
    uint32_t views = p->opt.views;
    size_t images = round_64(count * p->image_bytes);
    size_t tokens = round_64(count * p->opt.max_tokens * sizeof(int32_t));
    size_t lengths = round_64(count * sizeof(int32_t));
    size_t ids = round_64(count * sizeof(uint64_t));
    size_t columns = round_64(count * p->columns.values * sizeof(float));
    size_t size = views * images + tokens + 3 * lengths + 2 * ids + columns;
    size += count * p->columns.count;
    uint8_t *at = p->opt.host_memory.alloc(p->opt.host_memory.cookie, size);
    TRY_MEMORY(at != NULL, err, "out of memory for a batch of %zu bytes: use a smaller batch",
               size);
    b->block = at;
    memset(at + views * images, 0, size - views * images);
    for (uint32_t v = 0; v < views; v++) {
        b->images[v] = at;
        at += images;
    }
    b->tokens = (int32_t *)(void *)at;
    b->lengths = (int32_t *)(void *)(at + tokens);
    b->sample_ids = (uint64_t *)(void *)(at + tokens + lengths);
    b->text_ids = (uint64_t *)(void *)(at + tokens + lengths + ids);
    b->labels = (int32_t *)(void *)(at + tokens + lengths + 2 * ids);
    b->captions = (uint32_t *)(void *)(at + tokens + 2 * lengths + 2 * ids);
    b->columns = (float *)(void *)(at + tokens + 3 * lengths + 2 * ids);
    b->present = (uint8_t *)b->columns + columns;
    return STATUS_OK;
}

struct loader_batch batch_slot_view(const struct batch_slot *b) {
    return (struct loader_batch){
        .images = b->images[0],
        .images2 = b->images[1],
        .tokens = b->tokens,
        .lengths = b->lengths,
        .sample_ids = b->sample_ids,
        .text_ids = b->text_ids,
        .captions = b->captions,
        .labels = b->labels,
        .columns = b->columns,
        .present = b->present,
        .count = b->batch.count,
        .replaced_count = b->replaced_count,
        .epoch = b->batch.epoch,
        .step = b->batch.step,
        .global_step = b->batch.global_step,
    };
}

static enum status make_batch_slots(struct loader *l, struct error *err) {
    struct pipeline *p = &l->p;
    size_t count = sampler_max_count(&p->sampler);
    p->image_bytes = (size_t)p->opt.image_size_px * p->opt.image_size_px *
                     (p->opt.hooks.pixels != NULL ? p->opt.hooks.pixel_bytes : 3);
    p->batch_slot_count = p->opt.prefetch_batches + 1;
    p->batch_slots = calloc(p->batch_slot_count, sizeof(*p->batch_slots));
    FAIL_IF(p->batch_slots == NULL, err, STATUS_NOMEM, "out of memory for the batches");
    for (uint32_t i = 0; i < p->batch_slot_count; i++) {
        TRY(batch_slot_alloc(&p->batch_slots[i], p, count, err));
    }
    if (p->opt.order == LOADER_ORDER_BLOCK) {
        p->claims = calloc(count, sizeof(*p->claims));
        FAIL_IF(p->claims == NULL, err, STATUS_NOMEM, "out of memory for a batch of %zu samples",
                count);
    }
    return STATUS_OK;
}

static enum status make_threads(struct loader *l, struct error *err) {
    struct pipeline *p = &l->p;
    l->thread_count = p->reader_count + p->thread_count + (p->quarantine != NULL);
    l->threads = calloc(l->thread_count, sizeof(*l->threads));
    p->corrupt_list = calloc(LOADER_MAX_CORRUPT_LIST, sizeof(*p->corrupt_list));
    FAIL_IF(l->threads == NULL || p->corrupt_list == NULL, err, STATUS_NOMEM,
            "out of memory for %u threads", l->thread_count);
    for (uint32_t i = 0; i < p->reader_count; i++) {
        TRY(reader_create(&l->threads[i].reader, p, err));
    }
    for (uint32_t i = 0; i < p->thread_count; i++) {
        TRY(sample_work_create(&l->threads[p->reader_count + i].work, &p->opt, p->sources,
                               p->tokenizer, err));
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->for_reader, NULL);
    pthread_cond_init(&p->for_decode, NULL);
    pthread_cond_init(&p->for_batch, NULL);
    pthread_cond_init(&p->for_record, NULL);
    pthread_cond_init(&p->for_exit, NULL);
    l->has_sync = true;
    return STATUS_OK;
}

static const char *shard_path(const void *cookie, uint32_t shard) {
    return sources_shard_path(cookie, shard);
}

static enum status open_parts(struct loader *l,
                              const struct loader_source *list,
                              uint32_t source_count,
                              const struct loader_state *start,
                              struct error *err) {
    struct pipeline *p = &l->p;
    TRY(sources_open(&l->sources, list, source_count, &p->opt.filter, err));
    if (p->opt.filter.ids != NULL) {
        const size_t bytes = p->opt.filter.id_count * sizeof(*p->opt.filter.ids);
        p->opt.filter.ids_hash = hash64(p->opt.filter.ids, bytes);
        p->opt.filter.ids = NULL;
    }
    p->sources = l->sources;
    if (p->opt.captions != LOADER_CAPTIONS_NONE && p->opt.caption_columns != NULL) {
        TRY(caption_columns_open(&l->sources->captions, p->opt.caption_columns, p->opt.positives,
                                 l->sources, err));
    }
    if (p->opt.columns != NULL) {
        TRY(loader_columns_open(&p->columns, &p->opt, l->sources, err));
    }
    if (p->opt.captions == LOADER_CAPTIONS_DRAWN) {
        TRY(open_tokenizer(l, list[0].directory, err));
    }
    p->tokenizer = l->tokenizer;
    count_caches(l);
    TRY(sampler_init(&p->sampler, l->sources->live_counts, l->sources->weights, source_count,
                     &p->opt, err));
    if (p->opt.order == LOADER_ORDER_CLASSES) {
        TRY(classes_create(&l->classes, l->sources, p->opt.block_count, err));
        TRY(sampler_use_classes(&p->sampler, l->classes, &p->opt, err));
    }
    if (start != NULL) {
        TRY(state_to_step(p, &p->take_step, start, err));
    }
    TRY(shard_files_create(&p->files, l->sources->shard_count, p->opt.direct, shard_path,
                           l->sources, err));
    if (p->opt.quarantine_path != NULL) {
        const struct file_system *fs = file_posix();
        TRY(fs->open(fs->context, &p->quarantine, p->opt.quarantine_path, FILE_APPEND_WRITE, err));
    }
    p->thread_count = p->opt.threads != 0 ? p->opt.threads : cpu_count();
    TRY(choose_engine(l, err));
    TRY(make_read_slots(l, err));
    TRY(make_batch_slots(l, err));
    TRY(make_threads(l, err));
    return threads_start(l, err);
}

enum status loader_open_with_engine(struct loader **out,
                                    const struct loader_source *sources,
                                    uint32_t source_count,
                                    const struct loader_options *opt,
                                    const struct read_engine_ops *engine,
                                    struct error *err) {
    REQUIRE(out != NULL && sources != NULL && opt != NULL);
    REQUIRE(source_count >= 1 && source_count <= LOADER_MAX_SOURCES);
    *out = NULL;
    TRY(options_check(opt));
    struct loader *l = calloc(1, sizeof(*l));
    TRY_MEMORY(l != NULL, err, "out of memory for the loader");
    l->p.opt = *opt;
    l->p.opt.start = NULL;
    l->p.engine = engine;
    enum status s = open_parts(l, sources, source_count, opt->start, err);
    /* The caller's bytes were copied or are no longer needed. */
    l->p.opt.tokenizer_model = NULL;
    l->p.opt.quarantine_path = NULL;
    RETURN_CREATED(s, out, l, loader_close);
}

enum status loader_open_mix(struct loader **out,
                            const struct loader_source *sources,
                            uint32_t source_count,
                            const struct loader_options *opt,
                            struct error *err) {
    return loader_open_with_engine(out, sources, source_count, opt, NULL, err);
}

enum status loader_open(struct loader **out,
                        const char *dataset_dir,
                        const struct loader_options *opt,
                        struct error *err) {
    REQUIRE(dataset_dir != NULL);
    return loader_open_mix(out, &(struct loader_source){.directory = dataset_dir}, 1, opt, err);
}

/* --- close --- */

void loader_free(struct loader *l) {
    struct pipeline *p = &l->p;
    if (l->threads != NULL) {
        for (uint32_t i = 0; i < l->thread_count; i++) {
            if (l->threads[i].reader != NULL && !reader_stop(l->threads[i].reader, 0)) {
                l->is_noisy = true;
            }
            reader_destroy(l->threads[i].reader);
            sample_work_destroy(l->threads[i].work);
        }
    }
    if (l->has_sync) {
        pthread_cond_destroy(&p->for_reader);
        pthread_cond_destroy(&p->for_decode);
        pthread_cond_destroy(&p->for_batch);
        pthread_cond_destroy(&p->for_record);
        pthread_cond_destroy(&p->for_exit);
        pthread_mutex_destroy(&p->lock);
    }
    free(p->batch_slots);
    free(p->read_slots);
    free(p->free_slots);
    free(p->ready_slots);
    free(p->claims);
    free(p->corrupt_list);
    if (!l->is_noisy) {
        free(l->read_memory);
    }
    free(l->threads);
    shard_files_destroy(p->files);
    file_posix()->close(p->quarantine);
    tokenizer_close(l->tokenizer);
    classes_destroy(l->classes);
    loader_columns_close(&p->columns);
    sources_close(l->sources);
    free(l);
}

void loader_close(struct loader *l) {
    if (l == NULL) {
        return;
    }
    if (!threads_stop(l, true)) {
        return;
    }
    if (l->is_noisy) {
        log_write(l->p.opt.log, LOG_LEVEL_WARN,
                  "reads hang in the kernel: their buffers are abandoned");
    }
    threads_release_batches(&l->p);
    loader_free(l);
}

/* --- use --- */

enum status loader_acquire_for(struct loader *l,
                               struct loader_batch *out,
                               int64_t timeout_ms,
                               struct error *err) {
    REQUIRE(l != NULL && out != NULL && timeout_ms >= 0 && timeout_ms <= LOADER_MAX_WAIT_MS);
    struct batch_slot *b = NULL;
    *out = (struct loader_batch){0};
    enum status s = pipeline_acquire(&l->p, &b, timeout_ms, err);
    if (s != STATUS_OK) {
        return s;
    }
    *out = batch_slot_view(b);
    out->slot = (uint32_t)(b - l->p.batch_slots);
    return STATUS_OK;
}

enum status loader_acquire(struct loader *l, struct loader_batch *out, struct error *err) {
    REQUIRE(l != NULL);
    return loader_acquire_for(l, out, l->p.opt.wait_timeout_ms, err);
}

void loader_release(struct loader *l, const struct loader_batch *batch) {
    if (l != NULL && batch != NULL && batch->sample_ids != NULL) {
        pipeline_release(&l->p, batch->slot);
    }
}

struct loader_state loader_state(const struct loader *l) {
    return state_make(&l->p, l->p.take_step);
}

enum status loader_seek(struct loader *l, const struct loader_state *state, struct error *err) {
    REQUIRE(l != NULL && state != NULL);
    uint64_t step = 0;
    TRY(state_to_step(&l->p, &step, state, err));
    FAIL_IF(l->p.held_count != 0, err, STATUS_INVALID,
            "%u batches are held: release them before seeking", l->p.held_count);
    if (!threads_stop(l, false) || l->is_noisy) {
        struct error why = {0};
        enum status s = error_set(&why, STATUS_TIMEOUT,
                                  "reads or writes do not finish: the loader can only be closed");
        pipeline_fail(&l->p, s, &why);
        return error_pass(err, s, &why);
    }
    l->p.take_step = step;
    return threads_start(l, err);
}

void loader_info(const struct loader *l, struct loader_info *out) {
    const struct pipeline *p = &l->p;
    *out = (struct loader_info){
        .sample_count = p->sampler.sample_count,
        .id_space = p->sources->id_space,
        .text_count = p->sources->text_count,
        .fingerprint = sources_fingerprint(p->sources),
        .source_count = p->sources->count,
        .cached_count = l->cached_count,
        .steps_per_epoch = p->sampler.steps_per_epoch,
        .max_local_count = sampler_max_count(&p->sampler),
        .vocab_count = p->tokenizer != NULL ? tokenizer_vocab_count(p->tokenizer) : 0,
        .threads = p->thread_count,
        .engine = p->engine->name,
        .columns = p->columns.items,
        .column_count = p->columns.count,
        .column_values = p->columns.values,
    };
}

struct pipeline *loader_pipeline(struct loader *l) {
    return &l->p;
}

const struct sources *loader_sources(const struct loader *l) {
    return l->sources;
}

const struct dataset *loader_dataset(const struct loader *l, uint32_t source) {
    return source < l->sources->count ? l->sources->items[source].dataset : NULL;
}

const struct tokenizer *loader_tokenizer(const struct loader *l) {
    return l->tokenizer;
}
