/*
 * trainer: the loop, and the order in which its parts are opened and restored. The parts are in
 * trainer_open, trainer_checkpoint, trainer_step and trainer_eval.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "formats/base/clock.h"
#include "formats/dataset/dataset.h"
#include "train/comm/comm_device.h"
#include "train/run/trainer_internal.h"

static const uint64_t nothing_saved = UINT64_MAX;

void trainer_options_default(struct trainer_options *opt) {
    *opt = (struct trainer_options){.image_tower = "resnet50",
                                    .text_tower = "distil",
                                    .image_size_px = 256,
                                    .order = LOADER_ORDER_GLOBAL,
                                    .order_block_count = 1024,
                                    .order_block_window = 16,
                                    .max_tokens = 30,
                                    .embed_dim = 256,
                                    .hidden_dim = 512,
                                    .dropout = 0.1,
                                    .patch_dropout = -1.0,
                                    .dtype = DTYPE_F32,
                                    .clean_captions = true,
                                    .augment = AUGMENT_PAPER,
                                    .batch_count = 512,
                                    .blocks = {.size = 2, .negatives = 4},
                                    .epochs = 30,
                                    .lr = 2e-4,
                                    .min_lr = 1e-6,
                                    .warmup_steps = UINT64_MAX,
                                    .distill_weight = 0.5,
                                    .teacher_tau = 0.01,
                                    .device = "cpu",
                                    .cuda_graph = true,
                                    .engine = LOADER_ENGINE_AUTO,
                                    .tuning = {UINT64_MAX, UINT64_MAX, -1.0, -1.0, 1.0},
                                    .keep_count = 2,
                                    .eval_epochs = 1};
    device_options_default(&opt->device_options);
    loss_options_default(&opt->loss);
    optimizer_options_default(&opt->optimizer);
}

/* Opens the parts in the order of their dependencies, without other ranks. */
static enum status open_parts(struct trainer *t, struct error *err) {
    TRY(trainer_open_source(t, err));
    TRY(trainer_check_val(t, err));
    TRY(trainer_open_loader(t, err));
    return trainer_open_model(t, err);
}

static enum status restore_parts(struct trainer *t, struct error *err) {
    trainer_make_schedule(t);
    TRY(trainer_restore(t, err));
    return trainer_is_first(t) ? metrics_open(&t->metrics, t->options.run, t->options.run_id,
                                              t->step, trainer_watched(t), err)
                               : STATUS_OK;
}

enum status
trainer_create(struct trainer **out, const struct trainer_options *opt, struct error *err) {
    REQUIRE(out != NULL && opt != NULL && opt->sources != NULL && opt->source_count >= 1 &&
            opt->source_count <= LOADER_MAX_SOURCES && opt->remap_count <= LOADER_MAX_SOURCES &&
            opt->run != NULL && opt->keep_count >= 1);
    REQUIRE(opt->batch_count >= 2 && opt->batch_count <= LOSS_MAX_BATCH && opt->epochs >= 1);
    *out = NULL;
    struct trainer *t = calloc(1, sizeof *t);
    TRY_MEMORY(t != NULL, err, "trainer: out of memory");
    t->options = *opt;
    loss_resolve_auto(&t->options.loss);
    if (opt->task == TRAINER_BLOCKS) {
        t->options.loss.name = "block";
    }
    t->saved_step = nothing_saved;
    enum status s = STATUS_OK;
    t->summaries = calloc((size_t)2 * SAMPLE_STATE_MAX_COLUMNS, sizeof *t->summaries);
    if (t->summaries == NULL) {
        TRY_OR_FAIL(s, error_set(err, STATUS_NOMEM, "trainer: out of memory"));
    }
    t->comm = opt->comm;
    if (t->comm == NULL) {
        TRY_OR_FAIL(s, comm_open_alone(&t->alone, err));
        t->comm = t->alone;
    }
    TRY_OR_FAIL(s, trainer_agree(t, open_parts(t, err), err));
    TRY_OR_FAIL(s, comm_device_open(t->comm, t->dev, err));
    TRY_OR_FAIL(s, trainer_agree(t, restore_parts(t, err), err));
    TRY_OR_FAIL(s, trainer_check_ranks(t, err));
    checkpoint_close(t->source);
    t->source = NULL;
    t->saved_ns = clock_now_ns();
fail:
    RETURN_CREATED(s, out, t, trainer_destroy);
}

void trainer_destroy(struct trainer *t) {
    if (t == NULL) {
        return;
    }
    trainer_close_flights(t);
    checkpoint_close(t->source);
    metrics_close(t->metrics);
    trainer_close_offbatch(t);
    trainer_close_columns(t);
    loader_close(t->loader);
    loss_device_destroy(t->loss_device);
    loss_tiled_destroy(t->tiled);
    loss_destroy(t->loss);
    trainer_close_blocks(t);
    sample_state_destroy(t->state);
    sample_state_destroy(t->captions);
    free(t->first_caption);
    dual_encoder_destroy(t->model);
    view_encoder_destroy(t->views);
    for (int side = 0; side < 2; side++) {
        trainer_free_matrix(t, &t->dx[side]);
        trainer_free_matrix(t, &t->x[side]);
    }
    trainer_free_matrix(t, &t->own_dx);
    trainer_free_matrix(t, &t->s);
    if (t->dev != NULL) {
        t->dev->ops->free(t->dev, t->values);
    }
    comm_device_close(t->comm, t->dev);
    device_close(t->dev);
    for (int i = 0; i < PAIR_COUNT; i++) {
        free(t->pairs[i].similarity);
        free(t->pairs[i].gradient);
    }
    free(t->notices);
    free(t->summaries);
    comm_close(t->alone);
    free(t);
}

/* Steps of this run: those of the schedule, or fewer if requested. */
uint64_t trainer_last_step(const struct trainer *t) {
    const uint64_t total = t->schedule.total_steps;
    return t->options.max_steps > 0 && t->options.max_steps < total ? t->options.max_steps : total;
}

static const char *state_text(const struct trainer *t) {
    static const char *const names[] = {[SAMPLE_STATE_HOST] = "host",
                                        [SAMPLE_STATE_DEVICE] = "device",
                                        [SAMPLE_STATE_PINNED] = "pinned"};
    return names[sample_state_where(t->state)];
}

struct trainer_summary trainer_summary(const struct trainer *t) {
    return (struct trainer_summary){.step = t->step,
                                    .total_steps = trainer_last_step(t),
                                    .steps_per_epoch = t->data.steps_per_epoch,
                                    .samples_count = t->data.sample_count,
                                    .id_space_count = t->data.id_space,
                                    .vocab_count = t->data.vocab_count,
                                    .memory = t->views != NULL ? view_encoder_memory_used(t->views)
                                                               : dual_encoder_memory_used(t->model),
                                    .resumed_step = t->resumed_step,
                                    .data = t->data.fingerprint,
                                    .resumed_data = t->resumed_data,
                                    .warmup_steps = t->schedule.warmup_steps,
                                    .next_lr = schedule_lr(&t->schedule, t->step),
                                    .engine = t->data.engine,
                                    .device = t->dev->ops->name,
                                    .device_note = t->dev->note,
                                    .loss = t->options.loss.name,
                                    .state = state_text(t),
                                    .best = t->metrics != NULL ? metrics_best(t->metrics)
                                                               : (struct metrics_best){0}};
}

struct trainer_source trainer_source(const struct trainer *t, uint32_t index) {
    const struct loader_state place = loader_state(t->loader);
    const struct loader_source *source = &t->options.sources[index];
    return (struct trainer_source){.directory = source->directory,
                                   .weight = source->weight,
                                   .samples_count =
                                       dataset_sample_count(loader_dataset(t->loader, index)),
                                   .id_offset = place.sources[index].id_offset};
}

/* With go_on_unsaved a full disk does not end the run: earlier checkpoints stay, and the next one
 * is tried. */
static enum status save_when_due(struct trainer *t, bool last, struct error *err) {
    struct error why = {0};
    comm_at(t->comm, t->step, COMM_PHASE_SAVE);
    const int64_t begun_ns = clock_now_ns();
    const enum status s = trainer_save(t, &why);
    t->saved_ns = clock_now_ns();
    t->stages.report.checkpoint_s += (double)(t->saved_ns - begun_ns) * 1e-9;
    if (s == STATUS_IO && t->options.go_on_unsaved && !last && !trainer_is_first(t)) {
        return STATUS_OK;
    }
    if (s == STATUS_IO && t->options.go_on_unsaved && !last) {
        log_write(t->options.log, LOG_LEVEL_WARN,
                  "step %" PRIu64 " is not saved, the run continues: %s", t->step, why.text);
        return STATUS_OK;
    }
    const char *stays = s != STATUS_CORRUPT              ? ""
                        : t->saved_step == nothing_saved ? "; no checkpoint is saved"
                                                         : "; the last checkpoint stays";
    return s == STATUS_OK ? s : error_set(err, s, "%s%s", why.text, stays);
}

static enum status stopped(const struct trainer *t, struct error *err) {
    return error_set(err, STATUS_INTERRUPTED,
                     "stopped at step %" PRIu64 " of %" PRIu64
                     "; checkpoint saved; resume with --resume %s",
                     t->step, trainer_last_step(t), t->options.run);
}

/* Whether an evaluation follows the last step. */
static bool evaluation_is_due(const struct trainer *t) {
    const struct trainer_options *o = &t->options;
    const uint64_t epochs_done = t->step / t->data.steps_per_epoch;
    const bool epoch_ended = t->step % t->data.steps_per_epoch == 0;
    const bool due = epoch_ended && o->eval_epochs > 0 && epochs_done % o->eval_epochs == 0;
    return (o->val != NULL || o->zeroshot != NULL || o->knn != NULL) &&
           (due || t->step == trainer_last_step(t));
}

/* The epoch is already saved. `owed`: the run was stopped between this step's checkpoint and its
 * evaluation, which is made now. */
static enum status evaluate_when_due(struct trainer *t,
                                     struct retrieval_result *result,
                                     bool owed,
                                     struct error *err) {
    if (!evaluation_is_due(t)) {
        return STATUS_OK;
    }
    comm_at(t->comm, t->step, COMM_PHASE_EVALUATE);
    const int64_t begun_ns = clock_now_ns();
    enum status s = trainer_evaluate(t, result, owed, err);
    THEN(s, trainer_keep_best(t, err));
    t->stages.report.evaluation_s += (double)(clock_now_ns() - begun_ns) * 1e-9;
    return s == STATUS_INTERRUPTED ? stopped(t, err) : s;
}

static double waiting(const struct loader_stage_stats *now, const struct loader_stage_stats *then) {
    const double wait = (double)(now->wait_ns - then->wait_ns);
    const double all = wait + (double)(now->busy_ns - then->busy_ns);
    return all > 0.0 ? wait / all : -1.0;
}

static void begin_stages(struct trainer *t) {
    t->stages.report = (struct stage_report){0};
    t->stages.begun_ns = clock_now_ns();
    loader_stats(t->loader, &t->stages.loader);
}

/* Reports where the time went since the last such line. */
static enum status report_stages(struct trainer *t, struct error *err) {
    const struct loader_stats *then = &t->stages.loader;
    struct stage_report *r = &t->stages.report;
    struct loader_stats now;
    loader_stats(t->loader, &now);
    r->seconds = (double)(clock_now_ns() - t->stages.begun_ns) * 1e-9;
    r->read_wait_fraction = waiting(&now.read, &then->read);
    r->decode_wait_fraction = waiting(&now.decode, &then->decode);
    r->deliver_wait_fraction = waiting(&now.deliver, &then->deliver);
    const enum status s = metrics_stages(t->metrics, t->step, r, err);
    begin_stages(t);
    return s;
}

enum status trainer_run(struct trainer *t, struct retrieval_result *result, struct error *err) {
    REQUIRE(t != NULL && result != NULL);
    const struct trainer_options *o = &t->options;
    *result = (struct retrieval_result){0};
    begin_stages(t);
    if (t->resumed_step > 0 && t->saved_step == nothing_saved) { /* on other data */
        TRY(save_when_due(t, false, err));
    }
    if (t->step > 0 && t->step == t->resumed_step) { /* not if other data changed the step */
        TRY(evaluate_when_due(t, result, true, err));
    }
    while (t->step < trainer_last_step(t) && !t->gives_up) {
        bool epoch_ended = false;
        TRY(trainer_one_step(t, &epoch_ended, err));
        const bool at_end = t->step == trainer_last_step(t);
        const bool periodic = o->checkpoint_steps > 0 && t->step % o->checkpoint_steps == 0;
        const bool stop = comm_world(t->comm) > 1 ? t->stop : trainer_stop_asked(t);
        const bool saves = epoch_ended || periodic || at_end || stop || t->save;
        if (saves) {
            TRY(trainer_drain(t, err));
            TRY(save_when_due(t, at_end || stop, err));
        }
        if (!stop) {
            TRY(evaluate_when_due(t, result, false, err));
        }
        if (saves) {
            TRY(trainer_agree(t, report_stages(t, err), err));
        }
        if (saves && o->on_saved != NULL) {
            o->on_saved(o->cookie, t->step);
        }
        if (stop) {
            return stopped(t, err);
        }
    }
    return trainer_agree(t, metrics_sync(t->metrics, err), err);
}
