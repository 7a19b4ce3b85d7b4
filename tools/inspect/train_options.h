/*
 * train_options: the options of ccstream-train: the table, and the struct that it fills.
 *
 * Threading : single-owner. Ownership: strings point into argv or the table.
 */
#ifndef TOOLS_INSPECT_TRAIN_OPTIONS_H
#define TOOLS_INSPECT_TRAIN_OPTIONS_H

#include "tools/cli/cli.h"
#include "tools/cli/data_list.h"
#include "tools/cli/remote_choice.h"
#include "tools/inspect/run_config.h"
#include "train/loss/loss_row.h"
#include "train/run/trainer.h"

/* AUTO: decided when the device is known. */
enum train_precision { PRECISION_AUTO, PRECISION_F32, PRECISION_BF16 };

struct train_options {
    struct trainer_options trainer; /* as filled by options, see train_options_apply */
    struct cli_list data;
    struct cli_list remap_state;
    const char *out, *resume, *config, *order, *crop_scale;
    int preset;
    int precision; /* enum train_precision */
    int augment;
    int loss_index; /* into loss_names */
    int ranks;      /* enum comm_ranks */
    int transport;  /* enum comm_transport */
    uint64_t rank_timeout_seconds;
    uint64_t probe_pairs; /* of RUN/report.html; 0: none */
    bool dry_run, json, report, quiet, list_devices;
    int progress; /* enum live_mode */
    struct remote_choice remote;
};

/* The option table; loss options are generated from loss_option_rows. */
const struct cli_program *train_program(void);

/* Whether only the text tower is trained: blocks of captions. */
bool train_options_texts_alone(const struct train_options *o);

/* Whether zeta is frozen in all epochs: its learning rate is then unused. */
bool train_options_zeta_is_frozen(const struct train_options *o);

/* Fills the trainer's options, without callbacks and log, and the all-zero `data`, which must
 * outlive `out`. Returns OK or USAGE. */
enum status train_options_apply(struct trainer_options *out,
                                struct data_list *data,
                                const struct train_options *o,
                                const char *run,
                                struct error *err);

/* Whether the chosen loss reads the option. */
bool train_options_loss_reads(const struct train_options *o, enum loss_option option);

/* Warns about options on the command line that the chosen loss does not read. Returns OK, or USAGE
 * for --loss with a task that has its own loss. */
enum status train_options_check_read(const struct cli_arguments *given,
                                     const struct train_options *o,
                                     const struct log_sink *log,
                                     struct error *err);

/* Checks the options given with --resume: each may change, or equals the run's (`recorded`).
 * Returns OK or USAGE with the reason. */
enum status train_options_check_resumed(const struct cli_arguments *given,
                                        const struct train_options *recorded,
                                        const struct train_options *o,
                                        struct error *err);

/* The options as recorded in RUN/config.json: without those of one call only, and with absolute
 * paths, owned by `paths` (all zero) until run_config_words_fini. Returns OK, NOMEM, IO or USAGE.
 */
enum status train_options_keep(struct train_options *kept,
                               struct run_config_words *paths,
                               const struct train_options *o,
                               struct error *err);

/* Presets: named words that precede the command line (presets.c). The first is "none", without
 * words; NULL-terminated. */
extern const char *const train_preset_names[];

/* The names of --augment: "auto" and the names of augment_kind_of; NULL-terminated. */
extern const char *const train_augment_names[];

/* The words of train_preset_names[preset], for run_config_add_words. */
const char *const *train_preset_words(int preset, int *count);

#endif
