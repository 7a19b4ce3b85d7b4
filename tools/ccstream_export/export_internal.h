/*
 * export_internal: the parts that several formats have.
 */
#ifndef TOOLS_CCSTREAM_EXPORT_EXPORT_INTERNAL_H
#define TOOLS_CCSTREAM_EXPORT_EXPORT_INTERNAL_H

#include "formats/base/json_writer.h"
#include "tools/ccstream_export/export.h"
#include "tools/ccstream_export/tensor_list.h"

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
