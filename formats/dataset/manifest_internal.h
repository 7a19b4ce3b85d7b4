/*
 * manifest_internal: what the files of the manifest share.
 */
#ifndef FORMATS_DATASET_MANIFEST_INTERNAL_H
#define FORMATS_DATASET_MANIFEST_INTERNAL_H

#include "formats/dataset/manifest.h"

#define MANIFEST_FORMAT "ccstream-dataset"

/* manifest_read from memory; `name` is for messages. */
enum status manifest_parse(struct manifest *m,
                           const char *name,
                           const void *text,
                           size_t size_bytes,
                           struct error *err);

/* A copy of a text within the limit of manifest texts. Returns OK, LIMIT or NOMEM. */
enum status manifest_copy_text(char **out, const char *text, struct error *err);

/* A file name alone: paths would depend on where the packer ran. */
bool manifest_is_plain_name(const char *name);

/* Returns OK, LIMIT or NOMEM. */
enum status
manifest_add_generation(struct manifest *m, const struct manifest_generation *g, struct error *err);

/* Totals over the shards, without what was removed. False when they do not fit 64 bits. */
bool manifest_sum_shards(const struct manifest *m, struct manifest *out);

#endif
