/*
 * checkpoint: reading one: metadata into plain structs at open.
 */
#include "train/run/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tensors/safetensors.h"
#include "formats/tokenizer/tokenizer.h"
#include "train/model/foreign.h"
#include "train/run/checkpoint_internal.h"
#include "train/run/run_dir.h"

const enum param_slot checkpoint_slots[CHECKPOINT_SLOT_COUNT] = {PARAM_VALUE, PARAM_M, PARAM_V,
                                                                 PARAM_AVERAGE};

bool checkpoint_has_slot(const struct params *p, int32_t index, enum param_slot slot) {
    return slot == PARAM_AVERAGE ? params_has_average(p)
           : slot == PARAM_VALUE ? true
                                 : params_info(p, index).kind == PARAM_TRAINED &&
                                       (slot == PARAM_M || params_moments(p) == 2);
}

void checkpoint_param_name(char out[CHECKPOINT_NAME_BYTES],
                           const struct params *p,
                           const struct param_info *info,
                           enum param_slot slot) {
    const char *m = params_moments(p) == 1 ? "sgdm.m." : "adamw.m.";
    const char *prefix = slot == PARAM_M         ? m
                         : slot == PARAM_V       ? "adamw.v."
                         : slot == PARAM_AVERAGE ? PREFIX_AVERAGE
                                                 : "";
    (void)snprintf(out, CHECKPOINT_NAME_BYTES, "%s%s", prefix, info->name);
}

enum safetensors_dtype checkpoint_column_dtype(const struct sample_state *state, int32_t column) {
    return sample_state_kind(state, column) == SAMPLE_STATE_F32 ? SAFETENSORS_F32 : SAFETENSORS_U64;
}

void checkpoint_source_key(char out[CHECKPOINT_NAME_BYTES], uint64_t index, const char *what) {
    (void)snprintf(out, CHECKPOINT_NAME_BYTES, "dataset.%" PRIu64 ".%s", index, what);
}

enum status model_config_options(const struct model_config *c,
                                 struct dual_encoder_options *out,
                                 struct error *err) {
    REQUIRE(c != NULL && out != NULL && c->hidden_dim == 0);
    const bool clip = c->open_clip[0] != '\0';
    TRY(clip ? open_clip_options(out, c->open_clip, err)
             : dual_encoder_preset(out, c->image_tower[0] != '\0' ? c->image_tower : NULL,
                                   c->text_tower, err));
    out->raw = c->raw;
    out->image.image_px = c->image_size_px;
    out->image.norm = c->image_norm;
    out->text.pool = c->text_pool;
    out->image.stem = c->small_stem ? RESNET_STEM_SMALL : RESNET_STEM_STANDARD;
    out->image.norm_layers = c->norm_layers;
    out->text.max_tokens = c->max_tokens;
    out->text.vocab_count = c->vocab_count;
    if (!clip && out->text.position_count < c->max_tokens) {
        out->text.position_count = c->max_tokens;
    }
    out->embed_dim = c->embed_dim;
    return STATUS_OK;
}

enum augment_kind model_config_eval(const struct model_config *c, enum augment_kind usual) {
    static const enum augment_kind kinds[] = {0, AUGMENT_EVAL_CLIP, AUGMENT_EVAL_LONGEST,
                                              AUGMENT_EVAL_SQUASH};
    return c->resize != OPEN_CLIP_RESIZE_AUTO      ? kinds[c->resize]
           : c->text_pool == TRANSFORMER_POOL_LAST ? AUGMENT_EVAL_SQUASH /* SigLIP */
           : c->open_clip[0] != '\0'               ? AUGMENT_EVAL_CLIP
                                                   : usual;
}

enum status model_config_view_options(const struct model_config *c,
                                      struct view_encoder_options *out,
                                      struct error *err) {
    REQUIRE(c != NULL && out != NULL);
    *out = (struct view_encoder_options){.hidden_dim = c->hidden_dim,
                                         .raw = c->raw,
                                         .embed_dim = c->embed_dim,
                                         .max_batch = 1,
                                         .training = true,
                                         .moments = 2,
                                         .dtype = DTYPE_F32};
    if (c->open_clip[0] != '\0') { /* only its image tower */
        struct dual_encoder_options pairs;
        TRY(open_clip_options(&pairs, c->open_clip, err));
        out->image = pairs.image;
        out->vit = pairs.vit;
    } else {
        TRY(resnet_preset(&out->image, c->image_tower, err));
    }
    out->image.image_px = c->image_size_px;
    out->image.norm = c->image_norm;
    out->image.stem = c->small_stem ? RESNET_STEM_SMALL : RESNET_STEM_STANDARD;
    out->image.norm_layers = c->norm_layers;
    return STATUS_OK;
}

/* ---- metadata ---- */

static enum status missing(const struct checkpoint *c, const char *key, struct error *err) {
    return error_set(
        err, STATUS_CORRUPT,
        "%s: metadata %s is missing or wrong; this is not a checkpoint of ccstream-train "
        "(which reads weights of timm and Hugging Face by --init-image, --init-text)",
        c->path, key);
}

static enum status
get_text(const struct checkpoint *c, const char *key, const char **out, struct error *err) {
    *out = safetensors_metadata(c->file, key);
    return *out != NULL ? STATUS_OK : missing(c, key, err);
}

/* A decimal number in [low, high]. */
static enum status get_number(const struct checkpoint *c,
                              const char *key,
                              uint64_t low,
                              uint64_t high,
                              uint64_t *out,
                              struct error *err) {
    const char *text;
    TRY(get_text(c, key, &text, err));
    uint64_t value = 0;
    size_t digits = 0;
    for (; text[digits] >= '0' && text[digits] <= '9'; digits++) {
        const uint64_t digit = (uint64_t)(text[digits] - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return missing(c, key, err);
        }
        value = value * 10 + digit;
    }
    if (digits == 0 || text[digits] != '\0' || value < low || value > high) {
        return missing(c, key, err);
    }
    *out = value;
    return STATUS_OK;
}

static enum status get_tower(const struct checkpoint *c,
                             const char *key,
                             char out[CHECKPOINT_TOWER_BYTES],
                             struct error *err) {
    const char *text;
    TRY(get_text(c, key, &text, err));
    const size_t size = strlen(text);
    if (size == 0 || size >= CHECKPOINT_TOWER_BYTES) {
        return missing(c, key, err);
    }
    memcpy(out, text, size + 1);
    return STATUS_OK;
}

/* The index of a value among `count` names; 0 if the key is absent. */
static enum status get_choice(const struct checkpoint *c,
                              const char *key,
                              const char *const *names,
                              int count,
                              int *out,
                              struct error *err) {
    const char *name = safetensors_metadata(c->file, key);
    for (*out = 0; name != NULL && *out < count; ++*out) {
        if (strcmp(name, names[*out]) == 0) {
            return STATUS_OK;
        }
    }
    return name == NULL ? STATUS_OK : missing(c, key, err);
}

static enum status read_text_model(struct checkpoint *c, struct error *err) {
    struct model_config *m = &c->model;
    uint64_t n[3];
    int pool;
    TRY(get_tower(c, KEY_TEXT_TOWER, m->text_tower, err));
    TRY(get_number(c, KEY_MAX_TOKENS, 2, TOKENIZER_MAX_TOKENS, &n[0], err));
    TRY(get_number(c, KEY_VOCAB, 1, TOKENIZER_MAX_VOCAB, &n[1], err));
    TRY(get_number(c, KEY_CLEAN, 0, 1, &n[2], err));
    m->max_tokens = (int32_t)n[0];
    m->vocab_count = (int32_t)n[1];
    m->clean_captions = n[2] == 1;
    TRY(get_choice(c, KEY_POOL, TRANSFORMER_POOL_NAMES, TRANSFORMER_POOL_COUNT, &pool, err));
    m->text_pool = (enum transformer_pool)pool;
    return STATUS_OK;
}

static enum status read_image_model(struct checkpoint *c, struct error *err) {
    struct model_config *m = &c->model;
    const char *stem;
    uint64_t size_px;
    TRY(get_tower(c, KEY_IMAGE_TOWER, m->image_tower, err));
    TRY(get_text(c, KEY_STEM, &stem, err));
    TRY(get_number(c, KEY_IMAGE_SIZE, 8, 2048, &size_px, err));
    if (strcmp(stem, "small") != 0 && strcmp(stem, "standard") != 0) {
        return missing(c, KEY_STEM, err);
    }
    m->small_stem = strcmp(stem, "small") == 0;
    m->image_size_px = (int32_t)size_px;
    const char *norms[IMAGE_NORM_COUNT];
    int norm;
    int layers;
    for (int i = 0; i < IMAGE_NORM_COUNT; i++) {
        norms[i] = IMAGE_NORMS[i].name;
    }
    TRY(get_choice(c, KEY_NORM_LAYERS, RESNET_NORM_NAMES, RESNET_NORM_COUNT, &layers, err));
    TRY(get_choice(c, KEY_NORM, norms, IMAGE_NORM_COUNT, &norm, err));
    m->norm_layers = (enum resnet_norm)layers;
    m->image_norm = (enum image_norm_kind)norm;
    TRY(get_choice(c, KEY_RESIZE, OPEN_CLIP_RESIZE_NAMES, OPEN_CLIP_RESIZE_COUNT, &layers, err));
    m->resize = (enum open_clip_resize)layers;
    return STATUS_OK;
}

static enum status read_model(struct checkpoint *c, struct error *err) {
    struct model_config *m = &c->model;
    uint64_t n[2] = {0};
    const bool texts_alone = safetensors_metadata(c->file, KEY_IMAGE_TOWER) == NULL;
    TRY(texts_alone ? STATUS_OK : read_image_model(c, err));
    TRY(get_number(c, KEY_EMBED, 1, 65536, &n[0], err));
    m->embed_dim = (int32_t)n[0];
    m->raw = safetensors_metadata(c->file, KEY_RAW) != NULL;
    const char *clip = safetensors_metadata(c->file, KEY_OPEN_CLIP);
    if (clip != NULL) {
        FAIL_IF(clip[0] != '{' || open_clip_config(m->open_clip, clip, NULL) != STATUS_OK, err,
                STATUS_CORRUPT, "%s: metadata " KEY_OPEN_CLIP " describes no model known here",
                c->path);
    }
    if (texts_alone || safetensors_metadata(c->file, KEY_HIDDEN) == NULL) {
        return read_text_model(c, err);
    }
    TRY(get_number(c, KEY_HIDDEN, 1, 65536, &n[1], err));
    m->hidden_dim = (int32_t)n[1];
    return STATUS_OK;
}

/* 16 hexadecimal digits. */
static enum status
get_hash(const struct checkpoint *c, const char *key, uint64_t *out, struct error *err) {
    const char *text;
    TRY(get_text(c, key, &text, err));
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) {
        return missing(c, key, err);
    }
    *out = strtoull(text, NULL, 16);
    return STATUS_OK;
}

/* A run on one dataset stores only its fingerprint. */
static enum status read_sources(struct checkpoint *c, struct error *err) {
    struct train_position *p = &c->position;
    p->source_count = 1;
    p->sources[0].fingerprint = p->fingerprint;
    if (safetensors_metadata(c->file, KEY_SOURCES) == NULL) {
        return STATUS_OK;
    }
    TRY(get_number(c, KEY_SOURCES, 2, LOADER_MAX_SOURCES, &p->source_count, err));
    TRY(get_hash(c, KEY_MIX, &p->mix, err));
    for (uint64_t i = 0; i < p->source_count; i++) {
        char key[CHECKPOINT_NAME_BYTES];
        checkpoint_source_key(key, i, "fingerprint");
        TRY(get_hash(c, key, &p->sources[i].fingerprint, err));
        checkpoint_source_key(key, i, "id_offset");
        TRY(get_number(c, key, i == 0 ? 0 : p->sources[i - 1].id_offset,
                       i == 0 ? 0 : p->id_space_count, &p->sources[i].id_offset, err));
    }
    return STATUS_OK;
}

/* Missing in old files. */
static enum status get_tau(struct checkpoint *c, struct error *err) {
    const char *text = safetensors_metadata(c->file, KEY_TAU);
    char *end = NULL;
    c->tau = c->bias = (double)NAN;
    if (text == NULL) {
        return STATUS_OK;
    }
    c->tau = strtod(text, &end);
    text = safetensors_metadata(c->file, KEY_SCALAR "bias");
    c->bias = text != NULL ? strtod(text, NULL) : (double)NAN;
    return *end == '\0' && isfinite(c->tau) && c->tau > 0.0 ? STATUS_OK : missing(c, KEY_TAU, err);
}

static enum status read_position(struct checkpoint *c, struct error *err) {
    struct train_position *p = &c->position;
    TRY(get_number(c, KEY_STEP, 0, UINT64_MAX, &p->step, err));
    if (c->has_model) {
        TRY(get_number(c, KEY_SEED, 0, UINT64_MAX, &p->seed, err));
        TRY(get_number(c, KEY_EPOCH, 0, UINT64_MAX, &p->epoch, err));
        TRY(get_number(c, KEY_BATCH, 0, UINT64_MAX, &p->batch, err));
    }
    TRY(get_number(c, KEY_SAMPLES, 0, UINT64_MAX, &p->samples_count, err));
    TRY(get_number(c, KEY_ID_SPACE, 0, UINT64_MAX, &p->id_space_count, err));
    TRY(get_hash(c, KEY_FINGERPRINT, &p->fingerprint, err));
    if (safetensors_metadata(c->file, KEY_COLUMNS) != NULL) {
        TRY(get_hash(c, KEY_COLUMNS, &p->columns, err));
    }
    TRY(read_sources(c, err));
    TRY(get_tau(c, err));
    return get_text(c, KEY_LOSS, &c->loss_name, err);
}

static enum status read_tokenizer(struct checkpoint *c, struct error *err) {
    const struct safetensors_info *info = safetensors_find(c->file, TENSOR_TOKENIZER);
    if (info == NULL) {
        return STATUS_OK;
    }
    FAIL_IF(info->dtype != SAFETENSORS_U8 || info->size_bytes > TOKENIZER_MAX_MODEL_BYTES ||
                info->size_bytes == 0,
            err, STATUS_CORRUPT, "%s: tensor %s is not a tokenizer", c->path, TENSOR_TOKENIZER);
    c->tokenizer_size_bytes = (size_t)info->size_bytes;
    c->tokenizer = malloc(c->tokenizer_size_bytes);
    FAIL_IF(c->tokenizer == NULL, err, STATUS_NOMEM, "%s: no memory for the tokenizer", c->path);
    return safetensors_read(c->file, info, c->tokenizer, c->tokenizer_size_bytes, err);
}

static enum status read_captions(struct checkpoint *c, struct error *err) {
    const struct safetensors_info *info = safetensors_find(c->file, TENSOR_CAPTIONS);
    const uint64_t ids = c->position.id_space_count;
    if (info == NULL) {
        return STATUS_OK;
    }
    FAIL_IF(info->dtype != SAFETENSORS_U32 || info->dim_count != 1 || info->element_count != ids,
            err, STATUS_CORRUPT, "%s: tensor %s is not of %" PRIu64 " ids", c->path,
            TENSOR_CAPTIONS, ids);
    uint32_t *counts = malloc((size_t)info->size_bytes + 1);
    c->captions = calloc((size_t)ids + 1, sizeof *c->captions);
    enum status s =
        counts != NULL && c->captions != NULL
            ? safetensors_read(c->file, info, counts, (size_t)info->size_bytes, err)
            : error_set(err, STATUS_NOMEM, "%s: no memory for %" PRIu64 " ids", c->path, ids);
    for (uint64_t i = 0; s == STATUS_OK && i < ids; i++) {
        c->captions[i + 1] = c->captions[i] + counts[i];
    }
    free(counts);
    return s;
}

enum status checkpoint_open_state(struct checkpoint **out,
                                  const struct file_system *fs,
                                  const char *path,
                                  struct error *err) {
    REQUIRE(out != NULL && fs != NULL && path != NULL);
    *out = NULL;
    struct checkpoint *c = calloc(1, sizeof *c);
    TRY_MEMORY(c != NULL, err, "%s: out of memory", path);
    enum status s;
    if (foreign_is(path)) {
        s = error_set(err, STATUS_UNSUPPORTED,
                      "%s is a model of open_clip or Hugging Face, without the state of a run",
                      path);
        goto fail;
    }
    TRY_OR_FAIL(s, run_dir_resolve(c->path, path, err));
    TRY_OR_FAIL(s, safetensors_open(&c->file, fs, c->path, err));
    TRY_OR_FAIL(s, get_number(c, KEY_VERSION, 0, UINT64_MAX, &c->version, err));
    if (!safetensors_has_hashes(c->file)) {
        s = error_set(err, STATUS_CORRUPT,
                      "%s: a checkpoint without hashes; it was written again by another program",
                      c->path);
        goto fail;
    }
    if (c->version < 1 || c->version > CHECKPOINT_VERSION) {
        s = error_set(err, STATUS_VERSION,
                      "%s: checkpoint version %" PRIu64 ", this program reads versions 1 to %d",
                      c->path, c->version, CHECKPOINT_VERSION);
        goto fail;
    }
    c->has_model = safetensors_metadata(c->file, KEY_LOSS) == NULL ||
                   safetensors_metadata(c->file, KEY_IMAGE_TOWER) != NULL ||
                   safetensors_metadata(c->file, KEY_TEXT_TOWER) != NULL;
    TRY_OR_FAIL(s, c->has_model ? read_model(c, err) : STATUS_OK);
    TRY_OR_FAIL(s, read_position(c, err));
    TRY_OR_FAIL(s, read_tokenizer(c, err));
    TRY_OR_FAIL(s, read_captions(c, err));
fail:
    RETURN_CREATED(s, out, c, checkpoint_close);
}

/* Takes ownership of the file of `m`. */
static enum status take_foreign(struct checkpoint *c, struct foreign_model *m, struct error *err) {
    const struct dual_encoder_options *o = &m->options;
    c->has_model = c->foreign = true;
    c->names = m->names;
    c->file = m->file;
    m->file = NULL;
    c->tau = m->tau;
    c->bias = m->bias;
    c->loss_name = isnan(m->bias) ? "clip" : "siglip";
    c->position.source_count = 1;
    c->model = (struct model_config){.image_tower = "open_clip",
                                     .text_tower = "open_clip",
                                     .image_size_px = o->image.image_px,
                                     .max_tokens = o->text.max_tokens,
                                     .vocab_count = o->text.vocab_count,
                                     .embed_dim = o->embed_dim,
                                     .image_norm = o->image.norm,
                                     .text_pool = o->text.pool,
                                     .resize = m->resize};
    memcpy(c->path, m->weights, sizeof c->path);
    TRY(open_clip_text(c->model.open_clip, o, err));
    if (m->tokenizer == NULL) {
        return STATUS_OK;
    }
    const void *bytes = tokenizer_bytes(m->tokenizer, &c->tokenizer_size_bytes);
    c->tokenizer = malloc(c->tokenizer_size_bytes);
    TRY_MEMORY(c->tokenizer != NULL, err, "%s: no memory for the tokenizer", c->path);
    memcpy(c->tokenizer, bytes, c->tokenizer_size_bytes);
    return STATUS_OK;
}

static enum status open_foreign(struct checkpoint **out,
                                const struct file_system *fs,
                                const char *path,
                                struct error *err) {
    struct foreign_model m = {0};
    struct checkpoint *c = calloc(1, sizeof *c);
    *out = NULL;
    TRY_MEMORY(c != NULL, err, "%s: out of memory", path);
    enum status s = foreign_open(&m, fs, path, err);
    THEN(s, take_foreign(c, &m, err));
    foreign_fini(&m);
    RETURN_CREATED(s, out, c, checkpoint_close);
}

enum status checkpoint_open(struct checkpoint **out,
                            const struct file_system *fs,
                            const char *path,
                            struct error *err) {
    if (foreign_is(path)) {
        return open_foreign(out, fs, path, err);
    }
    TRY(checkpoint_open_state(out, fs, path, err));
    if ((*out)->has_model) {
        return STATUS_OK;
    }
    const enum status s = error_set(
        err, STATUS_MISMATCH, "%s: holds the state of a loss and no model; ccdump state shows it",
        (*out)->path);
    checkpoint_close(*out);
    *out = NULL;
    return s;
}

void checkpoint_close(struct checkpoint *c) {
    if (c == NULL) {
        return;
    }
    safetensors_close(c->file);
    free(c->tokenizer);
    free(c->captions);
    free(c);
}

const char *checkpoint_path(const struct checkpoint *c) {
    return c->path;
}

const struct model_config *checkpoint_model(const struct checkpoint *c) {
    return &c->model;
}

const struct train_position *checkpoint_position(const struct checkpoint *c) {
    return &c->position;
}

const char *checkpoint_loss_name(const struct checkpoint *c) {
    return c->loss_name;
}

bool checkpoint_is_foreign(const struct checkpoint *c) {
    return c->foreign;
}

double checkpoint_bias(const struct checkpoint *c) {
    return c->bias;
}

enum status checkpoint_choose_tau(const struct checkpoint *c, double *tau, struct error *err) {
    if (*tau > 0.0) {
        return STATUS_OK;
    }
    *tau = c->tau;
    return isnan(c->tau)
               ? error_set(err, STATUS_USAGE,
                           "%s does not contain the temperature of its run; set --tau", c->path)
               : STATUS_OK;
}

const uint64_t *checkpoint_captions(const struct checkpoint *c) {
    return c->captions;
}

const char *checkpoint_caption_columns(const struct checkpoint *c) {
    const char *names = safetensors_metadata(c->file, KEY_CAPTIONS);
    return names != NULL ? names : "";
}

const void *checkpoint_tokenizer(const struct checkpoint *c, size_t *size_bytes) {
    *size_bytes = c->tokenizer_size_bytes;
    return c->tokenizer;
}

enum status checkpoint_load_scalars(const struct checkpoint *c,
                                    const struct loss_scalar *scalars,
                                    int32_t scalar_count,
                                    struct error *err) {
    REQUIRE(c != NULL);
    for (int32_t i = 0; i < scalar_count; i++) {
        char key[128];
        const char *text;
        (void)snprintf(key, sizeof key, KEY_SCALAR "%s", scalars[i].name);
        TRY(get_text(c, key, &text, err));
        char *end;
        const double value = strtod(text, &end);
        if (end == text || *end != '\0' || !isfinite(value)) {
            return missing(c, key, err);
        }
        *scalars[i].value = value;
    }
    return STATUS_OK;
}
