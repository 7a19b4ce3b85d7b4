/*
 * ccstream_train_internal: shared by the parts of ccstream-train: checks before a run (checks), one
 * call that trains (session), output (live, announce), RUN/sessions.jsonl (session_log), and the
 * memory plan (memory_plan).
 *
 * Threading : one owner; any thread may write to live's log.
 */
#ifndef TOOLS_CCSTREAM_TRAIN_CCSTREAM_TRAIN_INTERNAL_H
#define TOOLS_CCSTREAM_TRAIN_CCSTREAM_TRAIN_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

#include "formats/base/log.h"
#include "tools/cli/cli.h"
#include "tools/inspect/train_options.h"
#include "train/run/trainer.h"

/* ---- live ------------------------------------------------------------------------------- */

/* bar: one redrawn line; plain: a line every ten seconds; json: an object per second, and no
 * messages except warnings; auto: bar on a terminal that can redraw a line, else plain. plain and
 * json also have a line for the last step. */
enum live_mode { LIVE_AUTO, LIVE_BAR, LIVE_PLAIN, LIVE_JSON, LIVE_NONE };

struct live {
    struct cli_progress progress;
    struct log_sink log, out; /* log: erases the progress line, then writes to out */
    pthread_mutex_t terminal; /* guards progress and out */
    const char *run;          /* its directory */
    uint64_t probe_pairs;     /* of its reports; 0: no probe */
    enum live_mode mode;
    int64_t started_ns, logged_ns;
    double mean_rate, mean_stall; /* moving averages over steps */
    double loss, global_loss;     /* of the last step; global_loss NaN: none */
    double recall;                /* mean R@1 of the last evaluation in percent; below 0: none */
    uint64_t steps, steps_per_epoch;
    int64_t first_ns; /* when the first step began */
    bool estimated, on_cpu;
    struct features_result features; /* the last one; images 0: none */
    struct classify_result zeroshot; /* the last one, without its arrays; images 0: none */
};

/* out: receives lines; if it accepts only warnings (--quiet) there is no progress. */
void live_init(struct live *l, enum live_mode mode, struct log_sink out, const char *run);
/* Sets the step before the first one. */
void live_begin(struct live *l, uint64_t step, uint64_t steps_per_epoch);
/* Erases the progress line. */
void live_end(struct live *l);
void live_fini(struct live *l);

/* Callbacks of struct trainer_options; the cookie is a struct live. */
void live_step(void *cookie, const struct step_report *r, uint64_t total_steps);
void live_retrieval(void *cookie, uint64_t step, const struct retrieval_result *r);
void live_zeroshot(void *cookie, uint64_t step, const struct classify_result *r);
void live_features(void *cookie, uint64_t step, const struct features_result *r);

/* ---- session ---------------------------------------------------------------------------- */

/* This call's rank and its group. */
struct launch {
    int argc;
    char **argv;
    struct comm *comm;
    struct log_sink log;  /* warnings; after the rank's number, except on rank 0 */
    bool first;           /* rank 0 */
    bool failed_together; /* all ranks return the same failure */
    bool running;         /* a rank that fails alone ends the others */
    int launches;         /* rank 0: RUN/sessions.jsonl, locked while it trains */
};

/* As comm_agree. A rank that fails between two of these calls makes its next one in main. */
enum status session_agree(struct launch *l, enum status own, struct error *err);

/* Trains run `run`. recorded: the options of the resumed run; NULL: a new run. */
enum status session_train(struct launch *l,
                          const struct train_options *o,
                          const struct train_options *recorded,
                          const char *run,
                          struct error *err);

/* ---- checks ----------------------------------------------------------------------------- */

/* Checks datasets, columns and weights, which the trainer opens only after creating the model. */
enum status
check_inputs(const struct train_options *o, const struct trainer_options *t, struct error *err);
/* The same and --remap-state, before anything is written, on every host. */
enum status check_start(const struct train_options *o,
                        const struct trainer_options *t,
                        bool is_new,
                        struct error *err);
/* The folder may have other files, but none that the run would overwrite. */
enum status check_out(const char *out, struct error *err);
/* The data of a resumed run: for a dataset that was moved, the message has the remedy. */
enum status check_data(const struct train_options *o, struct error *err);

/* ---- announce --------------------------------------------------------------------------- */

/* Model, data, loss, device and zeta learning rate; where it resumes, or that it is finished. */
void announce_start(const struct log_sink *log,
                    const struct trainer *t,
                    const struct train_options *o,
                    const char *run);
/* Where the results are, and a command that shows them. */
void announce_end(const struct log_sink *log, const struct train_options *o, const char *run);
/* How several ranks share the work. */
void announce_ranks(const struct log_sink *log, const struct trainer_options *t);
/* One line per dataset of a mix. */
void announce_sources(const struct log_sink *log, const struct trainer *t, uint32_t count);
/* Options of a resumed run that differ from `recorded`. */
void announce_changes(const struct log_sink *log,
                      const struct trainer *t,
                      const struct train_options *o,
                      const struct train_options *recorded);
/* What rank 0 sent to the others, and how long it waited for them, in `steps` steps. */
void announce_messages(const struct log_sink *log, const struct comm *comm, uint64_t steps);

/* ---- session_log ------------------------------------------------------------------------- */

/* RUN/sessions.jsonl: one line per call of ccstream-train that trained the run:
 *
 *   {"time":..,"run":ID,"version":..,"command":[..],"directory":..,"host":..,"pid":..,"kernel":..,"cpu":..,
 *    "cpus":..,"memory_bytes":..,"device":..,"engine":..,"ranks":..,"step":..,"total_steps":..,
 *    "steps_per_epoch":..,"batch":..,"loss":..,"parameters":..,"model_bytes":..,
 *    "datasets":[{"directory":..,"samples":..,"captions":..,"fingerprint":..,"weight":..},..],
 *    "val":{..}}
 *
 * directory: the working directory. step: where the call began. weight: in a mix. val: null: none.
 * The command line of a launcher such as mpirun is not recorded.
 *
 * The process that trains a run locks the file until it ends: a run is trained by one process at a
 * time, and others can see whether it is. */
#define SESSION_LOG_NAME "sessions.jsonl"

/* *out: a descriptor, or -1. Waits some seconds for a process that is ending. Returns OK, EXISTS
 * (another process trains the run), IO, NOTFOUND or LIMIT. */
enum status session_log_open(int *out, const char *run, struct error *err);
void session_log_close(int fd); /* accepts -1 */

/* Removes the file, the configuration and the empty metrics of a new run that did not start, in a
 * folder that had none of them. */
void session_log_discard(const char *run);

/* Appends the line of this call, argv with `argc` words. Returns OK, IO, NOMEM or LIMIT. */
enum status session_log_add(int fd,
                            const struct trainer *trainer,
                            const struct trainer_options *t,
                            int argc,
                            char *const *argv,
                            struct error *err);

/* ---- memory_plan ------------------------------------------------------------------------ */

/* Prints the plan, on a GPU with its own memory use, and plans for a quarter to four times the
 * batch. Returns OK, or as dataset_tokenizer_open and trainer_plan. */
enum status memory_plan_print(const struct trainer_options *t, bool on_gpu, struct error *err);

/* Checks that the run fits into free_bytes (0: unknown). Returns OK, NOMEM naming the largest
 * micro-batch that fits, or as above. */
enum status
memory_plan_check(const struct trainer_options *t, uint64_t free_bytes, struct error *err);

#endif
