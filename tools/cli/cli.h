/*
 * cli: what all programs share: options from one table, --help and --version made from it, exit
 * codes, progress on a terminal, readable numbers, signals.
 *
 * One row of the table feeds parsing, range checks, --help and the dump of the configuration in
 * force. Each row fills one field of a plain struct of the program:
 *
 *     struct options { uint64_t jobs; const char *out; bool quiet; };
 *     static const struct cli_option rows[] = {
 *         {"out", 'o', CLI_STRING, CLI_FIELD(struct options, out), .metavar = "DIR",
 *          .required = true, .help = "directory of the dataset"},
 *         {"jobs", 'j', CLI_U64, CLI_FIELD(struct options, jobs), .min = "1", .max = "256",
 *          .default_text = "4", .metavar = "N", .help = "worker threads"},
 *         {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct options, quiet), .help = "errors only"},
 *     };
 *     static const struct cli_program program = {
 *         .name = "ccx", .purpose = "does x", .usage = CLI_TEXTS("-o DIR FILE..."),
 *         CLI_OPTIONS(rows), .arguments = {1, CLI_MAX_ARGUMENTS}};
 *
 *     static enum status run(const void *options, const struct cli_arguments *a,
 *                            struct error *err) {
 *         const struct options *o = options;
 *         ...
 *     }
 *
 *     CLI_MAIN(main, program, struct options, run)
 *
 * Threading : parsing and progress belong to the main thread; any thread may call cli_interrupted.
 * Ownership : strings point into argv or the table; only cli_arguments_fini's list is freed.
 */
#ifndef TOOLS_CLI_CLI_H
#define TOOLS_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "formats/base/bytes.h"
#include "formats/base/json_writer.h"
#include "formats/base/status.h"

enum {
    CLI_MAX_OPTIONS = 160, /* rows in a table */
    CLI_MAX_LIST = 64,     /* values of one repeated option */
    CLI_MAX_ARGUMENTS = 1 << 20,
};

enum cli_type {
    CLI_FLAG,   /* bool; false unless given */
    CLI_NO,     /* bool; true unless given, as check with --no-check */
    CLI_STRING, /* const char *; NULL without default_text */
    CLI_ENUM,   /* int: index into `choices`; bool if there are two */
    CLI_U64,    /* uint64_t; uint32_t or int32_t with a `max` that fits */
    CLI_I64,    /* int64_t */
    CLI_DOUBLE, /* double, finite */
    CLI_LIST,   /* struct cli_list: the option may be repeated */
};

/* The suffixes that a number may have. */
enum cli_unit {
    CLI_UNIT_NONE,
    CLI_UNIT_BYTES, /* KiB MiB GiB TiB (or B): the field holds bytes */
    CLI_UNIT_MS,    /* ms s min h; a plain number is seconds: the field holds milliseconds */
};

struct cli_list {
    const char *items[CLI_MAX_LIST];
    size_t count;
};

struct cli_option {
    const char *name; /* without dashes: "shard-size" */
    char letter;      /* 0: long form only */
    enum cli_type type;
    size_t offset; /* with size_bytes by CLI_FIELD */
    size_t size_bytes;
    enum cli_unit unit;
    const char *min, *max;      /* as text, with units; NULL: no bound */
    const char *word;           /* numbers of 8 bytes: a word for word_value; NULL: none */
    const char *word_value;     /* may be outside the bounds */
    const char *default_text;   /* as text; required for numbers and enums */
    const char *const *choices; /* CLI_ENUM: NULL-ended names */
    const char *metavar;        /* "N", "DIR"; flags have none */
    const char *help;           /* what it does; default and range are added by --help */
    const char *group;          /* heading in --help; rows of a group are contiguous. NULL: the
                                   group of the row above, or "Options" */
    bool required;
    const char *alias;          /* a former name: accepted, but not in --help. NULL: none */
    const char *const *aliases; /* CLI_ENUM: former names of `choices`, in their order, NULL-ended;
                                   "": none of this choice. NULL: none */
};

#define CLI_FIELD(type, field)                                                                     \
    .offset = offsetof(type, field), .size_bytes = sizeof(((type *)NULL)->field)
#define CLI_COUNT(array)   (sizeof(array) / sizeof((array)[0]))
#define CLI_OPTIONS(array) .options = array, .option_count = CLI_COUNT(array)

/* Texts of a program, as a list that ends with NULL. */
#define CLI_TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Rows that several programs share; they fill fields at the same offsets in the options of each. */
struct cli_rows {
    const struct cli_option *rows;
    size_t count;
};
#define CLI_ROWS(array)                                                                            \
    { array, CLI_COUNT(array) }

/* One line of a list in --help. */
struct cli_entry {
    const char *name, *text;
};

struct cli_program {
    const char *name;             /* "ccpack", "ccpack tokenizer" */
    const char *purpose;          /* one line */
    const char *const *usage;     /* NULL-ended: the text after the name, one per line */
    const char *const *examples;  /* NULL-ended whole command lines, or NULL */
    const char *const *notes;     /* NULL-ended paragraphs after the options, or NULL */
    const char *list_heading;     /* of `list` */
    const struct cli_entry *list; /* after the options, until one without a name; NULL: none */
    const struct cli_option *options;
    size_t option_count;
    const struct cli_rows *shared; /* more tables, until one without rows; NULL: none */
    struct {
        size_t min, max;
    } arguments; /* positional */
    /* For a program with many options: what --help prints (--help all prints the whole table), and
     * what --help TOPIC prints (NULL: no such topic). All NULL: --help prints the whole table. */
    const struct cli_program *brief;
    const struct cli_program *(*topic)(const char *name);
    const char *const *topics; /* NULL-ended */
    const char *help_help;     /* of --help itself */
};

/* Row i of a program: its own rows come first, then the shared ones. NULL after the last. */
static inline const struct cli_option *cli_row(const struct cli_program *p, size_t i) {
    if (i < p->option_count) {
        return &p->options[i];
    }
    i -= p->option_count;
    for (const struct cli_rows *t = p->shared; t != NULL && t->rows != NULL; t++) {
        if (i < t->count) {
            return &t->rows[i];
        }
        i -= t->count;
    }
    return NULL;
}

struct cli_arguments {
    const char **items; /* in order of appearance */
    size_t count;
    bool
        given[CLI_MAX_OPTIONS]; /* by row, those of shared tables last: named on the command line */
};

/* Fills the fields of all options: defaults first, then the command line (argv[0] is skipped).
 * Other fields keep their values, so begin with a struct of zeros. --help and --version print to
 * stdout and return END. The table is checked first, so the first run finds a bad one. merged: the
 * words come from several sources, and of a repeated option the last counts; else a repeated option
 * is USAGE unless it is a list, and secrets in locations are hidden from ps. Returns OK, END,
 * USAGE, NOMEM or INVALID (the table is wrong). Except for OK nothing is left to free. */
enum status cli_parse_words(const struct cli_program *p,
                            void *options,
                            struct cli_arguments *args,
                            int argc,
                            char **argv,
                            bool merged,
                            struct error *err);
static inline enum status cli_parse(const struct cli_program *p,
                                    void *options,
                                    struct cli_arguments *args,
                                    int argc,
                                    char **argv,
                                    struct error *err) {
    return cli_parse_words(p, options, args, argc, argv, false, err);
}
void cli_arguments_fini(struct cli_arguments *a); /* accepts an all-zero one */

/* Whether the option was given on the command line. */
bool cli_given(const struct cli_program *p, const struct cli_arguments *a, const char *name);

/* Sets the field of an option as the command line would. Returns OK, NOTFOUND (no such option; *err
 * is not set) or USAGE. */
enum status cli_set(const struct cli_program *p,
                    void *options,
                    const char *name,
                    const char *text,
                    struct error *err);

/* Copies the fields of options between `offset` and offset + size_bytes of the options' struct,
 * which is a library's struct there, to `out`, such a struct with the library's defaults. */
void cli_copy(const struct cli_program *p,
              const void *options,
              size_t offset,
              void *out,
              size_t size_bytes);

/* Checks a table: duplicate or reserved names, sizes that do not match the type, defaults that do
 * not parse or are out of range, missing help, metavar or default. Returns OK or INVALID. */
enum status cli_check(const struct cli_program *p, struct error *err);

void cli_print_help(const struct cli_program *p, FILE *out);

/* The configuration in force as one JSON object, {"out":"x","jobs":4,...}, appended to `out`; unset
 * strings are null. Returns OK, NOMEM or LIMIT. */
enum status cli_config_json(const struct cli_program *p,
                            const void *options,
                            struct byte_buffer *out,
                            struct error *err);

/* fprintf for texts that quote names: control characters except line feeds, and bytes that are not
 * UTF-8, are replaced. Everything that programs write to stderr is printed by it. */
void cli_print(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints why the program exits ("ccpack: text" on stderr, for USAGE about options also a hint at
 * --help) and returns its exit code. Prints nothing for OK and END, unless earlier output could not
 * be written to stdout, which is a failure. */
int cli_exit(const struct cli_program *p, enum status s, const struct error *err);

/* A whole program or subcommand: parses into `options`, calls `run`, prints what failed. Returns
 * the exit code. */
int cli_main(const struct cli_program *p,
             void *options,
             enum status (*run)(const void *options,
                                const struct cli_arguments *a,
                                struct error *err),
             int argc,
             char **argv);

/* The name of the program or subcommand that cli_main runs: "ccdump stats". */
const char *cli_command_name(void);

/* From now on the program exits with a message that names the file if a mapped file is truncated or
 * becomes unreadable. cli_main calls this. */
void cli_catch_sigbus(void);

/* Defines `int name(int argc, char **argv)`, the whole program or subcommand. Fields that no option
 * fills are zero. */
#define CLI_MAIN(name, program, options, run)                                                      \
    int name(int argc, char **argv) {                                                              \
        options o = {0};                                                                           \
        return cli_main(&(program), &o, run, argc, argv);                                          \
    }

/* Writes to stdout. Returns OK or IO. */
enum status cli_put(const void *data, size_t size_bytes, struct error *err);

/* Writes what `w` holds and a line feed to stdout, and empties `w`. Returns OK, IO, NOMEM or LIMIT.
 */
enum status cli_put_json(struct json_writer *w, struct error *err);

/* One JSON object on stdout: begin initialises `w` and opens the object; end closes it, prints it
 * with a line feed, and frees `w`. Returns as cli_put_json. */
void cli_begin_json(struct json_writer *w);
enum status cli_end_json(struct json_writer *w, struct error *err);

/* Parses a number as options do. Returns false for trailing characters, overflow or an empty
 * text. */
bool cli_parse_u64(const char *text, enum cli_unit unit, uint64_t *out);

/* ---- programs with subcommands --------------------------------------------------------------- */

struct cli_command {
    const char *name;
    const char *purpose;               /* one line */
    int (*run)(int argc, char **argv); /* argv[0] is the subcommand's name; returns the exit code */
};

struct cli_suite {
    const char *name;
    const char *purpose;
    const struct cli_command *commands;
    size_t command_count;
    int (*otherwise)(int argc, char **argv); /* run if no subcommand is given; NULL: an error */
    const char *const *examples;             /* NULL-ended, or NULL */
};

/* Runs the subcommand argv[1]. Handles --help and --version unless `otherwise` is set, whose --help
 * must then list the subcommands. Returns the exit code. */
int cli_suite_main(const struct cli_suite *suite, int argc, char **argv);

/* ---- progress, on stderr --------------------------------------------------------------------- */

struct cli_progress {
    bool active;
    bool in_place;    /* on a terminal: redrawn; else one line per minute, for logs */
    const char *what; /* plural noun: "samples"; NULL: neither counts nor rates are shown */
    uint64_t begun;   /* part of `done` from an earlier run: not counted in the rate */
    int64_t started_ns, drawn_ns;
    size_t drawn_width;
};

/* Active unless quiet. */
void cli_progress_init(struct cli_progress *p, const char *what, bool quiet);

/* Redraws the line at most ten times per second, truncated to the terminal's width. If stderr is
 * not a terminal, or TERM is dumb, it writes a line without a bar once per minute, the first after
 * ten seconds.
 *
 *   [#######-------------]  37 %  370/1,000 samples  53/s  1.2 MiB/s  11.9s left  extra
 *
 * with a shorter bar or none on a narrow terminal. total 0: not known, no bar and no remaining
 * time. bytes 0: no byte rate is shown. `extra` may be NULL. */
void cli_progress_update(struct cli_progress *p,
                         uint64_t done,
                         uint64_t total,
                         uint64_t bytes,
                         const char *extra);

/* Erases the line. Call it before other output to the terminal and at the end. */
void cli_progress_clear(struct cli_progress *p);

/* ---- readable numbers ------------------------------------------------------------------------ */

/* Up to 159 bytes of text, in the thread's memory: valid until 32 more texts are made. */
const char *cli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "1.4 GiB" */
const char *cli_format_bytes(uint64_t bytes);
/* "3,318,333" */
const char *cli_format_count(uint64_t count);
/* "3,318,333 samples", "1 sample": the noun is one that takes an s */
const char *cli_format_counted(uint64_t count, const char *noun);
/* "1,250 pairs/s", "3.4 pairs/s", "18 pairs/min", "0.5 pairs/h"; without a noun ("") "12/s" */
const char *cli_format_rate(double per_second, const char *noun);
/* "1h02m", "3m20s", "12.5s" */
const char *cli_format_seconds(double seconds);

/* ---- stopping on request --------------------------------------------------------------------- */

/* The first SIGINT, SIGTERM or SIGUSR1 sets a flag; a second of the same signal ends the process at
 * once. Ignores SIGPIPE: a closed pipe becomes a write error. */
void cli_signals_install(void);
/* Only SIGUSR1, while the program starts: a job's time may be up before its first step. SIGINT and
 * SIGTERM still end it. With several ranks SIGTERM sets the flag too: a launcher sends it to all
 * ranks if one fails, and the others have yet to report which. */
void cli_signals_install_early(bool one_of_several);
bool cli_interrupted(void);
/* The same as a callback for libraries; the cookie is ignored. */
bool cli_interrupted_callback(void *cookie);

#endif
