/*
 * export_internal: writes a checkpoint as files for other programs: weights with their names,
 * config.json, the tokenizer.
 *
 * Threading : single-owner.
 * Ownership : everything is borrowed for the call; a tensor_list owns computed values until
 *             its fini, and borrows the checkpoint's file.
 */
#ifndef TOOLS_CCSTREAM_EXPORT_EXPORT_INTERNAL_H
#define TOOLS_CCSTREAM_EXPORT_EXPORT_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/json_writer.h"
#include "formats/base/log.h"
#include "formats/base/status.h"
#include "formats/tensors/safetensors.h"
#include "train/run/checkpoint.h"

struct export_job {
    const struct checkpoint *checkpoint;
    const struct safetensors *file; /* its file, for tensors */
    const char *out;                /* directory, exists */
    const struct log_sink *log;     /* receives what the format cannot store */
    bool *unreadable;               /* set to true if only ccstream can read the files */
};

/* Each writes its files to job->out, replacing existing ones. Return OK, UNSUPPORTED (the format
 * does not support this model; the message has the reason), CORRUPT, IO, NOMEM or LIMIT. */

/* Any model: model.safetensors with ccstream's names, config.json, the tokenizer. */
enum status export_safetensors(const struct export_job *job, struct error *err);

/* The image tower for timm.create_model(NAME, num_classes=0, checkpoint_path=...). */
enum status export_timm(const struct export_job *job, struct error *err);

/* text/ for DistilBertModel, image/ for TimmWrapperModel; if the projections have no bias, also the
 * whole model for VisionTextDualEncoderModel, in the directory itself. */
enum status export_transformers(const struct export_job *job, struct error *err);

/* The whole model for open_clip.create_model('local-dir:DIR'). */
enum status export_open_clip(const struct export_job *job, struct error *err);

/* ---- the tensors of an exported file: renamed tensors of a checkpoint, and computed ones ---- */

enum { TENSOR_LIST_NAME_BYTES = 192, TENSOR_LIST_MAX = 4096 };

struct tensor_item {
    char name[TENSOR_LIST_NAME_BYTES];
    enum safetensors_dtype dtype;
    uint64_t shape[SAFETENSORS_MAX_DIMS];
    uint32_t dim_count;
    size_t size_bytes;
    const struct safetensors_info *from; /* in `file`, or */
    void *values;                        /* owned */
};

struct tensor_list {
    const struct safetensors *file;
    struct tensor_item *items;
    size_t count;
};

/* Returns OK or NOMEM. Call fini even after a failure. */
enum status
tensor_list_init(struct tensor_list *out, const struct safetensors *file, struct error *err);
void tensor_list_fini(struct tensor_list *l); /* accepts an all-zero one */

/* Adds the file's tensor `from` with the name `prefix` + `name`. Returns OK or LIMIT. */
enum status tensor_list_copy(struct tensor_list *l,
                             const char *prefix,
                             const char *name,
                             const struct safetensors_info *from,
                             struct error *err);

/* Adds a computed tensor; *values is zeroed, for the caller to fill. Returns OK, NOMEM or LIMIT. */
enum status tensor_list_add(struct tensor_list *l,
                            void **values,
                            const char *prefix,
                            const char *name,
                            enum safetensors_dtype dtype,
                            const uint64_t *shape,
                            uint32_t dim_count,
                            struct error *err);

/* The last added tensor with this complete name; NULL: none. */
struct tensor_item *tensor_list_find(const struct tensor_list *l, const char *name);

/* Reads the checkpoint's tensor `name`, F32; the caller frees *values. *info (info may be NULL)
 * describes it. Returns OK, CORRUPT (no such tensor), IO or NOMEM. */
enum status tensor_list_read(float **values,
                             const struct safetensors_info **info,
                             const struct safetensors *file,
                             const char *name,
                             struct error *err);

/* Writes a safetensors file as PyTorch does. Returns OK, IO, CORRUPT, NOMEM or LIMIT. */
enum status tensor_list_write(const struct tensor_list *l, const char *path, struct error *err);

/* ---- shared by formats ---- */

/* The padding token's id. Returns OK or what tokenizer_open returns. */
enum status export_pad_id(const struct export_job *job, int32_t *out, struct error *err);

int32_t export_feature_count(const struct model_config *m); /* of the image tower */

/* Add a tower's tensors with `prefix`. The image tower's have timm's names, with batch norm's
 * counters (num_batches_tracked). Return OK, NOMEM, LIMIT, or as reading the checkpoint. */
enum status export_add_image(struct tensor_list *l,
                             const struct export_job *job,
                             const char *prefix,
                             struct error *err);
enum status export_add_distilbert(struct tensor_list *l,
                                  const struct export_job *job,
                                  const char *prefix,
                                  struct error *err);
/* As BertModel: DistilBERT's architecture with other names and token type embeddings, here zeros.
 * text_proj.bias is folded into the last layer norm, so that a projection without bias gives the
 * same embeddings; UNSUPPORTED if that is impossible. */
enum status export_add_bert(struct tensor_list *l,
                            const struct export_job *job,
                            const char *prefix,
                            struct error *err);

/* Write fields of the open object: the text tower's configuration as either model, and the image
 * tower's as timm and TimmWrapperModel. */
enum status
export_distilbert_config(struct json_writer *w, const struct export_job *job, struct error *err);
enum status
export_bert_config(struct json_writer *w, const struct export_job *job, struct error *err);
void export_timm_config(struct json_writer *w, const struct export_job *job);

#endif
