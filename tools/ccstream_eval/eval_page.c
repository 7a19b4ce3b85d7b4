/*
 * eval_page: the nearest pictures of captions and the nearest captions of pictures, as
 * train/eval/examples ranks them: found ones before missed ones.
 */
#include "tools/ccstream_eval/eval_page.h"

#include <inttypes.h>

#include "tools/cli/html_run.h"
#include "tools/inspect/input.h"
#include "train/eval/examples.h"

struct page {
    struct html_page html;
    struct input *input;
    const struct embeddings *e;
};

/* ---- writing ---- */

/* The caption with this index; borrowed until the next one. */
static enum status
read_caption(struct page *p, struct shard_text *out, int64_t text, struct error *err) {
    const struct embeddings *e = p->e;
    struct sample_facts f;
    TRY(input_find(p->input, &f, e->sample_ids[e->owner[text]], err));
    return input_caption(p->input, out, (uint32_t)examples_caption_of(e, text), err);
}

/* The picture; its first caption, "" without one, is borrowed until the next read. */
static enum status
show_picture(struct page *p, struct shard_text *caption, int64_t image, struct error *err) {
    struct sample_facts f;
    struct sample_content content;
    TRY(input_find(p->input, &f, p->e->sample_ids[image], err));
    TRY(input_read(p->input, &content, err));
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
show_caption(struct page *p, const struct examples *s, const struct example *x, struct error *err) {
    struct shard_text caption;
    TRY(read_caption(p, &caption, x->query, err));
    html_markup(&p->html, "<h3>&ldquo;");
    html_text(&p->html, caption.data, caption.size_bytes);
    html_markup(&p->html,
                "&rdquo; <span class=\"number\">its picture is number %" PRId64 " of %" PRId64
                "</span></h3>\n<div class=\"grid\">\n",
                x->rank, p->e->images_count);
    for (int64_t i = 0; i < s->found_count; i++) {
        const bool right = examples_is_right(p->e, s->by_caption, x->query, x->found[i]);
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
show_image(struct page *p, const struct examples *s, const struct example *x, struct error *err) {
    struct shard_text caption;
    html_markup(&p->html, "<div class=\"row\"><div>");
    TRY(show_picture(p, &caption, x->query, err));
    html_markup(&p->html,
                "</div><div><span class=\"number\">id %" PRIu64 ", its caption is number %" PRId64
                " of %" PRId64 "</span><ol>\n",
                p->e->sample_ids[x->query], x->rank, p->e->texts_count);
    for (int64_t i = 0; i < s->found_count; i++) {
        const bool right = examples_is_right(p->e, s->by_caption, x->query, x->found[i]);
        TRY(read_caption(p, &caption, x->found[i], err));
        html_markup(&p->html, "<li class=\"%s\">", right ? "right" : "wrong");
        mark(p, right);
        html_text(&p->html, caption.data, caption.size_bytes);
        html_markup(&p->html, " <span class=\"number\">%.3f</span></li>\n", (double)x->scores[i]);
    }
    html_markup(&p->html, "</ol></div></div>\n");
    return STATUS_OK;
}

static enum status show_side(struct page *p, const struct examples *s, struct error *err) {
    int64_t found = 0;
    while (found < s->count && s->items[found].rank <= s->found_count) {
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
            TRY((s->by_caption ? show_caption : show_image)(p, s, &s->items[i], err));
        }
        html_markup(&p->html, "</div>\n");
    }
    return STATUS_OK;
}

static enum status show(struct page *p,
                        const struct eval *eval,
                        const char *dataset_dir,
                        const struct retrieval_result *recalls,
                        const struct examples *sides,
                        struct error *err) {
    double tau = 0.0;
    TRY(input_open(&p->input, dataset_dir, err));
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
    struct examples sides[2] = {{0}, {0}};
    enum status s;
    html_init(&p.html, "What captions and pictures find");
    TRY_OR_FAIL(s, examples_find(&sides[0], eval->dev, e, true, examples, err));
    TRY_OR_FAIL(s, examples_find(&sides[1], eval->dev, e, false, examples, err));
    TRY_OR_FAIL(s, show(&p, eval, dataset_dir, recalls, sides, err));
    s = html_write(&p.html, path, err);
fail:
    examples_fini(&sides[0]);
    examples_fini(&sides[1]);
    input_close(p.input);
    html_fini(&p.html);
    return s;
}
