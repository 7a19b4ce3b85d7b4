/*
 * export: a checkpoint as files that other programs load: weights under their names, config.json,
 * the tokenizer.
 *
 * Threading : single-owner.
 * Ownership : everything is borrowed for the call.
 */
#ifndef TOOLS_CCSTREAM_EXPORT_EXPORT_H
#define TOOLS_CCSTREAM_EXPORT_EXPORT_H

#include "formats/base/log.h"
#include "formats/base/status.h"
#include "formats/tensors/safetensors.h"
#include "train/run/checkpoint.h"

struct export_job {
    const struct checkpoint *checkpoint;
    const struct safetensors *file; /* the same file, for its tensors */
    const char *out;                /* directory, exists */
    const struct log_sink *log;     /* what the format cannot hold */
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

#endif
