/*
 * chart: figures of an html page as SVG: lines with error bars over linear or logarithmic axes,
 * stacked areas, distributions one above the other, and a map of one number over a rectangle. They
 * follow the page's colours, light and dark; every point
 * says its numbers when the pointer rests on it, those of lines without marks by a script.
 *
 * Threading : as the page.
 * Ownership : everything is borrowed for the call.
 */
#ifndef TOOLS_CLI_CHART_H
#define TOOLS_CLI_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/cli/html.h"

enum { CHART_MAX_SERIES = 16, CHART_COLOURS = 8 };

/* One line. Points that are not finite, or not above 0 on a logarithmic axis, are omitted. */
struct chart_series {
    const char *name;
    const double *x, *y; /* (count), x ascending */
    const double *error; /* (count): half the length of a bar around y; NULL: none */
    size_t count;
    const double *low, *high; /* (count): a band around the line; NULL: none */
    size_t colour;            /* [0, CHART_COLOURS]; 0: by its place among the series */
    bool plain;               /* a line without marks, for many points */
    bool points;              /* marks without a line; x in any order */
    bool dashed;
    bool filled; /* the area down to the axis, as of a histogram's outline */
};

struct chart {
    const char *title; /* read to those who cannot see the figure */
    const char *x_label, *y_label;
    bool log_x, log_y;
    bool stacked; /* areas on top of each other, the first at the bottom: series of the same x,
                     whose y, not below 0, are the heights; y is linear */
    const struct chart_series *series;
    size_t series_count; /* [1, CHART_MAX_SERIES] */
    bool no_legend;      /* the page has one of its own */
    bool table;          /* also the numbers of up to CHART_TABLE_ROWS points of each line; of more
                            than four lines, half as many */
};
enum { CHART_TABLE_ROWS = 32, CHART_MAX_RIDGES = 10 };

/* Appends a <figure> with the chart, its legend, and `title` as its caption. */
void chart_lines(struct html_page *p, const struct chart *c);

/* Appends, once after all charts, the script that shows the values of plain lines, which have no
 * marks, next to the pointer. The page says the same without it. */
void chart_script(struct html_page *p);

/* Appends a <figure> with one distribution above the other, over one axis. */
struct chart_ridge {
    double label;          /* what it is of, such as a step */
    double low, width;     /* bin i begins at low + i width */
    const double *heights; /* (count), not below 0 */
    size_t count;
};
struct chart_ridges {
    const char *title, *x_label, *label; /* label: what the ridges' labels are */
    const struct chart_ridge *ridges;    /* the first at the top */
    size_t count;                        /* [1, CHART_MAX_RIDGES] */
};
void chart_ridges(struct html_page *p, const struct chart_ridges *r);

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
