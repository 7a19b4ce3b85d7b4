/*
 * ccstream-eval zeroshot: every class name, in templates, becomes a vector of the common space; an
 * image belongs to the nearest.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ccstream_eval/eval_common.h"

struct options {
    struct eval_options common;
    const char *templates, *class_names;
    int transform;
    bool per_class;
};

#define FIELD(name) CLI_FIELD(struct options, name)

static const char *const transform_choices[] = {"crop", "squash", NULL};

static const struct cli_option rows[] = {
    EVAL_ROWS("dataset with labels, as ccpack makes it of class folders and CIFAR files"),
    {"templates", 0, CLI_STRING, FIELD(templates), .metavar = "FILE",
     .help = "prompts, one a line, with {} in the place of the name; without it a few of our own"},
    {"class-names", 0, CLI_STRING, FIELD(class_names), .metavar = "FILE",
     .help = "a name a line in the order of the labels, or 'class TAB name'; without it the "
             "dataset's own, with spaces for _"},
    {"transform", 0, CLI_ENUM, FIELD(transform), .choices = transform_choices,
     .default_text = "crop", .metavar = "KIND",
     .help = "crop: shorter side to the model's size, then the centre (the papers' zero-shot "
             "protocol); squash: the whole picture, as in training's evaluation"},
    {"per-class", 0, CLI_FLAG, FIELD(per_class), .help = "also a line for each class"},
};

static const struct cli_program program = {
    .name = "ccstream-eval zeroshot",
    .purpose = "classifies images by class names in prompts",
    .usage = (const char *const[]){"CHECKPOINT --data DIR [options]", NULL},
    .examples =
        (const char *const[]){
            "ccstream-eval zeroshot runs/a --data cifar10-test --json",
            "ccstream-eval zeroshot runs/a --data birds --templates prompts.txt --per-class", NULL},
    .notes =
        (const char *const[]){"A class is the mean of its prompts' embeddings. Prompts are not "
                              "cleaned as captions are. Ties with another class count as "
                              "lost.",
                              NULL},
    .options = rows,
    .option_count = CLI_COUNT(rows),
    .min_arguments = 1,
    .max_arguments = 1,
};

static enum status classify(struct classify_result *result,
                            struct eval *e,
                            const struct options *o,
                            const struct text_list *names,
                            const struct text_list *templates,
                            struct error *err) {
    struct embeddings images;
    struct embed_options how = eval_embed_options(e, &o->common);
    how.augment = o->transform == 0 ? AUGMENT_EVAL_CROP : AUGMENT_EVAL_SQUASH;
    const size_t dim = (size_t)dual_encoder_get_options(e->model)->embed_dim;
    float *vectors = calloc(names->count, dim * sizeof *vectors);
    if (vectors == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for %zu classes", names->count);
    }
    enum status s = prompts_class_vectors(vectors, e->model, e->dev, e->tokenizer,
                                          e->tokenizer_size_bytes, names, templates, err);
    if (s == STATUS_OK) {
        s = embed_dataset(&images, &e->encoder, e->dev, o->common.data, &how, err);
    }
    if (s == STATUS_OK) {
        const struct classify_set set = {.rows = images.images,
                                         .labels = images.labels,
                                         .count = images.images_count,
                                         .dim = images.embed_dim};
        s = classify_by_vectors(result, e->dev, &set, vectors, NULL, (int32_t)names->count, err);
        embeddings_fini(&images);
    }
    free(vectors);
    return s;
}

static enum status report(const struct options *o,
                          const struct classify_result *r,
                          const struct text_list *names,
                          struct error *err) {
    if (!o->common.json) {
        eval_print_classes("zero-shot", r, names, o->per_class);
        return STATUS_OK;
    }
    struct json_writer w;
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    eval_write_classes(&w, r, names, o->per_class);
    json_close_object(&w);
    return eval_print_json(&w, err);
}

static enum status run(const void *options, const char *checkpoint, struct error *err) {
    const struct options *o = options;
    struct eval e = {0};
    struct text_list own = {0};
    struct text_list file = {0};
    struct text_list templates = {0};
    struct classify_result result = {0};
    enum status s = eval_classes(&own, o->common.data, err);
    if (s == STATUS_OK) {
        s = eval_name_classes(&own, &file, o->class_names, o->common.data, err);
    }
    const struct text_list *names = own.count > 0 ? &own : &file;
    if (s == STATUS_OK) {
        s = eval_read_templates(&templates, o->templates, err);
    }
    if (s == STATUS_OK) {
        s = eval_open(&e, checkpoint, &o->common, err);
    }
    if (s == STATUS_OK) {
        s = classify(&result, &e, o, names, &templates, err);
    }
    if (s == STATUS_OK) {
        s = report(o, &result, names, err);
    }
    classify_result_fini(&result);
    text_list_fini(&own);
    text_list_fini(&file);
    text_list_fini(&templates);
    eval_close(&e);
    return s;
}

int ccstream_eval_zeroshot(int argc, char **argv) {
    struct options o;
    return eval_main(&program, &o, run, argc, argv);
}
