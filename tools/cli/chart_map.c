/*
 * chart_map: a map of one number over a rectangle, with its scale.
 */
#include "tools/cli/chart_internal.h"

#include <math.h>

enum { SCALE_STEPS = 32 };

/* From dark blue over green to yellow: brightness rises evenly, so it prints in grey. share in
 * [0, 1]. */
static void colour_of(double share, int rgb[3]) {
    static const double stops[][3] = {
        {68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}};
    const double at = 4.0 * fmin(1.0, fmax(0.0, share));
    const int first = at >= 4.0 ? 3 : (int)at;
    for (int i = 0; i < 3; i++) {
        const double mixed =
            stops[first][i] + (at - first) * (stops[first + 1][i] - stops[first][i]);
        rgb[i] = (int)(mixed + 0.5);
    }
}

static void draw_cell(struct html_page *p, double x, double y, double w, double h, double share) {
    int rgb[3];
    colour_of(share, rgb);
    html_markup(p,
                "<rect shape-rendering=\"crispEdges\" x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" "
                "height=\"%.2f\" "
                "fill=\"#%02x%02x%02x\"/>",
                x, y, w, h, (unsigned)rgb[0], (unsigned)rgb[1], (unsigned)rgb[2]);
}

void chart_map(struct html_page *p, const struct chart_map *m) {
    const double height = CHART_HEIGHT - CHART_TOP - CHART_BOTTOM;
    const double width = height * (m->x1 - m->x0) / (m->y1 - m->y0);
    const double cell_w = width / (double)m->columns;
    const double cell_h = height / (double)m->rows;
    struct chart_axis x = {
        .low = m->x0, .high = m->x1, .from = CHART_LEFT, .to = CHART_LEFT + width};
    struct chart_axis y = {
        .low = m->y0, .high = m->y1, .from = CHART_TOP + height, .to = CHART_TOP};
    chart_tick(&x);
    chart_tick(&y);
    chart_open(p, m->title);
    chart_begin(p, m->title, CHART_HEIGHT);
    for (size_t r = 0; r < m->rows; r++) {
        for (size_t c = 0; c < m->columns; c++) {
            const double share = (m->values[r * m->columns + c] - m->low) / (m->high - m->low);
            draw_cell(p, CHART_LEFT + cell_w * (double)c, CHART_TOP + cell_h * (double)r,
                      cell_w + 0.3, cell_h + 0.3, share);
        }
    }
    chart_draw_ticks(p, &x, &y, false);
    chart_label_axes(p, m->x_label, m->y_label, (x.from + x.to) / 2);
    const double scale_x = CHART_LEFT + width + 24.0;
    for (int i = 0; i < SCALE_STEPS; i++) {
        draw_cell(p, scale_x, CHART_TOP + height * i / SCALE_STEPS, 18.0,
                  height / SCALE_STEPS + 0.3, 1.0 - (i + 0.5) / SCALE_STEPS);
    }
    html_markup(p, "<text x=\"%.1f\" y=\"%d\">%.3g</text><text x=\"%.1f\" y=\"%.1f\">%.3g</text>",
                scale_x + 24.0, CHART_TOP + 12, m->high, scale_x + 24.0, CHART_TOP + height,
                m->low);
    chart_end(p, NULL);
}
