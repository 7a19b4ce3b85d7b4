/*
 * classes: the names of classes over all sources, and the label of a row.
 *
 * Threading : the reader adds names, the committing thread copies them into the manifest; only the
 *             reader calls add, open_source and label.
 */
#ifndef PACK_RUN_CLASSES_INTERNAL_H
#define PACK_RUN_CLASSES_INTERNAL_H

#include <pthread.h>

#include "formats/base/hash_map.h"
#include "formats/dataset/manifest.h"
#include "pack/source/source.h"

struct pack_classes {
    pthread_mutex_t mutex; /* guards names and count */
    char **names;
    size_t count, capacity;
    uint64_t json_bytes;     /* of all names */
    struct hash_map *places; /* the reader's: hash of a name to its place in `names` */
    int32_t *of_source;      /* the reader's: places of the current source's classes */
    size_t of_source_count, of_source_capacity;
};

void pack_classes_init(struct pack_classes *c);
void pack_classes_fini(struct pack_classes *c); /* requires pack_classes_init */

/* Adds a name at the end, whether it is there already or not. Returns OK, LIMIT or NOMEM. */
enum status pack_classes_append(struct pack_classes *c, const char *name, struct error *err);

/* The place of a name, which is added when it is new. Returns OK, LIMIT or NOMEM. */
enum status
pack_classes_add(struct pack_classes *c, const char *name, uint64_t *place, struct error *err);

/* Adds the classes of the source that is read next. Returns as pack_classes_add. */
enum status
pack_classes_open_source(struct pack_classes *c, const struct source *source, struct error *err);

/* The label of a class of the current source; SHARD_NO_LABEL for -1. */
int32_t pack_classes_label(const struct pack_classes *c, int32_t class_index);
size_t pack_classes_count(struct pack_classes *c);

/* Adds names to a manifest, which has the first of them, until it has `count`. */
enum status
pack_classes_publish(struct pack_classes *c, struct manifest *m, size_t count, struct error *err);

#endif
