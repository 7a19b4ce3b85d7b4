/*
 * chart_ridges: distributions one above the other. Each has the same greatest height, and reaches
 * into the row above it, which it hides there.
 */
#include "tools/cli/chart_internal.h"

#include <math.h>

enum { OVERLAP = 2 }; /* rows that the highest bin takes */

static void draw_ridge(struct html_page *p,
                       const struct chart_ridge *r,
                       const struct chart_axis *x,
                       double base,
                       double height,
                       double strength) {
    double mean = 0.0;
    double all = 0.0;
    double highest = 0.0;
    for (size_t i = 0; i < r->count; i++) {
        highest = fmax(highest, r->heights[i]);
        mean += r->heights[i] * (r->low + r->width * ((double)i + 0.5));
        all += r->heights[i];
    }
    const double unit = highest > 0.0 ? height / highest : 0.0;
    for (int pass = 0; pass < 2; pass++) { /* what hides the row above, then the ridge itself */
        html_markup(p, "<path d=\"M%.1f %.1f", chart_place(x, r->low), base);
        for (size_t i = 0; i < r->count; i++) {
            html_markup(p, "V%.1fH%.1f", base - r->heights[i] * unit,
                        chart_place(x, r->low + r->width * (double)(i + 1)));
        }
        html_markup(p, "V%.1fZ\"", base);
        if (pass == 0) {
            html_raw(p, " fill=\"var(--card)\"/>");
        }
    }
    html_markup(p,
                " fill=\"var(--c1)\" fill-opacity=\"%.2f\" stroke=\"var(--c1)\"><title>%.10g: "
                "from %.4g to %.4g, mean about %.4g</title></path>",
                strength, r->label, r->low, r->low + r->width * (double)r->count,
                all > 0.0 ? mean / all : 0.0);
}

void chart_ridges(struct html_page *p, const struct chart_ridges *c) {
    struct chart_axis x = {.low = HUGE_VAL, .high = -HUGE_VAL};
    for (size_t k = 0; k < c->count; k++) {
        const struct chart_ridge *r = &c->ridges[k];
        chart_widen(&x, r->low);
        chart_widen(&x, r->low + r->width * (double)r->count);
    }
    chart_finish_axis(&x);
    chart_tick(&x);
    x.from = CHART_LEFT;
    x.to = CHART_WIDTH - CHART_RIGHT;
    const double bottom = CHART_HEIGHT - CHART_BOTTOM;
    const double row = (bottom - CHART_TOP) / (double)(c->count - 1 + OVERLAP);
    const struct chart_axis y = {.from = bottom, .to = CHART_TOP};
    chart_open(p, c->title);
    chart_begin(p, c->title, CHART_HEIGHT);
    chart_draw_ticks(p, &x, &y, true);
    chart_label_axes(p, c->x_label, c->label, (x.from + x.to) / 2);
    for (size_t k = 0; k < c->count; k++) {
        const double base = bottom - row * (double)(c->count - 1 - k);
        html_markup(p,
                    "<path d=\"M%.1f %.1fH%.1f\" stroke=\"var(--line)\"/><text x=\"%.1f\" "
                    "y=\"%.1f\" text-anchor=\"end\">%.10g</text>",
                    x.from - 4.0, base, x.to, x.from - 7.0, base + 4.5, c->ridges[k].label);
        draw_ridge(p, &c->ridges[k], &x, base, OVERLAP * row,
                   0.25 + 0.5 * (double)(k + 1) / (double)c->count);
    }
    chart_end(p, NULL);
}
