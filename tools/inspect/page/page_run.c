/*
 * page_run: the run as a summary, and how well it retrieves, which the viewer makes a table of.
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

void page_run_retrieval(struct page *p, const struct retrieval_result *r) {
    page_item(p, "retrieval", "On this dataset");
    retrieval_write_json(page_json(p), "values", r);
    json_close_object(page_json(p));
}

/* The last evaluation up to `step`; NULL: there is none. */
static struct json_document *find_last(FILE *metrics, uint64_t step) {
    struct json_document *last = NULL;
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t n; (n = getline(&line, &capacity, metrics)) > 0;) {
        struct json_document *d = NULL;
        uint64_t at = 0;
        if (strstr(line, "\"retrieval\":") != NULL &&
            json_document_parse(&d, "metrics.jsonl", line, (size_t)n, NULL) == STATUS_OK &&
            json_value_u64(json_value_get(json_document_root(d), "step"), &at) && at <= step) {
            json_document_destroy(last);
            last = d;
        } else {
            json_document_destroy(d);
        }
    }
    free(line);
    return last;
}

void page_run_last_retrieval(struct page *p, const struct checkpoint *c) {
    char path[PATH_MAX_BYTES];
    char *file = realpath(checkpoint_path(c), NULL); /* RUN/checkpoints/FILE */
    for (int i = 0; file != NULL && i < 2; i++) {
        char *slash = strrchr(file, '/');
        *(slash != NULL ? slash : file) = '\0';
    }
    const int length = snprintf(path, sizeof path, "%s/metrics.jsonl", file != NULL ? file : "");
    free(file);
    FILE *f = length < (int)sizeof path ? fopen(path, "r") : NULL;
    if (f == NULL) {
        return;
    }
    struct json_document *last = find_last(f, checkpoint_position(c)->step);
    if (last != NULL) {
        page_item(p, "retrieval", "The run's last evaluation");
        page_value(p, "values", json_value_get(json_document_root(last), "retrieval"));
        json_close_object(page_json(p));
    }
    json_document_destroy(last);
    (void)fclose(f);
}
