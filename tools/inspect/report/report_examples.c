/*
 * report_examples: the queries that metrics.jsonl names with what they found, shown from the
 * dataset that --val named.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/inspect/input.h"
#include "tools/inspect/report/report_internal.h"
#include "train/eval/examples.h"

struct view {
    struct page *page;
    struct input *val;
    const struct json_value *first; /* the queries at the first evaluation */
};

static uint64_t number(const struct json_value *object, const char *name) {
    uint64_t n = 0;
    (void)json_value_u64(json_value_get(object, name), &n);
    return n;
}

/* The sample of an entry, and the caption that it names, or the first one. Borrowed until the next
 * read. */
static enum status read_sample(struct view *v,
                               const struct json_value *entry,
                               struct sample_facts *f,
                               struct sample_content *content,
                               struct shard_text *caption,
                               struct error *err) {
    const uint64_t k = number(entry, "caption");
    TRY(input_find(v->val, f, number(entry, "id"), err));
    TRY(input_read(v->val, content, err));
    *caption = (struct shard_text){"", 0};
    if (f->caption_count > 0) {
        *caption = content->captions[k < f->caption_count ? k : 0];
    }
    return STATUS_OK;
}

/* The same queries are asked at every evaluation, but listed by their rank. */
static void put_rank(struct view *v, const struct json_value *query) {
    char before[48] = "";
    for (size_t i = 0; i < json_value_count(v->first); i++) {
        const struct json_value *old = json_value_at(v->first, i);
        if (number(old, "id") == number(query, "id") &&
            number(old, "caption") == number(query, "caption")) {
            (void)snprintf(before, sizeof before, ", at first %" PRIu64, number(old, "rank"));
        }
    }
    page_line(v->page, NULL, "its own: number %" PRIu64 "%s", number(query, "rank"), before);
}

static double score_of(const struct json_value *found) {
    double score = 0.0;
    (void)json_value_double(json_value_get(found, "score"), &score);
    return score;
}

/* A caption, its own image, and the images that it finds: a row of six. */
static enum status show_caption(struct view *v, const struct json_value *query, struct error *err) {
    const struct json_value *found = json_value_get(query, "found");
    struct page *p = v->page;
    struct sample_facts f;
    struct sample_content content;
    struct shard_text text;
    TRY(read_sample(v, query, &f, &content, &text, err));
    (void)snprintf(p->group, sizeof p->group, "\xE2\x80\x9C%.*s\xE2\x80\x9D",
                   page_excerpt_bytes(text, PAGE_CAPTION_CHARACTERS), text.data);
    page_card(p, "own", content.image, f.image_bytes, text);
    put_rank(v, query);
    page_card_end(p);
    for (size_t i = 0; i < json_value_count(found) && i + 1 < EXAMPLES_FOUND; i++) {
        const struct json_value *one = json_value_at(found, i);
        const char *mark = number(one, "id") == number(query, "id") ? "right" : "wrong";
        TRY(read_sample(v, one, &f, &content, &text, err));
        page_card(p, mark, content.image, f.image_bytes, text);
        page_line(p, mark, "%.3f", score_of(one));
        page_card_end(p);
    }
    return STATUS_OK;
}

/* An image, its own caption, and the captions that it finds. */
static enum status show_image(struct view *v, const struct json_value *query, struct error *err) {
    const struct json_value *found = json_value_get(query, "found");
    struct page *p = v->page;
    struct sample_facts f;
    struct sample_content content;
    struct shard_text text;
    TRY(read_sample(v, query, &f, &content, &text, err));
    p->group[0] = '\0';
    page_card(p, NULL, content.image, f.image_bytes, text);
    put_rank(v, query);
    enum status s = STATUS_OK;
    for (size_t i = 0; i < json_value_count(found) && s == STATUS_OK; i++) {
        const struct json_value *one = json_value_at(found, i);
        const bool right = number(one, "id") == number(query, "id");
        s = read_sample(v, one, &f, &content, &text, err);
        if (s == STATUS_OK) {
            page_line(p, right ? "right" : "wrong", "%.3f %.*s", score_of(one),
                      page_excerpt_bytes(text, PAGE_CAPTION_CHARACTERS), text.data);
        }
    }
    page_card_end(p);
    return s;
}

static enum status
show_side(struct view *v, const struct json_value *queries, bool by_caption, struct error *err) {
    enum status s = STATUS_OK;
    page_section(v->page,
                 by_caption ? "What captions find, at the last evaluation" : "What images find",
                 false);
    page_images(v->page, NULL, by_caption ? "cards" : "rows");
    for (size_t i = 0; i < json_value_count(queries) && s == STATUS_OK; i++) {
        s = (by_caption ? show_caption : show_image)(v, json_value_at(queries, i), err);
    }
    v->page->group[0] = '\0';
    page_images_end(v->page);
    return s;
}

static enum status show_examples(struct page *page,
                                 const struct run_log *r,
                                 const char *directory,
                                 struct error *err) {
    const struct json_value *last = json_document_root(r->last_examples);
    const struct json_value *first = json_document_root(r->first_examples);
    const bool several = number(last, "step") != number(first, "step");
    struct view v = {.page = page};
    TRY(input_open(&v.val, directory, err));
    last = json_value_get(last, "examples");
    first = several ? json_value_get(first, "examples") : NULL;
    v.first = json_value_get(first, "t2i");
    enum status s = show_side(&v, json_value_get(last, "t2i"), true, err);
    v.first = json_value_get(first, "i2t");
    if (s == STATUS_OK) {
        s = show_side(&v, json_value_get(last, "i2t"), false, err);
    }
    input_close(v.val);
    return s;
}

void report_examples(struct page *page, const struct run_log *r) {
    const char *directory = json_value_string(run_log_option(r, "val"), NULL);
    struct error err = {0};
    if (r->last_examples == NULL || directory == NULL) {
        return;
    }
    if (show_examples(page, r, directory, &err) != STATUS_OK) {
        page_section(page, "What captions find", false);
        page_note(page, "Retrieval examples are missing: %s", err.text);
    }
}
