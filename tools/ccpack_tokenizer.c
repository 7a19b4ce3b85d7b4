/*
 * ccpack tokenizer: a dataset's captions to a vocabulary.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "augment/caption.h"
#include "formats/dataset.h"
#include "formats/tokenizer.h"
#include "pack/pack.h"
#include "tools/ccpack_internal.h"

struct tokenizer_cli {
    uint64_t vocab_size;
    bool no_clean;
    bool json;
    bool quiet;
};

static const struct cli_option tokenizer_rows[] = {
    {"vocab-size", 0, CLI_U64, CLI_FIELD(struct tokenizer_cli, vocab_size), .min = "16",
     .max = "262144", .default_text = "8192", .metavar = "N",
     .help = "pieces at most; few captions give fewer"},
    {"no-clean", 0, CLI_FLAG, CLI_FIELD(struct tokenizer_cli, no_clean),
     .help = "learn from the captions as they are stored, not from their cleaned form"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct tokenizer_cli, json),
     .help = "summary as JSON on stdout"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct tokenizer_cli, quiet), .help = "errors only"},
};

static const struct cli_program tokenizer_program = {
    .name = "ccpack tokenizer",
    .purpose = "learns a vocabulary from a dataset's captions and writes DIR/tokenizer.model",
    .usage = (const char *const[]){"[options] DIR", NULL},
    .examples = (const char *const[]){"ccpack tokenizer train --vocab-size 8192", NULL},
    .options = tokenizer_rows,
    .option_count = CLI_COUNT(tokenizer_rows),
    .min_arguments = 1,
    .max_arguments = 1,
};

/* The captions of a dataset, one after the other. */
struct caption_walk {
    const struct dataset *dataset;
    struct caption_reader *reader;
    bool clean;
    uint64_t position;
    uint32_t caption;
    uint64_t count;
    struct dataset_sample sample; /* at `position`, once caption > 0 */
    char *cleaned;
    size_t cleaned_bytes;
};

static enum status
next_caption(void *cookie, const char **text, size_t *size_bytes, struct error *err) {
    struct caption_walk *w = cookie;
    if (cli_interrupted()) {
        return error_set(err, STATUS_INTERRUPTED, "stopped on request");
    }
    while (w->caption == 0 || w->caption == w->sample.text_count) {
        if (w->position == dataset_sample_count(w->dataset)) {
            return STATUS_END;
        }
        TRY(dataset_sample_at(w->dataset, w->position++, &w->sample, err));
        w->caption = 0;
        if (w->sample.text_count > 0) {
            break;
        }
    }
    struct shard_text caption;
    TRY(caption_reader_get(w->reader, &w->sample, w->caption++, &caption, err));
    w->count++;
    *text = caption.data;
    *size_bytes = caption.size_bytes;
    if (w->clean) {
        size_t bound = CAPTION_CLEAN_BOUND_BYTES(caption.size_bytes);
        if (bound > w->cleaned_bytes) {
            char *grown = realloc(w->cleaned, bound);
            if (!grown) {
                return error_set(err, STATUS_NOMEM, "out of memory for a caption");
            }
            w->cleaned = grown;
            w->cleaned_bytes = bound;
        }
        *text = w->cleaned;
        *size_bytes = caption_clean(w->cleaned, caption.data, caption.size_bytes);
    }
    return STATUS_OK;
}

struct tokenizer_result {
    uint32_t pieces;
    uint64_t captions;
    size_t bytes;
};

static enum status learn(const struct dataset *d,
                         const char *directory,
                         const struct tokenizer_cli *o,
                         struct tokenizer_result *out,
                         struct error *err) {
    struct caption_walk walk = {.dataset = d, .clean = !o->no_clean};
    struct tokenizer_source source = {next_caption, &walk};
    struct tokenizer_train_options how;
    struct byte_buffer model;
    char path[PATH_MAX_BYTES];
    TRY(path_join(path, sizeof(path), directory, PACK_TOKENIZER_NAME, err));
    TRY(caption_reader_create(&walk.reader, d, err));
    tokenizer_train_options_default(&how);
    how.vocab_size = (uint32_t)o->vocab_size;
    byte_buffer_init(&model, TOKENIZER_MAX_MODEL_BYTES);
    enum status s = tokenizer_train(&model, &out->pieces, &source, &how, err);
    if (s == STATUS_OK) {
        s = file_write_atomic(file_posix(), path, model.data, model.size_bytes, err);
    }
    out->captions = walk.count;
    out->bytes = model.size_bytes;
    byte_buffer_fini(&model);
    caption_reader_destroy(walk.reader);
    free(walk.cleaned);
    return s;
}

static enum status report_tokenizer(const struct tokenizer_cli *o,
                                    const char *directory,
                                    const struct tokenizer_result *r,
                                    struct error *err) {
    if (!o->quiet) {
        char pieces[CLI_TEXT_BYTES], captions[CLI_TEXT_BYTES], bytes[CLI_TEXT_BYTES];
        fprintf(stderr, "%s/tokenizer.model: %s pieces from %s captions, %s\n", directory,
                cli_format_count(pieces, r->pieces), cli_format_count(captions, r->captions),
                cli_format_bytes(bytes, r->bytes));
    }
    if (!o->json) {
        return STATUS_OK;
    }
    struct json_writer w;
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    json_u64(&w, "pieces", r->pieces);
    json_u64(&w, "captions", r->captions);
    json_u64(&w, "bytes", r->bytes);
    json_close_object(&w);
    return ccpack_print_json(&w, err);
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
    struct dataset *d = NULL;
    struct tokenizer_result result = {0};
    s = dataset_open(&d, a.items[0], NULL, &err);
    if (s == STATUS_OK) {
        s = learn(d, a.items[0], &o, &result, &err);
    }
    if (s == STATUS_OK) {
        s = report_tokenizer(&o, a.items[0], &result, &err);
    }
    dataset_close(d);
    cli_arguments_fini(&a);
    return cli_exit(&tokenizer_program, s, &err);
}
