/*
 * chart: one coordinate system of 640 x 400 units. A line of the figure keeps one hue of a palette
 * that the colour-blind can tell apart (Okabe and Ito, 2008) and its own mark.
 */
#include "tools/cli/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = 640,
    HEIGHT = 400,
    LEFT = 94, /* labels of six characters at the size that narrow screens need */
    RIGHT = 16,
    TOP = 14,
    BOTTOM = 52,
    LEGEND_LINE = 22,
    MAX_TICKS = 12,
    SCALE_STEPS = 32,
};

/* Of the page's style, which has others in the dark. */
static const char *const COLOURS[CHART_COLOURS] = {"var(--c1)", "var(--c2)", "var(--c3)",
                                                   "var(--c4)", "var(--c5)", "var(--c6)",
                                                   "var(--c7)", "var(--c8)"};

struct axis {
    double low, high; /* of log10 where it is logarithmic */
    bool is_log;
    double ticks[MAX_TICKS]; /* values */
    int tick_count;
    double from, to; /* units of the figure */
};

static const char *colour_name(const struct chart_series *s, size_t k) {
    return COLOURS[(s->colour > 0 ? s->colour - 1 : k) % CHART_COLOURS];
}

static bool usable(double value, bool is_log) {
    return isfinite(value) && (!is_log || value > 0.0);
}

static double place(const struct axis *a, double value) {
    const double at = a->is_log ? log10(value) : value;
    return a->from + (a->to - a->from) * (at - a->low) / (a->high - a->low);
}

static void widen(struct axis *a, double value) {
    if (usable(value, a->is_log)) {
        const double at = a->is_log ? log10(value) : value;
        a->low = fmin(a->low, at);
        a->high = fmax(a->high, at);
    }
}

static void add_tick(struct axis *a, double value) {
    const double at = a->is_log ? log10(value) : value;
    if (a->tick_count < MAX_TICKS && at >= a->low - 1e-9 && at <= a->high + 1e-9) {
        a->ticks[a->tick_count++] = value;
    }
}

/* 1, 2 and 5 times powers of ten; only powers over more than three decades. */
static void tick_log(struct axis *a) {
    const bool wide = a->high - a->low > 3.0;
    for (int decade = (int)floor(a->low); decade <= (int)ceil(a->high); decade++) {
        for (int step = 0; step < (wide ? 1 : 3); step++) {
            static const double steps[] = {1.0, 2.0, 5.0};
            add_tick(a, steps[step] * pow(10.0, decade));
        }
    }
}

static void tick_linear(struct axis *a) {
    const double raw = (a->high - a->low) / 5.0;
    const double unit = pow(10.0, floor(log10(raw)));
    const double step = raw / unit > 5.0 ? 10 * unit : raw / unit > 2.0 ? 5 * unit : 2 * unit;
    for (double value = ceil(a->low / step) * step; value <= a->high + step / 100.0;
         value += step) {
        add_tick(a, fabs(value) < step / 100.0 ? 0.0 : value);
    }
}

/* Some room around the data. */
static void finish_axis(struct axis *a) {
    if (!(a->high > a->low)) { /* no point, or one */
        const double at = isfinite(a->low) ? a->low : 0.0;
        a->low = at - 0.5;
        a->high = at + 0.5;
    }
    const double margin = 0.04 * (a->high - a->low);
    a->low -= margin;
    a->high += margin;
}

static void tick(struct axis *a) {
    (a->is_log ? tick_log : tick_linear)(a);
}

/* Of a logarithmic axis with few points, which are apart, as those of a sweep: their values.
 * Otherwise none. */
static void tick_points(struct axis *a, const struct chart *c) {
    static const double apart = 0.08; /* of the axis: room for a label */
    for (size_t k = 0; k < c->series_count && a->is_log; k++) {
        for (size_t i = 0; i < c->series[k].count; i++) {
            const double value = c->series[k].x[i];
            double nearest = HUGE_VAL;
            for (int t = 0; t < a->tick_count && value > 0.0; t++) {
                nearest = fmin(nearest, fabs(log10(a->ticks[t] / value)));
            }
            if (nearest > 1e-9 * (a->high - a->low)) {
                if (nearest < apart * (a->high - a->low) || a->tick_count == MAX_TICKS) {
                    a->tick_count = 0;
                    return;
                }
                add_tick(a, value);
            }
        }
    }
}

static void begin_figure(struct html_page *p, const char *title, int height) {
    html_markup(p, "<figure class=\"chart\"><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
                WIDTH, height);
    html_text(p, title, strlen(title));
    html_markup(p, "\" font-size=\"13\" fill=\"currentColor\">");
}

static size_t row_count(const struct chart_series *s) {
    return s->count < CHART_TABLE_ROWS ? s->count : CHART_TABLE_ROWS;
}

/* The point that row `row` shows: all of few, else spread evenly with the first and the last. */
static size_t point_of(const struct chart_series *s, size_t row) {
    return s->count <= CHART_TABLE_ROWS ? row : row * (s->count - 1) / (CHART_TABLE_ROWS - 1);
}

/* Two columns for each line: lines may have other points. */
static void put_table(struct html_page *p, const struct chart *c) {
    size_t rows = 0;
    html_markup(p, "<details><summary>Numbers</summary><div class=\"scroll\"><table>\n<tr>");
    for (size_t k = 0; k < c->series_count; k++) {
        rows = row_count(&c->series[k]) > rows ? row_count(&c->series[k]) : rows;
        html_markup(p, "<th>");
        html_text(p, c->x_label, strlen(c->x_label));
        html_markup(p, "</th><th>");
        html_text(p, c->series[k].name, strlen(c->series[k].name));
        html_markup(p, "</th>");
    }
    for (size_t row = 0; row < rows; row++) {
        html_markup(p, "</tr>\n<tr>");
        for (size_t k = 0; k < c->series_count; k++) {
            const struct chart_series *s = &c->series[k];
            if (row < row_count(s)) {
                const size_t i = point_of(s, row);
                html_markup(p, "<td>%.6g</td><td>%.6g</td>", s->x[i], s->y[i]);
            } else {
                html_markup(p, "<td></td><td></td>");
            }
        }
    }
    html_markup(p, "</tr>\n</table></div></details>");
}

/* table: whose numbers follow; NULL: none. */
static void end_figure(struct html_page *p, const char *title, const struct chart *table) {
    html_markup(p, "</svg><figcaption>");
    html_text(p, title, strlen(title));
    html_markup(p, "</figcaption>");
    if (table != NULL) {
        put_table(p, table);
    }
    html_markup(p, "</figure>\n");
}

static void label_axes(struct html_page *p, const char *x, const char *y, double middle, int top) {
    html_markup(p, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", middle, top + HEIGHT - 10);
    html_text(p, x, strlen(x));
    html_markup(p,
                "</text><text x=\"16\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 16 "
                "%d)\">",
                top + (TOP + HEIGHT - BOTTOM) / 2, top + (TOP + HEIGHT - BOTTOM) / 2);
    html_text(p, y, strlen(y));
    html_markup(p, "</text>");
}

/* lines: also across the figure. */
static void
draw_ticks(struct html_page *p, const struct axis *x, const struct axis *y, bool lines) {
    for (int i = 0; i < x->tick_count; i++) {
        const double at = place(x, x->ticks[i]);
        html_markup(p,
                    "<path d=\"M%.1f %.1fV%.1f\" stroke=\"var(--line)\"/>"
                    "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>",
                    at, y->from + 4.0, lines ? y->to : y->from, at, y->from + 18.0, x->ticks[i]);
    }
    for (int i = 0; i < y->tick_count; i++) {
        const double at = place(y, y->ticks[i]);
        html_markup(p,
                    "<path d=\"M%.1f %.1fH%.1f\" stroke=\"var(--line)\"/>"
                    "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%g</text>",
                    x->from - 4.0, at, lines ? x->to : x->from, x->from - 7.0, at + 4.5,
                    y->ticks[i]);
    }
}

enum { MARK_KINDS = 6, MARK_CIRCLE = 1 };

/* Square, circle, triangle, diamond, triangle upside down, hourglass. */
static void draw_mark(struct html_page *p, double x, double y, size_t kind) {
    if (kind % MARK_KINDS == MARK_CIRCLE) {
        html_markup(p, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\"", x, y);
        return;
    }
    static const struct {
        double x, y;
    } corners[][4] = {
        {{-4, -4}, {4, -4}, {4, 4}, {-4, 4}},    {{0, 0}, {0, 0}, {0, 0}, {0, 0}},
        {{0, -5.5}, {5, 4}, {-5, 4}, {0, -5.5}}, {{0, -5.5}, {5.5, 0}, {0, 5.5}, {-5.5, 0}},
        {{0, 5.5}, {5, -4}, {-5, -4}, {0, 5.5}}, {{-5, -5}, {5, -5}, {-5, 5}, {5, 5}}};
    html_markup(p, "<path d=\"");
    for (int i = 0; i < 4; i++) {
        html_markup(p, "%c%.1f %.1f", i == 0 ? 'M' : 'L', x + corners[kind % MARK_KINDS][i].x,
                    y + corners[kind % MARK_KINDS][i].y);
    }
    html_markup(p, "Z\"");
}

static void draw_point(struct html_page *p,
                       const struct chart_series *s,
                       size_t i,
                       double x,
                       double y,
                       size_t k) {
    draw_mark(p, x, y, k);
    html_markup(p, " fill=\"%s\"><title>", colour_name(s, k));
    html_text(p, s->name, strlen(s->name));
    if (s->error != NULL) {
        html_markup(p, ": %.6g at %.6g, standard error %.2g", s->y[i], s->x[i], s->error[i]);
    } else {
        html_markup(p, ": %.6g at %.6g", s->y[i], s->x[i]);
    }
    html_markup(p, "</title></%s>", k % MARK_KINDS == MARK_CIRCLE ? "circle" : "path");
}

static void draw_error(struct html_page *p,
                       const struct chart_series *s,
                       size_t i,
                       const struct axis *y,
                       double x) {
    if (s->error == NULL || !(s->error[i] > 0.0)) {
        return;
    }
    const double above = s->y[i] + s->error[i];
    const double below = s->y[i] - s->error[i];
    const double bottom = usable(below, y->is_log) ? fmin(place(y, below), y->from) : y->from;
    html_markup(p, "<path d=\"M%.1f %.1fV%.1f\" stroke-width=\"1.5\"/>", x, place(y, above),
                bottom);
}

static void draw_band(struct html_page *p,
                      const struct chart_series *s,
                      size_t k,
                      const struct axis *x,
                      const struct axis *y) {
    bool begun = false;
    html_markup(p, "<path fill=\"%s\" fill-opacity=\".18\" d=\"", colour_name(s, k));
    for (size_t i = 0; i < s->count; i++) {
        if (usable(s->x[i], x->is_log) && usable(s->high[i], y->is_log)) {
            html_markup(p, "%c%.1f %.1f", begun ? 'L' : 'M', place(x, s->x[i]),
                        place(y, s->high[i]));
            begun = true;
        }
    }
    for (size_t i = s->count; i-- > 0 && begun;) {
        if (usable(s->x[i], x->is_log) && usable(s->high[i], y->is_log)) {
            const double low = usable(s->low[i], y->is_log) ? place(y, s->low[i]) : y->from;
            html_markup(p, "L%.1f %.1f", place(x, s->x[i]), low);
        }
    }
    html_markup(p, "\"/>");
}

/* What the script of chart_script reads: the numbers of every point of the path. */
static void put_values(struct html_page *p,
                       const struct chart_series *s,
                       const struct axis *x,
                       const struct axis *y) {
    html_markup(p, " data-name=\"");
    html_text(p, s->name, strlen(s->name));
    html_markup(p, "\" data-values=\"");
    for (size_t i = 0; i < s->count; i++) {
        if (usable(s->x[i], x->is_log) && usable(s->y[i], y->is_log)) {
            html_markup(p, "%.6g,%.5g ", s->x[i], s->y[i]);
        }
    }
    html_markup(p, "\"");
}

static void draw_series(struct html_page *p,
                        const struct chart_series *s,
                        size_t k,
                        const struct axis *x,
                        const struct axis *y) {
    bool begun = false;
    if (s->low != NULL) {
        draw_band(p, s, k, x, y);
    }
    html_markup(p, "<g fill=\"none\" stroke=\"%s\"><path stroke-width=\"2\"%s", colour_name(s, k),
                s->dashed ? " stroke-dasharray=\"7 4\"" : "");
    if (s->plain) {
        put_values(p, s, x, y);
    }
    html_markup(p, " d=\"");
    for (size_t i = 0; i < s->count && !s->points; i++) {
        if (usable(s->x[i], x->is_log) && usable(s->y[i], y->is_log)) {
            html_markup(p, "%c%.1f %.1f", begun ? 'L' : 'M', place(x, s->x[i]), place(y, s->y[i]));
            begun = true;
        }
    }
    html_markup(p, "\"/>");
    for (size_t i = 0; i < s->count && !s->plain; i++) {
        if (usable(s->x[i], x->is_log) && usable(s->y[i], y->is_log)) {
            draw_error(p, s, i, y, place(x, s->x[i]));
        }
    }
    html_markup(p, "</g>");
    for (size_t i = 0; i < s->count && !s->plain; i++) {
        if (usable(s->x[i], x->is_log) && usable(s->y[i], y->is_log)) {
            draw_point(p, s, i, place(x, s->x[i]), place(y, s->y[i]), k);
        }
    }
}

/* Above the figure, one line for each series. */
static void draw_legend(struct html_page *p, const struct chart *c) {
    for (size_t k = 0; k < c->series_count; k++) {
        const double y = TOP + LEGEND_LINE * (double)k;
        if (!c->series[k].points) {
            html_markup(p,
                        "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                        "stroke-width=\"2\"%s/>",
                        LEFT, LEFT + 32, y, y, colour_name(&c->series[k], k),
                        c->series[k].dashed ? " stroke-dasharray=\"7 4\"" : "");
        }
        if (!c->series[k].plain) {
            draw_mark(p, LEFT + 16, y, k);
            html_markup(p, " fill=\"%s\"/>", colour_name(&c->series[k], k));
        }
        html_markup(p, "<text x=\"%d\" y=\"%.1f\">", LEFT + 40, y + 4.5);
        html_text(p, c->series[k].name, strlen(c->series[k].name));
        html_markup(p, "</text>");
    }
}

/* Moves a line to the nearest point of every path under the pointer, and names the values. */
void chart_script(struct html_page *p) {
    static const char script[] =
        "<script>\n"
        "for(const svg of document.querySelectorAll('.chart svg')){\n"
        "const lines=[...svg.querySelectorAll('path[data-values]')].map(e=>({name:e.dataset.name,\n"
        "at:e.getAttribute('d').slice(1).split('L').map(q=>+q.split(' ')[0]),\n"
        "values:e.dataset.values.trim().split(' ').map(v=>v.split(','))}))\n"
        ".filter(l=>l.values[0].length>1);\n"
        "if(!lines.length)continue;\n"
        "const cursor=document.createElementNS(svg.namespaceURI,'line');\n"
        "cursor.setAttribute('class','cursor');svg.append(cursor);\n"
        "const box=document.createElement('div');box.className='values';svg.after(box);\n"
        "const h=svg.viewBox.baseVal.height,w=svg.viewBox.baseVal.width;\n"
        "svg.addEventListener('pointermove',e=>{\n"
        "const r=svg.getBoundingClientRect(),x=(e.clientX-r.left)*w/r.width;let best=null;\n"
        "const near=lines.map(l=>l.at.reduce((n,v,i)=>Math.abs(v-x)<Math.abs(l.at[n]-x)?i:n,0));\n"
        "lines.forEach((l,k)=>{const v=l.at[near[k]];\n"
        "if(best===null||Math.abs(v-x)<Math.abs(best-x))best=v});\n"
        "cursor.setAttribute('x1',best);cursor.setAttribute('x2',best);\n"
        "cursor.setAttribute('y1',h-400+14);cursor.setAttribute('y2',h-52);\n"
        "box.textContent=lines.map((l,k)=>l.name+': '+l.values[near[k]][1]+' at "
        "'+l.values[near[k]][0])\n"
        ".join('\\n');box.style.display='block';cursor.style.display='inline';\n"
        "const "
        "left=e.clientX-r.left;box.style.left=(left<r.width/2?left+14:left-14-box.offsetWidth)"
        "+'px';\n"
        "box.style.top=(e.clientY-r.top+svg.offsetTop+14)+'px'});\n"
        "svg.addEventListener('pointerleave',()=>{box.style.display=cursor.style.display='none'})}"
        "\n"
        "</script>\n";
    html_raw(p, script);
}

void chart_lines(struct html_page *p, const struct chart *c) {
    const int top = c->no_legend ? 0 : LEGEND_LINE * (int)c->series_count;
    struct axis x = {.low = HUGE_VAL, .high = -HUGE_VAL, .is_log = c->log_x};
    struct axis y = {.low = HUGE_VAL, .high = -HUGE_VAL, .is_log = c->log_y};
    for (size_t k = 0; k < c->series_count; k++) {
        const struct chart_series *s = &c->series[k];
        for (size_t i = 0; i < s->count; i++) {
            const double error = s->error != NULL ? s->error[i] : 0.0;
            widen(&x, s->x[i]);
            widen(&y, s->y[i]);
            widen(&y, s->y[i] + error);
            if (!c->log_y) {
                widen(&y, s->y[i] - error);
            }
            if (s->low != NULL) {
                widen(&y, s->low[i]);
                widen(&y, s->high[i]);
            }
        }
    }
    finish_axis(&x);
    finish_axis(&y);
    tick_points(&x, c);
    if (x.tick_count == 0) {
        tick(&x);
    }
    tick(&y);
    x.from = LEFT;
    x.to = WIDTH - RIGHT;
    y.from = top + HEIGHT - BOTTOM;
    y.to = top + TOP;
    begin_figure(p, c->title, top + HEIGHT);
    if (!c->no_legend) {
        draw_legend(p, c);
    }
    draw_ticks(p, &x, &y, true);
    label_axes(p, c->x_label, c->y_label, (x.from + x.to) / 2, top);
    for (size_t k = 0; k < c->series_count; k++) {
        draw_series(p, &c->series[k], k, &x, &y);
    }
    end_figure(p, c->title, c->table ? c : NULL);
}

/* ---- maps ---- */

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
    const double height = HEIGHT - TOP - BOTTOM;
    const double width = height * (m->x1 - m->x0) / (m->y1 - m->y0);
    const double cell_w = width / (double)m->columns;
    const double cell_h = height / (double)m->rows;
    struct axis x = {.low = m->x0, .high = m->x1, .from = LEFT, .to = LEFT + width};
    struct axis y = {.low = m->y0, .high = m->y1, .from = TOP + height, .to = TOP};
    tick_linear(&x);
    tick_linear(&y);
    begin_figure(p, m->title, HEIGHT);
    for (size_t r = 0; r < m->rows; r++) {
        for (size_t c = 0; c < m->columns; c++) {
            const double share = (m->values[r * m->columns + c] - m->low) / (m->high - m->low);
            draw_cell(p, LEFT + cell_w * (double)c, TOP + cell_h * (double)r, cell_w + 0.3,
                      cell_h + 0.3, share);
        }
    }
    draw_ticks(p, &x, &y, false);
    label_axes(p, m->x_label, m->y_label, (x.from + x.to) / 2, 0);
    const double scale_x = LEFT + width + 24.0;
    for (int i = 0; i < SCALE_STEPS; i++) {
        draw_cell(p, scale_x, TOP + height * i / SCALE_STEPS, 18.0, height / SCALE_STEPS + 0.3,
                  1.0 - (i + 0.5) / SCALE_STEPS);
    }
    html_markup(p, "<text x=\"%.1f\" y=\"%d\">%.3g</text><text x=\"%.1f\" y=\"%.1f\">%.3g</text>",
                scale_x + 24.0, TOP + 12, m->high, scale_x + 24.0, TOP + height, m->low);
    end_figure(p, m->title, NULL);
}
