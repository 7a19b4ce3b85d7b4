/*
 * pretrained: loads the weights of a tower from a safetensors file with timm's or Hugging Face's
 * names, and the weights of a whole open_clip model.
 *
 * Names may begin with one of a few prefixes ("distilbert.", "model.", "module.", the tower's own
 * in a ccstream checkpoint); the prefix that matches most names is used. F32, F16, BF16 and F64 are
 * converted to the table's type. Tensors of the file that the tower lacks, such as a classifier,
 * are logged and skipped; buffers that no forward pass reads (num_batches_tracked) are skipped
 * silently. Tensors missing in the file, or with another shape, are an error. The pickles of
 * torch.save are rejected with a line that converts them.
 *
 * Threading : as the table.
 * Ownership : everything is borrowed for the call.
 * Untrusted : every byte of the file.
 */
#ifndef TRAIN_MODEL_PRETRAINED_H
#define TRAIN_MODEL_PRETRAINED_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/file_io.h"
#include "formats/base/log.h"
#include "formats/base/status.h"
#include "train/model/params.h"

/* Fills every tensor of `p` whose name begins with `tower` ("image.", "text."), running statistics
 * too. Names and shapes are checked before anything is written; every mismatch is logged to `log`
 * (may be NULL), the first one is in *err. Returns OK, MISMATCH (names, shapes, or a type that is
 * not a real number), CORRUPT (also for values that are not finite), NOTFOUND, IO, NOMEM, LIMIT,
 * UNSUPPORTED, or what the device returns. */
enum status pretrained_load(struct params *p,
                            const char *tower,
                            const struct file_system *fs,
                            const char *path,
                            const struct log_sink *log,
                            struct error *err);

/* The names in the file of a model that has open_clip's names in the table. */
enum model_names {
    MODEL_NAMES_OPEN_CLIP,   /* the same, or with "text." before the text tower's */
    MODEL_NAMES_HUGGING_FACE /* CLIPModel's: separate q, k and v, transposed projections; or
                                SiglipModel's: q, k and v of the image tower's pool are together */
};

struct safetensors; /* formats/tensors/safetensors.h */

/* Fills every tensor of `p`; position embeddings of another number of patches are interpolated as
 * in open_clip (bicubic, antialiased). `whole`: requires that the file has no other tensors, except
 * those that no forward pass reads, logit_scale and logit_bias. Returns as pretrained_load; the
 * message names the first tensor that is missing, unexpected or of another shape. */
enum status pretrained_load_model(struct params *p,
                                  enum model_names names,
                                  bool whole,
                                  const struct safetensors *file,
                                  const char *path,
                                  struct error *err);

/* Reads a scalar such as logit_scale, () or (1); NaN if there is none. Returns OK, IO, MISMATCH
 * (another type or shape) or CORRUPT (not in [-100, 100]). */
enum status pretrained_read(double *out,
                            const struct safetensors *file,
                            const char *name,
                            const char *path,
                            struct error *err);

#endif
