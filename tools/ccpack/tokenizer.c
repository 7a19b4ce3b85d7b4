/*
 * ccpack tokenizer: adds a tokenizer to a dataset, trained on its captions or imported.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "augment/caption.h"
#include "formats/base/clock.h"
#include "formats/dataset/dataset_tokenizer.h"
#include "formats/tokenizer/token_cache.h"
#include "formats/tokenizer/tokenizer.h"
#include "tools/ccpack/ccpack_internal.h"
#include "tools/cli/path_kind.h"

struct tokenizer_cli {
    uint64_t vocab_size;
    int model_type;
    const char *tokenizer;
    bool no_clean;
    bool cache;
    bool overwrite;
    bool json;
    bool quiet;
};

static const char *const model_type_names[] = {"unigram", "bpe", NULL};

static const struct cli_option tokenizer_rows[] = {
    {"cache", 0, CLI_FLAG, CLI_FIELD(struct tokenizer_cli, cache),
     .help = "also write the token ids of all captions to DIR/tokens.cct; keeps an existing "
             "tokenizer of DIR"},
    {"overwrite", 0, CLI_FLAG, CLI_FIELD(struct tokenizer_cli, overwrite), .alias = "force",
     .help = "replace the tokenizer of DIR"},
    {"vocab-size", 0, CLI_U64, CLI_FIELD(struct tokenizer_cli, vocab_size), .min = "16",
     .max = "262144", .default_text = "8192", .metavar = "N",
     .help = "maximum vocabulary size; with few captions it is smaller", .group = "Training"},
    {"model-type", 0, CLI_ENUM, CLI_FIELD(struct tokenizer_cli, model_type),
     .choices = model_type_names, .default_text = "unigram", .metavar = "TYPE",
     .help = "SentencePiece model type"},
    {"no-clean", 0, CLI_FLAG, CLI_FIELD(struct tokenizer_cli, no_clean),
     .help = "use captions as stored, without cleaning, also for --cache"},
    {"tokenizer", 0, CLI_STRING, CLI_FIELD(struct tokenizer_cli, tokenizer), .metavar = "FILE",
     .help = "import instead of train: clip, a SentencePiece model, BERT's vocab.txt (uncased), a "
             "tokenizer.json with byte-level BPE, or CLIP's merges.txt",
     .group = "Importing"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct tokenizer_cli, json),
     .help = "summary as JSON on stdout", .group = "Run"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct tokenizer_cli, quiet), .help = "errors only"},
};

static const struct cli_program tokenizer_program = {
    .name = "ccpack tokenizer",
    .purpose = "trains a tokenizer on the captions of DIR, or imports one",
    .usage = CLI_TEXTS("[options] DIR"),
    .examples = CLI_TEXTS("ccpack tokenizer train --vocab-size 8192",
                          "ccpack tokenizer train --tokenizer vocab.txt",
                          "ccpack tokenizer train --tokenizer clip",
                          "ccpack tokenizer train --cache"),
    .notes = CLI_TEXTS(
        "Writes DIR/tokenizer.model and records its hash in DIR/dataset.json; the dataset's "
        "fingerprint does not change. Training is deterministic.",
        "With more than a million captions it trains on a random but reproducible sample of one "
        "million.",
        "DIR/tokens.cct caches token ids so that the loader need not tokenize. It is ignored if "
        "dataset, tokenizer or cleaning have changed since. It does not change batches and may be "
        "deleted.",
        "Locks DIR, and refuses to start while another run is writing to it.",
        "Ctrl-C leaves DIR unchanged; press it twice while SentencePiece trains."),
    CLI_OPTIONS(tokenizer_rows),
    .arguments = {1, 1},
};

/* ---- captions -------------------------------------------------------------------------------- */

/* All captions of a dataset in text id order, as stored or cleaned. */
struct caption_walk {
    const struct dataset *dataset;
    struct cli_progress *progress;
    bool clean;
    struct caption_reader *reader;
    uint64_t position; /* of the next sample */
    uint32_t caption;  /* the next one of the sample */
    uint64_t count;    /* captions returned */
    struct dataset_sample sample;
    char *cleaned;
    size_t cleaned_bytes;
};

static enum status caption_walk_init(struct caption_walk *w,
                                     const struct dataset *d,
                                     bool clean,
                                     struct cli_progress *progress,
                                     struct error *err) {
    *w = (struct caption_walk){.dataset = d, .clean = clean, .progress = progress};
    return caption_reader_create(&w->reader, d, err);
}

static void caption_walk_fini(struct caption_walk *w) {
    caption_reader_destroy(w->reader);
    free(w->cleaned);
    memset(w, 0, sizeof(*w));
}

/* Moves to the next sample with a caption; END after the last. */
static enum status find_caption(struct caption_walk *w, struct error *err) {
    while (w->caption == w->sample.text_count) {
        if (w->position == dataset_sample_count(w->dataset)) {
            return STATUS_END;
        }
        TRY(dataset_sample_at(w->dataset, w->position++, &w->sample, err));
        w->caption = 0;
    }
    return STATUS_OK;
}

static enum status
clean_caption(struct caption_walk *w, const char **text, size_t *size_bytes, struct error *err) {
    size_t bound = CAPTION_CLEAN_BOUND_BYTES(*size_bytes);
    if (bound > w->cleaned_bytes) {
        char *grown = realloc(w->cleaned, bound);
        TRY_MEMORY(grown, err, "out of memory for a caption");
        w->cleaned = grown;
        w->cleaned_bytes = bound;
    }
    *size_bytes = caption_clean(w->cleaned, *text, *size_bytes);
    *text = w->cleaned;
    return STATUS_OK;
}

/* The next caption, for training a tokenizer. A text is valid until the next call. */
static enum status
caption_walk_next(void *walk, const char **text, size_t *size_bytes, struct error *err) {
    struct caption_walk *w = walk;
    struct shard_text caption;
    FAIL_IF(cli_interrupted(), err, STATUS_INTERRUPTED, "interrupted");
    enum status s = find_caption(w, err);
    if (s != STATUS_OK) {
        return s;
    }
    TRY(caption_reader_get(w->reader, &w->sample, w->caption++, &caption, err));
    *text = caption.data;
    *size_bytes = caption.size_bytes;
    if (w->clean) {
        TRY(clean_caption(w, text, size_bytes, err));
    }
    w->count++;
    cli_progress_update(w->progress, w->count, dataset_text_count(w->dataset), 0, NULL);
    return STATUS_OK;
}

/* ---- tokens.cct ------------------------------------------------------------------------------ */

static enum status add_captions(struct ccpack_cache_result *out,
                                struct token_cache_writer *w,
                                struct caption_walk *walk,
                                const struct tokenizer *t,
                                struct error *err) {
    const char *text = NULL;
    size_t size_bytes = 0;
    const uint32_t begins = tokenizer_begin_id(t) >= 0 ? 1 : 0;
    for (;;) {
        static int32_t ids[TOKENIZER_MAX_TOKENS]; /* one command, one thread */
        uint32_t count = 0;
        enum status s = caption_walk_next(walk, &text, &size_bytes, err);
        if (s == STATUS_END) {
            return STATUS_OK;
        }
        TRY(s);
        TRY(tokenizer_encode(t, ids, &count, text, size_bytes, TOKENIZER_MAX_TOKENS, err));
        count -= 1 + begins; /* without begin and end */
        TRY(token_cache_writer_add(w, ids + begins, count, err));
        out->captions++;
        out->tokens += count;
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
        .clean = clean && !tokenizer_cleans(t),
    };
    *out = (struct ccpack_cache_result){0};
    TRY(path_join(path, sizeof(path), directory, TOKEN_CACHE_NAME, err));
    file_draft_remove_stale(file_posix(), path);
    int64_t started_ns = clock_now_ns();
    cli_progress_init(&progress, "captions", quiet);
    TRY(caption_walk_init(&walk, d, key.clean, &progress, err));
    enum status s = token_cache_writer_create(&w, path, file_posix(), &key, err);
    THEN(s, add_captions(out, w, &walk, t, err));
    THEN(s, token_cache_writer_finish(w, err));
    cli_progress_clear(&progress);
    token_cache_writer_destroy(w);
    caption_walk_fini(&walk);
    out->seconds = (double)(clock_now_ns() - started_ns) / 1e9;
    return s;
}

/* ---- the tokenizer --------------------------------------------------------------------------- */

/* Trains on the dataset's captions; *captions is their number. */
static enum status learn(struct tokenizer **out,
                         uint64_t *captions,
                         const struct dataset *d,
                         const struct tokenizer_cli *o,
                         struct error *err) {
    struct caption_walk walk;
    struct cli_progress progress;
    struct tokenizer_train_options how;
    struct byte_buffer model;
    uint32_t pieces = 0;
    cli_progress_init(&progress, "captions", o->quiet);
    tokenizer_train_options_default(&how);
    how.vocab_size = (uint32_t)o->vocab_size;
    how.model_type = (enum tokenizer_model_type)o->model_type;
    byte_buffer_init(&model, TOKENIZER_MAX_MODEL_BYTES);
    TRY(caption_walk_init(&walk, d, !o->no_clean, &progress, err));
    const struct tokenizer_source source = {caption_walk_next, &walk};
    enum status s = tokenizer_train(&model, &pieces, &source, &how, err);
    cli_progress_clear(&progress);
    if (s == STATUS_OK && cli_interrupted()) {
        s = error_set(err, STATUS_INTERRUPTED, "interrupted");
    }
    THEN(s, tokenizer_open(out, model.data, model.size_bytes, err));
    *captions = walk.count;
    byte_buffer_fini(&model);
    caption_walk_fini(&walk);
    return s;
}

struct outcome {
    struct tokenizer *tokenizer;
    bool kept;         /* DIR had this tokenizer */
    uint64_t captions; /* captions trained on */
    struct ccpack_cache_result cache;
};

static void
report_text(const struct tokenizer_cli *o, const char *directory, const struct outcome *r) {
    const struct tokenizer *t = r->tokenizer;
    cli_print(stderr, "%s/%s: %s, %s", directory, DATASET_TOKENIZER_NAME,
              tokenizer_kind_name(tokenizer_kind(t)),
              cli_format_counted(tokenizer_vocab_count(t), "piece"));
    if (r->kept) {
        cli_print(stderr, ", kept");
    } else if (o->tokenizer) {
        cli_print(stderr, " from %s", o->tokenizer);
    } else {
        cli_print(stderr, "%s from %s",
                  tokenizer_vocab_count(t) < o->vocab_size ? ", fewer than --vocab-size," : "",
                  cli_format_counted(r->captions, "caption"));
    }
    cli_print(stderr, ", hash %016" PRIx64 "\n", tokenizer_hash(t));
    if (o->cache) {
        double rate = r->cache.seconds > 0 ? (double)r->cache.captions / r->cache.seconds : 0;
        cli_print(stderr, "%s/%s: %s of %s, %.0f captions/s\n", directory, TOKEN_CACHE_NAME,
                  cli_format_counted(r->cache.tokens, "token"),
                  cli_format_counted(r->cache.captions, "caption"), rate);
    }
}

static enum status report(const struct tokenizer_cli *o,
                          const char *directory,
                          const struct outcome *r,
                          struct error *err) {
    const struct tokenizer *t = r->tokenizer;
    size_t size_bytes = 0;
    (void)tokenizer_bytes(t, &size_bytes);
    if (!o->quiet) {
        report_text(o, directory, r);
    }
    if (!o->json) {
        return STATUS_OK;
    }
    struct json_writer w;
    cli_begin_json(&w);
    json_string(&w, "kind", tokenizer_kind_name(tokenizer_kind(t)));
    json_u64(&w, "pieces", tokenizer_vocab_count(t));
    json_u64(&w, "captions", r->captions);
    json_u64(&w, "bytes", size_bytes);
    json_hex64(&w, "xxh64", tokenizer_hash(t));
    if (o->cache) {
        json_u64(&w, "cached_captions", r->cache.captions);
        json_u64(&w, "cached_tokens", r->cache.tokens);
        json_double(&w, "cache_seconds", r->cache.seconds);
    }
    return cli_end_json(&w, err);
}

/* Whether DIR has token ids of this tokenizer. `why` is NOTFOUND if it has none at all. */
static bool has_cache(const struct dataset *d, const struct tokenizer *t, struct error *why) {
    const struct token_cache *c = dataset_token_cache(d, why);
    return c && token_cache_key(c)->tokenizer_hash == tokenizer_hash(t);
}

/* Without --overwrite and --tokenizer: --cache uses DIR's tokenizer, and training another one is
 * rejected before any work. A tokenizer without the token ids to be written with it is of an
 * interrupted run: training must reproduce it, else the new one is rejected. */
static enum status find_present(struct outcome *r,
                                const char *directory,
                                const struct dataset *d,
                                const struct tokenizer_cli *o,
                                bool learning_asked,
                                struct error *err) {
    if (o->overwrite || o->tokenizer) {
        return STATUS_OK;
    }
    TRY(dataset_tokenizer_open(&r->tokenizer, directory, dataset_manifest(d), file_posix(), err));
    r->kept = r->tokenizer != NULL;
    struct error why = {0};
    if (r->kept && o->cache && learning_asked && !has_cache(d, r->tokenizer, &why)) {
        tokenizer_close(r->tokenizer);
        r->tokenizer = NULL;
        r->kept = false;
    }
    FAIL_IF(r->kept && (!o->cache || learning_asked), err, STATUS_EXISTS,
            "%s/%s: the dataset has a tokenizer; --overwrite replaces it", directory,
            DATASET_TOKENIZER_NAME);
    return STATUS_OK;
}

/* Token ids of another tokenizer are useless. */
static enum status remove_stale_cache(const char *directory,
                                      const struct dataset *d,
                                      const struct tokenizer *t,
                                      struct error *err) {
    char path[PATH_MAX_BYTES];
    struct error why = {0};
    if (has_cache(d, t, &why) || why.status == STATUS_NOTFOUND) {
        return STATUS_OK;
    }
    TRY(path_join(path, sizeof(path), directory, TOKEN_CACHE_NAME, err));
    return file_posix()->remove(file_posix()->context, path, err);
}

static enum status make(struct outcome *r,
                        const char *directory,
                        const struct dataset *d,
                        const struct tokenizer_cli *o,
                        bool learning_asked,
                        struct error *err) {
    TRY(find_present(r, directory, d, o, learning_asked, err));
    if (!r->kept) {
        TRY(o->tokenizer ? tokenizer_load(&r->tokenizer, o->tokenizer, err)
                         : learn(&r->tokenizer, &r->captions, d, o, err));
        TRY(dataset_tokenizer_store(r->tokenizer, directory, file_posix(), o->overwrite, err));
        TRY(remove_stale_cache(directory, d, r->tokenizer, err));
    }
    if (o->cache) {
        TRY(ccpack_write_cache(&r->cache, directory, d, r->tokenizer, !o->no_clean, o->quiet, err));
    }
    return report(o, directory, r, err);
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct tokenizer_cli *o = options;
    const struct file_system *fs = file_posix();
    const char *directory = a->items[0];
    struct dataset *d = NULL;
    struct file *lock = NULL;
    struct outcome r = {0};
    enum status s;
    bool learning_asked = cli_given(&tokenizer_program, a, "vocab-size") ||
                          cli_given(&tokenizer_program, a, "model-type");
    cli_signals_install();
    FAIL_IF(o->tokenizer && (learning_asked || (o->no_clean && !o->cache)), err, STATUS_USAGE,
            "--tokenizer imports a tokenizer; --vocab-size, --model-type and "
            "--no-clean are for learning one");
    TRY(path_check_local(directory, err));
    TRY(path_check_dataset(directory, err));
    /* A packing run may be replacing what is read here. */
    TRY(fs->lock_directory(fs->context, &lock, directory, err));
    TRY_OR_FAIL(s, dataset_open(&d, directory, NULL, err));
    s = make(&r, directory, d, o, learning_asked, err);
fail:
    tokenizer_close(r.tokenizer);
    dataset_close(d);
    fs->close(lock);
    return s;
}

CLI_MAIN(ccpack_tokenizer_main, tokenizer_program, struct tokenizer_cli, run)
