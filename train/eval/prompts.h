/*
 * prompts: encodes texts that are not in a dataset, such as class names in templates, and
 * classifies a dataset's images with them (zero-shot).
 *
 * Threading : as the model's device.
 * Ownership : everything is borrowed for the call; a text_list owns its lines until its fini.
 */
#ifndef TRAIN_EVAL_PROMPTS_H
#define TRAIN_EVAL_PROMPTS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/file_io.h"
#include "formats/base/status.h"
#include "train/eval/classify.h"
#include "train/eval/embed.h"
#include "train/model/dual_encoder.h"

enum {
    TEXT_LIST_MAX_LINES = 1 << 20,
    TEXT_LIST_MAX_BYTES = 64 << 20,
    PROMPT_MAX_BYTES = 4096, /* of a template with a name */
};

/* Lines of a text file, in order. */
struct text_list {
    char **lines;
    size_t count;
    char *text; /* memory of the lines */
};

/* Blank lines and lines that begin with # are skipped; white space around lines is removed. Returns
 * OK, NOTFOUND, IO, NOMEM, LIMIT or CORRUPT (not UTF-8, or no line). On failure *out is empty.
 */
enum status text_list_read(struct text_list *out,
                           const struct file_system *fs,
                           const char *path,
                           struct error *err);

/* The same for a text in memory (copied); `name` is for messages. */
enum status text_list_parse(struct text_list *out,
                            const char *name,
                            const char *text,
                            size_t size_bytes,
                            struct error *err);

/* The same, but every line is kept unchanged, also an empty one; text after the last newline is a
 * line unless it is empty. */
enum status text_list_lines(struct text_list *out,
                            const char *name,
                            const char *text,
                            size_t size_bytes,
                            struct error *err);
void text_list_fini(struct text_list *l); /* accepts an all-zero one */

/* The default prompt templates, one per line; {} stands for the name. */
extern const char PROMPT_TEMPLATES[];

/* out (count, E): normalised embeddings of the texts, which are not cleaned. Returns OK, NOMEM,
 * CORRUPT (the tokenizer), LIMIT or what the device returns.
 */
enum status prompts_encode(float *out,
                           struct dual_encoder *model,
                           struct device *dev,
                           const void *tokenizer,
                           size_t tokenizer_size_bytes,
                           char *const *texts,
                           size_t count,
                           struct error *err);

/* vectors (names.count, E): per name the mean of its templates' embeddings, normalised (Radford et
 * al., ICML 2021, section 3.1.4). Without cleaning, as in NUCLR's code. Returns as prompts_encode;
 * USAGE for a template without {}. */
enum status prompts_class_vectors(float *vectors,
                                  struct dual_encoder *model,
                                  struct device *dev,
                                  const void *tokenizer,
                                  size_t tokenizer_size_bytes,
                                  const struct text_list *names,
                                  const struct text_list *templates,
                                  struct error *err);

/* ---- zero-shot classification ---- */

/* Copies the class names of a dataset; none if its labels have no names. */
enum status zeroshot_classes(struct text_list *out, const char *dataset_dir, struct error *err);

/* Replaces class names by the names for prompts: those in the file at `path`, or if it is NULL the
 * same names with _ replaced by spaces. Changes `own` in place, which may then borrow from `file`;
 * the caller frees both. `data` is for messages. Returns OK, USAGE or as text_list_read.
 */
enum status zeroshot_name_classes(struct text_list *own,
                                  struct text_list *file,
                                  const char *path,
                                  const char *data,
                                  struct error *err);

/* The prompt templates in a file; NULL: a few built-in ones. */
enum status zeroshot_read_templates(struct text_list *out, const char *path, struct error *err);

/* Classifies every image of the dataset, encoded with `opt`, by the nearest class vector
 * (prompts_class_vectors). On OK the caller frees *out (classify_result_fini). Returns OK, USAGE
 * (no labelled image, a template without {}), NOMEM, INTERRUPTED, or as loader and device.
 */
enum status zeroshot_evaluate(struct classify_result *out,
                              struct dual_encoder *model,
                              struct device *dev,
                              const char *dataset_dir,
                              const struct text_list *names,
                              const struct text_list *templates,
                              const struct embed_options *opt,
                              struct error *err);

#endif
