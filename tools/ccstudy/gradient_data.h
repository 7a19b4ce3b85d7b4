/*
 * gradient_data: the pictures of figure 7 of EMC2: n images, two fixed augmentations of each
 * (SimCLR's: crop, mirror, colour jitter, gray, blur), and the images themselves.
 *
 * Threading : pure functions of their arguments.
 * Ownership : the caller's struct owns the pixels until gradient_data_fini.
 */
#ifndef TOOLS_CCSTUDY_GRADIENT_DATA_H
#define TOOLS_CCSTUDY_GRADIENT_DATA_H

#include <stdint.h>

#include "formats/base/status.h"

enum gradient_kind { GRADIENT_FIRST, GRADIENT_SECOND, GRADIENT_PLAIN, GRADIENT_KINDS };

/* Row kind * count + i is image i in that kind: 3n rows. */
struct gradient_data {
    uint32_t count, size_px;
    uint8_t *pixels; /* (3n, S, S, 3) */
};

/* Generated pictures that need no data: a coloured background and blobs. Returns OK or NOMEM; on
 * failure nothing leaks. */
enum status gradient_data_draw(struct gradient_data *out,
                               uint32_t count,
                               uint32_t size_px,
                               uint64_t seed,
                               struct error *err);

/* The first `count` pictures of a packed dataset. Returns OK, USAGE (fewer pictures), NOMEM or what
 * the loader returns; on failure nothing leaks. */
enum status gradient_data_read(struct gradient_data *out,
                               const char *directory,
                               uint32_t count,
                               uint32_t size_px,
                               uint64_t seed,
                               struct error *err);

void gradient_data_fini(struct gradient_data *d); /* accepts an all-zero one */

#endif
