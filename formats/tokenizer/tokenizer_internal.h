/*
 * tokenizer_internal: what tokenizer.c and the kinds of vocabularies share. tokenizer.c checks
 * arguments, adds the begin and end pieces and fills rows; an engine knows one kind of model.
 *
 * Threading : as tokenizer.h says; an engine's encode is called from several threads at once.
 */
#ifndef FORMATS_TOKENIZER_TOKENIZER_INTERNAL_H
#define FORMATS_TOKENIZER_TOKENIZER_INTERNAL_H

#include "formats/tokenizer/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tokenizer_engine {
    enum tokenizer_kind kind;

    /* Reads t->bytes, which it may replace, and fills t->model, t->vocab_count and the ids. Returns
     * what tokenizer_open returns; t->model is NULL after a failure. */
    enum status (*open)(struct tokenizer *t, struct error *err);
    void (*close)(void *model);

    /* Writes at most max_pieces pieces of a text of [1, TOKENIZER_MAX_TEXT_BYTES] bytes. */
    enum status (*encode)(const struct tokenizer *t,
                          int32_t *out_ids,
                          uint32_t *out_count,
                          const char *text,
                          size_t size_bytes,
                          uint32_t max_pieces,
                          struct error *err);
};

struct tokenizer {
    const struct tokenizer_engine *engine;
    void *model;               /* the engine's own */
    struct tokenizer *cleaner; /* CLIP's, whose rules clean SigLIP's texts; NULL: none do */
    uint8_t *bytes;
    size_t size_bytes;
    uint64_t hash;
    uint32_t vocab_count;
    int32_t cls_id; /* below 0: none */
    int32_t sep_id;
    int32_t pad_id;
};

/* Takes one line from *p, which ends with LF or CR LF; returns its bytes without those. */
size_t tokenizer_line(const char **p, const char *end);

extern const struct tokenizer_engine tokenizer_sentencepiece;
extern const struct tokenizer_engine tokenizer_wordpiece;
extern const struct tokenizer_engine tokenizer_clip_bpe; /* its open serves both BPEs */
extern const struct tokenizer_engine tokenizer_byte_bpe;

#ifdef __cplusplus
}
#endif

#endif
