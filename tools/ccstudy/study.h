/*
 * study: what all commands of ccstudy share: options, progress, and the two files that each leaves:
 * NAME.json with all numbers and NAME.html with the figures.
 *
 * Threading : the main thread.
 */
#ifndef TOOLS_CCSTUDY_STUDY_H
#define TOOLS_CCSTUDY_STUDY_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/json_writer.h"
#include "formats/base/status.h"
#include "tools/cli/cli.h"
#include "tools/cli/html.h"

struct study_options {
    const char *out; /* NULL: no files */
    uint64_t seed;
    bool json, quick, quiet;
};

/* Rows of a table of options whose struct `type` has a struct study_options in `field`. */
#define STUDY_OPTIONS(type, field)                                                                 \
    {"out",                                                                                        \
     'o',                                                                                          \
     CLI_STRING,                                                                                   \
     CLI_FIELD(type, field.out),                                                                   \
     .metavar = "DIR",                                                                             \
     .help = "folder for NAME.json and NAME.html, made if it is missing"},                         \
        {"seed",                                                                                   \
         's',                                                                                      \
         CLI_U64,                                                                                  \
         CLI_FIELD(type, field.seed),                                                              \
         .default_text = "0",                                                                      \
         .metavar = "N",                                                                           \
         .help = "of everything that is drawn"},                                                   \
        {"quick", 0, CLI_FLAG, CLI_FIELD(type, field.quick), .help = "a smaller experiment"},      \
        {"json", 0, CLI_FLAG, CLI_FIELD(type, field.json), .help = "all numbers on stdout"}, {     \
        "quiet", 'q', CLI_FLAG, CLI_FIELD(type, field.quiet), .help = "no progress and no table"   \
    }

struct study {
    const char *name;  /* of the files */
    const char *title; /* of the page */
    const void *options;
    const struct study_options *shared;
    const void *result;
    /* The members of one JSON object. */
    void (*write_json)(struct json_writer *w, const void *result);
    enum status (*draw_page)(struct html_page *p,
                             const void *result,
                             const void *options,
                             struct error *err);
};

/* Before the work: whether the files can be written; makes the folder. Returns OK, USAGE or IO. */
enum status study_check(const struct study *s, struct error *err);

/* After it: the files, and with --json the numbers on stdout. Returns OK, NOMEM, LIMIT or IO. */
enum status study_finish(const struct study *s, struct error *err);

/* Progress in any unit of work. */
struct study_progress {
    struct cli_progress line;
    double done, total;
};
void study_begin(struct study_progress *p, double total, bool quiet);
/* Returns OK, or INTERRUPTED after SIGINT or SIGTERM. */
enum status study_advance(struct study_progress *p, double work, struct error *err);
void study_end(struct study_progress *p);

#endif
