/*
 * dataset_tokenizer: the tokenizer in a dataset's directory, and its record in the manifest.
 *
 * Threading : functions over a directory; one writer at a time.
 * Ownership : opened tokenizers are the caller's.
 * Untrusted : the files.
 */
#ifndef FORMATS_DATASET_DATASET_TOKENIZER_H
#define FORMATS_DATASET_DATASET_TOKENIZER_H

#include <stdbool.h>

#include "formats/base/file_io.h"
#include "formats/dataset/manifest.h"
#include "formats/tokenizer/tokenizer.h"

#define DATASET_TOKENIZER_NAME "tokenizer.model"

/* Opens the tokenizer recorded in the manifest, or DIRECTORY/tokenizer.model if none is recorded;
 * *out is NULL if there is neither. Returns OK, MISMATCH (the file is not the recorded one),
 * NOTFOUND (the recorded file is missing), IO, or what tokenizer_open returns. */
enum status dataset_tokenizer_open(struct tokenizer **out,
                                   const char *directory,
                                   const struct manifest *m,
                                   const struct file_system *fs,
                                   struct error *err);

/* Writes the tokenizer's bytes to DIRECTORY/tokenizer.model and records it in the manifest there.
 * If the process is killed at any moment, the directory stays a dataset whose record, if any, is
 * correct. The same tokenizer, if already recorded, is kept; another one is replaced only with
 * `overwrite`. Returns OK, EXISTS, or what reading and writing the files return. */
enum status dataset_tokenizer_store(const struct tokenizer *t,
                                    const char *directory,
                                    const struct file_system *fs,
                                    bool overwrite,
                                    struct error *err);

#endif
