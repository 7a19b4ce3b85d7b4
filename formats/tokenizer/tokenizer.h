/*
 * tokenizer: text to token ids with a SentencePiece model, a BERT WordPiece vocabulary or a
 * byte-level BPE (CLIP's, or GPT-2's and RoBERTa's), through one interface, and the training of a
 * SentencePiece model. The bytes determine the kind.
 *
 * Threading : an open tokenizer is immutable; the encode functions may be called from several
 *             threads at once. tokenizer_train is independent of open tokenizers.
 * Ownership : the tokenizer owns a copy of its model's bytes.
 * Untrusted : the model's bytes and every text. Text may be empty, hold NUL bytes or invalid UTF-8
 *             (each wrong sequence counts as U+FFFD), and is truncated to TOKENIZER_MAX_TEXT_BYTES.
 * Memory    : SentencePiece allocates inside every encode (normalised text, lattice, pieces); our
 *             own part of the call reuses a buffer per thread. WordPiece allocates nothing. BPE
 *             allocates and frees for a text beyond 1 KiB, a word beyond 64 bytes, and CLIP's for a
 *             text that needs mending (beyond ASCII, control characters, an &).
 */
#ifndef FORMATS_TOKENIZER_TOKENIZER_H
#define FORMATS_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/bytes.h"
#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ids of the special pieces in every vocabulary that tokenizer_train makes. */
enum { TOKENIZER_PAD = 0, TOKENIZER_UNK = 1, TOKENIZER_CLS = 2, TOKENIZER_SEP = 3 };

enum {
    TOKENIZER_MAX_TEXT_BYTES = 64 * 1024, /* of one text: the rest is ignored */
    TOKENIZER_MAX_TOKENS = 4096,
    TOKENIZER_MAX_MODEL_BYTES = 64 * 1024 * 1024,
    TOKENIZER_MIN_VOCAB = 16,
    TOKENIZER_MAX_VOCAB = 1 << 18,
};

/* The source of training captions. next returns OK and a text that stays valid until the following
 * call, END after the last, or a failure that stops the training. */
struct tokenizer_source {
    enum status (*next)(void *cookie, const char **text, size_t *size_bytes, struct error *err);
    void *cookie;
};

enum tokenizer_model_type { TOKENIZER_UNIGRAM, TOKENIZER_BPE };

struct tokenizer_train_options {
    uint32_t vocab_size;   /* maximum vocabulary size, [TOKENIZER_MIN_VOCAB, TOKENIZER_MAX_VOCAB];
                              default 8192 */
    uint32_t max_captions; /* more than these are sampled, evenly and repeatably; default 1000000 */
    enum tokenizer_model_type model_type; /* default TOKENIZER_UNIGRAM */
};

void tokenizer_train_options_default(struct tokenizer_train_options *opt);

/* Trains a lower-casing SentencePiece model (normaliser nmt_nfkc_cf) and appends its bytes to
 * `out`, an initialised buffer; *piece_count gets the number of pieces. Few captions give a smaller
 * vocabulary. Deterministic: equal captions in equal order give equal bytes, without paths. Returns
 * OK, NOMEM, LIMIT (vocab_size is too small for the characters of the captions, or the model too
 * large), USAGE (no caption with text) or what the source returned; `out` is untouched on
 * failure. */
enum status tokenizer_train(struct byte_buffer *out,
                            uint32_t *piece_count,
                            const struct tokenizer_source *source,
                            const struct tokenizer_train_options *opt,
                            struct error *err);

enum tokenizer_kind {
    TOKENIZER_SENTENCEPIECE,
    TOKENIZER_WORDPIECE,
    TOKENIZER_CLIP_BPE, /* 49,408 ids, begin 49406, end 49407, padding 0 */
    TOKENIZER_BYTE_BPE,
};

/* "sentencepiece", "wordpiece", "clip-bpe" or "byte-bpe". */
const char *tokenizer_kind_name(enum tokenizer_kind kind);

struct tokenizer;

/* Opens a model: ours or any SentencePiece model that has an end piece, or a vocabulary. Without a
 * begin piece the model is SigLIP's (T5's): texts are cleaned as open_clip's canonicalize does, and
 * rows have no begin and are filled up with the end piece. Gemma's model (its begin piece is <bos>)
 * is SigLIP 2's: the same, filled up with its padding. A vocabulary is a text in UTF-8, a piece
 * a line, with the lines [UNK], [CLS] and [SEP] (BERT's vocab.txt, at most 4 MiB). A vocabulary's
 * texts are treated as Hugging Face's BertTokenizerFast does for uncased models, [UNK] [CLS] [SEP]
 * [PAD] [MASK] inside a text included. CLIP's BPE: bpe_simple_vocab_16e6.txt, also packed by gzip,
 * merges.txt of 48,894 merges, or the tokenizer.json of a CLIP model; tokenizer_bytes is one and
 * the same table for all of these. Texts are cleaned and encoded as open_clip does
 * (docs/tokenizers.md names the one difference). Byte-level BPE: a tokenizer.json of Hugging Face
 * with the model BPE, the pre-tokenizer ByteLevel and no normaliser; begin and end are <s> and
 * </s>, else <|endoftext|>. Returns OK, NOMEM, CORRUPT, LIMIT or UNSUPPORTED (no end piece, or a
 * tokenizer.json of another kind). */
enum status tokenizer_open(struct tokenizer **out,
                           const void *model,
                           size_t model_size_bytes,
                           struct error *err);
void tokenizer_close(struct tokenizer *t); /* accepts NULL */

/* OpenAI's BPE of CLIP, which is built in. Returns OK or NOMEM. */
enum status tokenizer_open_clip(struct tokenizer **out, struct error *err);

#define TOKENIZER_CLIP_NAME "clip" /* instead of a file */

/* Opens a file as tokenizer_open does. TOKENIZER_CLIP_NAME is the built-in CLIP tokenizer, unless a
 * file has this name. Messages name the file. Returns what tokenizer_open does, NOTFOUND or IO. */
enum status tokenizer_load(struct tokenizer **out, const char *path, struct error *err);

/* [CLS] pieces [SEP], SigLIP's without [CLS], with the pieces truncated so that there are at most
 * max_tokens ids, which is in [2, TOKENIZER_MAX_TOKENS]. out_ids has room for max_tokens ids;
 * elements after *out_count are not written. `text` may be NULL when size_bytes is 0. Returns OK,
 * NOMEM, or CORRUPT when the model cannot encode (only with a damaged one). */
enum status tokenizer_encode(const struct tokenizer *t,
                             int32_t *out_ids,
                             uint32_t *out_count,
                             const char *text,
                             size_t size_bytes,
                             uint32_t max_tokens,
                             struct error *err);

struct tokenizer_text {
    const char *data; /* may be NULL when size_bytes is 0 */
    size_t size_bytes;
};

/* Encodes `count` texts into rows of exactly max_tokens ids, out_ids (count, max_tokens), each
 * filled up with the padding; out_lengths (count) gets the tokens before the padding. The rest as
 * tokenizer_encode. */
enum status tokenizer_encode_rows(const struct tokenizer *t,
                                  int32_t *out_ids,
                                  int32_t *out_lengths,
                                  const struct tokenizer_text *texts,
                                  size_t count,
                                  uint32_t max_tokens,
                                  struct error *err);

enum tokenizer_kind tokenizer_kind(const struct tokenizer *t);

/* Whether the tokenizer cleans texts by its own rules, as CLIP's and SigLIP's do: then no other
 * cleaning may be applied before. */
bool tokenizer_cleans(const struct tokenizer *t);

int32_t tokenizer_begin_id(const struct tokenizer *t); /* below 0: none */
int32_t tokenizer_end_id(const struct tokenizer *t);
uint32_t tokenizer_vocab_count(const struct tokenizer *t);

/* The padding id; the unknown token if the model has no padding. */
int32_t tokenizer_pad_id(const struct tokenizer *t);

/* The model's bytes, borrowed until close; checkpoints embed them. */
const void *tokenizer_bytes(const struct tokenizer *t, size_t *size_bytes);

/* XXH64 of the model's bytes, as recorded in manifests. */
uint64_t tokenizer_hash(const struct tokenizer *t);

#ifdef __cplusplus
}
#endif

#endif
