/*
 * run_config: RUN/config.json: the options of a run, kept so that --resume needs nothing else.
 *
 *     {"program": NAME, "options": {OPTION: VALUE, ...}}
 *
 * Threading : single-owner.
 * Ownership : words belong to struct run_config_words until its fini; the last ones are argv's own.
 * Untrusted : the file.
 */
#ifndef TOOLS_RUN_CONFIG_H
#define TOOLS_RUN_CONFIG_H

#include "formats/base/status.h"
#include "tools/cli.h"

enum { RUN_CONFIG_MAX_WORDS = 2 * CLI_MAX_OPTIONS };

/* A command line for cli_parse: argv[0], the stored options, argv[1..]. */
struct run_config_words {
    char *words[RUN_CONFIG_MAX_WORDS];
    int count;
    int own_count; /* words[1] to words[own_count] were allocated here */
};

/* Returns OK, NOTFOUND (no run), IO, CORRUPT, LIMIT, NOMEM or USAGE (too many words). */
enum status run_config_read(struct run_config_words *out,
                            const char *run,
                            int argc,
                            char **argv,
                            struct error *err);
void run_config_words_fini(struct run_config_words *w); /* accepts an all-zero one */

/* Writes the options in force, atomically. Returns OK, IO, NOMEM or LIMIT. */
enum status run_config_write(const struct cli_program *program,
                             const void *options,
                             const char *run,
                             struct error *err);

#endif
