/*
 * Suggestions for a wrong name on the command line: our name for an option or value of another
 * tool, from the tables below, or else the nearest of our names by edit distance.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/cli.h"
#include "tools/cli/cli_internal.h"

enum { MAX_NAME_BYTES = 64 };

/* Options and values of open_clip, WebDataset and img2dataset, and our names: options of some
 * program, with a value if ours requires one, or values. The first row that the program can use is
 * suggested. */
static const struct {
    const char *theirs, *ours;
} foreign[] = {
    {"num-workers", "loader-threads"},
    {"num-workers", "threads"},
    {"num-workers", "jobs"},
    {"workers", "loader-threads"},
    {"workers", "threads"},
    {"workers", "jobs"},
    {"train-data", "data"},
    {"val-data", "val"},
    {"learning-rate", "lr"},
    {"wd", "weight-decay"},
    {"accum-freq", "micro-batch"},
    {"pretrained", "init"},
    {"image-size", "size"},
    {"image-size", "resize short:256"},
    {"amp", "precision bf16"},
    {"amp", "bf16"},
    {"amp-bf16", "bf16"},
    {"fp32", "f32"},
    {"sgd", "sgdm"},
    {"webdataset", "wds"},
    {"hf", "transformers"},
};

/* Commands, and the program that has them. */
static const struct {
    const char *program, *commands;
} command_owners[] = {
    {"ccdump", "info ls show find stats duplicates verify cat extract state popularity order why"},
    {"ccpack", "attach detach fetch merge index plan tokenizer subset remove repair compact seal"},
    {"ccstream-eval", "retrieval zeroshot suite debias linear knn mean embed score objective"},
    {"ccbench", "loader ops step loss"},
};

/* Edit distance: insert, delete, replace; a swap of neighbours counts as two. */
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

static bool has_option(const struct cli_program *p, const char *name, size_t n) {
    const struct cli_option *row;
    for (size_t i = 0; (row = cli_row(p, i)) != NULL; i++) {
        if (strlen(row->name) == n && memcmp(row->name, name, n) == 0) {
            return true;
        }
    }
    return false;
}

/* What the program calls an option of another tool: "lr", "precision bf16" or NULL. */
static const char *foreign_option(const struct cli_program *p, const char *name) {
    for (size_t i = 0; i < CLI_COUNT(foreign); i++) {
        const char *ours = foreign[i].ours;
        if (strcmp(foreign[i].theirs, name) == 0 && has_option(p, ours, strcspn(ours, " "))) {
            return ours;
        }
    }
    return NULL;
}

const char *cli_owner_of_command(const char *name) {
    const size_t n = strlen(name);
    for (size_t i = 0; i < CLI_COUNT(command_owners); i++) {
        for (const char *at = command_owners[i].commands; n > 0 && *at != '\0';) {
            const size_t size = strcspn(at, " ");
            if (size == n && memcmp(at, name, n) == 0) {
                return command_owners[i].program;
            }
            at += size + strspn(at + size, " ");
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
    for (size_t i = 0; i < CLI_COUNT(foreign); i++) {
        for (size_t k = 0; choices[k] != NULL; k++) {
            if (strcmp(choices[k], foreign[i].ours) == 0 && strcmp(foreign[i].theirs, word) == 0) {
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
    ours = ours != NULL ? ours : guess.best;
    return error_set(err, STATUS_USAGE, "unknown option '%s%.*s'%s%s%s", dashes,
                     n > MAX_NAME_BYTES ? MAX_NAME_BYTES : (int)n, name,
                     ours != NULL ? "; did you mean '--" : "", ours != NULL ? ours : "",
                     ours != NULL ? "'?" : "");
}
