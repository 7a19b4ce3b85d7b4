/*
 * chart: figures of an html page as SVG: lines with error bars over linear or logarithmic axes, and
 * a map of one number over a rectangle. They follow the page's colours, light and dark; every point
 * says its numbers when the pointer rests on it.
 *
 * Threading : as the page.
 * Ownership : everything is borrowed for the call.
 */
#ifndef TOOLS_CLI_CHART_H
#define TOOLS_CLI_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/cli/html.h"

enum { CHART_MAX_SERIES = 8 };

/* One line. Points that are not finite, or not above 0 on a logarithmic axis, are omitted. */
struct chart_series {
    const char *name;
    const double *x, *y; /* (count), x ascending */
    const double *error; /* (count): half the length of a bar around y; NULL: none */
    size_t count;
    bool plain;  /* a line without marks, for many points */
    bool points; /* marks without a line; x in any order */
};

struct chart {
    const char *title; /* read to those who cannot see the figure */
    const char *x_label, *y_label;
    bool log_x, log_y;
    const struct chart_series *series;
    size_t series_count; /* [1, CHART_MAX_SERIES] */
};

/* Appends a <figure> with the chart, its legend, and `title` as its caption. */
void chart_lines(struct html_page *p, const struct chart *c);

/* Appends a <figure> with a map of values (rows, columns), the first row at the top, over
 * [x0, x1] x [y0, y1] (y1 at the top), with a scale. All values are finite. */
struct chart_map {
    const char *title;
    const char *x_label, *y_label;
    double x0, x1, y0, y1;
    double low, high; /* of the scale: values beyond them have its end colours; low < high */
    const double *values;
    size_t rows, columns;
};
void chart_map(struct html_page *p, const struct chart_map *m);

#endif
