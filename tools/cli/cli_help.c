/*
 * Everything that is printed from a program's table: --help, the configuration as JSON, the message
 * at exit; and programs with subcommands.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/cli.h"
#include "tools/cli/cli_internal.h"
#include "tools/cli/cli_text.h"

enum { HELP_WIDTH = 100, HELP_COLUMN_MAX = 34, LIST_COLUMN = 16 };

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

/* Appends to facts, after a comma if there are some. */
static void add(char facts[512], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(char facts[512], const char *fmt, ...) {
    va_list arguments;
    size_t used = strlen(facts);
    used += (size_t)snprintf(facts + used, 512 - used, "%s", used > 0 ? ", " : "");
    va_start(arguments, fmt);
    (void)vsnprintf(facts + used, 512 - used, fmt, arguments);
    va_end(arguments);
}

/* "help [1..256, default 4]" */
static void option_right(const struct cli_option *row, char *out, size_t size) {
    char facts[512] = "";
    const char *word = row->word != NULL ? row->word : "";
    const char * or = row->word != NULL ? " or " : "";
    if (row->type == CLI_ENUM) {
        for (int i = 0; row->choices[i] != NULL; i++) {
            const size_t used = strlen(facts);
            snprintf(facts + used, sizeof(facts) - used, "%s%s", i > 0 ? "|" : "", row->choices[i]);
        }
    } else if (row->min != NULL && row->max != NULL) {
        add(facts, "%s..%s%s%s", row->min, row->max, or, word);
    } else if (row->min != NULL || row->max != NULL) {
        add(facts, "%s %s%s%s", row->min != NULL ? "at least" : "at most",
            row->min != NULL ? row->min : row->max, or, word);
    }
    if (row->default_text != NULL && row->default_text[0] != '\0') {
        add(facts, "default %s", row->default_text);
    }
    if (row->required) {
        add(facts, "required");
    }
    if (row->type == CLI_LIST) {
        add(facts, "may be repeated");
    }
    const bool any = facts[0] != '\0';
    snprintf(out, size, "%s%s%s%s", row->help, any ? " [" : "", facts, any ? "]" : "");
}

static void print_row(FILE *out, const char *left, const char *right, size_t column) {
    size_t width = strlen(left);
    fputs(left, out);
    if (width + 2 > column) {
        fputc('\n', out);
        width = 0;
    }
    fprintf(out, "%*s", (int)(column - width), "");
    cli_text_wrap(out, right, strlen(right), column, HELP_WIDTH);
}

static size_t help_column(const struct cli_program *p) {
    size_t column = strlen("      --version") + 2;
    char left[256];
    const struct cli_option *row;
    for (size_t i = 0; (row = cli_row(p, i)) != NULL; i++) {
        size_t width = option_left(row, left, sizeof(left)) + 2;
        if (width > column && width <= HELP_COLUMN_MAX) {
            column = width;
        }
    }
    return column;
}

static void print_options(const struct cli_program *p, FILE *out) {
    size_t column = help_column(p);
    const char *group = "Options";
    const struct cli_option *row;
    bool headed = false;
    bool taken = false; /* the letter h */
    for (size_t i = 0; (row = cli_row(p, i)) != NULL; i++) {
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
        taken = taken || row->letter == 'h';
    }
    fputs("\nAlways:\n", out);
    print_row(out, taken ? "      --help" : "  -h, --help",
              p->help_help != NULL ? p->help_help : "this text", column);
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
    cli_text_wrap(out, p->purpose, strlen(p->purpose), strlen(p->name) + 2, HELP_WIDTH);
    fputc('\n', out);
    for (size_t i = 0; p->usage[i] != NULL; i++) {
        fprintf(out, "%s %s %s\n", i == 0 ? "usage:" : "      ", p->name, p->usage[i]);
    }
    print_options(p, out);
    if (p->list != NULL) {
        fprintf(out, "\n%s:\n", p->list_heading);
    }
    for (size_t i = 0; p->list != NULL && p->list[i].name != NULL; i++) {
        char left[64];
        snprintf(left, sizeof(left), "  %s", p->list[i].name);
        print_row(out, left, p->list[i].text, LIST_COLUMN);
    }
    for (size_t i = 0; p->notes != NULL && p->notes[i] != NULL; i++) {
        fputc('\n', out);
        cli_text_wrap(out, p->notes[i], strlen(p->notes[i]), 0, HELP_WIDTH);
    }
    print_examples(p->examples, out);
}

static void config_value(struct json_writer *w, const struct cli_option *row, const void *options) {
    const void *field = cli_field_const(row, options);
    if (cli_is_word(row, field)) {
        json_string(w, row->name, row->word);
        return;
    }
    switch (row->type) {
    case CLI_FLAG:
    case CLI_NO:
        json_bool(w, row->name, *(const bool *)field == (row->type == CLI_FLAG));
        break;
    case CLI_STRING:
        json_string(w, row->name, *(const char *const *)field);
        break;
    case CLI_ENUM:
        json_string(w, row->name, row->choices[cli_whole_number(row, field)]);
        break;
    case CLI_U64:
        json_u64(w, row->name, cli_whole_number(row, field));
        break;
    case CLI_I64:
        json_i64(w, row->name, *(const int64_t *)field);
        break;
    case CLI_DOUBLE:
        json_double(w, row->name, *(const double *)field);
        break;
    case CLI_LIST: {
        const struct cli_list *list = field;
        json_strings(w, row->name, list->items, list->count);
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
    const struct cli_option *row;
    for (size_t i = 0; (row = cli_row(p, i)) != NULL; i++) {
        config_value(&w, row, options);
    }
    json_close_object(&w);
    enum status s = json_writer_status(&w, err);
    THEN(s, byte_buffer_append(out, w.out.data, w.out.size_bytes, err));
    json_writer_fini(&w);
    return s;
}

int cli_exit(const struct cli_program *p, enum status s, const struct error *err) {
    const bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (s == STATUS_OK || s == STATUS_END) {
        if (!written) {
            cli_print(stderr, "%s: cannot write to standard output\n", p->name);
        }
        return status_exit_code(written ? STATUS_OK : STATUS_IO);
    }
    const char *text = err != NULL && err->text[0] != '\0' ? err->text : status_text(s);
    cli_print(stderr, "%s: %s\n", p->name, text);
    const bool about_options = strstr(text, "--") != NULL || strstr(text, "usage:") != NULL;
    if (s == STATUS_USAGE && about_options) {
        cli_print(stderr, "%s: '%s --help%s' lists every option\n", p->name, p->name,
                  p->topic != NULL ? " all" : "");
    }
    return status_exit_code(s);
}

static const char *command_name = "ccstream";

const char *cli_command_name(void) {
    return command_name;
}

int cli_main(const struct cli_program *p,
             void *options,
             enum status (*run)(const void *options,
                                const struct cli_arguments *a,
                                struct error *err),
             int argc,
             char **argv) {
    struct cli_arguments a;
    struct error err = {0};
    command_name = p->name;
    cli_catch_sigbus();
    enum status s = cli_parse(p, options, &a, argc, argv, &err);
    if (s == STATUS_OK) {
        s = run(options, &a, &err);
        cli_arguments_fini(&a);
    }
    return cli_exit(p, s, &err);
}

/* ---- results on stdout ----------------------------------------------------------------------- */

enum status cli_put(const void *data, size_t size_bytes, struct error *err) {
    FAIL_ERRNO_IF(size_bytes > 0 && fwrite(data, 1, size_bytes, stdout) != size_bytes, err,
                  "cannot write to standard output");
    return STATUS_OK;
}

enum status cli_put_json(struct json_writer *w, struct error *err) {
    json_newline(w);
    TRY(json_writer_status(w, err));
    TRY(cli_put(w->out.data, w->out.size_bytes, err));
    json_writer_reset(w);
    return STATUS_OK;
}

void cli_begin_json(struct json_writer *w) {
    json_writer_init(w, 0);
    json_open_object(w, NULL);
}

enum status cli_end_json(struct json_writer *w, struct error *err) {
    json_close_object(w);
    const enum status s = cli_put_json(w, err);
    json_writer_fini(w);
    return s;
}

/* ---- programs with subcommands --------------------------------------------------------------- */

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

/* The command meant by a first word that is not a command, or NULL; *owner is the program that has
 * it, or "". */
static const char *
meant_command(const struct cli_suite *suite, const char *word, const char **owner) {
    struct cli_guess guess = {0};
    *owner = cli_owner_of_command(word);
    for (size_t i = 0; i < suite->command_count && *owner == NULL; i++) {
        cli_guess_add(&guess, word, strlen(word), suite->commands[i].name);
    }
    const char *command = *owner != NULL ? word : guess.best;
    *owner = *owner != NULL ? *owner : "";
    return command;
}

static int unknown_command(const struct cli_suite *suite, const char *word) {
    const char *owner;
    const char *meant = meant_command(suite, word, &owner);
    cli_print(stderr, "%s: no command '%s'; ", suite->name, word);
    if (word[0] == '-' || access(word, F_OK) == 0) {
        cli_print(stderr, "a command comes first: %s COMMAND %s\n", suite->name, word);
    } else if (meant != NULL) {
        cli_print(stderr, "did you mean '%s%s%s'?\n", owner, owner[0] != '\0' ? " " : "", meant);
    } else {
        cli_print(stderr, "unknown command\n");
    }
    cli_print(stderr, "%s: '%s --help' lists the commands\n", suite->name, suite->name);
    return status_exit_code(STATUS_USAGE);
}

int cli_suite_main(const struct cli_suite *suite, int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < suite->command_count; i++) {
        if (strcmp(word, suite->commands[i].name) == 0) {
            return suite->commands[i].run(argc - 1, argv + 1);
        }
    }
    const bool help = strcmp(word, "help") == 0 && argc == 2 && access(word, F_OK) != 0;
    if (help) {
        static char option[] = "--help";
        argv[1] = option;
        return cli_suite_main(suite, argc, argv);
    }
    if (suite->otherwise != NULL) {
        const char *owner;
        const bool wrong =
            word[0] != '-' && access(word, F_OK) != 0 && meant_command(suite, word, &owner) != NULL;
        return wrong ? unknown_command(suite, word) : suite->otherwise(argc, argv);
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
        return unknown_command(suite, word);
    }
    suite_help(suite, stderr);
    return status_exit_code(STATUS_USAGE);
}
