/*
 * The face of tokenizer.h: owns the bytes, picks the engine that reads them, and does for all
 * kinds alike what surrounds the pieces of a text.
 */
#include "formats/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/base/hash.h"
#include "formats/tokenizer/tokenizer_bpe_internal.h"

const char *tokenizer_kind_name(enum tokenizer_kind kind) {
    static const char *const names[] = {"sentencepiece", "wordpiece", "clip-bpe", "byte-bpe"};
    return names[kind];
}

size_t tokenizer_line(const char **p, const char *end) {
    const char *line = *p;
    const char *feed = memchr(line, '\n', (size_t)(end - line));
    const char *stop = feed ? feed : end;
    *p = feed ? feed + 1 : end;
    return (size_t)(stop - line) - (feed && stop > line && stop[-1] == '\r');
}

/* A vocabulary is a text, with a line for the unknown piece among the others. A SentencePiece model
 * holds NUL bytes: its pieces have floating-point numbers. */
static bool is_vocabulary(const uint8_t *bytes, size_t size_bytes) {
    static const char unknown[] = "[UNK]";
    const size_t n = sizeof(unknown) - 1;
    if (size_bytes == 0 || memchr(bytes, '\0', size_bytes)) {
        return false;
    }
    for (size_t at = 0; n <= size_bytes - at; at++) {
        const uint8_t *found = memchr(bytes + at, '[', size_bytes - at);
        if (!found) {
            return false;
        }
        at = (size_t)(found - bytes);
        if (n <= size_bytes - at && memcmp(found, unknown, n) == 0 &&
            (at == 0 || found[-1] == '\n') &&
            (at + n == size_bytes || found[n] == '\n' || found[n] == '\r')) {
            return true;
        }
    }
    return false;
}

enum status tokenizer_open(struct tokenizer **out,
                           const void *model,
                           size_t model_size_bytes,
                           struct error *err) {
    REQUIRE(out && (model || model_size_bytes == 0));
    *out = NULL;
    FAIL_IF(model_size_bytes > TOKENIZER_MAX_MODEL_BYTES, err, STATUS_LIMIT,
            "tokenizer: model of %zu bytes, the limit is %d", model_size_bytes,
            TOKENIZER_MAX_MODEL_BYTES);
    struct tokenizer *t = calloc(1, sizeof(*t));
    if (t) {
        t->bytes = malloc(model_size_bytes > 0 ? model_size_bytes : 1);
    }
    if (!t || !t->bytes) {
        tokenizer_close(t);
        return error_set(err, STATUS_NOMEM, "tokenizer: out of memory");
    }
    if (model_size_bytes > 0) {
        memcpy(t->bytes, model, model_size_bytes);
    }
    t->size_bytes = model_size_bytes;
    t->engine = bpe_is_file(t->bytes, t->size_bytes)     ? &tokenizer_clip_bpe
                : is_vocabulary(t->bytes, t->size_bytes) ? &tokenizer_wordpiece
                                                         : &tokenizer_sentencepiece;
    enum status s = t->engine->open(t, err);
    t->hash = hash64(t->bytes, t->size_bytes);
    if (s == STATUS_OK && t->cls_id < 0) {
        s = tokenizer_open_clip(&t->cleaner, err);
    }
    RETURN_CREATED(s, out, t, tokenizer_close);
}

enum status tokenizer_open_clip(struct tokenizer **out, struct error *err) {
    return tokenizer_open(out, clip_merges, clip_merges_bytes, err);
}

enum status tokenizer_load(struct tokenizer **out, const char *path, struct error *err) {
    REQUIRE(out && path);
    struct byte_buffer file;
    struct error why = {0};
    *out = NULL;
    enum status s = file_read_all(file_posix(), &file, path, TOKENIZER_MAX_MODEL_BYTES, &why);
    if (s == STATUS_NOTFOUND && strcmp(path, TOKENIZER_CLIP_NAME) == 0) {
        return tokenizer_open_clip(out, err);
    }
    if (s != STATUS_OK) {
        return error_set(err, s, "%s", why.text);
    }
    s = tokenizer_open(out, file.data, file.size_bytes, &why);
    byte_buffer_fini(&file);
    if (s != STATUS_OK) {
        return error_set(err, s, "%s: %s", path, why.text);
    }
    return STATUS_OK;
}

void tokenizer_close(struct tokenizer *t) {
    if (t) {
        if (t->model) {
            t->engine->close(t->model);
        }
        tokenizer_close(t->cleaner);
        free(t->bytes);
        free(t);
    }
}

/* The size of the part of `text` that is encoded; it never ends inside a character. */
static size_t truncated(const char *text, size_t size_bytes) {
    if (size_bytes <= TOKENIZER_MAX_TEXT_BYTES) {
        return size_bytes;
    }
    size_t n = TOKENIZER_MAX_TEXT_BYTES;
    for (int back = 0; back < 3 && ((uint8_t)text[n] & 0xC0) == 0x80; back++) {
        n--;
    }
    return n;
}

enum status tokenizer_encode(const struct tokenizer *t,
                             int32_t *out_ids,
                             uint32_t *out_count,
                             const char *text,
                             size_t size_bytes,
                             uint32_t max_tokens,
                             struct error *err) {
    REQUIRE(t && out_ids && out_count && (text || size_bytes == 0));
    REQUIRE(max_tokens >= 2 && max_tokens <= TOKENIZER_MAX_TOKENS);
    const uint32_t begins = t->cls_id >= 0 ? 1 : 0;
    uint32_t count = 0;
    char *cleaned = NULL;
    enum status s = STATUS_OK;
    *out_count = 0;
    size_bytes = truncated(text, size_bytes);
    if (t->cleaner) {
        TRY(clip_clean(&cleaned, &size_bytes, text, size_bytes, t->cleaner->model, true, err));
        text = cleaned;
    }
    if (size_bytes > 0) {
        s = t->engine->encode(t, out_ids + begins, &count, text, size_bytes,
                              max_tokens - 1 - begins, err);
    }
    free(cleaned);
    TRY(s);
    if (begins) {
        out_ids[0] = t->cls_id;
    }
    out_ids[count + begins] = t->sep_id;
    *out_count = count + begins + 1;
    return STATUS_OK;
}

enum status tokenizer_encode_rows(const struct tokenizer *t,
                                  int32_t *out_ids,
                                  int32_t *out_lengths,
                                  const struct tokenizer_text *texts,
                                  size_t count,
                                  uint32_t max_tokens,
                                  struct error *err) {
    REQUIRE(t && out_ids && out_lengths && (texts || count == 0));
    for (size_t i = 0; i < count; i++) {
        int32_t *row = out_ids + i * max_tokens;
        uint32_t n = 0;
        TRY(tokenizer_encode(t, row, &n, texts[i].data, texts[i].size_bytes, max_tokens, err));
        out_lengths[i] = (int32_t)n;
        for (; n < max_tokens; n++) {
            row[n] = t->pad_id;
        }
    }
    return STATUS_OK;
}

enum tokenizer_kind tokenizer_kind(const struct tokenizer *t) {
    return t->engine->kind;
}

bool tokenizer_cleans(const struct tokenizer *t) {
    return t->engine->kind == TOKENIZER_CLIP_BPE || t->cleaner;
}

int32_t tokenizer_begin_id(const struct tokenizer *t) {
    return t->cls_id;
}

int32_t tokenizer_end_id(const struct tokenizer *t) {
    return t->sep_id;
}

uint32_t tokenizer_vocab_count(const struct tokenizer *t) {
    return t->vocab_count;
}

int32_t tokenizer_pad_id(const struct tokenizer *t) {
    return t->pad_id;
}

const void *tokenizer_bytes(const struct tokenizer *t, size_t *size_bytes) {
    *size_bytes = t->size_bytes;
    return t->bytes;
}

uint64_t tokenizer_hash(const struct tokenizer *t) {
    return t->hash;
}
