/*
 * checkpoint_save: metadata, then tensors in a fixed order: the table's values, the optimiser's two
 * moments, the columns of the sample state, the tokenizer.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tensors/safetensors.h"
#include "train/run/checkpoint_internal.h"

static enum status
put_u64(struct safetensors_writer *w, const char *key, uint64_t value, struct error *err) {
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    return safetensors_writer_metadata(w, key, text, err);
}

static enum status
put_double(struct safetensors_writer *w, const char *key, double value, struct error *err) {
    char text[40];
    (void)snprintf(text, sizeof text, "%.17g", value);
    return safetensors_writer_metadata(w, key, text, err);
}

static enum status
put_hash(struct safetensors_writer *w, const char *key, uint64_t value, struct error *err) {
    char text[17];
    (void)snprintf(text, sizeof text, "%016" PRIx64, value);
    return safetensors_writer_metadata(w, key, text, err);
}

/* Nothing for one dataset: its fingerprint is enough. */
static enum status
put_sources(struct safetensors_writer *w, const struct train_position *p, struct error *err) {
    if (p->source_count < 2) {
        return STATUS_OK;
    }
    TRY(put_u64(w, KEY_SOURCES, p->source_count, err));
    TRY(put_hash(w, KEY_MIX, p->mix, err));
    for (uint64_t i = 0; i < p->source_count; i++) {
        char key[CHECKPOINT_NAME_BYTES];
        checkpoint_source_key(key, i, "fingerprint");
        TRY(put_hash(w, key, p->sources[i].fingerprint, err));
        checkpoint_source_key(key, i, "id_offset");
        TRY(put_u64(w, key, p->sources[i].id_offset, err));
    }
    return STATUS_OK;
}

static enum status
put_text_model(struct safetensors_writer *w, const struct model_config *m, struct error *err) {
    TRY(safetensors_writer_metadata(w, KEY_TEXT_TOWER, m->text_tower, err));
    TRY(put_u64(w, KEY_MAX_TOKENS, (uint64_t)m->max_tokens, err));
    TRY(put_u64(w, KEY_VOCAB, (uint64_t)m->vocab_count, err));
    TRY(put_u64(w, KEY_CLEAN, m->clean_captions ? 1 : 0, err));
    return safetensors_writer_metadata(
        w, KEY_POOL, m->text_pool == TRANSFORMER_POOL_MEAN ? "mean" : "first", err);
}

static enum status
put_metadata(struct safetensors_writer *w, const struct checkpoint_content *c, struct error *err) {
    const struct model_config *m = c->model;
    const struct train_position *p = c->position;
    TRY(put_u64(w, KEY_VERSION, CHECKPOINT_VERSION, err));
    TRY(safetensors_writer_metadata(w, KEY_IMAGE_TOWER, m->image_tower, err));
    if (m->hidden_dim > 0) {
        TRY(put_u64(w, KEY_HIDDEN, (uint64_t)m->hidden_dim, err));
    } else {
        TRY(put_text_model(w, m, err));
    }
    TRY(safetensors_writer_metadata(w, KEY_STEM, m->small_stem ? "small" : "standard", err));
    TRY(put_u64(w, KEY_IMAGE_SIZE, (uint64_t)m->image_size_px, err));
    TRY(put_u64(w, KEY_EMBED, (uint64_t)m->embed_dim, err));
    TRY(safetensors_writer_metadata(w, KEY_NORM, IMAGE_NORMS[m->image_norm].name, err));
    TRY(put_u64(w, KEY_STEP, p->step, err));
    TRY(put_u64(w, KEY_SEED, p->seed, err));
    TRY(put_u64(w, KEY_EPOCH, p->epoch, err));
    TRY(put_u64(w, KEY_BATCH, p->batch, err));
    TRY(put_hash(w, KEY_FINGERPRINT, p->fingerprint, err));
    TRY(put_u64(w, KEY_SAMPLES, p->samples_count, err));
    TRY(put_u64(w, KEY_ID_SPACE, p->id_space_count, err));
    TRY(put_sources(w, p, err));
    TRY(safetensors_writer_metadata(w, KEY_LOSS, c->loss_name, err));
    TRY(put_double(w, KEY_TAU, c->tau, err));
    for (int32_t i = 0; i < c->scalar_count; i++) {
        char key[128];
        (void)snprintf(key, sizeof key, KEY_SCALAR "%s", c->scalars[i].name);
        TRY(put_double(w, key, *c->scalars[i].value, err));
    }
    return STATUS_OK;
}

static enum status declare_params(struct safetensors_writer *w,
                                  const struct params *p,
                                  enum param_slot slot,
                                  struct error *err) {
    for (int32_t i = 0; i < params_count(p); i++) {
        const struct param_info info = params_info(p, i);
        if (slot != PARAM_VALUE && info.kind == PARAM_BUFFER) {
            continue;
        }
        char name[CHECKPOINT_NAME_BYTES];
        uint64_t shape[TENSOR_MAX_DIMS];
        checkpoint_param_name(name, p, &info, slot);
        for (int32_t d = 0; d < info.ndim; d++) {
            shape[d] = (uint64_t)info.shape[d];
        }
        TRY(safetensors_writer_declare(w, name, SAFETENSORS_F32, shape, (uint32_t)info.ndim, err));
    }
    return STATUS_OK;
}

static enum status
declare_all(struct safetensors_writer *w, const struct checkpoint_content *c, struct error *err) {
    for (size_t i = 0; i < checkpoint_slot_count(c->params); i++) {
        TRY(declare_params(w, c->params, checkpoint_slots[i], err));
    }
    const uint64_t ids = sample_state_id_space(c->state);
    for (int32_t i = 0; i < sample_state_count(c->state); i++) {
        char name[CHECKPOINT_NAME_BYTES];
        (void)snprintf(name, sizeof name, TENSOR_STATE "%s", sample_state_name(c->state, i));
        TRY(safetensors_writer_declare(w, name, checkpoint_column_dtype(c->state, i), &ids, 1,
                                       err));
    }
    if (c->tokenizer != NULL) {
        const uint64_t size = c->tokenizer_size_bytes;
        TRY(safetensors_writer_declare(w, TENSOR_TOKENIZER, SAFETENSORS_U8, &size, 1, err));
    }
    return STATUS_OK;
}

static enum status write_params(struct safetensors_writer *w,
                                const struct params *p,
                                enum param_slot slot,
                                float *host,
                                struct error *err) {
    for (int32_t i = 0; i < params_count(p); i++) {
        const struct param_info info = params_info(p, i);
        if (slot != PARAM_VALUE && info.kind == PARAM_BUFFER) {
            continue;
        }
        const size_t size_bytes = (size_t)info.count * sizeof *host;
        TRY(params_read(p, i, slot, host, size_bytes, err));
        TRY(safetensors_writer_data(w, host, size_bytes, err));
    }
    return STATUS_OK;
}

static enum status write_all(struct safetensors_writer *w,
                             const struct checkpoint_content *c,
                             float *host,
                             struct error *err) {
    for (size_t i = 0; i < checkpoint_slot_count(c->params); i++) {
        TRY(write_params(w, c->params, checkpoint_slots[i], host, err));
    }
    for (int32_t i = 0; i < sample_state_count(c->state); i++) {
        size_t column_bytes;
        const void *values = sample_state_values(c->state, i, &column_bytes);
        TRY(safetensors_writer_data(w, values, column_bytes, err));
    }
    if (c->tokenizer != NULL) {
        TRY(safetensors_writer_data(w, c->tokenizer, c->tokenizer_size_bytes, err));
    }
    return STATUS_OK;
}

enum status checkpoint_save(const struct file_system *fs,
                            const char *path,
                            const struct checkpoint_content *content,
                            struct error *err) {
    REQUIRE(fs != NULL && path != NULL && content != NULL &&
            params_dtype(content->params) == DTYPE_F32);
    float *host = checkpoint_largest_tensor(content->params);
    if (host == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory to write %s", path);
    }
    struct safetensors_writer *w = NULL;
    enum status s = safetensors_writer_create(&w, fs, path, err);
    if (s == STATUS_OK) {
        s = put_metadata(w, content, err);
    }
    if (s == STATUS_OK) {
        s = declare_all(w, content, err);
    }
    if (s == STATUS_OK) {
        s = write_all(w, content, host, err);
    }
    if (s == STATUS_OK) {
        s = safetensors_writer_finish(w, err);
    }
    safetensors_writer_destroy(w);
    free(host);
    return s;
}
