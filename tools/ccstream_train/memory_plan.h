/*
 * memory_plan: the memory that a run would take, before it takes any.
 *
 * Threading : functions of one caller each; datasets and tokenizer are only read.
 */
#ifndef TOOLS_CCSTREAM_TRAIN_MEMORY_PLAN_H
#define TOOLS_CCSTREAM_TRAIN_MEMORY_PLAN_H

#include "train/run/trainer.h"

/* Prints the plan, and those of a quarter to four times the batch. Returns OK, or as
 * dataset_tokenizer_open and trainer_plan. */
enum status memory_plan_print(const struct trainer_options *t, struct error *err);

/* Refuses a run on the CPU that does not fit into the memory that is free; names the largest
 * micro-batch that fits. Returns OK, NOMEM, or as above. */
enum status memory_plan_check(const struct trainer_options *t, struct error *err);

#endif
