/*
 * trainer: the loop, and the order in which its parts are opened and restored.
 *
 * A step never changes anything before it is known to be sound: a similarity or gradient that is
 * not finite ends the run before state or parameters are written.
 */
#include "train/trainer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/file_io.h"
#include "formats/dataset.h"
#include "formats/tokenizer.h"
#include "train/checkpoint.h"
#include "train/run_dir.h"
#include "train/schedule.h"

enum pair_kind { PAIR_CROSS, PAIR_IMAGES, PAIR_TEXTS, PAIR_COUNT };

struct trainer {
    struct trainer_options options;
    struct model_config config;
    struct loader *loader;
    struct loader_info data;
    struct device *dev;
    struct dual_encoder *model;
    struct sample_state *state;
    struct loss *loss;
    struct metrics *metrics;
    struct schedule schedule;

    /* S, of images and of texts with themselves where the loss asks for it, and their gradients. */
    struct pair_matrix {
        float *similarity, *gradient; /* (B, B), host */
    } pairs[PAIR_COUNT];
    struct tensor s;      /* one of them on the device */
    struct tensor dx, dt; /* (B, E) */

    uint64_t step; /* done */
    uint64_t resumed_step;
    uint64_t saved_step; /* of the newest checkpoint of this process; UINT64_MAX: none */
};

static const uint64_t nothing_saved = UINT64_MAX;

void trainer_options_default(struct trainer_options *opt) {
    *opt = (struct trainer_options){.zeta_lr = 5e-6,
                                    .zeta_lr_image_ratio = 0.1,
                                    .zeta_freeze_epochs = 5,
                                    .image_tower = "resnet50",
                                    .text_tower = "distil",
                                    .image_size_px = 256,
                                    .max_tokens = 30,
                                    .embed_dim = 256,
                                    .dropout = 0.1,
                                    .clean_captions = true,
                                    .augment = AUGMENT_PAPER,
                                    .batch_count = 512,
                                    .epochs = 30,
                                    .lr = 2e-4,
                                    .min_lr = 1e-6,
                                    .warmup_steps = UINT64_MAX,
                                    .device = "cpu",
                                    .engine = LOADER_ENGINE_AUTO,
                                    .keep_count = 2,
                                    .eval_epochs = 1};
    loss_options_default(&opt->loss);
    optimizer_options_default(&opt->optimizer);
}

/* ---- opening ---- */

static enum status make_config(struct model_config *c,
                               const struct trainer_options *o,
                               uint32_t vocab_count,
                               struct error *err) {
    *c = (struct model_config){.small_stem = o->small_stem,
                               .image_size_px = (int32_t)o->image_size_px,
                               .max_tokens = (int32_t)o->max_tokens,
                               .vocab_count = (int32_t)vocab_count,
                               .embed_dim = (int32_t)o->embed_dim,
                               .clean_captions = o->clean_captions};
    if (strlen(o->image_tower) >= sizeof c->image_tower ||
        strlen(o->text_tower) >= sizeof c->text_tower) {
        return error_set(err, STATUS_USAGE, "there is no tower of such a long name");
    }
    memcpy(c->image_tower, o->image_tower, strlen(o->image_tower) + 1);
    memcpy(c->text_tower, o->text_tower, strlen(o->text_tower) + 1);
    return STATUS_OK;
}

static enum status model_options(struct dual_encoder_options *out,
                                 const struct model_config *c,
                                 const struct trainer_options *o,
                                 struct error *err) {
    TRY(model_config_options(c, out, err));
    out->text.dropout = (float)o->dropout;
    out->max_batch = (int32_t)o->batch_count;
    out->training = true;
    out->dtype = DTYPE_F32;
    return STATUS_OK;
}

enum status trainer_plan(struct dual_encoder_memory *out,
                         const struct trainer_options *opt,
                         uint32_t vocab_count,
                         struct error *err) {
    struct model_config config;
    struct dual_encoder_options model;
    TRY(make_config(&config, opt, vocab_count, err));
    TRY(model_options(&model, &config, opt, err));
    return dual_encoder_plan(out, &model, err);
}

static enum status open_loader(struct trainer *t, struct error *err) {
    const struct trainer_options *o = &t->options;
    struct loader_options lo;
    loader_options_default(&lo);
    lo.batch_count = o->batch_count;
    lo.image_size_px = o->image_size_px;
    lo.augment = o->augment;
    lo.seed = o->seed;
    lo.max_tokens = o->max_tokens;
    lo.clean_captions = o->clean_captions;
    lo.threads = o->loader_threads;
    lo.engine = o->engine;
    lo.log = o->log;
    TRY(loader_open(&t->loader, o->data, &lo, err));
    loader_info(t->loader, &t->data);
    if (t->data.vocab_count == 0) {
        return error_set(err, STATUS_USAGE,
                         "%s has no tokenizer; make one with 'ccpack tokenizer %s'", o->data,
                         o->data);
    }
    return STATUS_OK;
}

/* A validation set that cannot be opened is better known now than after the first epoch. */
static enum status check_val(const struct trainer *t, struct error *err) {
    struct dataset *val = NULL;
    if (t->options.val == NULL) {
        return STATUS_OK;
    }
    TRY(dataset_open(&val, t->options.val, file_posix(), err));
    const uint64_t texts_count = dataset_text_count(val);
    dataset_close(val);
    return texts_count > 0 ? STATUS_OK
                           : error_set(err, STATUS_USAGE, "%s has no captions to validate with",
                                       t->options.val);
}

static enum status alloc_matrix(struct trainer *t,
                                struct tensor *out,
                                int64_t rows,
                                int64_t columns,
                                struct error *err) {
    void *data = NULL;
    TRY(t->dev->ops->alloc(t->dev, (size_t)(rows * columns) * sizeof(float), &data, err));
    *out = tensor_2d(data, DTYPE_F32, rows, columns);
    return STATUS_OK;
}

static enum status open_model(struct trainer *t, struct error *err) {
    const struct trainer_options *o = &t->options;
    const int64_t b = o->batch_count;
    struct dual_encoder_options model;
    TRY(make_config(&t->config, o, t->data.vocab_count, err));
    TRY(model_options(&model, &t->config, o, err));
    TRY(device_open(&t->dev, o->device, (int32_t)o->threads, err));
    TRY(dual_encoder_create(&t->model, t->dev, &model, err));
    TRY(params_init(dual_encoder_params(t->model), o->seed, err));
    TRY(sample_state_create(&t->state, t->data.id_space, err));
    TRY(loss_create(&t->loss, &o->loss, t->state, t->data.sample_count, b, err));
    TRY(alloc_matrix(t, &t->s, b, b, err));
    TRY(alloc_matrix(t, &t->dx, b, o->embed_dim, err));
    TRY(alloc_matrix(t, &t->dt, b, o->embed_dim, err));
    for (int i = 0; i < (loss_uses_self(t->loss) ? PAIR_COUNT : 1); i++) {
        struct pair_matrix *p = &t->pairs[i];
        p->similarity = calloc((size_t)(b * b), sizeof *p->similarity);
        p->gradient = calloc((size_t)(b * b), sizeof *p->gradient);
        if (p->similarity == NULL || p->gradient == NULL) {
            return error_set(err, STATUS_NOMEM,
                             "no memory for a batch of %lld; use a smaller --batch", (long long)b);
        }
    }
    return STATUS_OK;
}

static void make_schedule(struct trainer *t) {
    const struct trainer_options *o = &t->options;
    const uint64_t total = o->epochs * t->data.steps_per_epoch;
    const uint64_t tenth = total / 10;
    t->schedule = (struct schedule){.peak_lr = o->lr, .final_lr = o->min_lr, .total_steps = total};
    t->schedule.warmup_steps = o->warmup_steps != UINT64_MAX ? o->warmup_steps
                               : tenth < 500                 ? tenth
                                                             : 500;
}

/* Whether the dataset was once, before something was appended, what the checkpoint was trained on.
 */
static bool has_grown_from(const struct trainer *t, const struct train_position *p) {
    const struct manifest *m = dataset_manifest(loader_dataset(t->loader, 0));
    for (size_t g = 0; g < m->generation_count; g++) {
        if (m->generations[g].fingerprint == p->fingerprint) {
            return true;
        }
    }
    return false;
}

/* Where a restored run goes on: where it was, or, on a dataset that has grown, at the beginning of
 * the epoch it was in, because an epoch is another order of other samples now. Steps then count as
 * if earlier epochs had been as long. */
static struct loader_state restored_place(const struct trainer *t, const struct train_position *p) {
    struct loader_state place = {
        .fingerprint = t->data.fingerprint, .seed = p->seed, .epoch = p->epoch, .step = p->batch};
    if (p->fingerprint != t->data.fingerprint) {
        place.step = 0;
        log_write(t->options.log, LOG_LEVEL_INFO,
                  "%s has grown from %" PRIu64 " to %" PRIu64 " samples; epoch %" PRIu64
                  " begins anew",
                  t->options.data, p->samples_count, t->data.sample_count, p->epoch + 1);
    }
    return place;
}

/* What must agree between a checkpoint and this run, and what to say when it does not. */
static enum status
check_same_run(const struct trainer *t, const struct checkpoint *c, struct error *err) {
    const struct model_config *m = checkpoint_model(c);
    const struct train_position *p = checkpoint_position(c);
    const char *what = NULL;
    if (strcmp(m->image_tower, t->config.image_tower) != 0 ||
        strcmp(m->text_tower, t->config.text_tower) != 0 || m->small_stem != t->config.small_stem) {
        what = "towers";
    } else if (m->image_size_px != t->config.image_size_px) {
        what = "image size";
    } else if (m->max_tokens != t->config.max_tokens || m->vocab_count != t->config.vocab_count ||
               m->clean_captions != t->config.clean_captions) {
        what = "tokens or vocabulary";
    } else if (m->embed_dim != t->config.embed_dim) {
        what = "embedding size";
    } else if (strcmp(checkpoint_loss_name(c), t->options.loss.name) != 0) {
        what = "loss";
    } else if (p->seed != t->options.seed) {
        what = "seed";
    }
    if (what != NULL) {
        return error_set(err, STATUS_MISMATCH, "%s was made with another %s", checkpoint_path(c),
                         what);
    }
    if (p->fingerprint != t->data.fingerprint && !has_grown_from(t, p)) {
        return error_set(err, STATUS_MISMATCH,
                         "%s was trained on dataset %016" PRIx64 " (%" PRIu64
                         " samples), %s is %016" PRIx64 " (%" PRIu64 " samples)",
                         checkpoint_path(c), p->fingerprint, p->samples_count, t->options.data,
                         t->data.fingerprint, t->data.sample_count);
    }
    size_t stored_size;
    size_t size;
    const void *stored = checkpoint_tokenizer(c, &stored_size);
    const void *bytes = tokenizer_bytes(loader_tokenizer(t->loader), &size);
    if (stored == NULL || stored_size != size || memcmp(stored, bytes, size) != 0) {
        return error_set(err, STATUS_MISMATCH,
                         "%s was trained with another tokenizer than that of %s",
                         checkpoint_path(c), t->options.data);
    }
    return STATUS_OK;
}

static enum status restore(struct trainer *t, struct error *err) {
    bool there = false;
    TRY(run_dir_has_checkpoint(t->options.run, &there, err));
    if (!there) {
        return STATUS_OK;
    }
    struct checkpoint *c = NULL;
    TRY(checkpoint_open(&c, file_posix(), t->options.run, err));
    const struct loss_scalar *scalars;
    const int32_t scalar_count = loss_scalars(t->loss, &scalars);
    enum status s = check_same_run(t, c, err);
    if (s == STATUS_OK) {
        s = checkpoint_load_params(c, dual_encoder_params(t->model), true, err);
    }
    if (s == STATUS_OK) {
        s = checkpoint_load_state(c, t->state, scalars, scalar_count, err);
    }
    if (s == STATUS_OK) {
        const struct train_position *p = checkpoint_position(c);
        const struct loader_state place = restored_place(t, p);
        t->step =
            p->fingerprint == t->data.fingerprint ? p->step : place.epoch * t->data.steps_per_epoch;
        t->resumed_step = p->step;
        t->saved_step = p->step;
        s = loader_seek(t->loader, &place, err);
    }
    checkpoint_close(c);
    return s;
}

enum status
trainer_create(struct trainer **out, const struct trainer_options *opt, struct error *err) {
    REQUIRE(out != NULL && opt != NULL && opt->data != NULL && opt->run != NULL &&
            opt->keep_count >= 1);
    REQUIRE(opt->batch_count >= 2 && opt->batch_count <= LOSS_MAX_BATCH && opt->epochs >= 1);
    *out = NULL;
    struct trainer *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return error_set(err, STATUS_NOMEM, "trainer: out of memory");
    }
    t->options = *opt;
    t->saved_step = nothing_saved;
    enum status s;
    TRY_OR_FAIL(s, check_val(t, err));
    TRY_OR_FAIL(s, open_loader(t, err));
    TRY_OR_FAIL(s, open_model(t, err));
    make_schedule(t);
    TRY_OR_FAIL(s, restore(t, err));
    TRY_OR_FAIL(s, metrics_open(&t->metrics, opt->run, t->step, err));
    *out = t;
    return STATUS_OK;
fail:
    trainer_destroy(t);
    return s;
}

void trainer_destroy(struct trainer *t) {
    if (t == NULL) {
        return;
    }
    metrics_close(t->metrics);
    loader_close(t->loader);
    loss_destroy(t->loss);
    sample_state_destroy(t->state);
    dual_encoder_destroy(t->model);
    if (t->dev != NULL) {
        t->dev->ops->free(t->dev, t->s.data);
        t->dev->ops->free(t->dev, t->dx.data);
        t->dev->ops->free(t->dev, t->dt.data);
    }
    device_close(t->dev);
    for (int i = 0; i < PAIR_COUNT; i++) {
        free(t->pairs[i].similarity);
        free(t->pairs[i].gradient);
    }
    free(t);
}

/* Steps of this run: the schedule's, or fewer when asked. */
static uint64_t last_step(const struct trainer *t) {
    const uint64_t total = t->schedule.total_steps;
    return t->options.max_steps > 0 && t->options.max_steps < total ? t->options.max_steps : total;
}

struct trainer_summary trainer_summary(const struct trainer *t) {
    return (struct trainer_summary){.step = t->step,
                                    .total_steps = last_step(t),
                                    .steps_per_epoch = t->data.steps_per_epoch,
                                    .samples_count = t->data.sample_count,
                                    .id_space_count = t->data.id_space,
                                    .vocab_count = t->data.vocab_count,
                                    .memory = dual_encoder_memory_used(t->model),
                                    .resumed_step = t->resumed_step,
                                    .engine = t->data.engine,
                                    .loss = t->options.loss.name};
}

/* ---- saving and evaluating ---- */

static enum status save(struct trainer *t, struct error *err) {
    if (t->saved_step == t->step) {
        return STATUS_OK;
    }
    const struct loader_state place = loader_state(t->loader);
    const struct train_position position = {.step = t->step,
                                            .seed = place.seed,
                                            .epoch = place.epoch,
                                            .batch = place.step,
                                            .fingerprint = place.fingerprint,
                                            .samples_count = t->data.sample_count,
                                            .id_space_count = t->data.id_space};
    struct checkpoint_content content = {.model = &t->config,
                                         .position = &position,
                                         .loss_name = t->options.loss.name,
                                         .params = dual_encoder_params(t->model),
                                         .state = t->state};
    content.scalar_count = loss_scalars(t->loss, &content.scalars);
    content.tokenizer = tokenizer_bytes(loader_tokenizer(t->loader), &content.tokenizer_size_bytes);
    char path[PATH_MAX_BYTES];
    TRY(metrics_state(t->metrics, t->step, t->state, err));
    TRY(metrics_sync(t->metrics, err));
    TRY(run_dir_checkpoint_path(path, t->options.run, t->step, err));
    TRY(checkpoint_save(file_posix(), path, &content, err));
    TRY(run_dir_publish(file_posix(), t->options.run, t->step, t->options.keep_count, err));
    t->saved_step = t->step;
    log_write(t->options.log, LOG_LEVEL_DEBUG, "saved %s", path);
    return STATUS_OK;
}

static enum status evaluate(struct trainer *t, struct retrieval_result *result, struct error *err) {
    const struct trainer_options *o = &t->options;
    struct embed_options ro;
    embed_options_default(&ro);
    ro.clean_captions = o->clean_captions;
    ro.threads = o->loader_threads;
    ro.log = o->log;
    ro.should_stop = o->should_stop;
    ro.cookie = o->cookie;
    ro.tokenizer = tokenizer_bytes(loader_tokenizer(t->loader), &ro.tokenizer_size_bytes);
    TRY(retrieval_evaluate(result, t->model, t->dev, o->val, &ro, err));
    TRY(metrics_retrieval(t->metrics, t->step, result, err));
    if (o->on_retrieval != NULL) {
        o->on_retrieval(o->cookie, t->step, result);
    }
    return STATUS_OK;
}

/* ---- the step ---- */

/* a b^T to the host. */
static enum status multiply(struct trainer *t,
                            enum pair_kind kind,
                            const struct tensor *a,
                            const struct tensor *b,
                            struct error *err) {
    const struct ops *ops = t->dev->ops;
    TRY(ops->matmul(t->dev, &t->s, WRITE_SET, a, false, b, true, 1.0f, err));
    return ops->download(t->dev, t->pairs[kind].similarity, t->s.data, tensor_size_bytes(&t->s),
                         err);
}

/* The gradient of the embeddings from that of a matrix between one kind and itself: += 2 G x. */
static enum status add_self(struct trainer *t,
                            enum pair_kind kind,
                            const struct tensor *dx,
                            const struct tensor *x,
                            struct error *err) {
    const struct ops *ops = t->dev->ops;
    TRY(ops->upload(t->dev, t->s.data, t->pairs[kind].gradient, tensor_size_bytes(&t->s), err));
    return ops->matmul(t->dev, dx, WRITE_ADD, &t->s, false, x, false, 2.0f, err);
}

/* S to the host, loss and state there, G back, and from it the gradients of both embeddings. */
static enum status contrast(struct trainer *t,
                            struct step_report *r,
                            const struct tensor *x,
                            const struct tensor *text,
                            const struct loader_batch *batch,
                            struct error *err) {
    const struct trainer_options *o = &t->options;
    const struct ops *ops = t->dev->ops;
    const bool self = loss_uses_self(t->loss);
    TRY(multiply(t, PAIR_CROSS, x, text, err));
    if (self) {
        TRY(multiply(t, PAIR_IMAGES, x, x, err));
        TRY(multiply(t, PAIR_TEXTS, text, text, err));
    }
    const struct loss_input in = {.similarity = t->pairs[PAIR_CROSS].similarity,
                                  .image_similarity = t->pairs[PAIR_IMAGES].similarity,
                                  .text_similarity = t->pairs[PAIR_TEXTS].similarity,
                                  .sample_ids = batch->sample_ids,
                                  .batch_count = o->batch_count,
                                  .step = t->step,
                                  .epoch = batch->epoch,
                                  .lr = r->lr,
                                  .zeta_lr_text = r->zeta_lr,
                                  .zeta_lr_image = r->zeta_lr * o->zeta_lr_image_ratio};
    struct loss_output out = {.gradient = t->pairs[PAIR_CROSS].gradient,
                              .image_gradient = t->pairs[PAIR_IMAGES].gradient,
                              .text_gradient = t->pairs[PAIR_TEXTS].gradient};
    TRY(loss_step(t->loss, &in, &out, err));
    r->loss = out.value;
    r->global_loss = out.objective;
    r->tau = out.tau;
    TRY(ops->upload(t->dev, t->s.data, out.gradient, tensor_size_bytes(&t->s), err));
    TRY(ops->matmul(t->dev, &t->dx, WRITE_SET, &t->s, false, text, false, 1.0f, err));
    TRY(ops->matmul(t->dev, &t->dt, WRITE_SET, &t->s, true, x, false, 1.0f, err));
    if (self) {
        TRY(add_self(t, PAIR_IMAGES, &t->dx, x, err));
        TRY(add_self(t, PAIR_TEXTS, &t->dt, text, err));
    }
    return STATUS_OK;
}

/* Learning rates of the step: by steps, or by epochs as the published code has it. */
static void
set_rates(const struct trainer *t, struct step_report *r, const struct loader_batch *batch) {
    const struct trainer_options *o = &t->options;
    if (o->loss.parity == LOSS_PARITY_REFERENCE) {
        r->lr = schedule_reference_lr(&t->schedule, o->epochs, batch->epoch, batch->step);
        r->zeta_lr =
            schedule_reference_zeta_lr(o->zeta_lr, o->zeta_freeze_epochs, o->epochs, batch->epoch);
        return;
    }
    r->lr = schedule_lr(&t->schedule, t->step);
    r->zeta_lr = schedule_zeta_lr(o->zeta_lr, o->zeta_freeze_epochs * t->data.steps_per_epoch,
                                  t->schedule.total_steps, t->step);
}

static enum status train_batch(struct trainer *t,
                               struct step_report *r,
                               const struct loader_batch *batch,
                               struct error *err) {
    const struct trainer_options *o = &t->options;
    const struct dual_encoder_batch input = {.count = (int32_t)batch->count,
                                             .images = batch->images,
                                             .tokens = batch->tokens,
                                             .lengths = batch->lengths,
                                             .sample_ids = batch->sample_ids,
                                             .seed = o->seed,
                                             .step = t->step};
    struct tensor x;
    struct tensor text;
    set_rates(t, r, batch);
    TRY(dual_encoder_forward(t->model, &x, &text, &input, true, err));
    TRY(contrast(t, r, &x, &text, batch, err));
    TRY(dual_encoder_backward(t->model, &t->dx, &t->dt, &input, WRITE_SET, err));
    TRY(optimizer_step(dual_encoder_params(t->model), t->dev, &r->grad_norm, &o->optimizer, r->lr,
                       t->step + 1, err));
    t->step++;
    r->step = t->step;
    r->epoch = batch->epoch;
    r->replaced_count = batch->replaced_count;
    return STATUS_OK;
}

static enum status one_step(struct trainer *t, bool *epoch_ended, struct error *err) {
    struct step_report r = {0};
    struct loader_batch batch;
    const int64_t start_ns = clock_now_ns();
    TRY(loader_acquire(t->loader, &batch, err));
    const int64_t ready_ns = clock_now_ns();
    const enum status s = train_batch(t, &r, &batch, err);
    *epoch_ended = batch.step + 1 == t->data.steps_per_epoch;
    loader_release(t->loader, &batch);
    TRY(s);
    const double elapsed_s = (double)(clock_now_ns() - start_ns) * 1e-9;
    r.stall_fraction = (double)(ready_ns - start_ns) * 1e-9 / elapsed_s;
    r.pairs_per_s = (double)t->options.batch_count / elapsed_s;
    TRY(metrics_step(t->metrics, &r, err));
    if (t->options.on_step != NULL) {
        t->options.on_step(t->options.cookie, &r, last_step(t));
    }
    return STATUS_OK;
}

static bool stop_asked(const struct trainer *t) {
    return t->options.should_stop != NULL && t->options.should_stop(t->options.cookie);
}

enum status trainer_run(struct trainer *t, struct retrieval_result *result, struct error *err) {
    REQUIRE(t != NULL && result != NULL);
    const struct trainer_options *o = &t->options;
    *result = (struct retrieval_result){0};
    while (t->step < last_step(t)) {
        bool epoch_ended = false;
        TRY(one_step(t, &epoch_ended, err));
        const bool at_end = t->step == last_step(t);
        const bool periodic = o->checkpoint_steps > 0 && t->step % o->checkpoint_steps == 0;
        const bool stop = stop_asked(t);
        if (epoch_ended || periodic || at_end || stop) {
            TRY(save(t, err));
        }
        if (stop) {
            return error_set(err, STATUS_INTERRUPTED,
                             "stopped on request at step %" PRIu64 "; go on with --resume %s",
                             t->step, o->run);
        }
        const uint64_t epochs_done = t->step / t->data.steps_per_epoch;
        const bool due = epoch_ended && o->eval_epochs > 0 && epochs_done % o->eval_epochs == 0;
        if (o->val != NULL && (due || at_end)) {
            TRY(evaluate(t, result, err));
        }
    }
    return metrics_sync(t->metrics, err);
}
