/*
 * eval_page: an HTML page with captions and the pictures that a model finds nearest to them.
 *
 * Threading : single-owner. Ownership: everything is borrowed for the call.
 */
#ifndef TOOLS_CCSTREAM_EVAL_EVAL_PAGE_H
#define TOOLS_CCSTREAM_EVAL_EVAL_PAGE_H

#include <stdint.h>

#include "formats/base/status.h"
#include "kernels/ops.h"
#include "train/eval/embed.h"

enum { EVAL_PAGE_FOUND = 5 };

/* Writes `path`: for `examples` captions, spread evenly over the dataset, the EVAL_PAGE_FOUND
 * nearest pictures with the right one marked, and its rank. Returns OK, IO, NOMEM, LIMIT, CORRUPT
 * or a failure of the device. */
enum status eval_page_write(const char *path,
                            const char *dataset_dir,
                            const struct embeddings *e,
                            struct device *dev,
                            int64_t examples,
                            struct error *err);

#endif
