/*
 * ccstream_eval_internal: the commands of ccstream-eval.
 */
#ifndef TOOLS_CCSTREAM_EVAL_CCSTREAM_EVAL_INTERNAL_H
#define TOOLS_CCSTREAM_EVAL_CCSTREAM_EVAL_INTERNAL_H

#include "tools/inspect/eval_common.h"
#include "tools/inspect/samples.h"

int ccstream_eval_retrieval(int argc, char **argv);
int ccstream_eval_zeroshot(int argc, char **argv);
int ccstream_eval_debias(int argc, char **argv);
int ccstream_eval_linear(int argc, char **argv);
int ccstream_eval_knn(int argc, char **argv);
int ccstream_eval_mean(int argc, char **argv);
int ccstream_eval_embed(int argc, char **argv);
int ccstream_eval_score(int argc, char **argv);
int ccstream_eval_objective(int argc, char **argv);

#endif
