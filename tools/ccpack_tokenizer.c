/*
 * ccpack tokenizer: gives a dataset its tokenizer, learnt from its captions or brought along.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/dataset_tokenizer.h"
#include "formats/tokenizer.h"
#include "tools/ccpack_captions.h"
#include "tools/ccpack_internal.h"

struct tokenizer_cli {
    uint64_t vocab_size;
    int model_type;
    const char *tokenizer;
    bool no_clean;
    bool overwrite;
    bool json;
    bool quiet;
};

static const char *const model_type_names[] = {"unigram", "bpe", NULL};

static const struct cli_option tokenizer_rows[] = {
    {"overwrite", 0, CLI_FLAG, CLI_FIELD(struct tokenizer_cli, overwrite),
     .help = "replace another tokenizer that DIR has"},
    {"vocab-size", 0, CLI_U64, CLI_FIELD(struct tokenizer_cli, vocab_size), .min = "16",
     .max = "262144", .default_text = "8192", .metavar = "N",
     .help = "pieces at most; few captions give fewer", .group = "Learning"},
    {"model-type", 0, CLI_ENUM, CLI_FIELD(struct tokenizer_cli, model_type),
     .choices = model_type_names, .default_text = "unigram", .metavar = "TYPE",
     .help = "how SentencePiece cuts words into pieces"},
    {"no-clean", 0, CLI_FLAG, CLI_FIELD(struct tokenizer_cli, no_clean),
     .help = "take the captions as they are stored, not their cleaned form"},
    {"tokenizer", 0, CLI_STRING, CLI_FIELD(struct tokenizer_cli, tokenizer), .metavar = "FILE",
     .help = "learn nothing, store this one: a SentencePiece model, or BERT's vocab.txt (uncased)",
     .group = "Bringing one"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct tokenizer_cli, json),
     .help = "summary as JSON on stdout", .group = "Run"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct tokenizer_cli, quiet), .help = "errors only"},
};

static const struct cli_program tokenizer_program = {
    .name = "ccpack tokenizer",
    .purpose = "gives the dataset in DIR a tokenizer, learnt from its captions or brought along",
    .usage = (const char *const[]){"[options] DIR", NULL},
    .examples = (const char *const[]){"ccpack tokenizer train --vocab-size 8192",
                                      "ccpack tokenizer train --tokenizer vocab.txt", NULL},
    .notes =
        (const char *const[]){
            "It is written to DIR/tokenizer.model and recorded in DIR/dataset.json by hash; the "
            "dataset's fingerprint stays. The same captions give the same bytes.",
            "Of more than a million captions a million are learnt from, drawn evenly and "
            "repeatably.",
            "Ctrl-C leaves DIR as it was; while SentencePiece learns, press it twice.", NULL},
    .options = tokenizer_rows,
    .option_count = CLI_COUNT(tokenizer_rows),
    .min_arguments = 1,
    .max_arguments = 1,
};

/* Trains on the dataset's captions; *captions gets how many there were. */
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
        s = error_set(err, STATUS_INTERRUPTED, "stopped on request");
    }
    if (s == STATUS_OK) {
        s = tokenizer_open(out, model.data, model.size_bytes, err);
    }
    *captions = walk.count;
    byte_buffer_fini(&model);
    caption_walk_fini(&walk);
    return s;
}

static enum status bring(struct tokenizer **out, const char *path, struct error *err) {
    struct byte_buffer model;
    TRY(file_read_all(file_posix(), &model, path, TOKENIZER_MAX_MODEL_BYTES, err));
    enum status s = tokenizer_open(out, model.data, model.size_bytes, err);
    byte_buffer_fini(&model);
    return s;
}

static enum status report(const struct tokenizer_cli *o,
                          const char *directory,
                          const struct tokenizer *t,
                          uint64_t captions,
                          struct error *err) {
    size_t size_bytes = 0;
    (void)tokenizer_bytes(t, &size_bytes);
    if (!o->quiet) {
        char pieces[CLI_TEXT_BYTES], count[CLI_TEXT_BYTES], bytes[CLI_TEXT_BYTES];
        fprintf(stderr, "%s/%s: %s, %s pieces", directory, DATASET_TOKENIZER_NAME,
                tokenizer_kind_name(tokenizer_kind(t)),
                cli_format_count(pieces, tokenizer_vocab_count(t)));
        if (o->tokenizer) {
            fprintf(stderr, " from %s", o->tokenizer);
        } else {
            fprintf(stderr, "%s from %s captions",
                    tokenizer_vocab_count(t) < o->vocab_size ? ", fewer than asked for," : "",
                    cli_format_count(count, captions));
        }
        fprintf(stderr, ", %s, hash %016" PRIx64 "\n", cli_format_bytes(bytes, size_bytes),
                tokenizer_hash(t));
    }
    if (!o->json) {
        return STATUS_OK;
    }
    struct json_writer w;
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    json_string(&w, "kind", tokenizer_kind_name(tokenizer_kind(t)));
    json_u64(&w, "pieces", tokenizer_vocab_count(t));
    json_u64(&w, "captions", captions);
    json_u64(&w, "bytes", size_bytes);
    json_hex64(&w, "xxh64", tokenizer_hash(t));
    json_close_object(&w);
    return ccpack_print_json(&w, err);
}

static enum status refuse_together(const struct cli_arguments *a, struct error *err) {
    static const char *const learning[] = {"vocab-size", "model-type", "no-clean"};
    for (size_t i = 0; i < CLI_COUNT(learning); i++) {
        if (cli_given(&tokenizer_program, a, learning[i])) {
            return error_set(err, STATUS_USAGE,
                             "--tokenizer brings a tokenizer, --%s is about learning one: give one "
                             "of the two",
                             learning[i]);
        }
    }
    return STATUS_OK;
}

/* Whether there is another tokenizer already: asked before the work, not only after it. */
static enum status refuse_another(const char *directory,
                                  const struct dataset *d,
                                  const struct tokenizer_cli *o,
                                  struct error *err) {
    struct tokenizer *t = NULL;
    if (o->overwrite || o->tokenizer) {
        return STATUS_OK;
    }
    enum status s = dataset_tokenizer_open(&t, directory, dataset_manifest(d), file_posix(), err);
    if (s == STATUS_OK && t) {
        s = error_set(err, STATUS_EXISTS,
                      "%s/%s: the dataset has a tokenizer; --overwrite replaces it", directory,
                      DATASET_TOKENIZER_NAME);
    }
    tokenizer_close(t);
    return s;
}

static enum status run(const char *directory, const struct tokenizer_cli *o, struct error *err) {
    struct dataset *d = NULL;
    struct tokenizer *t = NULL;
    uint64_t captions = 0;
    TRY(dataset_open(&d, directory, NULL, err));
    enum status s = refuse_another(directory, d, o, err);
    if (s == STATUS_OK) {
        s = o->tokenizer ? bring(&t, o->tokenizer, err) : learn(&t, &captions, d, o, err);
    }
    if (s == STATUS_OK) {
        s = dataset_tokenizer_store(t, directory, file_posix(), o->overwrite, err);
    }
    if (s == STATUS_OK) {
        s = report(o, directory, t, captions, err);
    }
    tokenizer_close(t);
    dataset_close(d);
    return s;
}

int ccpack_tokenizer_main(int argc, char **argv) {
    struct tokenizer_cli o;
    struct cli_arguments a;
    struct error err = {0};
    enum status s = cli_parse(&tokenizer_program, &o, &a, argc, argv, &err);
    if (s != STATUS_OK) {
        return cli_exit(&tokenizer_program, s, &err);
    }
    cli_signals_install();
    s = o.tokenizer ? refuse_together(&a, &err) : STATUS_OK;
    if (s == STATUS_OK) {
        s = run(a.items[0], &o, &err);
    }
    cli_arguments_fini(&a);
    return cli_exit(&tokenizer_program, s, &err);
}
