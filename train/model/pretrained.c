/*
 * Two passes: names and shapes of all tensors first, with every mismatch reported at
 * once; then the values, tensor by tensor, each converted and checked before it is written.
 */
#include "train/model/pretrained.h"

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

struct job {
    struct params *p;
    const char *tower, *path;
    const struct log_sink *log;
    struct safetensors *file;
    const char *prefix; /* of the names in the file */
    int32_t misfit_count;
    char first[TEXT_BYTES]; /* of the misfits */
};

static bool belongs(const struct job *j, const struct param_info *info) {
    return strncmp(info->name, j->tower, strlen(j->tower)) == 0;
}

/* The tensor of the file for one of the table, under a prefix. */
static const struct safetensors_info *
find(const struct job *j, const char *prefix, const struct param_info *info) {
    char name[NAME_BYTES];
    const int n = snprintf(name, sizeof name, "%s%s", prefix, info->name + strlen(j->tower));
    return n < (int)sizeof name ? safetensors_find(j->file, name) : NULL;
}

/* The prefix that most of the tower's names are found under; the first of equals. */
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

static void check_tensor(struct job *j, const struct param_info *info) {
    const struct safetensors_info *found = find(j, j->prefix, info);
    const char *name = info->name + strlen(j->tower);
    char text[TEXT_BYTES];
    if (found == NULL) {
        (void)snprintf(text, sizeof text, "%s%s is missing", j->prefix, name);
        misfit(j, text);
        return;
    }
    uint64_t shape[TENSOR_MAX_DIMS];
    bool same = found->dim_count == (uint32_t)info->ndim;
    for (int32_t d = 0; d < info->ndim; d++) {
        shape[d] = (uint64_t)info->shape[d];
        same = same && found->shape[d] == shape[d];
    }
    if (!same) {
        char has[SHAPE_BYTES];
        char expected[SHAPE_BYTES];
        print_shape(has, found->shape, found->dim_count);
        print_shape(expected, shape, (uint32_t)info->ndim);
        (void)snprintf(text, sizeof text, "%s is %s, the model has %s%s", found->name, has,
                       expected,
                       strcmp(name, "embeddings.word_embeddings.weight") == 0
                           ? ": another vocabulary; pass the weights' own with --tokenizer"
                           : "");
        misfit(j, text);
    } else if (!is_real(found->dtype)) {
        (void)snprintf(text, sizeof text, "%s is %s, not a real type", found->name,
                       safetensors_dtype_name(found->dtype));
        misfit(j, text);
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

/* One line on what the file has beyond the tower. */
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

/* raw, as the file has it -> host, as the table stores it. Returns OK or CORRUPT. */
static enum status convert(const struct job *j,
                           void *host,
                           const uint8_t *raw,
                           const struct safetensors_info *found,
                           struct error *err) {
    const bool f64 = params_dtype(j->p) == DTYPE_F64;
    for (size_t k = 0; k < found->element_count; k++) {
        const double v = value_at(raw, k, found->dtype);
        FAIL_IF(!isfinite(v) || (!f64 && !isfinite((float)v)), err, STATUS_CORRUPT,
                "%s: element %zu of %s is %g; weights must be finite", j->path, k, found->name, v);
        if (f64) {
            ((double *)host)[k] = v;
        } else {
            ((float *)host)[k] = (float)v;
        }
    }
    return STATUS_OK;
}

static enum status load_tensor(struct job *j, int32_t index, struct error *err) {
    const struct param_info info = params_info(j->p, index);
    const struct safetensors_info *found = find(j, j->prefix, &info);
    const size_t size = (size_t)info.count * dtype_size_bytes(params_dtype(j->p));
    uint8_t *raw = malloc((size_t)found->size_bytes);
    void *host = malloc(size);
    enum status s;
    if (raw == NULL || host == NULL) {
        s = error_set(err, STATUS_NOMEM, "%s: no memory to read %s", j->path, found->name);
        goto end;
    }
    s = safetensors_read(j->file, found, raw, (size_t)found->size_bytes, err);
    THEN(s, convert(j, host, raw, found, err));
    THEN(s, params_write(j->p, index, PARAM_VALUE, host, size, err));
end:
    free(raw);
    free(host);
    return s;
}

static enum status load(struct job *j, struct error *err) {
    int32_t required = 0;
    j->prefix = choose_prefix(j);
    for (int32_t i = 0; i < params_count(j->p); i++) {
        const struct param_info info = params_info(j->p, i);
        if (belongs(j, &info)) {
            check_tensor(j, &info);
            required++;
        }
    }
    name_extras(j);
    refuse_norms(j);
    FAIL_IF(j->misfit_count > 0, err, STATUS_MISMATCH,
            "%s: %d of the tower's %d tensors do not fit; the first: %s", j->path,
            (int)j->misfit_count, (int)required, j->first);
    for (int32_t i = 0; i < params_count(j->p); i++) {
        const struct param_info info = params_info(j->p, i);
        if (belongs(j, &info)) {
            TRY(load_tensor(j, i, err));
        }
    }
    return STATUS_OK;
}

/* Whether the file is a zip archive or a pickle: what torch.save writes. */
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

static enum status open_file(struct job *j, const struct file_system *fs, struct error *err) {
    if (!is_pickle(fs, j->path)) {
        return safetensors_open(&j->file, fs, j->path, err);
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
    TRY(open_file(&j, fs, err));
    const enum status s = load(&j, err);
    safetensors_close(j.file);
    return s;
}
