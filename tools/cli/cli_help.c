/*
 * --help, the configuration as JSON, the farewell, and programs with subcommands: everything that
 * prints from a program's table.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/json_writer.h"
#include "tools/cli/cli.h"
#include "tools/cli/cli_internal.h"

enum { HELP_WIDTH = 100, HELP_COLUMN_MAX = 34 };

/* Bytes of a word that fit into `room`: a list such as "a|b|c" may be broken behind a bar. */
static size_t fitting(const char *text, size_t word, size_t room) {
    size_t fits = room;
    while (word > room && fits > 0 && text[fits - 1] != '|') {
        fits--;
    }
    return word > room && fits > 0 ? fits : word;
}

/* Writes `text` wrapped at HELP_WIDTH; the cursor stands at `column`, later lines start at
 * `indent`. Ends the line. */
static void print_wrapped(FILE *out, const char *text, size_t column, size_t indent) {
    while (*text != '\0') {
        size_t word = fitting(text, strcspn(text, " "), HELP_WIDTH - indent);
        if (column > indent && column + 1 + word > HELP_WIDTH) {
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)word, text);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

/* "-o, --out DIR" */
static size_t option_left(const struct cli_option *row, char *out, size_t size) {
    char letter[8] = "    ";
    if (row->letter != 0) {
        snprintf(letter, sizeof(letter), "-%c, ", row->letter);
    }
    int n = snprintf(out, size, "  %s--%s%s%s", letter, row->name, row->metavar != NULL ? " " : "",
                     row->metavar != NULL ? row->metavar : "");
    return n > 0 ? (size_t)n : 0;
}

static void add(char *text, size_t size, const char *piece) {
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s", piece);
}

/* "help [1..256, default 4]" */
static void option_right(const struct cli_option *row, char *out, size_t size) {
    char facts[512] = "";
    if (row->type == CLI_ENUM) {
        for (int i = 0; row->choices[i] != NULL; i++) {
            add(facts, sizeof(facts), i > 0 ? "|" : "");
            add(facts, sizeof(facts), row->choices[i]);
        }
    } else if (row->min != NULL && row->max != NULL) {
        add(facts, sizeof(facts), row->min);
        add(facts, sizeof(facts), "..");
        add(facts, sizeof(facts), row->max);
    } else if (row->min != NULL || row->max != NULL) {
        add(facts, sizeof(facts), row->min != NULL ? "at least " : "at most ");
        add(facts, sizeof(facts), row->min != NULL ? row->min : row->max);
    }
    if (row->default_text != NULL && row->default_text[0] != '\0') {
        add(facts, sizeof(facts), facts[0] != '\0' ? ", default " : "default ");
        add(facts, sizeof(facts), row->default_text);
    }
    if (row->required) {
        add(facts, sizeof(facts), facts[0] != '\0' ? ", required" : "required");
    }
    if (row->type == CLI_LIST) {
        add(facts, sizeof(facts), facts[0] != '\0' ? ", may be repeated" : "may be repeated");
    }
    snprintf(out, size, "%s%s%s%s", row->help, facts[0] != '\0' ? " [" : "", facts,
             facts[0] != '\0' ? "]" : "");
}

static void print_row(FILE *out, const char *left, const char *right, size_t column) {
    size_t width = strlen(left);
    fputs(left, out);
    if (width + 2 > column) {
        fputc('\n', out);
        width = 0;
    }
    fprintf(out, "%*s", (int)(column - width), "");
    print_wrapped(out, right, column, column);
}

static size_t help_column(const struct cli_program *p) {
    size_t column = strlen("      --version") + 2;
    char left[256];
    for (size_t i = 0; i < p->option_count; i++) {
        size_t width = option_left(&p->options[i], left, sizeof(left)) + 2;
        if (width > column && width <= HELP_COLUMN_MAX) {
            column = width;
        }
    }
    return column;
}

static void print_options(const struct cli_program *p, FILE *out) {
    size_t column = help_column(p);
    const char *group = "Options";
    bool headed = false;
    for (size_t i = 0; i < p->option_count; i++) {
        const struct cli_option *row = &p->options[i];
        if (row->group != NULL && strcmp(row->group, group) != 0) {
            group = row->group;
            headed = false;
        }
        if (!headed) {
            fprintf(out, "\n%s:\n", group);
            headed = true;
        }
        char left[256];
        char right[1024];
        option_left(row, left, sizeof(left));
        option_right(row, right, sizeof(right));
        print_row(out, left, right, column);
    }
    fputs("\nAlways:\n", out);
    bool taken = false;
    for (size_t i = 0; i < p->option_count; i++) {
        taken = taken || p->options[i].letter == 'h';
    }
    print_row(out, taken ? "      --help" : "  -h, --help", "this text", column);
    print_row(out, "      --version", "name and version", column);
}

/* A command line, broken at spaces with a backslash so that it can still be copied as a whole. A
 * quoted text stays on one line. */
static void print_command(FILE *out, const char *text) {
    size_t column = (size_t)fprintf(out, "  ");
    bool first = true;
    while (*text != '\0') {
        size_t word = 0;
        for (char quote = 0; text[word] != '\0' && (quote != 0 || text[word] != ' '); word++) {
            if (quote != 0 ? text[word] == quote : text[word] == '\'' || text[word] == '"') {
                quote = quote != 0 ? 0 : text[word];
            }
        }
        if (!first && column + 1 + word + strlen(" \\") > HELP_WIDTH) {
            column = (size_t)fprintf(out, " \\\n      ") - strlen(" \\\n");
        } else if (!first) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)word, text);
        column += word;
        first = false;
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void print_examples(const char *const *examples, FILE *out) {
    if (examples == NULL || examples[0] == NULL) {
        return;
    }
    fputs("\nExamples:\n", out);
    for (size_t i = 0; examples[i] != NULL; i++) {
        print_command(out, examples[i]);
    }
}

void cli_print_help(const struct cli_program *p, FILE *out) {
    fprintf(out, "%s: ", p->name);
    print_wrapped(out, p->purpose, strlen(p->name) + 2, strlen(p->name) + 2);
    fputc('\n', out);
    for (size_t i = 0; p->usage[i] != NULL; i++) {
        fprintf(out, "%s %s %s\n", i == 0 ? "usage:" : "      ", p->name, p->usage[i]);
    }
    print_options(p, out);
    for (size_t i = 0; p->notes != NULL && p->notes[i] != NULL; i++) {
        fputc('\n', out);
        print_wrapped(out, p->notes[i], 0, 0);
    }
    print_examples(p->examples, out);
}

static void config_value(struct json_writer *w, const struct cli_option *row, const void *options) {
    const void *field = cli_field_const(row, options);
    switch (row->type) {
    case CLI_FLAG:
        json_bool(w, row->name, *(const bool *)field);
        break;
    case CLI_STRING: {
        const char *text = *(const char *const *)field;
        if (text != NULL) {
            json_string(w, row->name, text);
        } else {
            json_null(w, row->name);
        }
        break;
    }
    case CLI_ENUM:
        json_string(w, row->name, row->choices[*(const int *)field]);
        break;
    case CLI_U64:
        json_u64(w, row->name, *(const uint64_t *)field);
        break;
    case CLI_I64:
        json_i64(w, row->name, *(const int64_t *)field);
        break;
    case CLI_DOUBLE:
        json_double(w, row->name, *(const double *)field);
        break;
    case CLI_LIST: {
        const struct cli_list *list = field;
        json_open_array(w, row->name);
        for (size_t i = 0; i < list->count; i++) {
            json_string(w, NULL, list->items[i]);
        }
        json_close_array(w);
        break;
    }
    }
}

enum status cli_config_json(const struct cli_program *p,
                            const void *options,
                            struct byte_buffer *out,
                            struct error *err) {
    struct json_writer w;
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    for (size_t i = 0; i < p->option_count; i++) {
        config_value(&w, &p->options[i], options);
    }
    json_close_object(&w);
    enum status s = json_writer_status(&w, err);
    if (s == STATUS_OK) {
        s = byte_buffer_append(out, w.out.data, w.out.size_bytes, err);
    }
    json_writer_fini(&w);
    return s;
}

int cli_exit(const struct cli_program *p, enum status s, const struct error *err) {
    if (s == STATUS_OK || s == STATUS_END) {
        if (fflush(stdout) != 0) {
            fprintf(stderr, "%s: cannot write to standard output\n", p->name);
            return status_exit_code(STATUS_IO);
        }
        return status_exit_code(STATUS_OK);
    }
    fflush(stdout);
    const char *text = err != NULL && err->text[0] != '\0' ? err->text : status_text(s);
    fprintf(stderr, "%s: %s\n", p->name, text);
    if (s == STATUS_USAGE) {
        fprintf(stderr, "%s: '%s --help' lists every option\n", p->name, p->name);
    }
    return status_exit_code(s);
}

static void suite_help(const struct cli_suite *suite, FILE *out) {
    fprintf(out, "%s: %s\n\nusage: %s COMMAND [options] ...\n\nCommands:\n", suite->name,
            suite->purpose, suite->name);
    for (size_t i = 0; i < suite->command_count; i++) {
        char left[64];
        snprintf(left, sizeof(left), "  %s", suite->commands[i].name);
        print_row(out, left, suite->commands[i].purpose, 16);
    }
    fprintf(out, "\n'%s COMMAND --help' lists a command's options.\n", suite->name);
    print_examples(suite->examples, out);
}

int cli_suite_main(const struct cli_suite *suite, int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < suite->command_count; i++) {
        if (strcmp(word, suite->commands[i].name) == 0) {
            return suite->commands[i].run(argc - 1, argv + 1);
        }
    }
    if (suite->otherwise != NULL) {
        return suite->otherwise(argc, argv);
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        suite_help(suite, stdout);
        return EXIT_SUCCESS;
    }
    if (strcmp(word, "--version") == 0) {
        printf("%s %s (ccstream)\n", suite->name, CCSTREAM_VERSION);
        return EXIT_SUCCESS;
    }
    if (argc > 1) {
        fprintf(stderr, "%s: no command '%s'; '%s --help' lists them\n", suite->name, word,
                suite->name);
    } else {
        suite_help(suite, stderr);
    }
    return status_exit_code(STATUS_USAGE);
}
