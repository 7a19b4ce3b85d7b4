/*
 * report_page: one page about one or several runs: figures over steps, the numbers that the last
 * checkpoint keeps for every sample, options, datasets, machine and command.
 *
 * Threading : single-owner.
 * Untrusted : the runs' files.
 */
#ifndef TOOLS_INSPECT_REPORT_REPORT_PAGE_H
#define TOOLS_INSPECT_REPORT_REPORT_PAGE_H

#include "tools/inspect/run_log.h"

enum { REPORT_MAX_RUNS = 8 };

/* Writes `path` for `count` runs. Returns OK, IO, NOMEM, LIMIT. A checkpoint that cannot be read is
 * left out, and the page says so. */
enum status
report_page_write(const char *path, struct run_log *const *runs, size_t count, struct error *err);

#endif
