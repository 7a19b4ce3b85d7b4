/*
 * eval_common: what the subcommands of ccstream-eval share: their common options, the checkpoint
 * opened as a model, the classes of a dataset.
 *
 * Threading : single-owner.
 */
#ifndef TOOLS_CCSTREAM_EVAL_EVAL_COMMON_H
#define TOOLS_CCSTREAM_EVAL_EVAL_COMMON_H

#include "formats/base/json_writer.h"
#include "formats/base/log.h"
#include "tools/cli/cli.h"
#include "train/eval/classify.h"
#include "train/eval/embed.h"
#include "train/eval/prompts.h"
#include "train/run/checkpoint.h"

/* Of --normalize: own, then those of IMAGE_NORMS. */
extern const char *const eval_normalize_choices[];

/* First member of every subcommand's options. */
struct eval_options {
    const char *data;
    const char *device;
    uint64_t batch, threads, loader_threads;
    int normalize; /* 0: the checkpoint's, else 1 + enum image_norm_kind */
    bool json, quiet;
};

/* The rows of the common options, for the head of a subcommand's table. */
#define EVAL_FIELD(name) CLI_FIELD(struct eval_options, name)
#define EVAL_ROWS(data_help)                                                                       \
    {"data",           'd', CLI_STRING, EVAL_FIELD(data), .metavar = "DIR", .required = true,      \
     .help = data_help},                                                                           \
        {"batch",                                                                                  \
         'b',                                                                                      \
         CLI_U64,                                                                                  \
         EVAL_FIELD(batch),                                                                        \
         .min = "1",                                                                               \
         .max = "32768",                                                                           \
         .default_text = "128",                                                                    \
         .metavar = "N",                                                                           \
         .help = "images or captions encoded at a time; no number changes the result"},            \
        {"device",                                                                                 \
         0,                                                                                        \
         CLI_STRING,                                                                               \
         EVAL_FIELD(device),                                                                       \
         .default_text = "cpu",                                                                    \
         .metavar = "NAME",                                                                        \
         .help = "cpu (oneDNN); cuda or cuda:N; auto: cuda where it works, else cpu with a line "  \
                 "that says why; cpu-ref (plain loops, for checking only)"},                       \
        {"threads",                                                                                \
         't',                                                                                      \
         CLI_U64,                                                                                  \
         EVAL_FIELD(threads),                                                                      \
         .min = "0",                                                                               \
         .max = "1024",                                                                            \
         .default_text = "0",                                                                      \
         .metavar = "N",                                                                           \
         .help = "compute threads; 0: all CPUs"},                                                  \
        {"loader-threads",                                                                         \
         0,                                                                                        \
         CLI_U64,                                                                                  \
         EVAL_FIELD(loader_threads),                                                               \
         .min = "0",                                                                               \
         .max = "1024",                                                                            \
         .default_text = "0",                                                                      \
         .metavar = "N",                                                                           \
         .help = "decode threads; 0: one per CPU"},                                                \
        {"normalize",                                                                              \
         0,                                                                                        \
         CLI_ENUM,                                                                                 \
         EVAL_FIELD(normalize),                                                                    \
         .choices = eval_normalize_choices,                                                        \
         .default_text = "own",                                                                    \
         .metavar = "NAME",                                                                        \
         .help = "means and deviations that pictures are brought to; own: those of the model's "   \
                 "training; the papers' zero-shot and probes: the dataset's or imagenet's"},       \
        {"json", 0, CLI_FLAG, EVAL_FIELD(json), .help = "one JSON object on stdout"}, {            \
        "quiet", 'q', CLI_FLAG, EVAL_FIELD(quiet), .help = "only warnings and errors on stderr"    \
    }

struct eval {
    struct log_sink log;
    struct checkpoint *checkpoint;
    struct device *dev;
    struct dual_encoder *model; /* NULL: it was trained on two views */
    struct embed_model encoder; /* that, or the one of two views */
    const void *tokenizer;      /* of the checkpoint; NULL: none */
    size_t tokenizer_size_bytes;
};

/* CHECKPOINT: a file or a run. Also installs the signal handlers. On failure nothing is left open.
 */
/* eval_open: a model of images and captions, USAGE for another. eval_open_images: any. */
enum status eval_open_images(struct eval *e,
                             const char *checkpoint,
                             const struct eval_options *o,
                             struct error *err);
enum status
eval_open(struct eval *e, const char *checkpoint, const struct eval_options *o, struct error *err);
void eval_close(struct eval *e); /* accepts an all-zero one */

/* What embed_dataset is told by the options and the checkpoint. */
struct embed_options eval_embed_options(const struct eval *e, const struct eval_options *o);

/* Runs a subcommand with one argument, the checkpoint: parses, calls, exits. `options` begins with
 * struct eval_options. */
int eval_main(const struct cli_program *program,
              void *options,
              enum status (*run)(const void *options, const char *checkpoint, struct error *err),
              int argc,
              char **argv);

/* Writes what `w` holds and a line feed to stdout, and frees it. */
enum status eval_print_json(struct json_writer *w, struct error *err);

/* Class names of a dataset, copied. A dataset without names (but with labels) has none. */
enum status eval_classes(struct text_list *out, const char *dataset_dir, struct error *err);

/* What the prompts call the classes: those of the file at `path`, or, where that is NULL, their own
 * names with spaces for _. `own` is changed in place and may borrow from `file`, which the caller
 * frees as well. `data` is for messages. Returns OK, USAGE or what text_list_read returns. */
enum status eval_name_classes(struct text_list *own,
                              struct text_list *file,
                              const char *path,
                              const char *data,
                              struct error *err);

/* The templates of a file; NULL: a few of our own. */
enum status eval_read_templates(struct text_list *out, const char *path, struct error *err);

/* Renumbers the labels of a set whose classes are `from` to those of `to`, by name; a class that is
 * not there becomes -1. Without names on either side labels stay. */
void eval_map_labels(int32_t *labels,
                     int64_t count,
                     const struct text_list *from,
                     const struct text_list *to);

/* 1 + the largest label; 0 without any. */
int32_t eval_label_count(const int32_t *labels, int64_t count);

/* A classification for people: top-1 and top-5, and a line a class where asked for. */
void eval_print_classes(const char *what,
                        const struct classify_result *r,
                        const struct text_list *names,
                        bool per_class);
/* The same as members of the open JSON object, with the classes as a list "class_results". */
void eval_write_classes(struct json_writer *w,
                        const struct classify_result *r,
                        const struct text_list *names,
                        bool per_class);

int ccstream_eval_retrieval(int argc, char **argv);
int ccstream_eval_zeroshot(int argc, char **argv);
int ccstream_eval_debias(int argc, char **argv);
int ccstream_eval_linear(int argc, char **argv);
int ccstream_eval_knn(int argc, char **argv);
int ccstream_eval_mean(int argc, char **argv);
int ccstream_eval_embed(int argc, char **argv);
int ccstream_eval_objective(int argc, char **argv);

#endif
