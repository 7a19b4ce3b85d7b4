/*
 * eval_page: an HTML page of captions with the images that a model finds nearest to them, and of
 * images with the nearest captions.
 *
 * Threading : single-owner. Ownership: everything is borrowed for the call.
 */
#ifndef TOOLS_CCSTREAM_EVAL_EVAL_PAGE_H
#define TOOLS_CCSTREAM_EVAL_EVAL_PAGE_H

#include <stdint.h>

#include "formats/base/status.h"
#include "tools/inspect/eval_common.h"
#include "train/eval/embed.h"
#include "train/eval/examples.h"
#include "train/eval/retrieval.h"

/* Writes `path`: for `examples` captions and as many images, spread evenly over the dataset, the
 * EXAMPLES_FOUND nearest of the other kind, with a mark and a word on the right ones. Examples
 * whose right one is among them come first. Returns OK, IO, NOMEM, LIMIT, CORRUPT or a failure of
 * the device. */
enum status eval_page_write(const char *path,
                            const struct eval *eval,
                            const char *dataset_dir,
                            const struct embeddings *e,
                            const struct retrieval_result *recalls,
                            int64_t examples,
                            struct error *err);

#endif
