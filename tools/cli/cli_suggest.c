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

/* Options and scripts of open_clip, img2dataset, WebDataset and torch's examples. `theirs` are
 * words with dashes; `ours` are options of some program, with a value where ours needs one. The
 * first of `ours` that the program has is suggested; "." stands for an argument without an option.
 */
struct foreign {
    const char *theirs;
    const char *ours[4];
};

static const struct foreign foreign_options[] = {
    {"accum-freq gradient-accumulation-steps", {"micro-batch"}},
    {"use-bn-sync", {"sync-bn"}},
    {"workers num-workers", {"loader-threads", "threads", "jobs"}},
    {"processes-count thread-count", {"threads", "jobs"}},
    {"learning-rate", {"lr"}},
    {"wd", {"weight-decay"}},
    {"train-data", {"data", "."}},
    {"data input url-list", {"data", "."}},
    {"val-data imagenet-val", {"val", "data"}},
    {"model arch", {"image-tower", "."}},
    {"checkpoint", {"resume", "."}},
    {"pretrained pretrained-image", {"init", "init-image", "."}},
    {"output output-dir output-folder save-dir logs name", {"out"}},
    {"num-epochs", {"epochs"}},
    {"max-steps", {"steps"}},
    {"grad-clip-norm max-grad-norm", {"clip-norm"}},
    {"image-size force-image-size", {"image-size", "size", "resize short:256"}},
    {"bf16 amp fp16", {"precision bf16"}},
    {"save-frequency", {"checkpoint-every"}},
    {"val-frequency", {"eval-every"}},
    {"gpu cuda", {"device auto"}},
    {"input-format", {"from"}},
    {"caption-col csv-caption-key", {"caption-column"}},
    {"url-col csv-img-key", {"url-column", "image-column"}},
    {"output-format", {"container"}},
    {"number-sample-per-shard maxcount", {"shard-samples"}},
    {"maxsize", {"shard-size"}},
    {"csv-separator", {"delimiter"}},
    {"encode-quality", {"quality"}},
    {"min-image-size", {"min-side"}},
    {"resize-mode", {"resize short:256"}},
    {"limit n head", {"count", "samples"}},
    {"index", {"id"}},
    {"text", {"caption"}},
};

/* Values of choices: theirs, and ours where the option has it. */
static const struct foreign foreign_values[] = {
    {"amp amp-bf16 amp-bfloat16 bfloat16 fp16", {"bf16"}},
    {"fp32 float32", {"f32"}},
    {"hf huggingface", {"transformers"}},
    {"pytorch torch pt", {"safetensors"}},
    {"sgd", {"sgdm"}},
    {"infonce", {"clip"}},
    {"webdataset tar img2dataset", {"wds"}},
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

/* What users of other tools call commands. */
static const struct foreign foreign_commands[] = {
    {"summary size len count", {"ccdump info"}},
    {"list", {"ccdump ls"}},
    {"view", {"ccdump show"}},
    {"search grep filter", {"ccdump find"}},
    {"check validate", {"ccdump verify"}},
    {"unpack", {"ccdump extract"}},
    {"delete rm", {"ccpack remove"}},
    {"pack create convert", {"ccpack -o DIR"}},
    {"train", {"ccstream-train --data"}},
    {"export", {"ccstream-export"}},
    {"report", {"ccstream-report"}},
    {"eval", {"ccstream-eval retrieval"}},
    {"zero-shot", {"ccstream-eval zeroshot"}},
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
    FAIL_IF(ours != NULL && strcmp(ours, ".") == 0, err, STATUS_USAGE,
            "unknown option '%s%.*s'; it is an argument without a name: %s %s", dashes, (int)n,
            name, p->name, p->usage[0]);
    ours = ours != NULL ? ours : guess.best;
    return error_set(err, STATUS_USAGE, "unknown option '%s%.*s'%s%s%s", dashes,
                     n > MAX_NAME_BYTES ? MAX_NAME_BYTES : (int)n, name,
                     ours != NULL ? "; did you mean '--" : "", ours != NULL ? ours : "",
                     ours != NULL ? "'?" : "");
}
