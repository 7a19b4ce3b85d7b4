/*
 * report_stages: what the process spent its time on, from one checkpoint to the next, and what the
 * loader's threads did meanwhile.
 */
#include "tools/inspect/report/report_internal.h"

#include <math.h>
#include <stdio.h>

#include "tools/cli/cli.h"

/* Of the time between lines of stages; the last is what the others leave. */
static const struct {
    enum run_series which;
    const char *name;
} stages[] = {{RUN_STAGE_STEP, "steps"},
              {RUN_STAGE_LOAD, "waiting for batches"},
              {RUN_STAGE_RANKS, "waiting for ranks"},
              {RUN_STAGE_EVALUATION, "evaluation"},
              {RUN_STAGE_CHECKPOINT, "checkpoints"},
              {RUN_STAGE_ALL, "other"}};
enum { STAGE_COUNT = sizeof stages / sizeof *stages };

static double sum_of(const struct run_points *p, size_t begin, size_t end) {
    double sum = 0.0;
    for (size_t i = begin; i < end && i < p->count; i++) {
        sum += p->y[i];
    }
    return sum;
}

/* In percent of the time of lines [begin, end). Every line has all stages. */
static double stage_share(const struct run_log *r, size_t k, size_t begin, size_t end) {
    const double all = sum_of(&r->series[RUN_STAGE_ALL], begin, end);
    double sum = sum_of(&r->series[stages[k].which], begin, end);
    for (size_t i = 0; i + 1 < STAGE_COUNT && stages[k].which == RUN_STAGE_ALL; i++) {
        sum -= sum_of(&r->series[stages[i].which], begin, end);
    }
    return all > 0.0 ? 100.0 * fmax(sum, 0.0) / all : 0.0;
}

/* Where the time of each run went, in all. */
static void draw_totals(struct page *p) {
    struct report_table t = {.caption = "In all, and its shares in percent",
                             .heads = {"run", "time"},
                             .columns = 2 + STAGE_COUNT};
    for (size_t k = 0; k < STAGE_COUNT; k++) {
        t.heads[2 + k] = stages[k].name;
    }
    for (size_t i = 0; i < p->run_count; i++) {
        const struct run_log *r = p->runs[i];
        const size_t count = r->series[RUN_STAGE_ALL].count;
        for (size_t k = 0; k < STAGE_COUNT && count > 0; k++) {
            report_put_number(t.cells[i][2 + k], stage_share(r, k, 0, count), 1);
        }
        if (count > 0) {
            char text[CLI_TEXT_BYTES];
            (void)snprintf(t.cells[i][1], sizeof t.cells[i][1], "%s",
                           cli_format_seconds(text, sum_of(&r->series[RUN_STAGE_ALL], 0, count)));
        }
    }
    report_put_table(p, &t);
}

/* Shares of the time from one line of stages to the next, on top of each other. */
static void draw_stages(struct page *p) {
    const struct run_points *all = &p->runs[0]->series[RUN_STAGE_ALL];
    const size_t most = LINE_POINTS / 2;
    const size_t count = all->count < most ? all->count : most;
    for (size_t k = 0; k < STAGE_COUNT; k++) {
        struct reduced *r = &p->lines[p->series_count];
        bool any = false;
        r->count = 0;
        for (size_t i = 0; i < count; i++) {
            const size_t begin = i * all->count / count;
            const size_t end = (i + 1) * all->count / count;
            const double share = stage_share(p->runs[0], k, begin, end);
            any = any || share >= 0.05;
            for (size_t side = 0; side < 2; side++) {
                const size_t line = side == 0 ? begin : end;
                r->x[r->count] = line > 0 ? all->x[line - 1] : 0.0;
                r->y[r->count++] = share;
            }
        }
        if (any) {
            p->series[p->series_count++] = (struct chart_series){.name = stages[k].name,
                                                                 .x = r->x,
                                                                 .y = r->y,
                                                                 .count = r->count,
                                                                 .colour = k + 1,
                                                                 .plain = true};
        }
    }
    const struct chart c = {.title = "Where the time went, from checkpoint to checkpoint",
                            .x_label = "step",
                            .y_label = "% of the time",
                            .stacked = true,
                            .series = p->series,
                            .series_count = p->series_count,
                            .table = true};
    if (p->series_count > 0) {
        chart_lines(&p->html, &c);
    }
    p->series_count = 0;
}

/* What the process waited for, and what the threads of the loader did meanwhile. */
void report_draw_stages(struct page *p) {
    static const enum run_series waits[] = {RUN_READ_WAIT, RUN_DECODE_WAIT, RUN_DELIVER_WAIT};
    static const char *const wait_names[] = {"reading", "decoding", "making batches"};
    bool any = false;
    for (size_t i = 0; i < p->run_count; i++) {
        any = any || p->runs[i]->series[RUN_STAGE_ALL].count > 0;
    }
    if (!any) {
        return;
    }
    html_raw(&p->html, "<h2>Where the time goes</h2>\n");
    draw_totals(p);
    html_raw(&p->html, "<div class=\"wide\">\n");
    if (p->run_count == 1) {
        draw_stages(p);
    }
    report_draw_together(p, waits, wait_names, 3,
                         "Waiting of the loader's threads for other stages", "% of their time",
                         100);
    report_draw_runs(p, RUN_STALL, "Waiting for batches, in every step", "% of the step", 100);
    report_draw_runs(p, RUN_WAIT, "Waiting for other ranks, in every step", "% of the step", 100);
    html_raw(&p->html, "</div>\n<p class=\"number\">The slowest stage of the loader is the one "
                       "whose threads wait least; the loader holds the run up only where the run "
                       "waits for batches.</p>\n");
}
