/*
 * export_internal: a checkpoint as files that other programs load: weights under their names,
 * config.json, the tokenizer.
 *
 * Threading : single-owner.
 * Ownership : everything is borrowed for the call; a tensor_list owns computed values until its
 *             fini, and borrows the checkpoint's file.
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
    const struct safetensors *file; /* the same file, for its tensors */
    const char *out;                /* directory, exists */
    const struct log_sink *log;     /* what the format cannot hold */
    bool *unreadable;               /* set to true: only ccstream reads what was written */
};

/* Each writes its files to job->out, replacing those of the same names. Return OK, UNSUPPORTED (the
 * format cannot express this model; the message says why), CORRUPT, IO, NOMEM or LIMIT. */

/* model.safetensors with our names, config.json, the tokenizer: any model. */
enum status export_safetensors(const struct export_job *job, struct error *err);

/* The image tower for timm.create_model(NAME, num_classes=0, checkpoint_path=...). */
enum status export_timm(const struct export_job *job, struct error *err);

/* text/ for DistilBertModel, image/ for TimmWrapperModel; in the directory itself the whole model
 * for VisionTextDualEncoderModel where its projections are without bias. */
enum status export_transformers(const struct export_job *job, struct error *err);

/* The whole model for open_clip.create_model('local-dir:DIR'). */
enum status export_open_clip(const struct export_job *job, struct error *err);

/* ---- the tensors of one exported file: copies of a checkpoint's under other names, and values
 * that are computed ---- */

enum { TENSOR_LIST_NAME_BYTES = 192, TENSOR_LIST_MAX = 4096 };

struct tensor_item {
    char name[TENSOR_LIST_NAME_BYTES];
    enum safetensors_dtype dtype;
    uint64_t shape[SAFETENSORS_MAX_DIMS];
    uint32_t dim_count;
    size_t size_bytes;
    const struct safetensors_info *from; /* of `file`, or */
    void *values;                        /* owned */
};

struct tensor_list {
    const struct safetensors *file;
    struct tensor_item *items;
    size_t count;
};

/* Returns OK or NOMEM; `out` is good for fini either way. */
enum status
tensor_list_init(struct tensor_list *out, const struct safetensors *file, struct error *err);
void tensor_list_fini(struct tensor_list *l); /* accepts an all-zero one */

/* The tensor `from` of the file as `prefix` and `name`. Returns OK or LIMIT. */
enum status tensor_list_copy(struct tensor_list *l,
                             const char *prefix,
                             const char *name,
                             const struct safetensors_info *from,
                             struct error *err);

/* A computed tensor; *values is zeroed, to be filled by the caller. Returns OK, NOMEM or LIMIT. */
enum status tensor_list_add(struct tensor_list *l,
                            void **values,
                            const char *prefix,
                            const char *name,
                            enum safetensors_dtype dtype,
                            const uint64_t *shape,
                            uint32_t dim_count,
                            struct error *err);

/* The last tensor that was added under this name, whole; NULL: none. */
struct tensor_item *tensor_list_find(const struct tensor_list *l, const char *name);

/* The values of the checkpoint's tensor `name`, F32, to be freed; *info (may be NULL) describes it.
 * Returns OK, CORRUPT (no such tensor), IO or NOMEM. */
enum status tensor_list_read(float **values,
                             const struct safetensors_info **info,
                             const struct safetensors *file,
                             const char *name,
                             struct error *err);

/* A safetensors file as PyTorch's programs write it. Returns OK, IO, CORRUPT, NOMEM or LIMIT. */
enum status tensor_list_write(const struct tensor_list *l, const char *path, struct error *err);

/* ---- what several formats have ---- */

/* The id that fills a row after its tokens. Returns OK or what tokenizer_open returns. */
enum status export_pad_id(const struct export_job *job, int32_t *out, struct error *err);

int32_t export_feature_count(const struct model_config *m); /* of the image tower */

/* The towers' tensors under `prefix`. Those of the image tower: timm's, with the counters of batch
 * norm that its modules have. Return OK, NOMEM, LIMIT, or what reading the checkpoint returns. */
enum status export_add_image(struct tensor_list *l,
                             const struct export_job *job,
                             const char *prefix,
                             struct error *err);
enum status export_add_distilbert(struct tensor_list *l,
                                  const struct export_job *job,
                                  const char *prefix,
                                  struct error *err);
/* As BertModel: DistilBERT's architecture with a table of token types, here of zeros, under other
 * names. text_proj.bias becomes a part of the last layer norm, so that a projection without bias
 * gives the same embeddings; UNSUPPORTED where it cannot. */
enum status export_add_bert(struct tensor_list *l,
                            const struct export_job *job,
                            const char *prefix,
                            struct error *err);

/* Members of the open object: the configuration of the text tower as either model, and of the image
 * tower as timm and TimmWrapperModel have it. */
enum status
export_distilbert_config(struct json_writer *w, const struct export_job *job, struct error *err);
enum status
export_bert_config(struct json_writer *w, const struct export_job *job, struct error *err);
void export_timm_config(struct json_writer *w, const struct export_job *job);

#endif
