/*
 * live: what a run prints while it trains: its progress, an estimate of its time, evaluations.
 *
 * Threading : one owner; log takes lines of any thread.
 */
#ifndef TOOLS_CCSTREAM_TRAIN_LIVE_H
#define TOOLS_CCSTREAM_TRAIN_LIVE_H

#include <pthread.h>

#include "tools/cli/cli.h"
#include "train/run/trainer.h"

/* bar: one line that is redrawn; plain: a line every ten seconds; json: an object every second, and
 * no messages but warnings; auto: bar on a terminal that can redraw a line, else plain. plain and
 * json have a line of the last step too. */
enum live_mode { LIVE_AUTO, LIVE_BAR, LIVE_PLAIN, LIVE_JSON, LIVE_NONE };

struct live {
    struct cli_progress progress;
    struct log_sink log, out; /* log erases the progress first; out: where it goes */
    pthread_mutex_t terminal; /* guards progress and what out writes */
    const char *run;          /* its directory */
    enum live_mode mode;
    int64_t started_ns, logged_ns;
    double mean_rate, mean_stall; /* of the last steps */
    double global_loss;
    double recall; /* mean R@1 of the last evaluation in percent; below 0: none */
    uint64_t steps, steps_per_epoch;
    int64_t first_ns; /* when the first step began */
    bool estimated, on_cpu;
    struct classify_result zeroshot; /* the last one, without its arrays; images 0: none */
};

/* out: where lines go; one that takes no more than warnings (--quiet) has no progress. */
void live_init(struct live *l, enum live_mode mode, struct log_sink out, const char *run);
/* Steps come after this one. */
void live_begin(struct live *l, uint64_t step, uint64_t steps_per_epoch);
/* Erases the line. */
void live_end(struct live *l);
void live_fini(struct live *l);

/* Callbacks of struct trainer_options; the cookie is a struct live. */
void live_step(void *cookie, const struct step_report *r, uint64_t total_steps);
void live_retrieval(void *cookie, uint64_t step, const struct retrieval_result *r);
void live_zeroshot(void *cookie, uint64_t step, const struct classify_result *r);

#endif
