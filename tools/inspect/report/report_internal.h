/*
 * report_internal: what the parts of a report's page share.
 *
 * Threading : as the page.
 */
#ifndef TOOLS_INSPECT_REPORT_REPORT_INTERNAL_H
#define TOOLS_INSPECT_REPORT_REPORT_INTERNAL_H

#include "tools/cli/chart.h"
#include "tools/inspect/report/report_page.h"

enum { LINE_POINTS = 240 };

/* Up to LINE_POINTS points of a line, and what lies around them. */
struct reduced {
    double x[LINE_POINTS], y[LINE_POINTS], low[LINE_POINTS], high[LINE_POINTS];
    size_t count;
    bool is_reduced;
};

struct page {
    struct html_page html;
    struct run_log *const *runs;
    size_t run_count;
    struct reduced *lines; /* (CHART_MAX_SERIES) */
    struct chart_series series[CHART_MAX_SERIES];
    size_t series_count;
};

/* report_page.c: figures. A line of each run. Several lines of one run; of several runs a figure
 * for each of them. */
void report_draw_runs(struct page *p,
                      enum run_series which,
                      const char *title,
                      const char *y_label,
                      double scale);
void report_draw_together(struct page *p,
                          const enum run_series *which,
                          const char *const *names,
                          size_t count,
                          const char *title,
                          const char *y_label,
                          double scale);

/* report_tables.c: a row for each run, or of one run a list of facts. */
enum { REPORT_MAX_CELLS = 12, REPORT_CELL_BYTES = 64 };
struct report_table {
    const char *caption;
    const char *heads[REPORT_MAX_CELLS];
    char cells[REPORT_MAX_RUNS][REPORT_MAX_CELLS][REPORT_CELL_BYTES];
    size_t columns;
};
void report_put_table(struct page *p, const struct report_table *t);
/* Empty where the number is not finite. */
void report_put_number(char cell[REPORT_CELL_BYTES], double value, int digits);
void report_draw_summary(struct page *p);
/* How a run was made: command, machine, datasets, options. */
void report_draw_run(struct page *p, const struct run_log *r);

/* report_stages.c: where the time went. Nothing where no run has recorded it. */
void report_draw_stages(struct page *p);

#endif
