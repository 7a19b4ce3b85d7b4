/*
 * ccstream-eval zeroshot: train/eval/zeroshot on a checkpoint.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/ccstream_eval/ccstream_eval_internal.h"

struct options {
    struct eval_options common;
    const char *templates, *class_names;
    bool per_class;
};

#define FIELD(name) CLI_FIELD(struct options, name)

static const struct cli_option rows[] = {
    EVAL_DATA_ROW("dataset with labels (packed from class folders or CIFAR files)"),
    {"templates", 0, CLI_STRING, FIELD(templates), .metavar = "FILE",
     .help = "file of prompts, one per line, with {} for the class name [default: a few built-in "
             "ones]"},
    {"class-names", 0, CLI_STRING, FIELD(class_names), .metavar = "FILE",
     .help = "file of names, one per line in the order of the labels, or of lines 'class TAB name' "
             "[default: the dataset's names, with _ replaced by spaces]"},
    EVAL_TRANSFORM_ROW("crop"),
    {"per-class", 0, CLI_FLAG, FIELD(per_class), .help = "also print one line per class"},
};

static const struct cli_program program = {
    .name = "ccstream-eval zeroshot",
    .purpose = "classifies images by class names in prompts",
    .usage = CLI_TEXTS("CHECKPOINT --data DIR [options]"),
    .examples =
        CLI_TEXTS("ccstream-eval zeroshot runs/a --data cifar10-test --json",
                  "ccstream-eval zeroshot runs/a --data birds --templates prompts.txt --per-class"),
    .notes =
        CLI_TEXTS("A class is represented by the mean of the embeddings of its prompts. Prompts "
                  "are not cleaned, unlike captions. Ties with another class count as errors."),
    CLI_OPTIONS(rows),
    .shared = eval_shared,
    .arguments = {1, 1},
};

static enum status report(const struct options *o,
                          const struct classify_result *r,
                          const struct text_list *names,
                          struct error *err) {
    struct json_writer w;
    cli_begin_json(&w);
    eval_write_classes(&w, r, names, o->per_class);
    return end_result(&w, o->common.json, err);
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct eval e = {0};
    struct text_list own = {0};
    struct text_list file = {0};
    struct text_list templates = {0};
    struct classify_result result = {0};
    enum status s;
    TRY_OR_FAIL(s, zeroshot_classes(&own, o->common.data, err));
    TRY_OR_FAIL(s, zeroshot_name_classes(&own, &file, o->class_names, o->common.data, err));
    TRY_OR_FAIL(s, zeroshot_read_templates(&templates, o->templates, err));
    TRY_OR_FAIL(s, eval_open(&e, a->items[0], &o->common, err));
    const struct text_list *names = own.count > 0 ? &own : &file;
    const struct embed_options how = eval_transformed(&e, &o->common, AUGMENT_EVAL_CROP);
    TRY_OR_FAIL(s, zeroshot_evaluate(&result, e.model, e.dev, o->common.data, names, &templates,
                                     &how, err));
    s = report(o, &result, names, err);
fail:
    classify_result_fini(&result);
    text_list_fini(&own);
    text_list_fini(&file);
    text_list_fini(&templates);
    eval_close(&e);
    return s;
}

CLI_MAIN(ccstream_eval_zeroshot, program, struct options, run)
