/*
 * Tokenizes the captions of a dataset into tokens.cct, with the functions that a loader uses.
 */
#include "formats/base/clock.h"
#include "formats/tokenizer/token_cache.h"
#include "tools/ccpack/captions.h"
#include "tools/ccpack/ccpack_internal.h"

static enum status add_captions(struct ccpack_cache_result *out,
                                struct token_cache_writer *w,
                                struct caption_walk *walk,
                                const struct tokenizer *t,
                                struct error *err) {
    const char *text = NULL;
    size_t size_bytes = 0;
    for (;;) {
        static int32_t ids[TOKENIZER_MAX_TOKENS]; /* one command, one thread */
        uint32_t count = 0;
        enum status s = caption_walk_next(walk, &text, &size_bytes, err);
        if (s == STATUS_END) {
            return STATUS_OK;
        }
        TRY(s);
        TRY(tokenizer_encode(t, ids, &count, text, size_bytes, TOKENIZER_MAX_TOKENS, err));
        TRY(token_cache_writer_add(w, ids + 1, count - 2, err)); /* without begin and end */
        out->captions++;
        out->tokens += count - 2;
    }
}

enum status ccpack_write_cache(struct ccpack_cache_result *out,
                               const char *directory,
                               const struct dataset *d,
                               const struct tokenizer *t,
                               bool clean,
                               bool quiet,
                               struct error *err) {
    char path[PATH_MAX_BYTES];
    struct token_cache_writer *w = NULL;
    struct caption_walk walk;
    struct cli_progress progress;
    const struct token_cache_key key = {
        .fingerprint = dataset_fingerprint(d),
        .text_count = dataset_text_count(d),
        .tokenizer_hash = tokenizer_hash(t),
        .vocab_count = tokenizer_vocab_count(t),
        .clean = clean,
    };
    *out = (struct ccpack_cache_result){0};
    TRY(path_join(path, sizeof(path), directory, TOKEN_CACHE_NAME, err));
    int64_t started_ns = clock_now_ns();
    cli_progress_init(&progress, "captions", quiet);
    TRY(caption_walk_init(&walk, d, clean, &progress, err));
    enum status s = token_cache_writer_create(&w, path, file_posix(), &key, err);
    THEN(s, add_captions(out, w, &walk, t, err));
    THEN(s, token_cache_writer_finish(w, err));
    cli_progress_clear(&progress);
    token_cache_writer_destroy(w);
    caption_walk_fini(&walk);
    out->seconds = (double)(clock_now_ns() - started_ns) / 1e9;
    return s;
}
