/*
 * report_stages: what the process spent its time on, from one checkpoint to the next, and what the
 * loader's threads did meanwhile.
 */
#include <math.h>
#include <stdio.h>

#include "tools/cli/cli.h"
#include "tools/inspect/report/report_internal.h"

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

/* Where the time of each run went, in total. */
static void put_totals(struct report *r) {
    struct report_table t = {.title = "Total time, and its parts in percent",
                             .heads = {"run", "time"},
                             .columns = 2 + STAGE_COUNT};
    for (size_t k = 0; k < STAGE_COUNT; k++) {
        t.heads[2 + k] = stages[k].name;
    }
    for (size_t i = 0; i < r->run_count; i++) {
        const struct run_log *log = r->runs[i];
        const size_t count = log->series[RUN_STAGE_ALL].count;
        for (size_t k = 0; k < STAGE_COUNT && count > 0; k++) {
            report_put_number(t.cells[i][2 + k], stage_share(log, k, 0, count), 1);
        }
        if (count > 0) {
            (void)snprintf(t.cells[i][1], sizeof t.cells[i][1], "%s",
                           cli_format_seconds(sum_of(&log->series[RUN_STAGE_ALL], 0, count)));
        }
    }
    report_put_table(r, &t, false);
}

/* Shares of the time from one line of stages to the next, on top of each other. */
static void draw_shares(struct report *r) {
    const struct run_points *all = &r->runs[0]->series[RUN_STAGE_ALL];
    const size_t most = LINE_POINTS / 2;
    const size_t count = all->count < most ? all->count : most;
    for (size_t k = 0; k < STAGE_COUNT; k++) {
        struct reduced *line = &r->lines[r->series_count];
        bool any = false;
        size_t points = 0;
        for (size_t i = 0; i < count; i++) {
            const size_t begin = i * all->count / count;
            const size_t end = (i + 1) * all->count / count;
            const double share = stage_share(r->runs[0], k, begin, end);
            any = any || share >= 0.05;
            for (size_t side = 0; side < 2; side++) {
                const size_t at = side == 0 ? begin : end;
                line->x[points] = at > 0 ? all->x[at - 1] : 0.0;
                line->y[points++] = share;
            }
        }
        if (any) {
            r->series[r->series_count++] = (struct page_series){.name = stages[k].name,
                                                                .x = line->x,
                                                                .y = line->y,
                                                                .count = points,
                                                                .colour = (uint32_t)(k + 1)};
        }
    }
    report_draw(r, &(struct page_figure){.kind = "area",
                                         .title = "Where the time went, between checkpoints",
                                         .x = {.title = "step"},
                                         .y = {.title = "time", .unit = "%"}});
}

void report_draw_stages(struct report *r) {
    static const enum run_series waits[] = {RUN_READ_WAIT, RUN_DECODE_WAIT, RUN_DELIVER_WAIT};
    static const char *const wait_names[] = {"reading", "decoding", "assembling batches"};
    bool any = false;
    for (size_t i = 0; i < r->run_count; i++) {
        any = any || r->runs[i]->series[RUN_STAGE_ALL].count > 0;
    }
    if (!any) { /* no run has recorded it */
        return;
    }
    page_section(&r->page, "Time breakdown", false);
    put_totals(r);
    if (r->run_count == 1) {
        draw_shares(r);
    }
    report_draw_together(r, waits, wait_names, 3, "Loader threads waiting for other stages",
                         "their time", "%", 100);
    report_draw_runs(r, RUN_STALL, "Waiting for batches, in every step", "step time", "%", 100);
    report_draw_runs(r, RUN_WAIT, "Waiting for other ranks, in every step", "step time", "%", 100);
    page_note(&r->page, "The bottleneck of the loader is the stage whose threads wait least; it "
                        "limits the run only if the run waits for batches.");
}
