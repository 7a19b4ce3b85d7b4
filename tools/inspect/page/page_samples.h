/*
 * page_samples: samples of an input on a page: one, and queries with the samples that they find;
 * and what is known of the run that they are of.
 *
 * Threading : single-owner.
 * Untrusted : the samples, the queries, and RUN/metrics.jsonl: a line that does not parse is
 * skipped.
 */
#ifndef TOOLS_INSPECT_PAGE_PAGE_SAMPLES_H
#define TOOLS_INSPECT_PAGE_PAGE_SAMPLES_H

#include "formats/json/json_reader.h"
#include "tools/inspect/input.h"
#include "tools/inspect/page/page.h"
#include "train/eval/retrieval.h"
#include "train/run/checkpoint.h"

/* Opens the card of the input's current sample with this caption of it; "" where there is none.
 * page_card_end closes it. On failure nothing is open. */
enum status page_sample(struct page *p,
                        struct input *in,
                        const struct sample_facts *f,
                        uint64_t caption,
                        const char *mark,
                        struct error *err);

/* Queries as examples_write_json writes them, the best ranks first. */
struct page_queries {
    const struct json_value *all;
    bool by_caption;                /* captions are the queries, images what they find */
    uint64_t first_rank, last_rank; /* only queries whose own one is ranked from .. to */
};
enum status
page_queries(struct page *p, struct input *in, const struct page_queries *q, struct error *err);

/* ---- what pages about a checkpoint begin with ---- */

/* The summary: checkpoint, loss, tau, epochs done, and the dataset of the page. */
void page_run_summary(struct page *p, const struct checkpoint *c, double tau, const char *dataset);

/* Recalls in both directions, beside those of chance: on the page's dataset, and at the last
 * evaluation that metrics.jsonl of the checkpoint's run has up to its step, if there is one. */
void page_run_retrieval(struct page *p, const struct retrieval_result *r);
void page_run_last_retrieval(struct page *p, const struct checkpoint *c);

#endif
