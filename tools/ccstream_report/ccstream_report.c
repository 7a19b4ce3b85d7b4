/*
 * ccstream-report: a page about one or several runs of ccstream-train.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/cli.h"
#include "tools/cli/output.h"
#include "tools/cli/path_kind.h"
#include "tools/cli/remote_choice.h"
#include "tools/inspect/report/report_page.h"
#include "train/run/checkpoint.h"
#include "train/run/run_dir.h"

struct options {
    const char *out;
    bool json;
    struct remote_choice remote;
    struct cli_list data;
    bool force;
};

static const struct cli_option rows[] = {
    {"out", 'o', CLI_STRING, CLI_FIELD(struct options, out), .metavar = "FILE",
     .help = "the page; without it, report.html in the first RUN"},
    OUTPUT_FORCE_ROW(struct options, force),
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json),
     .help = "the last numbers of every run as JSON on stdout"},
    CLI_REMOTE_ROWS(struct options, remote),
    CLI_RUN_DATA_ROW(struct options, data),
};

static const struct cli_program program = {
    .name = "ccstream-report",
    .purpose = "writes an HTML report of one or more runs",
    .usage = CLI_TEXTS("[-o FILE] RUN..."),
    .examples = CLI_TEXTS("ccstream-report -o report.html runs/a",
                          "ccstream-report -o losses.html runs/nuclr runs/sogclr runs/clip"),
    .notes = CLI_TEXTS(
        "RUN is the directory of a run, finished, running or interrupted. Lines of several "
        "runs are drawn over each other.",
        "The page is one file without references to others: losses, recall, learning rates, "
        "gradient norm, speed and memory over steps; time breakdown; per-sample state, with "
        "histograms; command, machine, datasets and options. For one run also the retrieval "
        "examples of the last evaluation, and the samples with the largest and smallest zeta "
        "or u. Figures have their numbers below them.",
        "'ccstream-train --report' writes RUN/report.html at every checkpoint and evaluation.",
        "Images come from the datasets of the run: from those at servers only if --data names "
        "them, or --endpoint or your AWS profile the server of s3:// ones. A run is data and may "
        "be a stranger's: its own endpoint, cache and keys are not used.",
        "More images: 'ccdump popularity --html' and 'ccstream-eval retrieval --html'."),
    CLI_OPTIONS(rows),
    .arguments = {1, REPORT_MAX_RUNS},
};

static void put_last(struct json_writer *w, const struct run_log *r, enum run_series which) {
    const double v = run_log_last(&r->series[which]);
    if (isfinite(v)) {
        json_double(w, run_series_names[which], v);
    }
}

static enum status
print_json(const char *page, struct run_log *const *runs, size_t count, struct error *err) {
    struct json_writer w;
    cli_begin_json(&w);
    json_string(&w, "page", page);
    json_open_array(&w, "runs");
    for (size_t i = 0; i < count; i++) {
        const struct run_points *loss = &runs[i]->series[RUN_LOSS];
        json_open_object(&w, NULL);
        json_string(&w, "run", runs[i]->path);
        json_u64(&w, "entries", loss->count);
        json_u64(&w, "step", loss->count > 0 ? (uint64_t)loss->x[loss->count - 1] : 0);
        for (int k = 0; k < RUN_SERIES_COUNT; k++) {
            put_last(&w, runs[i], (enum run_series)k);
        }
        json_close_object(&w);
    }
    json_close_array(&w);
    return cli_end_json(&w, err);
}

/* A run from before its checkpoints were checked: what is drawn of it would look like a result. */
static enum status check_model(const char *run, struct error *err) {
    struct checkpoint *c = NULL;
    bool saved = false;
    TRY(run_dir_has_checkpoint(run, &saved, err));
    if (!saved) {
        return STATUS_OK;
    }
    TRY(checkpoint_open_state(&c, file_posix(), run, err));
    const enum status s = checkpoint_check_finite(c, err);
    checkpoint_close(c);
    return s;
}

static enum status report(struct run_log **runs,
                          const struct options *o,
                          const struct cli_arguments *a,
                          struct error *err) {
    char path[PATH_MAX_BYTES];
    for (size_t i = 0; i < a->count; i++) {
        TRY(run_log_open(&runs[i], a->items[i], err));
        TRY(check_model(a->items[i], err));
    }
    run_log_name_apart(runs, a->count);
    struct remote_choice remote = o->remote;
    remote.only = &o->data;
    TRY(remote_choice_use(&remote, err));
    TRY(path_join(path, sizeof path, a->items[0], "report.html", err));
    if (o->out != NULL && strcmp(o->out, path) != 0) {
        TRY(output_check_file(o->out, o->force, err));
    }
    const char *page = o->out != NULL ? o->out : path;
    TRY(report_page_write(page, runs, a->count, err));
    if (o->json) {
        return print_json(page, runs, a->count, err);
    }
    cli_print(stdout, "%s\n", page);
    return STATUS_OK;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct run_log *runs[REPORT_MAX_RUNS] = {NULL};
    const enum status s = report(runs, options, a, err);
    for (size_t i = 0; i < REPORT_MAX_RUNS; i++) {
        run_log_close(runs[i]);
    }
    return s;
}

CLI_MAIN(main, program, struct options, run)
