/*
 * launch_log: RUN/launches.jsonl: one line for every call of ccstream-train that trained the run,
 * what it was started with and where:
 *
 *   {"time":..,"run":ID,"version":..,"command":[..],"directory":..,"host":..,"pid":..,"kernel":..,"cpu":..,
 *    "cpus":..,"memory_bytes":..,"device":..,"engine":..,"ranks":..,"step":..,"total_steps":..,
 *    "steps_per_epoch":..,"batch":..,"loss":..,"parameters":..,"model_bytes":..,
 *    "datasets":[{"directory":..,"samples":..,"captions":..,"fingerprint":..,"weight":..},..],
 *    "val":{..}}
 *
 * directory: the working directory. step: where the call began. weight: of a mix. val: null without
 * one. What a launcher such as mpirun was started with is not in it.
 *
 * The process that trains a run holds a lock on the file, which ends with the process: a run is
 * trained by one process at a time, and others can see whether it is.
 *
 * Threading : single-owner.
 */
#ifndef TOOLS_CCSTREAM_TRAIN_LAUNCH_LOG_H
#define TOOLS_CCSTREAM_TRAIN_LAUNCH_LOG_H

#include <stdbool.h>

#include "formats/base/status.h"
#include "train/run/trainer.h"

#define LAUNCH_LOG_NAME "launches.jsonl"

/* *out: a descriptor, or -1. Waits some seconds for a process that is ending. Returns OK, EXISTS
 * (another process trains the run), IO, NOTFOUND or LIMIT. */
enum status launch_log_open(int *out, const char *run, struct error *err);
void launch_log_close(int fd); /* accepts -1 */

/* Removes the file: for a new run that does not begin. */
void launch_log_discard(const char *run);

/* Whether a process has it open: one that trains the run. True where the file system cannot tell.
 */
bool launch_log_is_held(const char *run);

/* Appends the line of this call, argv with `argc` words. Returns OK, IO, NOMEM or LIMIT. */
enum status launch_log_add(int fd,
                           const struct trainer *trainer,
                           const struct trainer_options *t,
                           int argc,
                           char *const *argv,
                           struct error *err);

#endif
