/*
 * ccstream-train: options, RUN/config.json, the live line; the run itself is train/trainer.
 *
 * RUN/config.json holds the options of a run as text. --resume reads them as if they stood on the
 * command line, before what really stands there; options that would make it another run are
 * refused.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/file_io.h"
#include "formats/base/json_writer.h"
#include "formats/tokenizer.h"
#include "tools/cli.h"
#include "tools/openmp_wait.h"
#include "tools/run_config.h"
#include "train/trainer.h"

struct options {
    const char *data, *val, *out, *resume;
    const char *image_tower, *text_tower;
    int stem;
    uint64_t image_size, max_tokens, embed_dim;
    double dropout;
    bool no_clean;

    int loss;
    double tau, gamma, zeta0, xi0, zeta_lr, zeta_lr_image_ratio, zeta_momentum;
    uint64_t zeta_freeze_epochs;
    int zeta_gradient;

    uint64_t batch, epochs, max_steps;
    double lr, min_lr;
    const char *warmup_steps;
    double weight_decay, beta1, beta2, adam_eps, clip_norm;
    uint64_t seed;

    const char *device;
    uint64_t threads, loader_threads;
    int engine;
    uint64_t checkpoint_steps, keep, eval_epochs;
    bool dry_run, json, quiet;
};

static const char *const loss_choices[] = {"clip", "sogclr", "nuclr", NULL};
static const char *const stem_choices[] = {"standard", "small", NULL};
static const char *const engine_choices[] = {"auto", "io_uring", "pread", NULL};
static const char *const gradient_choices[] = {"paper", "unbiased", NULL};

#define FIELD(name) CLI_FIELD(struct options, name)

static const struct cli_option rows[] = {
    {"data", 'd', CLI_STRING, FIELD(data), .metavar = "DIR", .group = "Run",
     .help = "dataset made by ccpack, with a tokenizer"},
    {"out", 'o', CLI_STRING, FIELD(out), .metavar = "RUN", .group = "Run",
     .help = "new directory for checkpoints, metrics.jsonl and config.json"},
    {"resume", 'r', CLI_STRING, FIELD(resume), .metavar = "RUN", .group = "Run",
     .help = "go on with a run: from its newest checkpoint, or from step 0 when it has none; "
             "a finished run is left as it is"},
    {"val", 'v', CLI_STRING, FIELD(val), .metavar = "DIR", .group = "Run",
     .help = "dataset for retrieval between epochs and at the end"},
    {"eval-epochs", 0, CLI_U64, FIELD(eval_epochs), .min = "0", .max = "1000000",
     .default_text = "1", .metavar = "N", .group = "Run",
     .help = "evaluate on --val every N epochs; 0: only at the end"},
    {"checkpoint-steps", 0, CLI_U64, FIELD(checkpoint_steps), .min = "0", .max = "1000000000",
     .default_text = "0", .metavar = "N", .group = "Run",
     .help = "also save every N steps; 0: at the end of epochs, at the end, and when stopped"},
    {"keep", 0, CLI_U64, FIELD(keep), .min = "1", .max = "1000", .default_text = "2",
     .metavar = "N", .group = "Run", .help = "checkpoints that stay"},
    {"max-steps", 0, CLI_U64, FIELD(max_steps), .min = "0", .max = "1000000000000",
     .default_text = "0", .metavar = "N", .group = "Run",
     .help = "stop after step N of the whole schedule, which --epochs sets; 0: train to its end"},
    {"dry-run", 0, CLI_FLAG, FIELD(dry_run), .group = "Run",
     .help = "print the memory plan and end"},
    {"json", 0, CLI_FLAG, FIELD(json), .group = "Run",
     .help = "a JSON summary on stdout at the end"},
    {"quiet", 'q', CLI_FLAG, FIELD(quiet), .group = "Run",
     .help = "no progress, only warnings and errors"},

    {"image-tower", 0, CLI_STRING, FIELD(image_tower), .default_text = "resnet50",
     .metavar = "NAME", .group = "Model",
     .help = "resnet10t, resnet18, resnet34 or resnet50 (timm's names)"},
    {"text-tower", 0, CLI_STRING, FIELD(text_tower), .default_text = "distil", .metavar = "NAME",
     .group = "Model",
     .help = "tiny (2 layers of 192), small (4 of 384) or distil (6 of 768, DistilBERT)"},
    {"image-size", 0, CLI_U64, FIELD(image_size), .min = "8", .max = "1024", .default_text = "256",
     .metavar = "PX", .group = "Model", .help = "side of the square the model sees"},
    {"stem", 0, CLI_ENUM, FIELD(stem), .default_text = "standard", .choices = stem_choices,
     .metavar = "KIND", .group = "Model",
     .help = "small: stride 1 and no pooling in the stem, for images of 32 to 64 px"},
    {"max-tokens", 0, CLI_U64, FIELD(max_tokens), .min = "2", .max = "512", .default_text = "30",
     .metavar = "N", .group = "Model", .help = "tokens of a caption, with begin and end"},
    {"embed-dim", 0, CLI_U64, FIELD(embed_dim), .min = "1", .max = "8192", .default_text = "256",
     .metavar = "N", .group = "Model", .help = "size of the common space"},
    {"dropout", 0, CLI_DOUBLE, FIELD(dropout), .min = "0", .max = "0.9", .default_text = "0.1",
     .metavar = "P", .group = "Model", .help = "dropout of the text tower"},
    {"no-clean", 0, CLI_FLAG, FIELD(no_clean), .group = "Model",
     .help = "captions go to the tokenizer as they are, without the paper's cleaning"},

    {"loss", 'l', CLI_ENUM, FIELD(loss), .default_text = "nuclr", .choices = loss_choices,
     .metavar = "NAME", .group = "Loss",
     .help = "clip (InfoNCE), sogclr (global contrastive), nuclr (ICLR 2025, Algorithm 1)"},
    {"tau", 0, CLI_DOUBLE, FIELD(tau), .min = "0.0001", .max = "100", .default_text = "0.01",
     .metavar = "X", .group = "Loss", .help = "temperature"},
    {"gamma", 0, CLI_DOUBLE, FIELD(gamma), .min = "0.000001", .max = "1", .default_text = "0.8",
     .metavar = "X", .group = "Loss",
     .help = "sogclr, nuclr: weight of the new value in the running sums u"},
    {"zeta0", 0, CLI_DOUBLE, FIELD(zeta0), .min = "-10", .max = "10", .default_text = "-0.05",
     .metavar = "X", .group = "Loss",
     .help = "nuclr: first zeta (paper: -0.05 on CC3M, 0 on CC12M)"},
    {"xi0", 0, CLI_DOUBLE, FIELD(xi0), .min = "-10", .max = "10", .default_text = "0",
     .metavar = "X", .group = "Loss", .help = "nuclr: first xi"},
    {"zeta-lr", 0, CLI_DOUBLE, FIELD(zeta_lr), .min = "0", .max = "100", .default_text = "0.000005",
     .metavar = "X", .group = "Loss",
     .help = "nuclr: peak step size of zeta of texts, for n-scaled gradients (paper: 5e-6 with 2.8 "
             "million samples)"},
    {"zeta-lr-image-ratio", 0, CLI_DOUBLE, FIELD(zeta_lr_image_ratio), .min = "0", .max = "1000",
     .default_text = "0.1", .metavar = "X", .group = "Loss",
     .help = "nuclr: that of images relative to it"},
    {"zeta-momentum", 0, CLI_DOUBLE, FIELD(zeta_momentum), .min = "0.000001", .max = "1",
     .default_text = "0.9", .metavar = "X", .group = "Loss",
     .help = "nuclr: weight of the new gradient in zeta's momentum"},
    {"zeta-freeze-epochs", 0, CLI_U64, FIELD(zeta_freeze_epochs), .min = "0", .max = "1000000",
     .default_text = "5", .metavar = "N", .group = "Loss",
     .help = "nuclr: zeta stays at --zeta0 in the first N epochs"},
    {"zeta-gradient", 0, CLI_ENUM, FIELD(zeta_gradient), .default_text = "paper",
     .choices = gradient_choices, .metavar = "KIND", .group = "Loss",
     .help = "nuclr: as published, or unbiased given that the sample is in the batch"},

    {"batch", 'b', CLI_U64, FIELD(batch), .min = "2", .max = "32768", .default_text = "512",
     .metavar = "N", .group = "Optimiser", .help = "global batch"},
    {"epochs", 'e', CLI_U64, FIELD(epochs), .min = "1", .max = "1000000", .default_text = "30",
     .metavar = "N", .group = "Optimiser", .help = "passes over the data"},
    {"lr", 0, CLI_DOUBLE, FIELD(lr), .min = "0", .max = "100", .default_text = "0.0002",
     .metavar = "X", .group = "Optimiser", .help = "peak learning rate of AdamW"},
    {"min-lr", 0, CLI_DOUBLE, FIELD(min_lr), .min = "0", .max = "100", .default_text = "0.000001",
     .metavar = "X", .group = "Optimiser", .help = "learning rate at the end of the cosine"},
    {"warmup-steps", 0, CLI_STRING, FIELD(warmup_steps), .default_text = "auto", .metavar = "N",
     .group = "Optimiser",
     .help = "steps of linear warm-up; auto: 500, or a tenth of the run where that is less"},
    {"weight-decay", 0, CLI_DOUBLE, FIELD(weight_decay), .min = "0", .max = "100",
     .default_text = "0.02", .metavar = "X", .group = "Optimiser",
     .help = "decoupled; not for biases and other one-dimensional tensors"},
    {"beta1", 0, CLI_DOUBLE, FIELD(beta1), .min = "0", .max = "0.9999999", .default_text = "0.9",
     .metavar = "X", .group = "Optimiser", .help = "AdamW"},
    {"beta2", 0, CLI_DOUBLE, FIELD(beta2), .min = "0", .max = "0.9999999", .default_text = "0.999",
     .metavar = "X", .group = "Optimiser", .help = "AdamW"},
    {"adam-eps", 0, CLI_DOUBLE, FIELD(adam_eps), .min = "0", .max = "1",
     .default_text = "0.00000001", .metavar = "X", .group = "Optimiser", .help = "AdamW"},
    {"clip-norm", 0, CLI_DOUBLE, FIELD(clip_norm), .min = "0", .max = "1000000",
     .default_text = "0", .metavar = "X", .group = "Optimiser",
     .help = "scale gradients down to this global norm; 0: never"},
    {"seed", 's', CLI_U64, FIELD(seed), .min = "0", .max = "9223372036854775807",
     .default_text = "0", .metavar = "N", .group = "Optimiser",
     .help = "of first values, order, augmentation and dropout"},

    {"device", 0, CLI_STRING, FIELD(device), .default_text = "cpu", .metavar = "NAME",
     .group = "Machine", .help = "cpu (oneDNN), or cpu-ref (plain loops, for checking only)"},
    {"threads", 't', CLI_U64, FIELD(threads), .min = "0", .max = "1024", .default_text = "0",
     .metavar = "N", .group = "Machine", .help = "compute threads; 0: all CPUs"},
    {"loader-threads", 0, CLI_U64, FIELD(loader_threads), .min = "0", .max = "1024",
     .default_text = "0", .metavar = "N", .group = "Machine",
     .help = "decode threads; 0: one per CPU. No number changes any batch"},
    {"engine", 0, CLI_ENUM, FIELD(engine), .default_text = "auto", .choices = engine_choices,
     .metavar = "NAME", .group = "Machine",
     .help = "how shards are read; auto: io_uring, or pread where the kernel refuses it"},
};

/* What a resumed run may change: none of these has a say in the numbers, but the data's fingerprint
 * is checked. */
static const char *const changeable[] = {
    "data", "val",   "resume", "eval-epochs", "checkpoint-steps", "keep",  "max-steps",
    "json", "quiet", "device", "threads",     "loader-threads",   "engine"};

static const struct cli_program program = {
    .name = "ccstream-train",
    .purpose = "trains an image and a text tower with a global contrastive loss",
    .usage =
        (const char *const[]){"--data DIR --out RUN [options]", "--resume RUN [options]", NULL},
    .examples = (const char *const[]){"ccstream-train --data cc3m --val coco-val --out runs/a "
                                      "--loss nuclr --batch 512 --epochs 30",
                                      "ccstream-train --data small --out runs/b --image-tower "
                                      "resnet18 --text-tower tiny --image-size 96 "
                                      "--batch 128 --epochs 5 --zeta-freeze-epochs 1",
                                      "ccstream-train --resume runs/a", NULL},
    .notes = (const char *const[]){"SIGINT and SIGTERM save a checkpoint and end the run with exit "
                                   "code 130; --resume goes on exactly "
                                   "there.",
                                   NULL},
    .options = rows,
    .option_count = CLI_COUNT(rows),
};

/* ---- options of a run, from text ---- */

static enum status trainer_options_from(struct trainer_options *t,
                                        const struct options *o,
                                        const char *run,
                                        struct error *err) {
    trainer_options_default(t);
    t->data = o->data;
    t->val = o->val;
    t->run = run;
    t->loss = (struct loss_options){.name = loss_choices[o->loss],
                                    .tau = o->tau,
                                    .gamma = o->gamma,
                                    .zeta0 = o->zeta0,
                                    .xi0 = o->xi0,
                                    .zeta_momentum = o->zeta_momentum,
                                    .zeta_unbiased = o->zeta_gradient == 1};
    t->zeta_lr = o->zeta_lr;
    t->zeta_lr_image_ratio = o->zeta_lr_image_ratio;
    t->zeta_freeze_epochs = (uint32_t)o->zeta_freeze_epochs;
    t->image_tower = o->image_tower;
    t->text_tower = o->text_tower;
    t->small_stem = o->stem == 1;
    t->image_size_px = (uint32_t)o->image_size;
    t->max_tokens = (uint32_t)o->max_tokens;
    t->embed_dim = (uint32_t)o->embed_dim;
    t->dropout = o->dropout;
    t->clean_captions = !o->no_clean;
    t->batch_count = (uint32_t)o->batch;
    t->epochs = o->epochs;
    t->max_steps = o->max_steps;
    t->lr = o->lr;
    t->min_lr = o->min_lr;
    t->optimizer = (struct optimizer_options){.beta1 = o->beta1,
                                              .beta2 = o->beta2,
                                              .eps = o->adam_eps,
                                              .weight_decay = o->weight_decay,
                                              .clip_norm = o->clip_norm};
    t->seed = o->seed;
    t->device = o->device;
    t->threads = (uint32_t)o->threads;
    t->loader_threads = (uint32_t)o->loader_threads;
    t->engine = (enum loader_engine)o->engine;
    t->checkpoint_steps = o->checkpoint_steps;
    t->keep_count = (uint32_t)o->keep;
    t->eval_epochs = (uint32_t)o->eval_epochs;
    if (strcmp(o->warmup_steps, "auto") != 0 &&
        !cli_parse_u64(o->warmup_steps, CLI_UNIT_NONE, &t->warmup_steps)) {
        return error_set(err, STATUS_USAGE, "--warmup-steps takes a whole number or auto, not '%s'",
                         o->warmup_steps);
    }
    if (o->min_lr > o->lr) {
        return error_set(err, STATUS_USAGE, "--min-lr %g lies above --lr %g", o->min_lr, o->lr);
    }
    return STATUS_OK;
}

/* ---- resuming ---- */

static enum status check_unchanged(const struct cli_arguments *given, struct error *err) {
    for (size_t i = 0; i < CLI_COUNT(rows); i++) {
        bool allowed = !given->given[i];
        for (size_t k = 0; !allowed && k < CLI_COUNT(changeable); k++) {
            allowed = strcmp(rows[i].name, changeable[k]) == 0;
        }
        if (!allowed) {
            return error_set(err, STATUS_USAGE,
                             "--%s cannot be given with --resume: it is part of the run; start a "
                             "new one with --out",
                             rows[i].name);
        }
    }
    return STATUS_OK;
}

/* ---- the live line ---- */

struct live {
    struct cli_progress progress;
    struct log_sink log;
    bool quiet;
    int64_t started_ns, logged_ns;
    double mean_rate; /* of the last steps */
    double objective;
    uint64_t steps;
};

static void on_step(void *cookie, const struct step_report *r, uint64_t total_steps) {
    static const int64_t log_every_ns = INT64_C(10) * 1000 * 1000 * 1000;
    struct live *l = cookie;
    l->steps++;
    l->objective = r->objective;
    l->mean_rate = l->steps == 1 ? r->pairs_per_s : 0.95 * l->mean_rate + 0.05 * r->pairs_per_s;
    char extra[160];
    (void)snprintf(extra, sizeof extra,
                   "epoch %" PRIu64 "  objective %.4f  grad %.3g  lr %.3g  %.0f pairs/s",
                   r->epoch + 1, r->objective, r->grad_norm, r->lr, l->mean_rate);
    cli_progress_update(&l->progress, r->step, total_steps, 0, extra);
    const int64_t now_ns = clock_now_ns();
    if (!l->progress.active && !l->quiet &&
        (now_ns - l->logged_ns > log_every_ns || r->step == total_steps)) {
        l->logged_ns = now_ns;
        log_write(&l->log, LOG_LEVEL_INFO, "step %" PRIu64 "/%" PRIu64 "  %s", r->step, total_steps,
                  extra);
    }
}

static void on_retrieval(void *cookie, uint64_t step, const struct retrieval_result *r) {
    struct live *l = cookie;
    cli_progress_clear(&l->progress);
    log_write(&l->log, LOG_LEVEL_INFO,
              "step %" PRIu64 "  image to text R@1 %.2f %%, text to image R@1 %.2f %%, mean %.2f %%"
              " (%" PRIu64 " images, %" PRIu64 " texts)",
              step, r->i2t_r1, r->t2i_r1, r->mean_r1, r->images, r->texts);
}

/* ---- jobs ---- */

static void print_memory(FILE *out, const struct dual_encoder_memory *m) {
    const struct {
        const char *name;
        size_t size_bytes;
    } lines[] = {{"parameters", m->values_bytes}, {"gradients", m->gradients_bytes},
                 {"optimiser", m->moments_bytes}, {"activations", m->activations_bytes},
                 {"scratch", m->scratch_bytes},   {"input", m->input_bytes},
                 {"total", m->total_bytes}};
    char text[CLI_TEXT_BYTES];
    (void)fprintf(out, "%-12s %s\n", "trained",
                  cli_format_count(text, (uint64_t)m->parameter_count));
    for (size_t i = 0; i < CLI_COUNT(lines); i++) {
        (void)fprintf(out, "%-12s %s\n", lines[i].name,
                      cli_format_bytes(text, lines[i].size_bytes));
    }
}

static enum status dry_run(const struct trainer_options *t, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct byte_buffer model;
    struct tokenizer *tokenizer = NULL;
    struct dual_encoder_memory memory;
    TRY(path_join(path, sizeof path, t->data, "tokenizer.model", err));
    TRY(file_read_all(file_posix(), &model, path, TOKENIZER_MAX_MODEL_BYTES, err));
    enum status s = tokenizer_open(&tokenizer, model.data, model.size_bytes, err);
    if (s == STATUS_OK) {
        s = trainer_plan(&memory, t, tokenizer_vocab_count(tokenizer), err);
    }
    if (s == STATUS_OK) {
        print_memory(stdout, &memory);
    }
    tokenizer_close(tokenizer);
    byte_buffer_fini(&model);
    return s;
}

static enum status print_json(const struct trainer *t,
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
    json_double(&w, "seconds", (double)(clock_now_ns() - l->started_ns) * 1e-9);
    if (l->steps > 0) {
        json_double(&w, "objective", l->objective);
        json_double(&w, "pairs_per_s", l->mean_rate);
    }
    if (r->images > 0) {
        retrieval_write_json(&w, "retrieval", r);
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

static void
say_start(const struct trainer *t, const struct options *o, const struct live *l, const char *run) {
    const struct trainer_summary sum = trainer_summary(t);
    char samples[CLI_TEXT_BYTES];
    char parameters[CLI_TEXT_BYTES];
    char memory[CLI_TEXT_BYTES];
    log_write(&l->log, LOG_LEVEL_INFO,
              "%s + %s, %s parameters, %s; %s samples, %" PRIu64
              " steps per epoch; loss %s, device %s, reading by %s",
              o->image_tower, o->text_tower,
              cli_format_count(parameters, (uint64_t)sum.memory.parameter_count),
              cli_format_bytes(memory, sum.memory.total_bytes),
              cli_format_count(samples, sum.samples_count), sum.steps_per_epoch,
              loss_choices[o->loss], o->device, sum.engine);
    if (sum.resumed_step > 0) {
        log_write(&l->log, LOG_LEVEL_INFO, "going on with %s at step %" PRIu64, run,
                  sum.resumed_step);
    }
    if (sum.step >= sum.total_steps) {
        log_write(&l->log, LOG_LEVEL_INFO, "%s is finished: %" PRIu64 " steps are done", run,
                  sum.step);
    }
}

/* The options as they were given, without those that belong to one call only. */
static enum status write_config(const struct options *o, const char *run, struct error *err) {
    struct options kept = *o;
    kept.out = NULL;
    kept.resume = NULL;
    kept.json = false;
    kept.quiet = false;
    kept.max_steps = 0;
    return run_config_write(&program, &kept, run, err);
}

static enum status train(const struct options *o, const char *run, struct error *err) {
    struct live live = {.quiet = o->quiet, .started_ns = clock_now_ns()};
    live.logged_ns = live.started_ns;
    live.log = log_stderr(program.name, o->quiet ? LOG_LEVEL_WARN : LOG_LEVEL_INFO);
    struct trainer_options t;
    TRY(trainer_options_from(&t, o, run, err));
    if (o->dry_run) {
        return dry_run(&t, err);
    }
    t.log = &live.log;
    t.on_step = on_step;
    t.on_retrieval = on_retrieval;
    t.should_stop = cli_interrupted_callback;
    t.cookie = &live;
    const struct file_system *fs = file_posix();
    const bool fresh = o->resume == NULL;
    bool made = false;
    if (fresh) {
        TRY(fs->exists(fs->context, run, &made, err));
        made = !made;
        TRY(fs->make_directory(fs->context, run, err));
    }
    struct trainer *trainer = NULL;
    struct retrieval_result result = {0};
    enum status s = trainer_create(&trainer, &t, err);
    if (s == STATUS_OK && fresh) {
        s = write_config(o, run, err);
    }
    if (s != STATUS_OK) {
        if (made) {
            (void)rmdir(run); /* only when nothing was put in it */
        }
        trainer_destroy(trainer);
        return s;
    }
    say_start(trainer, o, &live, run);
    cli_signals_install();
    cli_progress_init(&live.progress, "steps", o->quiet);
    s = trainer_run(trainer, &result, err);
    cli_progress_clear(&live.progress);
    if (s == STATUS_OK && o->json) {
        s = print_json(trainer, &live, run, &result, err);
    }
    trainer_destroy(trainer);
    return s;
}

static enum status start_new(const struct options *o, struct error *err) {
    if (o->data == NULL || o->out == NULL) {
        return error_set(err, STATUS_USAGE, "--data DIR and --out RUN are needed, or --resume RUN");
    }
    char config[PATH_MAX_BYTES];
    bool there = false;
    TRY(path_join(config, sizeof config, o->out, "config.json", err));
    TRY(file_posix()->exists(file_posix()->context, config, &there, err));
    if (there && !o->dry_run) {
        return error_set(err, STATUS_EXISTS,
                         "%s holds a run already; --resume it, or choose another --out", o->out);
    }
    return train(o, o->out, err);
}

static enum status go_on(const struct options *given,
                         const struct cli_arguments *args,
                         int argc,
                         char **argv,
                         struct error *err) {
    TRY(check_unchanged(args, err));
    struct run_config_words line = {0};
    struct options o;
    struct cli_arguments all = {0};
    enum status s = run_config_read(&line, given->resume, argc, argv, err);
    if (s == STATUS_OK) {
        s = cli_parse(&program, &o, &all, line.count, line.words, err);
    }
    if (s == STATUS_OK && o.data == NULL) {
        s = error_set(err, STATUS_CORRUPT, "%s/config.json names no dataset; give --data",
                      given->resume);
    }
    if (s == STATUS_OK) {
        s = train(&o, given->resume, err);
    }
    cli_arguments_fini(&all);
    run_config_words_fini(&line);
    return s;
}

int main(int argc, char **argv) {
    openmp_wait_briefly(argv);
    struct options o;
    struct cli_arguments args = {0};
    struct error err = {0};
    enum status s = cli_parse(&program, &o, &args, argc, argv, &err);
    if (s == STATUS_OK) {
        s = o.resume != NULL ? go_on(&o, &args, argc, argv, &err) : start_new(&o, &err);
    }
    cli_arguments_fini(&args);
    return cli_exit(&program, s, &err);
}
