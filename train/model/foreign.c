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

#define OPEN_CLIP_FILE "open_clip_config.json"

/* ---- where it is ---- */

static bool is_in(char out[PATH_MAX_BYTES],
                  const struct file_system *fs,
                  const char *folder,
                  const char *name) {
    bool there = false;
    return path_join(out, PATH_MAX_BYTES, folder, name, NULL) == STATUS_OK &&
           fs->exists(fs->context, out, &there, NULL) == STATUS_OK && there;
}

/* The folder `path`, or the folder of the file `path`. */
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

/* Without `cfg`, or numbers in it, *out stays. */
static enum status read_norm(enum image_norm_kind *out,
                             const struct json_value *cfg,
                             const char *mean,
                             const char *deviation,
                             const char *path,
                             struct error *err) {
    const struct json_value *m = json_value_get(cfg, mean);
    const struct json_value *d = json_value_get(cfg, deviation);
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

/* As read_norm. open_clip resizes to the model's image size and ignores the size here. */
static enum status read_resizing(enum open_clip_resize *out,
                                 const struct json_value *images,
                                 const char *path,
                                 struct error *err) {
    static const char *const filters[] = {"bicubic", NULL};
    static const char *const names[] = {"interpolation", "resize_mode"};
    const struct json_value *fill = json_value_get(images, "fill_color");
    double level = 1.0;
    for (int i = 0; i < 2; i++) {
        const char *const *known = i == 0 ? filters : OPEN_CLIP_RESIZE_NAMES + 1; /* no auto */
        const struct json_value *v = json_value_get(images, names[i]);
        const char *text = json_value_string(v, NULL);
        int k = 0;
        while (known[k] != NULL && text != NULL && strcmp(text, known[k]) != 0) {
            k++;
        }
        FAIL_IF(v != NULL && (text == NULL || known[k] == NULL), err, STATUS_UNSUPPORTED,
                "%s: preprocess_cfg.%s is %.60s, not known here", path, names[i],
                text != NULL ? text : "no text");
        if (i == 1 && v != NULL) {
            *out = (enum open_clip_resize)(k + 1);
        }
    }
    if (*out == OPEN_CLIP_RESIZE_LONGEST && fill != NULL && !is_near(fill, (float[3]){0}) &&
        !(json_value_double(fill, &level) && level == 0.0)) {
        char *text = json_value_text(fill);
        (void)error_set(err, STATUS_UNSUPPORTED,
                        "%s: preprocess_cfg.fill_color is %.60s; only 0, black, is known here",
                        path, text != NULL ? text : "unknown");
        free(text);
        return STATUS_UNSUPPORTED;
    }
    return STATUS_OK;
}

static enum status read_images(enum image_norm_kind *norm,
                               enum open_clip_resize *resize,
                               const struct json_value *root,
                               const char *path,
                               struct error *err) {
    const struct json_value *images = json_value_get(root, "preprocess_cfg");
    TRY(read_resizing(resize, images, path, err));
    return read_norm(norm, images, "mean", "std", path, err);
}

enum status foreign_read_images(enum image_norm_kind *norm,
                                enum open_clip_resize *resize,
                                const char *path,
                                struct error *err) {
    struct json_document *d = NULL;
    TRY(read_json(&d, file_posix(), path, err));
    const enum status s = read_images(norm, resize, json_document_root(d), path, err);
    json_document_destroy(d);
    return s;
}

static enum status read_open_clip(struct foreign_model *m,
                                  bool *own_tokenizer,
                                  const struct json_value *root,
                                  const char *path,
                                  struct error *err) {
    const struct json_value *model = json_value_get(root, "model_cfg");
    struct error why = {0};
    FAIL_IF(model == NULL, err, STATUS_CORRUPT, "%s has no model_cfg", path);
    const enum status s = open_clip_read(&m->options, model, true, &why);
    FAIL_IF(s != STATUS_OK, err, s, "%s: %s", path, why.text);
    *own_tokenizer =
        json_value_string(json_value_get(json_value_get(model, "text_cfg"), "hf_tokenizer_name"),
                          NULL) != NULL;
    m->names = MODEL_NAMES_OPEN_CLIP;
    return read_images(&m->options.image.norm, &m->resize, root, path, err);
}

/* The activation of a transformers tower, as in open_clip; *quick is for both towers. */
static enum status read_act(const char **kwargs,
                            bool *quick,
                            const struct json_value *tower,
                            bool siglip,
                            const char *path,
                            struct error *err) {
    const struct json_value *act = json_value_get(tower, "hidden_act");
    const char *usual = siglip ? "gelu_pytorch_tanh" : "quick_gelu";
    const char *name = act != NULL ? json_value_string(act, NULL) : usual;
    const bool tanh = name != NULL && strcmp(name, "gelu_pytorch_tanh") == 0;
    *quick = name != NULL && strcmp(name, "quick_gelu") == 0 && !siglip;
    *kwargs = tanh ? ",\"act_kwargs\":{\"approximate\":\"tanh\"}" : "";
    FAIL_IF(!*quick && !tanh && (name == NULL || strcmp(name, "gelu") != 0), err,
            STATUS_UNSUPPORTED,
            "%s: hidden_act of a tower is %.60s; only gelu, gelu_pytorch_tanh and, of CLIP, "
            "quick_gelu can be trained here",
            path, name != NULL ? name : "no text");
    return STATUS_OK;
}

/* Converts to an open_clip model_cfg. Fields that a transformers configuration omits have the
 * defaults of its class. */
static enum status read_hugging_face(struct foreign_model *m,
                                     const struct json_value *root,
                                     const char *path,
                                     struct error *err) {
    enum { EMBED, PX, PATCH, LAYERS, WIDTH, HEADS, FFN, EPS };
    enum { T_LAYERS = EPS + 1, T_WIDTH, T_HEADS, T_FFN, VOCAB, CONTEXT, T_EPS, T_EMBED, COUNT };
    static const char v[] = "vision_config";
    static const char t[] = "text_config";
    static const struct {
        const char *part, *key;
        double clip, siglip; /* defaults */
    } list[COUNT] = {{NULL, "projection_dim", 512, 512},
                     {v, "image_size", 224, 224},
                     {v, "patch_size", 32, 16},
                     {v, "num_hidden_layers", 12, 12},
                     {v, "hidden_size", 768, 768},
                     {v, "num_attention_heads", 12, 12},
                     {v, "intermediate_size", 3072, 3072},
                     {v, "layer_norm_eps", 1e-5, 1e-6},
                     {t, "num_hidden_layers", 12, 12},
                     {t, "hidden_size", 512, 768},
                     {t, "num_attention_heads", 8, 12},
                     {t, "intermediate_size", 2048, 3072},
                     {t, "vocab_size", 49408, 32000},
                     {t, "max_position_embeddings", 77, 64},
                     {t, "layer_norm_eps", 1e-5, 1e-6},
                     {t, "projection_size", 0, 0}};
    double n[COUNT];
    char text[1536];
    const char *type = json_value_string(json_value_get(root, "model_type"), NULL);
    const bool siglip = type != NULL && strcmp(type, "siglip") == 0;
    const char *act, *t_act;
    bool quick, t_quick;
    FAIL_IF(!siglip && (type == NULL || strcmp(type, "clip") != 0), err, STATUS_UNSUPPORTED,
            "%s: model_type is %.60s; of transformers' models only clip (CLIPModel) and siglip "
            "(SiglipModel) are read",
            path, type != NULL ? type : "missing");
    for (int i = 0; i < COUNT; i++) {
        const struct json_value *part = list[i].part ? json_value_get(root, list[i].part) : root;
        const struct json_value *number = json_value_get(part, list[i].key);
        const double usual = siglip ? list[i].siglip : list[i].clip;
        const bool eps = i == EPS || i == T_EPS;
        const bool side = i == PX || i == PATCH;
        n[i] = usual;
        FAIL_IF(number != NULL && (!(side ? open_clip_side : json_value_double)(number, &n[i]) ||
                                   !(eps ? fabs(n[i] - usual) < 1e-9 : n[i] >= 1)),
                err, STATUS_UNSUPPORTED, "%s: %s%s%s is not %s %g", path,
                list[i].part ? list[i].part : "", list[i].part ? "." : "", list[i].key,
                eps ? "this model's" : "a number from", eps ? usual : 1.0);
    }
    TRY(read_act(&act, &quick, json_value_get(root, v), siglip, path, err));
    TRY(read_act(&t_act, &t_quick, json_value_get(root, t), siglip, path, err));
    FAIL_IF(quick != t_quick, err, STATUS_UNSUPPORTED,
            "%s: hidden_act is quick_gelu in one tower alone; only both can be trained here", path);
    const double width = n[T_EMBED] >= 1 ? n[T_EMBED] : n[T_WIDTH];
    (void)snprintf(
        text, sizeof text,
        "{\"embed_dim\":%.17g,\"quick_gelu\":%s,\"vision_cfg\":{\"image_size\":%.17g,"
        "\"patch_size\":%.17g,\"layers\":%.17g,\"width\":%.17g,\"head_width\":%.17g,"
        "\"mlp_ratio\":%.17g%s%s},\"text_cfg\":{\"layers\":%.17g,\"width\":%.17g,\"heads\":%.17g,"
        "\"mlp_ratio\":%.17g,\"vocab_size\":%.17g,\"context_length\":%.17g%s%s}}",
        siglip ? width : n[EMBED], quick ? "true" : "false", n[PX], n[PATCH], n[LAYERS], n[WIDTH],
        n[WIDTH] / n[HEADS], (n[FFN] + 0.5) / n[WIDTH], act,
        siglip ? ",\"timm_pool\":\"map\",\"timm_proj\":\"none\"" : "", n[T_LAYERS], n[T_WIDTH],
        n[T_HEADS], (n[T_FFN] + 0.5) / n[T_WIDTH], n[VOCAB], n[CONTEXT], t_act,
        siglip ? ",\"no_causal_mask\":true,\"proj_bias\":true,\"pool_type\":\"last\","
                 "\"norm_kwargs\":{\"eps\":1e-6}"
               : "");
    m->names = MODEL_NAMES_HUGGING_FACE;
    TRY(open_clip_options(&m->options, text, err));
    m->options.image.norm = siglip ? IMAGE_NORM_INCEPTION : IMAGE_NORM_CLIP;
    return STATUS_OK;
}

static enum status read_config(struct foreign_model *m,
                               bool *own_tokenizer,
                               const struct file_system *fs,
                               const char *folder,
                               struct error *err) {
    static const char *const names[] = {OPEN_CLIP_FILE, "config.json", "preprocessor_config.json"};
    enum image_norm_kind *norm = &m->options.image.norm;
    char path[PATH_MAX_BYTES];
    const bool open_clip = is_in(path, fs, folder, names[0]);
    enum status s = STATUS_OK;
    *own_tokenizer = false;
    for (int i = open_clip ? 0 : 1; i < (open_clip ? 1 : 3) && s == STATUS_OK; i++) {
        struct json_document *d = NULL;
        if (is_in(path, fs, folder, names[i]) || i < 2) {
            TRY(read_json(&d, fs, path, err));
            const struct json_value *root = json_document_root(d);
            s = i == 0   ? read_open_clip(m, own_tokenizer, root, path, err)
                : i == 1 ? read_hugging_face(m, root, path, err)
                         : read_norm(norm, root, "image_mean", "image_std", path, err);
            json_document_destroy(d);
        }
    }
    return s;
}

/* ---- tokenizer and image preprocessing ---- */

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

enum status foreign_open(struct foreign_model *out,
                         const struct file_system *fs,
                         const char *path,
                         struct error *err) {
    char folder[PATH_MAX_BYTES];
    bool is_folder;
    bool own_tokenizer;
    double scale;
    *out = (struct foreign_model){0};
    FAIL_IF(!folder_of(folder, &is_folder, path), err, STATUS_LIMIT, "%.200s: a path too long",
            path);
    TRY(read_config(out, &own_tokenizer, fs, folder, err));
    TRY(find_weights(out, fs, folder, is_folder ? NULL : path, err));
    TRY(safetensors_open(&out->file, fs, out->weights, err));
    TRY(pretrained_read(&scale, out->file, "logit_scale", out->weights, err));
    TRY(pretrained_read(&out->bias, out->file, "logit_bias", out->weights, err));
    FAIL_IF(isnan(scale), err, STATUS_MISMATCH, "%s: logit_scale is missing, of shape ()",
            out->weights);
    /* open_clip's limit is ln 100, rounded to f32 */
    out->tau = fabs(scale - log(100.0)) < 1e-6 ? 0.01 : exp(-scale);
    return open_tokenizer(out, fs, own_tokenizer, folder, err);
}

void foreign_fini(struct foreign_model *m) {
    safetensors_close(m->file);
    tokenizer_close(m->tokenizer);
    m->file = NULL;
    m->tokenizer = NULL;
}
