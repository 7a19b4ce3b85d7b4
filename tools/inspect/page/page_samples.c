#include "tools/inspect/page/page_samples.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/cli.h"
#include "train/eval/examples.h"

enum status page_sample(struct page *p,
                        struct input *in,
                        const struct sample_facts *f,
                        uint64_t caption,
                        const char *mark,
                        struct error *err) {
    struct sample_content content;
    TRY(input_read(in, &content, err));
    page_card(p, mark, content.image, f->image_bytes,
              caption < f->caption_count ? content.captions[caption] : (struct shard_text){"", 0});
    return STATUS_OK;
}

static uint64_t number(const struct json_value *object, const char *name) {
    uint64_t n = 0;
    (void)json_value_u64(json_value_get(object, name), &n);
    return n;
}

/* The caption that an entry names, or its sample's first; borrowed until the next. */
static enum status read_caption(struct input *in,
                                const struct json_value *entry,
                                struct sample_facts *f,
                                struct shard_text *out,
                                struct error *err) {
    const uint64_t k = number(entry, "caption");
    *out = (struct shard_text){"", 0};
    TRY(input_find(in, f, number(entry, "id"), err));
    return f->caption_count > 0
               ? input_caption(in, out, k < f->caption_count ? (uint32_t)k : 0, err)
               : STATUS_OK;
}

static const char *mark_of(const struct json_value *query, const struct json_value *found) {
    return number(query, "id") == number(found, "id") ? "right" : "wrong";
}

static double score_of(const struct json_value *found) {
    double score = 0.0;
    (void)json_value_double(json_value_get(found, "score"), &score);
    return score;
}

/* A row of images. */
static enum status
show_caption(struct page *p, struct input *in, const struct json_value *query, struct error *err) {
    const struct json_value *found = json_value_get(query, "found");
    struct sample_facts f;
    struct shard_text text;
    TRY(read_caption(in, query, &f, &text, err));
    (void)snprintf(p->group, sizeof p->group,
                   "\xE2\x80\x9C%.*s\xE2\x80\x9D, its image is number %" PRIu64,
                   page_excerpt_bytes(text, 100), text.data, number(query, "rank"));
    for (size_t i = 0; i < json_value_count(found) && i < EXAMPLES_FOUND; i++) {
        const struct json_value *one = json_value_at(found, i);
        TRY(input_find(in, &f, number(one, "id"), err));
        TRY(page_sample(p, in, &f, 0, mark_of(query, one), err));
        page_line(p, mark_of(query, one), "%.3f, id %" PRIu64, score_of(one), f.id);
        page_card_end(p);
    }
    return STATUS_OK;
}

/* An image, and captions beside it. */
static enum status
show_image(struct page *p, struct input *in, const struct json_value *query, struct error *err) {
    const struct json_value *found = json_value_get(query, "found");
    struct sample_facts f;
    struct shard_text text;
    enum status s = STATUS_OK;
    TRY(input_find(in, &f, number(query, "id"), err));
    TRY(page_sample(p, in, &f, 0, NULL, err));
    page_line(p, NULL, "id %" PRIu64 ", its caption is number %" PRIu64, f.id,
              number(query, "rank"));
    for (size_t i = 0; i < json_value_count(found) && s == STATUS_OK; i++) {
        const struct json_value *one = json_value_at(found, i);
        s = read_caption(in, one, &f, &text, err);
        page_line(p, mark_of(query, one), "%.3f %.*s", score_of(one),
                  page_excerpt_bytes(text, PAGE_CAPTION_CHARACTERS), text.data);
    }
    page_card_end(p);
    return s;
}

enum status
page_queries(struct page *p, struct input *in, const struct page_queries *q, struct error *err) {
    enum status s = STATUS_OK;
    page_images(p, NULL, q->by_caption ? "cards" : "rows");
    for (size_t i = 0; i < json_value_count(q->all) && s == STATUS_OK; i++) {
        const struct json_value *query = json_value_at(q->all, i);
        const uint64_t rank = number(query, "rank");
        if (rank >= q->first_rank && rank <= q->last_rank) {
            s = (q->by_caption ? show_caption : show_image)(p, in, query, err);
        }
    }
    p->group[0] = '\0';
    page_images_end(p);
    return s;
}

/* ---- the run ---- */

void page_run_summary(struct page *p, const struct checkpoint *c, double tau, const char *dataset) {
    static const char *const names[] = {"checkpoint", "dataset", "loss", "epochs done"};
    const struct train_position *at = checkpoint_position(c);
    const char *loss = cli_format("%s, tau %g", checkpoint_loss_name(c), tau);
    const char *epochs = cli_format("%" PRIu64 " (step %" PRIu64 ")", at->epoch, at->step);
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
    enum { LINE_BYTES = 1 << 20 }; /* the rest of a longer one is no evaluation */
    char *line = malloc(LINE_BYTES);
    while (line != NULL && fgets(line, LINE_BYTES, metrics) != NULL) {
        struct json_document *d = NULL;
        uint64_t at = 0;
        if (strstr(line, "\"retrieval\":") != NULL &&
            json_document_parse(&d, "metrics.jsonl", line, strlen(line), NULL) == STATUS_OK &&
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
