/*
 * checkpoint_internal: an open checkpoint and the names inside it, shared by save and load.
 */
#ifndef TRAIN_RUN_CHECKPOINT_INTERNAL_H
#define TRAIN_RUN_CHECKPOINT_INTERNAL_H

#include "formats/tensors/safetensors.h"
#include "train/model/foreign.h"
#include "train/run/checkpoint.h"

#define KEY_VERSION     "ccstream.version"
#define KEY_IMAGE_TOWER "model.image_tower"
#define KEY_TEXT_TOWER  "model.text_tower"
#define KEY_OPEN_CLIP   "model.open_clip"
#define KEY_HIDDEN      "model.hidden_dim"
#define KEY_RAW         "model.raw_embeddings"
#define KEY_STEM        "model.stem"
#define KEY_IMAGE_SIZE  "model.image_size"
#define KEY_MAX_TOKENS  "model.max_tokens"
#define KEY_VOCAB       "model.vocab"
#define KEY_EMBED       "model.embed_dim"
#define KEY_CLEAN       "model.clean_captions"
#define KEY_NORM        "model.image_norm"
#define KEY_NORM_LAYERS "model.norm_layers"
#define KEY_POOL        "model.text_pool"
#define KEY_RESIZE      "model.resize_mode"
#define KEY_STEP        "train.step"
#define KEY_SEED        "train.seed"
#define KEY_EPOCH       "train.epoch"
#define KEY_BATCH       "train.batch"
#define KEY_FINGERPRINT "dataset.fingerprint"
#define KEY_SAMPLES     "dataset.samples"
#define KEY_ID_SPACE    "dataset.id_space"
#define KEY_SOURCES     "dataset.count"
#define KEY_MIX         "dataset.mix"
#define KEY_COLUMNS     "dataset.columns"
#define KEY_CAPTIONS    "loss.caption_columns"
#define KEY_LOSS        "loss.name"
#define KEY_TAU         "loss.tau"
#define KEY_SCALAR      "loss.state."

#define TENSOR_STATE       "state."
#define TENSOR_IMAGE_CACHE "cache.image"
#define TENSOR_TEXT_CACHE  "cache.text"
#define TENSOR_TOKENIZER   "tokenizer.model"
#define PREFIX_AVERAGE     "ema."
#define TENSOR_CAPTIONS    "captions" /* their number per id, u32 */

struct checkpoint {
    char path[PATH_MAX_BYTES];
    struct safetensors *file;
    bool has_model;
    struct model_config model;
    struct train_position position;
    const char *loss_name;
    double tau, bias;
    bool foreign;
    enum model_names names; /* of a model of another program */
    uint64_t version;
    uint64_t *captions; /* of checkpoint_captions */
    uint8_t *tokenizer;
    size_t tokenizer_size_bytes;
};

enum { CHECKPOINT_NAME_BYTES = 256, CHECKPOINT_SLOT_COUNT = 4 };

/* The slots that may be saved, in order, and whether a tensor has a slot. */
extern const enum param_slot checkpoint_slots[CHECKPOINT_SLOT_COUNT];
bool checkpoint_has_slot(const struct params *p, int32_t index, enum param_slot slot);

/* "dataset.INDEX.WHAT": key of a field that is stored per dataset of a mix. */
void checkpoint_source_key(char out[CHECKPOINT_NAME_BYTES], uint64_t index, const char *what);

/* NAME, "adamw.m.NAME", "adamw.v.NAME", "ema.NAME", or "sgdm.m.NAME" of a table with one moment
 * (SGD, LARS). */
void checkpoint_param_name(char out[CHECKPOINT_NAME_BYTES],
                           const struct params *p,
                           const struct param_info *info,
                           enum param_slot slot);

/* F32 or U64. */
enum safetensors_dtype checkpoint_column_dtype(const struct sample_state *state, int32_t column);

/* Returns OK, or CORRUPT naming the first invalid number in a piece of a tensor: one that is not
 * finite, or a weight or running statistic whose square is not finite (embeddings computed from it
 * would not be). `unset_ok`: NaN is valid and means never set. `first`: index of values[0] in the
 * tensor. */
enum status checkpoint_check_numbers(const char *path,
                                     const char *name,
                                     const float *values,
                                     uint64_t first,
                                     uint64_t count,
                                     bool unset_ok,
                                     struct error *err);

#endif
