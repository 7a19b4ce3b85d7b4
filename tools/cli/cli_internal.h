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

static inline bool cli_is_number(enum cli_type type) {
    return type == CLI_U64 || type == CLI_I64 || type == CLI_DOUBLE;
}

#endif
