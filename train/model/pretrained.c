/*
 * Two passes: names and shapes of all tensors first, with every mismatch reported at
 * once; then the values, tensor by tensor, each converted and checked before it is written.
 */
#include "train/model/pretrained.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tensors/safetensors.h"

enum {
    MAX_LISTED = 20,
    NAME_BYTES = 256,
    SHAPE_BYTES = 160,
    LINE_BYTES = 400,
    TEXT_BYTES = 2 * SHAPE_BYTES + NAME_BYTES
};

enum { MOST_PARTS = 3 };

/* The source of a table's tensor in the file: `count` tensors of equal shape, whose rows follow
 * each other; or some thirds of the rows of one. */
struct source {
    char names[MOST_PARTS][NAME_BYTES];
    int count;
    bool transposed;
    bool flat;         /* without the table's first extent, 1 */
    int third, thirds; /* the first one and how many; thirds 0: all rows */
};

struct job {
    struct params *p;
    const char *tower, *path;
    const struct log_sink *log;
    const struct safetensors *file;
    bool model; /* a whole model, with `names`; the tower is "" */
    enum model_names names;
    const char *prefix; /* of the names in the file */
    bool *used;         /* per tensor of the file; NULL: not requested */
    int32_t misfit_count;
    char first[TEXT_BYTES]; /* of the mismatches */
};

static bool belongs(const struct job *j, const struct param_info *info) {
    return strncmp(info->name, j->tower, strlen(j->tower)) == 0;
}

/* ---- names of whole models ---- */

static void hugging_face_source(struct source *out, const char *name) {
    static const char *const renames[][2] = {
        {"visual.trunk.blocks.", "vision_model.encoder.layers."}, /* SigLIP's */
        {"visual.trunk.patch_embed.proj.", "vision_model.embeddings.patch_embedding."},
        {"visual.trunk.pos_embed", "vision_model.embeddings.position_embedding.weight"},
        {"visual.trunk.norm.", "vision_model.post_layernorm."},
        {"visual.trunk.attn_pool.latent", "vision_model.head.probe"},
        {"visual.trunk.attn_pool.q.", "vision_model.head.attention.in_proj_"},
        {"visual.trunk.attn_pool.kv.", "vision_model.head.attention.in_proj_"},
        {"visual.trunk.attn_pool.proj.", "vision_model.head.attention.out_proj."},
        {"visual.trunk.attn_pool.norm.", "vision_model.head.layernorm."},
        {"visual.trunk.attn_pool.mlp.", "vision_model.head.mlp."},
        {"text_projection.", "text_model.head."},
        {".attn.qkv.", ".self_attn.?_proj."},
        {".attn.proj.", ".self_attn.out_proj."},
        {".norm1.", ".layer_norm1."},
        {".norm2.", ".layer_norm2."},
        {"visual.proj", "visual_projection.weight"}, /* CLIP's */
        {"text_projection", "text_projection.weight"},
        {"visual.class_embedding", "vision_model.embeddings.class_embedding"},
        {"visual.positional_embedding", "vision_model.embeddings.position_embedding.weight"},
        {"visual.conv1.", "vision_model.embeddings.patch_embedding."},
        {"visual.ln_pre.", "vision_model.pre_layrnorm."}, /* sic */
        {"visual.ln_post.", "vision_model.post_layernorm."},
        {"visual.transformer.resblocks.", "vision_model.encoder.layers."},
        {"transformer.resblocks.", "text_model.encoder.layers."},
        {"token_embedding.", "text_model.embeddings.token_embedding."},
        {"positional_embedding", "text_model.embeddings.position_embedding.weight"},
        {"ln_final.", "text_model.final_layer_norm."},
        {".attn.in_proj_", ".self_attn.?_proj."}, /* q, k and v */
        {".attn.out_proj.", ".self_attn.out_proj."},
        {".ln_1.", ".layer_norm1."},
        {".ln_2.", ".layer_norm2."},
        {".mlp.c_fc.", ".mlp.fc1."},
        {".mlp.c_proj.", ".mlp.fc2."}};
    name += strncmp(name, "text.", 5) == 0 ? 5 : 0;
    const bool apart = strstr(name, ".attn.in_proj_") != NULL || strstr(name, ".attn.qkv.") != NULL;
    const bool query = strstr(name, ".attn_pool.q.") != NULL;
    out->count = apart ? MOST_PARTS : 1;
    out->third = query ? 0 : 1;
    out->thirds = query ? 1 : strstr(name, ".attn_pool.kv.") != NULL ? 2 : 0;
    out->flat = strcmp(name, "visual.trunk.pos_embed") == 0;
    out->transposed = strcmp(name, "visual.proj") == 0 || strcmp(name, "text_projection") == 0;
    for (int k = 0; k < out->count; k++) {
        char *to = out->names[k];
        (void)snprintf(to, NAME_BYTES, "%s", name);
        for (size_t i = 0; i < sizeof renames / sizeof *renames; i++) {
            char old[NAME_BYTES];
            const char *at = strstr(strcpy(old, to), renames[i][0]);
            if (at != NULL) {
                (void)snprintf(to, NAME_BYTES, "%.*s%s%s", (int)(at - old), old, renames[i][1],
                               at + strlen(renames[i][0]));
            }
        }
        *(out->count > 1 ? strchr(to, '?') : to) = out->count > 1 ? "qkv"[k] : to[0];
    }
}

static struct source source_of(const struct job *j, const char *prefix, const char *name) {
    struct source out = {.count = 1};
    if (j->model && j->names == MODEL_NAMES_HUGGING_FACE) {
        hugging_face_source(&out, name);
        return out;
    }
    (void)snprintf(out.names[0], NAME_BYTES, "%s%s", prefix, name);
    if (j->model && strncmp(name, "visual.", 7) != 0 &&
        safetensors_find(j->file, out.names[0]) == NULL) {
        char other[NAME_BYTES];
        if (snprintf(other, sizeof other, "text.%s", name) < (int)sizeof other &&
            safetensors_find(j->file, other) != NULL) {
            memcpy(out.names[0], other, sizeof other);
        }
    }
    return out;
}

/* The first tensor of the file for a table's tensor, with a prefix. */
static const struct safetensors_info *
find(const struct job *j, const char *prefix, const struct param_info *info) {
    const struct source from = source_of(j, prefix, info->name + strlen(j->tower));
    return safetensors_find(j->file, from.names[0]);
}

/* The prefix with which most of the tower's names are found; the first of equals. */
static const char *choose_prefix(const struct job *j) {
    const char *const prefixes[] = {"", j->tower, "distilbert.", "model.", "module."};
    const char *best = prefixes[0];
    int32_t most = 0;
    for (size_t k = 0; k < sizeof prefixes / sizeof prefixes[0]; k++) {
        int32_t found = 0;
        for (int32_t i = 0; i < params_count(j->p); i++) {
            const struct param_info info = params_info(j->p, i);
            found += belongs(j, &info) && find(j, prefixes[k], &info) != NULL;
        }
        if (found > most) {
            most = found;
            best = prefixes[k];
        }
    }
    return best;
}

static void misfit(struct job *j, const char *text) {
    if (j->misfit_count == 0) {
        (void)snprintf(j->first, sizeof j->first, "%s", text);
    }
    if (j->misfit_count < MAX_LISTED) {
        log_write(j->log, LOG_LEVEL_ERROR, "%s: %s", j->path, text);
    } else if (j->misfit_count == MAX_LISTED) {
        log_write(j->log, LOG_LEVEL_ERROR, "%s: and more", j->path);
    }
    j->misfit_count++;
}

/* "(64, 3, 7, 7)" */
static void print_shape(char out[SHAPE_BYTES], const uint64_t *shape, uint32_t dim_count) {
    size_t at = (size_t)snprintf(out, SHAPE_BYTES, "(");
    for (uint32_t d = 0; d < dim_count && at < SHAPE_BYTES - 24; d++) {
        at += (size_t)snprintf(out + at, SHAPE_BYTES - at, "%s%llu", d > 0 ? ", " : "",
                               (unsigned long long)shape[d]);
    }
    (void)snprintf(out + at, SHAPE_BYTES - at, ")");
}

static bool is_real(enum safetensors_dtype t) {
    return t == SAFETENSORS_F32 || t == SAFETENSORS_F16 || t == SAFETENSORS_BF16 ||
           t == SAFETENSORS_F64;
}

/* The side of the square of patches of a table of positions; 0: not a square. */
static int64_t grid_of(uint64_t rows) {
    const int64_t side = (int64_t)(sqrt((double)rows - 1.0) + 0.5);
    return rows > 1 && rows < (1 << 20) && (uint64_t)(side * side) + 1 == rows ? side : 0;
}

/* Whether `found` is the image tower's position embeddings for another number of patches. */
static bool is_other_grid(const struct job *j,
                          const struct param_info *info,
                          const struct safetensors_info *found) {
    return j->model && strcmp(info->name, "visual.positional_embedding") == 0 &&
           found->dim_count == 2 && found->shape[1] == (uint64_t)info->shape[1] &&
           found->shape[0] != (uint64_t)info->shape[0] && grid_of(found->shape[0]) > 0;
}

/* The expected shape of each part of a source. Returns its number of dimensions. */
static int32_t part_shape(uint64_t shape[TENSOR_MAX_DIMS],
                          const struct param_info *info,
                          const struct source *from) {
    const int32_t first = from->flat ? 1 : 0;
    const int32_t last = info->ndim - 1;
    for (int32_t d = first; d <= last; d++) {
        shape[d - first] = (uint64_t)info->shape[from->transposed ? last - d : d];
    }
    shape[0] /= (uint64_t)from->count;
    shape[0] = from->thirds > 0 ? 3 * shape[0] / (uint64_t)from->thirds : shape[0];
    return info->ndim - first;
}

static void check_part(struct job *j,
                       const struct param_info *info,
                       const struct source *from,
                       const char *name) {
    const struct safetensors_info *found = safetensors_find(j->file, name);
    char text[TEXT_BYTES];
    char expected[SHAPE_BYTES];
    uint64_t shape[TENSOR_MAX_DIMS];
    const int32_t ndim = part_shape(shape, info, from);
    print_shape(expected, shape, (uint32_t)ndim);
    if (found == NULL) {
        (void)snprintf(text, sizeof text, "%s is missing%s%s", name, j->model ? ", of shape " : "",
                       j->model ? expected : "");
        misfit(j, text);
        return;
    }
    if (j->used != NULL) {
        j->used[found - safetensors_at(j->file, 0)] = true;
    }
    const bool same = found->dim_count == (uint32_t)ndim &&
                      memcmp(found->shape, shape, (size_t)ndim * sizeof *shape) == 0;
    if (!same && !is_other_grid(j, info, found)) {
        const char *own = info->name + strlen(j->tower);
        char has[SHAPE_BYTES];
        print_shape(has, found->shape, found->dim_count);
        (void)snprintf(text, sizeof text, "%s is %s, the model has %s%s", found->name, has,
                       expected,
                       strcmp(own, "embeddings.word_embeddings.weight") == 0 ||
                               strcmp(own, "token_embedding.weight") == 0
                           ? ": another vocabulary; pass the weights' own with --tokenizer"
                           : "");
        misfit(j, text);
    } else if (!is_real(found->dtype)) {
        (void)snprintf(text, sizeof text, "%s is %s, not a real type", found->name,
                       safetensors_dtype_name(found->dtype));
        misfit(j, text);
    }
}

static void check_tensor(struct job *j, const struct param_info *info) {
    const struct source from = source_of(j, j->prefix, info->name + strlen(j->tower));
    for (int k = 0; k < from.count; k++) {
        check_part(j, info, &from, from.names[k]);
    }
}

static bool is_required(const struct job *j, const char *name) {
    const size_t prefix = strlen(j->prefix);
    char full[NAME_BYTES];
    if (strncmp(name, j->prefix, prefix) != 0) {
        return false;
    }
    const int n = snprintf(full, sizeof full, "%s%s", j->tower, name + prefix);
    return n < (int)sizeof full && params_find(j->p, full) >= 0;
}

/* Buffers that PyTorch's modules save and that no forward pass reads. */
static bool is_harmless(const char *name) {
    static const char *const endings[] = {"num_batches_tracked", "position_ids"};
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t n = strlen(endings[i]);
        if (length >= n && strcmp(name + length - n, endings[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Norms of the file that the tower lacks: its weights were trained with them. */
static void refuse_norms(struct job *j) {
    const size_t prefix = strlen(j->prefix);
    for (size_t i = 0; i < safetensors_count(j->file); i++) {
        const char *name = safetensors_at(j->file, i)->name;
        if (strncmp(name, j->prefix, prefix) == 0 && !is_required(j, name) &&
            (strcmp(name + prefix, "bn1.weight") == 0 ||
             strcmp(name + prefix, "bn1.running_mean") == 0)) {
            char text[TEXT_BYTES];
            (void)snprintf(text, sizeof text, "the tower has other norms than %s (--norm-layer)",
                           name);
            misfit(j, text);
        }
    }
}

/* Logs a line about tensors of the file that the tower lacks. */
static void name_extras(const struct job *j) {
    char names[LINE_BYTES] = "";
    size_t used = 0;
    size_t named = 0;
    size_t extra = 0;
    if (safetensors_metadata(j->file, "ccstream.version") != NULL) {
        log_write(j->log, LOG_LEVEL_INFO,
                  "%s: loaded only the %.*s tower of this checkpoint (not the other tower, "
                  "projections, temperature, per-sample state); --init loads the whole model",
                  j->path, (int)strlen(j->tower) - 1, j->tower);
        return;
    }
    for (size_t i = 0; i < safetensors_count(j->file); i++) {
        const char *name = safetensors_at(j->file, i)->name;
        if (is_required(j, name) || is_harmless(name)) {
            continue;
        }
        if (extra == named && named < MAX_LISTED && used + strlen(name) + 2 < sizeof names) {
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     named > 0 ? ", " : "", name);
            named++;
        }
        extra++;
    }
    if (extra > named) {
        log_write(j->log, LOG_LEVEL_INFO, "%s: not used: %s and %zu others", j->path, names,
                  extra - named);
    } else if (extra > 0) {
        log_write(j->log, LOG_LEVEL_INFO, "%s: not used: %s", j->path, names);
    }
}

/* ---- values ---- */

static float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float from_f16(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    const int exponent = h >> 10 & 31;
    const uint32_t fraction = h & 1023;
    if (exponent == 31) {
        return from_bits(sign | 0x7F800000U | fraction << 13);
    }
    if (exponent == 0) {
        const float small = ldexpf((float)fraction, -24);
        return sign != 0 ? -small : small;
    }
    return from_bits(sign | (uint32_t)(exponent + 112) << 23 | fraction << 13);
}

static double value_at(const uint8_t *raw, size_t k, enum safetensors_dtype t) {
    uint16_t h;
    float f;
    double d;
    switch (t) {
    case SAFETENSORS_F64:
        memcpy(&d, raw + k * sizeof d, sizeof d);
        return d;
    case SAFETENSORS_F16:
        memcpy(&h, raw + k * sizeof h, sizeof h);
        return (double)from_f16(h);
    case SAFETENSORS_BF16:
        memcpy(&h, raw + k * sizeof h, sizeof h);
        return (double)from_bits((uint32_t)h << 16);
    default:
        memcpy(&f, raw + k * sizeof f, sizeof f);
        return (double)f;
    }
}

/* Converts raw, in the file's type, to host, in the table's. Returns OK or CORRUPT. */
static enum status convert(const struct job *j,
                           void *host,
                           const uint8_t *raw,
                           const struct safetensors_info *found,
                           struct error *err) {
    const bool f64 = params_dtype(j->p) == DTYPE_F64;
    for (size_t k = 0; k < found->element_count; k++) {
        const double v = value_at(raw, k, found->dtype);
        FAIL_IF(!(fabs(v) <= (f64 ? DBL_MAX : 0x1p63)), err, STATUS_CORRUPT,
                "%s: element %zu of %s is %g; weights must be finite", j->path, k, found->name, v);
        if (f64) {
            ((double *)host)[k] = v;
        } else {
            ((float *)host)[k] = (float)v;
        }
    }
    return STATUS_OK;
}

/* Weights of the bicubic filter of torchvision's resize (a = -0.5), wider if it shrinks. */
static double filter_weight(double out, int64_t in, double scale) {
    const double x = fabs((double)in + 0.5 - scale * (out + 0.5)) / fmax(scale, 1.0);
    return x < 1.0   ? (1.5 * x - 2.5) * x * x + 1.0
           : x < 2.0 ? ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
                     : 0.0;
}

/* Copies the class token's row, then resizes a square of `from_side` to one of `to_side`. */
static void
resize_positions(float *to, int64_t to_side, const float *from, int64_t from_side, int64_t width) {
    const double scale = (double)from_side / (double)to_side;
    memcpy(to, from, (size_t)width * sizeof *to);
    for (int64_t p = 0; p < to_side * to_side; p++) {
        float *row = to + (1 + p) * width;
        double total = 0.0;
        memset(row, 0, (size_t)width * sizeof *row);
        for (int64_t k = 0; k < 2 * from_side * from_side; k++) { /* the weights, then the sum */
            const int64_t at = k % (from_side * from_side);
            const double w = filter_weight((double)(p / to_side), at / from_side, scale) *
                             filter_weight((double)(p % to_side), at % from_side, scale);
            total += at == k ? w : 0.0;
            for (int64_t c = 0; c < width && at != k && w != 0.0; c++) {
                row[c] += (float)(w / total * (double)from[(1 + at) * width + c]);
            }
        }
    }
}

/* The numbers of one tensor of the file, in the table's type; the caller frees them. */
static enum status
read_part(const struct job *j, uint8_t **out, const char *name, struct error *err) {
    const struct safetensors_info *found = safetensors_find(j->file, name);
    uint8_t *raw = malloc((size_t)found->size_bytes + 1);
    *out = malloc((size_t)found->element_count * dtype_size_bytes(params_dtype(j->p)) + 1);
    enum status s = raw != NULL && *out != NULL
                        ? safetensors_read(j->file, found, raw, (size_t)found->size_bytes, err)
                        : error_set(err, STATUS_NOMEM, "%s: no memory to read %s", j->path, name);
    THEN(s, convert(j, *out, raw, found, err));
    free(raw);
    return s;
}

static enum status load_tensor(struct job *j, int32_t index, struct error *err) {
    const struct param_info info = params_info(j->p, index);
    const struct source from = source_of(j, j->prefix, info.name + strlen(j->tower));
    const size_t real = dtype_size_bytes(params_dtype(j->p));
    const size_t size = (size_t)info.count * real;
    const size_t part = size / (size_t)from.count;
    uint8_t *host = malloc(size);
    uint8_t *numbers = NULL;
    TRY_MEMORY(host != NULL, err, "%s: no memory to read %s", j->path, info.name);
    enum status s = STATUS_OK;
    for (int k = 0; k < from.count && s == STATUS_OK; k++) {
        const struct safetensors_info *found = safetensors_find(j->file, from.names[k]);
        s = read_part(j, &numbers, from.names[k], err);
        if (s == STATUS_OK && is_other_grid(j, &info, found)) {
            resize_positions((float *)(void *)host, grid_of((uint64_t)info.shape[0]),
                             (const float *)(const void *)numbers, grid_of(found->shape[0]),
                             info.shape[1]);
        } else if (s == STATUS_OK && !from.transposed) {
            const size_t skipped = from.thirds > 0 ? size / (size_t)from.thirds : 0;
            memcpy(host + (size_t)k * part, numbers + (size_t)from.third * skipped, part);
        }
        const size_t rows = (size_t)info.shape[0];
        for (size_t i = 0; s == STATUS_OK && from.transposed && i < size / real; i++) {
            const size_t columns = size / real / rows;
            memcpy(host + i * real, numbers + (i % columns * rows + i / columns) * real, real);
        }
        free(numbers);
    }
    THEN(s, params_write(j->p, index, PARAM_VALUE, host, size, err));
    free(host);
    return s;
}

/* Checks for tensors of the file that a whole model does not have. */
static void refuse_extras(struct job *j) {
    for (size_t i = 0; i < safetensors_count(j->file); i++) {
        const struct safetensors_info *info = safetensors_at(j->file, i);
        if (!j->used[i] && !is_harmless(info->name) && strcmp(info->name, "logit_scale") != 0 &&
            strcmp(info->name, "logit_bias") != 0) {
            char has[SHAPE_BYTES];
            char text[TEXT_BYTES];
            print_shape(has, info->shape, info->dim_count);
            (void)snprintf(text, sizeof text, "%s %s is not a tensor of the model", info->name,
                           has);
            misfit(j, text);
        }
    }
}

/* Loads the values of all tensors, after all shapes matched. */
static enum status load_all(struct job *j, const char *what, struct error *err) {
    int32_t required = 0;
    for (int32_t i = 0; i < params_count(j->p); i++) {
        const struct param_info info = params_info(j->p, i);
        if (belongs(j, &info)) {
            check_tensor(j, &info);
            required++;
        }
    }
    if (j->model) {
        if (j->used != NULL) {
            refuse_extras(j);
        }
    } else {
        name_extras(j);
        refuse_norms(j);
    }
    FAIL_IF(j->misfit_count > 0, err, STATUS_MISMATCH,
            "%s: %d of the %s's %d tensors do not fit; the first: %s", j->path,
            (int)j->misfit_count, what, (int)required, j->first);
    for (int32_t i = 0; i < params_count(j->p); i++) {
        const struct param_info info = params_info(j->p, i);
        if (belongs(j, &info)) {
            TRY(load_tensor(j, i, err));
        }
    }
    return STATUS_OK;
}

enum status pretrained_read(double *out,
                            const struct safetensors *file,
                            const char *name,
                            const char *path,
                            struct error *err) {
    const struct safetensors_info *found = safetensors_find(file, name);
    uint8_t raw[sizeof(double)];
    *out = (double)NAN;
    if (found == NULL) {
        return STATUS_OK;
    }
    FAIL_IF(found->element_count != 1 || !is_real(found->dtype), err, STATUS_MISMATCH,
            "%s: %s is not a real number", path, name);
    TRY(safetensors_read(file, found, raw, (size_t)found->size_bytes, err));
    *out = value_at(raw, 0, found->dtype);
    return fabs(*out) <= 100.0 ? STATUS_OK
                               : error_set(err, STATUS_CORRUPT, "%s: %s is %g, not in -100 to 100",
                                           path, name, *out);
}

enum status pretrained_load_model(struct params *p,
                                  enum model_names names,
                                  bool whole,
                                  const struct safetensors *file,
                                  const char *path,
                                  struct error *err) {
    REQUIRE(params_dtype(p) == DTYPE_F32);
    struct job j = {.p = p,
                    .tower = "",
                    .path = path,
                    .file = file,
                    .model = true,
                    .names = names,
                    .prefix = ""};
    j.used = whole ? calloc(safetensors_count(file) + 1, sizeof *j.used) : NULL;
    TRY_MEMORY(j.used != NULL || !whole, err, "%s: out of memory", path);
    const enum status s = load_all(&j, "model", err);
    free(j.used);
    return s;
}

/* Whether the file is a zip archive or a pickle, as written by torch.save. */
static bool is_pickle(const struct file_system *fs, const char *path) {
    struct file *file;
    uint8_t start[4];
    size_t got = 0;
    if (fs->open(fs->context, &file, path, FILE_READ, NULL) != STATUS_OK) {
        return false;
    }
    const enum status s = fs->pread(file, start, &got, sizeof start, 0, NULL);
    fs->close(file);
    return s == STATUS_OK && got == sizeof start &&
           (memcmp(start, "PK\003\004", 4) == 0 || (start[0] == 0x80 && start[1] <= 5));
}

static enum status open_file(struct safetensors **out,
                             const struct job *j,
                             const struct file_system *fs,
                             struct error *err) {
    if (!is_pickle(fs, j->path)) {
        return safetensors_open(out, fs, j->path, err);
    }
    log_write(j->log, LOG_LEVEL_ERROR,
              "to convert it: python3 -c \"import sys, torch, safetensors.torch as s; "
              "d = torch.load(sys.argv[1], map_location='cpu', weights_only=True); "
              "d = d.get('state_dict', d); "
              "s.save_file({k: v.clone().contiguous() for k, v in d.items()}, sys.argv[2])\" "
              "'%s' weights.safetensors",
              j->path);
    return error_set(err, STATUS_UNSUPPORTED,
                     "%s is a PyTorch pickle, which can run code and is not read; convert it to "
                     "safetensors",
                     j->path);
}

enum status pretrained_load(struct params *p,
                            const char *tower,
                            const struct file_system *fs,
                            const char *path,
                            const struct log_sink *log,
                            struct error *err) {
    REQUIRE(p != NULL && tower != NULL && fs != NULL && path != NULL);
    struct job j = {.p = p, .tower = tower, .path = path, .log = log};
    struct safetensors *file = NULL;
    TRY(open_file(&file, &j, fs, err));
    j.file = file;
    j.prefix = choose_prefix(&j);
    const enum status s = load_all(&j, "tower", err);
    safetensors_close(file);
    return s;
}
