/*
 * report_examples: the queries that metrics.jsonl names with what they found, shown from the
 * dataset that --val named.
 */
#include "tools/inspect/report/report_pictures.h"

#include <inttypes.h>
#include <string.h>

#include "tools/inspect/input.h"
#include "train/eval/examples.h"

struct view {
    struct html_page *html;
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
    html_markup(v->html, "<span class=\"number\">number %" PRIu64, number(query, "rank"));
    for (size_t i = 0; i < json_value_count(v->first); i++) {
        const struct json_value *old = json_value_at(v->first, i);
        if (number(old, "id") == number(query, "id") &&
            number(old, "caption") == number(query, "caption")) {
            html_markup(v->html, ", at first %" PRIu64, number(old, "rank"));
        }
    }
    html_raw(v->html, "</span>");
}

static void put_mark(struct html_page *p, bool right, const struct json_value *found) {
    double score = 0.0;
    (void)json_value_double(json_value_get(found, "score"), &score);
    html_markup(p, "<span class=\"mark\">%s</span> <span class=\"number\">%.3f</span> ",
                right ? "&#10003; right" : "&#10007;", score);
}

static void put_figure(struct view *v,
                       const char *kind,
                       const struct sample_facts *f,
                       const struct sample_content *content,
                       struct shard_text alt) {
    html_markup(v->html, "<figure class=\"%s\">", kind);
    html_image(v->html, content->image, f->image_bytes, alt);
    html_raw(v->html, "<figcaption>");
}

/* A caption, its own picture, and the pictures that it finds: a row of six. */
static enum status show_caption(struct view *v, const struct json_value *query, struct error *err) {
    const struct json_value *found = json_value_get(query, "found");
    struct sample_facts f;
    struct sample_content content;
    struct shard_text text;
    TRY(read_sample(v, query, &f, &content, &text, err));
    html_raw(v->html, "<div class=\"together\"><h3>&ldquo;");
    html_excerpt(v->html, text, REPORT_CAPTION_CHARACTERS);
    html_raw(v->html, "&rdquo;</h3>\n<div class=\"grid\">\n");
    put_figure(v, "own", &f, &content, text);
    html_raw(v->html, "its own: ");
    put_rank(v, query);
    html_raw(v->html, "</figcaption></figure>\n");
    for (size_t i = 0; i < json_value_count(found) && i + 1 < EXAMPLES_FOUND; i++) {
        const struct json_value *one = json_value_at(found, i);
        const bool right = number(one, "id") == number(query, "id");
        TRY(read_sample(v, one, &f, &content, &text, err));
        put_figure(v, right ? "right" : "wrong", &f, &content, text);
        put_mark(v->html, right, one);
        html_raw(v->html, "</figcaption></figure>\n");
    }
    html_raw(v->html, "</div></div>\n");
    return STATUS_OK;
}

/* A picture, its own caption, and the captions that it finds. */
static enum status show_picture(struct view *v, const struct json_value *query, struct error *err) {
    const struct json_value *found = json_value_get(query, "found");
    struct sample_facts f;
    struct sample_content content;
    struct shard_text text;
    TRY(read_sample(v, query, &f, &content, &text, err));
    html_raw(v->html, "<div class=\"row\"><div>");
    html_image(v->html, content.image, f.image_bytes, text);
    html_raw(v->html, "</div><div>its own: &ldquo;");
    html_excerpt(v->html, text, REPORT_CAPTION_CHARACTERS);
    html_raw(v->html, "&rdquo; ");
    put_rank(v, query);
    html_raw(v->html, "<ol>\n");
    for (size_t i = 0; i < json_value_count(found); i++) {
        const struct json_value *one = json_value_at(found, i);
        const bool right = number(one, "id") == number(query, "id");
        TRY(read_sample(v, one, &f, &content, &text, err));
        html_markup(v->html, "<li class=\"%s\">", right ? "right" : "wrong");
        put_mark(v->html, right, one);
        html_excerpt(v->html, text, REPORT_CAPTION_CHARACTERS);
        html_raw(v->html, "</li>\n");
    }
    html_raw(v->html, "</ol></div></div>\n");
    return STATUS_OK;
}

static enum status show_side(struct view *v,
                             const struct json_value *queries,
                             const char *title,
                             bool by_caption,
                             struct error *err) {
    html_markup(v->html, "<h2>%s</h2>\n<div%s>\n", title, by_caption ? "" : " class=\"wide rows\"");
    for (size_t i = 0; i < json_value_count(queries); i++) {
        TRY((by_caption ? show_caption : show_picture)(v, json_value_at(queries, i), err));
    }
    html_raw(v->html, "</div>\n");
    return STATUS_OK;
}

static enum status show_examples(struct html_page *page,
                                 const struct run_log *r,
                                 const char *directory,
                                 struct error *err) {
    const struct json_value *last = json_document_root(r->last_examples);
    const struct json_value *first = json_document_root(r->first_examples);
    const bool several = number(last, "step") != number(first, "step");
    struct view v = {.html = page};
    TRY(input_open(&v.val, directory, err));
    last = json_value_get(last, "examples");
    first = several ? json_value_get(first, "examples") : NULL;
    v.first = json_value_get(first, "t2i");
    enum status s = show_side(&v, json_value_get(last, "t2i"),
                              "What captions find, at the last evaluation", true, err);
    v.first = json_value_get(first, "i2t");
    if (s == STATUS_OK) {
        s = show_side(&v, json_value_get(last, "i2t"), "What pictures find", false, err);
    }
    input_close(v.val);
    return s;
}

void report_examples(struct html_page *page, const struct run_log *r) {
    const char *directory = json_value_string(run_log_option(r, "val"), NULL);
    struct error err = {0};
    if (r->last_examples == NULL || directory == NULL) {
        return;
    }
    if (show_examples(page, r, directory, &err) != STATUS_OK) {
        html_note(page, "Examples of retrieval are missing: ", err.text);
    }
}
