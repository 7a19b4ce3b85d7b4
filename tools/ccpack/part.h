/*
 * part: which part of the sources this process packs: --part K/N, or from a launcher's environment
 * variables.
 *
 * Threading : no state.
 * Ownership : borrows the texts.
 * Untrusted : the environment.
 */
#ifndef TOOLS_CCPACK_PART_H
#define TOOLS_CCPACK_PART_H

#include "formats/base/file_io.h"
#include "pack/pack.h"

/* The environment: getenv, or a test's. */
struct part_environment {
    const char *(*get)(void *cookie, const char *name); /* returns NULL: not set */
    void *cookie;
};

/* Parses "K/N", "auto" or "auto/N". *variable: the variable with the part's number; NULL with K/N.
 * Returns OK or USAGE. */
enum status part_parse(struct pack_part *out,
                       const char **variable,
                       const char *text,
                       const struct part_environment *e,
                       struct error *err);

/* The directory of an automatic part: "DIR-part-K-of-N". Returns OK, USAGE (DIR does not end with a
 * name) or LIMIT. */
enum status part_directory(char out[PATH_MAX_BYTES],
                           const char *directory,
                           const struct pack_part *part,
                           struct error *err);

#endif
