/*
 * page_run: the run as a summary, recalls as a table.
 */
#include "tools/inspect/page/page_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json/json_reader.h"

void page_run_summary(struct page *p, const struct checkpoint *c, double tau, const char *dataset) {
    static const char *const names[] = {"checkpoint", "dataset", "loss", "epochs done"};
    const struct train_position *at = checkpoint_position(c);
    char loss[128];
    char epochs[64];
    (void)snprintf(loss, sizeof loss, "%s, tau %g", checkpoint_loss_name(c), tau);
    (void)snprintf(epochs, sizeof epochs, "%" PRIu64 " (step %" PRIu64 ")", at->epoch, at->step);
    page_summary(p, &(struct page_table){
                        .columns = names,
                        .column_count = 4,
                        .cells = (const char *const[]){checkpoint_path(c), dataset, loss, epochs},
                        .row_count = 1});
}

void page_run_retrieval(struct page *p, const char *of, const struct retrieval_result *r) {
    enum { COLUMNS = 1 + RETRIEVAL_METRIC_COUNT };
    static const char *const names[] = {"caption finds image", "image finds caption", "chance"};
    const char *heads[COLUMNS] = {""};
    const char *cells[3 * COLUMNS];
    char text[3 * COLUMNS][16];
    char title[160];
    for (int row = 0; row < 3; row++) {
        cells[row * COLUMNS] = names[row];
        for (int k = 0; k < RETRIEVAL_METRIC_COUNT; k++) {
            const int i = row * COLUMNS + 1 + k;
            double sum = 0.0; /* a place among the images, any of them as likely */
            for (uint64_t rank = 0; rank < r->images && row == 2; rank++) {
                sum += retrieval_metrics[k].of_rank((int64_t)rank) / (double)r->images;
            }
            (void)snprintf(text[i], sizeof text[i], "%.1f %%",
                           row == 2 ? sum : r->value[row == 0 ? RETRIEVAL_T2I : RETRIEVAL_I2T][k]);
            cells[i] = text[i];
            heads[1 + k] = retrieval_metrics[k].title;
        }
    }
    (void)snprintf(title, sizeof title, "%s: %" PRIu64 " images, %" PRIu64 " captions", of,
                   r->images, r->texts);
    page_table(p, &(struct page_table){title, heads, COLUMNS, cells, 3});
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

bool page_run_last_retrieval(struct retrieval_result *out, const struct checkpoint *c) {
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
