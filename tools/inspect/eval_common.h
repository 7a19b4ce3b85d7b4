/*
 * eval_common: shared by the subcommands of ccstream-eval: common options, opening a checkpoint as
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

/* First field of every subcommand's options. */
struct eval_options {
    const char *data;
    const char *device;
    uint64_t batch_size, threads, loader_threads;
    int image_norm; /* 0: the checkpoint's, else 1 + enum image_norm_kind */
    int transform;  /* with --transform: index into eval_transform_choices */
    bool ema, json, quiet;
    struct remote_choice remote;
};

/* The rows of all of them except --data and --transform, shared by the option tables. */
extern const struct cli_rows eval_shared[];
extern const struct cli_option eval_option_rows[]; /* the same in two parts, for tables */
extern const struct cli_option eval_remote_rows[]; /* that use one of them */
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
    struct embed_model encoder; /* the model, or the two-view encoder */
    const void *tokenizer;      /* of the checkpoint; NULL: none */
    size_t tokenizer_size_bytes;
    struct cli_progress progress; /* of the dataset being encoded */
    bool quiet;
};

/* Open a checkpoint: a file, or a run directory; also install the signal handlers. eval_open
 * requires both towers, eval_open_images an image tower, eval_open_texts a text tower (else USAGE).
 * On failure nothing is left open. */
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

/* Options of embed_dataset from the checkpoint and the command line, without --transform: the whole
 * image, for open_clip models as in open_clip. eval_transformed uses --transform; usual: what "own"
 * means for models that are not open_clip's. They borrow the eval, which shows progress. */
struct embed_options eval_embed_options(struct eval *e, const struct eval_options *o);
struct embed_options
eval_transformed(struct eval *e, const struct eval_options *o, enum augment_kind usual);

/* Writes a classification as fields of the open JSON object; with per_class also the list
 * "class_results". */
void eval_write_classes(struct json_writer *w,
                        const struct classify_result *r,
                        const struct text_list *names,
                        bool per_class);

#endif
