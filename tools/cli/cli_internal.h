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

/* Whether the field holds the number that the row's word stands for. */
bool cli_is_word(const struct cli_option *row, const void *field);

#endif
