/*
 * columns: numbers by sample id, to choose samples by: what a checkpoint keeps for every sample
 * (zeta, log_u, visits), and columns that were attached.
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

/* checkpoint: a file or a run of `dataset`, or of a mix that has it; NULL: none. `directory`: of
 * the dataset, borrowed as is its manifest. Returns OK, NOTFOUND, IO, CORRUPT, VERSION, LIMIT,
 * NOMEM, MISMATCH (the run was on other data). */
enum status columns_open(struct columns **out,
                         const char *checkpoint,
                         const char *directory,
                         const struct manifest *dataset,
                         struct error *err);
void columns_close(struct columns *c); /* accepts NULL */

/* The column's number, reading it when it is named first: "image.zeta", "visits",
 * "col.NAME" for one that was attached; a name
 * without its side where only one side has it. Returns OK, USAGE (there is none; the message lists
 * those that there are), IO, CORRUPT, LIMIT or NOMEM. */
enum status columns_find(int32_t *out, struct columns *c, const char *name, struct error *err);

/* NaN: the sample has no number there. */
double columns_value(const struct columns *c, int32_t column, uint64_t id);

/* Whether an attached column has a row for the sample, which may be NaN. */
bool columns_has(const struct columns *c, int32_t column, uint64_t id);

#endif
