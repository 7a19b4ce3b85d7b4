/*
 * ccbench limit: the bare rate of decoding, augmenting and tokenizing. A shared counter gives each
 * thread the next sample, so that all threads end together however unequal the pictures are, and
 * each crop is drawn for (epoch, id) just as in the loader.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/rng.h"
#include "formats/dataset.h"
#include "loader/sample_work.h"
#include "tools/ccbench_internal.h"

struct bench_image {
    struct dataset_sample sample;
    uint8_t *span;
};

struct bench_thread {
    struct bench_limit *bench;
    struct sample_work *work;
    uint8_t *span;   /* room for one: images in several pieces are put together in a copy */
    uint8_t *pixels; /* (S, S, 3) */
    int32_t *tokens;
    pthread_t thread;
    uint64_t counted; /* finished inside the measured time */
    enum status status;
    struct error err;
};

struct bench_limit {
    uint32_t thread_count;
    struct bench_thread *threads;
    struct bench_image *images;
    uint64_t image_count;
    int64_t from_ns, to_ns; /* the measured time; fixed while threads run */
    /* Next sample over all threads; relaxed, since nothing else is told by it. */
    atomic_uint_fast64_t next;
};

static enum status read_image(struct bench_image *image,
                              const struct dataset *dataset,
                              uint64_t position,
                              struct error *err) {
    const struct file_system *fs = file_posix();
    struct file *f = NULL;
    size_t got = 0;
    TRY(dataset_sample_at(dataset, position, &image->sample, err));
    const char *path = dataset_shard_path(dataset, image->sample.shard);
    image->span = malloc(image->sample.image_span_bytes);
    if (image->span == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for the images");
    }
    TRY(fs->open(fs->context, &f, path, FILE_READ, err));
    enum status s = fs->pread(f, image->span, &got, image->sample.image_span_bytes,
                              image->sample.image_offset, err);
    fs->close(f);
    TRY(s);
    if (got != image->sample.image_span_bytes) {
        return error_set(err, STATUS_CORRUPT, "%s: the file ends inside an image", path);
    }
    return STATUS_OK;
}

static enum status read_images(struct bench_limit *b,
                               const struct dataset *dataset,
                               uint64_t seed,
                               struct error *err) {
    uint64_t n = dataset_sample_count(dataset);
    uint64_t left_bytes = (uint64_t)BENCH_MAX_MEMORY_MIB << 20;
    struct permutation order;
    permutation_init(&order, n, seed, 0);
    uint64_t most = n < 1 << 20 ? n : 1 << 20;
    b->images = calloc(most, sizeof(*b->images));
    if (b->images == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for the images");
    }
    while (b->image_count < most) {
        struct bench_image *image = &b->images[b->image_count];
        if (cli_interrupted()) {
            return error_set(err, STATUS_INTERRUPTED, "stopped on request");
        }
        /* Counted first, so that what a failed read has allocated is freed. */
        TRY(read_image(image, dataset, permutation_at(&order, b->image_count++), err));
        if (image->sample.image_span_bytes > left_bytes) {
            break;
        }
        left_bytes -= image->sample.image_span_bytes;
    }
    return STATUS_OK;
}

enum status bench_limit_create(struct bench_limit **out,
                               const struct loader_options *opt,
                               uint32_t threads,
                               const struct dataset *dataset,
                               const struct tokenizer *tokenizer,
                               struct error *err) {
    size_t pixel_bytes = (size_t)opt->image_size_px * opt->image_size_px * 3;
    enum status s;
    *out = NULL;
    struct bench_limit *b = calloc(1, sizeof(*b));
    if (b == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for the measurement");
    }
    b->threads = calloc(threads, sizeof(*b->threads));
    if (b->threads == NULL) {
        s = error_set(err, STATUS_NOMEM, "out of memory for %u threads", threads);
        goto fail;
    }
    b->thread_count = threads;
    for (uint32_t i = 0; i < threads; i++) {
        struct bench_thread *t = &b->threads[i];
        t->bench = b;
        t->span = malloc(dataset_max_image_span_bytes(dataset));
        t->pixels = malloc(pixel_bytes);
        t->tokens = calloc(opt->max_tokens, sizeof(*t->tokens));
        if (t->span == NULL || t->pixels == NULL || t->tokens == NULL) {
            s = error_set(err, STATUS_NOMEM, "out of memory for %u threads", threads);
            goto fail;
        }
        TRY_OR_FAIL(s, sample_work_create(&t->work, opt, dataset, tokenizer, err));
    }
    TRY_OR_FAIL(s, read_images(b, dataset, opt->seed, err));
    *out = b;
    return STATUS_OK;
fail:
    bench_limit_destroy(b);
    return s;
}

void bench_limit_destroy(struct bench_limit *b) {
    if (b == NULL) {
        return;
    }
    for (uint32_t i = 0; i < b->thread_count; i++) {
        sample_work_destroy(b->threads[i].work);
        free(b->threads[i].span);
        free(b->threads[i].pixels);
        free(b->threads[i].tokens);
    }
    for (uint64_t i = 0; b->images != NULL && i < b->image_count; i++) {
        free(b->images[i].span);
    }
    free(b->images);
    free(b->threads);
    free(b);
}

static enum status one_sample(struct bench_thread *t, struct error *err) {
    struct bench_limit *b = t->bench;
    uint64_t k = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed);
    const struct bench_image *image = &b->images[k % b->image_count];
    uint64_t epoch = k / b->image_count;
    uint8_t *span = image->span;
    int32_t length;
    uint64_t text_id;
    if (image->sample.image_span_bytes != image->sample.image_bytes) {
        memcpy(t->span, image->span, image->sample.image_span_bytes);
        span = t->span;
    }
    TRY(sample_work_image(t->work, t->pixels, &image->sample, span, epoch, err));
    return sample_work_text(t->work, t->tokens, &length, &text_id, &image->sample, epoch, err);
}

static void *thread_main(void *arg) {
    struct bench_thread *t = arg;
    const struct bench_limit *b = t->bench;
    int64_t now_ns = clock_now_ns();
    while (now_ns < b->to_ns) {
        enum status s = one_sample(t, &t->err);
        now_ns = clock_now_ns();
        bool is_damage = s == STATUS_CORRUPT || s == STATUS_UNSUPPORTED || s == STATUS_LIMIT;
        if (s < STATUS_OK && !is_damage) {
            t->status = s;
            break;
        }
        t->counted += s == STATUS_OK && now_ns >= b->from_ns && now_ns < b->to_ns;
    }
    return NULL;
}

enum status bench_limit_run(struct bench_limit *b,
                            double *pairs_per_s,
                            int64_t warm_ns,
                            int64_t measure_ns,
                            struct error *err) {
    uint64_t counted = 0;
    uint32_t started = 0;
    enum status s = STATUS_OK;
    b->from_ns = clock_now_ns() + warm_ns;
    b->to_ns = b->from_ns + measure_ns;
    while (started < b->thread_count && s == STATUS_OK) {
        struct bench_thread *t = &b->threads[started];
        t->counted = 0;
        t->status = STATUS_OK;
        int e = pthread_create(&t->thread, NULL, thread_main, t);
        if (e != 0) {
            s = error_set(err, STATUS_NOMEM, "cannot start a thread: %s", strerror(e));
        } else {
            started++;
        }
    }
    for (uint32_t i = 0; i < started; i++) {
        struct bench_thread *t = &b->threads[i];
        pthread_join(t->thread, NULL);
        counted += t->counted;
        if (s == STATUS_OK && t->status < STATUS_OK) {
            s = t->status;
            *err = t->err;
        }
    }
    *pairs_per_s = (double)counted / ((double)measure_ns / 1e9);
    return s;
}
