/*
 * open_clip: each JSON object is read with a table of its fields. A field is a number to read, or
 * has values without effect, or must have its default.
 */
#include "train/model/open_clip.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/base/json_writer.h"
#include "formats/json/json_reader.h"

/* ---- names ---- */

const char *const OPEN_CLIP_RESIZE_NAMES[] = {"auto", "shortest", "longest", "squash", NULL};

static const struct {
    const char *name;
    int32_t embed, px;
    const char *layers;
    int32_t width, patch, text_width;
} known[] = {
    {"ViT-S-32", 384, 224, "12", 384, 32, 384},    {"ViT-S-16", 384, 224, "12", 384, 16, 384},
    {"ViT-B-32", 512, 224, "12", 768, 32, 512},    {"ViT-B-32-256", 512, 256, "12", 768, 32, 512},
    {"ViT-B-16", 512, 224, "12", 768, 16, 512},    {"ViT-L-14", 768, 224, "24", 1024, 14, 768},
    {"RN50", 1024, 224, "[3,4,6,3]", 64, 32, 512},
};

/* SigLIP's image towers in timm. */
static const struct {
    const char *name; /* followed by an image size; timm has these, ccstream reads any */
    int32_t layers, width, patch;
    int32_t px[4];
} siglip_towers[] = {{"vit_base_patch16_siglip_", 12, 768, 16, {224, 256, 384, 512}},
                     {"vit_base_patch32_siglip_", 12, 768, 32, {256}},
                     {"vit_large_patch16_siglip_", 24, 1024, 16, {256, 384, 512}}};

enum { SIGLIP_TOWERS = sizeof siglip_towers / sizeof *siglip_towers, SIGLIP_2_VOCAB = 256000 };

/* Heads of the text towers are 64 wide, as open_clip's own files have them. */
static enum status
write_known(char out[OPEN_CLIP_CONFIG_BYTES], const char *model, struct error *err) {
    static const char quick[] = "-quickgelu";
    const bool second = strcmp(model, "ViT-B-16-SigLIP2") == 0;
    if (second || strcmp(model, "ViT-B-16-SigLIP") == 0) {
        (void)snprintf(out, OPEN_CLIP_CONFIG_BYTES,
                       "{\"embed_dim\":768,\"custom_text\":true,\"vision_cfg\":{\"image_size\":224,"
                       "\"timm_model_name\":\"vit_base_patch16_siglip_224\",\"timm_pool\":\"map\","
                       "\"timm_proj\":\"none\"},\"text_cfg\":{\"context_length\":64,"
                       "\"vocab_size\":%d,\"width\":768,\"heads\":12,\"hf_tokenizer_name\":"
                       "\"timm/%s\",\"tokenizer_kwargs\":{\"clean\":\"canonicalize\"},"
                       "\"no_causal_mask\":true,\"proj_bias\":true,\"pool_type\":\"last\","
                       "\"norm_kwargs\":{\"eps\":1e-06}%s}}",
                       second ? SIGLIP_2_VOCAB : 32000, model,
                       second ? ",\"act_kwargs\":{\"approximate\":\"tanh\"}" : "");
        return STATUS_OK;
    }
    const size_t size = strlen(model);
    const bool quick_gelu =
        size >= sizeof quick && strcmp(model + size - (sizeof quick - 1), quick) == 0;
    const size_t base = quick_gelu ? size - (sizeof quick - 1) : size;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) != base || strncmp(model, known[i].name, base) != 0) {
            continue;
        }
        (void)snprintf(out, OPEN_CLIP_CONFIG_BYTES,
                       "{\"embed_dim\":%d,%s\"vision_cfg\":{\"image_size\":%d,\"layers\":%s,"
                       "\"width\":%d,\"patch_size\":%d},\"text_cfg\":{\"context_length\":77,"
                       "\"vocab_size\":49408,\"width\":%d,\"heads\":%d,\"layers\":12}}",
                       (int)known[i].embed, quick_gelu ? "\"quick_gelu\":true," : "",
                       (int)known[i].px, known[i].layers, (int)known[i].width, (int)known[i].patch,
                       (int)known[i].text_width, (int)known[i].text_width / 64);
        return STATUS_OK;
    }
    return error_set(err, STATUS_USAGE,
                     "--model %s is neither a file nor one of ViT-S-32, ViT-S-16, ViT-B-32, "
                     "ViT-B-32-256, ViT-B-16, ViT-L-14, RN50 (each also with -quickgelu), "
                     "ViT-B-16-SigLIP, ViT-B-16-SigLIP2",
                     model);
}

/* ---- fields ---- */

struct field {
    const char *name;
    double *number;     /* destination; NULL: not read */
    const char *plain;  /* the value without effect, as JSON; NULL: any value */
    double least, most; /* range of a number that is read */
    const char *same;   /* another value without effect */
    bool square;        /* a number that may be given as two equal ones */
};

/* Also a number in another notation, such as 0.0. */
static bool is_plain(const struct json_value *v, const char *plain, const char *text) {
    double number;
    char *end;
    const double expected = strtod(plain, &end);
    return strcmp(text, plain) == 0 || strcmp(text, "null") == 0 || strcmp(text, "{}") == 0 ||
           (json_value_double(v, &number) && *end == '\0' && number == expected);
}

static enum status
refuse(const char *object, const char *name, const char *text, const char *why, struct error *err) {
    return error_set(err, STATUS_UNSUPPORTED, "the model's %s%s is %.80s; %s", object, name, text,
                     why);
}

/* Fields of both towers that matter only with unsupported values of others, or must be null or
 * false. */
static const char *const ignored[] = {
    "timm_model_pretrained", "timm_pool",    "timm_proj_bias", "timm_drop", "timm_drop_path",
    "hf_model_pretrained",   "hf_proj_type", "hf_pooler_type", NULL};
static const char *const nulls[] = {"ls_init_value", "block_type", NULL};
static const char *const falses[] = {"final_ln_after_pool", "output_tokens", "qk_norm",
                                     "scaled_cosine_attn",  "scale_heads",   "scale_attn_inner",
                                     "scale_attn",          "scale_fc",      NULL};

bool open_clip_side(const struct json_value *v, double *out) {
    double other;
    return json_value_double(v, out) ||
           (json_value_count(v) == 2 && json_value_double(json_value_at(v, 0), out) &&
            json_value_double(json_value_at(v, 1), &other) && *out == other);
}

static bool is_among(const char *const *names, const char *key) {
    while (*names != NULL && strcmp(*names, key) != 0) {
        names++;
    }
    return *names != NULL;
}

static enum status read_field(const struct field *fields,
                              const char *object,
                              const char *key,
                              const struct json_value *value,
                              const char *text,
                              struct error *err) {
    char why[128];
    const struct field *f = fields;
    while (f->name != NULL && strcmp(f->name, key) != 0) {
        f++;
    }
    const struct field other = {.name = key, .plain = is_among(nulls, key) ? "null" : "false"};
    if (f->name == NULL && object[0] != '\0') {
        if (is_among(ignored, key)) {
            return STATUS_OK;
        }
        f = is_among(nulls, key) || is_among(falses, key) ? &other : f;
    }
    if (f->name == NULL) {
        return refuse(object, key, text, "this field is not known here", err);
    }
    if (f->number != NULL) {
        double number;
        const bool flag = json_value_bool(value, &(bool){0});
        if (strcmp(text, "null") == 0) {
            return STATUS_OK;
        }
        const bool whole = f->least >= 1.0; /* a count; ratios may be smaller */
        if (flag ? f->most == 1.0
                 : (f->square ? open_clip_side : json_value_double)(value, &number) &&
                       number >= f->least && number <= f->most &&
                       (!whole || number == floor(number))) {
            *f->number = flag ? (strcmp(text, "true") == 0 ? 1.0 : 0.0) : number;
            return STATUS_OK;
        }
        (void)snprintf(why, sizeof why, "expected %s%g to %g", whole ? "an integer, " : "",
                       f->least, f->most);
        return refuse(object, key, text, why, err);
    }
    if (f->plain == NULL || is_plain(value, f->plain, text) ||
        (f->same != NULL && strcmp(text, f->same) == 0)) {
        return STATUS_OK;
    }
    (void)snprintf(why, sizeof why, "only %s%s%s can be trained here", f->plain,
                   f->same != NULL ? " or " : "", f->same != NULL ? f->same : "");
    return refuse(object, key, text, why, err);
}

static enum status read_object(const struct json_value *v,
                               const char *object,
                               const struct field *fields,
                               struct error *err) {
    void *position = NULL;
    const char *key;
    const struct json_value *value;
    FAIL_IF(!json_value_is_object(v), err, STATUS_UNSUPPORTED,
            "the model's %s is missing or no object", object);
    while (json_value_next_member(v, &position, &key, &value)) {
        char *text = json_value_text(value);
        TRY_MEMORY(text != NULL, err, "out of memory for the model's fields");
        const enum status s = read_field(fields, object, key, value, text, err);
        free(text);
        TRY(s);
    }
    return STATUS_OK;
}

/* ---- the model ---- */

struct numbers {
    double embed, quick;
    double layers, width, head_width, ratio, patch, px, drop;
    double context, vocab, text_width, heads, text_layers, text_ratio;
};

#define IGNORED(name_)                                                                             \
    { .name = name_ }
#define NUMBER(name_, member_, least_, most_)                                                      \
    { .name = name_, .number = &n->member_, .least = least_, .most = most_ }
#define SIDE(name_, member_, least_, most_)                                                        \
    { .name = name_, .number = &n->member_, .least = least_, .most = most_, .square = true }
#define PLAIN(name_, value_)                                                                       \
    { .name = name_, .plain = value_ }

static bool is_siglip(const struct json_value *root) {
    const char *pool =
        json_value_string(json_value_get(json_value_get(root, "vision_cfg"), "timm_pool"), NULL);
    return pool != NULL && strcmp(pool, "map") == 0;
}

/* In the notation of PyTorch's GELU. */
#define TANH_GELU "{\"approximate\":\"tanh\"}"

static enum activation act_of(const struct json_value *tower, enum activation usual) {
    const char *form =
        json_value_string(json_value_get(json_value_get(tower, "act_kwargs"), "approximate"), NULL);
    return form != NULL && strcmp(form, "tanh") == 0 ? ACTIVATION_TANH_GELU : usual;
}

/* Required fields of SigLIP's towers, and the numbers of a timm image tower. */
static enum status
check_siglip(struct numbers *n, const struct json_value *root, struct error *err) {
    static const char *const needed[] = {"no_causal_mask", "pool_type", "proj_bias", "norm_kwargs"};
    const struct json_value *text = json_value_get(root, "text_cfg");
    const char *name = json_value_string(
        json_value_get(json_value_get(root, "vision_cfg"), "timm_model_name"), NULL);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        FAIL_IF(json_value_get(text, needed[i]) == NULL, err, STATUS_UNSUPPORTED,
                "the model's text_cfg.%s is missing; with timm_pool map only SigLIP's text tower "
                "can be trained here",
                needed[i]);
    }
    for (int i = 0; i < SIGLIP_TOWERS && name != NULL; i++) {
        const size_t size = strlen(siglip_towers[i].name);
        if (strncmp(name, siglip_towers[i].name, size) == 0 &&
            strspn(name + size, "0123456789") == strlen(name + size)) {
            n->layers = siglip_towers[i].layers;
            n->width = siglip_towers[i].width;
            n->patch = siglip_towers[i].patch;
            name = NULL;
        }
    }
    FAIL_IF(name != NULL, err, STATUS_UNSUPPORTED,
            "the model's vision_cfg.timm_model_name is %.80s; of timm only SigLIP's "
            "vit_base_patch16, vit_base_patch32 and vit_large_patch16 can be trained here",
            name);
    FAIL_IF(n->embed != n->width, err, STATUS_UNSUPPORTED,
            "the model's embed_dim is %g, its image tower has %g without a projection", n->embed,
            n->width);
    return STATUS_OK;
}

static enum status read_numbers(const struct json_value *root,
                                struct numbers *n,
                                bool with_weights,
                                struct error *err) {
    const char *const first_scale = with_weights ? NULL : "2.6592600369327779";
    const char *const none = with_weights ? NULL : "null";
    const struct json_value *v = json_value_get(root, "vision_cfg");
    const bool siglip = is_siglip(root);
    const bool stages = json_value_is_array(json_value_get(v, "layers"));
    bool quick = false;
    (void)json_value_bool(json_value_get(root, "quick_gelu"), &quick);
    const char *const tanh = quick ? NULL : TANH_GELU; /* QuickGELU has no variants */
    /* an image tower of timm or of convolutions has none of open_clip's GELUs */
    const bool own = !stages && json_value_get(v, "timm_model_name") == NULL;
    const struct field top[] = {
        NUMBER("embed_dim", embed, 1, 65536),
        NUMBER("quick_gelu", quick, 0, 1),
        IGNORED("vision_cfg"),
        IGNORED("text_cfg"),
        IGNORED("custom_text"), /* names, without effect on the result */
        PLAIN("multimodal_cfg", "null"),
        PLAIN("init_logit_scale", first_scale),
        {.name = "init_logit_bias", .plain = none, .same = siglip ? "-10" : NULL},
        PLAIN("nonscalar_logit_scale", "false"),
        {.name = NULL}};
    const struct field vision[] = {
        {.name = "layers", .number = stages ? NULL : &n->layers, .least = 1, .most = 64},
        NUMBER("width", width, 1, 65536),
        NUMBER("head_width", head_width, 1, 65536),
        NUMBER("mlp_ratio", ratio, 0.001, 64),
        SIDE("patch_size", patch, 1, 1024),
        SIDE("image_size", px, 8, 1024),
        {.name = "patch_dropout", .number = &n->drop, .most = siglip || stages ? 0.0 : 0.999},
        PLAIN("attentional_pool", "false"),
        IGNORED("attn_pooler_queries"),
        IGNORED("attn_pooler_heads"),
        PLAIN("no_ln_pre", "false"),
        PLAIN("pos_embed_type", "\"learnable\""),
        PLAIN("pool_type", "\"tok\""),
        PLAIN("norm_kwargs", "null"),
        {.name = "act_kwargs", .plain = "null", .same = own ? tanh : NULL},
        PLAIN("timm_model_name", siglip ? NULL : "null"),
        PLAIN("timm_proj", siglip ? "\"none\"" : NULL),
        {.name = NULL}};
    const struct field text[] = {
        NUMBER("context_length", context, 2, 512),
        NUMBER("vocab_size", vocab, 1, 1 << 24),
        NUMBER("width", text_width, 1, 65536),
        NUMBER("heads", heads, 1, 65536),
        NUMBER("layers", text_layers, 1, 64),
        NUMBER("mlp_ratio", text_ratio, 0.001, 64),
        PLAIN("hf_tokenizer_name", siglip ? NULL : none),
        PLAIN("tokenizer_kwargs", siglip ? "{\"clean\":\"canonicalize\"}" : "null"),
        PLAIN("embed_cls", "false"),
        IGNORED("pad_id"),
        IGNORED("eos_id"),
        PLAIN("no_causal_mask", siglip ? "true" : "false"),
        {.name = "pool_type",
         .plain = siglip ? "\"last\"" : "\"argmax\"",
         .same = siglip ? NULL : "\"eos\""},
        PLAIN("proj_bias", siglip ? "true" : "false"),
        PLAIN("proj_type", "\"linear\""),
        PLAIN("norm_kwargs",
              siglip ? "{\"eps\":9.9999999999999995e-7}" : "null"), /* as printed here */
        {.name = "act_kwargs", .plain = "null", .same = tanh},
        PLAIN("hf_model_name", "null"),
        {.name = NULL}};
    *n = (struct numbers){0, 0, 12, 768, 64, 4, 16, 224, 0, 77, 49408, 512, 8, 12, 4};
    TRY(read_object(root, "", top, err));
    TRY(read_object(json_value_get(root, "vision_cfg"), "vision_cfg.", vision, err));
    TRY(read_object(json_value_get(root, "text_cfg"), "text_cfg.", text, err));
    return siglip ? check_siglip(n, root, err) : STATUS_OK;
}

enum status open_clip_read(struct dual_encoder_options *out,
                           const struct json_value *config,
                           bool with_weights,
                           struct error *err) {
    struct numbers n;
    TRY(read_numbers(config, &n, with_weights, err));
    const struct json_value *stages =
        json_value_get(json_value_get(config, "vision_cfg"), "layers");
    const bool resnet = json_value_is_array(stages);
    const double features = resnet ? 32 * n.width : n.width;
    const double heads = floor(features / n.head_width);
    FAIL_IF(n.embed < 1, err, STATUS_UNSUPPORTED, "the model's embed_dim is missing");
    FAIL_IF(heads < 1 || heads * n.head_width != features, err, STATUS_UNSUPPORTED,
            "the model's vision_cfg.width %g is not a multiple of head_width %g", features,
            n.head_width);
    const bool siglip = is_siglip(config);
    const enum activation act = n.quick != 0 ? ACTIVATION_QUICK_GELU : ACTIVATION_GELU;
    *out = (struct dual_encoder_options){
        .embed_dim = (int32_t)n.embed,
        .max_batch = 1,
        .training = true,
        .dtype = DTYPE_F32,
        .moments = 2,
        .image = {.image_px = (int32_t)n.px},
        .vit = {.patch_px = (int32_t)n.patch,
                .layers = (int32_t)n.layers,
                .dim = (int32_t)n.width,
                .heads = (int32_t)heads,
                .ffn_dim = (int32_t)(n.width * n.ratio),
                .act = act_of(json_value_get(config, "vision_cfg"), siglip ? ACTIVATION_GELU : act),
                .map = siglip,
                .patch_dropout = n.drop},
        .text = {.kind = TRANSFORMER_CLIP,
                 .layers = (int32_t)n.text_layers,
                 .dim = (int32_t)n.text_width,
                 .heads = (int32_t)n.heads,
                 .ffn_dim = (int32_t)(n.text_width * n.text_ratio),
                 .vocab_count = (int32_t)n.vocab,
                 .position_count = (int32_t)n.context,
                 .max_tokens = (int32_t)n.context,
                 .act = act_of(json_value_get(config, "text_cfg"), act),
                 .whole = siglip,
                 .pool = siglip ? TRANSFORMER_POOL_LAST : TRANSFORMER_POOL_END}};
    if (resnet) {
        out->vit = (struct vit_options){0};
        out->image.bottleneck = true;
        out->image.width = (int32_t)n.width;
        out->image.pool_heads = (int32_t)heads;
        for (int i = 0; i < 4; i++) {
            uint32_t blocks = 0;
            FAIL_IF(json_value_count(stages) != 4 ||
                        !json_value_u32(json_value_at(stages, (size_t)i), &blocks) || blocks > 64,
                    err, STATUS_UNSUPPORTED,
                    "the model's vision_cfg.layers is neither a number nor four of 1 to 64");
            out->image.blocks[i] = (int32_t)blocks;
        }
    }
    return STATUS_OK;
}

/* The model_cfg of a parsed text. */
static const struct json_value *model_of(const struct json_document *d) {
    const struct json_value *root = json_document_root(d);
    const struct json_value *inner = json_value_get(root, "model_cfg");
    return inner != NULL ? inner : root;
}

static enum status read_text(struct dual_encoder_options *out,
                             const char *name,
                             const void *text,
                             size_t size_bytes,
                             struct error *err) {
    struct json_document *d = NULL;
    TRY(json_document_parse(&d, name, text, size_bytes, err));
    const enum status s = open_clip_read(out, model_of(d), false, err);
    json_document_destroy(d);
    return s;
}

enum status
open_clip_options(struct dual_encoder_options *out, const char *config, struct error *err) {
    return read_text(out, "the model", config, strlen(config), err);
}

/* The ratio for which open_clip's floor(width * ratio) is the FFN's width. */
static double ratio_of(int32_t ffn, int32_t width) {
    const double ratio = (double)ffn / width;
    return (int32_t)(ratio * width) == ffn ? ratio : (ffn + 0.5) / width;
}

/* Index in siglip_towers; their number: none. */
static int32_t timm_tower(const struct vit_options *v) {
    int32_t i = 0;
    while (i < SIGLIP_TOWERS &&
           !(v->map && v->layers == siglip_towers[i].layers && v->dim == siglip_towers[i].width &&
             v->patch_px == siglip_towers[i].patch && v->ffn_dim == 4 * v->dim &&
             v->heads == v->dim / 64 && v->act == ACTIVATION_GELU)) {
        i++;
    }
    return i;
}

bool open_clip_knows(const struct dual_encoder_options *o) {
    const int32_t tower = timm_tower(&o->vit);
    bool sized = false;
    for (int i = 0; i < 4 && tower < SIGLIP_TOWERS; i++) {
        sized = sized || siglip_towers[tower].px[i] == o->image.image_px;
    }
    return !o->vit.map || sized;
}

static void write_act(struct json_writer *w, enum activation act) {
    if (act == ACTIVATION_TANH_GELU) {
        json_raw(w, "act_kwargs", TANH_GELU, sizeof TANH_GELU - 1);
    }
}

void open_clip_write(struct json_writer *w,
                     const struct dual_encoder_options *o,
                     const char *tokenizer,
                     int32_t end_id) {
    const int32_t timm = timm_tower(&o->vit);
    char name[64];
    json_i64(w, "embed_dim", o->embed_dim);
    if (o->vit.map) {
        json_bool(w, "custom_text", true);
    }
    if (o->text.act == ACTIVATION_QUICK_GELU) {
        json_bool(w, "quick_gelu", true);
    }
    json_open_object(w, "vision_cfg");
    json_i64(w, "image_size", o->image.image_px);
    if (o->image.pool_heads > 0) {
        json_open_array(w, "layers");
        for (int i = 0; i < 4; i++) {
            json_i64(w, NULL, o->image.blocks[i]);
        }
        json_close_array(w);
        json_i64(w, "width", o->image.width);
        json_i64(w, "head_width", 32 * o->image.width / o->image.pool_heads);
    } else if (timm < SIGLIP_TOWERS) {
        (void)snprintf(name, sizeof name, "%s%d", siglip_towers[timm].name, (int)o->image.image_px);
        json_string(w, "timm_model_name", name);
    } else {
        json_i64(w, "layers", o->vit.layers);
        json_i64(w, "width", o->vit.dim);
        json_i64(w, "head_width", o->vit.dim / o->vit.heads);
        json_double(w, "mlp_ratio", ratio_of(o->vit.ffn_dim, o->vit.dim));
        json_i64(w, "patch_size", o->vit.patch_px);
        if (o->vit.patch_dropout > 0.0) {
            json_double(w, "patch_dropout", o->vit.patch_dropout);
        }
        write_act(w, o->vit.act);
    }
    if (o->vit.map) {
        json_bool(w, "timm_model_pretrained", false);
        json_string(w, "timm_pool", "map");
        json_string(w, "timm_proj", "none");
    }
    json_close_object(w);
    json_open_object(w, "text_cfg");
    json_i64(w, "context_length", o->text.position_count);
    json_i64(w, "vocab_size", o->text.vocab_count);
    json_i64(w, "width", o->text.dim);
    json_i64(w, "heads", o->text.heads);
    json_i64(w, "layers", o->text.layers);
    json_double(w, "mlp_ratio", ratio_of(o->text.ffn_dim, o->text.dim));
    write_act(w, o->text.act);
    if (o->vit.map) {
        json_string(w, "hf_tokenizer_name",
                    o->text.vocab_count == SIGLIP_2_VOCAB ? "timm/ViT-B-16-SigLIP2"
                                                          : "timm/ViT-B-16-SigLIP");
        json_raw(w, "tokenizer_kwargs", "{\"clean\":\"canonicalize\"}", 24);
        json_bool(w, "no_causal_mask", true);
        json_bool(w, "proj_bias", true);
        json_string(w, "pool_type", "last");
        json_raw(w, "norm_kwargs", "{\"eps\":1e-06}", 13);
    } else if (tokenizer != NULL) {
        json_string(w, "hf_tokenizer_name", tokenizer);
        json_string(w, "pool_type", "eos");
        json_i64(w, "eos_id", end_id);
    }
    json_close_object(w);
}

enum status open_clip_text(char out[OPEN_CLIP_CONFIG_BYTES],
                           const struct dual_encoder_options *o,
                           struct error *err) {
    struct json_writer w;
    json_writer_init(&w, OPEN_CLIP_CONFIG_BYTES - 1);
    json_open_object(&w, NULL);
    open_clip_write(&w, o, NULL, 0);
    json_close_object(&w);
    const enum status s = json_writer_status(&w, err);
    if (s == STATUS_OK) {
        memcpy(out, w.out.data, w.out.size_bytes);
        out[w.out.size_bytes] = '\0';
    }
    json_writer_fini(&w);
    return s;
}

enum status
open_clip_config(char out[OPEN_CLIP_CONFIG_BYTES], const char *model, struct error *err) {
    enum { MAX_FILE_BYTES = 1 << 20 };
    const struct file_system *fs = file_posix();
    struct byte_buffer text = {0};
    struct dual_encoder_options options;
    struct error why = {0};
    bool there = false;
    const bool literal = model[0] == '{';
    TRY(literal ? STATUS_OK : fs->exists(fs->context, model, &there, err));
    if (!literal && !there) {
        TRY(write_known(out, model, err));
        TRY(open_clip_options(&options, out, err));
        return open_clip_text(out, &options, err);
    }
    TRY(literal ? STATUS_OK : file_read_all(fs, &text, model, MAX_FILE_BYTES, err));
    enum status s = literal ? read_text(&options, "--model", model, strlen(model), &why)
                            : read_text(&options, model, text.data, text.size_bytes, &why);
    byte_buffer_fini(&text);
    /* the reader reports invalid JSON */
    FAIL_IF(s != STATUS_OK, err, s, "%s%s%s", literal || s == STATUS_CORRUPT ? "" : model,
            literal || s == STATUS_CORRUPT ? "" : ": ", why.text);
    return open_clip_text(out, &options, err);
}
