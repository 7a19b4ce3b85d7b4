/*
 * checkpoint_save: metadata, then tensors in a fixed order: the table's values, the optimiser's
 * moments, the columns of per-sample state, cached features, the tokenizer. Rank 0 writes; all
 * ranks take part in gathering the columns, even after a write has failed.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/tensors/safetensors.h"
#include "train/comm/comm.h"
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
    if (p->columns != 0) {
        TRY(put_hash(w, KEY_COLUMNS, p->columns, err));
    }
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
    return safetensors_writer_metadata(w, KEY_POOL, TRANSFORMER_POOL_NAMES[m->text_pool], err);
}

static enum status
put_model(struct safetensors_writer *w, const struct model_config *m, struct error *err) {
    const bool texts_alone = m->image_tower[0] == '\0';
    TRY(texts_alone ? STATUS_OK
                    : safetensors_writer_metadata(w, KEY_IMAGE_TOWER, m->image_tower, err));
    TRY(m->hidden_dim > 0 ? put_u64(w, KEY_HIDDEN, (uint64_t)m->hidden_dim, err) : STATUS_OK);
    TRY(m->open_clip[0] == '\0' ? STATUS_OK
                                : safetensors_writer_metadata(w, KEY_OPEN_CLIP, m->open_clip, err));
    TRY(m->raw ? put_u64(w, KEY_RAW, 1, err) : STATUS_OK);
    TRY(m->hidden_dim > 0 ? STATUS_OK : put_text_model(w, m, err));
    if (texts_alone) {
        return put_u64(w, KEY_EMBED, (uint64_t)m->embed_dim, err);
    }
    TRY(safetensors_writer_metadata(w, KEY_STEM, m->small_stem ? "small" : "standard", err));
    if (m->norm_layers != RESNET_NORM_BATCH) {
        TRY(safetensors_writer_metadata(w, KEY_NORM_LAYERS, RESNET_NORM_NAMES[m->norm_layers],
                                        err));
    }
    if (m->resize != OPEN_CLIP_RESIZE_AUTO) {
        TRY(safetensors_writer_metadata(w, KEY_RESIZE, OPEN_CLIP_RESIZE_NAMES[m->resize], err));
    }
    TRY(put_u64(w, KEY_IMAGE_SIZE, (uint64_t)m->image_size_px, err));
    TRY(put_u64(w, KEY_EMBED, (uint64_t)m->embed_dim, err));
    return safetensors_writer_metadata(w, KEY_NORM, IMAGE_NORMS[m->image_norm].name, err);
}

static enum status
put_metadata(struct safetensors_writer *w, const struct checkpoint_content *c, struct error *err) {
    const struct train_position *p = c->position;
    const bool has_model = c->model != NULL;
    TRY(put_u64(w, KEY_VERSION, c->captions != NULL ? 3 : 2, err));
    TRY(has_model ? put_model(w, c->model, err) : STATUS_OK);
    TRY(put_u64(w, KEY_STEP, p->step, err));
    if (has_model) {
        TRY(put_u64(w, KEY_SEED, p->seed, err));
        TRY(put_u64(w, KEY_EPOCH, p->epoch, err));
        TRY(put_u64(w, KEY_BATCH, p->batch, err));
    }
    TRY(put_hash(w, KEY_FINGERPRINT, p->fingerprint, err));
    TRY(put_u64(w, KEY_SAMPLES, p->samples_count, err));
    TRY(put_u64(w, KEY_ID_SPACE, p->id_space_count, err));
    TRY(put_sources(w, p, err));
    TRY(safetensors_writer_metadata(w, KEY_LOSS, c->loss_name, err));
    TRY(put_double(w, KEY_TAU, c->tau, err));
    if (c->captions != NULL && c->caption_columns != NULL && c->caption_columns[0] != '\0') {
        TRY(safetensors_writer_metadata(w, KEY_CAPTIONS, c->caption_columns, err));
    }
    for (int32_t i = 0; i < c->scalar_count; i++) {
        char key[128];
        (void)snprintf(key, sizeof key, KEY_SCALAR "%s", c->scalars[i].name);
        FAIL_IF(!isfinite(*c->scalars[i].value), err, STATUS_CORRUPT, "%s is %g; training diverged",
                key, *c->scalars[i].value);
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
        if (!checkpoint_has_slot(p, i, slot)) {
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

/* Does nothing without a cache. */
static enum status declare_cache(struct safetensors_writer *w,
                                 const char *name,
                                 const struct feature_cache *cache,
                                 struct error *err) {
    if (cache == NULL) {
        return STATUS_OK;
    }
    const struct feature_cache_options *o = feature_cache_shape(cache);
    const uint64_t shape[2] = {o->id_count, (uint64_t)o->dim};
    return safetensors_writer_declare(w, name, SAFETENSORS_F32, shape, 2, err);
}

static enum status write_cache(struct safetensors_writer *w,
                               const char *path,
                               const char *name,
                               const struct feature_cache *cache,
                               struct error *err) {
    if (cache == NULL) {
        return STATUS_OK;
    }
    const struct feature_cache_options *o = feature_cache_shape(cache);
    const uint64_t count = o->id_count * (uint64_t)o->dim;
    TRY(checkpoint_check_numbers(path, name, feature_cache_rows(cache), 0, count, true, err));
    return safetensors_writer_data(w, feature_cache_rows(cache), (size_t)count * sizeof(float),
                                   err);
}

/* Does nothing without captions (NULL). */
static enum status
declare_columns(struct safetensors_writer *w, const struct sample_state *state, struct error *err) {
    const uint64_t ids = state != NULL ? sample_state_id_space(state) : 0;
    for (int32_t i = 0; state != NULL && i < sample_state_count(state); i++) {
        char name[CHECKPOINT_NAME_BYTES];
        (void)snprintf(name, sizeof name, TENSOR_STATE "%s", sample_state_name(state, i));
        TRY(safetensors_writer_declare(w, name, checkpoint_column_dtype(state, i), &ids, 1, err));
    }
    return STATUS_OK;
}

static enum status write_captions(struct safetensors_writer *w,
                                  const struct checkpoint_content *c,
                                  struct error *err) {
    for (uint64_t id = 0; c->captions != NULL && id < c->position->id_space_count; id++) {
        const uint32_t count = (uint32_t)(c->first_caption[id + 1] - c->first_caption[id]);
        TRY(safetensors_writer_data(w, &count, sizeof count, err));
    }
    return STATUS_OK;
}

static enum status
declare_all(struct safetensors_writer *w, const struct checkpoint_content *c, struct error *err) {
    for (size_t i = 0; c->params != NULL && i < CHECKPOINT_SLOT_COUNT; i++) {
        TRY(declare_params(w, c->params, checkpoint_slots[i], err));
    }
    TRY(declare_columns(w, c->state, err));
    TRY(declare_columns(w, c->captions, err));
    TRY(c->captions != NULL ? safetensors_writer_declare(w, TENSOR_CAPTIONS, SAFETENSORS_U32,
                                                         &c->position->id_space_count, 1, err)
                            : STATUS_OK);
    TRY(declare_cache(w, TENSOR_IMAGE_CACHE, c->image_cache, err));
    TRY(declare_cache(w, TENSOR_TEXT_CACHE, c->text_cache, err));
    if (c->tokenizer != NULL) {
        const uint64_t size = c->tokenizer_size_bytes;
        TRY(safetensors_writer_declare(w, TENSOR_TOKENIZER, SAFETENSORS_U8, &size, 1, err));
    }
    return STATUS_OK;
}

static enum status write_slot(struct safetensors_writer *w,
                              const char *path,
                              const struct params *p,
                              enum param_slot slot,
                              float *host,
                              struct error *err) {
    for (int32_t i = 0; i < params_count(p); i++) {
        const struct param_info info = params_info(p, i);
        if (!checkpoint_has_slot(p, i, slot)) {
            continue;
        }
        char name[CHECKPOINT_NAME_BYTES];
        checkpoint_param_name(name, p, &info, slot);
        const int64_t piece = params_piece_count(p, i);
        for (int64_t at = 0; at < info.count; at += piece) {
            const int64_t count = info.count - at < piece ? info.count - at : piece;
            TRY(params_read_piece(p, i, slot, at, count, host, err));
            TRY(checkpoint_check_numbers(path, name, host, (uint64_t)at, (uint64_t)count, false,
                                         err));
            TRY(safetensors_writer_data(w, host, (size_t)count * sizeof *host, err));
        }
    }
    return STATUS_OK;
}

static enum status write_params(struct safetensors_writer *w,
                                const char *path,
                                const struct params *p,
                                struct error *err) {
    enum status s = STATUS_OK;
    int64_t longest = 1;
    for (int32_t i = 0; i < params_count(p); i++) {
        const int64_t count = params_piece_count(p, i);
        longest = count > longest ? count : longest;
    }
    float *host = malloc((size_t)longest * sizeof *host);
    TRY_MEMORY(host != NULL, err, "no memory to write the model");
    for (size_t i = 0; i < CHECKPOINT_SLOT_COUNT && s == STATUS_OK; i++) {
        s = write_slot(w, path, p, checkpoint_slots[i], host, err);
    }
    free(host);
    return s;
}

/* Everything before the columns. */
static enum status begin(struct safetensors_writer **w,
                         const struct file_system *fs,
                         const char *path,
                         const struct checkpoint_content *c,
                         struct error *err) {
    TRY(safetensors_writer_create(w, fs, path, err));
    TRY(put_metadata(*w, c, err));
    TRY(declare_all(*w, c, err));
    return c->params != NULL ? write_params(*w, path, c->params, err) : STATUS_OK;
}

/* w: NULL on ranks that do not write. *written: the writer's first failure, after which pieces are
 * gathered but not written. Returns what sample_state_piece returns. */
static enum status pass_columns(struct safetensors_writer *w,
                                const char *path,
                                enum status *written,
                                const struct sample_state *state,
                                struct sample_state_summary *summaries,
                                void *room,
                                struct error *err) {
    for (int32_t i = 0; i < sample_state_count(state); i++) {
        const enum sample_state_kind kind = sample_state_kind(state, i);
        const size_t entry_bytes = safetensors_dtype_bytes(checkpoint_column_dtype(state, i));
        const bool unset_ok = isnan(sample_state_initial(state, i));
        char name[CHECKPOINT_NAME_BYTES];
        (void)snprintf(name, sizeof name, TENSOR_STATE "%s", sample_state_name(state, i));
        struct sample_state_summary sum = {0};
        uint64_t count = 0;
        for (uint64_t id = 0; id < sample_state_id_space(state); id += count) {
            const void *values = NULL;
            TRY(sample_state_piece(state, i, id, room, &values, &count, err));
            if (w != NULL && kind == SAMPLE_STATE_F32) {
                THEN(*written,
                     checkpoint_check_numbers(path, name, values, id, count, unset_ok, err));
            }
            if (w != NULL) {
                THEN(*written,
                     safetensors_writer_data(w, values, (size_t)count * entry_bytes, err));
            }
            if (summaries != NULL) {
                sample_state_summarise(&sum, values, kind, count);
                summaries[i] = sum;
            }
        }
    }
    return STATUS_OK;
}

static enum status end(struct safetensors_writer *w,
                       const char *path,
                       const struct checkpoint_content *c,
                       struct error *err) {
    TRY(write_captions(w, c, err));
    TRY(write_cache(w, path, TENSOR_IMAGE_CACHE, c->image_cache, err));
    TRY(write_cache(w, path, TENSOR_TEXT_CACHE, c->text_cache, err));
    if (c->tokenizer != NULL) {
        TRY(safetensors_writer_data(w, c->tokenizer, c->tokenizer_size_bytes, err));
    }
    return safetensors_writer_finish(w, err);
}

/* Makes the result equal on all ranks. */
static enum status agree(struct comm *comm, enum status own, struct error *err) {
    return comm != NULL ? comm_agree(comm, own, err) : own;
}

enum status checkpoint_save(const struct file_system *fs,
                            const char *path,
                            const struct checkpoint_content *content,
                            struct sample_state_summary *summaries,
                            struct error *err) {
    REQUIRE(fs != NULL && path != NULL && content != NULL);
    REQUIRE((content->model == NULL) == (content->params == NULL));
    REQUIRE(content->params == NULL || params_dtype(content->params) == DTYPE_F32);
    struct comm *comm = sample_state_comm(content->state);
    const bool writes = comm == NULL || comm_rank(comm) == 0;
    struct safetensors_writer *w = NULL;
    enum status s = STATUS_OK;
    const struct sample_state *const longest =
        content->captions != NULL ? content->captions : content->state;
    void *room = malloc(sample_state_piece_bytes(longest) + 1);
    if (room == NULL) {
        s = error_set(err, STATUS_NOMEM, "no memory to write %s", path);
    } else if (writes) {
        s = begin(&w, fs, path, content, err);
    }
    s = agree(comm, s, err);
    if (s == STATUS_OK) {
        enum status written = STATUS_OK;
        s = pass_columns(w, path, &written, content->state, summaries, room, err);
        if (s == STATUS_OK && content->captions != NULL) {
            s = pass_columns(w, path, &written, content->captions,
                             summaries != NULL ? summaries + sample_state_count(content->state)
                                               : NULL,
                             room, err);
        }
        if (s == STATUS_OK && writes && written == STATUS_OK) {
            written = end(w, path, content, err);
        }
        THEN(s, agree(comm, written, err));
    }
    safetensors_writer_destroy(w);
    free(room);
    return s;
}
