/*
 * chart_internal: axes and frames that the kinds of figures share.
 *
 * Threading : as the page.
 */
#ifndef TOOLS_CLI_CHART_INTERNAL_H
#define TOOLS_CLI_CHART_INTERNAL_H

#include "tools/cli/chart.h"

/* Units of a figure. */
enum {
    CHART_WIDTH = 640,
    CHART_HEIGHT = 400,
    CHART_LEFT = 80, /* labels of six characters at the size that narrow screens need */
    CHART_RIGHT = 16,
    CHART_TOP = 40, /* below the name of the y axis */
    CHART_BOTTOM = 52,
    CHART_MAX_TICKS = 12,
};

struct chart_axis {
    double low, high; /* of log10 where it is logarithmic; HUGE_VAL and -HUGE_VAL at first */
    bool is_log;
    double ticks[CHART_MAX_TICKS]; /* values */
    int tick_count;
    double from, to; /* units of the figure */
};

/* Whether the axis has a place for the value. */
bool chart_usable(double value, bool is_log);
double chart_place(const struct chart_axis *a, double value);

/* Makes room for a value; then, once after all, some around them. */
void chart_widen(struct chart_axis *a, double value);
void chart_finish_axis(struct chart_axis *a);
void chart_tick(struct chart_axis *a);

/* A figure: open, with its title; begin its picture, with the title for those who do not see it;
 * lines of the axes, also across it, and labels; the end of picture and figure, with the numbers of
 * `table` if it is not NULL. */
void chart_open(struct html_page *p, const char *title);
void chart_begin(struct html_page *p, const char *title, int height);
void chart_draw_ticks(struct html_page *p,
                      const struct chart_axis *x,
                      const struct chart_axis *y,
                      bool lines);
void chart_label_axes(struct html_page *p, const char *x, const char *y, double middle);
void chart_end(struct html_page *p, const struct chart *table);

#endif
