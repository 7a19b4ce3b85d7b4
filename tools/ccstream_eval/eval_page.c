/*
 * eval_page: the nearest images of captions and the nearest captions of images, as
 * train/eval/examples ranks them: found ones before missed ones.
 */
#include "tools/ccstream_eval/eval_page.h"

#include <inttypes.h>
#include <stdio.h>

#include "tools/inspect/input.h"
#include "tools/inspect/page/page_run.h"
#include "train/eval/examples.h"

struct found_page {
    struct page page;
    struct input *input;
    const struct embeddings *e;
};

/* The caption with this index; borrowed until the next one. */
static enum status
read_caption(struct found_page *p, struct shard_text *out, int64_t text, struct error *err) {
    const struct embeddings *e = p->e;
    struct sample_facts f;
    TRY(input_find(p->input, &f, e->sample_ids[e->owner[text]], err));
    return input_caption(p->input, out, (uint32_t)examples_caption_of(e, text), err);
}

/* Opens the card of an image. */
static enum status
open_card(struct found_page *p, const char *mark, int64_t image, struct error *err) {
    struct sample_facts f;
    struct sample_content content;
    TRY(input_find(p->input, &f, p->e->sample_ids[image], err));
    TRY(input_read(p->input, &content, err));
    page_card(&p->page, mark, content.image, f.image_bytes,
              f.caption_count > 0 ? content.captions[0] : (struct shard_text){"", 0});
    return STATUS_OK;
}

static const char *
mark_of(const struct found_page *p, const struct examples *s, const struct example *x, int64_t i) {
    return examples_is_right(p->e, s->by_caption, x->query, x->found[i]) ? "right" : "wrong";
}

/* A caption and the images that it finds. */
static enum status show_caption(struct found_page *p,
                                const struct examples *s,
                                const struct example *x,
                                struct error *err) {
    struct shard_text caption;
    TRY(read_caption(p, &caption, x->query, err));
    (void)snprintf(p->page.group, sizeof p->page.group,
                   "\xE2\x80\x9C%.*s\xE2\x80\x9D, its image is number %" PRId64 " of %" PRId64,
                   page_excerpt_bytes(caption, 100), caption.data, x->rank, p->e->images_count);
    for (int64_t i = 0; i < s->found_count; i++) {
        const char *mark = mark_of(p, s, x, i);
        TRY(open_card(p, mark, x->found[i], err));
        page_line(&p->page, mark, "%s %.3f", mark, (double)x->scores[i]);
        page_line(&p->page, NULL, "id %" PRIu64, p->e->sample_ids[x->found[i]]);
        page_card_end(&p->page);
    }
    return STATUS_OK;
}

/* An image and the captions that it finds. */
static enum status show_image(struct found_page *p,
                              const struct examples *s,
                              const struct example *x,
                              struct error *err) {
    struct shard_text caption;
    enum status status = STATUS_OK;
    p->page.group[0] = '\0';
    TRY(open_card(p, NULL, x->query, err));
    page_line(&p->page, NULL, "id %" PRIu64 ", its caption is number %" PRId64 " of %" PRId64,
              p->e->sample_ids[x->query], x->rank, p->e->texts_count);
    for (int64_t i = 0; i < s->found_count && status == STATUS_OK; i++) {
        status = read_caption(p, &caption, x->found[i], err);
        if (status == STATUS_OK) {
            page_line(&p->page, mark_of(p, s, x, i), "%.3f %.*s", (double)x->scores[i],
                      page_excerpt_bytes(caption, 1000), caption.data);
        }
    }
    page_card_end(&p->page);
    return status;
}

static enum status show_side(struct found_page *p, const struct examples *s, struct error *err) {
    int64_t found = 0;
    while (found < s->count && s->items[found].rank <= s->found_count) {
        found++;
    }
    page_section(&p->page,
                 s->by_caption ? "Captions and the images they find"
                               : "Images and the captions they find",
                 false);
    enum status status = STATUS_OK;
    for (int part = 0; part < 2 && status == STATUS_OK; part++) {
        const int64_t from = part == 0 ? 0 : found;
        const int64_t to = part == 0 ? found : s->count;
        page_text(
            &p->page,
            "%s: %" PRId64 " of %" PRId64 " examples. The right %s is %s the first %" PRId64 ".",
            part == 0 ? "Found" : "Missed", to - from, s->count,
            s->by_caption ? "image" : "caption", part == 0 ? "among" : "not among", s->found_count);
        page_images(&p->page, NULL, s->by_caption ? "cards" : "rows");
        for (int64_t i = from; i < to && status == STATUS_OK; i++) {
            status = (s->by_caption ? show_caption : show_image)(p, s, &s->items[i], err);
        }
        p->page.group[0] = '\0';
        page_images_end(&p->page);
    }
    return status;
}

static enum status show(struct found_page *p,
                        const struct eval *eval,
                        const char *dataset_dir,
                        const struct retrieval_result *recalls,
                        const struct examples *sides,
                        struct error *err) {
    double tau = 0.0;
    TRY(input_open(&p->input, dataset_dir, err));
    (void)checkpoint_choose_tau(eval->checkpoint, &tau, NULL); /* 0: an old file without it */
    page_run_summary(&p->page, eval->checkpoint, tau, dataset_dir);
    page_section(&p->page, "Recall", false);
    page_run_retrieval(&p->page, "On this dataset", recalls);
    page_text(&p->page,
              "R@k: how often the right one is among the first k. The number beside a mark is the "
              "score, the cosine of the two embeddings: 1 is the same direction, 0 unrelated, -1 "
              "opposite. \xE2\x9C\x93 right is the pair of the dataset; every other image or "
              "caption counts as \xE2\x9C\x97 wrong, even where it reads the same.");
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
    struct found_page p = {.e = e};
    struct examples sides[2] = {{0}, {0}};
    enum status s;
    page_begin(&p.page, "What captions and images find");
    TRY_OR_FAIL(s, examples_find(&sides[0], eval->dev, e, true, examples, err));
    TRY_OR_FAIL(s, examples_find(&sides[1], eval->dev, e, false, examples, err));
    TRY_OR_FAIL(s, show(&p, eval, dataset_dir, recalls, sides, err));
    s = page_end(&p.page, path, err);
fail:
    examples_fini(&sides[0]);
    examples_fini(&sides[1]);
    input_close(p.input);
    page_fini(&p.page);
    return s;
}
