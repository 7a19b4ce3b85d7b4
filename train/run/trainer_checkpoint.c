/*
 * trainer_checkpoint: what a run saves, and what must agree when it resumes. With other data:
 * trainer_remap.
 */
#include "train/run/trainer_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/tokenizer/tokenizer.h"
#include "train/run/run_dir.h"

/* Where a restored run continues: where it was, or, with other data, at the beginning of its epoch,
 * because the epoch now has other samples in another order. Steps then count as if earlier epochs
 * had been as long. */
static struct loader_state restored_place(const struct trainer *t, const struct train_position *p) {
    const enum trainer_data data = trainer_compare_data(t, p);
    struct loader_state place = {.fingerprint = p->fingerprint,
                                 .seed = p->seed,
                                 .epoch = p->epoch,
                                 .step = p->batch,
                                 .filter = p->columns,                   /* a run has no filter */
                                 .order = loader_state(t->loader).order, /* of the options */
                                 .pair_noise = t->options.pair_noise,
                                 .mix = p->mix,
                                 .source_count = (uint32_t)p->source_count};
    for (uint32_t i = 0; i < place.source_count; i++) {
        place.sources[i].fingerprint = p->sources[i].fingerprint;
        place.sources[i].id_offset = p->sources[i].id_offset;
    }
    if (data == TRAINER_DATA_GROWN || data == TRAINER_DATA_REMAPPED) {
        place = loader_state(t->loader);
        place.epoch = p->epoch;
        place.step = 0;
    }
    if (data == TRAINER_DATA_GROWN) {
        place.mix = p->mix; /* grown datasets keep their weights */
    }
    return place;
}

enum status trainer_open_source(struct trainer *t, struct error *err) {
    const struct trainer_options *o = &t->options;
    size_t size_bytes;
    TRY(run_dir_has_checkpoint(o->run, &t->resumes, err));
    const char *path = t->resumes ? o->run : o->init;
    if (path == NULL) {
        return STATUS_OK;
    }
    TRY(checkpoint_open(&t->source, file_posix(), path, err));
    FAIL_IF(checkpoint_model(t->source)->hidden_dim == 0 && !checkpoint_is_foreign(t->source) &&
                checkpoint_tokenizer(t->source, &size_bytes) == NULL,
            err, STATUS_CORRUPT, "%s holds no tokenizer", checkpoint_path(t->source));
    return STATUS_OK;
}

/* What differs between two models; NULL: nothing. `tensors`: only what determines their tensors. */
static const char *
model_difference(const struct model_config *a, const struct model_config *b, bool tensors) {
    if ((a->hidden_dim > 0) != (b->hidden_dim > 0)) {
        return "task";
    }
    if (strcmp(a->image_tower, b->image_tower) != 0 || strcmp(a->text_tower, b->text_tower) != 0 ||
        strcmp(a->open_clip, b->open_clip) != 0 || a->small_stem != b->small_stem) {
        return "towers";
    }
    if (a->norm_layers != b->norm_layers) {
        return "--norm-layer";
    }
    if (a->embed_dim != b->embed_dim || a->hidden_dim != b->hidden_dim) {
        return "embedding size";
    }
    if (a->vocab_count != b->vocab_count) {
        return "vocabulary";
    }
    if (tensors) {
        return NULL;
    }
    return a->image_size_px != b->image_size_px     ? "image size"
           : a->text_pool != b->text_pool           ? "pool of text"
           : a->image_norm != b->image_norm         ? "normalisation of images"
           : a->resize != b->resize                 ? "resize mode of images"
           : a->max_tokens != b->max_tokens         ? "number of tokens"
           : a->clean_captions != b->clean_captions ? "cleaning of captions"
                                                    : NULL;
}

/* Checks that the checkpoint's per-sample state belongs to this run's data. */
static enum status
check_same_data(const struct trainer *t, const struct checkpoint *c, struct error *err) {
    const struct train_position *p = checkpoint_position(c);
    if (trainer_compare_data(t, p) != TRAINER_DATA_OTHER) {
        return STATUS_OK;
    }
    FAIL_IF(p->source_count != t->options.source_count, err, STATUS_MISMATCH,
            "%s was trained on %" PRIu64 " datasets, this run has %u", checkpoint_path(c),
            p->source_count, (unsigned)t->options.source_count);
    return error_set(
        err, STATUS_MISMATCH,
        "%s was trained on dataset %016" PRIx64 " (%" PRIu64 " samples), %s%s is %016" PRIx64
        " (%" PRIu64 " samples); to carry over the state of the samples they share, add "
        "--remap-state OLD_DATASET",
        checkpoint_path(c), p->fingerprint, p->samples_count, t->options.sources[0].directory,
        p->source_count > 1 ? " with the others" : "", t->data.fingerprint, t->data.sample_count);
}

/* Checks what must agree between a checkpoint and this run. */
static enum status
check_same_run(const struct trainer *t, const struct checkpoint *c, struct error *err) {
    const struct train_position *p = checkpoint_position(c);
    const char *what = model_difference(checkpoint_model(c), &t->config, false);
    if (what == NULL && strcmp(checkpoint_loss_name(c), t->options.loss.name) != 0) {
        what = "loss";
    } else if (what == NULL && p->seed != t->options.seed) {
        what = "seed";
    }
    FAIL_IF(what != NULL, err, STATUS_MISMATCH, "%s has a different %s", checkpoint_path(c), what);
    /* seek reports differences between mixes. */
    return p->source_count == 1 && t->options.source_count == 1 ? check_same_data(t, c, err)
                                                                : STATUS_OK;
}

/* Moves the loader to where the run continues. */
static enum status seek(struct trainer *t, const struct train_position *p, struct error *err) {
    const struct loader_state place = restored_place(t, p);
    struct error why = {0};
    const enum status s = loader_seek(t->loader, &place, &why);
    if (s == STATUS_OK) {
        return STATUS_OK;
    }
    const bool other = s == STATUS_MISMATCH && trainer_compare_data(t, p) == TRAINER_DATA_OTHER;
    return error_set(
        err, s, "%s%s", why.text,
        other ? "; --remap-state, once for each dataset of the run, carries over what they share"
              : "");
}

/* Restores per-sample state, which may be of other data (trainer_remap), and the loss's scalars. */
static enum status
restore_state(struct trainer *t, const struct checkpoint *c, bool same, struct error *err) {
    const struct loss_scalar *scalars = NULL;
    const int32_t scalar_count = t->loss != NULL ? loss_scalars(t->loss, &scalars) : 0;
    if (same) {
        TRY(checkpoint_load_state(c, t->state, scalars, scalar_count, err));
        TRY(trainer_check_captions(t, c, err));
        TRY(t->captions != NULL ? checkpoint_load_state(c, t->captions, NULL, 0, err) : STATUS_OK);
        TRY(checkpoint_load_cache(c, trainer_cache(t, true), trainer_cache(t, false), err));
    } else {
        TRY(checkpoint_load_scalars(c, scalars, scalar_count, err));
        TRY(trainer_remap_state(t, c, err));
    }
    return t->loss_device != NULL ? loss_device_send(t->loss_device, err) : STATUS_OK;
}

/* Loads the model of `init` for a new run, and logs what is not loaded. */
static enum status restore_init(struct trainer *t, struct error *err) {
    const struct checkpoint *c = t->source;
    const struct trainer_options *o = &t->options;
    const char *what = model_difference(checkpoint_model(c), &t->config, true);
    FAIL_IF(what != NULL, err, STATUS_MISMATCH,
            "--init: %s has a different model (%s); omit the model options, they come from the "
            "checkpoint",
            checkpoint_path(c), what);
    FAIL_IF(o->init_state && checkpoint_is_foreign(c), err, STATUS_USAGE,
            "--init-state: %s is a model of another program, without per-sample state",
            checkpoint_path(c));
    FAIL_IF(o->init_state && strcmp(checkpoint_loss_name(c), o->loss.name) != 0, err,
            STATUS_MISMATCH,
            "--init-state: %s was trained with loss %s, this run has loss %s, which has other "
            "per-sample state",
            checkpoint_path(c), checkpoint_loss_name(c), o->loss.name);
    TRY(checkpoint_load_params(c, trainer_params(t), false, err));
    if (o->init_state) {
        TRY(check_same_data(t, c, err));
        TRY(restore_state(
            t, c, trainer_compare_data(t, checkpoint_position(c)) == TRAINER_DATA_SAME, err));
    }
    const int32_t px = checkpoint_model(c)->image_size_px;
    if (px != t->config.image_size_px && t->config.open_clip[0] != '\0') {
        log_write(o->log, LOG_LEVEL_INFO,
                  "position embeddings for images of %d px interpolated to %d px", (int)px,
                  (int)t->config.image_size_px);
    }
    log_write(o->log, LOG_LEVEL_INFO,
              "%s, step %" PRIu64
              ": taken %s%s%s%s; not taken: %s%smoments of the optimiser, place in "
              "the schedule",
              checkpoint_path(c), checkpoint_position(c)->step,
              t->views != NULL                        ? "the tower and its head"
              : trainer_task(&t->options)->sides == 1 ? "the tower and its projection"
                                                      : "both towers, both projections",
              o->loss.tau == 0.0 ? ", the temperature" : "",
              checkpoint_is_foreign(c) && !isnan(checkpoint_bias(c)) ? ", the bias of siglip" : "",
              o->init_state ? ", the state of samples" : "",
              o->loss.tau == 0.0 ? "" : "the temperature (--tau), ",
              o->init_state ? "" : "the state of samples and of the loss (--init-state), ");
    return STATUS_OK;
}

enum status trainer_restore(struct trainer *t, struct error *err) {
    const struct checkpoint *c = t->source;
    if (!t->resumes) {
        TRY(c != NULL ? restore_init(t, err) : STATUS_OK);
        return params_begin_average(trainer_params(t), err);
    }
    const struct train_position *p = checkpoint_position(c);
    const bool same = trainer_compare_data(t, p) == TRAINER_DATA_SAME;
    TRY(check_same_run(t, c, err));
    TRY(seek(t, p, err));
    TRY(checkpoint_load_params(c, trainer_params(t), true, err));
    TRY(restore_state(t, c, same, err));
    t->step = same ? p->step : p->epoch * t->data.steps_per_epoch;
    FAIL_IF(t->step > t->schedule.total_steps, err, STATUS_USAGE,
            "%s was saved after step %" PRIu64 ", beyond the %" PRIu64 " of --epochs %" PRIu64,
            checkpoint_path(c), t->step, t->schedule.total_steps, t->options.epochs);
    FAIL_IF(t->options.max_steps > 0 && t->options.max_steps < t->step, err, STATUS_USAGE,
            "--steps %" PRIu64 ": %s is already at step %" PRIu64
            "; pass a larger value, or omit it",
            t->options.max_steps, checkpoint_path(c), t->step);
    t->resumed_step = p->step;
    t->resumed_data = p->fingerprint;
    if (same) { /* else the state differs from the file's */
        t->saved_step = p->step;
    }
    return STATUS_OK;
}

static struct train_position position_of(const struct trainer *t) {
    const struct loader_state place = trainer_place(t);
    struct train_position p = {.step = t->step,
                               .seed = place.seed,
                               .epoch = place.epoch,
                               .batch = place.step,
                               .fingerprint = place.fingerprint,
                               .samples_count = t->data.sample_count,
                               .id_space_count = t->data.id_space,
                               .mix = place.mix,
                               .columns = place.filter,
                               .source_count = place.source_count};
    for (uint32_t i = 0; i < place.source_count; i++) {
        p.sources[i].fingerprint = place.sources[i].fingerprint;
        p.sources[i].id_offset = place.sources[i].id_offset;
    }
    return p;
}

/* After the checkpoint is written: the state's line in metrics.jsonl, and RUN/last. */
static enum status publish(struct trainer *t, struct error *err) {
    TRY(metrics_state(t->metrics, t->step, t->state, t->captions, t->summaries, err));
    TRY(metrics_sync(t->metrics, err));
    return run_dir_publish(file_posix(), t->options.run, t->step, t->options.keep_count, err);
}

static const struct feature_cache *filled_cache(const struct trainer *t, bool images) {
    const struct feature_cache *cache = trainer_cache(t, images);
    return cache != NULL && feature_cache_filled(cache) ? cache : NULL;
}

enum status trainer_save(struct trainer *t, struct error *err) {
    if (t->saved_step == t->step) {
        return STATUS_OK;
    }
    if (t->loss_device != NULL) {
        TRY(loss_device_fetch(t->loss_device, err));
    }
    const struct train_position position = position_of(t);
    struct checkpoint_content content = {.model = &t->config,
                                         .position = &position,
                                         .loss_name = t->options.loss.name,
                                         .tau =
                                             t->loss != NULL ? loss_temperature_now(t->loss) : 1.0,
                                         .params = trainer_params(t),
                                         .state = t->state,
                                         .captions = t->captions,
                                         .first_caption = t->first_caption,
                                         .caption_columns = t->caption_columns};
    content.image_cache = filled_cache(t, true);
    content.text_cache = filled_cache(t, false);
    content.scalar_count = t->loss != NULL ? loss_scalars(t->loss, &content.scalars) : 0;
    if (t->views == NULL) {
        content.tokenizer =
            tokenizer_bytes(loader_tokenizer(t->loader), &content.tokenizer_size_bytes);
    }
    char path[PATH_MAX_BYTES];
    const bool first = trainer_is_first(t);
    enum status s = run_dir_checkpoint_path(path, t->options.run, t->step, err);
    if (s == STATUS_OK && first) {
        s = run_dir_make_checkpoints(file_posix(), t->options.run, err);
    }
    TRY(trainer_agree(t, s, err));
    s = checkpoint_save(file_posix(), path, &content, t->summaries, err);
    t->failed_together = s != STATUS_OK;
    TRY(s);
    TRY(trainer_agree(t, first ? publish(t, err) : STATUS_OK, err));
    t->saved_step = t->step;
    log_write(t->options.log, LOG_LEVEL_DEBUG, "saved %s", path);
    return STATUS_OK;
}
