/*
 * remove_internal: what remove.c and compact.c share.
 */
#ifndef PACK_REMOVE_REMOVE_INTERNAL_H
#define PACK_REMOVE_REMOVE_INTERNAL_H

#include "formats/dataset/manifest.h"
#include "pack/remove/remove.h"

/* Locks the directory and reads its manifest, which must be of a complete dataset. On failure *lock
 * may be set, and must be closed. */
enum status pack_remove_begin(struct file **lock,
                              struct manifest *m,
                              const struct pack_remove_options *o,
                              struct error *err);

/* Seals the manifest with this fingerprint, and writes it unless it is a dry run. */
enum status pack_remove_publish(struct manifest *m,
                                uint64_t fingerprint,
                                const struct pack_remove_options *o,
                                struct error *err);

#endif
