/*
 * The tokenizer, with the cleaning that the loader applies before it.
 */
#include <stdlib.h>
#include <string.h>

#include "augment/caption.h"
#include "bindings/c/api_entry_internal.h"
#include "bindings/c/dataset_internal.h"
#include "formats/dataset/dataset_tokenizer.h"

struct ccs_tokenizer {
    struct tokenizer *tokenizer;
};

/* Takes the tokenizer inside, which it closes on failure. */
static enum status
make_handle(struct ccs_tokenizer **out, struct tokenizer *tokenizer, struct error *err) {
    *out = calloc(1, sizeof(**out));
    if (*out == NULL) {
        tokenizer_close(tokenizer);
        return error_set(err, STATUS_NOMEM, "out of memory for a tokenizer");
    }
    (*out)->tokenizer = tokenizer;
    return STATUS_OK;
}

static enum status
open_model(struct ccs_tokenizer **out, const void *model, size_t size, struct error *err) {
    CHECK_ARGUMENT(out != NULL, err, "out is NULL");
    *out = NULL;
    CHECK_ARGUMENT(model != NULL, err, "model is NULL");
    struct tokenizer *tokenizer = NULL;
    TRY(tokenizer_open(&tokenizer, model, size, err));
    return make_handle(out, tokenizer, err);
}

static enum status load(struct ccs_tokenizer **out, const char *path, struct error *err) {
    CHECK_ARGUMENT(out != NULL, err, "out is NULL");
    *out = NULL;
    CHECK_ARGUMENT(path != NULL, err, "path is NULL");
    struct tokenizer *tokenizer = NULL;
    TRY(tokenizer_load(&tokenizer, path, err));
    return make_handle(out, tokenizer, err);
}

int32_t ccs_tokenizer_load(struct ccs_tokenizer **out, const char *path, struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, load(out, path, &e), &e);
}

int32_t ccs_tokenizer_open(struct ccs_tokenizer **out,
                           const void *model,
                           size_t size,
                           struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, open_model(out, model, size, &e), &e);
}

static enum status
open_of_dataset(struct ccs_tokenizer **out, const struct ccs_dataset *d, struct error *err) {
    CHECK_ARGUMENT(out != NULL, err, "out is NULL");
    *out = NULL;
    CHECK_ARGUMENT(d != NULL, err, "the dataset is NULL");
    struct tokenizer *tokenizer = NULL;
    TRY(dataset_tokenizer_open(&tokenizer, d->path, dataset_manifest(d->dataset),
                               file_system_of(d->path), err));
    FAIL_IF(tokenizer == NULL, err, STATUS_NOTFOUND,
            "%s: has no tokenizer: ccpack tokenizer makes one", d->path);
    return make_handle(out, tokenizer, err);
}

int32_t ccs_tokenizer_of_dataset(struct ccs_tokenizer **out,
                                 const struct ccs_dataset *d,
                                 struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, open_of_dataset(out, d, &e), &e);
}

void ccs_tokenizer_close(struct ccs_tokenizer *t) {
    if (t != NULL) {
        tokenizer_close(t->tokenizer);
        free(t);
    }
}

uint32_t ccs_tokenizer_vocabulary(const struct ccs_tokenizer *t) {
    return t != NULL ? tokenizer_vocab_count(t->tokenizer) : 0;
}

int32_t ccs_tokenizer_pad(const struct ccs_tokenizer *t) {
    return t != NULL ? tokenizer_pad_id(t->tokenizer) : 0;
}

int32_t ccs_tokenizer_begin(const struct ccs_tokenizer *t) {
    return t != NULL ? tokenizer_begin_id(t->tokenizer) : 0;
}

int32_t ccs_tokenizer_end(const struct ccs_tokenizer *t) {
    return t != NULL ? tokenizer_end_id(t->tokenizer) : 0;
}

/* One row, through `room`, which has place for the longest cleaned text; NULL: not cleaned. */
static enum status encode_row(const struct ccs_tokenizer *t,
                              int32_t *tokens,
                              int32_t *length,
                              const struct ccs_text *text,
                              uint32_t max_tokens,
                              char *room,
                              struct error *err) {
    struct tokenizer_text row = {text->data, text->size};
    if (room != NULL && text->size > 0) {
        row = (struct tokenizer_text){room, caption_clean(room, text->data, text->size)};
    }
    return tokenizer_encode_rows(t->tokenizer, tokens, length, &row, 1, max_tokens, err);
}

static enum status check_texts(const struct ccs_text *texts, uint64_t count, struct error *err) {
    for (uint64_t i = 0; i < count; i++) {
        CHECK_ARGUMENT(texts[i].data != NULL || texts[i].size == 0, err, "data of a text is NULL");
    }
    return STATUS_OK;
}

static enum status encode(const struct ccs_tokenizer *t,
                          int32_t *tokens,
                          int32_t *lengths,
                          const struct ccs_text *texts,
                          uint64_t count,
                          uint32_t max_tokens,
                          bool clean,
                          struct error *err) {
    CHECK_ARGUMENT(t != NULL, err, "the tokenizer is NULL");
    CHECK_ARGUMENT(count == 0 || (tokens != NULL && lengths != NULL && texts != NULL), err,
                   "tokens, lengths or texts is NULL");
    TRY(check_texts(texts, count, err));
    FAIL_IF(max_tokens < 2 || max_tokens > TOKENIZER_MAX_TOKENS, err, STATUS_USAGE,
            "max_tokens is %u, expected 2 to %d", max_tokens, TOKENIZER_MAX_TOKENS);
    clean = clean && !tokenizer_cleans(t->tokenizer);
    size_t longest = 0;
    for (uint64_t i = 0; clean && i < count; i++) {
        longest = texts[i].size > longest ? texts[i].size : longest;
    }
    char *room = clean ? malloc(CAPTION_CLEAN_BOUND_BYTES(longest)) : NULL;
    FAIL_IF(clean && room == NULL, err, STATUS_NOMEM, "out of memory for a text of %zu bytes",
            longest);
    enum status s = STATUS_OK;
    for (uint64_t i = 0; i < count && s == STATUS_OK; i++) {
        s = encode_row(t, tokens + i * max_tokens, &lengths[i], &texts[i], max_tokens, room, err);
    }
    free(room);
    return s;
}

int32_t ccs_tokenizer_encode(const struct ccs_tokenizer *t,
                             int32_t *tokens,
                             int32_t *lengths,
                             const struct ccs_text *texts,
                             uint64_t count,
                             uint32_t max_tokens,
                             bool clean,
                             struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, encode(t, tokens, lengths, texts, count, max_tokens, clean, &e), &e);
}
