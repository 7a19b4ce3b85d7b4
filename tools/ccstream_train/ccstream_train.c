/*
 * ccstream-train: collects the words of a run's options, and ends its ranks; session.c trains.
 *
 * RUN/config.json has the options of a run as text. --resume reads them as if they preceded the
 * command line; changes that the checkpoint excludes are rejected.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"
#include "tools/ccstream_train/ccstream_train_internal.h"
#include "tools/cli/openmp_wait.h"
#include "tools/cli/path_kind.h"
#include "tools/inspect/run_config.h"

static enum status start_new(struct launch *l, const struct train_options *o, struct error *err) {
    if (o->data.count > 0 && o->dry_run) {
        return session_train(l, o, NULL, "", err);
    }
    FAIL_IF(o->data.count == 0 || o->out == NULL, err, STATUS_USAGE,
            "--data DIR and --out RUN are required, or --resume RUN");
    TRY(check_out(o->out, err));
    return session_train(l, o, NULL, o->out, err);
}

static enum status resume(struct launch *l,
                          const struct train_options *o,
                          const struct train_options *recorded,
                          struct error *err) {
    FAIL_IF(o->data.count == 0, err, STATUS_CORRUPT,
            "%s/config.json contains no dataset; pass --data", o->resume);
    TRY(check_data(o, err));
    return session_train(l, o, recorded, o->resume, err);
}

/* --model of the command line, or of the preset; NULL: none. */
static const char *
model_of(const struct train_options *given, const char *const *preset, int preset_count) {
    static const char option[] = "--model=";
    const char *model = given->trainer.model;
    for (int i = 0; i < preset_count && model == NULL; i++) {
        const bool named = strncmp(preset[i], option, sizeof option - 1) == 0;
        model = named ? preset[i] + sizeof option - 1 : NULL;
    }
    return model;
}

/* The options that --model sets; without pairs only the image size. */
static enum status add_model(struct run_config_words *line,
                             const struct train_options *given,
                             const char *model,
                             struct error *err) {
    struct train_options before = {0};
    struct cli_arguments args = {0};
    TRY(cli_parse_words(train_program(), &before, &args, line->count, line->words, true, err));
    const bool pairs = given->trainer.task == TRAINER_PAIRS && before.trainer.task == TRAINER_PAIRS;
    cli_arguments_fini(&args);
    return run_config_add_clip(line, model, !pairs, err);
}

/* The words of a run's options, in order: the resumed run's, or a preset, a file, the model of
 * --init and what --model sets; then the command line, argv, and --model again, as JSON. */
static enum status collect_words(struct run_config_words *line,
                                 const struct log_sink *log,
                                 struct train_options *recorded,
                                 const struct train_options *given,
                                 int argc,
                                 char **argv,
                                 struct error *err) {
    const char *const *words = (const char *const *)argv;
    struct cli_arguments args = {0};
    int preset_count;
    const char *const *preset = train_preset_words(given->preset, &preset_count);
    const char *model = model_of(given, preset, preset_count);
    TRY(run_config_add_words(line, 1, words, err));
    if (given->resume != NULL) {
        TRY(run_config_add_run(line, given->resume, err));
        if (given->data.count > 0) {
            run_config_drop(line, "data");
        }
        if (given->trainer.val != NULL) {
            run_config_drop(line, "val");
        }
        if (given->trainer.zeroshot != NULL) {
            run_config_drop(line, "zeroshot");
        }
        if (given->trainer.knn != NULL) {
            run_config_drop(line, "knn");
        }
        TRY(run_config_restrain(line, given->resume, log, err));
        TRY(cli_parse_words(train_program(), recorded, &args, line->count, line->words, true, err));
        cli_arguments_fini(&args);
    } else {
        TRY(run_config_add_words(line, preset_count, preset, err));
        if (given->config != NULL) {
            TRY(run_config_add_file(line, given->config, err));
        }
        if (given->data.count > 0) {
            run_config_drop(line, "data");
        }
        if (given->trainer.init != NULL) {
            TRY(path_check_weights(given->trainer.init, err));
            TRY(run_config_add_model(line, given->trainer.init, err));
        }
        TRY(model != NULL ? add_model(line, given, model, err) : STATUS_OK);
    }
    TRY(run_config_add_words(line, argc - 1, words + 1, err));
    return model != NULL ? run_config_add_clip_word(line, model, err) : STATUS_OK;
}

/* Trains with the options of all the words. */
static enum status train_with(struct launch *l,
                              const struct train_options *given,
                              const struct cli_arguments *typed,
                              int argc,
                              char **argv,
                              struct error *err) {
    struct run_config_words line = {0};
    struct train_options o = {0};
    struct train_options recorded = {0};
    struct cli_arguments all = {0};
    enum status s =
        collect_words(&line, l->first ? &l->log : NULL, &recorded, given, argc, argv, err);
    THEN(s, cli_parse_words(train_program(), &o, &all, line.count, line.words, true, err));
    if (s == STATUS_OK && given->resume != NULL) {
        s = train_options_check_resumed(typed, &recorded, &o, err);
    }
    THEN(s, train_options_check_read(typed, &o, l->first ? &l->log : NULL, err));
    THEN(s, remote_choice_use(&o.remote, err));
    THEN(s, given->resume != NULL ? resume(l, &o, &recorded, err) : start_new(l, &o, err));
    cli_arguments_fini(&all);
    run_config_words_fini(&line);
    return s;
}

static void print_device(const char *name, bool works, const char *text, void *cookie) {
    (void)cookie;
    cli_print(stdout, "%-8s %s%s\n", name, works ? "" : "unavailable: ", text);
}

/* Prints one line for a failure of all ranks; a rank that fails alone prints its own and ends the
 * others. Returns the exit code. */
static int end(struct launch *l, enum status s, struct error *err) {
    int code = status_exit_code(s);
    const bool together = l->failed_together && !comm_is_broken(l->comm);
    if (l->first) {
        code = cli_exit(train_program(), s, err);
    } else if (s != STATUS_OK && !together) {
        log_write(&l->log, LOG_LEVEL_ERROR, "%s", err->text);
    }
    if (s != STATUS_OK && !together) {
        comm_fail(l->comm, err, code);
        return code;
    }
    const enum status all = comm_end(l->comm, err);
    if (all != STATUS_OK) { /* with MPI the watch detects it; Gloo's connections close */
        log_write(&l->log, LOG_LEVEL_ERROR, "%s", err->text);
        comm_fail(l->comm, err, status_exit_code(all));
    }
    comm_close(l->comm);
    return code;
}

/* Trains as one of the ranks that a launcher started, or alone. */
static int train_as_rank(const struct train_options *o,
                         const struct cli_arguments *typed,
                         int argc,
                         char **argv,
                         int32_t rank) {
    char name[64];
    const struct log_sink plain = log_stderr(train_program()->name, LOG_LEVEL_WARN);
    struct launch l = {.argc = argc, .argv = argv, .first = true, .launches = -1};
    struct comm_options how;
    struct error err = {0};
    (void)snprintf(name, sizeof name, "%s", train_program()->name);
    l.log = log_stderr(name, LOG_LEVEL_WARN);
    comm_options_default(&how);
    how.ranks = (enum comm_ranks)o->ranks;
    how.transport = (enum comm_transport)o->transport;
    how.run = o->resume != NULL ? o->resume : o->out;
    how.timeout_ms = (int64_t)o->rank_timeout_seconds * 1000;
    how.log = &plain; /* its lines have the rank */
    how.should_stop = cli_interrupted;
    enum status s = comm_open(&l.comm, &how, &err);
    if (s != STATUS_OK) { /* ranks cannot exchange statuses; rank 0 may not know of a failed
                             connection */
        if (rank > 0 && (s == STATUS_IO || s == STATUS_TIMEOUT || s == STATUS_NOMEM)) {
            log_write(&plain, LOG_LEVEL_ERROR, "rank %d ends: %s", (int)rank, err.text);
        }
        return rank > 0 ? status_exit_code(s) : cli_exit(train_program(), s, &err);
    }
    if (comm_rank(l.comm) > 0) {
        l.first = false;
        (void)snprintf(name, sizeof name, "%s: rank %d", train_program()->name,
                       (int)comm_rank(l.comm));
    }
    s = train_with(&l, o, typed, argc, argv, &err);
    if (s != STATUS_OK && !l.failed_together && !l.running) {
        s = session_agree(&l, s, &err);
    }
    return end(&l, s, &err);
}

int main(int argc, char **argv) {
    openmp_wait_briefly(argv);
    static struct train_options o; /* too large for the stack */
    struct cli_arguments args = {0};
    struct error err = {0};
    int32_t rank;
    int32_t world;
    const char *launcher;
    comm_launched(&rank, &world, &launcher);
    cli_signals_install_early(world != 1);
    cli_catch_sigbus();
    enum status s = cli_parse(train_program(), &o, &args, argc, argv, &err);
    if (s == STATUS_OK && o.list_devices) {
        device_list(print_device, NULL);
        cli_arguments_fini(&args);
        return cli_exit(train_program(), s, &err);
    }
    int code;
    if (s == STATUS_OK) {
        code = train_as_rank(&o, &args, argc, argv, rank);
    } else { /* the ranks have the same command line */
        code = rank > 0 ? status_exit_code(s) : cli_exit(train_program(), s, &err);
    }
    cli_arguments_fini(&args);
    return code;
}
