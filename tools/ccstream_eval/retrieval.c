/*
 * ccstream-eval retrieval: recall between images and captions.
 */
#include <stdio.h>

#include "tools/ccstream_eval/ccstream_eval_internal.h"
#include "tools/ccstream_eval/eval_page.h"
#include "train/eval/retrieval.h"

struct options {
    struct eval_options common;
    const char *html;
    uint64_t examples;
};

static const struct cli_option rows[] = {
    EVAL_DATA_ROW("dataset made by ccpack; the checkpoint's tokenizer encodes its captions"),
    {"html", 0, CLI_STRING, CLI_FIELD(struct options, html), .metavar = "FILE",
     .help = "also write a page of retrieval examples in both directions, in one file"},
    {"examples", 0, CLI_U64, CLI_FIELD(struct options, examples), .min = "1", .max = "1000",
     .default_text = "24", .metavar = "N",
     .help = "captions and images on that page, spread evenly over the dataset"},
};

static const struct cli_program program = {
    .name = "ccstream-eval retrieval",
    .purpose = "computes image-text retrieval recall on a dataset",
    .usage = CLI_TEXTS("CHECKPOINT --data DIR [options]"),
    .examples = CLI_TEXTS(
        "ccstream-eval retrieval runs/a --data coco-test --json",
        "ccstream-eval retrieval runs/a --data coco-test --html found.html",
        "ccstream-eval retrieval runs/a/checkpoints/step-5466.safetensors -d flickr30k-test"),
    .notes = CLI_TEXTS("CHECKPOINT is a file, or a run directory (its newest checkpoint is "
                       "used). An image is a hit if one of its captions ranks in the top k, "
                       "a caption if its image does; ties count as misses."),
    CLI_OPTIONS(rows),
    .shared = eval_shared,
    .min_arguments = 1,
    .max_arguments = 1,
};

static enum status print_json(const struct retrieval_result *r, struct error *err) {
    struct json_writer w;
    json_writer_init(&w, 0);
    retrieval_write_json(&w, NULL, r);
    const enum status s = cli_put_json(&w, err);
    json_writer_fini(&w);
    return s;
}

static void print_text(const struct retrieval_result *r) {
    static const char *const directions[RETRIEVAL_DIRECTION_COUNT] = {
        "image to text (%)", "text to image (%)", "mean of both (%)"};
    char head[120];
    (void)snprintf(head, sizeof head, "%s, %s", cli_format_counted(r->images, "image"),
                   cli_format_counted(r->texts, "text"));
    printf("%-24s", head);
    for (int k = 0; k < RETRIEVAL_METRIC_COUNT; k++) {
        printf("%8s", retrieval_metrics[k].title);
    }
    for (int d = 0; d < RETRIEVAL_DIRECTION_COUNT; d++) {
        printf("\n%-24s", directions[d]);
        for (int k = 0; k < RETRIEVAL_METRIC_COUNT; k++) {
            printf("%8.2f", r->value[d][k]);
        }
    }
    printf("\n");
}

static enum status
compute(struct retrieval_result *out, struct eval *e, const struct options *o, struct error *err) {
    struct embeddings found;
    struct embed_options how = eval_embed_options(e, &o->common);
    how.texts = true;
    if (o->html != NULL) {
        TRY(file_make_parents(file_posix(), o->html, err));
    }
    TRY(embed_dataset(&found, &e->encoder, e->dev, o->common.data, &how, err));
    enum status s = retrieval_ranks(out, e->dev, found.images, found.images_count, found.texts,
                                    found.texts_count, found.owner, found.embed_dim, err);
    if (s == STATUS_OK && o->html != NULL) {
        s = eval_page_write(o->html, e, o->common.data, &found, out, (int64_t)o->examples, err);
    }
    embeddings_fini(&found);
    return s;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct eval e;
    struct retrieval_result result;
    TRY(eval_open(&e, a->items[0], &o->common, err));
    enum status s = compute(&result, &e, o, err);
    eval_close(&e);
    TRY(s);
    if (o->common.json) {
        return print_json(&result, err);
    }
    print_text(&result);
    return STATUS_OK;
}

CLI_MAIN(ccstream_eval_retrieval, program, struct options, run)
