/*
 * pretrained: the weights of a tower from a safetensors file that holds them under timm's or
 * Hugging Face's names.
 *
 * Names may begin with one of a few prefixes ("distilbert.", "model.", "module.", the tower's own
 * in a checkpoint of ccstream); the prefix that fits most names is used. F32, F16, BF16 and F64 are
 * accepted and stored in the table's type. Tensors of the file that the tower lacks, such as a
 * classifier, are named and skipped; buffers that no forward pass reads (num_batches_tracked) are
 * skipped in silence. Tensors that the file lacks, or has in another shape, are an error. The
 * pickles of torch.save are refused with the line that converts them.
 *
 * Threading : as the table.
 * Ownership : everything is borrowed for the call.
 * Untrusted : every byte of the file.
 */
#ifndef TRAIN_MODEL_PRETRAINED_H
#define TRAIN_MODEL_PRETRAINED_H

#include <stdint.h>

#include "formats/base/file_io.h"
#include "formats/base/log.h"
#include "formats/base/status.h"
#include "train/model/params.h"

/* Fills every tensor of `p` whose name begins with `tower` ("image.", "text."), running statistics
 * too. Names and shapes are checked before anything is written; every mismatch is listed on
 * `log` (may be NULL), the first one in *err. Returns OK, MISMATCH (names, shapes or a type
 * that is no real number), CORRUPT (also for values that are not finite), NOTFOUND, IO, NOMEM,
 * LIMIT, UNSUPPORTED, or what the device returns. */
enum status pretrained_load(struct params *p,
                            const char *tower,
                            const struct file_system *fs,
                            const char *path,
                            const struct log_sink *log,
                            struct error *err);

#endif
