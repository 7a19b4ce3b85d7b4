/*
 * The loader, with batches that any thread may release at any time, also after the loader is
 * closed.
 *
 * The handle outlives its loader while batches are held. Memory of batches comes through it: a
 * block that the closed loader releases while its batch is held is kept, and freed by the batch's
 * own release; the last one frees the handle.
 *
 *     open                  closed                            gone
 *     inside != NULL   -->  inside == NULL, held_count > 0 --> free
 *
 * `lock` guards what next, release and close share. It is held while the inside loader takes a
 * batch back, so that close and seek never run at the same time; it is not held while next waits.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bindings/c/api_entry_internal.h"
#include "bindings/c/loader_internal.h"
#include "bindings/c/pixels_internal.h"
#include "formats/base/file_io.h"
#include "formats/tokenizer/tokenizer.h"

enum { MAX_SLOTS = LOADER_MAX_PREFETCH + 1 };

/* What a row has besides the arrays: bytes of any number, in memory that grows with the longest.
 * Written by the thread that makes the row, while nobody holds the batch. */
struct row_bytes {
    struct ccs_text *views; /* (rows); NULL: not asked for */
    size_t *capacities;     /* (rows) of what the views point to */
};

struct slot {
    struct ccs_batch batch; /* first: a batch is found by its address */
    struct ccs_loader *owner;
    struct loader_batch inside;
    bool held;
    bool orphaned; /* the closed loader has released its memory */
    struct row_bytes texts, encoded;
};

struct ccs_loader {
    pid_t process;
    struct loader_options opt; /* as the inside loader got them; the tokenizer was the caller's */
    struct log_sink sink;
    void (*log)(void *cookie, const char *line);
    void *log_cookie;
    struct host_memory memory; /* of the caller, or ordinary */
    bool has_tokens;
    struct pixel_table pixels;
    uint32_t row_count; /* of a batch, at most */

    pthread_mutex_t lock;  /* guards everything below */
    struct loader *inside; /* NULL: closed. Changes only in open and close */
    uint32_t held_count;
    uint32_t block_count; /* of memory, not yet released by the inside loader */
    bool closed;          /* nothing is logged any more */
    struct slot slots[MAX_SLOTS];
};

/* ---- what the inside loader calls --------------------------------------------------------- */

static void *alloc_block(void *cookie, size_t size) {
    struct ccs_loader *l = cookie;
    /* Without rows too, batches have addresses of their own. */
    void *data = l->memory.alloc(l->memory.cookie, size > 0 ? size : 64);
    pthread_mutex_lock(&l->lock);
    l->block_count += data != NULL;
    pthread_mutex_unlock(&l->lock);
    return data;
}

/* Where its block begins: with images, or without views with tokens. */
static const void *block_of(const struct loader_batch *b) {
    return b->images != NULL ? (const void *)b->images : b->tokens;
}

static void release_block(void *cookie, void *data) {
    struct ccs_loader *l = cookie;
    bool kept = false;
    if (data == NULL) {
        return;
    }
    pthread_mutex_lock(&l->lock);
    l->block_count--;
    for (size_t i = 0; i < MAX_SLOTS && !kept; i++) {
        struct slot *slot = &l->slots[i];
        kept = slot->held && block_of(&slot->inside) == data;
        slot->orphaned = slot->orphaned || kept;
    }
    pthread_mutex_unlock(&l->lock);
    if (!kept) {
        l->memory.release(l->memory.cookie, data);
    }
}

static void write_log(void *cookie, enum log_level level, const char *text) {
    struct ccs_loader *l = cookie;
    (void)level;
    pthread_mutex_lock(&l->lock);
    bool closed = l->closed;
    pthread_mutex_unlock(&l->lock);
    if (!closed) {
        l->log(l->log_cookie, text);
    }
}

/* The memory is the handle's, and mutable. */
static void *writable(const void *data) {
    return (void *)(uintptr_t)data;
}

static void write_pixels(void *cookie, void *out, const uint8_t *rgb) {
    const struct ccs_loader *l = cookie;
    pixel_table_write(&l->pixels, out, rgb);
}

static enum status
copy_row(struct row_bytes *r, uint32_t row, const void *data, size_t size, struct error *err) {
    struct ccs_text *view = &r->views[row];
    if (size > r->capacities[row]) {
        void *grown = realloc(writable(view->data), size);
        TRY_MEMORY(grown != NULL, err, "out of memory for a row of %zu bytes", size);
        view->data = grown;
        r->capacities[row] = size;
    }
    if (size > 0) {
        memcpy(writable(view->data), data, size);
    }
    view->size = size;
    return STATUS_OK;
}

static enum status keep_sample(void *cookie,
                               uint32_t slot,
                               uint32_t row,
                               const uint8_t *image,
                               size_t image_bytes,
                               const char *text,
                               size_t text_bytes,
                               struct error *err) {
    struct ccs_loader *l = cookie;
    if (l->slots[slot].texts.views != NULL) {
        TRY(copy_row(&l->slots[slot].texts, row, text, text_bytes, err));
    }
    return l->slots[slot].encoded.views != NULL
               ? copy_row(&l->slots[slot].encoded, row, image, image_bytes, err)
               : STATUS_OK;
}

/* ---- open and close ----------------------------------------------------------------------- */

static void free_rows(struct row_bytes *r, uint32_t count) {
    for (uint32_t i = 0; r->views != NULL && i < count; i++) {
        free(writable(r->views[i].data));
    }
    free(r->views);
    free(r->capacities);
}

static void free_handle(struct ccs_loader *l) {
    for (size_t i = 0; i < MAX_SLOTS; i++) {
        free_rows(&l->slots[i].texts, l->row_count);
        free_rows(&l->slots[i].encoded, l->row_count);
    }
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* Whether nothing refers to the handle any more. Requires the lock. Threads that hang in reads are
 * abandoned with the memory that they may still write to, and with the handle. */
static bool is_over(const struct ccs_loader *l) {
    return l->closed && l->held_count == 0 && l->block_count == 0;
}

static enum status make_rows(struct row_bytes *r, uint32_t count, struct error *err) {
    r->views = calloc(count, sizeof(*r->views));
    r->capacities = calloc(count, sizeof(*r->capacities));
    FAIL_IF(r->views == NULL || r->capacities == NULL, err, STATUS_NOMEM,
            "out of memory for a batch of %u samples", count);
    return STATUS_OK;
}

/* What the loader calls for each sample. */
static enum status
make_hooks(struct ccs_loader *l, const struct ccs_loader_options *o, struct error *err) {
    TRY(pixel_table_init(&l->pixels, o, err));
    if (!pixel_table_is_plain(&l->pixels)) {
        l->opt.hooks.pixels = write_pixels;
        l->opt.hooks.pixel_bytes = 3 * l->pixels.element_bytes;
    }
    l->row_count = (o->batch_size + o->world - 1) / o->world;
    for (uint32_t i = 0; i <= o->prefetch && (o->texts || o->encoded); i++) {
        if (o->texts) {
            TRY(make_rows(&l->slots[i].texts, l->row_count, err));
        }
        if (o->encoded) {
            TRY(make_rows(&l->slots[i].encoded, l->row_count, err));
        }
        l->opt.hooks.sample = keep_sample;
        l->opt.hooks.wants_image = o->encoded;
    }
    l->opt.hooks.cookie = l;
    return STATUS_OK;
}

static enum status
make_handle(struct ccs_loader **out, const struct ccs_loader_options *given, struct error *err) {
    const struct ccs_loader_options o = *given;
    struct loader_options opt;
    TRY(loader_convert_options(&opt, &o, err));
    struct ccs_loader *l = calloc(1, sizeof(*l));
    TRY_MEMORY(l, err, "out of memory for the loader");
    l->process = getpid();
    l->opt = opt;
    l->memory = host_memory_default();
    if (o.allocator.alloc != NULL) {
        l->memory =
            (struct host_memory){o.allocator.alloc, o.allocator.release, o.allocator.cookie};
    }
    l->log = o.log;
    l->log_cookie = o.log_cookie;
    l->sink = (struct log_sink){write_log, l, LOG_LEVEL_INFO};
    l->opt.host_memory = (struct host_memory){alloc_block, release_block, l};
    l->opt.log = o.log != NULL ? &l->sink : NULL;
    pthread_mutex_init(&l->lock, NULL);
    enum status s = make_hooks(l, &o, err);
    if (s < STATUS_OK) {
        free_handle(l);
        return s;
    }
    *out = l;
    return STATUS_OK;
}

/* With the tokenizer of a file, if one is named. */
static enum status open_inside(struct ccs_loader *l,
                               const struct loader_source *sources,
                               uint32_t count,
                               const char *tokenizer_path,
                               struct error *err) {
    struct loader_options opt = l->opt;
    struct tokenizer *tokenizer = NULL;
    if (tokenizer_path != NULL) {
        TRY(tokenizer_load(&tokenizer, tokenizer_path, err));
        opt.tokenizer_model = tokenizer_bytes(tokenizer, &opt.tokenizer_model_size_bytes);
    }
    enum status s = loader_open_mix(&l->inside, sources, count, &opt, err);
    tokenizer_close(tokenizer);
    return s;
}

static enum status open_sources(struct ccs_loader **out,
                                const struct loader_source *sources,
                                uint32_t count,
                                const struct ccs_loader_options *opt,
                                struct error *err) {
    struct ccs_loader *l = NULL;
    struct loader_info info;
    for (uint32_t i = 0; i < count; i++) {
        TRY(api_open_remote(sources[i].directory, err));
    }
    struct ccs_loader_options given;
    TRY(loader_take_options(&given, opt, err));
    TRY(make_handle(&l, &given, err));
    enum status s = open_inside(l, sources, count, given.tokenizer_path, err);
    if (s < STATUS_OK) {
        ccs_loader_close(l);
        return s;
    }
    loader_info(l->inside, &info);
    l->has_tokens = info.vocab_count > 0;
    *out = l;
    return STATUS_OK;
}

static enum status open_one(struct ccs_loader **out,
                            const char *dataset,
                            const struct ccs_loader_options *opt,
                            struct error *err) {
    CHECK_ARGUMENT(out != NULL, err, "out is NULL");
    *out = NULL;
    CHECK_ARGUMENT(dataset != NULL, err, "dataset is NULL");
    return open_sources(out, &(struct loader_source){.directory = dataset}, 1, opt, err);
}

int32_t ccs_loader_open(struct ccs_loader **out,
                        const char *dataset,
                        const struct ccs_loader_options *opt,
                        struct ccs_error *err) {
    struct error e = {0};
    const struct api_numbers n = api_enter_numbers();
    const enum status s = open_one(out, dataset, opt, &e);
    api_leave_numbers(n);
    return api_result(err, s, &e);
}

_Static_assert((int)CCS_MAX_SOURCES == (int)LOADER_MAX_SOURCES, "sources");

static enum status open_mix(struct ccs_loader **out,
                            const char *const *datasets,
                            uint32_t count,
                            const struct ccs_loader_options *opt,
                            struct error *err) {
    CHECK_ARGUMENT(out != NULL, err, "out is NULL");
    *out = NULL;
    CHECK_ARGUMENT(datasets != NULL, err, "datasets is NULL");
    CHECK_ARGUMENT(count >= 1 && count <= CCS_MAX_SOURCES, err, "count is not 1 to 16 datasets");
    struct loader_source sources[CCS_MAX_SOURCES];
    char(*directories)[PATH_MAX_BYTES] = malloc(count * sizeof(*directories));
    TRY_MEMORY(directories, err, "out of memory for the loader");
    enum status s = STATUS_OK;
    for (uint32_t i = 0; i < count && s == STATUS_OK; i++) {
        s = datasets[i] != NULL ? loader_source_parse(&sources[i], directories[i],
                                                      sizeof(directories[i]), datasets[i], err)
                                : error_set(err, STATUS_INVALID, "dataset %u is NULL", i);
    }
    THEN(s, open_sources(out, sources, count, opt, err));
    free(directories);
    return s;
}

int32_t ccs_loader_open_mix(struct ccs_loader **out,
                            const char *const *datasets,
                            uint32_t count,
                            const struct ccs_loader_options *opt,
                            struct ccs_error *err) {
    struct error e = {0};
    const struct api_numbers n = api_enter_numbers();
    const enum status s = open_mix(out, datasets, count, opt, &e);
    api_leave_numbers(n);
    return api_result(err, s, &e);
}

void ccs_loader_close(struct ccs_loader *l) {
    if (l == NULL || api_check_process(l->process, NULL) != STATUS_OK) {
        return;
    }
    pthread_mutex_lock(&l->lock);
    struct loader *inside = l->inside;
    l->inside = NULL;
    pthread_mutex_unlock(&l->lock);
    loader_close(inside);
    pthread_mutex_lock(&l->lock);
    l->closed = true;
    bool over = is_over(l);
    pthread_mutex_unlock(&l->lock);
    if (over) {
        free_handle(l);
    }
}

/* ---- batches ------------------------------------------------------------------------------ */

static const struct ccs_batch *hold(struct ccs_loader *l, const struct loader_batch *b) {
    struct slot *slot = &l->slots[b->slot];
    pthread_mutex_lock(&l->lock);
    l->held_count++;
    slot->owner = l;
    slot->inside = *b;
    slot->held = true;
    slot->orphaned = false;
    slot->batch = (struct ccs_batch){
        .struct_size = sizeof(slot->batch),
        .count = b->count,
        .side_px = l->opt.image_size_px,
        .max_tokens = l->opt.max_tokens,
        .replaced = b->replaced_count,
        .epoch = b->epoch,
        .step = b->step,
        .images = writable(b->images),
        .images2 = writable(b->images2),
        .tokens = l->has_tokens ? writable(b->tokens) : NULL,
        .lengths = l->has_tokens ? writable(b->lengths) : NULL,
        .ids = writable(b->sample_ids),
        .caption_ids = writable(b->text_ids),
        .labels = writable(b->labels),
        .captions = writable(b->captions),
        .texts = slot->texts.views,
        .encoded = slot->encoded.views,
        .pixels = l->pixels.type,
        .planar = l->pixels.planar,
    };
    pthread_mutex_unlock(&l->lock);
    return &slot->batch;
}

static enum status
next(struct ccs_loader *l, const struct ccs_batch **out, int64_t timeout_ms, struct error *err) {
    CHECK_ARGUMENT(out != NULL, err, "out is NULL");
    *out = NULL;
    CHECK_ARGUMENT(l != NULL, err, "the loader is NULL");
    CHECK_ARGUMENT(timeout_ms >= 0, err, "timeout_ms is negative");
    TRY(api_check_process(l->process, err));
    struct loader_batch b;
    enum status s = loader_acquire_for(
        l->inside, &b, timeout_ms < LOADER_MAX_WAIT_MS ? timeout_ms : LOADER_MAX_WAIT_MS, err);
    if (s == STATUS_OK) {
        *out = hold(l, &b);
    }
    return s;
}

int32_t ccs_loader_next(struct ccs_loader *l,
                        const struct ccs_batch **out,
                        int64_t timeout_ms,
                        struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, next(l, out, timeout_ms, &e), &e);
}

void ccs_batch_release(const struct ccs_batch *b) {
    struct slot *slot = writable(b);
    if (b == NULL || api_check_process(slot->owner->process, NULL) != STATUS_OK) {
        return;
    }
    struct ccs_loader *l = slot->owner;
    const struct host_memory memory = l->memory; /* close may free the handle after the lock */
    void *orphan = NULL;
    bool over = false;
    pthread_mutex_lock(&l->lock);
    if (slot->held) {
        slot->held = false;
        l->held_count--;
        orphan = slot->orphaned ? writable(block_of(&slot->inside)) : NULL;
        if (l->inside != NULL) {
            loader_release(l->inside, &slot->inside);
        }
        over = is_over(l);
    }
    pthread_mutex_unlock(&l->lock);
    if (orphan != NULL) {
        memory.release(memory.cookie, orphan);
    }
    if (over) {
        free_handle(l);
    }
}

/* ---- position and numbers ----------------------------------------------------------------- */

static enum status
get_state(const struct ccs_loader *l, struct ccs_loader_state *out, struct error *err) {
    CHECK_ARGUMENT(l != NULL && out != NULL, err, "the loader or out is NULL");
    TRY(api_check_process(l->process, err));
    const struct loader_state own = loader_state(l->inside);
    struct ccs_loader_state mine = {
        .fingerprint = own.fingerprint,
        .seed = own.seed,
        .epoch = own.epoch,
        .step = own.step,
        .filter = own.filter,
        .order = own.order,
        .mix = own.mix,
        .batch_size = own.batch_count,
        .sources = own.source_count,
    };
    for (uint32_t i = 0; i < own.source_count; i++) {
        mine.source_fingerprints[i] = own.sources[i].fingerprint;
        mine.source_id_offsets[i] = own.sources[i].id_offset;
    }
    return api_give(out, &mine, sizeof(mine), err);
}

int32_t ccs_loader_get_state(const struct ccs_loader *l,
                             struct ccs_loader_state *out,
                             struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, get_state(l, out, &e), &e);
}

static enum status
seek(struct ccs_loader *l, const struct ccs_loader_state *state, struct error *err) {
    CHECK_ARGUMENT(l != NULL && state != NULL, err, "the loader or the state is NULL");
    TRY(api_check_process(l->process, err));
    struct ccs_loader_state theirs = {0};
    TRY(api_take(&theirs, sizeof(theirs), state, err));
    struct loader_state own = {
        .fingerprint = theirs.fingerprint,
        .seed = theirs.seed,
        .epoch = theirs.epoch,
        .step = theirs.step,
        .filter = theirs.filter,
        .order = theirs.order,
        .mix = theirs.mix,
        .batch_count = theirs.batch_size,
        .source_count = theirs.sources,
    };
    CHECK_ARGUMENT(theirs.sources <= CCS_MAX_SOURCES, err, "the state has more than 16 sources");
    for (uint32_t i = 0; i < theirs.sources; i++) {
        own.sources[i].fingerprint = theirs.source_fingerprints[i];
        own.sources[i].id_offset = theirs.source_id_offsets[i];
    }
    pthread_mutex_lock(&l->lock); /* the last release has ended, and no batch can be taken */
    uint32_t held_count = l->held_count;
    pthread_mutex_unlock(&l->lock);
    FAIL_IF(held_count > 0, err, STATUS_INVALID, "%u batches are held: release them before seeking",
            held_count);
    return loader_seek(l->inside, &own, err);
}

int32_t
ccs_loader_seek(struct ccs_loader *l, const struct ccs_loader_state *state, struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, seek(l, state, &e), &e);
}

static enum status
get_info(const struct ccs_loader *l, struct ccs_loader_info *info, struct error *err) {
    CHECK_ARGUMENT(l != NULL && info != NULL, err, "the loader or info is NULL");
    TRY(api_check_process(l->process, err));
    struct loader_info own;
    loader_info(l->inside, &own);
    struct ccs_loader_info mine = {
        .samples = own.sample_count,
        .captions = own.text_count,
        .id_space = own.id_space,
        .fingerprint = own.fingerprint,
        .steps = own.steps_per_epoch,
        .max_count = own.max_local_count,
        .vocabulary = own.vocab_count,
        .threads = own.threads,
        .sources = own.source_count,
        .engine = own.engine,
    };
    return api_give(info, &mine, sizeof(mine), err);
}

int32_t ccs_loader_get_info(const struct ccs_loader *l,
                            struct ccs_loader_info *info,
                            struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, get_info(l, info, &e), &e);
}

static enum status
get_stats(struct ccs_loader *l, struct ccs_loader_stats *out, struct error *err) {
    CHECK_ARGUMENT(l != NULL && out != NULL, err, "the loader or out is NULL");
    TRY(api_check_process(l->process, err));
    struct loader_stats own;
    loader_stats(l->inside, &own);
    struct ccs_loader_stats mine = {
        .samples = own.samples_count,
        .batches = own.deliver.items_count,
        .read_bytes = own.read.bytes,
        .read_requests = own.requests_count,
        .replaced = own.replaced_count,
        .corrupt = own.corrupt_count,
        .elapsed_ns = own.elapsed_ns,
        .stall_ns = own.consumer_stall_ns,
        .first_batch_ns = own.first_batch_ns,
    };
    return api_give(out, &mine, sizeof(mine), err);
}

int32_t
ccs_loader_get_stats(struct ccs_loader *l, struct ccs_loader_stats *out, struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, get_stats(l, out, &e), &e);
}
