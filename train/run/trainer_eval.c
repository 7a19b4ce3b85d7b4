/*
 * trainer_eval: retrieval, zero-shot classification, neighbours and probe between epochs, and the
 * best checkpoint by one of their metrics.
 */
#include "train/run/trainer_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "formats/tokenizer/tokenizer.h"
#include "train/eval/examples.h"
#include "train/eval/prompts.h"
#include "train/run/run_dir.h"

static enum status check_captions(const char *directory, struct error *err) {
    struct dataset *val = NULL;
    TRY(dataset_open(&val, directory, NULL, err));
    const uint64_t texts_count = dataset_text_count(val);
    dataset_close(val);
    return texts_count > 0
               ? STATUS_OK
               : error_set(err, STATUS_USAGE, "%s has no captions to evaluate on", directory);
}

/* Only built-in prompts are used, so the dataset must have class names. */
static enum status check_classes(const char *option, const char *directory, struct error *err) {
    struct text_list names;
    TRY(zeroshot_classes(&names, directory, err));
    const size_t count = names.count;
    text_list_fini(&names);
    return count > 0 ? STATUS_OK
                     : error_set(err, STATUS_USAGE,
                                 "%s: %s has no class names; pack class folders, CIFAR or STL-10 "
                                 "files",
                                 option, directory);
}

enum status trainer_split_knn(char first[PATH_MAX_BYTES],
                              const char **second,
                              const char *text,
                              struct error *err) {
    const char *host = strstr(text, "://");
    const bool remote = host != NULL && host == strchr(text, ':');
    const char *path = remote ? strchr(host + 3, '/') : text;
    const char *colon = path != NULL ? strchr(path, ':') : NULL;
    FAIL_IF(colon == NULL || colon == text || colon[1] == '\0' || colon - text >= PATH_MAX_BYTES,
            err, STATUS_USAGE, "--knn %.200s: expected TRAIN:TEST, two datasets with labels", text);
    (void)snprintf(first, PATH_MAX_BYTES, "%.*s", (int)(colon - text), text);
    *second = colon + 1;
    return STATUS_OK;
}

/* ---- RUN/best ---- */

/* The metrics' fields in metrics.jsonl, and the option that computes them. */
static const struct {
    struct metrics_watch watch;
    const char *option;
} figures[TRAINER_BEST_COUNT] = {
    [TRAINER_BEST_MEAN_R1] = {{"retrieval", "mean_r1"}, "--val"},
    [TRAINER_BEST_MEAN_R5] = {{"retrieval", "mean_r5"}, "--val"},
    [TRAINER_BEST_MEAN_R10] = {{"retrieval", "mean_r10"}, "--val"},
    [TRAINER_BEST_I2T_R1] = {{"retrieval", "i2t_r1"}, "--val"},
    [TRAINER_BEST_T2I_R1] = {{"retrieval", "t2i_r1"}, "--val"},
    [TRAINER_BEST_ZEROSHOT] = {{"zeroshot", "top1"}, "--zeroshot"},
    [TRAINER_BEST_NN1] = {{"features", "nn1"}, "--knn"},
    [TRAINER_BEST_NN10] = {{"features", "nn10"}, "--knn"},
    [TRAINER_BEST_KNN] = {{"features", "knn"}, "--knn"},
    [TRAINER_BEST_PROBE] = {{"features", "probe"}, "--probe"},
};

struct metrics_watch trainer_watched(const struct trainer *t) {
    return figures[t->options.keep_best].watch;
}

enum status trainer_check_figures(const struct trainer_options *o, struct error *err) {
    char first[PATH_MAX_BYTES];
    const char *second;
    const char *option = figures[o->keep_best].option;
    FAIL_IF(o->probe && o->knn == NULL, err, STATUS_USAGE,
            "--probe requires --knn TRAIN:TEST, whose features it uses");
    FAIL_IF(o->patience > 0 && (option == NULL || o->eval_epochs == 0), err, STATUS_USAGE,
            "--patience requires --keep-best METRIC%s", option != NULL ? " and --eval-every" : "");
    TRY(o->knn != NULL ? trainer_split_knn(first, &second, o->knn, err) : STATUS_OK);
    const bool made = option == NULL                   ? true
                      : strcmp(option, "--val") == 0   ? o->val != NULL
                      : strcmp(option, "--knn") == 0   ? o->knn != NULL
                      : strcmp(option, "--probe") == 0 ? o->probe
                                                       : o->zeroshot != NULL;
    return made ? STATUS_OK
                : error_set(err, STATUS_USAGE, "--keep-best %s requires %s, which measures it",
                            figures[o->keep_best].watch.key, option);
}

enum status trainer_keep_best(struct trainer *t, struct error *err) {
    const struct trainer_options *o = &t->options;
    enum status s = STATUS_OK;
    if (o->keep_best == TRAINER_BEST_NONE) {
        return STATUS_OK;
    }
    if (trainer_is_first(t)) {
        const struct metrics_best best = metrics_best(t->metrics);
        if (best.step == t->step && t->saved_step != t->step) {
            log_write(o->log, LOG_LEVEL_WARN, "step %" PRIu64 " is the best, but is not saved",
                      t->step);
        } else if (best.step == t->step) {
            s = run_dir_keep_best(file_posix(), o->run, t->step, err);
        }
        t->gives_up = o->patience > 0 && best.since >= o->patience && best.step > 0;
        if (t->gives_up) {
            log_write(o->log, LOG_LEVEL_INFO,
                      "step %" PRIu64 ": %" PRIu64
                      " evaluations without a better %s than %.2f at step %" PRIu64
                      "; the run stops; its best checkpoint is %s/best",
                      t->step, best.since, figures[o->keep_best].watch.key, best.value, best.step,
                      o->run);
        }
        if (t->gives_up && t->reported_steps > 0) {
            THEN(s, metrics_finished(t->metrics, t->step, err));
        }
    }
    TRY(trainer_agree(t, s, err));
    return comm_broadcast(t->comm, &t->gives_up, sizeof t->gives_up, 0, err);
}

/* ---- evaluations ---- */

/* Reports a validation set that cannot be opened now instead of after the first epoch. */
enum status trainer_check_val(const struct trainer *t, struct error *err) {
    const struct trainer_options *o = &t->options;
    if (o->knn != NULL) {
        char first[PATH_MAX_BYTES];
        const char *second;
        TRY(trainer_split_knn(first, &second, o->knn, err));
        TRY(check_classes("--knn", first, err));
        TRY(check_classes("--knn", second, err));
    }
    if (o->val != NULL && o->task == TRAINER_PAIRS) {
        TRY(check_captions(o->val, err));
    }
    return o->zeroshot != NULL && o->task == TRAINER_PAIRS
               ? check_classes("--zeroshot", o->zeroshot, err)
               : STATUS_OK;
}

static struct embed_options embed_options(struct trainer *t) {
    const struct trainer_options *o = &t->options;
    struct embed_options how;
    embed_options_default(&how);
    how.comm = t->comm;
    how.failed_together = &t->failed_together;
    how.clean_captions = o->clean_captions;
    how.threads = o->loader_threads;
    how.log = o->log;
    how.should_stop = o->should_stop;
    how.cookie = o->cookie;
    if (loader_tokenizer(t->loader) != NULL) { /* images only: none */
        how.tokenizer = tokenizer_bytes(loader_tokenizer(t->loader), &how.tokenizer_size_bytes);
    }
    how.augment = model_config_eval(&t->config, how.augment);
    return how;
}

/* Writes the line of metrics.jsonl, with examples for the run's page. */
static enum status write_retrieval(struct trainer *t,
                                   const struct retrieval_result *result,
                                   const struct embeddings *e,
                                   struct error *err) {
    enum { EXAMPLES = 6 };
    struct examples found[2] = {{0}, {0}};
    enum status s = STATUS_OK;
    if (t->metrics == NULL) {
        return STATUS_OK;
    }
    TRY_OR_FAIL(s, examples_find(&found[0], t->dev, e, true, EXAMPLES, err));
    TRY_OR_FAIL(s, examples_find(&found[1], t->dev, e, false, EXAMPLES, err));
    s = metrics_retrieval(t->metrics, t->step, result, found, e, err);
fail:
    examples_fini(&found[0]);
    examples_fini(&found[1]);
    return s;
}

static enum status
evaluate_retrieval(struct trainer *t, struct retrieval_result *result, struct error *err) {
    const struct trainer_options *o = &t->options;
    struct embed_options how = embed_options(t);
    struct embeddings e;
    how.texts = true;
    TRY(embed_dataset(&e, &(struct embed_model){.pairs = t->model}, t->dev, o->val, &how, err));
    enum status s = retrieval_ranks(result, t->dev, e.images, e.images_count, e.texts,
                                    e.texts_count, e.owner, e.embed_dim, err);
    THEN(s, write_retrieval(t, result, &e, err));
    embeddings_fini(&e);
    if (s == STATUS_OK && o->on_retrieval != NULL) {
        o->on_retrieval(o->cookie, t->step, result);
    }
    return s;
}

/* As ccstream-eval zeroshot with its defaults. */
static enum status evaluate_zeroshot(struct trainer *t, struct error *err) {
    const struct trainer_options *o = &t->options;
    struct embed_options how = embed_options(t);
    struct classify_result result = {0};
    struct text_list names = {0};
    struct text_list templates = {0};
    enum status s;
    how.augment = model_config_eval(&t->config, AUGMENT_EVAL_CROP);
    TRY_OR_FAIL(s, zeroshot_classes(&names, o->zeroshot, err));
    TRY_OR_FAIL(s, zeroshot_name_classes(&names, NULL, NULL, o->zeroshot, err));
    TRY_OR_FAIL(s, zeroshot_read_templates(&templates, NULL, err));
    TRY_OR_FAIL(s, zeroshot_evaluate(&result, t->model, t->dev, o->zeroshot, &names, &templates,
                                     &how, err));
    TRY_OR_FAIL(s, metrics_zeroshot(t->metrics, t->step, &result, err));
    if (o->on_zeroshot != NULL) {
        o->on_zeroshot(o->cookie, t->step, &result);
    }
fail:
    classify_result_fini(&result);
    text_list_fini(&names);
    text_list_fini(&templates);
    return s;
}

/* As ccstream-eval knn and linear with their defaults; captions if no images are trained on. */
static enum status evaluate_features(struct trainer *t, struct error *err) {
    const struct trainer_options *o = &t->options;
    const struct embed_model model = {.pairs = t->model, .views = t->views};
    struct embed_options how = embed_options(t);
    struct features_result result;
    char first[PATH_MAX_BYTES];
    const char *second;
    how.augment = model_config_eval(&t->config, AUGMENT_EVAL_CROP);
    TRY(trainer_split_knn(first, &second, o->knn, err));
    TRY(features_evaluate(&result, &model, t->dev, first, second,
                          trainer_task(o)->views > 0 ? FEATURES_TOWER : FEATURES_CAPTIONS, o->probe,
                          &how, err));
    TRY(metrics_features(t->metrics, t->step, &result, err));
    if (o->on_features != NULL) {
        o->on_features(o->cookie, t->step, &result);
    }
    return STATUS_OK;
}

/* After an evaluation. If all ranks already share its failure, they do not exchange statuses again.
 * A rank that failed alone reports it in the next exchange, here or inside embed_dataset. */
static enum status agree_on(struct trainer *t, enum status own, struct error *err) {
    return own != STATUS_OK && t->failed_together ? own : trainer_agree(t, own, err);
}

enum status
trainer_evaluate(struct trainer *t, struct retrieval_result *result, bool owed, struct error *err) {
    const struct trainer_options *o = &t->options;
    bool has[METRICS_EVALUATIONS] = {false};
    if (owed && trainer_is_first(t)) {
        has[METRICS_RETRIEVAL] = metrics_has(t->metrics, METRICS_RETRIEVAL);
        has[METRICS_ZEROSHOT] = metrics_has(t->metrics, METRICS_ZEROSHOT);
        has[METRICS_FEATURES] = metrics_has(t->metrics, METRICS_FEATURES);
    }
    TRY(comm_broadcast(t->comm, has, sizeof has, 0, err));
    if (o->val != NULL && !has[METRICS_RETRIEVAL]) {
        TRY(agree_on(t, evaluate_retrieval(t, result, err), err));
    }
    if (o->zeroshot != NULL && !has[METRICS_ZEROSHOT]) {
        TRY(agree_on(t, evaluate_zeroshot(t, err), err));
    }
    if (o->knn != NULL && !has[METRICS_FEATURES]) {
        TRY(agree_on(t, evaluate_features(t, err), err));
    }
    return STATUS_OK;
}
