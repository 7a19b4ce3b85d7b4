/*
 * live: what a run prints while it trains: the live line, an estimate of its time, evaluations.
 *
 * Threading : one owner.
 */
#ifndef TOOLS_CCSTREAM_TRAIN_LIVE_H
#define TOOLS_CCSTREAM_TRAIN_LIVE_H

#include "tools/cli/cli.h"
#include "train/run/trainer.h"

struct live {
    struct cli_progress progress;
    struct log_sink log;
    const char *run; /* its directory */
    bool quiet;
    int64_t started_ns, logged_ns;
    double mean_rate, mean_stall; /* of the last steps */
    double global_loss;
    uint64_t steps, steps_per_epoch;
    int64_t first_ns; /* when the first step began */
    bool estimated, on_cpu;
    struct classify_result zeroshot; /* the last one, without its arrays; images 0: none */
};

/* Callbacks of struct trainer_options; the cookie is a struct live. */
void live_step(void *cookie, const struct step_report *r, uint64_t total_steps);
void live_retrieval(void *cookie, uint64_t step, const struct retrieval_result *r);
void live_zeroshot(void *cookie, uint64_t step, const struct classify_result *r);

#endif
