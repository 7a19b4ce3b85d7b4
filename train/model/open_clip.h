/*
 * open_clip: the models that open_clip's JSON describes (its model_cfg), as options of a
 * dual_encoder: a vision transformer or residual network and CLIP's text transformer, or SigLIP's
 * towers. An image tower of timm is described by its name, or where timm has none by "timm_pool":
 * "map" and the numbers of a vision transformer.
 *
 * Threading : pure functions.
 * Untrusted : the text. A field that this program cannot express, or does not know, is refused by
 *             name unless it has the value that changes nothing.
 */
#ifndef TRAIN_MODEL_OPEN_CLIP_H
#define TRAIN_MODEL_OPEN_CLIP_H

#include "formats/base/status.h"
#include "train/model/dual_encoder.h"

enum { OPEN_CLIP_CONFIG_BYTES = 4096 };

/* preprocess_cfg.resize_mode: how evaluation makes images square. */
enum open_clip_resize {
    OPEN_CLIP_RESIZE_AUTO, /* SigLIP's models: squash, others: shortest */
    OPEN_CLIP_RESIZE_SHORTEST,
    OPEN_CLIP_RESIZE_LONGEST,
    OPEN_CLIP_RESIZE_SQUASH,
    OPEN_CLIP_RESIZE_COUNT
};
extern const char *const OPEN_CLIP_RESIZE_NAMES[OPEN_CLIP_RESIZE_COUNT + 1]; /* then NULL */

/* The model_cfg of one of these names, of a JSON file, or of JSON text, which begins with '{', as
 * open_clip_write has it. A file or text may be the model_cfg or hold it under that key, as
 * open_clip_config.json does. Returns OK, USAGE (unknown name), NOTFOUND, IO, NOMEM, LIMIT, CORRUPT
 * (no JSON), or what open_clip_options returns. */
enum status
open_clip_config(char out[OPEN_CLIP_CONFIG_BYTES], const char *model, struct error *err);

/* Fills *out from a model_cfg: towers, embedding size, image size, tokens and vocabulary, and the
 * rest as dual_encoder_preset; no dropout. Returns OK, NOMEM, CORRUPT, or UNSUPPORTED naming the
 * field. */
enum status
open_clip_options(struct dual_encoder_options *out, const char *config, struct error *err);

struct json_value;  /* formats/json/json_reader.h */
struct json_writer; /* formats/base/json_writer.h */

/* The same of a parsed one. with_weights: tensors beside it hold the temperature and bias, so that
 * their first values do not matter; nor does the name of a tokenizer. */
enum status open_clip_read(struct dual_encoder_options *out,
                           const struct json_value *config,
                           bool with_weights,
                           struct error *err);

/* The side of images or patches: a number, or two equal ones. False: neither. */
bool open_clip_side(const struct json_value *v, double *out);

/* The members of the model_cfg of a model, into an open object: one model, one text. tokenizer: a
 * folder, and the id of its end token; NULL: CLIP's. */
void open_clip_write(struct json_writer *w,
                     const struct dual_encoder_options *o,
                     const char *tokenizer,
                     int32_t end_id);

/* False: an image tower of SigLIP for which timm has no name, at this image size or at all, which
 * ccstream alone can read again. */
bool open_clip_knows(const struct dual_encoder_options *o);

/* The same as compact JSON. Returns OK, NOMEM or LIMIT. */
enum status open_clip_text(char out[OPEN_CLIP_CONFIG_BYTES],
                           const struct dual_encoder_options *o,
                           struct error *err);

#endif
