/*
 * examples: the best scores of a few queries, kept in order by insertion.
 */
#include "train/eval/examples.h"

#include <stdlib.h>
#include <string.h>

#include "train/eval/scores.h"

struct walk {
    struct examples *x;
    const struct embeddings *e;
};

static int64_t candidate_count(const struct embeddings *e, bool by_caption) {
    return by_caption ? e->images_count : e->texts_count;
}

/* Whether a candidate (image for a caption, caption for an image) is the query's own. */
static bool
is_right(const struct embeddings *e, bool by_caption, int64_t query, int64_t candidate) {
    return by_caption ? e->owner[query] == candidate : e->owner[candidate] == query;
}

/* Captions of an image are adjacent. */
int64_t examples_caption_of(const struct embeddings *e, int64_t text) {
    int64_t first = text;
    while (first > 0 && e->owner[first - 1] == e->owner[text]) {
        first--;
    }
    return text - first;
}

static enum status
rank_example(void *cookie, int64_t number, const float *scores, struct error *err) {
    const struct walk *walk = cookie;
    struct example *x = &walk->x->items[number];
    const bool by_caption = walk->x->by_caption;
    const int64_t candidates = candidate_count(walk->e, by_caption);
    int64_t kept = 0;
    float own = -2.0f;
    (void)err;
    for (int64_t c = 0; c < candidates; c++) {
        const bool right = is_right(walk->e, by_caption, x->query, c);
        own = right && scores[c] > own ? scores[c] : own;
        int64_t at = kept;
        while (at > 0 && x->scores[at - 1] < scores[c]) {
            at--;
        }
        if (at == walk->x->found_count) {
            continue;
        }
        kept += kept < walk->x->found_count ? 1 : 0;
        memmove(x->found + at + 1, x->found + at, (size_t)(kept - 1 - at) * sizeof *x->found);
        memmove(x->scores + at + 1, x->scores + at, (size_t)(kept - 1 - at) * sizeof *x->scores);
        x->found[at] = c;
        x->scores[at] = scores[c];
    }
    x->rank = 1;
    for (int64_t c = 0; c < candidates; c++) {
        const bool right = is_right(walk->e, by_caption, x->query, c);
        x->rank += !right && scores[c] >= own ? 1 : 0;
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

enum status examples_find(struct examples *out,
                          struct device *dev,
                          const struct embeddings *e,
                          bool by_caption,
                          int64_t count,
                          struct error *err) {
    REQUIRE(out != NULL && e != NULL && e->texts != NULL && count >= 1);
    const int64_t queries = by_caption ? e->texts_count : e->images_count;
    const int64_t candidates = candidate_count(e, by_caption);
    const float *rows = by_caption ? e->texts : e->images;
    const size_t row_bytes = (size_t)e->embed_dim * sizeof(float);
    *out = (struct examples){.by_caption = by_caption, .count = count < queries ? count : queries};
    out->found_count = candidates < EXAMPLES_FOUND ? candidates : (int64_t)EXAMPLES_FOUND;
    out->items = calloc((size_t)out->count, sizeof *out->items);
    float *chosen = malloc((size_t)out->count * row_bytes);
    if (out->items == NULL || chosen == NULL) {
        free(chosen);
        examples_fini(out);
        return error_set(err, STATUS_NOMEM, "out of memory for examples");
    }
    for (int64_t i = 0; i < out->count; i++) {
        out->items[i].query = i * queries / out->count;
        memcpy(chosen + i * e->embed_dim, rows + out->items[i].query * e->embed_dim, row_bytes);
    }
    const enum status s =
        scores_visit(dev, chosen, out->count, by_caption ? e->images : e->texts, candidates,
                     e->embed_dim, rank_example, &(struct walk){out, e}, err);
    free(chosen);
    if (s != STATUS_OK) {
        examples_fini(out);
        return s;
    }
    qsort(out->items, (size_t)out->count, sizeof *out->items, by_rank);
    return STATUS_OK;
}

void examples_fini(struct examples *x) {
    free(x->items);
    *x = (struct examples){0};
}

/* Writes the fields that identify an image, or a caption of one. */
static void
write_place(struct json_writer *w, const struct embeddings *e, bool caption, int64_t index) {
    json_u64(w, "id", e->sample_ids[caption ? e->owner[index] : index]);
    if (caption) {
        json_i64(w, "caption", examples_caption_of(e, index));
    }
}

void examples_write_json(struct json_writer *w,
                         const char *key,
                         const struct examples *x,
                         const struct embeddings *e) {
    json_open_array(w, key);
    for (int64_t i = 0; i < x->count; i++) {
        const struct example *item = &x->items[i];
        json_open_object(w, NULL);
        write_place(w, e, x->by_caption, item->query);
        json_i64(w, "rank", item->rank);
        json_open_array(w, "found");
        for (int64_t k = 0; k < x->found_count; k++) {
            json_open_object(w, NULL);
            write_place(w, e, !x->by_caption, item->found[k]);
            json_double(w, "score", (double)item->scores[k]);
            json_close_object(w);
        }
        json_close_array(w);
        json_close_object(w);
    }
    json_close_array(w);
}
