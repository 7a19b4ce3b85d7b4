/*
 * ccstream_eval_internal: the commands of ccstream-eval.
 */
#ifndef TOOLS_CCSTREAM_EVAL_CCSTREAM_EVAL_INTERNAL_H
#define TOOLS_CCSTREAM_EVAL_CCSTREAM_EVAL_INTERNAL_H

#include "formats/columns/columns.h"
#include "tools/inspect/eval_common.h"
#include "tools/inspect/samples.h"

int ccstream_eval_retrieval(int argc, char **argv);
int ccstream_eval_zeroshot(int argc, char **argv);
int ccstream_eval_linear(int argc, char **argv);
int ccstream_eval_knn(int argc, char **argv);
int ccstream_eval_mean(int argc, char **argv);
int ccstream_eval_embed(int argc, char **argv);
int ccstream_eval_score(int argc, char **argv);
int ccstream_eval_objective(int argc, char **argv);

/* Checks, before the work, that column `name` can be attached. Returns OK, USAGE, EXISTS or IO. */
enum status
eval_check_column(const char *directory, const char *name, bool replace, struct error *err);
/* Writes (count) rows of numbers with ascending ids; ids NULL: row i is id i's, one f32, and NaN
 * means no row. info: kind, values and vectors are set. Returns OK, EXISTS (another process writes
 * the dataset), IO, NOMEM or what manifest_read returns. */
enum status eval_attach(const char *directory,
                        const char *name,
                        struct column_info *info,
                        const uint64_t *ids,
                        const void *rows,
                        int64_t count,
                        struct error *err);

#endif
