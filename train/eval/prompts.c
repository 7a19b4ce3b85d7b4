/*
 * prompts: lines of text to embeddings, a batch of the model at a time.
 */
#include "train/eval/prompts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/utf8.h"
#include "formats/tokenizer/tokenizer.h"
#include "loader/texts.h"
#include "train/eval/classify.h"

const char PROMPT_TEMPLATES[] = "{}\n"
                                "a photo of {}\n"
                                "a photo of a {}\n"
                                "a picture of the {}\n"
                                "a close view of a {}\n"
                                "a {} seen from far away\n"
                                "there is a {} in this picture\n"
                                "a drawing of a {}\n";

/* ---- lists ---- */

void text_list_fini(struct text_list *l) {
    free(l->lines);
    free(l->text);
    memset(l, 0, sizeof *l);
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Removes the white space at both ends of a line that ends with a NUL. */
static char *trim(char *line) {
    while (is_space(*line)) {
        line++;
    }
    size_t size_bytes = strlen(line);
    while (size_bytes > 0 && is_space(line[size_bytes - 1])) {
        line[--size_bytes] = '\0';
    }
    return line;
}

enum status text_list_parse(struct text_list *out,
                            const char *name,
                            const char *text,
                            size_t size_bytes,
                            struct error *err) {
    memset(out, 0, sizeof *out);
    FAIL_IF(utf8_valid_prefix(text, size_bytes) != size_bytes || memchr(text, '\0', size_bytes),
            err, STATUS_CORRUPT, "%s: not a text in UTF-8", name);
    size_t lines = 1;
    for (size_t i = 0; i < size_bytes; i++) {
        lines += text[i] == '\n' ? 1 : 0;
    }
    FAIL_IF(lines > TEXT_LIST_MAX_LINES, err, STATUS_LIMIT, "%s: more than %d lines", name,
            TEXT_LIST_MAX_LINES);
    out->text = malloc(size_bytes + 1);
    out->lines = calloc(lines, sizeof *out->lines);
    if (out->text == NULL || out->lines == NULL) {
        text_list_fini(out);
        return error_set(err, STATUS_NOMEM, "%s: out of memory", name);
    }
    memcpy(out->text, text, size_bytes);
    out->text[size_bytes] = '\0';
    for (char *at = out->text; at != NULL;) {
        char *end = strchr(at, '\n');
        if (end != NULL) {
            *end = '\0';
        }
        char *line = trim(at);
        if (line[0] != '\0' && line[0] != '#') {
            out->lines[out->count++] = line;
        }
        at = end != NULL ? end + 1 : NULL;
    }
    if (out->count == 0) {
        text_list_fini(out);
        return error_set(err, STATUS_CORRUPT, "%s: holds no line of text", name);
    }
    return STATUS_OK;
}

enum status text_list_read(struct text_list *out,
                           const struct file_system *fs,
                           const char *path,
                           struct error *err) {
    struct byte_buffer file;
    memset(out, 0, sizeof *out);
    TRY(file_read_all(fs, &file, path, TEXT_LIST_MAX_BYTES, err));
    const enum status s = text_list_parse(out, path, (const char *)file.data, file.size_bytes, err);
    byte_buffer_fini(&file);
    return s;
}

/* ---- texts to embeddings ---- */

struct encoder {
    struct dual_encoder *model;
    struct device *dev;
    struct tokenizer *tokenizer;
    int32_t *tokens;  /* (max_batch, max_tokens) */
    int32_t *lengths; /* (max_batch) */
    int32_t max_batch, max_tokens, embed_dim;
};

static void encoder_close(struct encoder *e) {
    tokenizer_close(e->tokenizer);
    free(e->tokens);
    free(e->lengths);
}

static enum status encoder_open(struct encoder *e,
                                struct dual_encoder *model,
                                struct device *dev,
                                const void *tokenizer,
                                size_t tokenizer_size_bytes,
                                struct error *err) {
    const struct dual_encoder_options *o = dual_encoder_get_options(model);
    *e = (struct encoder){.model = model,
                          .dev = dev,
                          .max_batch = o->micro_batch,
                          .max_tokens = o->text.max_tokens,
                          .embed_dim = o->embed_dim};
    FAIL_IF(tokenizer == NULL, err, STATUS_USAGE,
            "prompts need a tokenizer, and the model has none");
    const size_t count = (size_t)e->max_batch;
    e->tokens = calloc(count, (size_t)e->max_tokens * sizeof *e->tokens);
    e->lengths = calloc(count, sizeof *e->lengths);
    FAIL_IF(e->tokens == NULL || e->lengths == NULL, err, STATUS_NOMEM, "no memory for %d texts",
            (int)e->max_batch);
    return tokenizer_open(&e->tokenizer, tokenizer, tokenizer_size_bytes, err);
}

/* Up to max_batch texts. */
static enum status encode_some(struct encoder *e,
                               float *out,
                               char *const *texts,
                               int32_t count,
                               bool clean,
                               struct error *err) {
    struct tensor text;
    for (int32_t i = 0; i < count; i++) {
        TRY(texts_encode(e->tokenizer, e->tokens + (size_t)i * (size_t)e->max_tokens,
                         &e->lengths[i], texts[i], strlen(texts[i]), (uint32_t)e->max_tokens, clean,
                         err));
    }
    TRY(dual_encoder_encode_texts(e->model, &text, e->tokens, e->lengths, count, err));
    return e->dev->ops->download(e->dev, out, text.data, tensor_size_bytes(&text), err);
}

enum status prompts_encode(float *out,
                           struct dual_encoder *model,
                           struct device *dev,
                           const void *tokenizer,
                           size_t tokenizer_size_bytes,
                           char *const *texts,
                           size_t count,
                           bool clean,
                           struct error *err) {
    struct encoder e;
    enum status s = encoder_open(&e, model, dev, tokenizer, tokenizer_size_bytes, err);
    for (size_t done = 0; s == STATUS_OK && done < count;) {
        const size_t left = count - done;
        const int32_t n = left < (size_t)e.max_batch ? (int32_t)left : e.max_batch;
        s = encode_some(&e, out + done * (size_t)e.embed_dim, texts + done, n, clean, err);
        done += (size_t)n;
    }
    encoder_close(&e);
    return s;
}

/* A copy of the template with the name at each {}. */
static enum status
fill_template(char **out, const char *pattern, const char *name, struct error *err) {
    char text[PROMPT_MAX_BYTES];
    size_t used = 0;
    bool filled = false;
    for (const char *at = pattern; *at != '\0';) {
        const bool place = at[0] == '{' && at[1] == '}';
        const char *piece = place ? name : at;
        const size_t size_bytes = place ? strlen(name) : 1;
        FAIL_IF(size_bytes >= sizeof text - used, err, STATUS_LIMIT,
                "prompt '%.60s...' has more than %d bytes", pattern, PROMPT_MAX_BYTES);
        memcpy(text + used, piece, size_bytes);
        used += size_bytes;
        at += place ? 2 : 1;
        filled = filled || place;
    }
    text[used] = '\0';
    FAIL_IF(!filled, err, STATUS_USAGE, "template '%.100s' has no {} for the class name", pattern);
    *out = strdup(text);
    return *out != NULL ? STATUS_OK : error_set(err, STATUS_NOMEM, "out of memory for prompts");
}

/* The normalised mean of `count` rows. */
static void mean_row(float *out, const float *rows, size_t count, size_t dim) {
    memset(out, 0, dim * sizeof *out);
    for (size_t i = 0; i < count; i++) {
        for (size_t d = 0; d < dim; d++) {
            out[d] += rows[i * dim + d];
        }
    }
    classify_normalize(out, 1, (int64_t)dim);
}

enum status prompts_class_vectors(float *vectors,
                                  struct dual_encoder *model,
                                  struct device *dev,
                                  const void *tokenizer,
                                  size_t tokenizer_size_bytes,
                                  const struct text_list *names,
                                  const struct text_list *templates,
                                  struct error *err) {
    const size_t dim = (size_t)dual_encoder_get_options(model)->embed_dim;
    const size_t per_class = templates->count;
    char **prompts = calloc(names->count * per_class, sizeof *prompts);
    float *rows = calloc(names->count * per_class, dim * sizeof *rows);
    enum status s = prompts != NULL && rows != NULL
                        ? STATUS_OK
                        : error_set(err, STATUS_NOMEM, "out of memory for %zu prompts",
                                    names->count * per_class);
    for (size_t i = 0; s == STATUS_OK && i < names->count * per_class; i++) {
        s = fill_template(&prompts[i], templates->lines[i % per_class], names->lines[i / per_class],
                          err);
    }
    THEN(s, prompts_encode(rows, model, dev, tokenizer, tokenizer_size_bytes, prompts,
                           names->count * per_class, false, err));
    for (size_t c = 0; s == STATUS_OK && c < names->count; c++) {
        mean_row(vectors + c * dim, rows + c * per_class * dim, per_class, dim);
    }
    for (size_t i = 0; prompts != NULL && i < names->count * per_class; i++) {
        free(prompts[i]);
    }
    free(prompts);
    free(rows);
    return s;
}
