/*
 * trainer_checkpoint: what a run saves, and what must agree before it goes on from there.
 */
#include "train/trainer_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/dataset.h"
#include "formats/tokenizer.h"
#include "train/run_dir.h"
#include "train/state_remap.h"

static bool is_single(const struct trainer *t, const struct train_position *p) {
    return t->options.source_count == 1 && p->source_count == 1;
}

/* Whether the dataset was once, before something was appended, what the checkpoint was trained on.
 * A mix may not grow: a dataset's share, and the ids behind it, depend on its size. */
static bool has_grown_from(const struct trainer *t, const struct train_position *p) {
    if (!is_single(t, p)) {
        return false;
    }
    const struct manifest *m = dataset_manifest(loader_dataset(t->loader, 0));
    for (size_t g = 0; g < m->generation_count; g++) {
        if (m->generations[g].fingerprint == p->fingerprint) {
            return true;
        }
    }
    return false;
}

/* Whether the run goes on with another dataset than before. */
static bool remaps(const struct trainer *t, const struct train_position *p) {
    return t->options.remap_state != NULL && is_single(t, p) &&
           p->fingerprint != t->data.fingerprint;
}

/* Where a restored run goes on: where it was, or, on a dataset that has grown, at the beginning of
 * the epoch it was in, because an epoch is another order of other samples now. Steps then count as
 * if earlier epochs had been as long. */
static struct loader_state restored_place(const struct trainer *t, const struct train_position *p) {
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
    if (remaps(t, p)) {
        place.fingerprint = t->data.fingerprint;
        place.step = 0;
    } else if (p->fingerprint != t->data.fingerprint && has_grown_from(t, p)) {
        place.fingerprint = t->data.fingerprint;
        place.step = 0;
        log_write(
            t->options.log, LOG_LEVEL_INFO,
            "%s has grown from %" PRIu64 " to %" PRIu64 " samples; epoch %" PRIu64 " begins anew",
            t->options.sources[0].directory, p->samples_count, t->data.sample_count, p->epoch + 1);
    }
    return place;
}

/* What must agree between a checkpoint and this run, and what to say when it does not. */
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
    /* What differs between mixes is for loader_seek to say. */
    if (!remaps(t, p) && is_single(t, p) && p->fingerprint != t->data.fingerprint &&
        !has_grown_from(t, p)) {
        return error_set(
            err, STATUS_MISMATCH,
            "%s was trained on dataset %016" PRIx64 " (%" PRIu64 " samples), %s is %016" PRIx64
            " (%" PRIu64 " samples); --remap-state takes over what they share",
            checkpoint_path(c), p->fingerprint, p->samples_count, t->options.sources[0].directory,
            t->data.fingerprint, t->data.sample_count);
    }
    if (t->views != NULL) {
        return STATUS_OK; /* it looks at no captions */
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

/* The state of the checkpoint's dataset, in columns like those of the run. */
static enum status load_old_state(struct sample_state **out,
                                  const struct trainer *t,
                                  const struct checkpoint *c,
                                  struct error *err) {
    struct sample_state *old = NULL;
    TRY(sample_state_create(&old, checkpoint_position(c)->id_space_count, err));
    enum status s = STATUS_OK;
    for (int32_t i = 0; i < sample_state_count(t->state) && s == STATUS_OK; i++) {
        const enum sample_state_kind kind = sample_state_kind(t->state, i);
        const char *name = sample_state_name(t->state, i);
        int32_t column;
        s = kind == SAMPLE_STATE_F32
                ? sample_state_add(old, name, SAMPLE_STATE_UNVISITED, &column, err)
                : sample_state_add_u64(old, name, kind, &column, err);
    }
    if (s == STATUS_OK) {
        s = checkpoint_load_state(c, old, NULL, 0, err);
    }
    if (s != STATUS_OK) {
        sample_state_destroy(old);
        return s;
    }
    *out = old;
    return STATUS_OK;
}

static enum status open_old_data(struct dataset **out,
                                 const struct trainer *t,
                                 const struct checkpoint *c,
                                 struct error *err) {
    const struct train_position *p = checkpoint_position(c);
    const char *directory = t->options.remap_state;
    TRY(dataset_open(out, directory, file_posix(), err));
    if (dataset_fingerprint(*out) == p->fingerprint) {
        return STATUS_OK;
    }
    const uint64_t found = dataset_fingerprint(*out);
    dataset_close(*out);
    return error_set(err, STATUS_MISMATCH,
                     "%s was trained on dataset %016" PRIx64 ", --remap-state %s is %016" PRIx64
                     ": it takes the directory of the former",
                     checkpoint_path(c), p->fingerprint, directory, found);
}

/* The state of every sample whose image the checkpoint's dataset had too. */
static enum status remap_state(struct trainer *t, const struct checkpoint *c, struct error *err) {
    struct dataset *before = NULL;
    struct sample_state *old = NULL;
    struct state_remap_counts counts;
    TRY(open_old_data(&before, t, c, err));
    uint64_t *old_ids = malloc((size_t)t->data.id_space * sizeof *old_ids);
    enum status s = old_ids != NULL ? load_old_state(&old, t, c, err)
                                    : error_set(err, STATUS_NOMEM, "no memory to renumber samples");
    if (s == STATUS_OK) {
        s = state_remap_ids(old_ids, &counts, loader_dataset(t->loader, 0), before, err);
    }
    if (s == STATUS_OK) {
        s = sample_state_remap(t->state, old, old_ids, err);
    }
    if (s == STATUS_OK) {
        log_write(t->options.log, LOG_LEVEL_INFO,
                  "state of %" PRIu64 " samples taken over by image, %" PRIu64
                  " begin anew, %" PRIu64 " of %s are not there any more; epoch %" PRIu64
                  " begins anew",
                  counts.matched_count, counts.unmatched_count, counts.forgotten_count,
                  t->options.remap_state, checkpoint_position(c)->epoch + 1);
    }
    free(old_ids);
    sample_state_destroy(old);
    dataset_close(before);
    return s;
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
    struct loader_state place = {0};
    enum status s = check_same_run(t, c, err);
    if (s == STATUS_OK) {
        place = restored_place(t, p);
        s = loader_seek(t->loader, &place, err);
    }
    if (s == STATUS_OK) {
        s = checkpoint_load_params(c, trainer_params(t), true, err);
    }
    if (s == STATUS_OK) {
        /* Of a remapped run the scalars alone. */
        s = remaps(t, p) ? checkpoint_load_scalars(c, scalars, scalar_count, err)
                         : checkpoint_load_state(c, t->state, scalars, scalar_count, err);
    }
    if (s == STATUS_OK && remaps(t, p)) {
        s = remap_state(t, c, err);
    }
    if (s == STATUS_OK) {
        t->step =
            p->fingerprint == t->data.fingerprint ? p->step : place.epoch * t->data.steps_per_epoch;
        t->resumed_step = p->step;
        t->saved_step = p->step;
    }
    checkpoint_close(c);
    return s;
}

static struct train_position position_of(const struct trainer *t) {
    const struct loader_state place = loader_state(t->loader);
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
