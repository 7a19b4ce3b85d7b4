/*
 * manifest_internal: what the manifest's reader and writer both need.
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

#endif
