/*
 * token_cache: tokens.cct, the token ids of every caption of a dataset by text id, computed once so
 * that loaders need not tokenize. Format: formats/TOKENS_FORMAT.md.
 *
 * Threading : an open cache is immutable and may be read by several threads. A writer has one
 *             owner.
 * Ownership : a cache owns its mapping until token_cache_close.
 * Untrusted : the file. Its trailer is checked at open, a row when it is read, so every changed
 * byte is found.
 */
#ifndef FORMATS_TOKENIZER_TOKEN_CACHE_H
#define FORMATS_TOKENIZER_TOKEN_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/file_io.h"
#include "formats/base/status.h"

#define TOKEN_CACHE_NAME "tokens.cct"

enum {
    TOKEN_CACHE_VERSION = 1,
    TOKEN_CACHE_MAX_PIECES = 4094, /* of a caption: TOKENIZER_MAX_TOKENS without begin and end */
};

/* Everything that the rows depend on. */
struct token_cache_key {
    uint64_t fingerprint; /* of the dataset */
    uint64_t text_count;  /* at most 2^40 */
    uint64_t tokenizer_hash;
    uint32_t vocab_count; /* ids are below, at most 2^31 - 1 */
    bool clean;           /* captions were cleaned before the tokenizer */
};

struct token_cache;

/* `fs` NULL: file_system_of(path). The file is mapped where `fs` can. Returns OK, NOTFOUND,
 * CORRUPT, VERSION, LIMIT, IO or NOMEM. */
enum status token_cache_open(struct token_cache **out,
                             const char *path,
                             const struct file_system *fs,
                             struct error *err);
void token_cache_close(struct token_cache *c); /* accepts NULL */

const struct token_cache_key *token_cache_key(const struct token_cache *c);

/* OK if the cache was made with the key `wanted`, else MISMATCH naming the difference. */
enum status token_cache_fits(const struct token_cache *c,
                             const struct token_cache_key *wanted,
                             struct error *err);

/* Copies the first token ids of a caption, at most max_pieces; *out_count is their number. Requires
 * text_id < text_count. Allocates nothing. Returns OK or CORRUPT. */
enum status token_cache_get(const struct token_cache *c,
                            int32_t *out_pieces,
                            uint32_t *out_count,
                            uint64_t text_id,
                            uint32_t max_pieces,
                            struct error *err);

struct token_cache_writer;

/* Begins a draft of PATH. Returns OK, IO, NOMEM, LIMIT or NOTFOUND (no such directory). */
enum status token_cache_writer_create(struct token_cache_writer **out,
                                      const char *path,
                                      const struct file_system *fs,
                                      const struct token_cache_key *key,
                                      struct error *err);

/* The pieces of the next text id, each in [0, vocab_count); at most TOKEN_CACHE_MAX_PIECES of them,
 * and at most key->text_count calls. Returns OK, NOMEM or IO. */
enum status token_cache_writer_add(struct token_cache_writer *w,
                                   const int32_t *pieces,
                                   uint32_t count,
                                   struct error *err);

/* Requires a row for every text. Renames the file when all of it is on the disk, and replaces an
 * existing one. Returns OK or IO. */
enum status token_cache_writer_finish(struct token_cache_writer *w, struct error *err);

/* Accepts NULL; what was not finished is removed. */
void token_cache_writer_destroy(struct token_cache_writer *w);

#endif
