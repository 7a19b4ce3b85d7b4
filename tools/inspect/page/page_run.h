/*
 * page_run: what pages about a checkpoint begin with: run, loss, epoch and how well it retrieves.
 *
 * Threading : single-owner.
 * Ownership : everything is borrowed for the call.
 * Untrusted : RUN/metrics.jsonl; a line that does not parse is skipped.
 */
#ifndef TOOLS_INSPECT_PAGE_PAGE_RUN_H
#define TOOLS_INSPECT_PAGE_PAGE_RUN_H

#include "tools/inspect/page/page.h"
#include "train/eval/retrieval.h"
#include "train/run/checkpoint.h"

/* The summary: checkpoint, loss, tau, epochs done, and the dataset of the page. */
void page_run_summary(struct page *p, const struct checkpoint *c, double tau, const char *dataset);

/* Recalls in both directions, beside those of chance: on the page's dataset, and at the last
 * evaluation that metrics.jsonl of the checkpoint's run has up to its step, if there is one. */
void page_run_retrieval(struct page *p, const struct retrieval_result *r);
void page_run_last_retrieval(struct page *p, const struct checkpoint *c);

#endif
