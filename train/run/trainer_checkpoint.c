/*
 * trainer_checkpoint: what a run saves, and what must agree before it resumes. With other data
 * than before: trainer_remap.
 */
#include "train/run/trainer_internal.h"

#include <inttypes.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/tokenizer/tokenizer.h"
#include "train/run/run_dir.h"

/* Where a restored run continues: where it was, or, with other data, at the beginning of the epoch
 * it was in, because an epoch is another order of other samples now. Steps then count as if earlier
 * epochs had been as long. */
static struct loader_state restored_place(const struct trainer *t, const struct train_position *p) {
    const enum trainer_data data = trainer_compare_data(t, p);
    struct loader_state place = {.fingerprint = p->fingerprint,
                                 .seed = p->seed,
                                 .epoch = p->epoch,
                                 .step = p->batch,
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
        place.mix = p->mix; /* datasets that grow keep their weights */
    }
    return place;
}

/* What must agree between a checkpoint and this run, and the message if it does not. */
static enum status
check_same_run(const struct trainer *t, const struct checkpoint *c, struct error *err) {
    const struct model_config *m = checkpoint_model(c);
    const struct train_position *p = checkpoint_position(c);
    const char *what = NULL;
    if ((m->hidden_dim > 0) != (t->config.hidden_dim > 0)) {
        what = "task";
    } else if (strcmp(m->image_tower, t->config.image_tower) != 0 ||
               strcmp(m->text_tower, t->config.text_tower) != 0 ||
               m->small_stem != t->config.small_stem) {
        what = "towers";
    } else if (m->image_size_px != t->config.image_size_px) {
        what = "image size";
    } else if (m->text_pool != t->config.text_pool) {
        what = "pool of text";
    } else if (m->image_norm != t->config.image_norm) {
        what = "normalisation of pictures";
    } else if (m->max_tokens != t->config.max_tokens || m->vocab_count != t->config.vocab_count ||
               m->clean_captions != t->config.clean_captions) {
        what = "tokens or vocabulary";
    } else if (m->embed_dim != t->config.embed_dim || m->hidden_dim != t->config.hidden_dim) {
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
    /* seek reports what differs between mixes. */
    if (p->source_count == 1 && t->options.source_count == 1 &&
        trainer_compare_data(t, p) == TRAINER_DATA_OTHER) {
        return error_set(
            err, STATUS_MISMATCH,
            "%s was trained on dataset %016" PRIx64 " (%" PRIu64 " samples), %s is %016" PRIx64
            " (%" PRIu64 " samples); --remap-state takes over what they share",
            checkpoint_path(c), p->fingerprint, p->samples_count, t->options.sources[0].directory,
            t->data.fingerprint, t->data.sample_count);
    }
    if (t->views != NULL) {
        return STATUS_OK; /* it reads no captions */
    }
    size_t stored_size;
    size_t size;
    const void *stored = checkpoint_tokenizer(c, &stored_size);
    const void *bytes = tokenizer_bytes(loader_tokenizer(t->loader), &size);
    if (stored == NULL || stored_size != size || memcmp(stored, bytes, size) != 0) {
        return error_set(err, STATUS_MISMATCH,
                         "%s was trained with another tokenizer than that of %s",
                         checkpoint_path(c), t->options.sources[0].directory);
    }
    return STATUS_OK;
}

/* Brings the loader to where the run continues. */
static enum status seek(struct trainer *t, const struct train_position *p, struct error *err) {
    const struct loader_state place = restored_place(t, p);
    struct error why = {0};
    const enum status s = loader_seek(t->loader, &place, &why);
    if (s == STATUS_OK) {
        return STATUS_OK;
    }
    const bool other = s == STATUS_MISMATCH && trainer_compare_data(t, p) == TRAINER_DATA_OTHER;
    return error_set(err, s, "%s%s", why.text,
                     other ? "; --remap-state, once for each dataset of the run, takes over what "
                             "they share"
                           : "");
}

enum status trainer_restore(struct trainer *t, struct error *err) {
    bool there = false;
    TRY(run_dir_has_checkpoint(t->options.run, &there, err));
    if (!there) {
        return STATUS_OK;
    }
    struct checkpoint *c = NULL;
    TRY(checkpoint_open(&c, file_posix(), t->options.run, err));
    const struct loss_scalar *scalars;
    const int32_t scalar_count = loss_scalars(t->loss, &scalars);
    const struct train_position *p = checkpoint_position(c);
    enum status s = check_same_run(t, c, err);
    if (s == STATUS_OK) {
        s = seek(t, p, err);
    }
    if (s == STATUS_OK) {
        s = checkpoint_load_params(c, trainer_params(t), true, err);
    }
    if (s == STATUS_OK) {
        const bool same = trainer_compare_data(t, p) == TRAINER_DATA_SAME;
        s = same ? checkpoint_load_state(c, t->state, scalars, scalar_count, err)
                 : checkpoint_load_scalars(c, scalars, scalar_count, err);
        if (s == STATUS_OK && !same) {
            s = trainer_remap_state(t, c, err);
        }
        if (s == STATUS_OK && t->loss_device != NULL) {
            s = loss_device_send(t->loss_device, err);
        }
        t->step = same ? p->step : p->epoch * t->data.steps_per_epoch;
        t->resumed_step = p->step;
        if (same) { /* else the state is not what the file holds */
            t->saved_step = p->step;
        }
    }
    checkpoint_close(c);
    return s;
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
                               .source_count = place.source_count};
    for (uint32_t i = 0; i < place.source_count; i++) {
        p.sources[i].fingerprint = place.sources[i].fingerprint;
        p.sources[i].id_offset = place.sources[i].id_offset;
    }
    return p;
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
                                         .tau = loss_temperature_now(t->loss),
                                         .params = trainer_params(t),
                                         .state = t->state};
    content.scalar_count = loss_scalars(t->loss, &content.scalars);
    if (t->views == NULL) {
        content.tokenizer =
            tokenizer_bytes(loader_tokenizer(t->loader), &content.tokenizer_size_bytes);
    }
    char path[PATH_MAX_BYTES];
    TRY(metrics_state(t->metrics, t->step, t->state, err));
    TRY(metrics_sync(t->metrics, err));
    TRY(run_dir_make_checkpoints(file_posix(), t->options.run, err));
    TRY(run_dir_checkpoint_path(path, t->options.run, t->step, err));
    TRY(checkpoint_save(file_posix(), path, &content, err));
    TRY(run_dir_publish(file_posix(), t->options.run, t->step, t->options.keep_count, err));
    t->saved_step = t->step;
    log_write(t->options.log, LOG_LEVEL_DEBUG, "saved %s", path);
    return STATUS_OK;
}
