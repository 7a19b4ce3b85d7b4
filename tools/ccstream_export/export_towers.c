/*
 * export_towers: the tensors of both towers with other programs' names, and their configurations.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ccstream_export/export_internal.h"

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text);
    const size_t k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* ---- image ---- */

int32_t export_feature_count(const struct model_config *m) {
    struct resnet_options o;
    return resnet_preset(&o, m->image_tower, NULL) == STATUS_OK
               ? o.width * 8 * (o.bottleneck ? 4 : 1)
               : 0;
}

enum status export_add_image(struct tensor_list *l,
                             const struct export_job *job,
                             const char *prefix,
                             struct error *err) {
    static const char start[] = "image.";
    static const char variance[] = "running_var";
    for (size_t i = 0; i < safetensors_count(job->file); i++) {
        const struct safetensors_info *info = safetensors_at(job->file, i);
        if (strncmp(info->name, start, sizeof start - 1) != 0) {
            continue;
        }
        const char *name = info->name + sizeof start - 1;
        TRY(tensor_list_copy(l, prefix, name, info, err));
        if (ends_with(name, variance)) {
            char counter[TENSOR_LIST_NAME_BYTES];
            void *values;
            (void)snprintf(counter, sizeof counter, "%.*snum_batches_tracked",
                           (int)(strlen(name) - (sizeof variance - 1)), name);
            TRY(tensor_list_add(l, &values, prefix, counter, SAFETENSORS_I64, NULL, 0, err));
            *(int64_t *)values = (int64_t)checkpoint_position(job->checkpoint)->step;
        }
    }
    return STATUS_OK;
}

/* ---- text ---- */

static const char text_start[] = "text.";

enum status export_add_distilbert(struct tensor_list *l,
                                  const struct export_job *job,
                                  const char *prefix,
                                  struct error *err) {
    for (size_t i = 0; i < safetensors_count(job->file); i++) {
        const struct safetensors_info *info = safetensors_at(job->file, i);
        if (strncmp(info->name, text_start, sizeof text_start - 1) == 0) {
            TRY(tensor_list_copy(l, prefix, info->name + sizeof text_start - 1, info, err));
        }
    }
    return STATUS_OK;
}

static void bert_name(char out[TENSOR_LIST_NAME_BYTES], const char *name) {
    static const struct {
        const char *from, *to;
    } parts[] = {
        {"transformer.layer.", "encoder.layer."},
        {".attention.q_lin.", ".attention.self.query."},
        {".attention.k_lin.", ".attention.self.key."},
        {".attention.v_lin.", ".attention.self.value."},
        {".attention.out_lin.", ".attention.output.dense."},
        {".sa_layer_norm.", ".attention.output.LayerNorm."},
        {".ffn.lin1.", ".intermediate.dense."},
        {".ffn.lin2.", ".output.dense."},
        {".output_layer_norm.", ".output.LayerNorm."},
    };
    (void)snprintf(out, TENSOR_LIST_NAME_BYTES, "%s", name);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *at = strstr(out, parts[i].from);
        if (at != NULL) {
            char whole[TENSOR_LIST_NAME_BYTES];
            (void)snprintf(whole, sizeof whole, "%.*s%s%s", (int)(at - out), out, parts[i].to,
                           at + strlen(parts[i].from));
            memcpy(out, whole, sizeof whole);
        }
    }
}

/* Solves A x = b in place for a symmetric, positive definite A (n, n); false: it is not. */
static bool solve(double *a, double *x, size_t n) {
    for (size_t i = 0; i < n; i++) { /* A = L L^T, L in the lower half */
        for (size_t k = 0; k <= i; k++) {
            double sum = a[i * n + k];
            for (size_t j = 0; j < k; j++) {
                sum -= a[i * n + j] * a[k * n + j];
            }
            if (i == k && !(sum > 0.0)) {
                return false;
            }
            a[i * n + k] = i == k ? sqrt(sum) : sum / a[k * n + k];
        }
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++) {
            x[i] -= a[i * n + j] * x[j];
        }
        x[i] /= a[i * n + i];
    }
    for (size_t i = n; i-- > 0;) {
        for (size_t j = i + 1; j < n; j++) {
            x[i] -= a[j * n + i] * x[j];
        }
        x[i] /= a[i * n + i];
    }
    return true;
}

/* The shortest shift (columns) with W shift = b for W (rows, columns). False: none. */
static bool find_shift(float *shift, const float *w, const float *b, size_t rows, size_t columns) {
    double *gram = calloc(rows * rows, sizeof *gram);
    double *y = calloc(rows, sizeof *y);
    bool ok = gram != NULL && y != NULL;
    for (size_t i = 0; ok && i < rows; i++) {
        y[i] = (double)b[i];
        for (size_t k = 0; k <= i; k++) {
            for (size_t j = 0; j < columns; j++) {
                gram[i * rows + k] += (double)w[i * columns + j] * (double)w[k * columns + j];
            }
        }
    }
    ok = ok && solve(gram, y, rows);
    for (size_t j = 0; ok && j < columns; j++) {
        double sum = 0.0;
        for (size_t i = 0; i < rows; i++) {
            sum += (double)w[i * columns + j] * y[i];
        }
        shift[j] = (float)sum;
    }
    for (size_t i = 0; ok && i < rows; i++) {
        double left = (double)b[i];
        for (size_t j = 0; j < columns; j++) {
            left -= (double)w[i * columns + j] * (double)shift[j];
        }
        ok = fabs(left) <= 1e-5 * (1e-2 + fabs((double)b[i]));
    }
    free(gram);
    free(y);
    return ok;
}

/* norm (D): the bias of the last layer norm, into which the projection's bias is folded. */
static enum status fold_bias(float *norm, const struct export_job *job, struct error *err) {
    enum { MAX_ROWS = 4096 };
    const struct safetensors_info *info;
    float *w = NULL;
    float *b = NULL;
    float *shift = NULL;
    enum status s = tensor_list_read(&w, &info, job->file, "text_proj.weight", err);
    THEN(s, tensor_list_read(&b, NULL, job->file, "text_proj.bias", err));
    bool zero = true;
    for (uint64_t i = 0; s == STATUS_OK && i < info->shape[0]; i++) {
        zero = zero && b[i] == 0.0f;
    }
    if (s == STATUS_OK && !zero) {
        shift = calloc((size_t)info->shape[1], sizeof *shift);
        if (shift == NULL || info->shape[0] > info->shape[1] || info->shape[0] > MAX_ROWS ||
            !find_shift(shift, w, b, (size_t)info->shape[0], (size_t)info->shape[1])) {
            s = error_set(err, STATUS_UNSUPPORTED,
                          "open_clip's text projection has no bias, and text_proj.bias (%d rows of "
                          "%d) cannot be folded into the last layer norm; train with "
                          "--projection-bias off, or use --format safetensors",
                          (int)info->shape[0], (int)info->shape[1]);
        }
    }
    for (uint64_t j = 0; s == STATUS_OK && !zero && j < info->shape[1]; j++) {
        norm[j] += shift[j];
    }
    free(w);
    free(b);
    free(shift);
    return s;
}

enum status export_add_bert(struct tensor_list *l,
                            const struct export_job *job,
                            const char *prefix,
                            struct error *err) {
    struct transformer_options o;
    char last[TENSOR_LIST_NAME_BYTES];
    TRY(transformer_preset(&o, checkpoint_model(job->checkpoint)->text_tower, err));
    (void)snprintf(last, sizeof last, "%stransformer.layer.%d.output_layer_norm.bias", text_start,
                   (int)o.layers - 1);
    for (size_t i = 0; i < safetensors_count(job->file); i++) {
        const struct safetensors_info *info = safetensors_at(job->file, i);
        char name[TENSOR_LIST_NAME_BYTES];
        void *values;
        if (strncmp(info->name, text_start, sizeof text_start - 1) != 0) {
            continue;
        }
        bert_name(name, info->name + sizeof text_start - 1);
        if (strcmp(info->name, last) != 0) {
            TRY(tensor_list_copy(l, prefix, name, info, err));
            continue;
        }
        TRY(tensor_list_add(l, &values, prefix, name, SAFETENSORS_F32, info->shape, 1, err));
        TRY(safetensors_read(job->file, info, values, (size_t)info->size_bytes, err));
        TRY(fold_bias(values, job, err));
    }
    const uint64_t types[] = {2, (uint64_t)o.dim};
    void *zeros;
    return tensor_list_add(l, &zeros, prefix, "embeddings.token_type_embeddings.weight",
                           SAFETENSORS_F32, types, 2, err);
}

/* ---- configurations ---- */

/* Fields that both have, with the same names. */
static enum status put_text(struct json_writer *w,
                            const struct export_job *job,
                            const char *type,
                            const char *class,
                            struct error *err) {
    const struct model_config *m = checkpoint_model(job->checkpoint);
    const struct safetensors_info *positions =
        safetensors_find(job->file, "text.embeddings.position_embeddings.weight");
    int32_t pad_id;
    TRY(export_pad_id(job, &pad_id, err));
    FAIL_IF(positions == NULL, err, STATUS_CORRUPT, "%s has no positions",
            checkpoint_path(job->checkpoint));
    json_string(w, "model_type", type);
    json_open_array(w, "architectures");
    json_string(w, NULL, class);
    json_close_array(w);
    json_i64(w, "vocab_size", m->vocab_count);
    json_u64(w, "max_position_embeddings", positions->shape[0]);
    json_i64(w, "pad_token_id", pad_id);
    return STATUS_OK;
}

enum status
export_distilbert_config(struct json_writer *w, const struct export_job *job, struct error *err) {
    struct transformer_options o;
    TRY(transformer_preset(&o, checkpoint_model(job->checkpoint)->text_tower, err));
    TRY(put_text(w, job, "distilbert", "DistilBertModel", err));
    json_i64(w, "n_layers", o.layers);
    json_i64(w, "n_heads", o.heads);
    json_i64(w, "dim", o.dim);
    json_i64(w, "hidden_dim", o.ffn_dim);
    json_string(w, "activation", "gelu");
    json_bool(w, "sinusoidal_pos_embds", false);
    return STATUS_OK;
}

enum status
export_bert_config(struct json_writer *w, const struct export_job *job, struct error *err) {
    struct transformer_options o;
    TRY(transformer_preset(&o, checkpoint_model(job->checkpoint)->text_tower, err));
    TRY(put_text(w, job, "bert", "BertModel", err));
    json_i64(w, "num_hidden_layers", o.layers);
    json_i64(w, "num_attention_heads", o.heads);
    json_i64(w, "hidden_size", o.dim);
    json_i64(w, "intermediate_size", o.ffn_dim);
    json_i64(w, "type_vocab_size", 2);
    json_string(w, "hidden_act", "gelu");
    json_double(w, "layer_norm_eps", 1e-12);
    return STATUS_OK;
}
