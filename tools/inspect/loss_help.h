/*
 * loss_help: loss options, the list of losses and the help of one loss for --help, generated from
 * the table of losses (train/loss/loss_row.h).
 *
 * Threading : single-owner: each call fills the same static memory.
 */
#ifndef TOOLS_INSPECT_LOSS_HELP_H
#define TOOLS_INSPECT_LOSS_HELP_H

#include "tools/cli/cli.h"

/* One row per option of struct loss_options, which is at `offset` in the program's options; *count
 * of them. */
const struct cli_option *loss_help_options(size_t offset, size_t *count);

/* "NAME", "what it is (paper)" and, unless `brief`, its own defaults; NULL-terminated. */
const struct cli_entry *loss_help_losses(bool brief);

/* A table with the options that a loss reads, and their defaults for it; NULL: no such loss. */
const struct cli_program *loss_help_topic(const char *name);

#endif
