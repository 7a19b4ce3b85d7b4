/*
 * ccstream-eval retrieval: recall between images and captions.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/ccstream_eval/ccstream_eval_internal.h"
#include "tools/cli/output.h"
#include "tools/inspect/page/page_data.h"
#include "train/eval/examples.h"
#include "train/eval/retrieval.h"

struct options {
    struct eval_options common;
    const char *html;
    uint64_t examples;
    bool force;
};

static const struct cli_option rows[] = {
    EVAL_DATA_ROW("dataset made by ccpack; the checkpoint's tokenizer encodes its captions"),
    {"html", 0, CLI_STRING, CLI_FIELD(struct options, html), .metavar = "FILE",
     .help = "also write a self-contained HTML page with retrieval examples in both directions"},
    OUTPUT_FORCE_ROW(struct options, force),
    {"examples", 0, CLI_U64, CLI_FIELD(struct options, examples), .min = "1", .max = "1000",
     .default_text = "24", .metavar = "N",
     .help = "number of query captions and of query images on that page, spread evenly over the "
             "dataset"},
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
    .arguments = {1, 1},
};

static void print_text(const struct retrieval_result *r) {
    static const char *const directions[RETRIEVAL_DIRECTION_COUNT] = {
        "image to text (%)", "text to image (%)", "mean of both (%)"};
    printf("%-24s", cli_format("%s, %s", cli_format_counted(r->images, "image"),
                               cli_format_counted(r->texts, "text")));
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

/* ---- the page ---- */

/* Up to `count` captions, or images, evenly spaced over the dataset, with their results; adds the
 * ids of all of them. */
static enum status put_examples(struct page_data *d,
                                struct device *dev,
                                const struct embeddings *e,
                                bool by_caption,
                                int64_t count,
                                uint64_t **ids,
                                struct error *err) {
    struct examples x = {0};
    TRY(examples_find(&x, dev, e, by_caption, count, err));
    examples_write_json(&d->json, by_caption ? "t2i" : "i2t", &x, e);
    for (int64_t i = 0; i < x.count; i++) {
        const struct example *q = &x.items[i];
        *(*ids)++ = e->sample_ids[by_caption ? e->owner[q->query] : q->query];
        for (int64_t k = 0; k < x.found_count; k++) {
            *(*ids)++ = e->sample_ids[by_caption ? q->found[k] : e->owner[q->found[k]]];
        }
    }
    examples_fini(&x);
    return STATUS_OK;
}

static enum status put_page_data(struct page_data *d,
                                 const struct eval *eval,
                                 const struct options *o,
                                 const struct embeddings *e,
                                 const struct retrieval_result *recalls,
                                 struct error *err) {
    struct input *in = NULL;
    double tau = 0.0;
    uint64_t *ids = calloc(2 * o->examples * (1 + EXAMPLES_FOUND), sizeof *ids);
    uint64_t *end = ids;
    TRY_MEMORY(ids, err, "out of memory for a page");
    (void)checkpoint_choose_tau(eval->checkpoint, &tau, NULL); /* 0: an old file without it */
    page_data_checkpoint(d, eval->checkpoint, tau);
    json_location(&d->json, "dataset", o->common.data);
    retrieval_write_json(&d->json, "retrieval", recalls);
    enum status s = put_examples(d, eval->dev, e, true, (int64_t)o->examples, &end, err);
    THEN(s, put_examples(d, eval->dev, e, false, (int64_t)o->examples, &end, err));
    THEN(s, input_open(&in, o->common.data, err));
    THEN(s, page_data_samples(d, "images", in, ids, (size_t)(end - ids), err));
    input_close(in);
    free(ids);
    return s;
}

/* ---- the numbers ---- */

static enum status compute(struct retrieval_result *out,
                           struct page_data *page,
                           struct eval *e,
                           const struct options *o,
                           struct error *err) {
    struct embeddings found;
    struct embed_options how = eval_embed_options(e, &o->common);
    how.texts = true;
    TRY(embed_dataset(&found, &e->encoder, e->dev, o->common.data, &how, err));
    enum status s = retrieval_ranks(out, e->dev, found.images, found.images_count, found.texts,
                                    found.texts_count, found.owner, found.embed_dim, err);
    if (s == STATUS_OK && o->html != NULL) {
        s = put_page_data(page, e, o, &found, out, err);
    }
    embeddings_fini(&found);
    return s;
}

static enum status print(const struct retrieval_result *r, bool json, struct error *err) {
    struct json_writer w;
    if (!json) {
        print_text(r);
        return STATUS_OK;
    }
    json_writer_init(&w, 0);
    retrieval_write_json(&w, NULL, r);
    const enum status s = cli_put_json(&w, err);
    json_writer_fini(&w);
    return s;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct eval e;
    struct retrieval_result result;
    struct page_data page;
    TRY(page_check(o->html, o->force, err));
    TRY(page_data_begin(&page, o->html, err));
    enum status s = eval_open(&e, a->items[0], &o->common, err);
    if (s == STATUS_OK) {
        s = compute(&result, &page, &e, o, err);
        eval_close(&e);
    }
    THEN(s, print(&result, o->common.json, err));
    if (s == STATUS_OK && o->html != NULL) {
        s = page_data_write(&page, err);
    }
    page_data_fini(&page);
    return s;
}

CLI_MAIN(ccstream_eval_retrieval, program, struct options, run)
