/*
 * ccbench step, the step itself: the trainer's, on pairs of a dataset or on a generated batch, or
 * only one tower.
 */
#include <stdlib.h>

#include "formats/base/clock.h"
#include "formats/base/rng.h"
#include "tools/ccbench/step_internal.h"
#include "tools/cli/path_kind.h"

enum status step_make_pairs(struct loader_batch *out,
                            const struct step_options *o,
                            const struct trainer *t,
                            struct error *err) {
    const size_t n = (size_t)o->batch;
    const size_t pixels_count = n * (size_t)o->image_size * (size_t)o->image_size * 3;
    const size_t sizes[4] = {pixels_count, n * (size_t)o->tokens * sizeof(int32_t),
                             n * sizeof(int32_t), n * sizeof(uint64_t)};
    void *data[4] = {NULL};
    enum status s = STATUS_OK;
    for (int i = 0; i < 4 && s == STATUS_OK; i++) {
        if (t != NULL) {
            s = trainer_alloc_host(t, sizes[i], &data[i], err);
        } else if ((data[i] = calloc(1, sizes[i])) == NULL) {
            s = error_set(err, STATUS_NOMEM, "no memory for a batch of %zu", n);
        }
    }
    *out = (struct loader_batch){.images = data[0],
                                 .tokens = data[1],
                                 .lengths = data[2],
                                 .sample_ids = data[3],
                                 .count = (uint32_t)n};
    TRY(s);
    struct rng r;
    rng_init(&r, 1, RNG_INIT, 0, 0);
    for (size_t i = 0; i < pixels_count; i++) {
        ((uint8_t *)data[0])[i] = (uint8_t)rng_below(&r, 256);
    }
    for (size_t i = 0; i < n * (size_t)o->tokens; i++) {
        ((int32_t *)data[1])[i] = (int32_t)rng_below(&r, (uint32_t)o->vocab);
    }
    const uint32_t least = (uint32_t)(o->tokens + 2) / 3;
    for (size_t i = 0; i < n; i++) {
        const uint32_t more = (uint32_t)o->tokens - least;
        ((int32_t *)data[2])[i] =
            (int32_t)(o->full || i == 0 ? o->tokens : least + rng_below(&r, more + 1));
        ((uint64_t *)data[3])[i] = (uint64_t)i;
    }
    return STATUS_OK;
}

/* ---- the trainer ---- */

static void on_step(void *cookie, const struct step_report *r, uint64_t total_steps) {
    struct bench_step *b = cookie;
    const double elapsed_s = r->pairs_per_s > 0.0 ? (double)b->o->batch / r->pairs_per_s : 0.0;
    (void)total_steps;
    if (b->dev->stream == NULL || b->reported_count > 0) { /* the first has no device times */
        b->elapsed_s += elapsed_s;
        b->waited_s += r->stall_fraction * elapsed_s;
    }
    b->reported_count++;
    b->loss_value = r->loss;
    b->launches_count = r->launches_count;
}

static enum status open_trainer(struct bench_step *b, struct error *err) {
    const struct step_options *o = b->o;
    b->source = (struct loader_source){.directory = o->data};
    struct trainer_options t;
    trainer_options_default(&t);
    t.sources = &b->source;
    t.source_count = o->data != NULL ? 1 : 0;
    t.image_tower = o->image_tower;
    t.text_tower = o->text_tower;
    t.model = o->model;
    struct dual_encoder_options model;
    TRY(step_options_of_model(&model, o, err));
    if (o->model != NULL) {
        t.embed_dim = (uint32_t)model.embed_dim;
    }
    t.small_stem = o->stem == 1;
    t.image_size_px = (uint32_t)o->image_size;
    t.max_tokens = (uint32_t)o->tokens;
    t.dropout = o->dropout >= 0.0 ? o->dropout : (double)model.text.dropout;
    t.dtype = b->dtype;
    t.padded_captions = o->padding == 1;
    t.augment = AUGMENT_TRAIN;
    t.batch_count = (uint32_t)o->batch;
    t.micro_batch_count = (uint32_t)o->micro_batch;
    t.epochs = 1000000;
    t.lr = t.min_lr = 1e-5;
    t.warmup_steps = 0;
    t.seed = 1;
    t.loss.name = o->loss;
    t.loss.emc2_carry = LOSS_EMC2_SKIP; /* samples of other batches are not available */
    t.device = o->device;
    t.device_options.autotune = o->autotune;
    t.device_options.plan_cache = o->plan_cache;
    t.state = (enum trainer_state)o->state;
    t.cuda_graph = o->cuda_graph == STEP_ON;
    t.threads = (uint32_t)o->threads;
    t.loader_threads = (uint32_t)o->loader_threads;
    b->log = log_stderr("ccbench", LOG_LEVEL_DEBUG);
    t.log = &b->log;
    t.on_step = on_step;
    t.should_stop = cli_interrupted_callback;
    t.cookie = b;
    TRY(trainer_open_steps(&b->trainer, &t, (uint32_t)o->vocab, err));
    b->dev = trainer_device(b->trainer);
    if (o->data != NULL) {
        return STATUS_OK;
    }
    struct loader_batch pairs;
    const enum status s = step_make_pairs(&pairs, o, b->trainer, err);
    trainer_give_batch(b->trainer, &pairs);
    return s;
}

/* ---- either ---- */

enum status bench_step_open(struct bench_step *b, struct error *err) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};
    const struct step_options *o = b->o;
    b->dtype = types[o->precision];
    FAIL_IF(o->tower != STEP_BOTH && (o->micro_batch > 0 || o->data != NULL), err, STATUS_USAGE,
            "--micro-batch and --data go with --tower both");
    if (o->tower == STEP_BOTH) {
        TRY(o->data != NULL ? path_check_dataset(o->data, err) : STATUS_OK);
        return open_trainer(b, err);
    }
    TRY(bench_open_device(&b->own_device, o->device, o->threads, o->autotune, o->plan_cache,
                          &b->log, err));
    b->dev = b->own_device;
    return bench_tower_open(&b->tower, b, err);
}

void bench_step_close(struct bench_step *b) {
    trainer_destroy(b->trainer);
    bench_tower_close(b->tower);
    device_close(b->own_device);
}

enum status bench_step_run(struct bench_step *b,
                           uint64_t count,
                           enum step_how how,
                           double *seconds,
                           struct error *err) {
    const int64_t start_ns = clock_now_ns();
    b->elapsed_s = b->waited_s = 0.0;
    b->reported_count = 0;
    if (b->trainer != NULL) {
        TRY(trainer_run_steps(b->trainer, count, how == STEP_OP_BY_OP, how != STEP_FED, err));
    }
    for (uint64_t i = 0; i < count && b->tower != NULL; i++) {
        FAIL_IF(cli_interrupted(), err, STATUS_INTERRUPTED, "stopped on request");
        TRY(bench_tower_run(b->tower, err));
    }
    *seconds = (double)(clock_now_ns() - start_ns) * 1e-9;
    return STATUS_OK;
}
