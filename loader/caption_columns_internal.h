/*
 * caption_columns: see struct loader_options.
 *
 * Threading : immutable once open; each thread draws with its own workspace.
 */
#ifndef LOADER_CAPTION_COLUMNS_INTERNAL_H
#define LOADER_CAPTION_COLUMNS_INTERNAL_H

#include "formats/base/rng.h"
#include "formats/columns/columns.h"

struct sources;
struct caption_columns; /* opaque */

/* positives: rows of a sample in a batch. Returns OK, USAGE, LIMIT, NOMEM or what column_open
 * returns. */
enum status caption_columns_open(struct caption_columns **out,
                                 const char *text,
                                 uint32_t positives,
                                 const struct sources *sources,
                                 struct error *err);
void caption_columns_close(struct caption_columns *c);          /* accepts NULL */
uint64_t caption_columns_hash(const struct caption_columns *c); /* NULL: 0 */

/* The text, borrowed from the workspace, and *caption, as in struct loader_batch; data NULL: one of
 * the sample's own captions, or it has none, and *caption stays.
 * `id` is that in the dataset; positive: which of its rows in the batch. Returns OK or CORRUPT. */
enum status caption_columns_draw(const struct caption_columns *c,
                                 struct shard_text *out,
                                 struct column_workspace *workspace,
                                 uint32_t source,
                                 uint64_t id,
                                 uint32_t positive,
                                 bool has_raw,
                                 struct rng *r,
                                 uint32_t *caption,
                                 struct error *err);

#endif
