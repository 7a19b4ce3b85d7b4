/*
 * chart: one coordinate system of 640 x 400 units. A line of the figure keeps one hue of a palette
 * that the colour-blind can tell apart (Okabe and Ito, 2008) and its own mark.
 */
#include "tools/cli/chart_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of the page's style, which has others in the dark. */
static const char *const COLOURS[CHART_COLOURS] = {"var(--c1)", "var(--c2)", "var(--c3)",
                                                   "var(--c4)", "var(--c5)", "var(--c6)",
                                                   "var(--c7)", "var(--c8)"};

static const char *colour_name(const struct chart_series *s, size_t k) {
    return COLOURS[(s->colour > 0 ? s->colour - 1 : k) % CHART_COLOURS];
}

bool chart_usable(double value, bool is_log) {
    return isfinite(value) && (!is_log || value > 0.0);
}

double chart_place(const struct chart_axis *a, double value) {
    const double at = a->is_log ? log10(value) : value;
    return a->from + (a->to - a->from) * (at - a->low) / (a->high - a->low);
}

void chart_widen(struct chart_axis *a, double value) {
    if (chart_usable(value, a->is_log)) {
        const double at = a->is_log ? log10(value) : value;
        a->low = fmin(a->low, at);
        a->high = fmax(a->high, at);
    }
}

static void add_tick(struct chart_axis *a, double value) {
    const double at = a->is_log ? log10(value) : value;
    const double slack = 1e-6 * (a->high - a->low); /* sums that should be 100 are 99.9999999 */
    if (a->tick_count < CHART_MAX_TICKS && at >= a->low - slack && at <= a->high + slack) {
        a->ticks[a->tick_count++] = value;
    }
}

/* 1, 2 and 5 times powers of ten; only powers over more than three decades. */
static void tick_log(struct chart_axis *a) {
    const bool wide = a->high - a->low > 3.0;
    for (int decade = (int)floor(a->low); decade <= (int)ceil(a->high); decade++) {
        for (int step = 0; step < (wide ? 1 : 3); step++) {
            static const double steps[] = {1.0, 2.0, 5.0};
            add_tick(a, steps[step] * pow(10.0, decade));
        }
    }
}

static void tick_linear(struct chart_axis *a) {
    const double raw = (a->high - a->low) / 5.0;
    const double unit = pow(10.0, floor(log10(raw)));
    const double step = raw / unit > 5.0 ? 10 * unit : raw / unit > 2.0 ? 5 * unit : 2 * unit;
    for (double value = ceil(a->low / step) * step; value <= a->high + step / 100.0;
         value += step) {
        add_tick(a, fabs(value) < step / 100.0 ? 0.0 : value);
    }
}

/* Some room around the data. */
void chart_finish_axis(struct chart_axis *a) {
    if (!(a->high > a->low)) { /* no point, or one */
        const double at = isfinite(a->low) ? a->low : 0.0;
        a->low = at - 0.5;
        a->high = at + 0.5;
    }
    const double margin = 0.04 * (a->high - a->low);
    a->low -= margin;
    a->high += margin;
}

void chart_tick(struct chart_axis *a) {
    (a->is_log ? tick_log : tick_linear)(a);
}

/* Of a logarithmic axis with few points, which are apart, as those of a sweep: their values.
 * Otherwise none. */
static void tick_points(struct chart_axis *a, const struct chart *c) {
    static const double apart = 0.08; /* of the axis: room for a label */
    for (size_t k = 0; k < c->series_count && a->is_log; k++) {
        for (size_t i = 0; i < c->series[k].count; i++) {
            const double value = c->series[k].x[i];
            double nearest = HUGE_VAL;
            for (int t = 0; t < a->tick_count && value > 0.0; t++) {
                nearest = fmin(nearest, fabs(log10(a->ticks[t] / value)));
            }
            if (nearest > 1e-9 * (a->high - a->low)) {
                if (nearest < apart * (a->high - a->low) || a->tick_count == CHART_MAX_TICKS) {
                    a->tick_count = 0;
                    return;
                }
                add_tick(a, value);
            }
        }
    }
}

void chart_begin(struct html_page *p, const char *title, int height) {
    html_markup(p, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", CHART_WIDTH, height);
    html_text(p, title, strlen(title));
    html_markup(p, "\" font-size=\"13\" fill=\"currentColor\">");
}

void chart_open(struct html_page *p, const char *title) {
    html_raw(p, "<figure class=\"chart\"><figcaption>");
    html_text(p, title, strlen(title));
    html_raw(p, "</figcaption>");
}

/* Rows of its table that a line has. */
static size_t row_count(const struct chart *c, const struct chart_series *s) {
    const size_t most = c->series_count > 4 ? CHART_TABLE_ROWS / 2 : CHART_TABLE_ROWS;
    return s->count < most ? s->count : most;
}

/* The point that row `row` of several shows: all of few, else spread evenly with the first and the
 * last. */
static size_t point_of(const struct chart_series *s, size_t row, size_t rows) {
    return s->count <= rows ? row : row * (s->count - 1) / (rows - 1);
}

/* Two columns for each line: lines may have other points. */
static void put_table(struct html_page *p, const struct chart *c) {
    size_t rows = 0;
    html_markup(p, "<details><summary>Numbers</summary><div class=\"scroll\"><table>\n<tr>");
    for (size_t k = 0; k < c->series_count; k++) {
        const size_t own = row_count(c, &c->series[k]);
        rows = own > rows ? own : rows;
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
            if (row < row_count(c, s)) {
                const size_t i = point_of(s, row, row_count(c, s));
                html_markup(p, "<td>%.6g</td><td>%.6g</td>", s->x[i], s->y[i]);
            } else {
                html_markup(p, "<td></td><td></td>");
            }
        }
    }
    html_markup(p, "</tr>\n</table></div></details>");
}

/* table: whose numbers follow; NULL: none. */
void chart_end(struct html_page *p, const struct chart *table) {
    html_raw(p, "</svg>");
    if (table != NULL) {
        put_table(p, table);
    }
    html_raw(p, "</figure>\n");
}

/* The y axis is named above it, which leaves room for long numbers on narrow screens. */
void chart_label_axes(struct html_page *p, const char *x, const char *y, double middle) {
    html_markup(p, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", middle, CHART_HEIGHT - 10);
    html_text(p, x, strlen(x));
    html_markup(p, "</text><text x=\"4\" y=\"18\">");
    html_text(p, y, strlen(y));
    html_markup(p, "</text>");
}

/* lines: also across the figure. */
void chart_draw_ticks(struct html_page *p,
                      const struct chart_axis *x,
                      const struct chart_axis *y,
                      bool lines) {
    for (int i = 0; i < x->tick_count; i++) {
        const double at = chart_place(x, x->ticks[i]);
        html_markup(p,
                    "<path d=\"M%.1f %.1fV%.1f\" stroke=\"var(--line)\"/>"
                    "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>",
                    at, y->from + 4.0, lines ? y->to : y->from, at, y->from + 18.0, x->ticks[i]);
    }
    for (int i = 0; i < y->tick_count; i++) {
        const double at = chart_place(y, y->ticks[i]);
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
                       const struct chart_axis *y,
                       double x) {
    if (s->error == NULL || !(s->error[i] > 0.0)) {
        return;
    }
    const double above = s->y[i] + s->error[i];
    const double below = s->y[i] - s->error[i];
    const double bottom =
        chart_usable(below, y->is_log) ? fmin(chart_place(y, below), y->from) : y->from;
    html_markup(p, "<path d=\"M%.1f %.1fV%.1f\" stroke-width=\"1.5\"/>", x, chart_place(y, above),
                bottom);
}

static void draw_band(struct html_page *p,
                      const struct chart_series *s,
                      size_t k,
                      const struct chart_axis *x,
                      const struct chart_axis *y) {
    bool begun = false;
    html_markup(p, "<path fill=\"%s\" fill-opacity=\".18\" d=\"", colour_name(s, k));
    for (size_t i = 0; i < s->count; i++) {
        if (chart_usable(s->x[i], x->is_log) && chart_usable(s->high[i], y->is_log)) {
            html_markup(p, "%c%.1f %.1f", begun ? 'L' : 'M', chart_place(x, s->x[i]),
                        chart_place(y, s->high[i]));
            begun = true;
        }
    }
    for (size_t i = s->count; i-- > 0 && begun;) {
        if (chart_usable(s->x[i], x->is_log) && chart_usable(s->high[i], y->is_log)) {
            const double low =
                chart_usable(s->low[i], y->is_log) ? chart_place(y, s->low[i]) : y->from;
            html_markup(p, "L%.1f %.1f", chart_place(x, s->x[i]), low);
        }
    }
    html_markup(p, "\"/>");
}

/* The height at which series k of a stacked figure begins. */
static double stack_base(const struct chart *c, size_t k, size_t i) {
    double sum = 0.0;
    for (size_t below = 0; below < k && c->stacked; below++) {
        sum += c->series[below].y[i];
    }
    return sum;
}

/* The area of series k down to the series below it, or to the axis. */
static void draw_area(struct html_page *p,
                      const struct chart *c,
                      size_t k,
                      const struct chart_axis *x,
                      const struct chart_axis *y) {
    const struct chart_series *s = &c->series[k];
    html_markup(p, "<path fill=\"%s\" fill-opacity=\"%s\" d=\"", colour_name(s, k),
                c->stacked ? ".8" : ".35");
    for (size_t i = 0; i < s->count; i++) {
        html_markup(p, "%c%.1f %.1f", i > 0 ? 'L' : 'M', chart_place(x, s->x[i]),
                    chart_place(y, stack_base(c, k, i) + s->y[i]));
    }
    for (size_t i = s->count; i-- > 0;) {
        html_markup(p, "L%.1f %.1f", chart_place(x, s->x[i]), chart_place(y, stack_base(c, k, i)));
    }
    html_raw(p, "\"/>");
}

/* What the script of chart_script reads: the numbers of every point of the path. */
static void put_values(struct html_page *p,
                       const struct chart_series *s,
                       const struct chart_axis *x,
                       const struct chart_axis *y) {
    html_markup(p, " data-name=\"");
    html_text(p, s->name, strlen(s->name));
    html_markup(p, "\" data-values=\"");
    for (size_t i = 0; i < s->count; i++) {
        if (chart_usable(s->x[i], x->is_log) && chart_usable(s->y[i], y->is_log)) {
            html_markup(p, "%.6g,%.5g ", s->x[i], s->y[i]);
        }
    }
    html_markup(p, "\"");
}

static void draw_series(struct html_page *p,
                        const struct chart *c,
                        size_t k,
                        const struct chart_axis *x,
                        const struct chart_axis *y) {
    const struct chart_series *s = &c->series[k];
    bool begun = false;
    if (s->low != NULL) {
        draw_band(p, s, k, x, y);
    }
    if (s->filled || c->stacked) {
        draw_area(p, c, k, x, y);
    }
    html_markup(p, "<g fill=\"none\" stroke=\"%s\"><path stroke-width=\"%s\"%s", colour_name(s, k),
                c->stacked ? ".5" : "2", s->dashed ? " stroke-dasharray=\"7 4\"" : "");
    if (s->plain) {
        put_values(p, s, x, y);
    }
    html_markup(p, " d=\"");
    for (size_t i = 0; i < s->count && !s->points; i++) {
        if (chart_usable(s->x[i], x->is_log) && chart_usable(s->y[i], y->is_log)) {
            html_markup(p, "%c%.1f %.1f", begun ? 'L' : 'M', chart_place(x, s->x[i]),
                        chart_place(y, stack_base(c, k, i) + s->y[i]));
            begun = true;
        }
    }
    html_markup(p, "\"/>");
    for (size_t i = 0; i < s->count && !s->plain; i++) {
        if (chart_usable(s->x[i], x->is_log) && chart_usable(s->y[i], y->is_log)) {
            draw_error(p, s, i, y, chart_place(x, s->x[i]));
        }
    }
    html_markup(p, "</g>");
    for (size_t i = 0; i < s->count && !s->plain; i++) {
        if (chart_usable(s->x[i], x->is_log) && chart_usable(s->y[i], y->is_log)) {
            draw_point(p, s, i, chart_place(x, s->x[i]), chart_place(y, s->y[i]), k);
        }
    }
}

/* Above the figure; it wraps as text does. */
static void draw_legend(struct html_page *p, const struct chart *c) {
    html_raw(p, "<div class=\"legend\">");
    for (size_t k = 0; k < c->series_count; k++) {
        const struct chart_series *s = &c->series[k];
        html_markup(p, "<span><svg viewBox=\"0 0 32 14\" aria-hidden=\"true\">");
        if (c->stacked) {
            html_markup(p,
                        "<rect x=\"9\" width=\"14\" height=\"14\" rx=\"2\" fill=\"%s\" "
                        "fill-opacity=\".8\"/>",
                        colour_name(s, k));
        } else if (!s->points) {
            html_markup(p, "<path d=\"M0 7H32\" stroke=\"%s\" stroke-width=\"2\"%s/>",
                        colour_name(s, k), s->dashed ? " stroke-dasharray=\"7 4\"" : "");
        }
        if (!s->plain) {
            draw_mark(p, 16, 7, k);
            html_markup(p, " fill=\"%s\"/>", colour_name(s, k));
        }
        html_raw(p, "</svg>");
        html_text(p, s->name, strlen(s->name));
        html_raw(p, "</span>");
    }
    html_raw(p, "</div>");
}

/* Moves a line to the nearest point of every path under the pointer, and names the values. */
void chart_script(struct html_page *p) {
    static const char script[] =
        "<script>\n"
        "for(const svg of document.querySelectorAll('.chart>svg')){\n"
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
        "cursor.setAttribute('y1',40);cursor.setAttribute('y2',h-52);\n"
        "box.textContent=lines.map((l,k)=>l.name+': '+l.values[near[k]][1]+' at "
        "'+l.values[near[k]][0])\n"
        ".join('\\n');box.style.display='block';cursor.style.display='inline';\n"
        "const "
        "left=e.clientX-r.left;box.style.left=(left<r.width/2?left+14:left-14-box.offsetWidth)"
        "+'px';\n"
        "box.style.top=(e.clientY-svg.parentNode.getBoundingClientRect().top+14)+'px'});\n"
        "svg.addEventListener('pointerleave',()=>{box.style.display=cursor.style.display='none'})}"
        "\n"
        "</script>\n";
    html_raw(p, script);
}

/* Whether areas stand on the axis, which then begins at 0. */
static bool has_areas(const struct chart *c) {
    bool any = c->stacked;
    for (size_t k = 0; k < c->series_count; k++) {
        any = any || c->series[k].filled;
    }
    return any;
}

void chart_lines(struct html_page *p, const struct chart *c) {
    struct chart_axis x = {.low = HUGE_VAL, .high = -HUGE_VAL, .is_log = c->log_x};
    struct chart_axis y = {.low = HUGE_VAL, .high = -HUGE_VAL, .is_log = c->log_y};
    for (size_t k = 0; k < c->series_count; k++) {
        const struct chart_series *s = &c->series[k];
        for (size_t i = 0; i < s->count; i++) {
            const double error = s->error != NULL ? s->error[i] : 0.0;
            chart_widen(&x, s->x[i]);
            chart_widen(&y, stack_base(c, k, i) + s->y[i]);
            chart_widen(&y, s->y[i] + error);
            if (!c->log_y) {
                chart_widen(&y, s->y[i] - error);
            }
            if (s->low != NULL) {
                chart_widen(&y, s->low[i]);
                chart_widen(&y, s->high[i]);
            }
        }
    }
    const double low_x = x.low;
    const double high_x = x.high;
    const double high_y = y.high;
    chart_finish_axis(&x);
    chart_finish_axis(&y);
    if (c->stacked) {
        x.low = high_x > low_x ? low_x : x.low;
        x.high = high_x > low_x ? high_x : x.high;
        y.high = high_y;
    }
    if (has_areas(c)) {
        y.low = 0.0;
    }
    tick_points(&x, c);
    if (x.tick_count == 0) {
        chart_tick(&x);
    }
    chart_tick(&y);
    x.from = CHART_LEFT;
    x.to = CHART_WIDTH - CHART_RIGHT;
    y.from = CHART_HEIGHT - CHART_BOTTOM;
    y.to = CHART_TOP;
    chart_open(p, c->title);
    if (!c->no_legend) {
        draw_legend(p, c);
    }
    chart_begin(p, c->title, CHART_HEIGHT);
    chart_draw_ticks(p, &x, &y, true);
    chart_label_axes(p, c->x_label, c->y_label, (x.from + x.to) / 2);
    for (size_t k = 0; k < c->series_count; k++) {
        draw_series(p, c, k, &x, &y);
    }
    chart_end(p, c->table ? c : NULL);
}
