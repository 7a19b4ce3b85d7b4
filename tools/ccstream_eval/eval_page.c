/*
 * eval_page: the nearest pictures of captions, by the scores that retrieval ranks.
 */
#include "tools/ccstream_eval/eval_page.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ccdump/input.h"
#include "tools/cli/html.h"
#include "train/eval/scores.h"

struct page {
    struct html_page html;
    struct ccdump_input *input;
    const struct embeddings *e;
    const int64_t *texts; /* of the queries: index of the caption */
};

/* Writes the caption with this index. Captions of an image are adjacent. */
static enum status read_caption(struct page *p, int64_t text, struct error *err) {
    const struct embeddings *e = p->e;
    struct ccdump_facts f;
    struct shard_text caption;
    int64_t first = text;
    while (first > 0 && e->owner[first - 1] == e->owner[text]) {
        first--;
    }
    TRY(ccdump_input_find(p->input, &f, e->sample_ids[e->owner[text]], err));
    TRY(ccdump_input_caption(p->input, &caption, (uint32_t)(text - first), err));
    html_markup(&p->html, "<h2>");
    html_text(&p->html, caption.data, caption.size_bytes);
    html_markup(&p->html, "</h2>\n");
    return STATUS_OK;
}

static enum status
show_found(struct page *p, int64_t image, double score, bool right, struct error *err) {
    struct ccdump_facts f;
    struct ccdump_content content;
    TRY(ccdump_input_find(p->input, &f, p->e->sample_ids[image], err));
    TRY(ccdump_input_read(p->input, &content, err));
    html_markup(&p->html, right ? "<figure class=\"right\">" : "<figure>");
    html_image(&p->html, content.image, f.image_bytes);
    html_markup(&p->html,
                "<figcaption class=\"number\">%.3f, id %" PRIu64 "</figcaption></figure>\n", score,
                f.id);
    return STATUS_OK;
}

/* Writes a caption: its text, the rank of its own picture, the nearest pictures. */
static enum status show_query(void *cookie, int64_t query, const float *scores, struct error *err) {
    struct page *p = cookie;
    const int64_t count = p->e->images_count;
    const int64_t own = p->e->owner[p->texts[query]];
    int64_t found[EVAL_PAGE_FOUND];
    int64_t found_count = 0;
    int64_t rank = 1;
    for (int64_t i = 0; i < count; i++) {
        rank += i != own && scores[i] >= scores[own] ? 1 : 0;
        int64_t at = found_count < EVAL_PAGE_FOUND ? found_count : EVAL_PAGE_FOUND;
        while (at > 0 && scores[found[at - 1]] < scores[i]) {
            at--;
        }
        if (at == EVAL_PAGE_FOUND) {
            continue;
        }
        found_count += found_count < EVAL_PAGE_FOUND ? 1 : 0;
        memmove(found + at + 1, found + at, (size_t)(found_count - 1 - at) * sizeof *found);
        found[at] = i;
    }
    TRY(read_caption(p, p->texts[query], err));
    html_markup(&p->html,
                "<p class=\"number\">rank of its own picture: %" PRId64 " of %" PRId64
                "</p>\n<div class=\"grid\">\n",
                rank, count);
    for (int64_t i = 0; i < found_count; i++) {
        TRY(show_found(p, found[i], (double)scores[found[i]], found[i] == own, err));
    }
    html_markup(&p->html, "</div>\n");
    return STATUS_OK;
}

/* Chooses captions: their indexes and their rows. */
static enum status choose(int64_t **texts,
                          float **rows,
                          int64_t *count,
                          const struct embeddings *e,
                          int64_t examples,
                          struct error *err) {
    *count = examples < e->texts_count ? examples : e->texts_count;
    *texts = calloc((size_t)*count, sizeof **texts);
    *rows = calloc((size_t)*count, (size_t)e->embed_dim * sizeof **rows);
    if (*texts == NULL || *rows == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for examples");
    }
    for (int64_t i = 0; i < *count; i++) {
        (*texts)[i] = i * e->texts_count / *count;
        memcpy(*rows + i * e->embed_dim, e->texts + (*texts)[i] * e->embed_dim,
               (size_t)e->embed_dim * sizeof **rows);
    }
    return STATUS_OK;
}

enum status eval_page_write(const char *path,
                            const char *dataset_dir,
                            const struct embeddings *e,
                            struct device *dev,
                            int64_t examples,
                            struct error *err) {
    REQUIRE(path != NULL && e != NULL && e->texts != NULL && examples >= 1);
    struct page p = {.e = e};
    int64_t *texts = NULL;
    float *rows = NULL;
    int64_t count = 0;
    enum status s;
    html_init(&p.html, "What the captions find");
    TRY_OR_FAIL(s, ccdump_input_open(&p.input, dataset_dir, err));
    TRY_OR_FAIL(s, choose(&texts, &rows, &count, e, examples, err));
    p.texts = texts;
    TRY_OR_FAIL(s, scores_visit(dev, rows, count, e->images, e->images_count, e->embed_dim,
                                show_query, &p, err));
    s = html_write(&p.html, path, err);
fail:
    free(texts);
    free(rows);
    ccdump_input_close(p.input);
    html_fini(&p.html);
    return s;
}
