/*
 * ccstream-eval retrieval: recall between images and captions.
 */
#include <stdio.h>

#include "tools/eval_common.h"
#include "train/retrieval.h"

static const struct cli_option rows[] = {
    EVAL_ROWS("dataset made by ccpack; its captions are cut into tokens by the checkpoint's own "
              "tokenizer"),
};

static const struct cli_program program = {
    .name = "ccstream-eval retrieval",
    .purpose = "recall at 1, 5 and 10 between all images and all captions of a dataset",
    .usage = (const char *const[]){"CHECKPOINT --data DIR [options]", NULL},
    .examples =
        (const char *const[]){
            "ccstream-eval retrieval runs/a --data coco-test --json",
            "ccstream-eval retrieval runs/a/step-0000005466.safetensors -d flickr30k-test", NULL},
    .notes = (const char *const[]){"CHECKPOINT is a file, or a run, whose newest checkpoint is "
                                   "taken. An image counts as found by the "
                                   "best of its captions, a caption by its image; ties with "
                                   "something wrong count as lost.",
                                   NULL},
    .options = rows,
    .option_count = CLI_COUNT(rows),
    .min_arguments = 1,
    .max_arguments = 1,
};

static enum status print_json(const struct retrieval_result *r, struct error *err) {
    struct json_writer w;
    json_writer_init(&w, 0);
    retrieval_write_json(&w, NULL, r);
    return eval_print_json(&w, err);
}

static void print_text(const struct retrieval_result *r) {
    char images[CLI_TEXT_BYTES];
    char texts[CLI_TEXT_BYTES];
    (void)printf("%s images, %s texts         R@1     R@5    R@10\n",
                 cli_format_count(images, r->images), cli_format_count(texts, r->texts));
    (void)printf("image to text (%%)      %8.2f%8.2f%8.2f\n", r->i2t_r1, r->i2t_r5, r->i2t_r10);
    (void)printf("text to image (%%)      %8.2f%8.2f%8.2f\n", r->t2i_r1, r->t2i_r5, r->t2i_r10);
    (void)printf("mean R@1 (%%)           %8.2f\n", r->mean_r1);
}

static enum status run(const void *options, const char *checkpoint, struct error *err) {
    const struct eval_options *o = options;
    struct eval e;
    struct retrieval_result result;
    TRY(eval_open(&e, checkpoint, o, err));
    const struct embed_options how = eval_embed_options(&e, o);
    enum status s = retrieval_evaluate(&result, e.model, e.dev, o->data, &how, err);
    eval_close(&e);
    TRY(s);
    if (o->json) {
        return print_json(&result, err);
    }
    print_text(&result);
    return STATUS_OK;
}

int ccstream_eval_retrieval(int argc, char **argv) {
    struct eval_options o;
    return eval_main(&program, &o, run, argc, argv);
}
