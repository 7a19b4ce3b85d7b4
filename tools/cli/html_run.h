/*
 * html_run: what pages about a checkpoint begin with: run, loss, epoch and how well it retrieves.
 *
 * Threading : single-owner.
 * Ownership : everything is borrowed for the call.
 * Untrusted : RUN/metrics.jsonl; a line that does not parse is skipped.
 */
#ifndef TOOLS_CLI_HTML_RUN_H
#define TOOLS_CLI_HTML_RUN_H

#include "tools/cli/html.h"
#include "train/eval/retrieval.h"
#include "train/run/checkpoint.h"

/* A list of facts: checkpoint, loss, tau, epochs done, and the dataset of the page. */
void html_run_facts(struct html_page *p,
                    const struct checkpoint *c,
                    double tau,
                    const char *dataset);

/* A table of recalls in both directions, with those of chance. `of`: on what, as a heading. */
void html_run_retrieval(struct html_page *p, const char *of, const struct retrieval_result *r);

/* The last evaluation that metrics.jsonl of the checkpoint's run has up to its step. Returns false
 * if there is none. */
bool html_run_last_retrieval(struct retrieval_result *out, const struct checkpoint *c);

#endif
