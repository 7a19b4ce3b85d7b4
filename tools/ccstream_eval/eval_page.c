/*
 * eval_page: the nearest pictures of captions and the nearest captions of pictures, by the scores
 * that retrieval ranks. The examples are ranked first, then written: found ones before missed ones.
 */
#include "tools/ccstream_eval/eval_page.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ccdump/input.h"
#include "tools/cli/html_run.h"
#include "train/eval/scores.h"

/* One example: a caption with the nearest pictures, or a picture with the nearest captions. */
struct example {
    int64_t query; /* index of the caption or of the picture */
    int64_t rank;  /* from 1: of its own picture, or of the best of its own captions */
    int64_t found[EVAL_PAGE_FOUND];
    float scores[EVAL_PAGE_FOUND];
};

/* One direction. */
struct side {
    const struct embeddings *e;
    bool by_caption; /* captions are the queries, pictures the candidates */
    struct example *examples;
    int64_t count;
    int64_t found_count; /* candidates kept: EVAL_PAGE_FOUND, or all of fewer */
};

struct page {
    struct html_page html;
    struct ccdump_input *input;
    const struct embeddings *e;
};

static int64_t query_count(const struct side *s) {
    return s->by_caption ? s->e->texts_count : s->e->images_count;
}

static int64_t candidate_count(const struct side *s) {
    return s->by_caption ? s->e->images_count : s->e->texts_count;
}

static bool is_right(const struct side *s, int64_t query, int64_t candidate) {
    return s->by_caption ? s->e->owner[query] == candidate : s->e->owner[candidate] == query;
}

/* ---- ranking ---- */

static enum status
rank_example(void *cookie, int64_t number, const float *scores, struct error *err) {
    struct side *s = cookie;
    struct example *x = &s->examples[number];
    int64_t kept = 0;
    float own = -2.0f;
    (void)err;
    for (int64_t c = 0; c < candidate_count(s); c++) {
        own = is_right(s, x->query, c) && scores[c] > own ? scores[c] : own;
        int64_t at = kept;
        while (at > 0 && x->scores[at - 1] < scores[c]) {
            at--;
        }
        if (at == s->found_count) {
            continue;
        }
        kept += kept < s->found_count ? 1 : 0;
        memmove(x->found + at + 1, x->found + at, (size_t)(kept - 1 - at) * sizeof *x->found);
        memmove(x->scores + at + 1, x->scores + at, (size_t)(kept - 1 - at) * sizeof *x->scores);
        x->found[at] = c;
        x->scores[at] = scores[c];
    }
    x->rank = 1;
    for (int64_t c = 0; c < candidate_count(s); c++) {
        x->rank += !is_right(s, x->query, c) && scores[c] >= own ? 1 : 0;
    }
    return STATUS_OK;
}

static int by_rank(const void *a, const void *b) {
    const struct example *x = a;
    const struct example *y = b;
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return (x->query > y->query) - (x->query < y->query);
}

/* Chooses examples and ranks them, the best first. */
static enum status
rank_side(struct side *s, struct device *dev, int64_t examples, struct error *err) {
    const struct embeddings *e = s->e;
    const int64_t queries = query_count(s);
    const float *rows = s->by_caption ? e->texts : e->images;
    const size_t row_bytes = (size_t)e->embed_dim * sizeof(float);
    s->count = examples < queries ? examples : queries;
    s->found_count =
        candidate_count(s) < EVAL_PAGE_FOUND ? candidate_count(s) : (int64_t)EVAL_PAGE_FOUND;
    s->examples = calloc((size_t)s->count, sizeof *s->examples);
    float *chosen = malloc((size_t)s->count * row_bytes);
    if (s->examples == NULL || chosen == NULL) {
        free(chosen);
        return error_set(err, STATUS_NOMEM, "out of memory for examples");
    }
    for (int64_t i = 0; i < s->count; i++) {
        s->examples[i].query = i * queries / s->count;
        memcpy(chosen + i * e->embed_dim, rows + s->examples[i].query * e->embed_dim, row_bytes);
    }
    const enum status status =
        scores_visit(dev, chosen, s->count, s->by_caption ? e->images : e->texts,
                     candidate_count(s), e->embed_dim, rank_example, s, err);
    free(chosen);
    qsort(s->examples, (size_t)s->count, sizeof *s->examples, by_rank);
    return status;
}

/* ---- writing ---- */

/* The caption with this index; borrowed until the next one. Captions of an image are adjacent. */
static enum status
read_caption(struct page *p, struct shard_text *out, int64_t text, struct error *err) {
    const struct embeddings *e = p->e;
    struct ccdump_facts f;
    int64_t first = text;
    while (first > 0 && e->owner[first - 1] == e->owner[text]) {
        first--;
    }
    TRY(ccdump_input_find(p->input, &f, e->sample_ids[e->owner[text]], err));
    return ccdump_input_caption(p->input, out, (uint32_t)(text - first), err);
}

/* The picture; its first caption, "" without one, is borrowed until the next read. */
static enum status
show_picture(struct page *p, struct shard_text *caption, int64_t image, struct error *err) {
    struct ccdump_facts f;
    struct ccdump_content content;
    TRY(ccdump_input_find(p->input, &f, p->e->sample_ids[image], err));
    TRY(ccdump_input_read(p->input, &content, err));
    *caption = f.caption_count > 0 ? content.captions[0] : (struct shard_text){"", 0};
    html_image(&p->html, content.image, f.image_bytes, *caption);
    return STATUS_OK;
}

static void mark(struct page *p, bool right) {
    html_markup(&p->html, "<span class=\"mark\">%s</span> ",
                right ? "&#10003; right" : "&#10007; wrong");
}

/* A caption and the pictures that it finds. */
static enum status
show_caption(struct page *p, const struct side *s, const struct example *x, struct error *err) {
    struct shard_text caption;
    TRY(read_caption(p, &caption, x->query, err));
    html_markup(&p->html, "<h3>&ldquo;");
    html_text(&p->html, caption.data, caption.size_bytes);
    html_markup(&p->html,
                "&rdquo; <span class=\"number\">its picture is number %" PRId64 " of %" PRId64
                "</span></h3>\n<div class=\"grid\">\n",
                x->rank, candidate_count(s));
    for (int64_t i = 0; i < s->found_count; i++) {
        const bool right = is_right(s, x->query, x->found[i]);
        html_markup(&p->html, "<figure class=\"%s\">", right ? "right" : "wrong");
        TRY(show_picture(p, &caption, x->found[i], err));
        html_markup(&p->html, "<figcaption>");
        mark(p, right);
        html_markup(&p->html, "<span class=\"number\">%.3f</span><br>", (double)x->scores[i]);
        html_text(&p->html, caption.data, caption.size_bytes);
        html_markup(&p->html,
                    " <span class=\"number\">id %" PRIu64 "</span></figcaption></figure>\n",
                    p->e->sample_ids[x->found[i]]);
    }
    html_markup(&p->html, "</div>\n");
    return STATUS_OK;
}

/* A picture and the captions that it finds. */
static enum status
show_image(struct page *p, const struct side *s, const struct example *x, struct error *err) {
    struct shard_text caption;
    html_markup(&p->html, "<div class=\"row\"><div>");
    TRY(show_picture(p, &caption, x->query, err));
    html_markup(&p->html,
                "</div><div><span class=\"number\">id %" PRIu64 ", its caption is number %" PRId64
                " of %" PRId64 "</span><ol>\n",
                p->e->sample_ids[x->query], x->rank, candidate_count(s));
    for (int64_t i = 0; i < s->found_count; i++) {
        const bool right = is_right(s, x->query, x->found[i]);
        TRY(read_caption(p, &caption, x->found[i], err));
        html_markup(&p->html, "<li class=\"%s\">", right ? "right" : "wrong");
        mark(p, right);
        html_text(&p->html, caption.data, caption.size_bytes);
        html_markup(&p->html, " <span class=\"number\">%.3f</span></li>\n", (double)x->scores[i]);
    }
    html_markup(&p->html, "</ol></div></div>\n");
    return STATUS_OK;
}

static enum status show_side(struct page *p, const struct side *s, struct error *err) {
    int64_t found = 0;
    while (found < s->count && s->examples[found].rank <= s->found_count) {
        found++;
    }
    html_markup(&p->html, "<h2>%s</h2>\n",
                s->by_caption ? "Captions and the pictures they find"
                              : "Pictures and the captions they find");
    for (int part = 0; part < 2; part++) {
        const int64_t from = part == 0 ? 0 : found;
        const int64_t to = part == 0 ? found : s->count;
        html_markup(&p->html,
                    "<p><b>%s: %" PRId64 " of %" PRId64
                    " examples.</b> The right %s is %s the first "
                    "%" PRId64 ".</p>\n<div%s>\n",
                    part == 0 ? "Found" : "Missed", to - from, s->count,
                    s->by_caption ? "picture" : "caption", part == 0 ? "among" : "not among",
                    s->found_count, s->by_caption ? "" : " class=\"wide\"");
        for (int64_t i = from; i < to; i++) {
            TRY((s->by_caption ? show_caption : show_image)(p, s, &s->examples[i], err));
        }
        html_markup(&p->html, "</div>\n");
    }
    return STATUS_OK;
}

static enum status show(struct page *p,
                        const struct eval *eval,
                        const char *dataset_dir,
                        const struct retrieval_result *recalls,
                        const struct side *sides,
                        struct error *err) {
    double tau = 0.0;
    TRY(ccdump_input_open(&p->input, dataset_dir, err));
    (void)checkpoint_choose_tau(eval->checkpoint, &tau, NULL); /* 0: an old file without it */
    html_run_facts(&p->html, eval->checkpoint, tau, dataset_dir);
    html_run_retrieval(&p->html, "On this dataset", recalls);
    html_markup(
        &p->html,
        "<p>R@k: how often the right one is among the first k. The number beside a mark is "
        "the score, the cosine of the two embeddings: 1 is the same direction, 0 unrelated, "
        "-1 opposite. <b>&#10003; right</b> is the pair of the dataset; every other "
        "picture or caption counts as <b>&#10007; wrong</b>, even where it reads the same.</p>\n");
    TRY(show_side(p, &sides[0], err));
    return show_side(p, &sides[1], err);
}

enum status eval_page_write(const char *path,
                            const struct eval *eval,
                            const char *dataset_dir,
                            const struct embeddings *e,
                            const struct retrieval_result *recalls,
                            int64_t examples,
                            struct error *err) {
    REQUIRE(path != NULL && e != NULL && e->texts != NULL && examples >= 1);
    struct page p = {.e = e};
    struct side sides[] = {{.e = e, .by_caption = true}, {.e = e}};
    enum status s;
    html_init(&p.html, "What captions and pictures find");
    TRY_OR_FAIL(s, rank_side(&sides[0], eval->dev, examples, err));
    TRY_OR_FAIL(s, rank_side(&sides[1], eval->dev, examples, err));
    TRY_OR_FAIL(s, show(&p, eval, dataset_dir, recalls, sides, err));
    s = html_write(&p.html, path, err);
fail:
    free(sides[0].examples);
    free(sides[1].examples);
    ccdump_input_close(p.input);
    html_fini(&p.html);
    return s;
}
