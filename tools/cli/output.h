/*
 * output: whether a command may write to an output path. One rule for all programs: a file or
 * folder that exists and that the same command did not make is refused, unless --force is given;
 * only the programs that make datasets and runs write into them. Checked before the work; folders
 * above an output are made when it is written, so that a command that fails makes none.
 *
 * A command recognises its own outputs by its name: pages and files of tensors have it in their
 * first KiB, as "generator".
 *
 * Threading : pure functions, except that they read the file system.
 * Untrusted : the path, and what it leads to.
 */
#ifndef TOOLS_CLI_OUTPUT_H
#define TOOLS_CLI_OUTPUT_H

#include <stdbool.h>

#include "formats/base/status.h"

/* The row of --force. */
#define OUTPUT_FORCE_ROW(type, field)                                                              \
    {                                                                                              \
        "force", 0, CLI_FLAG, CLI_FIELD(type, field),                                              \
            .alias = "overwrite",                                                                  \
            .help = "replace an existing output that this command did not write"                   \
    }

/* A file; NULL and "-": none. Returns OK, EXISTS or USAGE (it is remote). */
enum status output_check_file(const char *path, bool force, struct error *err);

enum output_place {
    OUTPUT_DATASET, /* the folder may be a dataset, and what ccpack does there is its own rule */
    OUTPUT_FOLDER,  /* files join those of the folder, which is neither dataset nor run */
};

/* A folder, or a name that is still free. Returns as output_check_file. */
enum status output_check_folder(const char *path, enum output_place place, struct error *err);

/* A folder that is empty or that this command made: one of `files` (ended with NULL) in it has its
 * name. */
enum status
output_check_own_folder(const char *path, const char *const *files, bool force, struct error *err);

#endif
