/*
 * cli_internal: what the parser and the printer of --help share.
 */
#ifndef TOOLS_CLI_CLI_INTERNAL_H
#define TOOLS_CLI_CLI_INTERNAL_H

#include "tools/cli/cli.h"

/* Address of a row's field. */
static inline void *cli_field(const struct cli_option *row, void *options) {
    return (char *)options + row->offset;
}

static inline const void *cli_field_const(const struct cli_option *row, const void *options) {
    return (const char *)options + row->offset;
}

static inline bool cli_is_number(enum cli_type type) {
    return type == CLI_U64 || type == CLI_I64 || type == CLI_DOUBLE;
}

static inline bool cli_is_flag(enum cli_type type) {
    return type == CLI_FLAG || type == CLI_NO;
}

/* The number in a field of CLI_U64 or CLI_ENUM, which has 1, 4 or 8 bytes. */
uint64_t cli_whole_number(const struct cli_option *row, const void *field);

/* Whether the field holds the number that the row's word stands for. */
bool cli_is_word(const struct cli_option *row, const void *field);

/* The number of choices and commands is small, so every guess compares with all of them. */
struct cli_guess {
    const char *best; /* NULL: nothing is near */
    size_t distance;
};

/* Makes `candidate` the best guess for the first n bytes of `word` if it is the nearest so far. */
void cli_guess_add(struct cli_guess *g, const char *word, size_t n, const char *candidate);

/* The choice meant by a misspelt value, or by another tool's name for it; or NULL. */
const char *cli_meant_value(const char *const *choices, const char *text);

/* The program whose command has this name, or NULL. */
const char *cli_owner_of_command(const char *name);

/* Whether a long option of the program, or a name of other tools for one, has this name. */
bool cli_is_known(const struct cli_program *p, const char *name, size_t n);

/* Suggests the option that was meant: by the names of other tools, or the nearest. Returns
 * USAGE. */
enum status cli_unknown_option(const struct cli_program *p,
                               const char *dashes,
                               const char *name,
                               size_t n,
                               struct error *err);

#endif
