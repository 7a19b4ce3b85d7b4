/*
 * Converts ccstream-train's options to the trainer's, and finds options without effect.
 */
#include <stdio.h>
#include <string.h>

#include "tools/inspect/train_options.h"
#include "train/loss/loss_row.h"

bool train_options_zeta_is_frozen(const struct train_options *o) {
    return o->trainer.loss.zeta_freeze_epochs >= o->trainer.epochs;
}

/* ---- options of a run, from text ---- */

static bool train_tasks_blocks(const struct train_options *o) {
    return o->trainer.task == TRAINER_BLOCKS;
}

bool train_options_texts_alone(const struct train_options *o) {
    return train_tasks_blocks(o) && o->trainer.blocks.captions;
}

static enum status read_crop_scale(struct trainer_options *t, const char *text, struct error *err) {
    char more;
    if (strcmp(text, "auto") == 0) {
        return STATUS_OK;
    }
    FAIL_IF(sscanf(text, "%lf:%lf%c", &t->crop_min, &t->crop_max, &more) != 2 ||
                !(t->crop_min > 0.0 && t->crop_min <= t->crop_max && t->crop_max <= 1.0),
            err, STATUS_USAGE, "--crop-scale %s: expected MIN:MAX with 0 < MIN <= MAX <= 1", text);
    FAIL_IF(t->augment == AUGMENT_EVAL_SQUASH, err, STATUS_USAGE,
            "--crop-scale: --augment none uses whole images");
    return STATUS_OK;
}

enum status train_options_apply(struct trainer_options *t,
                                struct data_list *data,
                                const struct train_options *o,
                                const char *run,
                                struct error *err) {
    static const enum augment_kind augments[] = {AUGMENT_PAPER, AUGMENT_SIMCLR, AUGMENT_TRAIN};
    struct loader_options order;
    trainer_options_default(t);
    cli_copy(train_program(), o, offsetof(struct train_options, trainer), t, sizeof *t);
    TRY(data_list_add(data, o->data.items, o->data.count, err));
    t->sources = data->items;
    t->source_count = data->count;
    t->run = run;
    t->loss.name = loss_names()[o->loss_index];
    t->loss.seed = t->seed;
    t->dtype = o->precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32;
    t->remap_state = o->remap_state.items;
    t->remap_count = (uint32_t)o->remap_state.count;
    t->blocks.captions = train_options_texts_alone(o);
    t->augment = augments[t->task];
    t->augment = t->model != NULL && t->task == TRAINER_PAIRS ? AUGMENT_CLIP : t->augment;
    REQUIRE(o->augment == 0 || augment_kind_of(&t->augment, train_augment_names[o->augment]));
    TRY(read_crop_scale(t, o->crop_scale, err));
    loader_options_default(&order);
    TRY(loader_order_parse(&order, o->order, err));
    t->order = order.order;
    t->order_block_count = order.block_count;
    t->order_block_window = order.block_window;
    FAIL_IF(o->remap_state.count > LOADER_MAX_SOURCES, err, STATUS_USAGE, "more than %d datasets",
            LOADER_MAX_SOURCES);
    FAIL_IF(t->min_lr > t->lr, err, STATUS_USAGE, "--min-lr %g is larger than --lr %g", t->min_lr,
            t->lr);
    return STATUS_OK;
}

/* ---- options without effect ---- */

bool train_options_loss_reads(const struct train_options *o, enum loss_option option) {
    struct loss_options loss = o->trainer.loss;
    const struct loss_row *row;
    if (train_tasks_blocks(o)) {
        return false;
    }
    loss.name = loss_names()[o->loss_index];
    loss.views = o->trainer.task == TRAINER_VIEWS;
    return loss_find_row(&row, &loss, NULL) != STATUS_OK || /* the trainer rejects it */
           loss_reads(row, &loss, option);
}

/* The options `names` that are on the command line. */
static void warn_of(const struct cli_arguments *given,
                    const struct log_sink *log,
                    const char *const *names,
                    const char *why) {
    for (; *names != NULL; names++) {
        if (cli_given(train_program(), given, *names)) {
            log_write(log, LOG_LEVEL_WARN, "--%s has no effect%s", *names, why);
        }
    }
}

static enum status
check_towers(const struct cli_arguments *given, const struct train_options *o, struct error *err) {
    static const char *const of_towers[] = {"image-tower", "text-tower", "stem",
                                            "norm-layer",  "text-pool",  "projection-bias"};
    for (size_t i = 0; i < CLI_COUNT(of_towers) && o->trainer.model != NULL; i++) {
        FAIL_IF(cli_given(train_program(), given, of_towers[i]), err, STATUS_USAGE,
                "--%s is not for --model, which describes the whole model", of_towers[i]);
    }
    FAIL_IF(o->trainer.model == NULL && o->trainer.patch_dropout >= 0.0, err, STATUS_USAGE,
            "--patch-dropout is for --model");
    return STATUS_OK;
}

/* For the chosen loss, or for blocks, which have their own. */
static void warn_of_loss(const struct cli_arguments *given,
                         const struct train_options *o,
                         const struct log_sink *log) {
    struct loss_options loss = o->trainer.loss;
    loss.name = loss_names()[o->loss_index];
    loss.views = o->trainer.task == TRAINER_VIEWS;
    const char *shown = train_tasks_blocks(o) ? "block" : loss.name;
    for (int i = LOSS_OPTION_NONE + 1; i < LOSS_OPTION_COUNT; i++) {
        const char *names[] = {loss_option_rows[i].name, NULL};
        if (!train_options_loss_reads(o, (enum loss_option)i)) {
            warn_of(given, log, names, cli_format(": loss %s does not read it here", shown));
        }
    }
    if (train_tasks_blocks(o) || !loss_keeps_texts(&loss)) {
        warn_of(given, log, CLI_TEXTS("text-state"),
                cli_format(": loss %s has no per-caption state here", shown));
    }
}

enum status train_options_check_read(const struct cli_arguments *given,
                                     const struct train_options *o,
                                     const struct log_sink *log,
                                     struct error *err) {
    FAIL_IF(train_tasks_blocks(o) && cli_given(train_program(), given, "loss"), err, STATUS_USAGE,
            "--loss %s: --task blocks trains with the block loss alone, see --block-loss",
            loss_names()[o->loss_index]);
    TRY(check_towers(given, o, err));
    warn_of_loss(given, o, log);
    if (!train_tasks_blocks(o)) {
        warn_of(given, log,
                CLI_TEXTS("block-loss", "block-size", "block-negatives", "block-pairs", "block-of"),
                " without --task blocks");
    }
    if (!train_options_loss_reads(o, LOSS_ZETA0)) {
        warn_of(given, log, CLI_TEXTS("probe-pairs"), ": the loss has no zeta");
    }
    if (o->trainer.teacher_image == NULL) {
        warn_of(given, log, CLI_TEXTS("distill-weight", "distill-tau", "teacher-tau"),
                " without --teacher-image");
    }
    if (train_options_texts_alone(o)) {
        warn_of(given, log,
                CLI_TEXTS("image-tower", "image-size", "stem", "norm-layer", "hidden-dim",
                          "augment", "fixed-views", "image-norm", "sync-bn", "crop-scale"),
                " with --block-of captions");
    }
    return STATUS_OK;
}
