/*
 * ccbench limit: the rate of decoding, augmenting and tokenizing alone. A shared counter assigns
 * the next sample to each thread, so that all threads finish together although images differ in
 * cost. Each crop is random by (epoch, id), as in the loader.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/file_io.h"
#include "loader/sample_work.h"
#include "loader/sampler.h"
#include "tools/ccbench/ccbench_internal.h"

struct bench_image {
    struct source_sample sample;
    uint64_t epoch;
    uint8_t *span;
};

struct bench_thread {
    struct bench_limit *bench;
    enum status status; /* of its part of a run; if not OK, see err */
    struct error err;
    struct sample_work *work;
    uint8_t *span; /* memory for one image: images in several pieces are copied together */
    uint8_t *views[AUGMENT_MAX_VIEWS]; /* (S, S, 3) each */
    int32_t *tokens;
};

struct bench_limit {
    uint32_t thread_count;
    struct bench_thread *threads;
    struct bench_image *images;
    uint64_t image_count;
    uint64_t wanted_count; /* fixed while threads run */
    /* Next sample of all threads; relaxed, because it orders no other memory. */
    atomic_uint_fast64_t next;
};

enum { MAX_IMAGES = 1 << 20 };

/* --- the samples --- */

/* Reads an image as stored in the shard, before shard_image_compact. The caller frees *out, even
 * after a failure. */
static enum status
read_span(uint8_t **out, const char *path, const struct dataset_sample *sample, struct error *err) {
    const struct file_system *fs = file_system_of(path);
    struct file *f = NULL;
    size_t got = 0;
    *out = malloc(sample->image_span_bytes);
    TRY_MEMORY(*out, err, "out of memory for the images");
    TRY(fs->open(fs->context, &f, path, FILE_READ, err));
    enum status s = fs->pread(f, *out, &got, sample->image_span_bytes, sample->image_offset, err);
    fs->close(f);
    TRY(s);
    FAIL_IF(got != sample->image_span_bytes, err, STATUS_CORRUPT,
            "%s: the file ends inside an image", path);
    return STATUS_OK;
}

/* Reads the samples of the batches in delivery order, as far as memory allows. */
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
            TRY(read_span(&image->span, sources_shard_path(sources, image->sample.shard),
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
                               struct error *err) {
    bool enough = true;
    for (uint32_t v = 0; v < opt->views; v++) {
        t->views[v] = malloc((size_t)opt->image_size_px * opt->image_size_px * 3);
        enough = enough && t->views[v] != NULL;
    }
    t->span = malloc(sources_max_span_bytes(sources));
    t->tokens = calloc(opt->max_tokens, sizeof(*t->tokens));
    TRY_MEMORY(enough && t->span != NULL && t->tokens != NULL, err,
               "out of memory for the measuring threads");
    return sample_work_create(&t->work, opt, sources, tokenizer, err);
}

static void close_limit(struct bench_limit *b) {
    for (uint32_t i = 0; b->threads != NULL && i < b->thread_count; i++) {
        struct bench_thread *t = &b->threads[i];
        sample_work_destroy(t->work);
        for (uint32_t v = 0; v < AUGMENT_MAX_VIEWS; v++) {
            free(t->views[v]);
        }
        free(t->span);
        free(t->tokens);
    }
    for (uint64_t i = 0; i < b->image_count; i++) {
        free(b->images[i].span);
    }
    free(b->images);
    free(b->threads);
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
    return STATUS_OK;
}

/* One thread's work. */
static void make_samples(struct bench_thread *t) {
    struct bench_limit *b = t->bench;
    t->status = STATUS_OK;
    while (t->status >= STATUS_OK && !cli_interrupted()) {
        const uint64_t k = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed);
        if (k >= b->wanted_count) {
            return;
        }
        const enum status s = one_sample(t, k, &t->err);
        const bool is_damage = s == STATUS_CORRUPT || s == STATUS_UNSUPPORTED || s == STATUS_LIMIT;
        t->status = is_damage ? STATUS_OK : s;
    }
}

/* Processes wanted_count samples on all threads, cycling through the images. */
static enum status make_all(struct bench_limit *b, struct error *err) {
#pragma omp parallel for schedule(static) num_threads((int)b->thread_count)
    for (uint32_t i = 0; i < b->thread_count; i++) {
        make_samples(&b->threads[i]);
    }
    for (uint32_t i = 0; i < b->thread_count; i++) {
        if (b->threads[i].status < STATUS_OK) {
            *err = b->threads[i].err;
            return b->threads[i].status;
        }
    }
    return cli_interrupted() ? error_set(err, STATUS_INTERRUPTED, "interrupted") : STATUS_OK;
}

enum status bench_limit(double *seconds,
                        double *cpu_seconds,
                        const struct loader_options *opt,
                        uint32_t threads,
                        const struct sources *sources,
                        const struct tokenizer *tokenizer,
                        uint64_t first_step,
                        uint64_t step_count,
                        uint64_t pairs_count,
                        struct error *err) {
    struct sampler sampler;
    struct bench_limit b = {.thread_count = threads, .wanted_count = pairs_count};
    enum status s =
        sampler_init(&sampler, sources->live_counts, sources->weights, sources->count, opt, err);
    TRY(s);
    b.threads = calloc(threads, sizeof *b.threads);
    s = b.threads != NULL ? STATUS_OK
                          : error_set(err, STATUS_NOMEM, "out of memory for %u threads", threads);
    for (uint32_t i = 0; s == STATUS_OK && i < threads; i++) {
        b.threads[i].bench = &b;
        s = make_thread(&b.threads[i], opt, sources, tokenizer, err);
    }
    THEN(s, read_images(&b, sources, &sampler, first_step, step_count, err));
    if (s == STATUS_OK && b.image_count > 0) {
        const int64_t begin_ns = clock_now_ns();
        const int64_t begin_cpu_ns = clock_process_cpu_ns();
        s = make_all(&b, err);
        *seconds = (double)(clock_now_ns() - begin_ns) * 1e-9;
        *cpu_seconds = (double)(clock_process_cpu_ns() - begin_cpu_ns) * 1e-9;
    }
    close_limit(&b);
    return s;
}
