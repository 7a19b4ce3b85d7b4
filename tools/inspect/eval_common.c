/*
 * eval_common: opening a checkpoint, labels, printing classifications.
 */
#include "tools/inspect/eval_common.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/path_kind.h"

/* The names after "own" are in the order of IMAGE_NORMS. */
static const char *const image_norm_choices[] = {"own",      "clip", "imagenet",  "cifar10",
                                                 "cifar100", "none", "inception", NULL};
const char *const eval_transform_choices[] = {"own", "crop", "squash", "clip", "longest", NULL};

#define FIELD(name) CLI_FIELD(struct eval_options, name)

const struct cli_option eval_option_rows[EVAL_OPTION_COUNT] = {
    {"image-norm", 0, CLI_ENUM, FIELD(image_norm), .alias = "normalize",
     .choices = image_norm_choices, .default_text = "own", .metavar = "NAME",
     .group = "Common options",
     .help = "channel mean and std for normalising images; own: as in training (the papers use the "
             "dataset's or ImageNet's for zero-shot classification and probes)"},
    {"batch-size", 'b', CLI_U64, FIELD(batch_size), .alias = "batch", .min = "1", .max = "32768",
     .default_text = "128", .metavar = "N",
     .help = "images or captions per forward pass; does not change the result"},
    {"device", 0, CLI_STRING, FIELD(device), .default_text = "cpu", .metavar = "NAME",
     .help = "cpu (oneDNN); cuda or cuda:N; auto: cuda if it works, else cpu, and the reason is "
             "logged; cpu-ref (plain loops, for checking only)"},
    {"threads", 't', CLI_U64, FIELD(threads), .min = "0", .max = "1024", .default_text = "0",
     .metavar = "N", .help = "compute threads; 0: all CPUs"},
    {"loader-threads", 0, CLI_U64, FIELD(loader_threads), .min = "0", .max = "1024",
     .default_text = "0", .metavar = "N", .help = "decode threads; 0: one per CPU"},
    {"ema", 0, CLI_FLAG, FIELD(ema),
     .help = "use the averaged weights (EMA) of a run with --ema instead of the weights"},
    {"json", 0, CLI_FLAG, FIELD(json), .help = "one JSON object on stdout"},
    {"quiet", 'q', CLI_FLAG, FIELD(quiet), .help = "only warnings and errors on stderr"},
};

const struct cli_option eval_remote_rows[EVAL_REMOTE_COUNT] = {
    CLI_REMOTE_ROWS(struct eval_options, remote)};

const struct cli_rows eval_shared[] = {CLI_ROWS(eval_option_rows),
                                       CLI_ROWS(eval_remote_rows),
                                       {NULL, 0}};

/* ---- opening ---- */

static enum status open_views(struct eval *e, const struct eval_options *o, struct error *err) {
    struct view_encoder_options views;
    TRY(model_config_view_options(checkpoint_model(e->checkpoint), &views, err));
    views.max_batch = (int32_t)o->batch_size;
    views.training = false;
    TRY(view_encoder_create(&e->encoder.views, e->dev, &views, err));
    return checkpoint_load_params(e->checkpoint, view_encoder_params(e->encoder.views), false, err);
}

static enum status open_model(struct eval *e, const struct eval_options *o, struct error *err) {
    struct dual_encoder_options model;
    if (checkpoint_model(e->checkpoint)->hidden_dim > 0) {
        return open_views(e, o, err);
    }
    TRY(model_config_options(checkpoint_model(e->checkpoint), &model, err));
    model.max_batch = (int32_t)o->batch_size;
    model.training = false;
    if (o->image_norm > 0) {
        model.image.norm = (enum image_norm_kind)(o->image_norm - 1);
    }
    TRY(dual_encoder_create(&e->model, e->dev, &model, err));
    e->encoder.pairs = e->model;
    return checkpoint_load_params(e->checkpoint, dual_encoder_params(e->model), false, err);
}

static enum status
open_any(struct eval *e, const char *checkpoint, const struct eval_options *o, struct error *err) {
    memset(e, 0, sizeof *e);
    /* ccstudy opens checkpoints too. */
    e->log = log_stderr(program_invocation_short_name, o->quiet ? LOG_LEVEL_WARN : LOG_LEVEL_INFO);
    e->quiet = o->quiet;
    cli_signals_install();
    enum status s;
    TRY(path_check_checkpoint(checkpoint, err));
    TRY(remote_choice_use(&o->remote, err));
    TRY(o->data != NULL ? path_check_dataset(o->data, err) : STATUS_OK);
    TRY_OR_FAIL(s, checkpoint_open(&e->checkpoint, file_posix(), checkpoint, err));
    TRY_OR_FAIL(s, o->ema ? checkpoint_use_average(e->checkpoint, err) : STATUS_OK);
    TRY_OR_FAIL(s, device_open(&e->dev, o->device, (int32_t)o->threads, err));
    if (e->dev->note[0] != '\0') {
        log_write(&e->log, LOG_LEVEL_INFO, "%s", e->dev->note);
    }
    TRY_OR_FAIL(s, open_model(e, o, err));
    e->tokenizer = checkpoint_tokenizer(e->checkpoint, &e->tokenizer_size_bytes);
    return STATUS_OK;
fail:
    eval_close(e);
    return s;
}

/* Closes what was opened, and reports what the model lacks; NULL: nothing. */
static enum status require(struct eval *e, const char *lacks, struct error *err) {
    if (lacks == NULL) {
        return STATUS_OK;
    }
    const enum status s =
        error_set(err, STATUS_USAGE, "%s was trained on %s", checkpoint_path(e->checkpoint), lacks);
    eval_close(e);
    return s;
}

static const char *lacks_images(const struct eval *e) {
    return e->model == NULL || !dual_encoder_get_options(e->model)->texts_alone
               ? NULL
               : "captions alone and has no tower for images; use mean, linear or knn with --layer "
                 "captions";
}

static const char *lacks_texts(const struct eval *e) {
    return e->model != NULL ? NULL
                            : "images alone and has no tower for captions; use knn, linear, mean "
                              "or embed";
}

enum status eval_open_images(struct eval *e,
                             const char *checkpoint,
                             const struct eval_options *o,
                             struct error *err) {
    TRY(open_any(e, checkpoint, o, err));
    return require(e, lacks_images(e), err);
}

enum status eval_open_texts(struct eval *e,
                            const char *checkpoint,
                            const struct eval_options *o,
                            struct error *err) {
    TRY(open_any(e, checkpoint, o, err));
    return require(e, lacks_texts(e), err);
}

enum status
eval_open(struct eval *e, const char *checkpoint, const struct eval_options *o, struct error *err) {
    TRY(eval_open_texts(e, checkpoint, o, err));
    return require(e, lacks_images(e), err);
}

void eval_close(struct eval *e) {
    cli_progress_clear(&e->progress);
    view_encoder_destroy(e->encoder.views);
    dual_encoder_destroy(e->model);
    device_close(e->dev);
    checkpoint_close(e->checkpoint);
    memset(e, 0, sizeof *e);
}

static void show_progress(void *cookie, const char *what, uint64_t done, uint64_t total) {
    struct eval *e = cookie;
    if (e->progress.what != what) {
        cli_progress_init(&e->progress, what, e->quiet);
    }
    cli_progress_update(&e->progress, done, total, 0, NULL);
    if (done >= total) { /* the next dataset starts at 0 */
        cli_progress_clear(&e->progress);
        e->progress.what = NULL;
    }
}

struct embed_options eval_embed_options(struct eval *e, const struct eval_options *o) {
    struct embed_options how;
    embed_options_default(&how);
    how.tokenizer = e->tokenizer;
    how.tokenizer_size_bytes = e->tokenizer_size_bytes;
    how.clean_captions = checkpoint_model(e->checkpoint)->clean_captions;
    how.augment = model_config_eval(checkpoint_model(e->checkpoint), how.augment);
    how.threads = (uint32_t)o->loader_threads;
    how.log = &e->log;
    how.should_stop = cli_interrupted_callback;
    how.progress = show_progress;
    how.cookie = e;
    return how;
}

struct embed_options
eval_transformed(struct eval *e, const struct eval_options *o, enum augment_kind usual) {
    struct embed_options how = eval_embed_options(e, o);
    const enum augment_kind kinds[] = {model_config_eval(checkpoint_model(e->checkpoint), usual),
                                       AUGMENT_EVAL_CROP, AUGMENT_EVAL_SQUASH, AUGMENT_EVAL_CLIP,
                                       AUGMENT_EVAL_LONGEST};
    how.augment = kinds[o->transform];
    return how;
}

/* ---- classes ---- */

static const char *class_name(const struct text_list *names, int32_t c) {
    return (size_t)c < names->count ? names->lines[c] : cli_format("%d", (int)c);
}

void eval_write_classes(struct json_writer *w,
                        const struct classify_result *r,
                        const struct text_list *names,
                        bool per_class) {
    classify_write_json(w, r);
    if (!per_class) {
        return;
    }
    json_open_array(w, "class_results");
    for (int32_t c = 0; c < r->class_count; c++) {
        json_open_object(w, NULL);
        json_string(w, "class", class_name(names, c));
        json_u64(w, "images", r->class_images[c]);
        if (r->class_images[c] > 0) {
            json_double(w, "top1", r->class_top1[c]);
        }
        json_close_object(w);
    }
    json_close_array(w);
}
