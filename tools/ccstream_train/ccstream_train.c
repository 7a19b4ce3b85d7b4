/*
 * ccstream-train: options and RUN/config.json; the run itself is train/trainer.
 *
 * RUN/config.json holds the options of a run as text. --resume reads them as if they stood on the
 * command line, before what really stands there; changes that the checkpoint excludes are refused.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/base/child_process.h"
#include "formats/base/clock.h"
#include "formats/base/file_io.h"
#include "formats/base/json_writer.h"
#include "formats/base/module_file.h"
#include "formats/columns/columns.h"
#include "formats/dataset/manifest.h"
#include "formats/tokenizer/tokenizer.h"
#include "kernels/ops.h"
#include "tools/ccstream_train/ccstream_train_internal.h"
#include "tools/cli/free_memory.h"
#include "tools/cli/openmp_wait.h"
#include "tools/cli/output.h"
#include "tools/cli/path_kind.h"
#include "tools/inspect/run_config.h"
#include "train/comm/comm_device.h"

/* The ranks of this call. */
struct launch {
    int argc;
    char **argv;
    struct comm *comm;
    struct log_sink log;  /* warnings; of other ranks than 0 after their number */
    bool first;           /* rank 0 */
    bool failed_together; /* all ranks return the same failure */
    bool running;         /* a rank that fails alone ends the others */
    int launches;         /* rank 0: RUN/sessions.jsonl, held while it trains */
};

/* As comm_agree. A rank that fails between two of these calls makes the next one in main. */
static enum status agree(struct launch *l, enum status own, struct error *err) {
    const enum status s = comm_agree(l->comm, own, err);
    l->failed_together = s != STATUS_OK;
    return s;
}

static void write_sources(struct json_writer *w, const struct trainer *t, uint32_t count) {
    json_open_array(w, "datasets");
    for (uint32_t i = 0; i < count; i++) {
        const struct trainer_source source = trainer_source(t, i);
        json_open_object(w, NULL);
        json_location(w, "directory", source.directory);
        json_u64(w, "samples", source.samples_count);
        json_double(w, "weight", source.weight > 0 ? source.weight : (double)source.samples_count);
        json_u64(w, "id_offset", source.id_offset);
        json_close_object(w);
    }
    json_close_array(w);
}

static enum status print_json(const struct trainer *t,
                              const struct comm *comm,
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
    if (comm_world(comm) > 1) {
        const struct comm_counters c = comm_counters(comm);
        json_open_object(&w, "ranks");
        json_i64(&w, "count", comm_world(comm));
        json_u64(&w, "messages", c.messages_count); /* of rank 0 */
        json_u64(&w, "sent_bytes", c.sent_bytes);
        json_double(&w, "wait_seconds", (double)c.wait_ns * 1e-9);
        json_close_object(&w);
    }
    if (l->steps > 0) {
        json_double(&w, "loss", l->loss);
        if (!isnan(l->global_loss)) {
            json_double(&w, "global_loss", l->global_loss);
        }
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
    if (l->features.images > 0) {
        features_write_json(&w, &l->features);
    }
    if (sum.best.step > 0) {
        json_open_object(&w, "best");
        json_u64(&w, "step", sum.best.step);
        json_double(&w, "value", sum.best.value);
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

/* The columns that a list names, "raw:0.3,long:0.7" or "w"; NULL: none. */
static enum status check_columns(const char *list,
                                 const char *directory,
                                 const struct manifest *m,
                                 struct error *err) {
    char name[COLUMN_MAX_NAME_BYTES + 2];
    for (; list != NULL && *list != '\0'; list += strcspn(list, ",+")) {
        struct column *c = NULL;
        list += strspn(list, ",+");
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(list, ":,+"), list);
        if (strcmp(name, "raw") != 0) {
            TRY(column_open(&c, file_system_of(directory), directory, name, m, err));
            column_close(c);
        }
    }
    return STATUS_OK;
}

/* What a run may begin with. One that began continues with what it has. */
static enum status check_source(const char *directory,
                                const struct trainer_options *t,
                                bool captions,
                                bool begins,
                                struct error *err) {
    const char *const columns[] = {t->caption_columns, t->weight, t->reference, t->teacher_image,
                                   t->teacher_text};
    struct manifest m;
    TRY(manifest_read(&m, file_system_of(directory), directory, err));
    enum status s = STATUS_OK;
    for (size_t i = 0; s == STATUS_OK && i < CLI_COUNT(columns); i++) {
        s = check_columns(columns[i], directory, &m, err);
    }
    for (size_t i = 0; begins && i < m.option_count; i++) {
        if (strcmp(m.options[i].name, "part") == 0) {
            s = error_set(err, STATUS_USAGE,
                          "%s is part %s of a dataset; 'ccpack merge' makes all parts one",
                          directory, m.options[i].value);
        }
    }
    if (s == STATUS_OK && captions && m.texts == 0) {
        s = error_set(err, STATUS_USAGE,
                      "%s has no captions; --task two-views trains on images alone", directory);
    }
    manifest_fini(&m);
    return s;
}

/* What the trainer would find missing only after it has made the model. */
static enum status
check_inputs(const struct train_options *o, const struct trainer_options *t, struct error *err) {
    const char *const weights[] = {o->trainer.init_image, o->trainer.init_text};
    if (o->resume == NULL) { /* a run has all of these in its checkpoint */
        for (size_t i = 0; i < CLI_COUNT(weights); i++) {
            TRY(weights[i] != NULL ? path_check_weights(weights[i], err) : STATUS_OK);
        }
        if (o->trainer.tokenizer != NULL) {
            struct tokenizer *tokenizer;
            TRY(tokenizer_load(&tokenizer, o->trainer.tokenizer, err));
            tokenizer_close(tokenizer);
        }
    }
    TRY(o->trainer.zeroshot != NULL ? path_check_dataset(o->trainer.zeroshot, err) : STATUS_OK);
    if (o->trainer.knn != NULL) {
        char first[PATH_MAX_BYTES];
        const char *second;
        TRY(trainer_split_knn(first, &second, o->trainer.knn, err));
        TRY(path_check_dataset(first, err));
        TRY(path_check_dataset(second, err));
    }
    for (uint32_t i = 0; i < t->source_count; i++) {
        TRY(check_source(t->sources[i].directory, t, t->task == TRAINER_PAIRS || t->blocks.captions,
                         o->resume == NULL, err));
    }
    return o->trainer.val != NULL ? path_check_dataset(o->trainer.val, err) : STATUS_OK;
}

/* A schedule that --epochs changed keeps what was derived from the old number of epochs: the end of
 * gamma's schedule and of beta's, and the warm-up. */
static void keep_derived(struct train_options *o,
                         struct trainer_options *t,
                         const struct train_options *recorded) {
    if (o->trainer.loss.gamma_epochs == 0) {
        const uint64_t half = recorded->trainer.epochs / 2;
        o->trainer.loss.gamma_epochs = half > 0 ? half : 1;
        t->loss.gamma_epochs = o->trainer.loss.gamma_epochs;
    }
    if (o->trainer.loss.beta_epochs == 0) {
        o->trainer.loss.beta_epochs = recorded->trainer.epochs;
        t->loss.beta_epochs = o->trainer.loss.beta_epochs;
    }
    t->warmup_epochs = recorded->trainer.epochs;
}

/* *made: how many folders, with those above, were not there. */
static enum status make_run(const char *run, int *made, struct error *err) {
    const struct file_system *fs = file_posix();
    char at[PATH_MAX_BYTES];
    bool there = false;
    TRY(path_join(at, sizeof at, "", run, err));
    for (*made = 0; !there; *made += there ? 0 : 1) {
        TRY(fs->exists(fs->context, at, &there, err));
        TRY(path_directory(at, sizeof at, at, err));
    }
    TRY(file_make_parents(fs, run, err));
    return fs->make_directory(fs->context, run, err);
}

/* The folders that make_run made, if nothing was put in them. */
static void unmake_run(const char *run, int made) {
    char at[PATH_MAX_BYTES] = "";
    (void)path_join(at, sizeof at, "", run, NULL);
    while (made-- > 0 && rmdir(at) == 0) {
        (void)path_directory(at, sizeof at, at, NULL);
    }
}

/* Records the options in force. */
static enum status
write_config(const struct trainer_options *t, const struct train_options *o, struct error *err) {
    struct run_config_words paths = {0};
    struct train_options kept;
    enum status s = train_options_keep(&kept, &paths, o, err);
    THEN(s, run_config_write(train_program(), &kept, t->run_id, t->run, err));
    run_config_words_fini(&paths);
    return s;
}

/* The kind of device that the run will have; auto is opened to see what it is. */
static enum status
find_device(char *kind, size_t kind_size, const struct trainer_options *t, struct error *err) {
    struct device_options how = t->device_options;
    struct device *dev;
    (void)snprintf(kind, kind_size, "%.*s", (int)strcspn(t->device, ":"), t->device);
    if (strcmp(t->device, "auto") != 0) {
        return STATUS_OK;
    }
    how.threads_count = (int32_t)t->threads;
    TRY(comm_device_choose(t->comm, t->device, &how, err));
    TRY(device_open_with(&dev, t->device, &how, err));
    (void)snprintf(kind, kind_size, "%s", dev->ops->name);
    device_close(dev);
    return STATUS_OK;
}

/* Of --precision auto. Blocks are computed on the host, in f32. */
static void choose_precision(struct trainer_options *t, struct train_options *o, const char *kind) {
    if (o->precision == PRECISION_AUTO) {
        const bool half = strcmp(kind, "cuda") == 0 && t->task != TRAINER_BLOCKS;
        o->precision = half ? PRECISION_BF16 : PRECISION_F32;
        t->dtype = half ? DTYPE_BF16 : DTYPE_F32;
    }
}

/* Opens the trainer, in a new directory or on the run that is resumed. Rank 0 writes, when all
 * ranks have found that they can begin. */
static enum status open_run(struct trainer **out,
                            struct launch *l,
                            const struct trainer_options *t,
                            struct train_options *o,
                            const struct train_options *recorded,
                            bool on_cpu,
                            struct error *err) {
    int made = 0;
    enum status s = l->first && recorded == NULL ? make_run(t->run, &made, err) : STATUS_OK;
    if (s == STATUS_OK && l->first) {
        s = session_log_open(&l->launches, t->run, err);
    }
    TRY(agree(l, s, err));
    s = on_cpu ? memory_plan_check(t, free_memory_bytes(""), err) : STATUS_OK;
    s = agree(l, s, err);
    THEN(s, comm_watch(l->comm, t->run, err));
    THEN(s, trainer_create(out, t, err));
    if (s == STATUS_OK) {
        o->trainer.warmup_steps =
            t->warmup_epochs > 0 ? trainer_summary(*out).warmup_steps : o->trainer.warmup_steps;
        s = l->first ? write_config(t, o, err) : STATUS_OK;
        if (s == STATUS_OK && l->first) {
            s = session_log_add(l->launches, *out, t, l->argc, l->argv, err);
        }
        s = agree(l, s, err);
    }
    if (s != STATUS_OK) {
        trainer_destroy(*out);
        *out = NULL;
        if (recorded == NULL && l->first) {
            session_log_discard(t->run);
        }
        unmake_run(t->run, made);
    }
    return s;
}

/* Threads where the user asks for none: what this rank may use, or its share of the host if it is
 * not bound to less. */
static uint32_t default_threads(const struct comm *c) {
    cpu_set_t set;
    const long all = sysconf(_SC_NPROCESSORS_ONLN) / comm_local_world(c);
    const long own = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    const long threads = all < own ? all : own;
    return threads > 1 ? (uint32_t)threads : 1;
}

/* What depends on the rank. */
static void set_rank(struct trainer_options *t, const struct launch *l) {
    t->comm = l->comm;
    if (comm_world(l->comm) == 1) {
        return;
    }
    t->threads = t->threads > 0 ? t->threads : default_threads(l->comm);
    t->loader_threads = t->loader_threads > 0 ? t->loader_threads : default_threads(l->comm);
}

/* Before anything is written: what may differ from host to host. */
static enum status check_start(const struct train_options *o,
                               const struct trainer_options *t,
                               bool is_new,
                               struct error *err) {
    TRY(check_inputs(o, t, err));
    FAIL_IF(t->tensorboard != NULL && path_check_dataset(t->tensorboard, NULL) == STATUS_OK, err,
            STATUS_EXISTS, "%s is a dataset; choose another --tensorboard", t->tensorboard);
    return is_new && !o->trainer.init_state && o->remap_state.count > 0
               ? error_set(err, STATUS_USAGE,
                           "--remap-state needs a run whose state it maps: --resume RUN, or --init "
                           "RUN --init-state")
               : STATUS_OK;
}

/* Where a GPU's memory was not enough: the largest micro-batch that fits into it. Returns s. */
static enum status
suggest_micro_batch(const struct trainer_options *t, enum status s, struct error *err) {
    struct device_options how = t->device_options;
    struct device *dev;
    struct error why = {0};
    if (s != STATUS_NOMEM || comm_device_choose(t->comm, t->device, &how, NULL) != STATUS_OK ||
        device_open_with(&dev, t->device, &how, NULL) != STATUS_OK) {
        return s;
    }
    /* On an H200 the workspaces of libraries and the recordings took 1.6 of 30.6 GiB. */
    const uint64_t free_bytes = dev->free_bytes / 16 * 15;
    device_close(dev);
    return free_bytes > 0 && memory_plan_check(t, free_bytes, &why) == STATUS_NOMEM
               ? error_pass(err, s, &why)
               : s;
}

/* RUN/report.html, whatever the run's end was, by the program that makes it; its errors are on
 * stderr. It is no failure of the run if it cannot be written. */
static void write_report(const struct log_sink *log, const char *run) {
    char path[PATH_MAX_BYTES];
    char copy[PATH_MAX_BYTES];
    char *words[] = {path, (char[]){"--quiet"}, (char[]){"--trust"}, (char[]){"--"}, copy, NULL};
    int state = -1;
    pid_t child;
    if (!module_file_find(path, sizeof path, "ccstream-report", "CCSTREAM_REPORT")) {
        log_write(log, LOG_LEVEL_INFO,
                  "no report.html: ccstream-report, which is written in "
                  "Python, is not beside this program");
        return;
    }
    (void)snprintf(copy, sizeof copy, "%s", run);
    char **const environment = child_environment(true); /* datasets may be at servers */
    const bool started =
        environment != NULL && posix_spawn(&child, path, NULL, NULL, words, environment) == 0;
    while (started && waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    free(environment);
    if (!started) {
        log_write(log, LOG_LEVEL_WARN,
                  "no report.html: %s cannot be started; it requires Python "
                  "3.11",
                  path);
    } else if (state != 0) {
        log_write(log, LOG_LEVEL_WARN,
                  "the report was not written; 'ccstream-report %s' tries "
                  "again",
                  run);
    }
}

static void report_saved(void *cookie, uint64_t step) {
    const struct live *live = cookie;
    (void)step;
    write_report(&live->log, live->run);
}

/* Until the end of the run. */
static enum status run_trainer(struct trainer *trainer,
                               struct launch *l,
                               const struct train_options *o,
                               struct live *live,
                               uint32_t sources_count,
                               struct error *err) {
    struct retrieval_result result = {0};
    const struct trainer_summary sum = trainer_summary(trainer);
    cli_signals_install();
    live->on_cpu =
        strncmp(o->trainer.device, "cuda", 4) != 0 && strcmp(o->trainer.device, "auto") != 0;
    live_begin(live, sum.step, sum.steps_per_epoch);
    enum status s = trainer_run(trainer, &result, err);
    live_end(live);
    l->failed_together = trainer_failed_together(trainer);
    if (s == STATUS_INTERRUPTED) { /* as asked, and everything is saved */
        log_write(l->first ? &live->log : NULL, LOG_LEVEL_WARN, "%s", err->text);
        s = STATUS_OK;
    }
    announce_messages(&live->log, l->comm, live->steps);
    if (s == STATUS_OK && o->json && l->first) {
        s = print_json(trainer, l->comm, sources_count, live, live->run, &result, err);
        l->failed_together = false;
    }
    return s;
}

/* `recorded`: the options of the run that is resumed; NULL: a new run. */
static enum status train_on(struct data_list *data,
                            struct launch *l,
                            const struct train_options *given,
                            const struct train_options *recorded,
                            struct live *live,
                            struct error *err) {
    struct train_options o = *given;
    char id[RUN_CONFIG_ID_BYTES];
    char kind[16] = "";
    struct trainer_options t;
    TRY(train_options_apply(&t, data, &o, live->run, err));
    set_rank(&t, l);
    TRY(agree(l, find_device(kind, sizeof kind, &t, err), err));
    if (recorded == NULL) { /* else there is no choice */
        choose_precision(&t, &o, kind);
    }
    if (o.dry_run) {
        enum status s = l->first ? check_inputs(&o, &t, err) : STATUS_OK;
        const bool on_gpu = strcmp(kind, "cuda") == 0;
        s = s == STATUS_OK && l->first ? memory_plan_print(&t, on_gpu, err) : s;
        return agree(l, s, err);
    }
    TRY(agree(l, check_start(&o, &t, recorded == NULL, err), err));
    run_config_id(id, live->run);
    t.run_id = id;
    t.log = &live->log;
    if (l->first) {
        t.on_step = live_step;
        t.on_retrieval = live_retrieval;
        t.on_zeroshot = live_zeroshot;
        t.on_features = live_features;
        t.on_saved = o.report ? report_saved : NULL;
    }
    t.should_stop = cli_interrupted_callback;
    t.cookie = live;
    if (recorded != NULL && o.trainer.epochs != recorded->trainer.epochs) {
        keep_derived(&o, &t, recorded);
    }
    struct trainer *trainer = NULL;
    TRY(suggest_micro_batch(
        &t, open_run(&trainer, l, &t, &o, recorded, strcmp(kind, "cpu") == 0, err), err));
    l->running = true;
    announce_start(&live->log, trainer, &o, live->run);
    if (recorded == NULL && given->precision == PRECISION_AUTO && t.dtype == DTYPE_BF16) {
        log_write(l->first ? &live->log : NULL, LOG_LEVEL_INFO,
                  "precision bf16, as on every GPU; --precision f32 for exact f32");
    }
    announce_ranks(&live->log, &t);
    announce_sources(&live->log, trainer, data->count);
    if (recorded != NULL) {
        announce_changes(&live->log, trainer, &o, recorded);
    }
    enum status s = run_trainer(trainer, l, &o, live, data->count, err);
    trainer_destroy(trainer);
    s = suggest_micro_batch(&t, s, err);
    if (l->first) {
        write_report(&l->log, live->run);
    }
    if (l->first && s == STATUS_OK) {
        announce_end(&live->log, &o, live->run);
    }
    return s;
}

static enum status train(struct launch *l,
                         const struct train_options *o,
                         const struct train_options *recorded,
                         const char *run,
                         struct error *err) {
    struct live live;
    struct data_list *data = calloc(1, sizeof *data);
    TRY_MEMORY(data, err, "out of memory");
    l->log.max_level = o->quiet || !l->first ? LOG_LEVEL_WARN : LOG_LEVEL_INFO;
    live_init(&live, (enum live_mode)o->progress, l->log, run);
    l->log.max_level = live.log.max_level;
    const enum status s = train_on(data, l, o, recorded, &live, err);
    session_log_close(l->launches);
    live_fini(&live);
    free(data);
    return s;
}

/* A folder may hold a job's files, but none that the run would write over. */
static enum status check_out(const char *out, struct error *err) {
    static const char *const names[] = {"config.json", "metrics.jsonl", "checkpoints", "last",
                                        "report.html"}; /* none made before all ranks are here */
    char path[PATH_MAX_BYTES];
    bool there[CLI_COUNT(names)];
    for (size_t i = 0; i < CLI_COUNT(names); i++) {
        TRY(path_join(path, sizeof path, out, names[i], err));
        TRY(file_posix()->exists(file_posix()->context, path, &there[i], err));
    }
    FAIL_IF(there[0] && there[1], err, STATUS_EXISTS,
            "%s holds a run already; 'ccstream-train --resume %s' continues it; or choose "
            "another --out",
            out, out);
    TRY(output_check_folder(out, OUTPUT_FOLDER, err));
    for (size_t i = 0; i < CLI_COUNT(names); i++) {
        FAIL_IF(there[i], err, STATUS_EXISTS,
                "%s has a %s, which a run would replace; choose another --out", out, names[i]);
    }
    return STATUS_OK;
}

static enum status start_new(struct launch *l, const struct train_options *o, struct error *err) {
    if (o->data.count > 0 && o->dry_run) {
        return train(l, o, NULL, "", err);
    }
    FAIL_IF(o->data.count == 0 || o->out == NULL, err, STATUS_USAGE,
            "--data DIR and --out RUN are needed, or --resume RUN");
    TRY(check_out(o->out, err));
    return train(l, o, NULL, o->out, err);
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

static enum status resume(struct launch *l,
                          const struct train_options *o,
                          const struct train_options *recorded,
                          struct error *err) {
    FAIL_IF(o->data.count == 0, err, STATUS_CORRUPT, "%s/config.json names no dataset; give --data",
            o->resume);
    TRY(check_data(o, err));
    return train(l, o, recorded, o->resume, err);
}

/* --model of the command line, or of the preset; NULL: neither has one. */
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

/* What --model sets: for pairs the embeddings too. */
static enum status add_model(struct run_config_words *line,
                             const struct train_options *given,
                             const char *model,
                             struct error *err) {
    struct train_options before;
    struct cli_arguments args = {0};
    TRY(cli_parse_words(train_program(), &before, &args, line->count, line->words, true, err));
    const bool pairs = given->trainer.task == TRAINER_PAIRS && before.trainer.task == TRAINER_PAIRS;
    cli_arguments_fini(&args);
    return run_config_add_clip(line, model, !pairs, err);
}

/* The words that a run's options come from, in order: those of the run that is resumed, or a
 * preset, a file, the model of --init and what --model sets; then the command line, argv, and
 * --model once more, as JSON. */
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
    struct train_options o;
    struct train_options recorded;
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

/* One line for a failure of all ranks; of a rank that fails alone its own, and the end of the
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
    if (all != STATUS_OK) { /* over MPI the watch notices; Gloo's connections close */
        log_write(&l->log, LOG_LEVEL_ERROR, "%s", err->text);
        comm_fail(l->comm, err, status_exit_code(all));
    }
    comm_close(l->comm);
    return code;
}

/* As one of the ranks that a launcher started, or alone. */
static int train_as_rank(const struct train_options *o,
                         const struct cli_arguments *typed,
                         int argc,
                         char **argv) {
    char name[64];
    const struct log_sink plain = log_stderr(train_program()->name, LOG_LEVEL_WARN);
    struct launch l = {.argc = argc, .argv = argv, .first = true, .launches = -1};
    struct comm_options how;
    struct error err = {0};
    int32_t rank;
    int32_t world;
    const char *launcher;
    comm_launched(&rank, &world, &launcher);
    (void)snprintf(name, sizeof name, "%s", train_program()->name);
    l.log = log_stderr(name, LOG_LEVEL_WARN);
    comm_options_default(&how);
    how.ranks = (enum comm_ranks)o->ranks;
    how.transport = (enum comm_transport)o->transport;
    how.run = o->resume != NULL ? o->resume : o->out;
    how.timeout_ms = (int64_t)o->rank_timeout_seconds * 1000;
    how.log = &plain; /* its lines name the rank */
    enum status s = comm_open(&l.comm, &how, &err);
    if (s != STATUS_OK) { /* the ranks cannot ask each other; rank 0 may not know of a connection */
        if (rank > 0 && s == STATUS_IO) {
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
        s = agree(&l, s, &err);
    }
    return end(&l, s, &err);
}

/* --attach: no rank of anything. */
static int show(const struct train_options *o, const struct cli_arguments *typed) {
    static const char *const together[] = {"attach", "progress", "quiet"};
    struct log_sink log =
        log_stderr(train_program()->name, o->quiet ? LOG_LEVEL_WARN : LOG_LEVEL_INFO);
    struct live live;
    struct error err = {0};
    const struct cli_option *row;
    enum status s = STATUS_OK;
    for (size_t i = 0; (row = cli_row(train_program(), i)) != NULL && s == STATUS_OK; i++) {
        bool fits = !typed->given[i];
        for (size_t k = 0; k < CLI_COUNT(together); k++) {
            fits |= strcmp(row->name, together[k]) == 0;
        }
        if (!fits) {
            s = error_set(&err, STATUS_USAGE,
                          "--%s has no use with --attach, which looks at a run that another "
                          "process trains",
                          row->name);
        }
    }
    if (s == STATUS_OK) {
        cli_signals_install();
        live_init(&live, (enum live_mode)o->progress, log, o->attach);
        s = attach(&live, &err);
        live_fini(&live);
    }
    return cli_exit(train_program(), s, &err);
}

int main(int argc, char **argv) {
    openmp_wait_briefly(argv);
    cli_signals_install_usr1();    /* a job's time may be up before its first step */
    static struct train_options o; /* too large for a frame */
    struct cli_arguments args = {0};
    struct error err = {0};
    cli_catch_sigbus();
    enum status s = cli_parse(train_program(), &o, &args, argc, argv, &err);
    if (s == STATUS_OK && o.list_devices) {
        device_list(print_device, NULL);
        cli_arguments_fini(&args);
        return cli_exit(train_program(), s, &err);
    }
    int code;
    if (s == STATUS_OK && o.attach != NULL) {
        code = show(&o, &args);
    } else if (s == STATUS_OK) {
        code = train_as_rank(&o, &args, argc, argv);
    } else {
        int32_t rank;
        int32_t world;
        const char *launcher;
        comm_launched(&rank, &world, &launcher); /* the ranks have the same command line */
        code = rank > 0 ? status_exit_code(s) : cli_exit(train_program(), s, &err);
    }
    cli_arguments_fini(&args);
    return code;
}
