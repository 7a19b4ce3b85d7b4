/*
 * ccstudy toy: figures 2 and 6 of NUCLR: how the generalisation error of three objectives falls
 * with the number of pairs, and how well popularity is recovered.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ccstudy/ccstudy_internal.h"
#include "tools/ccstudy/study.h"
#include "tools/ccstudy/toy_model.h"
#include "tools/cli/chart.h"
#include "tools/cli/cli.h"

enum { MAX_SIZES = 7, TAU_COUNT = 2, MAP_CELLS = 32, CURVE_POINTS = 120, SHOWN_PAIRS = 100 };

static const double taus[TAU_COUNT] = {0.2, 1.0};

struct options {
    struct study_options shared;
    uint64_t repeats;
};

static const struct cli_option rows[] = {
    STUDY_OPTIONS(struct options, shared),
    {"repeats", 'r', CLI_U64, CLI_FIELD(struct options, repeats), .min = "2", .max = "1000",
     .default_text = "20", .metavar = "N", .help = "sets of pairs for every number of pairs"},
};

static const struct cli_program program = {
    .name = "ccstudy toy",
    .purpose = "the toy problem of NUCLR, where the true popularity is known (figures 2 and 6)",
    .usage = (const char *const[]){"[-o DIR] [options]", NULL},
    .examples = (const char *const[]){"ccstudy toy -o studies", "ccstudy toy --quick --json", NULL},
    .notes =
        (const char *const[]){
            "x is uniform on the upper half of the unit disc and y in the unit square has density "
            "exp(<x, y> / tau) / Z(x). For n = 25 to 1,600 pairs the risk of MLE (with the exact "
            "Z), GCL (every sample equally popular) and NUCLR (popularity from the data alone) is "
            "compared with the true risk. The paper's claim: the error of GCL does not fall with "
            "n, that of NUCLR falls as that of MLE does.",
            "--json: risk by tau; rows of tau, n, repeats, means of the errors of nuclr, gcl and "
            "mle, of the error terms error_nuclr and error_gcl and of the correlation of log "
            "popularity, and the standard error of each mean as NAME_se. --quick: up to 400 pairs, "
            "5 repeats.",
            NULL},
    CLI_OPTIONS(rows),
};

/* ---- the experiment ---- */

enum { NUCLR, GCL, MLE, ERROR_NUCLR, ERROR_GCL, CORRELATION, FIELD_COUNT };
static const char *const fields[FIELD_COUNT] = {"nuclr",       "gcl",       "mle",
                                                "error_nuclr", "error_gcl", "correlation"};

struct cell {
    double n;
    double mean[FIELD_COUNT], error[FIELD_COUNT]; /* of the mean */
};

struct toy {
    double risk[TAU_COUNT];
    struct cell cells[TAU_COUNT][MAX_SIZES];
    size_t size_count;
    uint64_t repeats;
};

static void add(struct cell *c, const struct toy_result *r) {
    const double values[FIELD_COUNT] = {r->nuclr,       r->gcl,       r->mle,
                                        r->error_nuclr, r->error_gcl, r->correlation};
    for (int k = 0; k < FIELD_COUNT; k++) { /* sums and sums of squares, until `average` */
        c->mean[k] += values[k];
        c->error[k] += values[k] * values[k];
    }
}

static void average(struct cell *c, uint64_t repeats) {
    const double count = (double)repeats;
    for (int k = 0; k < FIELD_COUNT; k++) {
        const double mean = c->mean[k] / count;
        const double variance = fmax(0.0, c->error[k] / count - mean * mean);
        c->mean[k] = mean;
        c->error[k] = sqrt(variance / (count - 1.0));
    }
}

static enum status run_cell(struct toy *toy,
                            int t,
                            size_t size,
                            struct toy_pair *pairs,
                            uint64_t seed,
                            struct study_progress *progress,
                            struct error *err) {
    struct cell *c = &toy->cells[t][size];
    const size_t n = (size_t)25 << size;
    c->n = (double)n;
    for (uint64_t repeat = 0; repeat < toy->repeats; repeat++) {
        struct toy_problem p;
        toy_draw(pairs, n, taus[t], seed, repeat);
        TRY(toy_solve(&p, pairs, n, taus[t], err));
        const struct toy_result r = toy_compare(&p, toy->risk[t]);
        toy_problem_fini(&p);
        add(c, &r);
        TRY(study_advance(progress, (double)n * (double)n, err));
    }
    average(c, toy->repeats);
    return STATUS_OK;
}

static enum status run_all(struct toy *toy, const struct options *o, struct error *err) {
    struct study_progress progress;
    double work = 0.0;
    struct toy_pair *pairs = malloc(((size_t)25 << MAX_SIZES) * sizeof *pairs);
    if (pairs == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory");
    }
    for (size_t size = 0; size < toy->size_count; size++) {
        const double n = (double)(25u << size);
        work += TAU_COUNT * (double)toy->repeats * n * n;
    }
    study_begin(&progress, work, o->shared.quiet);
    enum status s = STATUS_OK;
    for (int t = 0; s == STATUS_OK && t < TAU_COUNT; t++) {
        toy->risk[t] = toy_true_risk(taus[t]);
        for (size_t size = 0; s == STATUS_OK && size < toy->size_count; size++) {
            s = run_cell(toy, t, size, pairs, o->shared.seed, &progress, err);
        }
    }
    study_end(&progress);
    free(pairs);
    return s;
}

/* ---- numbers ---- */

static void write_json(struct json_writer *w, const void *result) {
    const struct toy *toy = result;
    json_open_object(w, "risk");
    for (int t = 0; t < TAU_COUNT; t++) {
        char key[16];
        (void)snprintf(key, sizeof key, "%g", taus[t]);
        json_double(w, key, toy->risk[t]);
    }
    json_close_object(w);
    json_open_array(w, "rows");
    for (int t = 0; t < TAU_COUNT; t++) {
        for (size_t size = 0; size < toy->size_count; size++) {
            const struct cell *c = &toy->cells[t][size];
            json_open_object(w, NULL);
            json_double(w, "tau", taus[t]);
            json_u64(w, "n", (uint64_t)c->n);
            json_u64(w, "repeats", toy->repeats);
            for (int k = 0; k < FIELD_COUNT; k++) {
                char key[32];
                json_double(w, fields[k], c->mean[k]);
                (void)snprintf(key, sizeof key, "%s_se", fields[k]);
                json_double(w, key, c->error[k]);
            }
            json_close_object(w);
        }
    }
    json_close_array(w);
}

static void print_table(const struct toy *toy) {
    printf("%5s %6s %10s %10s %10s %12s %12s %12s\n", "tau", "n", "nuclr", "gcl", "mle",
           "error nuclr", "error gcl", "correlation");
    for (int t = 0; t < TAU_COUNT; t++) {
        for (size_t size = 0; size < toy->size_count; size++) {
            const struct cell *c = &toy->cells[t][size];
            printf("%5g %6.0f %10.4f %10.4f %10.4f %12.5f %12.5f %12.5f\n", taus[t], c->n,
                   c->mean[NUCLR], c->mean[GCL], c->mean[MLE], c->mean[ERROR_NUCLR],
                   c->mean[ERROR_GCL], c->mean[CORRELATION]);
        }
    }
}

/* ---- the page ---- */

static void draw_lines(struct html_page *p,
                       const struct toy *toy,
                       int t,
                       const int *kinds,
                       const char *const *names,
                       size_t count,
                       const char *title,
                       const char *y_label) {
    double n[MAX_SIZES];
    double mean[3][MAX_SIZES];
    double error[3][MAX_SIZES];
    struct chart_series series[3];
    for (size_t k = 0; k < count; k++) {
        for (size_t size = 0; size < toy->size_count; size++) {
            const struct cell *c = &toy->cells[t][size];
            n[size] = c->n;
            mean[k][size] = c->mean[kinds[k]];
            error[k][size] = c->error[kinds[k]];
        }
        series[k] = (struct chart_series){
            .name = names[k], .x = n, .y = mean[k], .error = error[k], .count = toy->size_count};
    }
    const struct chart chart = {.title = title,
                                .x_label = "n, number of pairs",
                                .y_label = y_label,
                                .log_x = true,
                                .log_y = true,
                                .series = series,
                                .series_count = count};
    chart_lines(p, &chart);
}

/* The values of the samples spread over the unit square, by a mean weighted with a Gaussian of
 * deviation 0.08 around each sample. */
static void draw_map(struct html_page *p,
                     const struct toy_problem *problem,
                     const double *values,
                     double low,
                     double high,
                     const char *title) {
    static const double deviation = 0.08;
    double cells[MAP_CELLS * MAP_CELLS];
    for (int r = 0; r < MAP_CELLS; r++) {
        for (int c = 0; c < MAP_CELLS; c++) {
            const double x = (c + 0.5) / MAP_CELLS;
            const double y = 1.0 - (r + 0.5) / MAP_CELLS;
            double sum = 0.0;
            double weights = 0.0;
            for (size_t j = 0; j < problem->count; j++) {
                const double dx = problem->pairs[j].y[0] - x;
                const double dy = problem->pairs[j].y[1] - y;
                const double w = exp(-(dx * dx + dy * dy) / (2.0 * deviation * deviation)) + 1e-12;
                sum += w * log10(values[j]);
                weights += w;
            }
            cells[r * MAP_CELLS + c] = sum / weights;
        }
    }
    chart_map(p, &(struct chart_map){.title = title,
                                     .x_label = "first coordinate of y",
                                     .y_label = "second coordinate of y",
                                     .x1 = 1.0,
                                     .y1 = 1.0,
                                     .low = low,
                                     .high = high,
                                     .values = cells,
                                     .rows = MAP_CELLS,
                                     .columns = MAP_CELLS});
}

/* A Gaussian estimate of density by Silverman's rule. */
static void
density_of(const double *values, size_t count, const double *at, double *out, size_t points) {
    double mean = 0.0;
    double variance = 0.0;
    for (size_t j = 0; j < count; j++) {
        mean += log10(values[j]) / (double)count;
    }
    for (size_t j = 0; j < count; j++) {
        const double d = log10(values[j]) - mean;
        variance += d * d / (double)(count - 1);
    }
    const double width = 1.06 * sqrt(variance) * pow((double)count, -0.2);
    for (size_t i = 0; i < points; i++) {
        out[i] = 0.0;
        for (size_t j = 0; j < count; j++) {
            const double d = (at[i] - log10(values[j])) / width;
            out[i] +=
                exp(-0.5 * d * d) / (width * sqrt(2.0 * 3.14159265358979323846) * (double)count);
        }
    }
}

static void draw_popularity(struct html_page *p, const struct toy_problem *problem) {
    double low = HUGE_VAL;
    double high = -HUGE_VAL;
    for (size_t j = 0; j < problem->count; j++) {
        low = fmin(low, log10(fmin(problem->popularity[j], problem->estimate[j])));
        high = fmax(high, log10(fmax(problem->popularity[j], problem->estimate[j])));
    }
    char title[160];
    (void)snprintf(title, sizeof title, "True popularity: log10 q over the square of y, tau = %g",
                   problem->tau);
    draw_map(p, problem, problem->popularity, low, high, title);
    (void)snprintf(title, sizeof title, "Recovered by NUCLR: log10 of its estimate, tau = %g",
                   problem->tau);
    draw_map(p, problem, problem->estimate, low, high, title);
    double at[CURVE_POINTS];
    double truth[CURVE_POINTS];
    double estimated[CURVE_POINTS];
    const double margin = 0.15 * (high - low);
    for (int i = 0; i < CURVE_POINTS; i++) {
        at[i] = low - margin + (high - low + 2.0 * margin) * i / (CURVE_POINTS - 1);
    }
    density_of(problem->popularity, problem->count, at, truth, CURVE_POINTS);
    density_of(problem->estimate, problem->count, at, estimated, CURVE_POINTS);
    const struct chart_series series[] = {
        {.name = "true popularity", .x = at, .y = truth, .count = CURVE_POINTS, .plain = true},
        {.name = "NUCLR's estimate", .x = at, .y = estimated, .count = CURVE_POINTS, .plain = true},
    };
    (void)snprintf(title, sizeof title, "How popularity is distributed, tau = %g, n = %zu",
                   problem->tau, problem->count);
    chart_lines(p, &(struct chart){.title = title,
                                   .x_label = "log10 of popularity",
                                   .y_label = "density",
                                   .series = series,
                                   .series_count = 2});
}

static enum status draw_example(struct html_page *p, int t, uint64_t seed, struct error *err) {
    struct toy_pair pairs[SHOWN_PAIRS];
    struct toy_problem problem;
    toy_draw(pairs, SHOWN_PAIRS, taus[t], seed, 0);
    TRY(toy_solve(&problem, pairs, SHOWN_PAIRS, taus[t], err));
    draw_popularity(p, &problem);
    toy_problem_fini(&problem);
    return STATUS_OK;
}

static void draw_numbers(struct html_page *p, const struct toy *toy) {
    html_markup(p,
                "<h2>Numbers</h2><div class=\"scroll\"><table><caption>Means over %d sets of pairs "
                "&plusmn; standard "
                "error</caption><tr><th>tau<th>n<th>NUCLR<th>GCL<th>MLE<th>term, NUCLR<th>term, "
                "GCL<th>correlation</tr>",
                (int)toy->repeats);
    for (int t = 0; t < TAU_COUNT; t++) {
        for (size_t size = 0; size < toy->size_count; size++) {
            const struct cell *c = &toy->cells[t][size];
            html_markup(p, "<tr><td>%g<td>%.0f", taus[t], c->n);
            for (int k = 0; k < FIELD_COUNT; k++) {
                html_markup(p, "<td>%.4f &plusmn; %.4f", c->mean[k], c->error[k]);
            }
            html_markup(p, "</tr>");
        }
    }
    html_markup(p, "</table></div>");
}

static enum status
draw_page(struct html_page *p, const void *result, const void *options, struct error *err) {
    const struct toy *toy = result;
    const struct options *o = options;
    static const int risks[] = {NUCLR, GCL, MLE};
    static const char *const risk_names[] = {"NUCLR: popularity from the data",
                                             "GCL: all equally popular",
                                             "MLE: the exact partition function"};
    static const int terms[] = {ERROR_NUCLR, ERROR_GCL};
    static const char *const term_names[] = {"NUCLR", "GCL"};
    html_markup(
        p,
        "<p>The paper's claim (Wang et al., ICLR 2025, section 3.3): with every sample "
        "counted equally (GCL) the distance between empirical and true risk stops falling "
        "as the data grow; with the popularity that NUCLR finds it falls as if the "
        "partition function were known.</p>"
        "<p>Measured here: from n = %.0f to %.0f at tau = 0.2 the error of GCL goes from "
        "%.3f to %.3f, that of NUCLR from %.3f to %.3f, that of MLE from %.3f to %.3f. Bars "
        "in the figures are standard errors over %d sets of pairs.</p>",
        toy->cells[0][0].n, toy->cells[0][toy->size_count - 1].n, toy->cells[0][0].mean[GCL],
        toy->cells[0][toy->size_count - 1].mean[GCL], toy->cells[0][0].mean[NUCLR],
        toy->cells[0][toy->size_count - 1].mean[NUCLR], toy->cells[0][0].mean[MLE],
        toy->cells[0][toy->size_count - 1].mean[MLE], (int)toy->repeats);
    for (int t = 0; t < TAU_COUNT; t++) {
        char title[160];
        html_markup(p, "<h2>tau = %g</h2><div class=\"wide\">", taus[t]);
        (void)snprintf(title, sizeof title,
                       "Generalisation error |L - true risk|, tau = %g; the true risk is %.10f",
                       taus[t], toy->risk[t]);
        draw_lines(p, toy, t, risks, risk_names, 3, title, "generalisation error");
        (void)snprintf(title, sizeof title,
                       "Error term of theorem 2: how far 1/q is from its estimate, tau = %g",
                       taus[t]);
        draw_lines(p, toy, t, terms, term_names, 2, title, "error term");
        TRY(draw_example(p, t, o->shared.seed, err));
        html_markup(p, "</div>");
    }
    draw_numbers(p, toy);
    return STATUS_OK;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct options o = *(const struct options *)options;
    const bool named = cli_given(&program, a, "repeats");
    struct toy toy = {.size_count = o.shared.quick ? 5 : MAX_SIZES,
                      .repeats = o.shared.quick && !named ? 5 : o.repeats};
    const struct study study = {.name = "toy",
                                .title = "NUCLR's toy problem: popularity from data alone",
                                .options = &o,
                                .shared = &o.shared,
                                .result = &toy,
                                .write_json = write_json,
                                .draw_page = draw_page};
    TRY(study_check(&study, err));
    TRY(run_all(&toy, &o, err));
    if (!o.shared.json && !o.shared.quiet) {
        print_table(&toy);
    }
    return study_finish(&study, err);
}

int ccstudy_toy(int argc, char **argv) {
    struct options o;
    return cli_main(&program, &o, run, argc, argv);
}
