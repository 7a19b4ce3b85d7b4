/*
 * html_run: facts as a list of definitions, recalls as a table.
 */
#include "tools/cli/html_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json/json_reader.h"

static void fact(struct html_page *p, const char *name, const char *text) {
    html_markup(p, "<div><dt>%s</dt><dd>", name);
    html_text(p, text, strlen(text));
    html_markup(p, "</dd></div>\n");
}

void html_run_facts(struct html_page *p,
                    const struct checkpoint *c,
                    double tau,
                    const char *dataset) {
    const struct train_position *at = checkpoint_position(c);
    char text[128];
    html_markup(p, "<dl>\n");
    fact(p, "Checkpoint", checkpoint_path(c));
    fact(p, "Dataset", dataset);
    (void)snprintf(text, sizeof text, "%s, tau %g", checkpoint_loss_name(c), tau);
    fact(p, "Loss", text);
    (void)snprintf(text, sizeof text, "%" PRIu64 " (step %" PRIu64 ")", at->epoch, at->step);
    fact(p, "Epochs done", text);
    html_markup(p, "</dl>\n");
}

void html_run_retrieval(struct html_page *p, const char *of, const struct retrieval_result *r) {
    static const char *const directions[] = {
        [RETRIEVAL_T2I] = "caption finds picture", [RETRIEVAL_I2T] = "picture finds caption"};
    html_markup(p, "<table>\n<caption>");
    html_text(p, of, strlen(of));
    html_markup(p, ": %" PRIu64 " pictures, %" PRIu64 " captions</caption>\n<tr><th></th>",
                r->images, r->texts);
    for (int k = 0; k < RETRIEVAL_METRIC_COUNT; k++) {
        html_markup(p, "<th>%s</th>", retrieval_metrics[k].title);
    }
    for (int d = RETRIEVAL_T2I; d >= RETRIEVAL_I2T; d--) {
        html_markup(p, "</tr>\n<tr><th>%s</th>", directions[d]);
        for (int k = 0; k < RETRIEVAL_METRIC_COUNT; k++) {
            html_markup(p, "<td>%.1f %%</td>", r->value[d][k]);
        }
    }
    html_markup(p, "</tr>\n<tr><th>chance</th>");
    for (int k = 0; k < RETRIEVAL_METRIC_COUNT; k++) {
        double sum = 0.0; /* a place among the pictures, any of them as likely */
        for (uint64_t rank = 0; rank < r->images; rank++) {
            sum += retrieval_metrics[k].of_rank((int64_t)rank);
        }
        html_markup(p, "<td>%.1f %%</td>", sum / (double)r->images);
    }
    html_markup(p, "</tr>\n</table>\n");
}

/* One line of metrics.jsonl; false: it is no evaluation up to `step`. */
static bool
read_line(struct retrieval_result *out, const char *text, size_t size_bytes, uint64_t step) {
    static const char *const names[] = {"i2t", "t2i", "mean"};
    struct json_document *d = NULL;
    struct retrieval_result r;
    uint64_t at = 0;
    if (json_document_parse(&d, "metrics.jsonl", text, size_bytes, NULL) != STATUS_OK) {
        return false;
    }
    const struct json_value *found = json_value_get(json_document_root(d), "retrieval");
    bool ok = json_value_u64(json_value_get(json_document_root(d), "step"), &at) && at <= step &&
              json_value_u64(json_value_get(found, "images"), &r.images) && r.images > 0 &&
              json_value_u64(json_value_get(found, "texts"), &r.texts);
    for (int i = 0; ok && i < RETRIEVAL_DIRECTION_COUNT; i++) {
        for (int k = 0; ok && k < RETRIEVAL_METRIC_COUNT; k++) {
            char name[32];
            (void)snprintf(name, sizeof name, "%s_%s", names[i], retrieval_metrics[k].name);
            ok = json_value_double(json_value_get(found, name), &r.value[i][k]);
        }
    }
    json_document_destroy(d);
    *out = ok ? r : *out;
    return ok;
}

bool html_run_last_retrieval(struct retrieval_result *out, const struct checkpoint *c) {
    char path[PATH_MAX_BYTES];
    char *file = realpath(checkpoint_path(c), NULL); /* RUN/checkpoints/FILE */
    for (int i = 0; file != NULL && i < 2; i++) {
        char *slash = strrchr(file, '/');
        *(slash != NULL ? slash : file) = '\0';
    }
    const int length = snprintf(path, sizeof path, "%s/metrics.jsonl", file != NULL ? file : "");
    free(file);
    FILE *f = length < (int)sizeof path ? fopen(path, "r") : NULL;
    char *line = NULL;
    size_t capacity = 0;
    bool found = false;
    for (ssize_t n; f != NULL && (n = getline(&line, &capacity, f)) > 0;) {
        if (strstr(line, "\"retrieval\":") != NULL) {
            found = read_line(out, line, (size_t)n, checkpoint_position(c)->step) || found;
        }
    }
    free(line);
    if (f != NULL) {
        (void)fclose(f);
    }
    return found;
}
