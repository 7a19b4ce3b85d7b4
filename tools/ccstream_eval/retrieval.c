/*
 * ccstream-eval retrieval: recall between images and captions.
 */
#include <inttypes.h>
#include <stdio.h>

#include "tools/ccstream_eval/ccstream_eval_internal.h"
#include "tools/cli/output.h"
#include "tools/inspect/page/page_samples.h"
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
     .help = "also write a page of retrieval examples in both directions, in one file"},
    OUTPUT_FORCE_ROW(struct options, force),
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

/* The examples as JSON. */
static enum status find(struct json_document **out,
                        const struct eval *eval,
                        const struct embeddings *e,
                        bool by_caption,
                        int64_t count,
                        struct error *err) {
    struct examples found = {0};
    struct json_writer j;
    TRY(examples_find(&found, eval->dev, e, by_caption, count, err));
    json_writer_init(&j, 0);
    examples_write_json(&j, NULL, &found, e);
    enum status s = json_writer_status(&j, err);
    THEN(s, json_document_parse(out, "examples", j.out.data, j.out.size_bytes, err));
    json_writer_fini(&j);
    examples_fini(&found);
    return s;
}

static enum status show_side(struct page *p,
                             struct input *in,
                             const struct json_value *queries,
                             bool by_caption,
                             struct error *err) {
    const size_t count = json_value_count(queries);
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t rank = 0;
        found += json_value_u64(json_value_get(json_value_at(queries, i), "rank"), &rank) &&
                 rank <= EXAMPLES_FOUND;
    }
    page_section(
        p, by_caption ? "Captions and the images they find" : "Images and the captions they find",
        false);
    for (int part = 0; part < 2; part++) {
        page_text(p, "%s: %zu of %zu examples. The right %s is %s the first %d.",
                  part == 0 ? "Found" : "Missed", part == 0 ? found : count - found, count,
                  by_caption ? "image" : "caption", part == 0 ? "among" : "not among",
                  (int)EXAMPLES_FOUND);
        TRY(page_queries(
            p, in,
            &(struct page_queries){.all = queries,
                                   .by_caption = by_caption,
                                   .first_rank = part == 0 ? 0 : EXAMPLES_FOUND + 1,
                                   .last_rank = part == 0 ? EXAMPLES_FOUND : UINT64_MAX},
            err));
    }
    return STATUS_OK;
}

static enum status show(struct page *p,
                        struct input *in,
                        const struct eval *eval,
                        const struct embeddings *e,
                        const struct retrieval_result *recalls,
                        int64_t examples,
                        struct error *err) {
    enum status s = STATUS_OK;
    double tau = 0.0;
    (void)checkpoint_choose_tau(eval->checkpoint, &tau, NULL); /* 0: an old file without it */
    page_run_summary(p, eval->checkpoint, tau, in->path);
    page_section(p, "Recall", false);
    page_run_retrieval(p, recalls);
    page_text(p,
              "R@k: fraction of queries whose correct match ranks in the top k. The number beside "
              "a mark is the score, the cosine of the two embeddings: 1 is the same direction, 0 "
              "unrelated, -1 opposite. \xE2\x9C\x93 is the pair of the dataset; every other image "
              "or caption counts as incorrect, \xE2\x9C\x97, even where it reads the same.");
    for (int side = 0; side < 2 && s == STATUS_OK; side++) {
        struct json_document *queries = NULL;
        s = find(&queries, eval, e, side == 0, examples, err);
        THEN(s, show_side(p, in, json_document_root(queries), side == 0, err));
        json_document_destroy(queries);
    }
    return s;
}

/* Writes `path`: for `examples` captions and as many images, spread evenly over the dataset, the
 * EXAMPLES_FOUND nearest of the other kind. */
static enum status write_page(const char *path,
                              const struct eval *eval,
                              const char *dataset_dir,
                              const struct embeddings *e,
                              const struct retrieval_result *recalls,
                              int64_t examples,
                              struct error *err) {
    struct page p;
    struct input *in = NULL;
    TRY(input_open(&in, dataset_dir, err));
    page_begin(&p, "What captions and images find");
    enum status s = show(&p, in, eval, e, recalls, examples, err);
    THEN(s, page_end(&p, path, err));
    page_fini(&p);
    input_close(in);
    return s;
}

/* ---- the numbers ---- */

static enum status
compute(struct retrieval_result *out, struct eval *e, const struct options *o, struct error *err) {
    struct embeddings found;
    struct embed_options how = eval_embed_options(e, &o->common);
    how.texts = true;
    TRY(embed_dataset(&found, &e->encoder, e->dev, o->common.data, &how, err));
    enum status s = retrieval_ranks(out, e->dev, found.images, found.images_count, found.texts,
                                    found.texts_count, found.owner, found.embed_dim, err);
    if (s == STATUS_OK && o->html != NULL) {
        s = write_page(o->html, e, o->common.data, &found, out, (int64_t)o->examples, err);
    }
    embeddings_fini(&found);
    return s;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct eval e;
    struct retrieval_result result;
    TRY(output_check_file(o->html, o->force, err));
    TRY(eval_open(&e, a->items[0], &o->common, err));
    enum status s = compute(&result, &e, o, err);
    eval_close(&e);
    TRY(s);
    if (!o->common.json) {
        print_text(&result);
        return STATUS_OK;
    }
    struct json_writer w;
    json_writer_init(&w, 0);
    retrieval_write_json(&w, NULL, &result);
    s = cli_put_json(&w, err);
    json_writer_fini(&w);
    return s;
}

CLI_MAIN(ccstream_eval_retrieval, program, struct options, run)
