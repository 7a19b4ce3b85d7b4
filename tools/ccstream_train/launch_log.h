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
 * Threading : single-owner.
 */
#ifndef TOOLS_CCSTREAM_TRAIN_LAUNCH_LOG_H
#define TOOLS_CCSTREAM_TRAIN_LAUNCH_LOG_H

#include "formats/base/status.h"
#include "train/run/trainer.h"

/* Appends the line of this call, argv with `argc` words. Returns OK, IO, NOMEM or LIMIT. */
enum status launch_log_add(const struct trainer *trainer,
                           const struct trainer_options *t,
                           int argc,
                           char *const *argv,
                           struct error *err);

#endif
