/*
 * report_internal: what the parts of a report's page share.
 *
 * Threading : as the page.
 */
#ifndef TOOLS_INSPECT_REPORT_REPORT_INTERNAL_H
#define TOOLS_INSPECT_REPORT_REPORT_INTERNAL_H

#include "tools/inspect/page/page.h"
#include "tools/inspect/report/report_page.h"

enum { LINE_POINTS = 240, REPORT_MAX_SERIES = 16, REPORT_MAX_CELLS = 12, REPORT_CELL_BYTES = 64 };

/* Up to LINE_POINTS points of a line, and what lies around them. */
struct reduced {
    double x[LINE_POINTS + 1], y[LINE_POINTS], low[LINE_POINTS], high[LINE_POINTS];
    double epochs[LINE_POINTS], samples[LINE_POINTS], seconds[LINE_POINTS]; /* of evaluations */
};

struct report {
    struct page page;
    struct run_log *const *runs;
    size_t run_count;
    struct reduced *lines;                        /* (REPORT_MAX_SERIES) of the next figure */
    struct page_series series[REPORT_MAX_SERIES]; /* of the next figure */
    size_t series_count;
};

/* report_page.c: figures over steps. A line of each run. Several lines of one run; of several runs
 * a figure for each of them. unit NULL: none. */
void report_draw_runs(struct report *r,
                      enum run_series which,
                      const char *title,
                      const char *y,
                      const char *unit,
                      double scale);
void report_draw_together(struct report *r,
                          const enum run_series *which,
                          const char *const *names,
                          size_t count,
                          const char *title,
                          const char *y,
                          const char *unit,
                          double scale);
/* Draws the series that were added, if there are any. */
void report_draw(struct report *r, const struct page_figure *f);

/* report_tables.c: a row for each run; the first cell, its name, is filled in. */
struct report_table {
    const char *title;
    const char *heads[REPORT_MAX_CELLS];
    char cells[REPORT_MAX_RUNS][REPORT_MAX_CELLS][REPORT_CELL_BYTES];
    size_t columns;
};
void report_put_table(struct report *r, const struct report_table *t, bool summary);
/* Empty where the number is not finite. */
void report_put_number(char cell[REPORT_CELL_BYTES], double value, int digits);
void report_put_summary(struct report *r);
void report_put_faults(struct report *r);
/* How the runs were made: command, machine, datasets, options. */
void report_put_origins(struct report *r);

/* report_stages.c: where the time went. */
void report_draw_stages(struct report *r);

/* report_samples.c: images and captions of one run: what captions and images
 * found at the last evaluation, and the samples with the largest and the smallest numbers in the
 * last checkpoint. What cannot be read is named on the page. Nothing where the run was not
 * evaluated on captions, or no checkpoint keeps zeta or u. */
void report_examples(struct page *page, const struct run_log *log);
void report_extremes(struct page *page, const struct run_log *log);

#endif
