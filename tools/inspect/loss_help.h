/*
 * loss_help: the options of losses, the list of losses and one loss for --help, made from the table
 * of losses (train/loss/loss_row.h).
 *
 * Threading : single-owner: each call fills the same static memory.
 */
#ifndef TOOLS_INSPECT_LOSS_HELP_H
#define TOOLS_INSPECT_LOSS_HELP_H

#include "tools/cli/cli.h"

/* One row for each option of struct loss_options, which stands at `offset` of the program's
 * options; *count of them. */
const struct cli_option *loss_help_options(size_t offset, size_t *count);

/* "NAME", "what it is (paper)", unless `brief` also its own defaults; NULL-ended. */
const struct cli_entry *loss_help_losses(bool brief);

/* A table with the options that a loss reads and their defaults in it; NULL: no such loss. */
const struct cli_program *loss_help_topic(const char *name);

#endif
