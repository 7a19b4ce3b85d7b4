/*
 * export: files and folders, configurations as JSON, the tokenizer, and the parts of each format.
 * Tensor names: export_towers.c.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/tokenizer/tokenizer.h"
#include "tools/ccstream_export/export_internal.h"

enum { MAX_JSON_BYTES = 1 << 16 };

/* ---- files ---- */

static enum status export_path(char out[PATH_MAX_BYTES],
                               const struct export_job *job,
                               const char *folder,
                               const char *name,
                               struct error *err) {
    char directory[PATH_MAX_BYTES];
    TRY(path_join(directory, sizeof directory, job->out, folder != NULL ? folder : ".", err));
    TRY(path_join(out, PATH_MAX_BYTES, folder != NULL ? directory : job->out, name, err));
    return file_make_parents(file_posix(), out, err);
}

static enum status export_json(const struct export_job *job,
                               const char *folder,
                               const char *name,
                               struct json_writer *w,
                               struct error *err) {
    char path[PATH_MAX_BYTES];
    json_close_object(w);
    json_newline(w);
    enum status s = export_path(path, job, folder, name, err);
    THEN(s, json_writer_status(w, err));
    THEN(s, file_write_atomic(file_posix(), path, w->out.data, w->out.size_bytes, err));
    json_writer_fini(w);
    return s;
}

static void begin_json(struct json_writer *w) {
    json_writer_init(w, MAX_JSON_BYTES);
    json_open_object(w, NULL);
}

static enum status write_tensors(const struct export_job *job,
                                 const char *folder,
                                 const char *name,
                                 const struct tensor_list *l,
                                 struct error *err) {
    char path[PATH_MAX_BYTES];
    TRY(export_path(path, job, folder, name, err));
    return tensor_list_write(l, path, err);
}

/* ---- the tokenizer ---- */

static enum status
open_tokenizer(struct tokenizer **out, const struct export_job *job, struct error *err) {
    size_t size_bytes;
    const void *bytes = checkpoint_tokenizer(job->checkpoint, &size_bytes);
    FAIL_IF(bytes == NULL, err, STATUS_CORRUPT, "%s holds no tokenizer",
            checkpoint_path(job->checkpoint));
    return tokenizer_open(out, bytes, size_bytes, err);
}

enum status export_pad_id(const struct export_job *job, int32_t *out, struct error *err) {
    struct tokenizer *t;
    TRY(open_tokenizer(&t, job, err));
    *out = tokenizer_pad_id(t);
    tokenizer_close(t);
    return STATUS_OK;
}

/* Whether the tokenizer is CLIP's; false if it cannot be read, which export_tokenizer reports.
 */
static bool has_clip_tokenizer(const struct export_job *job) {
    struct tokenizer *t = NULL;
    const bool is =
        open_tokenizer(&t, job, NULL) == STATUS_OK && tokenizer_kind(t) == TOKENIZER_CLIP_BPE;
    tokenizer_close(t);
    return is;
}

static enum status
export_tokenizer(const struct export_job *job, const char *folder, struct error *err) {
    const struct model_config *m = checkpoint_model(job->checkpoint);
    char path[PATH_MAX_BYTES];
    size_t size_bytes;
    struct tokenizer *t;
    TRY(open_tokenizer(&t, job, err));
    static const char *const names[] = {"tokenizer.model", "vocab.txt", "tokenizer.model",
                                        "tokenizer.json"};
    const enum tokenizer_kind kind = tokenizer_kind(t);
    const void *bytes = tokenizer_bytes(t, &size_bytes);
    enum status s = export_path(path, job, folder, names[kind], err);
    THEN(s, file_write_atomic(file_posix(), path, bytes, size_bytes, err));
    tokenizer_close(t);
    if (s != STATUS_OK || kind == TOKENIZER_SENTENCEPIECE || kind == TOKENIZER_CLIP_BPE) {
        return s;
    }
    struct json_writer w;
    begin_json(&w);
    if (kind == TOKENIZER_WORDPIECE) {
        json_string(&w, "tokenizer_class", "BertTokenizer");
        json_bool(&w, "do_lower_case", true);
    } else {
        json_string(&w, "tokenizer_class", "PreTrainedTokenizerFast");
    }
    json_i64(&w, "model_max_length", m->max_tokens);
    return export_json(job, folder, "tokenizer_config.json", &w, err);
}

/* Settings for programs that read the tokenizer. */
static enum status say_tokenizer(const struct export_job *job, struct error *err) {
    struct tokenizer *t;
    TRY(open_tokenizer(&t, job, err));
    const enum tokenizer_kind kind = tokenizer_kind(t);
    const int begin = tokenizer_begin_id(t);
    const int end = tokenizer_end_id(t);
    const int pad = tokenizer_pad_id(t);
    const bool cleans = tokenizer_cleans(t);
    tokenizer_close(t);
    if (kind == TOKENIZER_CLIP_BPE) {
        log_write(job->log, LOG_LEVEL_WARN,
                  "the tokenizer is CLIP's, open_clip.get_tokenizer('ViT-B-32') with rows of %d; "
                  "tokenizer.model is its table, for ccstream",
                  (int)checkpoint_model(job->checkpoint)->max_tokens);
    }
    if (kind == TOKENIZER_BYTE_BPE) {
        log_write(job->log, LOG_LEVEL_WARN,
                  "the model was trained on rows of %d, at most %d ids of tokenizer.json, %d, and "
                  "padding of %d",
                  begin, (int)checkpoint_model(job->checkpoint)->max_tokens - 2, end, pad);
    }
    if (kind == TOKENIZER_SENTENCEPIECE) {
        log_write(job->log, LOG_LEVEL_WARN,
                  "the tokenizer is a SentencePiece model, which AutoTokenizer does not read; with "
                  "the package sentencepiece: %sencode(text)[:%d] + [eos_id]%s",
                  begin >= 0 ? "[bos_id] + " : "",
                  (int)checkpoint_model(job->checkpoint)->max_tokens - (begin >= 0 ? 2 : 1),
                  begin >= 0 ? "" : " of texts that open_clip's canonicalize has cleaned");
    }
    if (checkpoint_model(job->checkpoint)->clean_captions && !cleans) {
        log_write(job->log, LOG_LEVEL_WARN,
                  "captions were cleaned before the tokenizer (lower case, some punctuation and "
                  "white space); no tokenizer file can express that: clean texts alike");
    }
    return STATUS_OK;
}

/* ---- models of --model, and of other programs ---- */

/* Every tensor with open_clip's names, as in the model's memory. */
static enum status
add_open_clip(struct tensor_list *l, const struct export_job *job, struct error *err) {
    struct dual_encoder_options o;
    struct device *dev = NULL;
    struct dual_encoder *model = NULL;
    TRY(model_config_options(checkpoint_model(job->checkpoint), &o, err));
    o.training = false;
    TRY(device_open(&dev, "cpu", 1, err));
    enum status s = dual_encoder_create(&model, dev, &o, err);
    struct params *p = s == STATUS_OK ? dual_encoder_params(model) : NULL;
    THEN(s, checkpoint_load_params(job->checkpoint, p, false, err));
    for (int32_t i = 0; s == STATUS_OK && i < params_count(p); i++) {
        const struct param_info info = params_info(p, i);
        void *values;
        s = tensor_list_add(l, &values, "", info.name, SAFETENSORS_F32,
                            (const uint64_t *)info.shape, (uint32_t)info.ndim, err);
        THEN(s, params_read(p, i, PARAM_VALUE, values, (size_t)info.count * sizeof(float), err));
    }
    dual_encoder_destroy(model);
    device_close(dev);
    return s;
}

/* ---- safetensors ---- */

static bool is_of_model(const char *name) {
    static const char *const starts[] = {"image.", "text.", "image_proj.", "text_proj.", "proj."};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        if (strncmp(name, starts[i], strlen(starts[i])) == 0) {
            return true;
        }
    }
    return false;
}

static void put_norm(struct json_writer *w, enum image_norm_kind kind) {
    json_open_array(w, "mean");
    for (int i = 0; i < 3; i++) {
        json_double(w, NULL, (double)IMAGE_NORMS[kind].mean[i]);
    }
    json_close_array(w);
    json_open_array(w, "std");
    for (int i = 0; i < 3; i++) {
        json_double(w, NULL, (double)IMAGE_NORMS[kind].deviation[i]);
    }
    json_close_array(w);
}

static bool has_images(const struct model_config *m) {
    return m->image_tower[0] != '\0';
}

static enum status export_native(const struct export_job *job, const char *name, struct error *err);

enum status export_safetensors(const struct export_job *job, struct error *err) {
    const struct model_config *m = checkpoint_model(job->checkpoint);
    struct tensor_list l;
    struct json_writer w;
    const bool clip = m->open_clip[0] != '\0';
    if (clip && m->hidden_dim == 0) {
        return export_native(job, "model.safetensors", err);
    }
    enum status s = tensor_list_init(&l, job->file, err);
    for (size_t i = 0; i < safetensors_count(job->file) && s == STATUS_OK; i++) {
        const struct safetensors_info *info = safetensors_at(job->file, i);
        s = is_of_model(info->name) ? tensor_list_copy(&l, "", info->name, info, err) : STATUS_OK;
    }
    THEN(s, write_tensors(job, NULL, "model.safetensors", &l, err));
    tensor_list_fini(&l);
    TRY(s);
    begin_json(&w);
    if (has_images(m)) {
        json_string(&w, "image_tower", m->image_tower);
        if (clip) {
            json_raw(&w, "open_clip", m->open_clip, strlen(m->open_clip));
        }
        json_string(&w, "stem", m->small_stem ? "small" : "standard");
        json_string(&w, "norm", RESNET_NORM_NAMES[m->norm_layers]);
        json_i64(&w, "image_size", m->image_size_px);
        put_norm(&w, m->image_norm);
    }
    json_i64(&w, "embed_dim", m->embed_dim);
    if (m->hidden_dim > 0 || !has_images(m)) {
        json_bool(&w, "raw_embeddings", m->raw);
    }
    if (m->hidden_dim > 0) {
        json_i64(&w, "hidden_dim", m->hidden_dim);
        return export_json(job, NULL, "config.json", &w, err);
    }
    json_string(&w, "text_tower", m->text_tower);
    json_string(&w, "text_pool", TRANSFORMER_POOL_NAMES[m->text_pool]);
    json_i64(&w, "vocab_size", m->vocab_count);
    json_i64(&w, "max_tokens", m->max_tokens);
    json_bool(&w, "clean_captions", m->clean_captions && !has_clip_tokenizer(job));
    TRY(export_json(job, NULL, "config.json", &w, err));
    return export_tokenizer(job, NULL, err);
}

/* ---- timm ---- */

static enum status
check_images(const struct model_config *m, const char *format, struct error *err) {
    FAIL_IF(m->open_clip[0] != '\0', err, STATUS_UNSUPPORTED,
            "%s: this is a model of open_clip's (--model); --format %s exports it", format,
            m->hidden_dim > 0 ? "safetensors" : "open_clip");
    return has_images(m) ? STATUS_OK
                         : error_set(err, STATUS_UNSUPPORTED,
                                     "%s: the run was trained on captions alone and has no tower "
                                     "for images; --format safetensors exports its tower",
                                     format);
}

/* Whether timm has the tower; the same weights with another stride would give other features. */
static enum status
check_tower(const struct model_config *m, const char *format, struct error *err) {
    TRY(check_images(m, format, err));
    FAIL_IF(
        strcmp(m->image_tower, "tiny") == 0, err, STATUS_UNSUPPORTED,
        "%s: timm has no tower of the name tiny; --format safetensors exports it with our names",
        format);
    FAIL_IF(m->norm_layers != RESNET_NORM_BATCH, err, STATUS_UNSUPPORTED,
            "%s: timm's %s has batch norm, this run was trained with --norm-layer %s; "
            "--format safetensors exports it with our names",
            format, m->image_tower, RESNET_NORM_NAMES[m->norm_layers]);
    return !m->small_stem
               ? STATUS_OK
               : error_set(err, STATUS_UNSUPPORTED,
                           "%s: timm's %s begins with stride 2 and a pool, this run's --stem small "
                           "has neither; --format safetensors exports it with our names",
                           format, m->image_tower);
}

static enum status
check_texts(const struct model_config *m, const char *format, struct error *err) {
    return m->hidden_dim == 0 ? STATUS_OK
                              : error_set(err, STATUS_UNSUPPORTED,
                                          "%s: the run was trained on images alone and has no "
                                          "tower for captions; --format %s exports its tower",
                                          format, m->open_clip[0] != '\0' ? "safetensors" : "timm");
}

static enum status export_image(const struct export_job *job,
                                const char *folder,
                                const char *prefix,
                                struct error *err) {
    struct tensor_list l;
    struct json_writer w;
    enum status s = tensor_list_init(&l, job->file, err);
    THEN(s, export_add_image(&l, job, prefix, err));
    THEN(s, write_tensors(job, folder, "model.safetensors", &l, err));
    tensor_list_fini(&l);
    TRY(s);
    begin_json(&w);
    export_timm_config(&w, job);
    return export_json(job, folder, "config.json", &w, err);
}

enum status export_timm(const struct export_job *job, struct error *err) {
    TRY(check_tower(checkpoint_model(job->checkpoint), "timm", err));
    return export_image(job, NULL, "", err);
}

void export_timm_config(struct json_writer *w, const struct export_job *job) {
    const struct model_config *m = checkpoint_model(job->checkpoint);
    json_string(w, "model_type", "timm_wrapper");
    json_string(w, "architecture", m->image_tower);
    json_i64(w, "num_classes", 0);
    json_i64(w, "num_features", export_feature_count(m));
    json_i64(w, "hidden_size", export_feature_count(m));
    json_string(w, "global_pool", "avg");
    json_open_object(w, "pretrained_cfg");
    json_i64(w, "num_classes", 0);
    json_open_array(w, "input_size");
    json_i64(w, NULL, 3);
    json_i64(w, NULL, m->image_size_px);
    json_i64(w, NULL, m->image_size_px);
    json_close_array(w);
    json_string(w, "interpolation", "bicubic");
    json_double(w, "crop_pct", 1.0);
    json_string(w, "crop_mode", "squash");
    put_norm(w, m->image_norm);
    json_string(w, "first_conv", "conv1");
    json_string(w, "classifier", "fc");
    json_close_object(w);
}

/* ---- the temperature and the projections ---- */

/* log(1 / temperature) as the scalar `name`. */
static enum status add_scale(struct tensor_list *l,
                             const struct export_job *job,
                             const char *name,
                             struct error *err) {
    void *values;
    double tau = 0.0;
    struct error ignored = {0};
    FAIL_IF(checkpoint_choose_tau(job->checkpoint, &tau, &ignored) != STATUS_OK, err,
            STATUS_UNSUPPORTED,
            "%s was saved by an older program, which did not store the temperature",
            checkpoint_path(job->checkpoint));
    TRY(tensor_list_add(l, &values, "", name, SAFETENSORS_F32, NULL, 0, err));
    *(float *)values = (float)-log(tau);
    return STATUS_OK;
}

/* siglip's learned bias. */
static enum status
add_bias(struct tensor_list *l, const struct export_job *job, struct error *err) {
    const double bias = checkpoint_bias(job->checkpoint);
    void *values;
    if (isnan(bias)) {
        return STATUS_OK;
    }
    TRY(tensor_list_add(l, &values, "", "logit_bias", SAFETENSORS_F32, NULL, 0, err));
    *(float *)values = (float)bias;
    return STATUS_OK;
}

static enum status copy_one(struct tensor_list *l,
                            const struct export_job *job,
                            const char *to,
                            const char *from,
                            struct error *err) {
    const struct safetensors_info *info = safetensors_find(job->file, from);
    return info != NULL ? tensor_list_copy(l, "", to, info, err)
                        : error_set(err, STATUS_CORRUPT, "%s has no tensor %s",
                                    checkpoint_path(job->checkpoint), from);
}

/* ---- transformers ---- */

static enum status export_text(const struct export_job *job, struct error *err) {
    struct tensor_list l;
    struct json_writer w;
    enum status s = tensor_list_init(&l, job->file, err);
    THEN(s, export_add_distilbert(&l, job, "", err));
    THEN(s, write_tensors(job, "text", "model.safetensors", &l, err));
    tensor_list_fini(&l);
    TRY(s);
    begin_json(&w);
    TRY(export_distilbert_config(&w, job, err));
    TRY(export_json(job, "text", "config.json", &w, err));
    return export_tokenizer(job, "text", err);
}

static enum status
is_zero(bool *out, const struct export_job *job, const char *name, struct error *err) {
    const struct safetensors_info *info;
    float *values;
    enum status s = tensor_list_read(&values, &info, job->file, name, err);
    *out = true;
    for (uint64_t i = 0; s == STATUS_OK && i < info->element_count; i++) {
        *out = *out && values[i] == 0.0f;
    }
    free(values);
    return s;
}

/* BertModel's pooler ends in tanh(W h + b), our tower in h. W = 2^-14 I keeps the argument so small
 * that tanh is the identity in f32, and the projection multiplies by 2^14. */
static enum status
add_pooler(struct tensor_list *l, const struct export_job *job, struct error *err) {
    static const float small = 0x1p-14f;
    const struct safetensors_info *info;
    float *projection;
    void *values;
    TRY(tensor_list_read(&projection, &info, job->file, "text_proj.weight", err));
    const uint64_t dim = info->shape[1];
    const uint64_t square[] = {dim, dim};
    enum status s = tensor_list_add(l, &values, "", "text_model.pooler.dense.weight",
                                    SAFETENSORS_F32, square, 2, err);
    for (uint64_t i = 0; s == STATUS_OK && i < dim; i++) {
        ((float *)values)[i * dim + i] = small;
    }
    THEN(s, tensor_list_add(l, &values, "", "text_model.pooler.dense.bias", SAFETENSORS_F32, &dim,
                            1, err));
    THEN(s, tensor_list_add(l, &values, "", "text_projection.weight", SAFETENSORS_F32, info->shape,
                            2, err));
    for (uint64_t i = 0; s == STATUS_OK && i < info->element_count; i++) {
        ((float *)values)[i] = projection[i] / small;
    }
    free(projection);
    return s;
}

static enum status export_dual(const struct export_job *job, struct error *err) {
    const struct model_config *m = checkpoint_model(job->checkpoint);
    struct tensor_list l;
    struct json_writer w;
    enum status s;
    TRY(tensor_list_init(&l, job->file, err));
    TRY_OR_FAIL(s, export_add_image(&l, job, "vision_model.timm_model.", err));
    TRY_OR_FAIL(s, export_add_bert(&l, job, "text_model.", err));
    TRY_OR_FAIL(s, add_pooler(&l, job, err));
    TRY_OR_FAIL(s, copy_one(&l, job, "visual_projection.weight", "image_proj.weight", err));
    TRY_OR_FAIL(s, add_scale(&l, job, "logit_scale", err));
    TRY_OR_FAIL(s, write_tensors(job, NULL, "model.safetensors", &l, err));
    const float *scale = tensor_list_find(&l, "logit_scale")->values;
    begin_json(&w);
    json_string(&w, "model_type", "vision-text-dual-encoder");
    json_open_array(&w, "architectures");
    json_string(&w, NULL, "VisionTextDualEncoderModel");
    json_close_array(&w);
    json_i64(&w, "projection_dim", m->embed_dim);
    json_double(&w, "logit_scale_init_value", (double)*scale);
    json_open_object(&w, "vision_config");
    export_timm_config(&w, job);
    json_close_object(&w);
    json_open_object(&w, "text_config");
    TRY_OR_FAIL(s, export_bert_config(&w, job, err));
    json_close_object(&w);
    TRY_OR_FAIL(s, export_json(job, NULL, "config.json", &w, err));
    s = export_tokenizer(job, NULL, err);
fail:
    tensor_list_fini(&l);
    return s;
}

enum status export_transformers(const struct export_job *job, struct error *err) {
    const struct model_config *m = checkpoint_model(job->checkpoint);
    struct error why = {0};
    bool no_bias;
    TRY(check_texts(m, "transformers", err));
    TRY(check_images(m, "transformers", err));
    TRY(export_text(job, err));
    TRY(say_tokenizer(job, err));
    if (check_tower(m, "image/", &why) != STATUS_OK) {
        log_write(job->log, LOG_LEVEL_WARN, "only text/ is written. %s", why.text);
        return STATUS_OK;
    }
    TRY(export_image(job, "image", "timm_model.", err));
    TRY(is_zero(&no_bias, job, "image_proj.bias", err));
    if (!no_bias || m->text_pool != TRANSFORMER_POOL_FIRST) {
        log_write(job->log, LOG_LEVEL_WARN,
                  "only image/ and text/ are written: VisionTextDualEncoderModel %s. --format "
                  "open_clip holds the whole model%s",
                  no_bias ? "takes the first token, this run the mean of all tokens"
                          : "projects without bias, and image_proj.bias of this run is not zero",
                  no_bias ? "" : "; runs with --projection-bias off have no bias");
        return STATUS_OK;
    }
    return export_dual(job, err);
}

/* ---- open_clip ---- */

/* The beginning of a model_cfg. */
static void put_bias(struct json_writer *w, const struct export_job *job) {
    const double bias = checkpoint_bias(job->checkpoint);
    json_open_object(w, "model_cfg");
    if (!isnan(bias)) {
        json_double(w, "init_logit_bias", bias);
    }
}

/* An open_clip_config.json ends with it. */
static void put_images(struct json_writer *w, const struct model_config *m, const char *usual) {
    json_open_object(w, "preprocess_cfg");
    put_norm(w, m->image_norm);
    json_string(w, "interpolation", "bicubic");
    json_string(w, "resize_mode", m->resize != 0 ? OPEN_CLIP_RESIZE_NAMES[m->resize] : usual);
    json_close_object(w);
}

/* A model with open_clip's own towers. */
static enum status
export_native(const struct export_job *job, const char *name, struct error *err) {
    struct dual_encoder_options o;
    struct tensor_list l;
    struct json_writer w;
    struct tokenizer *t = NULL;
    size_t size_bytes;
    const bool clip = has_clip_tokenizer(job);
    const bool any = checkpoint_tokenizer(job->checkpoint, &size_bytes) != NULL;
    TRY(model_config_options(checkpoint_model(job->checkpoint), &o, err));
    enum status s = tensor_list_init(&l, job->file, err);
    THEN(s, add_open_clip(&l, job, err));
    THEN(s, add_scale(&l, job, "logit_scale", err));
    THEN(s, add_bias(&l, job, err));
    THEN(s, write_tensors(job, NULL, name, &l, err));
    tensor_list_fini(&l);
    THEN(s, any ? open_tokenizer(&t, job, err) : STATUS_OK);
    TRY(s);
    begin_json(&w);
    put_bias(&w, job);
    open_clip_write(&w, &o, any && !clip ? job->out : NULL, any ? tokenizer_end_id(t) : 0);
    json_close_object(&w);
    put_images(&w, checkpoint_model(job->checkpoint), o.vit.map ? "squash" : "shortest");
    tokenizer_close(t);
    TRY(export_json(job, NULL, "open_clip_config.json", &w, err));
    *job->unreadable = !open_clip_knows(&o);
    if (*job->unreadable) {
        log_write(job->log, LOG_LEVEL_WARN,
                  "ccstream reads this folder, open_clip does not: timm has no SigLIP image tower "
                  "of these sizes with the %s GELU",
                  o.vit.act == ACTIVATION_TANH_GELU ? "tanh" : "exact");
    }
    TRY(any ? export_tokenizer(job, NULL, err) : STATUS_OK);
    return any && !clip ? say_tokenizer(job, err) : STATUS_OK;
}

static enum status
put_open_clip_config(struct json_writer *w, const struct export_job *job, struct error *err) {
    const struct model_config *m = checkpoint_model(job->checkpoint);
    char text[PATH_MAX_BYTES];
    TRY(export_path(text, job, "text", "", err));
    text[strlen(text) - 1] = '\0';
    put_bias(w, job);
    json_i64(w, "embed_dim", m->embed_dim);
    json_open_object(w, "vision_cfg");
    json_i64(w, "image_size", m->image_size_px);
    json_string(w, "timm_model_name", m->image_tower);
    json_bool(w, "timm_model_pretrained", false);
    json_string(w, "timm_pool", "avg");
    json_string(w, "timm_proj", "linear");
    json_bool(w, "timm_proj_bias", true);
    json_close_object(w);
    json_open_object(w, "text_cfg");
    json_string(w, "hf_model_name", text);
    json_bool(w, "hf_model_pretrained", false);
    json_string(w, "hf_proj_type", "linear");
    json_string(w, "hf_pooler_type",
                m->text_pool == TRANSFORMER_POOL_MEAN ? "mean_pooler"
                                                      : "cls_last_hidden_state_pooler");
    if (!has_clip_tokenizer(job)) { /* open_clip's default */
        json_string(w, "hf_tokenizer_name", text);
    }
    json_i64(w, "context_length", m->max_tokens);
    json_i64(w, "vocab_size", m->vocab_count);
    json_close_object(w);
    json_close_object(w);
    put_images(w, m, "squash");
    return STATUS_OK;
}

enum status export_open_clip(const struct export_job *job, struct error *err) {
    const struct model_config *m = checkpoint_model(job->checkpoint);
    struct tensor_list l;
    struct json_writer w;
    enum status s;
    TRY(check_texts(m, "open_clip", err));
    if (m->open_clip[0] != '\0') {
        return export_native(job, "open_clip_model.safetensors", err);
    }
    TRY(check_tower(m, "open_clip", err));
    TRY(tensor_list_init(&l, job->file, err));
    TRY_OR_FAIL(s, export_add_image(&l, job, "visual.trunk.", err));
    TRY_OR_FAIL(s, copy_one(&l, job, "visual.head.proj.weight", "image_proj.weight", err));
    TRY_OR_FAIL(s, copy_one(&l, job, "visual.head.proj.bias", "image_proj.bias", err));
    TRY_OR_FAIL(s, export_add_bert(&l, job, "text.transformer.", err));
    TRY_OR_FAIL(s, copy_one(&l, job, "text.proj.weight", "text_proj.weight", err));
    TRY_OR_FAIL(s, add_scale(&l, job, "logit_scale", err));
    TRY_OR_FAIL(s, add_bias(&l, job, err));
    TRY_OR_FAIL(s, write_tensors(job, NULL, "open_clip_model.safetensors", &l, err));
    begin_json(&w);
    TRY_OR_FAIL(s, export_bert_config(&w, job, err));
    TRY_OR_FAIL(s, export_json(job, "text", "config.json", &w, err));
    TRY_OR_FAIL(s, export_tokenizer(job, "text", err));
    TRY_OR_FAIL(s, export_tokenizer(job, NULL, err));
    begin_json(&w);
    TRY_OR_FAIL(s, put_open_clip_config(&w, job, err));
    TRY_OR_FAIL(s, export_json(job, NULL, "open_clip_config.json", &w, err));
    s = say_tokenizer(job, err);
fail:
    tensor_list_fini(&l);
    return s;
}
