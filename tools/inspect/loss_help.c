/*
 * loss_help: text generated from loss rows: which losses read an option, and a loss's own defaults.
 */
#include "tools/inspect/loss_help.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "train/loss/loss_row.h"

enum { HELP_BYTES = 600, MAX_LOSSES = 64, MAX_FORMS = 4 };

static void append(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(char *text, const char *format, ...) {
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text + used, HELP_BYTES - used, format, args);
    va_end(args);
}

/* "NAME, NAME: " of the losses that read the option in one of their forms; "" if all do. */
static void append_readers(char *text, int option) {
    const struct loss_row *const *rows = loss_rows();
    const char *last = "";
    bool all = true;
    text[0] = '\0';
    for (size_t i = 0; rows[i] != NULL; i++) {
        const bool reads = loss_may_read(rows[i], (enum loss_option)option);
        all = all && reads;
        if (reads && strcmp(rows[i]->name, last) != 0) {
            append(text, "%s%s", last[0] != '\0' ? ", " : "", rows[i]->name);
            last = rows[i]->name;
        }
    }
    if (all) {
        text[0] = '\0';
    } else {
        append(text, ": ");
    }
}

/* The meaning of 0, if it is not a value. */
static void append_zero(char *text, const struct loss_option_row *row) {
    bool own = false;
    for (size_t i = 0; loss_rows()[i] != NULL && row->kind == LOSS_OPTION_NUMBER; i++) {
        own = own || loss_option_value(&loss_rows()[i]->defaults, row) != 0.0;
    }
    if (own && row->common > 0.0) {
        append(text, "; 0: the loss's own (see Losses), else %.10g", row->common);
    } else if (own) {
        append(text, "; 0: the loss's own (see Losses)");
    }
}

struct texts {
    char help[HELP_BYTES], min[32], max[32], value[32], word[32];
};

/* The row of an option whose default is `value`; t->help is filled. */
static void
fill_option(struct cli_option *out, struct texts *t, size_t offset, int option, double value) {
    const struct loss_option_row *row = &loss_option_rows[option];
    *out = (struct cli_option){.name = row->name,
                               .alias = row->alias,
                               .offset = offset + row->offset,
                               .metavar = "KIND",
                               .group = "Loss",
                               .help = t->help};
    if (row->kind == LOSS_OPTION_CHOICE) {
        out->type = CLI_ENUM;
        out->size_bytes = sizeof(int);
        out->choices = row->choices;
        out->default_text = row->choices[(int)value];
        return;
    }
    (void)snprintf(t->min, sizeof t->min, "%.10g", row->min);
    (void)snprintf(t->max, sizeof t->max, "%.10g", row->max);
    (void)snprintf(t->value, sizeof t->value, "%.10g", value);
    out->type = row->kind == LOSS_OPTION_NUMBER ? CLI_DOUBLE : CLI_U64;
    out->size_bytes = row->kind == LOSS_OPTION_NUMBER ? sizeof(double) : sizeof(uint64_t);
    out->metavar = row->kind == LOSS_OPTION_NUMBER ? "X" : "N";
    out->min = t->min;
    out->max = t->max;
    out->default_text = t->value;
    if (row->automatic) {
        (void)snprintf(t->word, sizeof t->word, "%.10g", LOSS_AUTO);
        out->word = "auto";
        out->word_value = t->word;
        out->default_text = value == LOSS_AUTO ? out->word : t->value;
    }
}

const struct cli_option *loss_help_options(size_t offset, size_t *count) {
    static struct cli_option rows[LOSS_OPTION_COUNT - 1];
    static struct texts texts[LOSS_OPTION_COUNT];
    for (int i = LOSS_OPTION_NONE + 1; i < LOSS_OPTION_COUNT; i++) {
        const struct loss_option_row *row = &loss_option_rows[i];
        append_readers(texts[i].help, i);
        append(texts[i].help, "%s", row->help);
        append_zero(texts[i].help, row);
        fill_option(&rows[i - 1], &texts[i], offset, i, row->value);
    }
    *count = CLI_COUNT(rows);
    return rows;
}

/* "--temperature global or constant", the row's own first; nothing if there is only one. */
static const char *append_temperatures(char *text, const char *before, const struct loss_row *row) {
    const struct loss_option_row *o = &loss_option_rows[LOSS_TEMPERATURE];
    const double value = loss_option_value(&row->defaults, o);
    const int own = (int)(value != 0.0 ? value : o->common);
    const uint64_t others = row->temperatures & ~LOSS_BIT(own);
    if (others == 0 && value == 0.0) {
        return before;
    }
    append(text, "%s--temperature %s", before, o->choices[own]);
    for (int i = 0; o->choices[i] != NULL; i++) {
        append(text, "%s%s", others & LOSS_BIT(i) ? " or " : "",
               others & LOSS_BIT(i) ? o->choices[i] : "");
    }
    return ", ";
}

/* ": --tau 0.01, --gamma 0.2": the row's own defaults, or the differences from a base. */
static void append_own(char *text, const struct loss_row *row, const struct loss_row *base) {
    const char *before = ": ";
    for (int i = LOSS_OPTION_NONE + 1; i < LOSS_OPTION_COUNT; i++) {
        const struct loss_option_row *o = &loss_option_rows[i];
        const double own = loss_option_value(&row->defaults, o);
        const double others = base != NULL ? loss_option_value(&base->defaults, o) : 0.0;
        const double value = own != 0.0 ? own : o->common;
        if (i == LOSS_TEMPERATURE) {
            before = base == NULL ? append_temperatures(text, before, row) : before;
        } else if (loss_may_read(row, (enum loss_option)i) && own != others) {
            append(text, "%s--%s ", before, o->name);
            if (o->kind == LOSS_OPTION_CHOICE) {
                append(text, "%s", o->choices[(int)value]);
            } else {
                append(text, "%.10g", value);
            }
            before = ", ";
        }
    }
}

const struct cli_entry *loss_help_losses(bool brief) {
    static char both_texts[2][MAX_LOSSES][HELP_BYTES];
    static struct cli_entry both_entries[2][MAX_LOSSES + 1];
    char(*texts)[HELP_BYTES] = both_texts[brief];
    struct cli_entry *entries = both_entries[brief];
    const struct loss_row *const *rows = loss_rows();
    const struct loss_row *base = NULL;
    int count = 0;
    for (size_t i = 0; rows[i] != NULL && count < MAX_LOSSES; i++) {
        const struct loss_row *row = rows[i];
        if (base == NULL || strcmp(row->name, base->name) != 0) {
            base = row;
            entries[count] = (struct cli_entry){row->name, texts[count]};
            (void)snprintf(texts[count], HELP_BYTES, "%s (%s)%s", row->what, row->paper,
                           row->views ? "; only with --task two-views" : "");
            if (!brief) {
                append_own(texts[count], row, NULL);
            }
            count++;
        } else if (!brief) {
            append(texts[count - 1], "; %s", row->views ? "--task two-views" : "--variant code");
            append_own(texts[count - 1], row, base);
        }
    }
    return entries;
}

/* ---- one loss ---- */

/* The row's default of an option. */
static double own_default(const struct loss_row *row, const struct loss_option_row *o) {
    const double own = loss_option_value(&row->defaults, o);
    return own != 0.0 ? own : o->value != 0.0 ? o->value : o->common;
}

/* The options that a row of this name reads, with the first row's defaults. */
static size_t fill_topic(struct cli_option *options, struct texts *texts, size_t first) {
    const struct loss_row *const *rows = loss_rows();
    size_t count = 0;
    for (int i = LOSS_OPTION_NONE + 1; i < LOSS_OPTION_COUNT; i++) {
        bool reads = false;
        for (size_t k = first; rows[k] != NULL && strcmp(rows[k]->name, rows[first]->name) == 0;
             k++) {
            reads = reads || loss_may_read(rows[k], (enum loss_option)i);
        }
        if (reads) {
            const struct loss_option_row *o = &loss_option_rows[i];
            (void)snprintf(texts[i].help, HELP_BYTES, "%s", o->help);
            fill_option(&options[count++], &texts[i], 0, i, own_default(rows[first], o));
        }
    }
    return count;
}

/* Rows of the same name: "--task two-views", ": --tau 0.5". */
static void fill_forms(struct cli_entry *entries, char texts[][HELP_BYTES], size_t first) {
    const struct loss_row *const *rows = loss_rows();
    size_t count = 0;
    for (size_t k = first + 1;
         rows[k] != NULL && strcmp(rows[k]->name, rows[first]->name) == 0 && count < MAX_FORMS;
         k++) {
        (void)snprintf(texts[count], HELP_BYTES, "defaults");
        append_own(texts[count], rows[k], rows[first]);
        if (strcmp(texts[count], "defaults") == 0) {
            (void)snprintf(texts[count], HELP_BYTES, "the same defaults");
        }
        entries[count] = (struct cli_entry){rows[k]->views ? "--task two-views" : "--variant code",
                                            texts[count]};
        count++;
    }
    entries[count] = (struct cli_entry){NULL, NULL};
}

const struct cli_program *loss_help_topic(const char *name) {
    static struct texts texts[LOSS_OPTION_COUNT];
    static struct cli_option options[LOSS_OPTION_COUNT];
    static char form_texts[MAX_FORMS][HELP_BYTES];
    static struct cli_entry forms[MAX_FORMS + 1];
    static char title[64], purpose[HELP_BYTES];
    static const char *usage[] = {"--data DIR --out RUN [options]", NULL};
    static struct cli_program topic = {.name = title, .purpose = purpose, .usage = usage};
    const struct loss_row *const *rows = loss_rows();
    size_t first = 0;
    while (rows[first] != NULL && strcmp(rows[first]->name, name) != 0) {
        first++;
    }
    if (rows[first] == NULL) {
        return NULL;
    }
    const struct loss_row *row = rows[first];
    (void)snprintf(title, sizeof title, "ccstream-train --loss %s%s", row->name,
                   row->views ? " --task two-views" : "");
    (void)snprintf(purpose, sizeof purpose, "%s (%s)", row->what, row->paper);
    topic.options = options;
    topic.option_count = fill_topic(options, texts, first);
    fill_forms(forms, form_texts, first);
    topic.list_heading = "Other forms";
    topic.list = forms[0].name != NULL ? forms : NULL;
    return &topic;
}
