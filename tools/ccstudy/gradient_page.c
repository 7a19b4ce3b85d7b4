/*
 * gradient_page: the figure beside the paper's claim, and why the methods end where they do.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/ccstudy/gradient_study.h"
#include "tools/cli/chart.h"

static int method_of(const char *key) {
    int m = 0;
    while (m + 1 < GRADIENT_METHODS && strcmp(gradient_methods[m].key, key) != 0) {
        m++;
    }
    return m;
}

/* Of the best run; NaN: none. */
static double scaled(const struct gradient_study *g, const char *key) {
    const struct gradient_curve *c = gradient_best(g, method_of(key));
    return c != NULL ? gradient_scaled_norm2(c) : (double)NAN;
}

static double scaled_bias(const struct gradient_study *g, const char *key) {
    const struct gradient_curve *c = gradient_best(g, method_of(key));
    return c != NULL ? gradient_scaled_bias2(c) : (double)NAN;
}

static void draw_claim(struct html_page *p, const struct gradient_study *g) {
    const double simclr = scaled(g, "simclr");
    html_markup(
        p,
        "<p>The paper's claim (Yau et al., ICML 2024, figure 7): trained on 500 images of STL-10 "
        "with two fixed augmentations each, by SGD with batches of 4, EMC2 ends with a "
        "squared gradient norm of the global loss that is lower than that of SimCLR, SogCLR and "
        "the negative cache by two orders of magnitude.</p>"
        "<p>Measured here, %u pictures (%s), %llu steps of batches of %u, every method with its "
        "best step size: SimCLR ends at %.3g, EMC2 at %.3g if it encodes the view on which a chain "
        "stands (SimCLR's is %.1f times that) and at %.3g if it encodes that sample un-augmented; "
        "SogCLR ends "
        "at %.3g with gamma 0.9, as in EMC2's code, and at %.3g with gamma 0.1.</p>",
        (unsigned)g->o.samples, g->o.data == NULL ? "generated" : "of a dataset",
        (unsigned long long)g->o.steps, (unsigned)g->o.batch, simclr, scaled(g, "emc2-view"),
        simclr / scaled(g, "emc2-view"), scaled(g, "emc2-encode"), scaled(g, "sogclr-0.9"),
        scaled(g, "sogclr-0.1"));
    html_markup(
        p,
        "<p>All these are |&nabla;L|&sup2; times the squared length of the parameters over that at "
        "the start. Embeddings are normalised, so L does not depend on that length and its "
        "gradient falls as 1 / length: large steps alone would make it small. Of the step "
        "sizes the one counts whose run ends with the least L, as the gradient is also 0 where all "
        "pictures have become one point.</p>");
}

enum axis { BY_STEPS, BY_SECONDS };
enum value { LOSS, NORM2 };

static void
draw_curves(struct html_page *p, const struct gradient_study *g, enum value value, enum axis axis) {
    static const char *const titles[2][2] = {
        {"Global loss L over the steps", "Global loss L over the time of the steps"},
        {"Squared norm of the exact gradient over the steps",
         "Squared norm of the exact gradient over the time of the steps"}};
    double x[GRADIENT_METHODS][GRADIENT_MAX_POINTS];
    double y[GRADIENT_METHODS][GRADIENT_MAX_POINTS];
    struct chart_series series[GRADIENT_METHODS];
    size_t count = 0;
    for (int m = 0; m < GRADIENT_METHODS; m++) {
        const struct gradient_curve *c = gradient_best(g, m);
        for (size_t k = 0; c != NULL && k < c->point_count; k++) {
            const struct gradient_point *at = &c->points[k];
            x[count][k] = axis == BY_STEPS ? (double)at->step : at->seconds;
            y[count][k] = value == LOSS ? at->loss : gradient_scaled(at, at->norm2);
        }
        if (c != NULL) {
            series[count] = (struct chart_series){.name = gradient_methods[m].name,
                                                  .x = x[count],
                                                  .y = y[count],
                                                  .count = c->point_count,
                                                  .plain = true};
            count++;
        }
    }
    if (count > 0) {
        chart_lines(p, &(struct chart){.title = titles[value][axis],
                                       .x_label = axis == BY_STEPS ? "steps" : "seconds",
                                       .y_label = value == LOSS ? "L" : "scaled |gradient|^2",
                                       .log_y = value == NORM2,
                                       .series = series,
                                       .series_count = count});
    }
}

static void draw_reason(struct html_page *p, const struct gradient_study *g) {
    html_markup(
        p,
        "<h2>Why</h2><p>What is left at the end has three parts: the estimator's bias, the noise "
        "of the last steps, and the way that was not travelled. The bias is measured by holding "
        "the model and averaging the estimator over %d steps: a method comes to rest where its "
        "mean is zero, and there |&nabla;L|&sup2; is the squared bias.</p><ul>",
        g->o.shared.quick ? 2000 : 40000);
    html_markup(p,
                "<li>SimCLR's is %.3g of its %.3g: the softmax of the batch is not that of all "
                "samples.</li><li>EMC2 with the chain's view: %.3g of %.3g. What is noise of it, "
                "because a few samples stand for the softmax, falls with more and smaller "
                "steps.</li>",
                scaled_bias(g, "simclr"), scaled(g, "simclr"), scaled_bias(g, "emc2-view"),
                scaled(g, "emc2-view"));
    html_markup(
        p,
        "<li>EMC2 as <code>--emc2-off-batch encode</code> has it: %.3g of %.3g. A sample that is "
        "encoded un-augmented is not one of the negatives of L, and not as similar to the "
        "anchor as its views are. Chains, burn-in and steps are those of the row before; a view "
        "drawn at random in the place of the un-augmented image has %.3g. Nor is this the "
        "stationary point of the loss whose negatives are all un-augmented (last but one column "
        "below): negatives within the batch are views.</li>",
        scaled_bias(g, "emc2-encode"), scaled(g, "emc2-encode"), scaled_bias(g, "emc2-fresh"));
    html_markup(p,
                "<li>EMC2 as <code>skip</code>: %.3g of %.3g; chains that stay on a sample record "
                "nothing.</li><li>SogCLR: %.3g of %.3g with gamma 0.9, where its running mean is "
                "almost that of the batch alone, and %.3g of %.3g with 0.1. Its noise is less than "
                "EMC2's, because all negatives of the batch count, weighted.</li>",
                scaled_bias(g, "emc2-skip"), scaled(g, "emc2-skip"), scaled_bias(g, "sogclr-0.9"),
                scaled(g, "sogclr-0.9"), scaled_bias(g, "sogclr-0.1"), scaled(g, "sogclr-0.1"));
    html_markup(p,
                "<li>The negative cache: %.3g of %.3g. All of its negatives are un-augmented, so "
                "what it minimises is another loss, that of the last but one column, which falls "
                "even where all views come together, away from the images. The published "
                "code of the figure caches views.</li></ul>",
                scaled_bias(g, "negcache"), scaled(g, "negcache"));
}

static void draw_numbers(struct html_page *p, const struct gradient_study *g) {
    html_markup(p, "<h2>Numbers</h2><div class=\"scroll\"><table><caption>At the end of the best "
                   "run of each method</caption><tr><th>method<th>step size<th>L<th>|&nabla;L|"
                   "&sup2;<th>scaled<th>scaled bias&sup2;<th>length<th>with own pair<th>negatives "
                   "un-augmented<th>seconds</tr>");
    for (int m = 0; m < GRADIENT_METHODS; m++) {
        const struct gradient_curve *c = gradient_best(g, m);
        html_markup(p, "<tr><td>%s", gradient_methods[m].name);
        if (c == NULL) {
            html_markup(p, "<td colspan=\"9\">diverges with every step size</tr>");
            continue;
        }
        const struct gradient_point *end = gradient_end(c);
        html_markup(p,
                    "<td>%g<td>%.4f<td>%.3g<td>%.3g<td>%.3g<td>%.2f<td>%.3g<td>%.3g<td>%.2g</tr>",
                    c->lr, end->loss, c->norm2[GRADIENT_GLOBAL], gradient_scaled_norm2(c),
                    gradient_scaled_bias2(c), end->length, c->norm2[GRADIENT_WITH_OWN],
                    c->norm2[GRADIENT_UNAUGMENTED], end->seconds);
    }
    html_markup(p, "</table></div><p>With own pair: the squared gradient norm of InfoNCE over all "
                   "views, which the published code measures. Negatives un-augmented: of L with "
                   "the un-augmented pictures as negatives.</p>"
                   "<div class=\"scroll\"><table><caption>Scaled |&nabla;L|&sup2; of every "
                   "run, and L</caption><tr><th>method");
    for (size_t i = 0; i < g->rate_count; i++) {
        html_markup(p, "<th>step size %g", g->rates[i]);
    }
    html_markup(p, "</tr>");
    for (size_t i = 0; i < g->run_count; i++) {
        if (i % g->rate_count == 0) {
            html_markup(p, "<tr><td>%s", gradient_methods[i / g->rate_count].name);
        }
        const double norm2 = gradient_scaled_norm2(&g->runs[i]);
        if (isfinite(norm2)) {
            html_markup(p, "<td>%.3g, L %.3f", norm2, gradient_end(&g->runs[i])->loss);
        } else {
            html_markup(p, "<td>diverged");
        }
    }
    html_markup(p, "</table></div><p>Settings: ");
    html_text(p, g->settings, strlen(g->settings));
    html_markup(p, "</p>");
}

enum status gradient_draw_page(struct html_page *p,
                               const void *result,
                               const void *options,
                               struct error *err) {
    const struct gradient_study *g = result;
    (void)options;
    (void)err;
    draw_claim(p, g);
    html_markup(p, "<div class=\"wide\">");
    for (int i = 0; i < 4; i++) {
        draw_curves(p, g, i % 2 == 0 ? NORM2 : LOSS, i / 2 == 0 ? BY_STEPS : BY_SECONDS);
    }
    html_markup(p, "</div>");
    draw_reason(p, g);
    draw_numbers(p, g);
    return STATUS_OK;
}
