/*
 * ccbench limit: the rate of decoding, augmenting and tokenizing alone. A shared counter gives each
 * thread the next sample, so that all threads end together although images differ in cost. Each
 * crop is drawn for (epoch, id) as in the loader.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "loader/sample_work.h"
#include "loader/sampler.h"
#include "tools/ccbench/ccbench_internal.h"

struct bench_image {
    struct source_sample sample;
    uint64_t epoch;
    uint8_t *span;
};

struct bench_thread {
    struct bench_worker base;
    struct bench_limit *bench;
    struct sample_work *work;
    uint8_t *span;                     /* room for one: images in several pieces are put together in
                                          a copy */
    uint8_t *views[AUGMENT_MAX_VIEWS]; /* (S, S, 3) each */
    int32_t *tokens;
    struct hasher *digest; /* NULL: none */
};

struct bench_limit {
    uint32_t thread_count;
    uint32_t views;
    size_t pixel_bytes; /* of a view */
    size_t token_bytes;
    struct bench_thread *threads;
    struct bench_image *images;
    uint64_t image_count;
    uint64_t wanted_count; /* fixed while threads run */
    /* Next sample of all threads; relaxed, because it orders no other memory. */
    atomic_uint_fast64_t next;
};

enum { MAX_IMAGES = 1 << 20 };

/* --- the samples --- */

/* Reads the samples of the batches in the order of delivery, as far as there is room. */
static enum status read_images(struct bench_limit *b,
                               const struct sources *sources,
                               const struct sampler *sampler,
                               uint64_t first_step,
                               uint64_t step_count,
                               struct error *err) {
    uint64_t left_bytes = (uint64_t)BENCH_MAX_MEMORY_MIB << 20;
    b->images = calloc(MAX_IMAGES, sizeof(*b->images));
    TRY_MEMORY(b->images, err, "out of memory for the images");
    for (uint64_t step = first_step; step - first_step < step_count; step++) {
        struct sampler_batch batch;
        if (sampler_batch_at(sampler, step, &batch) != STATUS_OK) {
            return STATUS_OK;
        }
        for (uint32_t i = 0; i < batch.count; i++) {
            struct sampler_place place = sampler_place_at(sampler, &batch, i);
            struct bench_image *image = &b->images[b->image_count];
            image->epoch = batch.epoch;
            if (sources_sample_at(sources, place.source, place.ordinal, &image->sample, err) !=
                STATUS_OK) {
                continue; /* the loader replaces it */
            }
            if (b->image_count + 1 == MAX_IMAGES ||
                image->sample.sample.image_span_bytes > left_bytes) {
                return STATUS_OK;
            }
            left_bytes -= image->sample.sample.image_span_bytes;
            b->image_count++; /* counted first, so that the memory of a failed read is freed */
            TRY(bench_read_span(&image->span, sources_shard_path(sources, image->sample.shard),
                                &image->sample.sample, err));
        }
        FAIL_IF(cli_interrupted(), err, STATUS_INTERRUPTED, "interrupted");
    }
    return STATUS_OK;
}

/* --- life --- */

static enum status make_thread(struct bench_thread *t,
                               const struct loader_options *opt,
                               const struct sources *sources,
                               const struct tokenizer *tokenizer,
                               bool digest,
                               struct error *err) {
    bool enough = true;
    for (uint32_t v = 0; v < opt->views; v++) {
        t->views[v] = malloc(t->bench->pixel_bytes);
        enough = enough && t->views[v] != NULL;
    }
    t->span = malloc(sources_max_span_bytes(sources));
    t->tokens = calloc(opt->max_tokens, sizeof(*t->tokens));
    TRY_MEMORY(enough && t->span != NULL && t->tokens != NULL, err,
               "out of memory for the measuring threads");
    if (digest) {
        TRY(hasher_create(&t->digest, err));
    }
    return sample_work_create(&t->work, opt, sources, tokenizer, err);
}

enum status bench_limit_create(struct bench_limit **out,
                               const struct loader_options *opt,
                               uint32_t threads,
                               const struct sources *sources,
                               const struct tokenizer *tokenizer,
                               uint64_t first_step,
                               uint64_t step_count,
                               bool digest,
                               struct error *err) {
    enum status s;
    struct sampler sampler;
    *out = NULL;
    TRY(sampler_init(&sampler, sources->live_counts, sources->weights, sources->count, opt, err));
    struct bench_limit *b = calloc(1, sizeof(*b));
    TRY_MEMORY(b, err, "out of memory for the measurement");
    b->views = opt->views;
    b->pixel_bytes = (size_t)opt->image_size_px * opt->image_size_px * 3;
    b->token_bytes = opt->max_tokens * sizeof(int32_t);
    b->threads = calloc(threads, sizeof(*b->threads));
    if (b->threads == NULL) {
        s = error_set(err, STATUS_NOMEM, "out of memory for %u threads", threads);
        goto fail;
    }
    b->thread_count = threads;
    for (uint32_t i = 0; i < threads; i++) {
        b->threads[i].bench = b;
        TRY_OR_FAIL(s, make_thread(&b->threads[i], opt, sources, tokenizer, digest, err));
    }
    TRY_OR_FAIL(s, read_images(b, sources, &sampler, first_step, step_count, err));
fail:
    RETURN_CREATED(s, out, b, bench_limit_destroy);
}

void bench_limit_destroy(struct bench_limit *b) {
    if (b == NULL) {
        return;
    }
    for (uint32_t i = 0; i < b->thread_count; i++) {
        struct bench_thread *t = &b->threads[i];
        sample_work_destroy(t->work);
        for (uint32_t v = 0; v < AUGMENT_MAX_VIEWS; v++) {
            free(t->views[v]);
        }
        free(t->span);
        free(t->tokens);
        hasher_destroy(t->digest);
    }
    for (uint64_t i = 0; b->images != NULL && i < b->image_count; i++) {
        free(b->images[i].span);
    }
    free(b->images);
    free(b->threads);
    free(b);
}

uint64_t bench_limit_count(const struct bench_limit *b) {
    return b->image_count;
}

/* --- the loop --- */

static enum status one_sample(struct bench_thread *t, uint64_t k, struct error *err) {
    struct bench_limit *b = t->bench;
    const struct bench_image *image = &b->images[k % b->image_count];
    const struct dataset_sample *sample = &image->sample.sample;
    uint8_t *span = image->span;
    int32_t length;
    uint64_t text_id;
    uint32_t caption;
    if (sample->image_span_bytes != sample->image_bytes) {
        memcpy(t->span, image->span, sample->image_span_bytes);
        span = t->span;
    }
    TRY(sample_work_image(t->work, t->views, &image->sample, span, image->epoch, 0, err));
    TRY(sample_work_text(t->work, t->tokens, &length, &text_id, &caption, &image->sample,
                         image->epoch, 0, err));
    if (t->digest != NULL) {
        for (uint32_t v = 0; v < b->views; v++) {
            hasher_update(t->digest, t->views[v], b->pixel_bytes);
        }
        hasher_update(t->digest, t->tokens, b->token_bytes);
    }
    return STATUS_OK;
}

static void *thread_main(void *arg) {
    struct bench_thread *t = arg;
    struct bench_limit *b = t->bench;
    for (;;) {
        uint64_t k = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed);
        if (k >= b->wanted_count || cli_interrupted()) {
            return NULL;
        }
        enum status s = one_sample(t, k, &t->base.err);
        bool is_damage = s == STATUS_CORRUPT || s == STATUS_UNSUPPORTED || s == STATUS_LIMIT;
        if (s < STATUS_OK && !is_damage) {
            t->base.status = s;
            return NULL;
        }
    }
}

enum status bench_limit_run(struct bench_limit *b,
                            double *pairs_per_s,
                            uint64_t pairs_count,
                            struct error *err) {
    REQUIRE(b->image_count > 0 && pairs_count > 0);
    b->wanted_count = pairs_count;
    atomic_store_explicit(&b->next, 0, memory_order_relaxed);
    int64_t begin_ns = clock_now_ns();
    TRY(bench_run_threads(b->threads, sizeof(*b->threads), b->thread_count, thread_main, err));
    *pairs_per_s = (double)pairs_count / ((double)(clock_now_ns() - begin_ns) / 1e9);
    return STATUS_OK;
}
