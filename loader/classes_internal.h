/*
 * classes: the samples of a labelled dataset by class, divided into blocks of block_count: what
 * LOADER_ORDER_CLASSES draws from. 24 bytes a sample.
 *
 * Threading : immutable after classes_create.
 * Ownership : the object owns its arrays.
 */
#ifndef LOADER_CLASSES_INTERNAL_H
#define LOADER_CLASSES_INTERNAL_H

#include <stdint.h>

#include "formats/base/status.h"
#include "loader/sources.h"

struct classes {
    uint32_t block_count; /* samples of a block */
    uint64_t class_count;
    uint64_t *members; /* (live samples) ordinals, by class */
    uint64_t *starts;  /* (class_count + 1) into members */
    uint64_t *blocks;  /* (class_count + 1) whole blocks of the classes before */
};

/* Reads the label of every live sample. Returns OK, NOMEM, USAGE (several sources, a sample without
 * label, a class of fewer than block_count samples, fewer than two classes) or CORRUPT (a damaged
 * index record). */
enum status classes_create(struct classes **out,
                           const struct sources *sources,
                           uint32_t block_count,
                           struct error *err);
void classes_destroy(struct classes *c); /* accepts NULL */

#endif
