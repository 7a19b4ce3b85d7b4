/*
 * attach: shows the progress of a run that another process trains, from its files.
 *
 * Threading : one owner.
 * Untrusted : RUN/metrics.jsonl and RUN/launches.jsonl. Lines that do not parse are omitted.
 */
#ifndef TOOLS_CCSTREAM_TRAIN_ATTACH_H
#define TOOLS_CCSTREAM_TRAIN_ATTACH_H

#include "formats/base/status.h"
#include "tools/ccstream_train/live.h"

/* Until no process trains the run any more, or cli_interrupted. Returns OK (the run has its last
 * step, or the caller was interrupted), NOTFOUND (no run), MISMATCH (no process trains it, and it
 * is not finished), IO or NOMEM. */
enum status attach(struct live *l, struct error *err);

#endif
