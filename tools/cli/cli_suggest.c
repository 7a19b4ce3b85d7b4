/*
 * What a wrong name on the command line was meant to be: an option or a value as other tools call
 * it, from the tables below, or else the nearest of ours by edit distance.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/cli.h"
#include "tools/cli/cli_internal.h"

enum { MAX_NAME_BYTES = 64 };

/* Names in PyTorch, open_clip, Hugging Face's Trainer, timm, img2dataset and WebDataset. `theirs`
 * are words with dashes; `ours` are options of some program, with a value where ours needs one. The
 * first of `ours` that the program has is suggested; "." stands for an argument without an option.
 */
struct foreign {
    const char *theirs;
    const char *ours[4];
};

static const struct foreign foreign_options[] = {
    {"batch-size bs train-batch-size per-device-train-batch-size eval-batch-size", {"batch"}},
    {"accum-freq gradient-accumulation-steps grad-accum-steps accumulate-grad-batches",
     {"micro-batch"}},
    {"use-bn-sync sync-batchnorm sync-batch-norm syncbn convert-sync-batchnorm", {"sync-bn"}},
    {"workers num-workers dataloader-num-workers j", {"loader-threads", "threads", "jobs"}},
    {"num-threads nproc num-proc processes-count thread-count n-jobs", {"threads", "jobs"}},
    {"learning-rate base-lr peak-lr", {"lr"}},
    {"wd decay", {"weight-decay"}},
    {"train-data train-dir train-file train dataset dataset-path data-path data-dir root",
     {"data", "."}},
    {"data input path file in", {"data", "."}},
    {"val-data valid validation val-dir val-file validation-file valid-data imagenet-val",
     {"val", "data"}},
    {"eval-data test-data test test-dir", {"val", "data"}},
    {"model model-name model-name-or-path arch backbone vision-model image-encoder",
     {"image-tower", "."}},
    {"text-model text-encoder", {"text-tower"}},
    {"checkpoint ckpt checkpoint-path run", {"resume", "."}},
    {"resume-from-checkpoint resume-from restore auto-resume", {"resume"}},
    {"pretrained pretrained-image weights load initial-checkpoint", {"init", "init-image", "."}},
    {"output output-dir output-folder outdir dest save-dir logs log-dir checkpoint-dir name",
     {"out"}},
    {"num-epochs n-epochs num-train-epochs max-epochs", {"epochs"}},
    {"max-steps num-steps total-steps max-train-steps", {"steps"}},
    {"warmup-epochs warmup-ratio num-warmup-steps", {"warmup-steps"}},
    {"random-seed manual-seed", {"seed"}},
    {"optim opt", {"optimizer"}},
    {"max-grad-norm grad-clip-norm clip-grad clip-grad-norm gradient-clip-val", {"clip-norm"}},
    {"temp logit-scale", {"tau"}},
    {"criterion loss-type objective", {"loss"}},
    {"image-size img-size imgsz input-size resolution image-resolution size force-image-size",
     {"image-size", "size", "resize short:256"}},
    {"context-length max-length max-seq-length", {"max-tokens"}},
    {"projection-dim feature-dim", {"embed-dim"}},
    {"aug augmentation augmentations transform transforms", {"augment"}},
    {"bf16 amp fp16 half mixed-precision dtype torch-dtype", {"precision bf16"}},
    {"save-frequency save-freq save-every save-steps", {"checkpoint-every"}},
    {"save-total-limit", {"keep"}},
    {"val-frequency eval-freq eval-steps eval-interval", {"eval-every"}},
    {"gpu gpus cuda use-cuda accelerator", {"device auto"}},
    {"no-cuda cpu use-cpu", {"device cpu"}},
    {"adam-epsilon eps", {"adam-eps"}},
    {"adam-beta1", {"beta1"}},
    {"adam-beta2", {"beta2"}},
    {"force clobber exist-ok", {"overwrite"}},
    {"image-root image-dir image-folder img-dir", {"images"}},
    {"format input-format source-format type", {"from"}},
    {"caption-col caption-key csv-caption-key text-col text-key", {"caption-column"}},
    {"url-col image-col image-key csv-img-key img-key", {"image-column"}},
    {"output-format", {"container"}},
    {"number-sample-per-shard samples-per-shard maxcount", {"shard-samples"}},
    {"maxsize max-size", {"shard-size"}},
    {"compression-level", {"zstd-level"}},
    {"csv-separator separator sep delim", {"delimiter"}},
    {"encode-quality jpeg-quality", {"quality"}},
    {"min-image-size", {"min-side"}},
    {"resize-mode", {"resize short:256"}},
    {"engine io io-engine", {"io", "engine"}},
    {"limit num n head max-samples num-samples", {"count", "samples"}},
    {"start offset skip", {"from"}},
    {"index idx sample sample-id", {"id"}},
    {"text grep pattern query", {"caption"}},
};

/* Values of choices: theirs, and ours where the option has it. */
static const struct foreign foreign_values[] = {
    {"amp amp-bf16 amp-bfloat16 bf16-mixed bfloat16 pure-bf16 fp16 float16 half", {"bf16"}},
    {"fp32 float32 float single no", {"f32"}},
    {"hf huggingface", {"transformers"}},
    {"pytorch torch pt pth", {"safetensors"}},
    {"adam", {"adamw"}},
    {"sgd momentum", {"sgdm"}},
    {"infonce info-nce contrastive cliploss", {"clip"}},
    {"webdataset tar tars img2dataset", {"wds"}},
    {"imagefolder", {"folders"}},
    {"cls", {"first"}},
    {"avg average", {"mean"}},
    {"true yes 1", {"on"}},
    {"false 0", {"off"}},
};

/* Commands, and the program that has them. */
static const struct foreign command_owners[] = {
    {"info ls show find stats duplicates verify cat extract state popularity order why",
     {"ccdump"}},
    {"fetch merge index tokenizer subset remove repair compact", {"ccpack"}},
    {"retrieval zeroshot debias linear knn mean embed score objective", {"ccstream-eval"}},
    {"loader decode ops step", {"ccbench"}},
    {"toy zeta margin chains gradient blocks batch noise", {"ccstudy"}},
};

/* What other tools call commands. */
static const struct foreign foreign_commands[] = {
    {"summary describe size len count stat meta", {"ccdump info"}},
    {"list head tail dir", {"ccdump ls"}},
    {"view display get inspect print", {"ccdump show"}},
    {"search grep filter query", {"ccdump find"}},
    {"histogram histograms statistics analyze analyse", {"ccdump stats"}},
    {"check validate fsck", {"ccdump verify"}},
    {"unpack untar", {"ccdump extract"}},
    {"delete rm drop", {"ccpack remove"}},
    {"pack create build convert make import", {"ccpack -o DIR"}},
    {"train fit", {"ccstream-train --data"}},
    {"export save", {"ccstream-export"}},
    {"report plot", {"ccstream-report"}},
    {"eval evaluate recall", {"ccstream-eval retrieval"}},
    {"zero-shot classify", {"ccstream-eval zeroshot"}},
    {"vocab tokenize tokenise bpe sentencepiece", {"ccpack tokenizer"}},
};

/* Insert, delete, replace; a swap of neighbours counts as two. */
static size_t name_distance(const char *a, size_t a_size, const char *b) {
    size_t row[MAX_NAME_BYTES];
    size_t b_size = strlen(b);
    if (b_size >= MAX_NAME_BYTES || a_size >= MAX_NAME_BYTES) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= b_size; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_size; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[b_size];
}

void cli_guess_add(struct cli_guess *g, const char *word, size_t n, const char *candidate) {
    const size_t size = strlen(candidate);
    const bool begins = (n >= 3 && strncmp(candidate, word, n) == 0) ||
                        (size >= 3 && n > size && strncmp(candidate, word, size) == 0);
    const size_t distance = begins ? 1 : name_distance(word, n, candidate);
    if (distance <= n / 4 + 1 && (g->best == NULL || distance < g->distance)) {
        g->best = candidate;
        g->distance = distance;
    }
}

/* Lower case, with dashes. False if it is too long to be a name. */
static bool normalise(char out[MAX_NAME_BYTES], const char *name, size_t n) {
    if (n >= MAX_NAME_BYTES) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]);
    }
    out[n] = '\0';
    return true;
}

/* Whether `word` is one of the words of `list`. */
static bool has_word(const char *list, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = list; *at != '\0'; at += strspn(at, " ")) {
        const size_t size = strcspn(at, " ");
        if (size == n && memcmp(at, word, n) == 0) {
            return true;
        }
        at += size;
    }
    return false;
}

static bool has_option(const struct cli_program *p, const char *name, size_t n) {
    const struct cli_option *row;
    for (size_t i = 0; (row = cli_row(p, i)) != NULL; i++) {
        if (strlen(row->name) == n && memcmp(row->name, name, n) == 0) {
            return true;
        }
    }
    return false;
}

/* What the program calls an option of another tool: "precision bf16", "." or NULL. */
static const char *foreign_option(const struct cli_program *p, const char *name) {
    for (size_t i = 0; i < CLI_COUNT(foreign_options); i++) {
        const struct foreign *f = &foreign_options[i];
        for (size_t k = 0; k < CLI_COUNT(f->ours) && f->ours[k] != NULL; k++) {
            const char *ours = f->ours[k];
            const bool fits = strcmp(ours, ".") == 0 ? p->max_arguments > 0
                                                     : has_option(p, ours, strcspn(ours, " "));
            if (fits && has_word(f->theirs, name)) {
                return ours;
            }
        }
    }
    return NULL;
}

const char *cli_foreign_command(const char *name) {
    for (size_t i = 0; i < CLI_COUNT(foreign_commands); i++) {
        if (name[0] != '\0' && has_word(foreign_commands[i].theirs, name)) {
            return foreign_commands[i].ours[0];
        }
    }
    return NULL;
}

const char *cli_owner_of_command(const char *name) {
    for (size_t i = 0; i < CLI_COUNT(command_owners); i++) {
        if (name[0] != '\0' && has_word(command_owners[i].theirs, name)) {
            return command_owners[i].ours[0];
        }
    }
    return NULL;
}

const char *cli_meant_value(const char *const *choices, const char *text) {
    char word[MAX_NAME_BYTES];
    struct cli_guess guess = {0};
    if (!normalise(word, text, strlen(text))) {
        return NULL;
    }
    for (size_t i = 0; i < CLI_COUNT(foreign_values); i++) {
        for (size_t k = 0; choices[k] != NULL; k++) {
            if (strcmp(choices[k], foreign_values[i].ours[0]) == 0 &&
                has_word(foreign_values[i].theirs, word)) {
                return choices[k];
            }
        }
    }
    for (size_t k = 0; choices[k] != NULL; k++) {
        cli_guess_add(&guess, word, strlen(word), choices[k]);
    }
    return guess.best;
}

bool cli_is_known(const struct cli_program *p, const char *name, size_t n) {
    char word[MAX_NAME_BYTES];
    return normalise(word, name, n) && (has_option(p, word, n) || foreign_option(p, word) != NULL);
}

enum status cli_unknown_option(const struct cli_program *p,
                               const char *dashes,
                               const char *name,
                               size_t n,
                               struct error *err) {
    char word[MAX_NAME_BYTES] = "";
    struct cli_guess guess = {0};
    const bool usable = normalise(word, name, n) && n > 1;
    const char *ours = !usable ? NULL : has_option(p, word, n) ? word : foreign_option(p, word);
    const struct cli_option *row;
    for (size_t i = 0; (row = cli_row(p, i)) != NULL; i++) {
        if (usable) {
            cli_guess_add(&guess, word, n, row->name);
        } else if (n == 1 && row->letter == name[0]) {
            ours = row->name;
        }
    }
    if (ours != NULL && strcmp(ours, ".") == 0) {
        return error_set(err, STATUS_USAGE,
                         "unknown option '%s%.*s'; it is an argument without a name: %s %s", dashes,
                         (int)n, name, p->name, p->usage[0]);
    }
    ours = ours != NULL ? ours : guess.best;
    return error_set(err, STATUS_USAGE, "unknown option '%s%.*s'%s%s%s", dashes,
                     n > MAX_NAME_BYTES ? MAX_NAME_BYTES : (int)n, name,
                     ours != NULL ? "; did you mean '--" : "", ours != NULL ? ours : "",
                     ours != NULL ? "'?" : "");
}
