/*
 * announce: what a run says of itself before its first step and after its last one.
 *
 * Threading : one owner.
 */
#ifndef TOOLS_CCSTREAM_TRAIN_ANNOUNCE_H
#define TOOLS_CCSTREAM_TRAIN_ANNOUNCE_H

#include "formats/base/log.h"
#include "tools/inspect/train_options.h"
#include "train/run/trainer.h"

/* Model, data, loss, device and step size of zeta; where it resumes, or that it is finished. */
void announce_start(const struct log_sink *log,
                    const struct trainer *t,
                    const struct train_options *o,
                    const char *run);
/* How several ranks share the work. */
void announce_ranks(const struct log_sink *log, const struct trainer_options *t);
/* A line for each of several datasets. */
void announce_sources(const struct log_sink *log, const struct trainer *t, uint32_t count);
/* What a resumed run does otherwise than it `recorded`. */
void announce_changes(const struct log_sink *log,
                      const struct trainer *t,
                      const struct train_options *o,
                      const struct train_options *recorded);
/* What rank 0 sent to the others and waited for them, of `steps` steps. */
void announce_messages(const struct log_sink *log, const struct comm *comm, uint64_t steps);

#endif
