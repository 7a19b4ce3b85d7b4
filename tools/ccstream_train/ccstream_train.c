/*
 * ccstream-train: options and RUN/config.json; the run itself is train/trainer.
 *
 * RUN/config.json holds the options of a run as text. --resume reads them as if they stood on the
 * command line, before what really stands there; changes that the checkpoint excludes are refused.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/file_io.h"
#include "formats/base/json_writer.h"
#include "formats/dataset/manifest.h"
#include "kernels/ops.h"
#include "tools/ccstream_train/live.h"
#include "tools/ccstream_train/memory_plan.h"
#include "tools/ccstream_train/run_config.h"
#include "tools/ccstream_train/train_options.h"
#include "tools/cli/cli.h"
#include "tools/cli/openmp_wait.h"
#include "tools/cli/path_kind.h"
#include "train/run/trainer.h"

static void write_sources(struct json_writer *w, const struct trainer *t, uint32_t count) {
    json_open_array(w, "datasets");
    for (uint32_t i = 0; i < count; i++) {
        const struct trainer_source source = trainer_source(t, i);
        json_open_object(w, NULL);
        json_string(w, "directory", source.directory);
        json_u64(w, "samples", source.samples_count);
        json_double(w, "weight", source.weight > 0 ? source.weight : (double)source.samples_count);
        json_u64(w, "id_offset", source.id_offset);
        json_close_object(w);
    }
    json_close_array(w);
}

static enum status print_json(const struct trainer *t,
                              uint32_t sources_count,
                              const struct live *l,
                              const char *run,
                              const struct retrieval_result *r,
                              struct error *err) {
    const struct trainer_summary sum = trainer_summary(t);
    struct json_writer w;
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    json_string(&w, "run", run);
    json_u64(&w, "step", sum.step);
    json_u64(&w, "total_steps", sum.total_steps);
    json_u64(&w, "resumed_step", sum.resumed_step);
    json_u64(&w, "samples", sum.samples_count);
    json_i64(&w, "parameters", sum.memory.parameter_count);
    write_sources(&w, t, sources_count);
    json_double(&w, "seconds", (double)(clock_now_ns() - l->started_ns) * 1e-9);
    if (l->steps > 0) {
        json_double(&w, "global_loss", l->global_loss);
        json_double(&w, "pairs_per_s", l->mean_rate);
    }
    if (r->images > 0) {
        retrieval_write_json(&w, "retrieval", r);
    }
    if (l->zeroshot.images > 0) {
        json_open_object(&w, "zeroshot");
        classify_write_json(&w, &l->zeroshot);
        json_close_object(&w);
    }
    json_close_object(&w);
    json_newline(&w);
    const enum status s = json_writer_status(&w, err);
    if (s == STATUS_OK) {
        (void)fwrite(w.out.data, 1, w.out.size_bytes, stdout);
    }
    json_writer_fini(&w);
    return s;
}

/* A line for each dataset of a mix. */
static void say_sources(const struct trainer *t, uint32_t count, const struct log_sink *log) {
    double all = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct trainer_source s = trainer_source(t, i);
        all += s.weight > 0 ? s.weight : (double)s.samples_count;
    }
    for (uint32_t i = 0; i < count && count > 1; i++) {
        const struct trainer_source s = trainer_source(t, i);
        char samples[CLI_TEXT_BYTES];
        log_write(log, LOG_LEVEL_INFO, "%.3g %% from %s: %s, ids from %" PRIu64,
                  100 * (s.weight > 0 ? s.weight : (double)s.samples_count) / all, s.directory,
                  cli_format_counted(samples, s.samples_count, "sample"), s.id_offset);
    }
}

/* A run whose epochs are all frozen: no step size of zeta is used. */
static bool is_zeta_frozen(const struct train_options *o) {
    return o->loss.zeta_freeze_epochs >= o->epochs;
}

static void say_start(const struct trainer *t,
                      const struct train_options *o,
                      const struct live *l,
                      const char *run) {
    const struct trainer_summary sum = trainer_summary(t);
    char samples[CLI_TEXT_BYTES];
    char steps[CLI_TEXT_BYTES];
    char parameters[CLI_TEXT_BYTES];
    char memory[CLI_TEXT_BYTES];
    log_write(&l->log, LOG_LEVEL_INFO,
              "%s + %s, %s parameters, %s; %s, %s per epoch; loss %s, device %s, reading by %s",
              o->image_tower, o->task == 1 ? "projection head" : o->text_tower,
              cli_format_count(parameters, (uint64_t)sum.memory.parameter_count),
              cli_format_bytes(memory, sum.memory.total_bytes),
              cli_format_counted(samples, sum.samples_count, "sample"),
              cli_format_counted(steps, sum.steps_per_epoch, "step"), sum.loss, sum.device,
              sum.engine);
    if (strcmp(sum.state, "host") != 0) {
        log_write(&l->log, LOG_LEVEL_INFO, "loss on the device, its state of samples in %s",
                  strcmp(sum.state, "device") == 0 ? "device memory" : "pinned host memory");
    }
    if (train_options_loss_reads(o, LOSS_ZETA_LR) && is_zeta_frozen(o)) {
        log_write(&l->log, LOG_LEVEL_INFO,
                  "zeta: frozen in all epochs, --zeta-freeze-epochs is %" PRIu64,
                  o->loss.zeta_freeze_epochs);
    } else if (train_options_loss_reads(o, LOSS_ZETA_LR)) {
        log_write(&l->log, LOG_LEVEL_INFO,
                  "zeta: peak step size %.4g%s, of images %.4g times that, frozen for %" PRIu64
                  " epochs",
                  sum.zeta_lr, o->loss.zeta_lr == LOSS_AUTO ? " (auto)" : "",
                  o->loss.zeta_lr_image_ratio, o->loss.zeta_freeze_epochs);
    }
    if (sum.device_note[0] != '\0') {
        log_write(&l->log, LOG_LEVEL_INFO, "%s", sum.device_note);
    }
    if (sum.resumed_step > 0) {
        log_write(&l->log, LOG_LEVEL_INFO, "resuming %s at step %" PRIu64, run, sum.resumed_step);
    }
    if (sum.step >= sum.total_steps) {
        log_write(&l->log, LOG_LEVEL_INFO, "%s is finished after %s", run,
                  cli_format_counted(steps, sum.step, "step"));
    }
}

/* What the trainer would find missing only after it has made the model. */
static enum status
check_inputs(const struct train_options *o, const struct trainer_options *t, struct error *err) {
    const char *const weights[] = {o->init_image, o->init_text};
    uint64_t size_bytes;
    if (o->resume == NULL) { /* a run has all of these in its checkpoint */
        for (size_t i = 0; i < CLI_COUNT(weights); i++) {
            TRY(weights[i] != NULL ? path_check_weights(weights[i], err) : STATUS_OK);
        }
        TRY(o->tokenizer != NULL ? file_size(file_posix(), &size_bytes, o->tokenizer, err)
                                 : STATUS_OK);
    }
    TRY(o->zeroshot != NULL ? path_check_dataset(o->zeroshot, err) : STATUS_OK);
    for (uint32_t i = 0; i < t->source_count && t->task == TRAINER_PAIRS; i++) {
        struct manifest m;
        TRY(manifest_read(&m, file_posix(), t->sources[i].directory, err));
        const uint64_t texts = m.texts;
        manifest_fini(&m);
        if (texts == 0) {
            return error_set(err, STATUS_USAGE,
                             "%s has no captions; --task simclr trains on pictures alone",
                             t->sources[i].directory);
        }
    }
    return o->val != NULL ? path_check_dataset(o->val, err) : STATUS_OK;
}

/* A schedule that --epochs changed keeps what was derived from the old number of epochs: the end of
 * gamma's schedule, and the warm-up. */
static void keep_derived(struct train_options *o,
                         struct trainer_options *t,
                         const struct train_options *recorded) {
    if (o->loss.gamma_epochs == 0) {
        const uint64_t half = recorded->epochs / 2;
        o->loss.gamma_epochs = half > 0 ? half : 1;
        t->loss.gamma_epochs = o->loss.gamma_epochs;
    }
    t->warmup_epochs = recorded->epochs;
}

static void say_changes(const struct trainer *t,
                        const struct train_options *o,
                        const struct train_options *recorded,
                        const struct live *l) {
    const struct trainer_summary sum = trainer_summary(t);
    const uint64_t per_epoch = sum.steps_per_epoch;
    if (o->epochs != recorded->epochs) {
        log_write(&l->log, LOG_LEVEL_INFO,
                  "--epochs %" PRIu64 " instead of %" PRIu64 ": the schedule ends at step %" PRIu64
                  " instead of %" PRIu64,
                  o->epochs, recorded->epochs, o->epochs * per_epoch, recorded->epochs * per_epoch);
    }
    if (o->lr != recorded->lr || o->min_lr != recorded->min_lr) {
        log_write(&l->log, LOG_LEVEL_INFO,
                  "learning rate from %g down to %g instead of from %g down to %g", o->lr,
                  o->min_lr, recorded->lr, recorded->min_lr);
    }
    if ((o->epochs != recorded->epochs || o->lr != recorded->lr || o->min_lr != recorded->min_lr) &&
        sum.step < o->epochs * per_epoch) {
        log_write(&l->log, LOG_LEVEL_INFO, "learning rate of step %" PRIu64 ": %.3g", sum.step + 1,
                  sum.next_lr);
    }
}

/* Opens the trainer, in a new directory or on the run that is resumed, and records the options in
 * force. */
static enum status open_run(struct trainer **out,
                            const struct trainer_options *t,
                            struct train_options *o,
                            const struct train_options *recorded,
                            struct error *err) {
    const struct file_system *fs = file_posix();
    struct run_config_words paths = {0};
    struct train_options kept;
    bool made = false;
    if (recorded == NULL) {
        TRY(fs->exists(fs->context, t->run, &made, err));
        made = !made;
        TRY(file_make_parents(fs, t->run, err));
        TRY(fs->make_directory(fs->context, t->run, err));
    }
    enum status s = STATUS_OK;
    if (recorded == NULL && strcmp(t->device, "cpu") == 0) { /* a resumed run has no choice */
        s = memory_plan_check(t, err);
    }
    if (s == STATUS_OK) {
        s = trainer_create(out, t, err);
    }
    if (s == STATUS_OK && t->warmup_epochs > 0) {
        o->warmup_steps = trainer_summary(*out).warmup_steps;
    }
    if (s == STATUS_OK) {
        s = train_options_keep(&kept, &paths, o, err);
    }
    /* auto: a resumed run keeps the number, but one that was not used is not worth keeping. */
    if (s == STATUS_OK && train_options_loss_reads(o, LOSS_ZETA_LR) && !is_zeta_frozen(o)) {
        kept.loss.zeta_lr = trainer_summary(*out).zeta_lr;
    }
    if (s == STATUS_OK) {
        s = run_config_write(train_program(), &kept, t->run_id, t->run, err);
    }
    if (s != STATUS_OK) {
        trainer_destroy(*out);
        *out = NULL;
        if (made) {
            (void)rmdir(t->run); /* only when nothing was put in it */
        }
    }
    run_config_words_fini(&paths);
    return s;
}

/* `recorded`: the options of the run that is resumed; NULL: a new run. */
static enum status train_on(struct data_list *data,
                            const struct train_options *given,
                            const struct train_options *recorded,
                            const char *run,
                            struct error *err) {
    struct train_options o = *given;
    struct live live = {.quiet = o.quiet, .started_ns = clock_now_ns()};
    char id[RUN_CONFIG_ID_BYTES];
    live.logged_ns = live.started_ns;
    live.log = log_stderr(train_program()->name, o.quiet ? LOG_LEVEL_WARN : LOG_LEVEL_INFO);
    struct trainer_options t;
    TRY(train_options_apply(&t, data, &o, run, err));
    if (o.dry_run) {
        return memory_plan_print(&t, err);
    }
    TRY(check_inputs(&o, &t, err));
    if (recorded == NULL && !o.init_state && o.remap_state.count > 0) {
        return error_set(err, STATUS_USAGE,
                         "--remap-state needs a run whose state it maps: --resume RUN, or --init "
                         "RUN --init-state");
    }
    run_config_id(id, run);
    t.run_id = id;
    t.log = &live.log;
    t.on_step = live_step;
    t.on_retrieval = live_retrieval;
    t.on_zeroshot = live_zeroshot;
    t.should_stop = cli_interrupted_callback;
    t.cookie = &live;
    if (recorded != NULL && o.epochs != recorded->epochs) {
        keep_derived(&o, &t, recorded);
    }
    struct trainer *trainer = NULL;
    struct retrieval_result result = {0};
    TRY(open_run(&trainer, &t, &o, recorded, err));
    say_start(trainer, &o, &live, run);
    say_sources(trainer, data->count, &live.log);
    if (recorded != NULL) {
        say_changes(trainer, &o, recorded, &live);
    }
    cli_signals_install();
    cli_progress_init(&live.progress, "steps", o.quiet);
    live.progress.begun = trainer_summary(trainer).step;
    live.steps_per_epoch = trainer_summary(trainer).steps_per_epoch;
    live.on_cpu = strncmp(o.device, "cuda", 4) != 0 && strcmp(o.device, "auto") != 0;
    live.first_ns = clock_now_ns();
    enum status s = trainer_run(trainer, &result, err);
    cli_progress_clear(&live.progress);
    if (s == STATUS_INTERRUPTED) { /* as asked, and everything is saved */
        log_write(&live.log, LOG_LEVEL_WARN, "%s", err->text);
        s = STATUS_OK;
    }
    if (s == STATUS_OK && o.json) {
        s = print_json(trainer, data->count, &live, run, &result, err);
    }
    trainer_destroy(trainer);
    return s;
}

static enum status train(const struct train_options *o,
                         const struct train_options *recorded,
                         const char *run,
                         struct error *err) {
    struct data_list *data = calloc(1, sizeof *data);
    if (data == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory");
    }
    const enum status s = train_on(data, o, recorded, run, err);
    free(data);
    return s;
}

static enum status start_new(const struct train_options *o, struct error *err) {
    if (o->data.count > 0 && o->dry_run) {
        return train(o, NULL, "", err);
    }
    if (o->data.count == 0 || o->out == NULL) {
        return error_set(err, STATUS_USAGE, "--data DIR and --out RUN are needed, or --resume RUN");
    }
    char config[PATH_MAX_BYTES];
    bool there = false;
    TRY(path_check_out_folder(o->out, err));
    TRY(path_join(config, sizeof config, o->out, "config.json", err));
    TRY(file_posix()->exists(file_posix()->context, config, &there, err));
    if (there) {
        return error_set(
            err, STATUS_EXISTS,
            "%s holds a run already; 'ccstream-train --resume %s' continues it; or choose "
            "another --out",
            o->out, o->out);
    }
    if (path_check_dataset(o->out, NULL) == STATUS_OK) {
        return error_set(err, STATUS_EXISTS, "%s is a dataset; choose another --out for the run",
                         o->out);
    }
    return train(o, NULL, o->out, err);
}

/* A dataset that was moved is named, with the way out. */
static enum status check_data(const struct train_options *o, struct error *err) {
    struct data_list *data = calloc(1, sizeof *data);
    struct error why = {0};
    enum status s = data != NULL ? data_list_add(data, o->data.items, o->data.count, &why)
                                 : error_set(&why, STATUS_NOMEM, "out of memory");
    if (s != STATUS_OK) {
        s = error_set(err, s, "%s%s%s%s", why.text, s == STATUS_NOTFOUND ? "; " : "",
                      s == STATUS_NOTFOUND ? o->resume : "",
                      s == STATUS_NOTFOUND
                          ? " was trained on it, and --data DIR names its new place if it was moved"
                          : "");
    }
    free(data);
    return s;
}

static enum status
resume(const struct train_options *o, const struct train_options *recorded, struct error *err) {
    if (o->data.count == 0) {
        return error_set(err, STATUS_CORRUPT, "%s/config.json names no dataset; give --data",
                         o->resume);
    }
    TRY(check_data(o, err));
    return train(o, recorded, o->resume, err);
}

/* The words that a run's options come from, in order: those of the run that is resumed, or a
 * preset, a file and the model of --init; then the command line, argv. */
static enum status collect_words(struct run_config_words *line,
                                 struct train_options *recorded,
                                 const struct train_options *given,
                                 int argc,
                                 char **argv,
                                 struct error *err) {
    const char *const *words = (const char *const *)argv;
    struct cli_arguments args = {0};
    int preset_count;
    const char *const *preset = train_options_preset(given, &preset_count);
    TRY(run_config_add_words(line, 1, words, err));
    if (given->resume != NULL) {
        TRY(run_config_add_run(line, given->resume, err));
        if (given->data.count > 0) {
            run_config_drop(line, "data");
        }
        TRY(cli_parse(train_program(), recorded, &args, line->count, line->words, err));
        cli_arguments_fini(&args);
    } else {
        TRY(run_config_add_words(line, preset_count, preset, err));
        if (given->config != NULL) {
            TRY(run_config_add_file(line, given->config, err));
        }
        if (given->data.count > 0) {
            run_config_drop(line, "data");
        }
        if (given->init != NULL) {
            TRY(path_check_weights(given->init, err));
            TRY(run_config_add_model(line, given->init, err));
        }
    }
    return run_config_add_words(line, argc - 1, words + 1, err);
}

/* Trains with the options of all the words. */
static enum status train_with(const struct train_options *given,
                              const struct cli_arguments *typed,
                              int argc,
                              char **argv,
                              struct error *err) {
    struct run_config_words line = {0};
    struct train_options o;
    struct train_options recorded;
    struct cli_arguments all = {0};
    enum status s = collect_words(&line, &recorded, given, argc, argv, err);
    if (s == STATUS_OK) {
        s = cli_parse(train_program(), &o, &all, line.count, line.words, err);
    }
    if (s == STATUS_OK && given->resume != NULL) {
        s = train_options_check_resumed(typed, &recorded, &o, err);
    }
    if (s == STATUS_OK) {
        const struct log_sink log = log_stderr(train_program()->name, LOG_LEVEL_WARN);
        train_options_name_unread(typed, &o, &log);
        s = given->resume != NULL ? resume(&o, &recorded, err) : start_new(&o, err);
    }
    cli_arguments_fini(&all);
    run_config_words_fini(&line);
    return s;
}

static void print_device(const char *name, bool works, const char *text, void *cookie) {
    (void)cookie;
    printf("%-8s %s%s\n", name, works ? "" : "not here: ", text);
}

int main(int argc, char **argv) {
    openmp_wait_briefly(argv);
    struct train_options o;
    struct cli_arguments args = {0};
    struct error err = {0};
    enum status s = cli_parse(train_program(), &o, &args, argc, argv, &err);
    if (s == STATUS_OK && o.list_devices) {
        device_list(print_device, NULL);
        cli_arguments_fini(&args);
        return cli_exit(train_program(), s, &err);
    }
    if (s == STATUS_OK) {
        s = train_with(&o, &args, argc, argv, &err);
    }
    cli_arguments_fini(&args);
    return cli_exit(train_program(), s, &err);
}
