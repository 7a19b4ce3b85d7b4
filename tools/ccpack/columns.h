/*
 * columns: numbers by sample id, for selecting samples: per-sample state of a checkpoint (zeta,
 * log_u, visits), and attached columns.
 *
 * Threading : single-owner.
 * Ownership : a set owns its columns until columns_close.
 * Untrusted : the files.
 */
#ifndef TOOLS_CCPACK_COLUMNS_H
#define TOOLS_CCPACK_COLUMNS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "formats/dataset/manifest.h"

struct columns; /* opaque */

/* checkpoint: a file or a run trained on `dataset`, or on a mix with it; NULL: none. `directory`:
 * the dataset's, borrowed, as is its manifest. Returns OK, NOTFOUND, IO, CORRUPT, VERSION, LIMIT,
 * NOMEM, MISMATCH (trained on other data). */
enum status columns_open(struct columns **out,
                         const char *checkpoint,
                         const char *directory,
                         const struct manifest *dataset,
                         struct error *err);
void columns_close(struct columns *c); /* accepts NULL */

/* The index of a column, read at its first use: "image.zeta", "visits", "col.NAME" for an attached
 * one; without the side if only one side has it. Returns OK, USAGE (no such column; the message
 * lists them), IO, CORRUPT, LIMIT or NOMEM. */
enum status columns_find(int32_t *out, struct columns *c, const char *name, struct error *err);

/* NaN: the sample has no number. */
double columns_value(const struct columns *c, int32_t column, uint64_t id);

/* Whether an attached column has a row for the sample, which may be NaN. */
bool columns_has(const struct columns *c, int32_t column, uint64_t id);

#endif
