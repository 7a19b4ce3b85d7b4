/*
 * texts: walks the samples in dataset order and their captions in stored order, so that text ids
 * ascend without holes, however the captions are distributed over shards.
 */
#include "loader/texts.h"

#include <stdlib.h>

#include "formats/dataset/dataset.h"
#include "formats/tokenizer/tokenizer.h"
#include "loader/text_internal.h"

struct texts {
    const struct dataset *dataset;
    const struct tokenizer *tokenizer;
    struct texts_options opt; /* position_to is at most the number of samples */
    struct caption_reader *captions;
    struct text_workspace *workspace;
    struct text_cache cache;
    struct dataset_sample sample; /* at `position`, when `caption` is not 0 */
    uint64_t position;
    uint32_t caption; /* next one of the sample */
    int32_t *tokens;  /* (batch_count, max_tokens) */
    int32_t *lengths;
    uint64_t *text_ids;
    uint64_t *sample_ids;
};

void texts_options_default(struct texts_options *opt) {
    *opt = (struct texts_options){
        .batch_count = 256,
        .max_tokens = 30,
        .clean_captions = true,
        .position_to = UINT64_MAX,
    };
}

static enum status make_memory(struct texts *t, struct error *err) {
    size_t count = t->opt.batch_count;
    t->tokens = calloc(count * t->opt.max_tokens, sizeof(*t->tokens));
    t->lengths = calloc(count, sizeof(*t->lengths));
    t->text_ids = calloc(count, sizeof(*t->text_ids));
    t->sample_ids = calloc(count, sizeof(*t->sample_ids));
    FAIL_IF(t->tokens == NULL || t->lengths == NULL || t->text_ids == NULL || t->sample_ids == NULL,
            err, STATUS_NOMEM, "out of memory for %zu texts of %u tokens", count,
            t->opt.max_tokens);
    TRY(text_workspace_create(&t->workspace, err));
    return caption_reader_create(&t->captions, t->dataset, err);
}

enum status texts_open(struct texts **out,
                       const struct dataset *dataset,
                       const struct tokenizer *tokenizer,
                       const struct texts_options *opt,
                       struct error *err) {
    REQUIRE(out != NULL && dataset != NULL && tokenizer != NULL && opt != NULL);
    REQUIRE(opt->batch_count >= 1 && opt->batch_count <= TEXTS_MAX_BATCH);
    REQUIRE(opt->max_tokens >= 2 && opt->max_tokens <= TOKENIZER_MAX_TOKENS);
    *out = NULL;
    struct texts *t = calloc(1, sizeof(*t));
    TRY_MEMORY(t != NULL, err, "out of memory for texts");
    t->dataset = dataset;
    t->tokenizer = tokenizer;
    t->opt = *opt;
    t->position = opt->position_from;
    struct error why = {0};
    (void)text_cache_init(&t->cache, dataset, tokenizer, opt->clean_captions, &why);
    if (t->opt.position_to > dataset_sample_count(dataset)) {
        t->opt.position_to = dataset_sample_count(dataset);
    }
    enum status s = make_memory(t, err);
    RETURN_CREATED(s, out, t, texts_close);
}

void texts_close(struct texts *t) {
    if (t == NULL) {
        return;
    }
    caption_reader_destroy(t->captions);
    text_workspace_destroy(t->workspace);
    free(t->tokens);
    free(t->lengths);
    free(t->text_ids);
    free(t->sample_ids);
    free(t);
}

/* Moves to the next caption; END after the last. */
static enum status find_caption(struct texts *t, struct error *err) {
    while (t->position < t->opt.position_to) {
        if (t->caption == 0) {
            TRY(dataset_sample_at(t->dataset, t->position, &t->sample, err));
        }
        if (t->caption < t->sample.text_count) {
            return STATUS_OK;
        }
        t->position++;
        t->caption = 0;
    }
    return STATUS_END;
}

/* From the token cache, or by tokenizing where there is none or its row is damaged. */
static enum status make_row(struct texts *t, uint32_t n, struct error *err) {
    int32_t *row = t->tokens + (size_t)n * t->opt.max_tokens;
    struct shard_text text;
    if (t->cache.cache != NULL && text_cache_row(&t->cache, row, &t->lengths[n], t->tokenizer,
                                                 t->sample.first_text_id + t->caption,
                                                 t->opt.max_tokens, NULL) == STATUS_OK) {
        return STATUS_OK;
    }
    TRY(caption_reader_get(t->captions, &t->sample, t->caption, &text, err));
    return text_to_row(t->workspace, row, &t->lengths[n], t->tokenizer, text.data, text.size_bytes,
                       t->opt.max_tokens, t->opt.clean_captions, err);
}

enum status texts_next(struct texts *t, struct texts_batch *out, struct error *err) {
    REQUIRE(t != NULL && out != NULL);
    *out = (struct texts_batch){0};
    uint32_t n = 0;
    while (n < t->opt.batch_count) {
        enum status s = find_caption(t, err);
        if (s == STATUS_END) {
            break;
        }
        TRY(s);
        TRY(make_row(t, n, err));
        t->text_ids[n] = t->sample.first_text_id + t->caption;
        t->sample_ids[n] = t->sample.sample_id;
        t->caption++;
        n++;
    }
    if (n == 0) {
        return STATUS_END;
    }
    *out = (struct texts_batch){
        .tokens = t->tokens,
        .lengths = t->lengths,
        .text_ids = t->text_ids,
        .sample_ids = t->sample_ids,
        .count = n,
    };
    return STATUS_OK;
}

enum status texts_encode(const struct tokenizer *tokenizer,
                         int32_t *out_row,
                         int32_t *out_length,
                         const char *text,
                         size_t size_bytes,
                         uint32_t max_tokens,
                         bool clean,
                         struct error *err) {
    REQUIRE(tokenizer != NULL && out_row != NULL && out_length != NULL);
    REQUIRE(max_tokens >= 2 && max_tokens <= TOKENIZER_MAX_TOKENS);
    FAIL_IF(size_bytes > SHARD_MAX_TEXT_BYTES, err, STATUS_LIMIT,
            "a text of %zu bytes, the limit is %d", size_bytes, SHARD_MAX_TEXT_BYTES);
    struct text_workspace *workspace = NULL;
    TRY(text_workspace_create(&workspace, err));
    enum status s = text_to_row(workspace, out_row, out_length, tokenizer, text, size_bytes,
                                max_tokens, clean, err);
    text_workspace_destroy(workspace);
    return s;
}
