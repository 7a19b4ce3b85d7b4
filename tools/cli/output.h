/*
 * output: whether a command may write to an output path. One rule for all programs: an existing
 * file or folder that the same command did not make is refused, unless --force is given; only the
 * programs that make datasets and runs write into them. Checked before the work; missing folders
 * above an output are made when it is written, so that a command that fails makes none.
 *
 * A command recognises its outputs by its name: pages and files of tensors have it in their first
 * KiB, as "generator".
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

/* A file; NULL and "-": none. Returns OK, EXISTS, USAGE (it is remote), LIMIT (the path is too
 * long), or the status of the system's error if the folder above it cannot be written. */
enum status output_check_file(const char *path, bool force, struct error *err);

enum output_place {
    OUTPUT_DATASET, /* the folder may be a dataset; ccpack has its own checks for that */
    OUTPUT_FOLDER,  /* files are added to the folder, which is neither dataset nor run */
};

/* An existing folder or a free name. Returns as output_check_file. */
enum status output_check_folder(const char *path, enum output_place place, struct error *err);

/* A folder that is empty or that this command made: one of `files` (NULL-ended) in it has its name.
 * Returns as output_check_file, or a failure of reading the folder. */
enum status
output_check_own_folder(const char *path, const char *const *files, bool force, struct error *err);

#endif
