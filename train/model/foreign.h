/*
 * foreign: a model saved by another program: a folder with configuration and weights.
 *
 *   open_clip_config.json, and open_clip_model, open_clip_pytorch_model or model.safetensors
 *   config.json of Hugging Face's CLIPModel or SiglipModel, preprocessor_config.json,
 *     model.safetensors
 *
 * The tokenizer is CLIP's, or for another vocabulary the one in the folder.
 *
 * Threading : pure functions.
 * Untrusted : every byte of the files.
 */
#ifndef TRAIN_MODEL_FOREIGN_H
#define TRAIN_MODEL_FOREIGN_H

#include <stdbool.h>

#include "formats/base/file_io.h"
#include "formats/base/status.h"
#include "formats/tensors/safetensors.h"
#include "formats/tokenizer/tokenizer.h"
#include "train/model/open_clip.h"
#include "train/model/pretrained.h"

struct foreign_model {
    char weights[PATH_MAX_BYTES];
    struct dual_encoder_options options; /* vocab_count is the tokenizer's, if there is one */
    enum model_names names;
    enum open_clip_resize resize;
    struct safetensors *file;
    struct tokenizer *tokenizer; /* NULL: none */
    double tau;                  /* exp(-logit_scale) */
    double bias;                 /* logit_bias; NaN: none */
};

/* Whether `path` is such a folder, or a weights file in one. */
bool foreign_is(const char *path);

/* Opens one. Call fini even after a failure. Returns OK, NOTFOUND, IO, NOMEM, CORRUPT, LIMIT,
 * MISMATCH, or UNSUPPORTED naming the unsupported field of the configuration. */
enum status foreign_open(struct foreign_model *out,
                         const struct file_system *fs,
                         const char *path,
                         struct error *err);
void foreign_fini(struct foreign_model *m); /* accepts an all-zero one */

/* Reads the preprocess_cfg of a JSON file in open_clip's format; *norm and *resize stay if it, or
 * their field, is missing. Returns OK, NOTFOUND, IO, NOMEM, CORRUPT, or UNSUPPORTED naming the
 * field. */
enum status foreign_read_images(enum image_norm_kind *norm,
                                enum open_clip_resize *resize,
                                const char *path,
                                struct error *err);

#endif
