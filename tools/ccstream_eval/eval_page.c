/*
 * eval_page: the nearest images of captions and the nearest captions of images, as
 * train/eval/examples ranks them: found ones before missed ones.
 */
#include "tools/ccstream_eval/eval_page.h"

#include <inttypes.h>

#include "tools/inspect/page/page_run.h"
#include "tools/inspect/page/page_samples.h"
#include "train/eval/examples.h"

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
            &(struct page_queries){.now = queries,
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

enum status eval_page_write(const char *path,
                            const struct eval *eval,
                            const char *dataset_dir,
                            const struct embeddings *e,
                            const struct retrieval_result *recalls,
                            int64_t examples,
                            struct error *err) {
    REQUIRE(path != NULL && e != NULL && e->texts != NULL && examples >= 1);
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
