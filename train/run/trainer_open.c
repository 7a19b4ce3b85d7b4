/*
 * trainer_open: from options to a loader, a model on its device, state, loss and schedule.
 */
#include "train/run/trainer_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/file_io.h"
#include "formats/tokenizer/tokenizer.h"
#include "kernels/device_stream.h"
#include "train/comm/comm_device.h"
#include "train/loss/loss_row.h"
#include "train/model/pretrained.h"
#include "train/run/run_dir.h"

/* Applies an open_clip model's configuration. */
static enum status
take_model(struct model_config *c, const struct trainer_options *o, struct error *err) {
    struct dual_encoder_options model;
    TRY(open_clip_config(c->open_clip, o->model, err));
    TRY(open_clip_options(&model, c->open_clip, err));
    if (!trainer_task(o)->captions) { /* only its image tower */
        FAIL_IF(o->patch_dropout > 0.0 || model.vit.patch_dropout > 0.0, err, STATUS_USAGE,
                "patch dropout is for images with captions, not for --task %s",
                trainer_task(o)->name);
        return STATUS_OK;
    }
    if (o->patch_dropout >= 0.0) {
        FAIL_IF(model.vit.layers == 0 || model.vit.map, err, STATUS_USAGE,
                "--patch-dropout is for CLIP's vision transformers");
        model.vit.patch_dropout = o->patch_dropout;
        TRY(open_clip_text(c->open_clip, &model, err));
    }
    FAIL_IF(model.embed_dim != c->embed_dim, err, STATUS_USAGE,
            "the model's embed_dim is %d, --embed-dim is %d", (int)model.embed_dim,
            (int)c->embed_dim);
    FAIL_IF(c->max_tokens > model.text.max_tokens, err, STATUS_USAGE,
            "--max-tokens %d is more than the model's text_cfg.context_length %d",
            (int)c->max_tokens, (int)model.text.max_tokens);
    FAIL_IF(c->vocab_count != model.text.vocab_count && o->run != NULL && o->tokenizer == NULL &&
                o->init == NULL,
            err, STATUS_USAGE,
            "the model's text_cfg.vocab_size is %d, and CLIP's tokenizer has %d tokens; give the "
            "model's own with --tokenizer FILE",
            (int)model.text.vocab_count, (int)c->vocab_count);
    c->text_pool = model.text.pool;
    return STATUS_OK;
}

static enum status make_config(struct model_config *c,
                               const struct trainer_options *o,
                               uint32_t vocab_count,
                               struct error *err) {
    const struct task_row *task = trainer_task(o);
    *c = (struct model_config){.embed_dim = (int32_t)o->embed_dim, .raw = task->raw};
    if (task->head) {
        c->hidden_dim = (int32_t)o->hidden_dim;
    }
    if (task->views > 0) {
        c->small_stem = o->small_stem;
        c->norm_layers = o->norm_layers;
        c->image_size_px = (int32_t)o->image_size_px;
        c->image_norm = o->image_norm;
        c->resize = o->resize;
    }
    if (task->captions) {
        c->max_tokens = (int32_t)o->max_tokens;
        c->vocab_count = (int32_t)vocab_count;
        c->clean_captions = o->clean_captions;
        c->text_pool = o->text_pool;
    }
    const char *image_tower = o->model != NULL ? "open_clip" : o->image_tower;
    const char *text_tower = o->model != NULL ? "open_clip" : o->text_tower;
    FAIL_IF(strlen(image_tower) >= sizeof c->image_tower ||
                strlen(text_tower) >= sizeof c->text_tower,
            err, STATUS_USAGE, "there is no tower of such a long name");
    if (task->views > 0) {
        memcpy(c->image_tower, image_tower, strlen(image_tower) + 1);
    }
    if (task->captions) {
        memcpy(c->text_tower, text_tower, strlen(text_tower) + 1);
    }
    return o->model != NULL ? take_model(c, o, err) : STATUS_OK;
}

/* A run resumed with more ranks may have less than a micro-batch on each. */
static int32_t local_micro_batch(const struct trainer_options *o) {
    const uint32_t count = trainer_local_count(o);
    return (int32_t)(o->micro_batch_count > count && count < o->batch_count ? count
                                                                            : o->micro_batch_count);
}

/* The ranks whose micro-batches update each other's running statistics; with --sync-bn batch
 * statistics already cover all ranks. */
static struct comm *running_ranks(const struct trainer_options *o) {
    return o->sync_bn ? NULL : o->comm;
}

/* As in struct tuning. */
static int32_t lock_of(uint64_t groups) {
    return groups == UINT64_MAX ? 0 : 1 + (int32_t)groups;
}

static double rate_of(const struct trainer_options *o, double lr) {
    return lr < 0.0 ? 1.0 : lr / o->lr;
}

static enum status model_options(struct dual_encoder_options *out,
                                 const struct model_config *c,
                                 const struct trainer_options *o,
                                 struct error *err) {
    TRY(model_config_options(c, out, err));
    out->text.dropout = (float)o->dropout;
    out->max_batch = (int32_t)trainer_local_count(o);
    out->micro_batch = local_micro_batch(o);
    out->comm = running_ranks(o);
    out->training = true;
    out->dtype = o->dtype;
    out->padded = o->padded_captions;
    out->no_projection_bias = o->no_projection_bias;
    out->average = o->ema > 0.0;
    out->recompute = o->grad_checkpoint;
    const struct trainer_tuning *t = &o->tuning;
    out->tuning = (struct tuning){.lock = {lock_of(t->lock_image), lock_of(t->lock_text)},
                                  .rate = {rate_of(o, t->image_lr), rate_of(o, t->text_lr)},
                                  .layer_decay = t->layer_decay};
    out->moments = optimizer_moments(o->optimizer.kind);
    return STATUS_OK;
}

static enum status view_options(struct view_encoder_options *out,
                                const struct model_config *c,
                                const struct trainer_options *o,
                                struct error *err) {
    TRY(model_config_view_options(c, out, err));
    out->max_batch = 2 * (int32_t)trainer_local_count(o);
    out->micro_batch = local_micro_batch(o);
    if (o->task == TRAINER_BLOCKS) { /* images, two per sample of the model */
        out->max_batch /= 2;
        out->micro_batch = (out->micro_batch + 1) / 2;
    }
    out->comm = running_ranks(o);
    out->dtype = o->dtype;
    out->average = o->ema > 0.0;
    out->recompute = o->grad_checkpoint;
    out->moments = optimizer_moments(o->optimizer.kind);
    return STATUS_OK;
}

static enum status check_tuning(const struct trainer_options *o, struct error *err) {
    const struct trainer_tuning *t = &o->tuning;
    const bool rates = t->image_lr >= 0.0 || t->text_lr >= 0.0 || t->layer_decay != 1.0;
    FAIL_IF(o->task != TRAINER_PAIRS &&
                (rates || t->lock_image != UINT64_MAX || t->lock_text != UINT64_MAX),
            err, STATUS_USAGE,
            "--lock-image, --lock-text, --image-lr, --text-lr and --layer-decay are for images "
            "with captions, not for --task %s",
            trainer_task(o)->name);
    FAIL_IF(rates && (optimizer_moments(o->optimizer.kind) != 2 || o->lr == 0.0), err, STATUS_USAGE,
            "--image-lr, --text-lr and --layer-decay need --optimizer adamw or adam, and --lr > 0");
    return STATUS_OK;
}

/* Rejects options that are for pairs only, or exclude each other. */
static enum status check_task(const struct trainer_options *o, struct error *err) {
    const struct task_row *task = trainer_task(o);
    TRY(check_tuning(o, err));
    TRY(trainer_check_figures(o, err));
    FAIL_IF(o->grad_checkpoint && task->head && o->model == NULL, err, STATUS_USAGE,
            "--grad-checkpoint is for transformers; --task %s has none without --model",
            task->name);
    FAIL_IF(o->init != NULL && (o->init_image != NULL || o->init_text != NULL), err, STATUS_USAGE,
            "--init loads the whole model; omit --init-%s",
            o->init_image != NULL ? "image" : "text");
    FAIL_IF(o->model != NULL && (o->init_image != NULL || o->init_text != NULL), err, STATUS_USAGE,
            "--init-image and --init-text are for --image-tower and --text-tower, not for --model");
    FAIL_IF((o->init_state || o->loss.recover_epochs > 0) && o->init == NULL, err, STATUS_USAGE,
            "--%s requires --init RUN", o->init_state ? "init-state" : "recover-state");
    FAIL_IF(o->loss.recover_epochs > 0 && o->loss.recover_epochs >= o->epochs, err, STATUS_USAGE,
            "--recover-state %" PRIu64 " uses all of the %" PRIu64 " epochs; raise --epochs",
            o->loss.recover_epochs, o->epochs);
    FAIL_IF(o->loss.recover_epochs > 0 && o->loss.parity == LOSS_PARITY_REFERENCE, err,
            STATUS_USAGE, "--recover-state: --variant code has a schedule of its own");
    FAIL_IF(o->sync_bn && o->norm_layers != RESNET_NORM_BATCH, err, STATUS_USAGE,
            "--sync-bn is for --norm-layer batch; --norm-layer %s has no batch statistics",
            RESNET_NORM_NAMES[o->norm_layers]);
    if (o->task == TRAINER_BLOCKS) {
        TRY(trainer_check_blocks(o, err));
        FAIL_IF(o->order != LOADER_ORDER_GLOBAL, err, STATUS_USAGE,
                "--task blocks has an order of its own, by class");
    }
    FAIL_IF(task->views == 0 && o->init_image != NULL, err, STATUS_USAGE,
            "--init-image: --block-of captions has no image tower");
    const bool texts = task->captions;
    const char *wrong = o->task == TRAINER_PAIRS                         ? NULL
                        : o->model != NULL && !task->views               ? "--model"
                        : o->val != NULL                                 ? "--val"
                        : o->zeroshot != NULL                            ? "--zeroshot"
                        : o->pair_noise > 0.0                            ? "--pair-noise"
                        : o->caption_columns != NULL                     ? "--caption-columns"
                        : o->reference != NULL                           ? "--reference"
                        : o->teacher_image != NULL                       ? "--teacher-image"
                        : o->weight != NULL && o->task == TRAINER_BLOCKS ? "--weight"
                        : !texts && o->init_text != NULL                 ? "--init-text"
                        : !texts && o->tokenizer != NULL                 ? "--tokenizer"
                        : !texts && o->no_projection_bias                ? "--projection-bias off"
                                                                         : NULL;
    return wrong == NULL
               ? STATUS_OK
               : error_set(err, STATUS_USAGE, "%s is for images with captions, not for --task %s%s",
                           wrong, task->name,
                           o->val == NULL && o->zeroshot == NULL
                               ? ""
                               : "; --knn TRAIN:TEST evaluates features");
}

uint32_t trainer_positives(const struct trainer_options *o) {
    struct loss_options loss = o->loss;
    loss.views = trainer_task(o)->head;
    return loss_positives(&loss);
}

/* A batch has whole samples, and at least two. */
static enum status check_positives(const struct trainer_options *o, struct error *err) {
    const uint32_t m = trainer_positives(o);
    return o->batch_count % m == 0 && o->batch_count / m >= 2
               ? STATUS_OK
               : error_set(
                     err, STATUS_USAGE,
                     "--batch-size %u is not a multiple of --positives %u, of at least 2 samples",
                     o->batch_count, m);
}

static bool is_gpu(const struct trainer_options *o) {
    return strncmp(o->device, "cuda", 4) == 0;
}

/* The loss's part of the plan, computed from a state with one sample. */
static enum status plan_contrast(struct dual_encoder_memory *m,
                                 const struct trainer_options *o,
                                 uint64_t id_space_count,
                                 uint64_t text_count,
                                 struct error *err) {
    const bool views = o->task == TRAINER_VIEWS;
    struct loss_options options = o->loss;
    struct sample_state *state = NULL;
    struct sample_state *captions = NULL;
    struct loss *loss = NULL;
    options.views = views;
    char names[LOADER_CAPTION_NAMES_BYTES];
    loader_caption_column_names(names, o->caption_columns);
    for (const char *at = names; *at != '\0'; at++) {
        text_count += at == names || *at == ',' ? id_space_count : 0;
    }
    const bool by_caption = o->text_state == TRAINER_TEXT_CAPTION && !views &&
                            text_count > id_space_count && loss_keeps_texts(&options);
    TRY(sample_state_create(&state, 1, NULL, err));
    const uint64_t world = o->batch_count / trainer_local_count(o);
    enum status s = by_caption ? sample_state_create(&captions, 1, NULL, err) : STATUS_OK;
    THEN(s, loss_create_by_caption(&loss, &options, state, captions,
                                   id_space_count > 2 ? id_space_count : 2, o->batch_count, err));
    int64_t tile = 0;
    THEN(s, trainer_tile(&tile, o, loss, is_gpu(o) ? LOSS_MAX_WHOLE : LOSS_WHOLE, err));
    if (s == STATUS_OK) {
        const bool host = o->state == TRAINER_STATE_HOST || world > 1 || trainer_has_columns(o) ||
                          tile > 0 || !loss_has_kernels(loss, NULL);
        const bool here = !is_gpu(o) || (!host && o->state != TRAINER_STATE_PINNED);
        m->loss_bytes = trainer_loss_bytes(o, loss, is_gpu(o) && !host, tile);
        m->state_bytes =
            here ? sample_state_bytes(state) * (size_t)((id_space_count + world - 1) / world) : 0;
        m->state_bytes += here && by_caption ? sample_state_bytes(captions) *
                                                   (size_t)((text_count + world - 1) / world)
                                             : 0;
        m->state_bytes +=
            loss_cache_refresh(loss) > 0.0 ? trainer_cache_bytes(o, id_space_count) : 0;
        const size_t more_gradients =
            loss_carries(loss) ? (size_t)m->parameter_count * sizeof(float) : 0;
        m->gradients_bytes += more_gradients;
        m->total_bytes += more_gradients + m->loss_bytes + m->state_bytes;
    }
    loss_destroy(loss);
    sample_state_destroy(state);
    sample_state_destroy(captions);
    return s;
}

static enum status plan_model(struct dual_encoder_memory *out,
                              const struct trainer_options *opt,
                              uint32_t vocab_count,
                              struct error *err) {
    struct model_config config;
    struct dual_encoder_options model;
    struct view_encoder_options views;
    TRY(check_task(opt, err));
    TRY(trainer_check_batch(opt, err));
    TRY(check_positives(opt, err));
    TRY(make_config(&config, opt, vocab_count, err));
    if (trainer_task(opt)->head) {
        TRY(view_options(&views, &config, opt, err));
        views.slots = is_gpu(opt) ? TRAINER_FLIGHTS : 0;
        return view_encoder_plan(out, &views, err);
    }
    TRY(model_options(&model, &config, opt, err));
    model.slots = is_gpu(opt) ? TRAINER_FLIGHTS : 0;
    return dual_encoder_plan(out, &model, err);
}

/* Other memory of a process on a CPU: code, libraries and compiled kernels took 57 to 80 MB
 * (docs/results/steps.md); and the loader's batches of images. */
static size_t process_bytes(const struct trainer_options *opt) {
    struct loader_options lo;
    loader_options_default(&lo);
    const size_t views = opt->blocks.captions ? 0 : trainer_task(opt)->views;
    const size_t image_bytes = (size_t)opt->image_size_px * opt->image_size_px * 3;
    return ((size_t)64 << 20) +
           (lo.prefetch_batches + 1) * views * trainer_local_count(opt) * image_bytes;
}

enum status trainer_plan(struct dual_encoder_memory *out,
                         const struct trainer_options *opt,
                         uint32_t vocab_count,
                         uint64_t id_space_count,
                         uint64_t text_count,
                         struct error *err) {
    TRY(plan_model(out, opt, vocab_count, err));
    out->process_bytes = is_gpu(opt) ? 0 : process_bytes(opt);
    out->total_bytes += out->process_bytes;
    if (opt->task == TRAINER_BLOCKS) { /* one column, visits */
        out->loss_bytes = trainer_loss_bytes(opt, NULL, false, 0);
        out->state_bytes = sizeof(uint64_t) * id_space_count;
        out->total_bytes += out->loss_bytes + out->state_bytes;
        return STATUS_OK;
    }
    return plan_contrast(out, opt, id_space_count, text_count, err);
}

/* Batches are in page-locked memory, which the device copies from. */
static void *alloc_pinned(void *cookie, size_t size_bytes) {
    struct device *dev = cookie;
    void *data;
    return dev->stream->alloc_host(dev, size_bytes, &data, NULL) == STATUS_OK ? data : NULL;
}

static void free_pinned(void *cookie, void *data) {
    struct device *dev = cookie;
    dev->stream->free_host(dev, data);
}

static enum status open_device(struct trainer *t, struct error *err) {
    struct device_options how = t->options.device_options;
    how.threads_count = (int32_t)t->options.threads;
    how.log = t->options.log;
    TRY(comm_device_choose(t->comm, t->options.device, &how, err));
    return device_open_with(&t->dev, t->options.device, &how, err);
}

const char *trainer_tokenizer(const struct trainer_options *o) {
    return o->tokenizer == NULL && o->model != NULL ? TOKENIZER_CLIP_NAME : o->tokenizer;
}

/* The tokenizer of the initial checkpoint, because word embeddings belong to it; else the options',
 * opened as *given; else the loader opens the dataset's. */
static enum status choose_tokenizer(const struct trainer *t,
                                    struct loader_options *lo,
                                    struct tokenizer **given,
                                    struct error *err) {
    const struct trainer_options *o = &t->options;
    size_t size_bytes = 0;
    const void *stored = t->source != NULL ? checkpoint_tokenizer(t->source, &size_bytes) : NULL;
    const char *file = stored == NULL ? trainer_tokenizer(o) : o->tokenizer;
    if (file != NULL && !t->resumes) {
        TRY(tokenizer_load(given, file, err));
        lo->tokenizer_model = tokenizer_bytes(*given, &lo->tokenizer_model_size_bytes);
        FAIL_IF(stored != NULL && (lo->tokenizer_model_size_bytes != size_bytes ||
                                   memcmp(lo->tokenizer_model, stored, size_bytes) != 0),
                err, STATUS_MISMATCH,
                "%s was trained with another tokenizer than %s; omit --tokenizer, the "
                "checkpoint holds its own",
                checkpoint_path(t->source), file);
    } else if (trainer_task(o)->captions) {
        lo->tokenizer_model = stored;
        lo->tokenizer_model_size_bytes = size_bytes;
    }
    return STATUS_OK;
}

void trainer_order_options(const struct trainer_options *o, struct loader_options *out) {
    out->batch_count = o->batch_count;
    out->seed = o->seed;
    out->positives = trainer_positives(o);
    out->order = o->order;
    out->block_count = o->order_block_count;
    out->block_window = o->order_block_window;
    if (o->task == TRAINER_BLOCKS) {
        out->order = LOADER_ORDER_CLASSES;
        out->block_count = o->blocks.size + 1;
        out->max_corrupt_count = 0;
    }
}

enum status trainer_open_loader(struct trainer *t, struct error *err) {
    const struct trainer_options *o = &t->options;
    const struct task_row *task = trainer_task(o);
    struct loader_options lo;
    char columns[TRAINER_COLUMN_NAMES_BYTES];
    TRY(check_task(o, err));
    TRY(trainer_check_batch(o, err));
    TRY(check_positives(o, err));
    TRY(open_device(t, err));
    TRY(optimizer_check(t->dev, &o->optimizer, err));
    FAIL_IF(o->norm_layers != RESNET_NORM_BATCH && t->dev->ops->conv_gn == NULL, err,
            STATUS_UNSUPPORTED, "--norm-layer %s: device %s has no kernel for it; use --device cpu",
            RESNET_NORM_NAMES[o->norm_layers], t->dev->ops->name);
    if (o->source_count == 0) {
        return STATUS_OK;
    }
    loader_options_default(&lo);
    trainer_order_options(o, &lo);
    lo.rank = (uint32_t)comm_rank(t->comm);
    lo.world = (uint32_t)comm_world(t->comm);
    lo.image_size_px = o->image_size_px;
    lo.augment = o->augment;
    lo.crop_min = o->crop_min;
    lo.crop_max = o->crop_max;
    lo.fixed_views = o->fixed_views;
    lo.pair_noise = o->pair_noise;
    lo.caption_columns = o->caption_columns;
    TRY(trainer_list_columns(o, columns, sizeof columns, err));
    lo.columns = trainer_has_columns(o) ? columns : NULL;
    lo.columns_required = true;
    lo.max_tokens = o->max_tokens;
    lo.clean_captions = o->clean_captions;
    lo.views = task->views;
    if (!task->captions) {
        lo.captions = LOADER_CAPTIONS_NONE;
    }
    lo.threads = o->loader_threads;
    lo.engine = o->engine;
    lo.log = o->log;
    if (t->dev->stream != NULL) {
        lo.host_memory =
            (struct host_memory){.alloc = alloc_pinned, .release = free_pinned, .cookie = t->dev};
    }
    struct tokenizer *given = NULL;
    enum status s = choose_tokenizer(t, &lo, &given, err);
    THEN(s, loader_open_mix(&t->loader, o->sources, o->source_count, &lo, err));
    tokenizer_close(given);
    TRY(s);
    loader_info(t->loader, &t->data);
    FAIL_IF(
        task->captions && t->data.vocab_count == 0, err, STATUS_USAGE,
        "%s has no tokenizer; make one with 'ccpack tokenizer %s', or pass one with --tokenizer",
        o->sources[0].directory, o->sources[0].directory);
    return STATUS_OK;
}

enum status trainer_alloc_matrix(struct trainer *t,
                                 struct tensor *out,
                                 int64_t rows,
                                 int64_t columns,
                                 struct error *err) {
    void *data = NULL;
    TRY(t->dev->ops->alloc(t->dev, (size_t)(rows * columns) * sizeof(float), &data, err));
    *out = tensor_2d(data, DTYPE_F32, rows, columns);
    return STATUS_OK;
}

void trainer_free_matrix(struct trainer *t, struct tensor *m) {
    if (t->dev != NULL) {
        t->dev->ops->free(t->dev, m->data);
    }
}

static enum status open_values(struct trainer *t, struct error *err) {
    const struct step_values values = {.grad_scale = 1.0, .sound = 1};
    void *data = NULL;
    TRY(t->dev->ops->alloc(t->dev, sizeof *t->values, &data, err));
    t->values = data;
    return t->dev->ops->upload(t->dev, t->values, &values, sizeof values, err);
}

/* Initialises a tower. `from`: a safetensors file or a run; NULL: the tower keeps its values. */
static enum status
first_tower(struct trainer *t, const char *tower, const char *from, struct error *err) {
    char path[PATH_MAX_BYTES];
    if (from == NULL) {
        return STATUS_OK;
    }
    TRY(run_dir_resolve(path, from, err));
    return pretrained_load(trainer_params(t), tower, file_posix(), path, t->options.log, err);
}

/* Initial values; a resumed run loads its checkpoint instead. */
static enum status first_values(struct trainer *t, struct error *err) {
    const struct trainer_options *o = &t->options;
    if (t->resumes) { /* the checkpoint has every value */
        return STATUS_OK;
    }
    TRY(params_init(trainer_params(t), o->seed, err));
    TRY(first_tower(t, "image.", o->init_image, err));
    return first_tower(t, "text.", o->init_text, err);
}

static enum status create_model(struct trainer *t, struct error *err) {
    const struct trainer_options *o = &t->options;
    struct dual_encoder_options model;
    struct view_encoder_options views;
    TRY(make_config(&t->config, o, t->data.vocab_count, err));
    if (trainer_task(o)->head) {
        TRY(view_options(&views, &t->config, o, err));
        views.slots = t->dev->stream != NULL ? TRAINER_FLIGHTS : 0;
        TRY(trainer_bn_group(t, &views.image.bn_group, err));
        return view_encoder_create(&t->views, t->dev, &views, err);
    }
    TRY(model_options(&model, &t->config, o, err));
    model.slots = t->dev->stream != NULL ? TRAINER_FLIGHTS : 0;
    TRY(trainer_bn_group(t, &model.image.bn_group, err));
    return dual_encoder_create(&t->model, t->dev, &model, err);
}

/* Allocates the gradients of embeddings by side; with several ranks also the gathered embeddings.
 */
static enum status open_embeddings(struct trainer *t, struct error *err) {
    const struct trainer_options *o = &t->options;
    const struct task_row *task = trainer_task(o);
    const int64_t rows = trainer_rows(o);
    const bool alone = comm_world(t->comm) == 1;
    for (int side = 0; side < task->sides; side++) {
        TRY(trainer_alloc_matrix(t, &t->dx[side], rows, o->embed_dim, err));
        TRY(alone ? STATUS_OK : trainer_alloc_matrix(t, &t->x[side], rows, o->embed_dim, err));
    }
    return alone || task->rows == 1
               ? STATUS_OK
               : trainer_alloc_matrix(t, &t->own_dx, task->rows * trainer_local_count(o),
                                      o->embed_dim, err);
}

enum status trainer_open_model(struct trainer *t, struct error *err) {
    const struct trainer_options *o = &t->options;
    const int64_t b = o->batch_count;
    struct loss_options loss = o->loss;
    loss.views = o->task == TRAINER_VIEWS;
    loss.gamma_epochs = loss.gamma_epochs > 0 ? loss.gamma_epochs : o->epochs / 2;
    loss.beta_epochs = loss.beta_epochs > 0 ? loss.beta_epochs : o->epochs;
    if (optimizer_moments(o->optimizer.kind) == 2) {
        loss.beta1 = o->optimizer.beta1;
        loss.beta2 = o->optimizer.beta2;
        loss.eps = o->optimizer.eps;
    }
    if (loss.tau == 0.0 && o->init != NULL) {
        TRY(checkpoint_choose_tau(t->source, &loss.tau, err));
    }
    TRY(create_model(t, err));
    TRY(trainer_open_captions(t, &loss, err));
    TRY(trainer_open_flights(t, err));
    TRY(first_values(t, err));
    TRY(sample_state_create(&t->state, t->data.id_space, t->comm, err));
    TRY(o->task == TRAINER_BLOCKS ? trainer_open_blocks(t, err)
                                  : loss_create_by_caption(&t->loss, &loss, t->state, t->captions,
                                                           t->data.sample_count, b, err));
    TRY(open_values(t, err));
    TRY(open_embeddings(t, err));
    TRY(trainer_open_ranks(t, err));
    TRY(trainer_open_offbatch(t, err));
    TRY(trainer_open_loss(t, err));
    return trainer_open_columns(t, err);
}

static bool has_zeta(const struct trainer *t) {
    const struct loss_row *row;
    struct loss_options loss = t->options.loss;
    loss.views = t->options.task == TRAINER_VIEWS;
    return t->loss != NULL && loss_find_row(&row, &loss, NULL) == STATUS_OK &&
           loss_reads(row, &loss, LOSS_ZETA_LR);
}

void trainer_make_schedule(struct trainer *t) {
    const struct trainer_options *o = &t->options;
    const uint64_t frozen = o->loss.recover_epochs * t->data.steps_per_epoch;
    const uint64_t total = o->epochs * t->data.steps_per_epoch - frozen;
    const uint64_t tenth =
        (o->warmup_epochs > 0 ? o->warmup_epochs * t->data.steps_per_epoch : total) / 10;
    if (!has_zeta(t)) {
        t->options.loss.zeta_lr = 0.0;
    }
    t->schedule = (struct schedule){.peak_lr = o->lr,
                                    .final_lr = o->min_lr,
                                    .plateau = o->warmup_plateau,
                                    .frozen_steps = frozen,
                                    .total_steps = frozen + total};
    t->schedule.warmup_steps = o->warmup_steps != UINT64_MAX ? o->warmup_steps
                               : tenth < 500                 ? tenth
                                                             : 500;
}
