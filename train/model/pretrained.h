/*
 * pretrained: the weights of a tower from a safetensors file that holds them under timm's or
 * Hugging Face's names, and those of a whole model of open_clip.
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

#include <stdbool.h>
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

/* How a file names the tensors of a model that has open_clip's names in the table. */
enum model_names {
    MODEL_NAMES_OPEN_CLIP,   /* the same, or with "text." before those of the text tower */
    MODEL_NAMES_HUGGING_FACE /* CLIPModel's: q, k and v apart, projections transposed; or
                                SiglipModel's: there in the image tower's pool together */
};

struct safetensors; /* formats/tensors/safetensors.h */

/* Fills every tensor of `p`; positions of another number of patches are interpolated as open_clip
 * does it (bicubic, antialiased). `whole`: the file has no other tensors but those that no forward
 * pass reads, logit_scale and logit_bias. Returns as pretrained_load; the message has the first
 * tensor that is missing, superfluous or of another shape. */
enum status pretrained_load_model(struct params *p,
                                  enum model_names names,
                                  bool whole,
                                  const struct safetensors *file,
                                  const char *path,
                                  struct error *err);

/* Reads a scalar such as logit_scale, () or (1); NaN if there is none. Returns OK, IO, MISMATCH
 * (another type or shape) or CORRUPT (not in -100 to 100). */
enum status pretrained_read(double *out,
                            const struct safetensors *file,
                            const char *name,
                            const char *path,
                            struct error *err);

#endif
