/*
 * merge_internal: what the two files of a merge share.
 */
#ifndef PACK_MERGE_MERGE_INTERNAL_H
#define PACK_MERGE_MERGE_INTERNAL_H

#include "formats/dataset/manifest.h"
#include "pack/merge/merge.h"
#include "pack/run/output_internal.h"

struct merge_part {
    const char *directory;
    struct manifest manifest; /* where it is finished */
    struct pack_part number;  /* 0: it is no part */
    bool finished;
    char *why; /* where it is not finished, or no part */
};

struct merge {
    const struct pack_merge_options *opt;
    const struct file_system *fs;
    struct merge_part *parts; /* by number, once they are read */
    struct manifest manifest;
    struct pack_merge_progress done;
    struct pack_output output;
    struct hasher *hasher;     /* of the file that is copied */
    char from[PATH_MAX_BYTES]; /* and from where to where */
    char to[PATH_MAX_BYTES];
};

/* Reads the parts' manifests into m->parts, by number, and checks that they are all there, finished
 * and of one run. Returns OK, or as pack_merge. */
enum status merge_read_parts(struct merge *m, struct error *err);

/* Whether a dataset is what these parts are merged to, and has not been changed since. */
bool merge_is_of_parts(const struct merge *m, const struct manifest *whole);

void merge_free_parts(struct merge *m);

#endif
