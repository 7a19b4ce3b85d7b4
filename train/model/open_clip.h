/*
 * open_clip: models described by open_clip's JSON (model_cfg), as options of a dual_encoder: a
 * vision transformer or ResNet and CLIP's text transformer, or SigLIP's towers. A timm image tower
 * is described by its name, or if timm has none by "timm_pool": "map" and the sizes of a vision
 * transformer.
 *
 * Threading : pure functions.
 * Untrusted : the text. An unknown or unsupported field is rejected by name unless it has a value
 *             without effect.
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

/* The model_cfg of a known name, a JSON file, or JSON text, which begins with '{', in the format of
 * open_clip_write. A file or text may be the model_cfg or have it as a field, as
 * open_clip_config.json does. Returns OK, USAGE (unknown name), NOTFOUND, IO, NOMEM, LIMIT, CORRUPT
 * (not JSON), or what open_clip_options returns. */
enum status
open_clip_config(char out[OPEN_CLIP_CONFIG_BYTES], const char *model, struct error *err);

/* Fills *out from a model_cfg: towers, embedding dimension, image size, tokens and vocabulary;
 * other fields as dual_encoder_preset, without dropout. Returns OK, NOMEM, CORRUPT, or UNSUPPORTED
 * naming the field. */
enum status
open_clip_options(struct dual_encoder_options *out, const char *config, struct error *err);

struct json_value;  /* formats/json/json_reader.h */
struct json_writer; /* formats/base/json_writer.h */

/* The same from a parsed model_cfg. with_weights: there are weights, so initial temperature and
 * bias are ignored, and the tokenizer's name. */
enum status open_clip_read(struct dual_encoder_options *out,
                           const struct json_value *config,
                           bool with_weights,
                           struct error *err);

/* Size of images or patches: a number, or two equal ones. False: neither. */
bool open_clip_side(const struct json_value *v, double *out);

/* Writes the fields of a model's model_cfg to an open object; equal models give equal text.
 * tokenizer: a folder, with the id of its end token; NULL: CLIP's. */
void open_clip_write(struct json_writer *w,
                     const struct dual_encoder_options *o,
                     const char *tokenizer,
                     int32_t end_id);

/* False: a SigLIP image tower for which timm has no name (at this image size), which only ccstream
 * can read. */
bool open_clip_knows(const struct dual_encoder_options *o);

/* The same as compact JSON. Returns OK, NOMEM or LIMIT. */
enum status open_clip_text(char out[OPEN_CLIP_CONFIG_BYTES],
                           const struct dual_encoder_options *o,
                           struct error *err);

#endif
