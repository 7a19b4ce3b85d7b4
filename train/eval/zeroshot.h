/*
 * zeroshot: classifies the images of a dataset by its class names in prompts.
 *
 * Threading : as the model's device.
 * Ownership : lists and results belong to the caller.
 */
#ifndef TRAIN_EVAL_ZEROSHOT_H
#define TRAIN_EVAL_ZEROSHOT_H

#include "train/eval/classify.h"
#include "train/eval/embed.h"
#include "train/eval/prompts.h"

/* Copies the class names of a dataset; none if its labels have no names. */
enum status zeroshot_classes(struct text_list *out, const char *dataset_dir, struct error *err);

/* Replaces class names by the names for prompts: those in the file at `path`, or without a file the
 * same names with spaces for _. Changes `own` in place, which may then borrow from `file`; the
 * caller frees both. `data` is for messages. Returns OK, USAGE or what text_list_read returns. */
enum status zeroshot_name_classes(struct text_list *own,
                                  struct text_list *file,
                                  const char *path,
                                  const char *data,
                                  struct error *err);

/* The prompt templates in a file; NULL: a few built-in ones. */
enum status zeroshot_read_templates(struct text_list *out, const char *path, struct error *err);

/* Every image of the dataset, brought to the model's size as `opt` says, and the class whose vector
 * (prompts_class_vectors) is nearest. Zeroes *out first; on OK it is to be freed. Returns OK, USAGE
 * (no image with a label, a template without {}), NOMEM, INTERRUPTED, or what loader and device
 * return. */
enum status zeroshot_evaluate(struct classify_result *out,
                              struct dual_encoder *model,
                              struct device *dev,
                              const char *dataset_dir,
                              const struct text_list *names,
                              const struct text_list *templates,
                              const struct embed_options *opt,
                              struct error *err);

#endif
