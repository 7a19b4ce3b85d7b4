/*
 * The option table's parser and checker. The same code runs twice: first it parses every default as
 * if it had been typed, then the command line. So every default is a value that a user can write.
 */
#include "tools/cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/redact.h"
#include "tools/cli/cli_internal.h"

struct suffix {
    const char *text;
    uint64_t factor;
};

static const struct suffix byte_suffixes[] = {{"", 1},
                                              {"B", 1},
                                              {"KiB", UINT64_C(1) << 10},
                                              {"MiB", UINT64_C(1) << 20},
                                              {"GiB", UINT64_C(1) << 30},
                                              {"TiB", UINT64_C(1) << 40}};
static const struct suffix time_suffixes[] = {{"", 1000},
                                              {"ms", 1},
                                              {"s", 1000},
                                              {"min", 60000},
                                              {"h", 3600000}};
static const struct suffix no_suffixes[] = {{"", 1}};

static bool suffix_factor(const char *text, enum cli_unit unit, uint64_t *out) {
    const struct suffix *table = no_suffixes;
    size_t count = CLI_COUNT(no_suffixes);
    if (unit == CLI_UNIT_BYTES) {
        table = byte_suffixes;
        count = CLI_COUNT(byte_suffixes);
    } else if (unit == CLI_UNIT_MS) {
        table = time_suffixes;
        count = CLI_COUNT(time_suffixes);
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(text, table[i].text) == 0) {
            *out = table[i].factor;
            return true;
        }
    }
    return false;
}

bool cli_parse_u64(const char *text, enum cli_unit unit, uint64_t *out) {
    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    errno = 0;
    char *end = NULL;
    unsigned long long v = strtoull(text, &end, 10);
    uint64_t factor = 0;
    if (errno != 0 || !suffix_factor(end, unit, &factor)) {
        return false;
    }
    return !__builtin_mul_overflow((uint64_t)v, factor, out);
}

static bool parse_i64(const char *text, enum cli_unit unit, int64_t *out) {
    bool negative = text[0] == '-';
    uint64_t magnitude = 0;
    if (!cli_parse_u64(text + (negative ? 1 : 0), unit, &magnitude) || magnitude > INT64_MAX) {
        return false;
    }
    *out = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return true;
}

static bool parse_double(const char *text, double *out) {
    if (text[0] == '\0' || isspace((unsigned char)text[0])) {
        return false;
    }
    errno = 0;
    char *end = NULL;
    double v = strtod(text, &end);
    if (*end != '\0' || !isfinite(v) || (errno == ERANGE && fabs(v) > 1)) {
        return false;
    }
    *out = v;
    return true;
}

union number {
    uint64_t u;
    int64_t i;
    double d;
};

static bool parse_number(const struct cli_option *row, const char *text, union number *out) {
    switch (row->type) {
    case CLI_U64:
        return cli_parse_u64(text, row->unit, &out->u);
    case CLI_I64:
        return parse_i64(text, row->unit, &out->i);
    default:
        return parse_double(text, &out->d);
    }
}

static bool number_below(enum cli_type type, union number a, union number b) {
    switch (type) {
    case CLI_U64:
        return a.u < b.u;
    case CLI_I64:
        return a.i < b.i;
    default:
        return a.d < b.d;
    }
}

uint64_t cli_whole_number(const struct cli_option *row, const void *field) {
    uint64_t whole = 0;
    uint32_t half = 0;
    if (row->size_bytes == sizeof(bool)) {
        return *(const bool *)field;
    }
    if (row->size_bytes == sizeof(half)) {
        memcpy(&half, field, sizeof(half));
        return half;
    }
    memcpy(&whole, field, sizeof(whole));
    return whole;
}

/* Fields of CLI_I64 and CLI_DOUBLE have 8 bytes. */
static void store_number(const struct cli_option *row, void *field, const union number *v) {
    const uint32_t half = (uint32_t)v->u;
    const bool bit = v->u != 0;
    memcpy(field,
           row->size_bytes == sizeof(bool)   ? (const void *)&bit
           : row->size_bytes == sizeof(half) ? (const void *)&half
                                             : (const void *)v,
           row->size_bytes);
}

static enum status
set_number(const struct cli_option *row, void *field, const char *text, struct error *err) {
    union number v = {0};
    if (row->word != NULL && strcmp(text, row->word) == 0) {
        (void)parse_number(row, row->word_value, &v);
        store_number(row, field, &v);
        return STATUS_OK;
    }
    if (!parse_number(row, text, &v)) {
        const char *unit = row->unit == CLI_UNIT_BYTES ? ", optionally followed by KiB, MiB or GiB"
                           : row->unit == CLI_UNIT_MS  ? ", optionally followed by ms, s, min or h"
                                                       : "";
        return error_set(err, STATUS_USAGE, "--%s requires %s%s%s%s, not '%s'", row->name,
                         row->type == CLI_DOUBLE ? "a number" : "an integer", unit,
                         row->word != NULL ? " or " : "", row->word != NULL ? row->word : "", text);
    }
    union number bound = {0};
    FAIL_IF(row->min != NULL && parse_number(row, row->min, &bound) &&
                number_below(row->type, v, bound),
            err, STATUS_USAGE, "--%s must be at least %s, not %s", row->name, row->min, text);
    FAIL_IF(row->max != NULL && parse_number(row, row->max, &bound) &&
                number_below(row->type, bound, v),
            err, STATUS_USAGE, "--%s must be at most %s, not %s", row->name, row->max, text);
    store_number(row, field, &v);
    return STATUS_OK;
}

static enum status
set_enum(const struct cli_option *row, void *field, const char *text, struct error *err) {
    char list[256] = "";
    size_t used = 0;
    for (int i = 0; row->aliases != NULL && row->aliases[i] != NULL; i++) {
        if (strcmp(row->aliases[i], text) == 0) {
            memcpy(field, &i, sizeof(i));
            return STATUS_OK;
        }
    }
    for (int i = 0; row->choices[i] != NULL; i++) {
        if (strcmp(row->choices[i], text) == 0) {
            store_number(row, field, &(union number){.u = (uint64_t)i});
            return STATUS_OK;
        }
        int n =
            snprintf(list + used, sizeof(list) - used, "%s%s", i > 0 ? ", " : "", row->choices[i]);
        used = n > 0 && used + (size_t)n < sizeof(list) ? used + (size_t)n : used;
    }
    const char *meant = cli_meant_value(row->choices, text);
    return error_set(err, STATUS_USAGE, "--%s must be one of %s, not '%.80s'%s%s%s", row->name,
                     list, text, meant != NULL ? "; did you mean '" : "",
                     meant != NULL ? meant : "", meant != NULL ? "'?" : "");
}

static enum status
set_list(const struct cli_option *row, void *field, const char *text, struct error *err) {
    struct cli_list *list = field;
    FAIL_IF(list->count == CLI_MAX_LIST, err, STATUS_USAGE, "--%s may be given at most %d times",
            row->name, CLI_MAX_LIST);
    list->items[list->count++] = text;
    return STATUS_OK;
}

/* text is NULL only for flags. */
static enum status
set_value(const struct cli_option *row, void *field, const char *text, struct error *err) {
    switch (row->type) {
    case CLI_FLAG:
    case CLI_NO:
        *(bool *)field = row->type == CLI_FLAG;
        return STATUS_OK;
    case CLI_STRING:
        memcpy(field, &text, sizeof(text));
        return STATUS_OK;
    case CLI_ENUM:
        return set_enum(row, field, text, err);
    case CLI_LIST:
        return set_list(row, field, text, err);
    default:
        return set_number(row, field, text, err);
    }
}

bool cli_is_word(const struct cli_option *row, const void *field) {
    union number v = {0};
    if (row->word == NULL) {
        return false;
    }
    (void)parse_number(row, row->word_value, &v);
    return memcmp(field, &v, row->size_bytes) == 0; /* words are of numbers of 8 bytes */
}

static enum status set_defaults(const struct cli_program *p, void *options, struct error *err) {
    const struct cli_option *row;
    for (size_t i = 0; (row = cli_row(p, i)) != NULL; i++) {
        void *field = cli_field(row, options);
        memset(field, row->type == CLI_NO, row->size_bytes);
        FAIL_IF(row->default_text != NULL &&
                    set_value(row, field, row->default_text, err) != STATUS_OK,
                err, STATUS_INVALID, "option table of %s: default of --%s: '%s'", p->name,
                row->name, row->default_text);
    }
    return STATUS_OK;
}

static bool is_name(const char *own, const char *name, size_t n) {
    return own != NULL && strlen(own) == n && memcmp(own, name, n) == 0;
}

/* The number of the row, or of the one after the last if there is none. */
static size_t find_name(const struct cli_program *p, const char *name, size_t n) {
    const struct cli_option *row;
    size_t i = 0;
    while ((row = cli_row(p, i)) != NULL && !is_name(row->name, name, n) &&
           !is_name(row->alias, name, n)) {
        i++;
    }
    return i;
}

enum status cli_set(const struct cli_program *p,
                    void *options,
                    const char *name,
                    const char *text,
                    struct error *err) {
    const struct cli_option *row = cli_row(p, find_name(p, name, strlen(name)));
    return row == NULL ? STATUS_NOTFOUND : set_value(row, cli_field(row, options), text, err);
}

void cli_copy(const struct cli_program *p,
              const void *options,
              size_t offset,
              void *out,
              size_t size_bytes) {
    const struct cli_option *row;
    for (size_t i = 0; (row = cli_row(p, i)) != NULL; i++) {
        if (row->offset >= offset && row->offset < offset + size_bytes) {
            memcpy((char *)out + (row->offset - offset), cli_field_const(row, options),
                   row->size_bytes);
        }
    }
}

/* ---- the command line ------------------------------------------------------------------------ */

struct parser {
    const struct cli_program *program;
    void *options;
    struct cli_arguments *args;
    int argc;
    char **argv;
    bool merged; /* an option may be given twice */
    int at;      /* the word being read */
};

/* The same by letter. */
static size_t find_letter(const struct cli_program *p, char letter) {
    const struct cli_option *row;
    size_t i = 0;
    while ((row = cli_row(p, i)) != NULL && row->letter != letter) {
        i++;
    }
    return i;
}

/* Sets row i to the value after '=' or glued to a letter, or else to the next word. */
static enum status take_value(struct parser *ps, size_t i, const char *glued, struct error *err) {
    const struct cli_option *row = cli_row(ps->program, i);
    const char *text = glued;
    if (cli_is_flag(row->type)) {
        FAIL_IF(glued != NULL, err, STATUS_USAGE, "--%s takes no value", row->name);
    } else if (text == NULL) {
        FAIL_IF(ps->at + 1 >= ps->argc, err, STATUS_USAGE, "--%s requires a value: %s", row->name,
                row->metavar);
        text = ps->argv[++ps->at];
        const size_t n = strcspn(text, "=");
        FAIL_IF(n > 2 && text[0] == '-' && text[1] == '-' &&
                    cli_row(ps->program, find_name(ps->program, text + 2, n - 2)) != NULL,
                err, STATUS_USAGE, "--%s requires a value: %s; the option '%s' follows it",
                row->name, row->metavar, text);
    }
    FAIL_IF(text != NULL && text[0] == '\0', err, STATUS_USAGE,
            "--%s requires a value, not an empty text: %s", row->name, row->metavar);
    FAIL_IF(ps->args->given[i] && row->type != CLI_LIST && !ps->merged, err, STATUS_USAGE,
            "--%s is given twice", row->name);
    ps->args->given[i] = true;
    return set_value(row, cli_field(row, ps->options), text, err);
}

/* --help, and for a program with topics --help all and --help TOPIC. Returns END or USAGE. */
static enum status help(const struct parser *ps, struct error *err) {
    const struct cli_program *p = ps->program;
    const char *name = ps->at + 1 < ps->argc ? ps->argv[ps->at + 1] : "-";
    const struct cli_program *shown = p->brief != NULL ? p->brief : p;
    if (p->topic != NULL && name[0] != '-') {
        shown = strcmp(name, "all") == 0 ? p : p->topic(name);
    }
    if (shown != NULL) {
        cli_print_help(shown, stdout);
        return STATUS_END;
    }
    const char *meant = cli_meant_value(p->topics, name);
    return meant != NULL
               ? error_set(err, STATUS_USAGE, "no help on '%.60s'; did you mean '--help %s'?", name,
                           meant)
               : error_set(err, STATUS_USAGE,
                           "no help on '%.60s'; expected 'all' or a name in --help", name);
}

static enum status long_option(struct parser *ps, const char *word, struct error *err) {
    const char *equals = strchr(word, '=');
    size_t n = equals != NULL ? (size_t)(equals - word) : strlen(word);
    if (equals == NULL && strcmp(word, "help") == 0) {
        return help(ps, err);
    }
    if (equals == NULL && strcmp(word, "version") == 0) {
        printf("%.*s %s (ccstream)\n", (int)strcspn(ps->program->name, " "), ps->program->name,
               CCSTREAM_VERSION);
        return STATUS_END;
    }
    const size_t i = find_name(ps->program, word, n);
    if (cli_row(ps->program, i) == NULL) {
        return cli_unknown_option(ps->program, "--", word, n, err);
    }
    return take_value(ps, i, equals != NULL ? equals + 1 : NULL, err);
}

/* -q, -qj4, -o DIR, -oDIR. A long name after one dash is a mistake: -out is not -o ut. */
static enum status short_options(struct parser *ps, const char *word, struct error *err) {
    const size_t n = strcspn(word, "=");
    if (n > 1 && cli_is_known(ps->program, word, n)) {
        return cli_unknown_option(ps->program, "-", word, n, err);
    }
    for (; *word != '\0'; word++) {
        const size_t i = find_letter(ps->program, *word);
        const struct cli_option *row = cli_row(ps->program, i);
        if (row == NULL && *word == 'h') {
            return help(ps, err);
        }
        if (row == NULL) {
            return cli_unknown_option(ps->program, "-", word, 1, err);
        }
        if (!cli_is_flag(row->type)) {
            return take_value(ps, i, word[1] != '\0' ? word + 1 : NULL, err);
        }
        TRY(take_value(ps, i, NULL, err));
    }
    return STATUS_OK;
}

static enum status parse_words(struct parser *ps, struct error *err) {
    bool options_end = false;
    for (ps->at = 1; ps->at < ps->argc; ps->at++) {
        const char *word = ps->argv[ps->at];
        const bool number = word[0] == '-' && word[1] >= '0' && word[1] <= '9';
        enum status s = STATUS_OK;
        if (word[0] == '\0') {
            s = error_set(err, STATUS_USAGE, "argument %d is an empty text", ps->at);
        } else if (options_end || word[0] != '-' || word[1] == '\0' || number) {
            ps->args->items[ps->args->count++] = word;
        } else if (strcmp(word, "--") == 0) {
            options_end = true;
        } else if (word[1] == '-') {
            s = long_option(ps, word + 2, err);
        } else {
            s = short_options(ps, word + 1, err);
        }
        if (s != STATUS_OK) {
            return s;
        }
    }
    return STATUS_OK;
}

static enum status
check_complete(const struct cli_program *p, const struct cli_arguments *a, struct error *err) {
    const struct cli_option *row;
    for (size_t i = 0; i < a->count; i++) {
        const char *owner = cli_owner_of_command(a->items[i]);
        FAIL_IF(owner != NULL && strcmp(owner, p->name) == 0 && access(a->items[i], F_OK) != 0, err,
                STATUS_USAGE, "the command comes first: '%s %s [options] ...'", owner, a->items[i]);
    }
    for (size_t i = 0; (row = cli_row(p, i)) != NULL; i++) {
        FAIL_IF(row->required && !a->given[i], err, STATUS_USAGE, "--%s %s is missing", row->name,
                row->metavar);
    }
    FAIL_IF(a->count < p->arguments.min, err, STATUS_USAGE, "too few arguments; usage: %s %s",
            p->name, p->usage[0]);
    FAIL_IF(a->count > p->arguments.max, err, STATUS_USAGE,
            "one argument too many: '%.100s'; usage: %s %s", a->items[p->arguments.max], p->name,
            p->usage[0]);
    return STATUS_OK;
}

/* Removes the secrets in locations from the command line that other users see (ps). */
static void hide_secrets(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        char *word = strstr(argv[i], "://") != NULL ? strdup(argv[i]) : NULL;
        if (word == NULL) {
            continue;
        }
        char *shown = argv[i];
        const size_t size_bytes = strlen(shown);
        if (redact_locations(word)) {
            char *whole = strdup(shown);
            if (whole != NULL) { /* options point into it from now on */
                memset(shown, 0, size_bytes);
                memcpy(shown, word, strlen(word));
                argv[i] = whole;
            }
        }
        free(word);
    }
}

enum status cli_parse_words(const struct cli_program *p,
                            void *options,
                            struct cli_arguments *args,
                            int argc,
                            char **argv,
                            bool merged,
                            struct error *err) {
    memset(args, 0, sizeof(*args));
    TRY(cli_check(p, err));
    TRY(set_defaults(p, options, err));
    if (!merged) {
        hide_secrets(argc, argv);
    }
    args->items = calloc((size_t)(argc > 0 ? argc : 1), sizeof(*args->items));
    TRY_MEMORY(args->items, err, "out of memory for %d arguments", argc);
    struct parser ps = {p, options, args, argc, argv, merged, 0};
    enum status s = parse_words(&ps, err);
    THEN(s, check_complete(p, args, err));
    if (s != STATUS_OK) {
        cli_arguments_fini(args);
    }
    return s;
}

void cli_arguments_fini(struct cli_arguments *a) {
    free(a->items);
    a->items = NULL;
    a->count = 0;
}

bool cli_given(const struct cli_program *p, const struct cli_arguments *a, const char *name) {
    const size_t i = find_name(p, name, strlen(name));
    return i < CLI_MAX_OPTIONS && a->given[i];
}

/* ---- the table's own check ------------------------------------------------------------------- */

static bool fits_type(const struct cli_option *row) {
    const size_t size = row->size_bytes;
    switch (row->type) {
    case CLI_FLAG:
    case CLI_NO:
        return size == sizeof(bool);
    case CLI_STRING:
        return size == sizeof(const char *);
    case CLI_ENUM:
        return size == sizeof(int) || (size == sizeof(bool) && row->choices != NULL &&
                                       row->choices[1] != NULL && row->choices[2] == NULL);
    case CLI_LIST:
        return size == sizeof(struct cli_list);
    case CLI_U64: {
        union number max = {.u = UINT64_MAX};
        (void)(row->max != NULL && parse_number(row, row->max, &max));
        return size == sizeof(uint64_t) ||
               (size == sizeof(uint32_t) && row->word == NULL && max.u <= UINT32_MAX);
    }
    default:
        return size == sizeof(uint64_t);
    }
}

static bool parses(const struct cli_option *row, const char *text) {
    union number unused = {0};
    return text == NULL || parse_number(row, text, &unused);
}

/* Why the row is wrong, or NULL. */
static const char *row_fault(const struct cli_option *row) {
    const bool number = cli_is_number(row->type);
    const bool bounded = row->min != NULL || row->max != NULL;
    if (row->name == NULL || row->name[0] == '\0' || row->name[0] == '-') {
        return "no name";
    }
    return row->name[strspn(row->name, "abcdefghijklmnopqrstuvwxyz0123456789-")] != '\0'
               ? "names consist of lower-case letters, digits and dashes"
           : strcmp(row->name, "help") == 0 || strcmp(row->name, "version") == 0
               ? "every program has an option of this name"
           : row->help == NULL || row->help[0] == '\0' ? "no help"
           : !fits_type(row)                           ? "the field's size does not fit the type"
           : cli_is_flag(row->type) ? (row->metavar != NULL || row->default_text != NULL
                                           ? "flags have no metavar and no default"
                                           : NULL)
           : row->metavar == NULL   ? "others than flags need a metavar"
           : row->type == CLI_LIST && row->default_text != NULL ? "lists start empty"
           : row->type == CLI_ENUM && (row->choices == NULL || row->choices[0] == NULL)
               ? "no choices"
           : row->aliases != NULL && row->type != CLI_ENUM ? "only choices have former names"
           : (bounded || row->unit != CLI_UNIT_NONE) && !number
               ? "only numbers have bounds and units"
           : row->unit != CLI_UNIT_NONE && row->type == CLI_DOUBLE ? "fractions have no units"
           : !parses(row, row->min) || !parses(row, row->max)      ? "a bound does not parse"
           : row->word != NULL &&
                   (!number || row->word_value == NULL || !parses(row, row->word_value))
               ? "a word stands for a number"
           : (number || row->type == CLI_ENUM) && row->default_text == NULL && !row->required
               ? "no default"
           : row->required && row->default_text != NULL ? "a required option has no default"
                                                        : NULL;
}

/* Whether a row has the former name of another. */
static bool is_former_name(const struct cli_option *row, const struct cli_option *other) {
    return other->alias != NULL && (strcmp(row->name, other->alias) == 0 ||
                                    (row->alias != NULL && strcmp(row->alias, other->alias) == 0));
}

enum status cli_check(const struct cli_program *p, struct error *err) {
    FAIL_IF(p->name == NULL || p->purpose == NULL || p->usage == NULL || p->usage[0] == NULL ||
                cli_row(p, CLI_MAX_OPTIONS) != NULL || p->arguments.min > p->arguments.max,
            err, STATUS_INVALID, "option table of %s: name, purpose or usage is missing",
            p->name != NULL ? p->name : "a program");
    const struct cli_option *row;
    for (size_t i = 0; (row = cli_row(p, i)) != NULL; i++) {
        const char *fault = row_fault(row);
        for (size_t j = 0; fault == NULL && j < i; j++) {
            const struct cli_option *other = cli_row(p, j);
            if (strcmp(row->name, other->name) == 0 ||
                (row->letter != 0 && row->letter == other->letter)) {
                fault = "name or letter occurs twice";
            } else if (is_former_name(row, other) || is_former_name(other, row)) {
                fault = "a former name occurs twice";
            } else if (row->offset == other->offset) {
                fault = "two options write the same field";
            }
        }
        union number unused; /* lists, the only larger fields, have no defaults */
        if (fault == NULL && row->default_text != NULL &&
            set_value(row, &unused, row->default_text, NULL) != STATUS_OK) {
            fault = "the default is not an allowed value";
        }
        FAIL_IF(fault != NULL, err, STATUS_INVALID, "option table of %s: row %zu, --%s: %s",
                p->name, i, row->name != NULL ? row->name : "", fault);
    }
    return STATUS_OK;
}
