/*
 * foreign: the configuration becomes options of a dual_encoder; tensors are checked when they are
 * loaded (pretrained.h).
 */
#include "train/model/foreign.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/json/json_reader.h"
#include "train/model/open_clip.h"

enum { MAX_FILE_BYTES = 1 << 20 };

static const char OPEN_CLIP_FILE[] = "open_clip_config.json";

/* ---- where it is ---- */

static bool is_in(char out[PATH_MAX_BYTES],
                  const struct file_system *fs,
                  const char *folder,
                  const char *name) {
    bool there = false;
    return path_join(out, PATH_MAX_BYTES, folder, name, NULL) == STATUS_OK &&
           fs->exists(fs->context, out, &there, NULL) == STATUS_OK && there;
}

/* The folder that `path` names or lies in. */
static bool folder_of(char out[PATH_MAX_BYTES], bool *is_folder, const char *path) {
    struct stat st;
    *is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    return (*is_folder ? path_join(out, PATH_MAX_BYTES, "", path, NULL)
                       : path_directory(out, PATH_MAX_BYTES, path, NULL)) == STATUS_OK;
}

bool foreign_is(const char *path) {
    char folder[PATH_MAX_BYTES];
    char file[PATH_MAX_BYTES];
    bool is_folder;
    const struct file_system *fs = file_posix();
    if (!folder_of(folder, &is_folder, path) || is_in(file, fs, folder, "metrics.jsonl")) {
        return false; /* a run */
    }
    return is_in(file, fs, folder, OPEN_CLIP_FILE) ||
           (is_in(file, fs, folder, "config.json") && is_in(file, fs, folder, "model.safetensors"));
}

static enum status find_weights(struct foreign_model *m,
                                const struct file_system *fs,
                                const char *folder,
                                const char *path,
                                struct error *err) {
    static const char *const names[] = {"open_clip_model.safetensors",
                                        "open_clip_pytorch_model.safetensors", "model.safetensors"};
    if (path != NULL) {
        return path_join(m->weights, sizeof m->weights, "", path, err);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (is_in(m->weights, fs, folder, names[i])) {
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_NOTFOUND,
                     "%s holds none of open_clip_model.safetensors, "
                     "open_clip_pytorch_model.safetensors and model.safetensors; .bin, .pt and "
                     ".pth are pickles, which can run code and are not read: convert them where "
                     "you trust them",
                     folder);
}

/* ---- configurations ---- */

static enum status read_json(struct json_document **out,
                             const struct file_system *fs,
                             const char *path,
                             struct error *err) {
    struct byte_buffer text = {0};
    TRY(file_read_all(fs, &text, path, MAX_FILE_BYTES, err));
    const enum status s = json_document_parse(out, path, text.data, text.size_bytes, err);
    byte_buffer_fini(&text);
    return s;
}

static bool is_near(const struct json_value *list, const float numbers[3]) {
    bool near = json_value_count(list) == 3;
    for (size_t i = 0; i < 3 && near; i++) {
        double v;
        near = json_value_double(json_value_at(list, i), &v) && fabs(v - (double)numbers[i]) < 1e-4;
    }
    return near;
}

/* `cfg` may be NULL: then it is CLIP's. */
static enum status read_norm(enum image_norm_kind *out,
                             const struct json_value *cfg,
                             const char *mean,
                             const char *deviation,
                             const char *path,
                             struct error *err) {
    const struct json_value *m = json_value_get(cfg, mean);
    const struct json_value *d = json_value_get(cfg, deviation);
    *out = IMAGE_NORM_CLIP;
    for (int i = 0; i < IMAGE_NORM_COUNT && (m != NULL || d != NULL); i++) {
        if (is_near(m, IMAGE_NORMS[i].mean) && is_near(d, IMAGE_NORMS[i].deviation)) {
            *out = (enum image_norm_kind)i;
            m = d = NULL;
        }
    }
    return m == NULL && d == NULL
               ? STATUS_OK
               : error_set(err, STATUS_UNSUPPORTED,
                           "%s: %s and %s are none of those that --image-norm names", path, mean,
                           deviation);
}

/* "interpolation" and "resize_mode" of open_clip; absent: as expected. */
static enum status expect_text(const struct json_value *cfg,
                               const char *key,
                               const char *expected,
                               const char *path,
                               struct error *err) {
    const struct json_value *v = json_value_get(cfg, key);
    const char *text = json_value_string(v, NULL);
    return v == NULL || (text != NULL && strcmp(text, expected) == 0)
               ? STATUS_OK
               : error_set(err, STATUS_UNSUPPORTED,
                           "%s: preprocess_cfg.%s is %.60s; images of this model are prepared with "
                           "%s here",
                           path, key, text != NULL ? text : "no text", expected);
}

static enum status read_open_clip(struct foreign_model *m,
                                  bool *own_tokenizer,
                                  const struct json_value *root,
                                  const char *path,
                                  struct error *err) {
    const struct json_value *model = json_value_get(root, "model_cfg");
    const struct json_value *images = json_value_get(root, "preprocess_cfg");
    struct error why = {0};
    FAIL_IF(model == NULL, err, STATUS_CORRUPT, "%s has no model_cfg", path);
    const enum status s = open_clip_read(&m->options, model, true, &why);
    FAIL_IF(s != STATUS_OK, err, s, "%s: %s", path, why.text);
    *own_tokenizer =
        json_value_string(json_value_get(json_value_get(model, "text_cfg"), "hf_tokenizer_name"),
                          NULL) != NULL;
    m->names = MODEL_NAMES_OPEN_CLIP;
    TRY(expect_text(images, "interpolation", "bicubic", path, err));
    TRY(expect_text(images, "resize_mode", "shortest", path, err));
    return read_norm(&m->options.image.norm, images, "mean", "std", path, err);
}

/* The member `key`, which is a number in [1, most], or `usual`. */
static enum status read_count(int32_t *out,
                              const struct json_value *v,
                              const char *key,
                              int32_t usual,
                              int32_t most,
                              const char *path,
                              struct error *err) {
    const struct json_value *number = json_value_get(v, key);
    uint32_t n = (uint32_t)usual;
    FAIL_IF(number != NULL && (!json_value_u32(number, &n) || n < 1 || n > (uint32_t)most), err,
            STATUS_UNSUPPORTED, "%s: %s is not a whole number in 1-%d", path, key, (int)most);
    *out = (int32_t)n;
    return STATUS_OK;
}

static enum status read_activation(enum activation *out,
                                   const struct json_value *v,
                                   const char *path,
                                   struct error *err) {
    const struct json_value *name = json_value_get(v, "hidden_act");
    const char *text = name != NULL ? json_value_string(name, NULL) : "quick_gelu";
    const bool quick = text != NULL && strcmp(text, "quick_gelu") == 0;
    *out = quick ? ACTIVATION_QUICK_GELU : ACTIVATION_GELU;
    return quick || (text != NULL && strcmp(text, "gelu") == 0)
               ? STATUS_OK
               : error_set(err, STATUS_UNSUPPORTED,
                           "%s: hidden_act is %.60s; only gelu and quick_gelu can be trained here",
                           path, text != NULL ? text : "no text");
}

/* What a configuration of transformers omits has the default of its class. */
static enum status read_hugging_face(struct foreign_model *m,
                                     const struct json_value *root,
                                     const char *path,
                                     struct error *err) {
    enum { WIDE = 65536 };
    struct dual_encoder_options *o = &m->options;
    const struct json_value *v = json_value_get(root, "vision_config");
    const struct json_value *t = json_value_get(root, "text_config");
    const char *type = json_value_string(json_value_get(root, "model_type"), NULL);
    FAIL_IF(type == NULL || strcmp(type, "clip") != 0, err, STATUS_UNSUPPORTED,
            "%s: model_type is %.60s; of transformers' models only clip (CLIPModel) is read", path,
            type != NULL ? type : "missing");
    *o = (struct dual_encoder_options){
        .max_batch = 1,
        .training = true,
        .dtype = DTYPE_F32,
        .moments = 2,
        .text = {.kind = TRANSFORMER_CLIP, .pool = TRANSFORMER_POOL_END}};
    m->names = MODEL_NAMES_HUGGING_FACE;
    TRY(read_count(&o->embed_dim, root, "projection_dim", 512, WIDE, path, err));
    TRY(read_count(&o->image.image_px, v, "image_size", 224, 1024, path, err));
    TRY(read_count(&o->vit.patch_px, v, "patch_size", 32, 1024, path, err));
    TRY(read_count(&o->vit.layers, v, "num_hidden_layers", 12, 64, path, err));
    TRY(read_count(&o->vit.dim, v, "hidden_size", 768, WIDE, path, err));
    TRY(read_count(&o->vit.heads, v, "num_attention_heads", 12, WIDE, path, err));
    TRY(read_count(&o->vit.ffn_dim, v, "intermediate_size", 3072, WIDE, path, err));
    TRY(read_count(&o->text.layers, t, "num_hidden_layers", 12, 64, path, err));
    TRY(read_count(&o->text.dim, t, "hidden_size", 512, WIDE, path, err));
    TRY(read_count(&o->text.heads, t, "num_attention_heads", 8, WIDE, path, err));
    TRY(read_count(&o->text.ffn_dim, t, "intermediate_size", 2048, WIDE, path, err));
    TRY(read_count(&o->text.vocab_count, t, "vocab_size", 49408, 1 << 24, path, err));
    TRY(read_count(&o->text.position_count, t, "max_position_embeddings", 77, 512, path, err));
    TRY(read_activation(&o->vit.act, v, path, err));
    TRY(read_activation(&o->text.act, t, path, err));
    FAIL_IF(o->vit.act != o->text.act, err, STATUS_UNSUPPORTED,
            "%s: hidden_act differs between the towers", path);
    FAIL_IF(o->vit.dim % o->vit.heads != 0, err, STATUS_UNSUPPORTED,
            "%s: hidden_size %d is no multiple of num_attention_heads %d", path, (int)o->vit.dim,
            (int)o->vit.heads);
    o->text.max_tokens = o->text.position_count;
    return STATUS_OK;
}

static enum status read_config(struct foreign_model *m,
                               bool *own_tokenizer,
                               const struct file_system *fs,
                               const char *folder,
                               struct error *err) {
    char path[PATH_MAX_BYTES];
    struct json_document *d = NULL;
    *own_tokenizer = false;
    if (is_in(path, fs, folder, OPEN_CLIP_FILE)) {
        TRY(read_json(&d, fs, path, err));
        const enum status s = read_open_clip(m, own_tokenizer, json_document_root(d), path, err);
        json_document_destroy(d);
        return s;
    }
    TRY(path_join(path, sizeof path, folder, "config.json", err));
    TRY(read_json(&d, fs, path, err));
    enum status s = read_hugging_face(m, json_document_root(d), path, err);
    json_document_destroy(d);
    TRY(s);
    d = NULL;
    m->options.image.norm = IMAGE_NORM_CLIP;
    if (is_in(path, fs, folder, "preprocessor_config.json")) {
        TRY(read_json(&d, fs, path, err));
        s = read_norm(&m->options.image.norm, json_document_root(d), "image_mean", "image_std",
                      path, err);
        json_document_destroy(d);
    }
    return s;
}

/* ---- what lies beside the towers ---- */

static enum status open_tokenizer(struct foreign_model *m,
                                  const struct file_system *fs,
                                  bool own,
                                  const char *folder,
                                  struct error *err) {
    enum { CLIP_VOCAB = 49408 };
    static const char *const names[] = {"tokenizer.model", "spiece.model", "vocab.txt",
                                        "tokenizer.json"};
    char path[PATH_MAX_BYTES];
    const int32_t expected = m->options.text.vocab_count;
    if (!own && expected == CLIP_VOCAB) {
        return tokenizer_open_clip(&m->tokenizer, err);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names && m->tokenizer == NULL; i++) {
        TRY(is_in(path, fs, folder, names[i]) ? tokenizer_load(&m->tokenizer, path, err)
                                              : STATUS_OK);
    }
    FAIL_IF(m->tokenizer != NULL && tokenizer_vocab_count(m->tokenizer) != (uint32_t)expected, err,
            STATUS_MISMATCH, "%s has %u pieces, the model's vocabulary %d", path,
            (unsigned)tokenizer_vocab_count(m->tokenizer), (int)expected);
    return STATUS_OK;
}

/* A scalar, which older files have as a tensor of one element. NaN: there is none. */
static enum status
read_scalar(double *out, const struct foreign_model *m, const char *name, struct error *err) {
    const struct safetensors_info *info = safetensors_find(m->file, name);
    *out = (double)NAN;
    if (info == NULL) {
        return STATUS_OK;
    }
    FAIL_IF(info->element_count != 1, err, STATUS_MISMATCH,
            "%s: %s has %llu elements, expected one", m->weights, name,
            (unsigned long long)info->element_count);
    TRY(pretrained_read(out, m->file, info, m->weights, err));
    FAIL_IF(fabs(*out) > 100.0, err, STATUS_CORRUPT, "%s: %s is %g, not in -100 to 100", m->weights,
            name, *out);
    return STATUS_OK;
}

static enum status read_scalars(struct foreign_model *m, struct error *err) {
    double scale;
    TRY(read_scalar(&scale, m, "logit_scale", err));
    TRY(read_scalar(&m->bias, m, "logit_bias", err));
    FAIL_IF(isnan(scale), err, STATUS_MISMATCH, "%s: logit_scale is missing, of shape ()",
            m->weights);
    m->tau = exp(-scale);
    if (fabs(m->tau - 0.01) < 1e-7) { /* open_clip's limit, rounded to f32 */
        m->tau = 0.01;
    }
    return STATUS_OK;
}

enum status foreign_open(struct foreign_model *out,
                         const struct file_system *fs,
                         const char *path,
                         struct error *err) {
    char folder[PATH_MAX_BYTES];
    bool is_folder;
    bool own_tokenizer;
    *out = (struct foreign_model){0};
    FAIL_IF(!folder_of(folder, &is_folder, path), err, STATUS_LIMIT, "%.200s: a path too long",
            path);
    TRY(read_config(out, &own_tokenizer, fs, folder, err));
    TRY(find_weights(out, fs, folder, is_folder ? NULL : path, err));
    TRY(safetensors_open(&out->file, fs, out->weights, err));
    TRY(read_scalars(out, err));
    return open_tokenizer(out, fs, own_tokenizer, folder, err);
}

void foreign_fini(struct foreign_model *m) {
    safetensors_close(m->file);
    tokenizer_close(m->tokenizer);
    m->file = NULL;
    m->tokenizer = NULL;
}
