/*
 * eval_common: what the subcommands of ccstream-eval share: common options, opening a checkpoint as
 * a model, the classes of a dataset.
 *
 * Threading : single-owner.
 */
#ifndef TOOLS_INSPECT_EVAL_COMMON_H
#define TOOLS_INSPECT_EVAL_COMMON_H

#include "formats/base/json_writer.h"
#include "formats/base/log.h"
#include "tools/cli/cli.h"
#include "tools/cli/remote_choice.h"
#include "train/eval/classify.h"
#include "train/eval/embed.h"
#include "train/eval/prompts.h"
#include "train/run/checkpoint.h"

/* First member of every subcommand's options. */
struct eval_options {
    const char *data;
    const char *device;
    uint64_t batch_size, threads, loader_threads;
    int image_norm; /* 0: the checkpoint's, else 1 + enum image_norm_kind */
    int transform; /* of the subcommands that have --transform: index into eval_transform_choices */
    bool ema, json, quiet;
    struct remote_choice remote;
};

/* The rows of all of them but --data and --transform, shared by the option tables. */
extern const struct cli_rows eval_shared[];
extern const struct cli_option eval_option_rows[]; /* the same in two, for tables that share */
extern const struct cli_option eval_remote_rows[]; /* more or less */
enum { EVAL_OPTION_COUNT = 8, EVAL_REMOTE_COUNT = 5 };

#define EVAL_DATA_ROW(data_help)                                                                   \
    {                                                                                              \
        "data", 'd', CLI_STRING, CLI_FIELD(struct eval_options, data),                             \
            .metavar = "DIR", .required = true, .help = data_help                                  \
    }

extern const char *const eval_transform_choices[]; /* own, crop, squash, clip */
#define EVAL_TRANSFORM_ROW(default_name)                                                           \
    {                                                                                              \
        "transform", 0, CLI_ENUM, CLI_FIELD(struct eval_options, transform),                       \
            .choices = eval_transform_choices, .default_text = "own", .metavar = "KIND",           \
            .help = "how images are brought to the model's size. own: open_clip's way for models " \
                    "of --model (bicubic, centre crop), else " default_name                        \
                    "; crop: resize the shorter side and crop the centre, as in the papers; "      \
                    "squash: resize without keeping the aspect ratio, as evaluation during "       \
                    "training (open_clip's resize_mode 'squash'); clip: as crop, but bicubic, as " \
                    "CLIP, open_clip and clip-benchmark; longest: resize the longer side and pad " \
                    "with black"                                                                   \
    }

struct eval {
    struct log_sink log;
    struct checkpoint *checkpoint;
    struct device *dev;
    struct dual_encoder *model; /* NULL: the checkpoint was trained on two views */
    struct embed_model encoder; /* the model, or the encoder of two views */
    const void *tokenizer;      /* of the checkpoint; NULL: it has none */
    size_t tokenizer_size_bytes;
    struct cli_progress progress; /* of the dataset that is encoded */
    bool quiet;
};

/* Opens a checkpoint: a file, or a run directory. Also installs the signal handlers. eval_open
 * requires a model of images and captions, eval_open_images a tower for images and eval_open_texts
 * one for captions (USAGE for others). On failure nothing is left open. */
enum status eval_open_images(struct eval *e,
                             const char *checkpoint,
                             const struct eval_options *o,
                             struct error *err);
enum status eval_open_texts(struct eval *e,
                            const char *checkpoint,
                            const struct eval_options *o,
                            struct error *err);
enum status
eval_open(struct eval *e, const char *checkpoint, const struct eval_options *o, struct error *err);
void eval_close(struct eval *e); /* accepts an all-zero one */

/* The options of embed_dataset that follow from the checkpoint and the command line; without
 * --transform that is the whole image, for open_clip's models as open_clip does. usual: of
 * --transform own for other models. They borrow the eval, which shows the progress. */
struct embed_options eval_embed_options(struct eval *e, const struct eval_options *o);
struct embed_options
eval_transformed(struct eval *e, const struct eval_options *o, enum augment_kind usual);

/* A classification as members of the open JSON object; with per_class also the list
 * "class_results". */
void eval_write_classes(struct json_writer *w,
                        const struct classify_result *r,
                        const struct text_list *names,
                        bool per_class);

#endif
