/*
 * session: one call of ccstream-train that trains a run, from its options to its report.
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
#include "kernels/ops.h"
#include "tools/ccstream_train/ccstream_train_internal.h"
#include "tools/cli/free_memory.h"
#include "tools/inspect/run_config.h"
#include "train/comm/comm_device.h"

enum status session_agree(struct launch *l, enum status own, struct error *err) {
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

/* If --epochs changes, values derived from the old number of epochs stay: the end of gamma's and
 * beta's schedules, and the warmup. */
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

/* *made: how many folders, including parents, were created. */
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

/* Removes the folders that make_run created, if they are empty. */
static void unmake_run(const char *run, int made) {
    char at[PATH_MAX_BYTES] = "";
    (void)path_join(at, sizeof at, "", run, NULL);
    while (made-- > 0 && rmdir(at) == 0) {
        (void)path_directory(at, sizeof at, at, NULL);
    }
}

/* Records the current options. */
static enum status
write_config(const struct trainer_options *t, const struct train_options *o, struct error *err) {
    struct run_config_words paths = {0};
    struct train_options kept;
    enum status s = train_options_keep(&kept, &paths, o, err);
    THEN(s, run_config_write(train_program(), &kept, t->run_id, t->run, err));
    run_config_words_fini(&paths);
    return s;
}

/* The kind of device of the run; "auto" is opened to find out. */
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

/* For --precision auto. Blocks are computed on the host, in f32. */
static void choose_precision(struct trainer_options *t, struct train_options *o, const char *kind) {
    if (o->precision == PRECISION_AUTO) {
        const bool half = strcmp(kind, "cuda") == 0 && t->task != TRAINER_BLOCKS;
        o->precision = half ? PRECISION_BF16 : PRECISION_F32;
        t->dtype = half ? DTYPE_BF16 : DTYPE_F32;
    }
}

/* Opens the trainer, in a new directory or on the resumed run. Rank 0 writes, after all ranks have
 * checked that they can begin. */
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
    TRY(session_agree(l, s, err));
    s = on_cpu ? memory_plan_check(t, free_memory_bytes(""), err) : STATUS_OK;
    s = session_agree(l, s, err);
    THEN(s, comm_watch(l->comm, t->run, err));
    THEN(s, trainer_create(out, t, err));
    if (s == STATUS_OK) {
        o->trainer.warmup_steps =
            t->warmup_epochs > 0 ? trainer_summary(*out).warmup_steps : o->trainer.warmup_steps;
        s = l->first ? write_config(t, o, err) : STATUS_OK;
        if (s == STATUS_OK && l->first) {
            s = session_log_add(l->launches, *out, t, l->argc, l->argv, err);
        }
        s = session_agree(l, s, err);
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

/* The default number of threads: what this rank may use, or its part of the host if it is not bound
 * to less. */
static uint32_t default_threads(const struct comm *c) {
    cpu_set_t set;
    const long all = sysconf(_SC_NPROCESSORS_ONLN) / comm_local_world(c);
    const long own = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    const long threads = all < own ? all : own;
    return threads > 1 ? (uint32_t)threads : 1;
}

/* Options that depend on the rank. */
static void set_rank(struct trainer_options *t, const struct launch *l) {
    t->comm = l->comm;
    if (comm_world(l->comm) == 1) {
        return;
    }
    t->threads = t->threads > 0 ? t->threads : default_threads(l->comm);
    t->loader_threads = t->loader_threads > 0 ? t->loader_threads : default_threads(l->comm);
}

/* If a GPU's memory is insufficient: adds the largest micro-batch that fits to the message. Returns
 * s. */
static enum status
suggest_micro_batch(const struct trainer_options *t, enum status s, struct error *err) {
    struct device_options how = t->device_options;
    struct device *dev;
    struct error why = {0};
    if (s != STATUS_NOMEM || comm_device_choose(t->comm, t->device, &how, NULL) != STATUS_OK ||
        device_open_with(&dev, t->device, &how, NULL) != STATUS_OK) {
        return s;
    }
    /* On an H200 workspaces of libraries and captured graphs took 1.6 of 30.6 GiB. */
    const uint64_t free_bytes = dev->free_bytes / 16 * 15;
    device_close(dev);
    return free_bytes > 0 && memory_plan_check(t, free_bytes, &why) == STATUS_NOMEM
               ? error_pass(err, s, &why)
               : s;
}

/* Writes RUN/report.html with ccstream-report, however the run ended; its errors are on stderr. A
 * failure to write it is not a failure of the run. */
static void write_report(const struct log_sink *log, const struct live *live) {
    char path[PATH_MAX_BYTES];
    char run[PATH_MAX_BYTES];
    char probe[48];
    char *words[] = {path, (char[]){"--quiet"}, (char[]){"--trust"}, probe, (char[]){"--"}, run,
                     NULL};
    int state = -1;
    pid_t child;
    if (!module_file_find(path, sizeof path, "ccstream-report", "CCSTREAM_REPORT")) {
        log_write(
            log, LOG_LEVEL_INFO,
            "no report.html: ccstream-report, which requires Python, is not next to this program");
        return;
    }
    (void)snprintf(run, sizeof run, "%s", live->run);
    (void)snprintf(probe, sizeof probe, "--probe-pairs=%" PRIu64, live->probe_pairs);
    char **const environment = child_environment(true); /* datasets may be remote */
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
                  "the report was not written; run 'ccstream-report %s' to try again", run);
    }
}

static void report_saved(void *cookie, uint64_t step) {
    const struct live *live = cookie;
    (void)step;
    write_report(&live->log, live);
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
    if (s == STATUS_INTERRUPTED) { /* stopped on request, and everything is saved */
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

/* `recorded`: the options of the resumed run; NULL: a new run. */
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
    TRY(session_agree(l, find_device(kind, sizeof kind, &t, err), err));
    if (recorded == NULL) { /* else there is no choice */
        choose_precision(&t, &o, kind);
    }
    if (o.dry_run) {
        enum status s = l->first ? check_inputs(&o, &t, err) : STATUS_OK;
        const bool on_gpu = strcmp(kind, "cuda") == 0;
        s = s == STATUS_OK && l->first ? memory_plan_print(&t, on_gpu, err) : s;
        return session_agree(l, s, err);
    }
    TRY(session_agree(l, check_start(&o, &t, recorded == NULL, err), err));
    run_config_id(id, live->run);
    t.run_id = id;
    t.log = &live->log;
    live->probe_pairs = train_options_loss_reads(&o, LOSS_ZETA0) ? o.probe_pairs : 0;
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
        write_report(&l->log, live);
    }
    if (l->first && s == STATUS_OK) {
        announce_end(&live->log, &o, live->run);
    }
    return s;
}

enum status session_train(struct launch *l,
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
