/*
 * texts: every caption of a dataset once, tokenized, in the order of text ids. Retrieval evaluation
 * reads them in addition to the images of a sequential loader.
 *
 * Threading : one owner; distinct iterators are independent.
 * Ownership : borrows the dataset and the tokenizer for its life. A batch is borrowed until the
 *             next call.
 * Untrusted : captions may be any bytes.
 */
#ifndef LOADER_TEXTS_H
#define LOADER_TEXTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

struct dataset;   /* formats/dataset/dataset.h */
struct tokenizer; /* formats/tokenizer/tokenizer.h */
struct texts;     /* opaque */

enum { TEXTS_MAX_BATCH = 1 << 20 };

struct texts_options {
    uint32_t batch_count; /* texts per call, [1, TEXTS_MAX_BATCH]; default 256 */
    uint32_t max_tokens;  /* row length, [2, TOKENIZER_MAX_TOKENS]; default 30 */
    bool clean_captions;  /* as in training; default true */
    uint64_t
        position_from;    /* captions of the positions [from, to) in sequential order; default 0 */
    uint64_t position_to; /* UINT64_MAX: to the last; default UINT64_MAX */
};

void texts_options_default(struct texts_options *opt);

struct texts_batch {
    const int32_t *tokens;      /* (count, max_tokens), each row padded at its end */
    const int32_t *lengths;     /* (count) */
    const uint64_t *text_ids;   /* (count), ascending */
    const uint64_t *sample_ids; /* (count) the image each text belongs to */
    uint32_t count;
};

/* Returns OK, NOMEM or INVALID. */
enum status texts_open(struct texts **out,
                       const struct dataset *dataset,
                       const struct tokenizer *tokenizer,
                       const struct texts_options *opt,
                       struct error *err);
void texts_close(struct texts *t); /* accepts NULL */

/* Returns OK with at least one text, END after the last, CORRUPT or NOMEM. */
enum status texts_next(struct texts *t, struct texts_batch *out, struct error *err);

/* Tokenizes one text into a row of max_tokens ids the same way; *out_length is the number of tokens
 * before the padding. For zero-shot prompts and other texts that are not in a dataset. */
enum status texts_encode(const struct tokenizer *tokenizer,
                         int32_t *out_row,
                         int32_t *out_length,
                         const char *text,
                         size_t size_bytes,
                         uint32_t max_tokens,
                         bool clean,
                         struct error *err);

#endif
