/*
 * trainer_eval: retrieval and zero-shot classification between epochs.
 */
#include "train/run/trainer_internal.h"

#include "formats/dataset/dataset.h"
#include "formats/tokenizer/tokenizer.h"
#include "train/eval/examples.h"
#include "train/eval/prompts.h"

static enum status check_captions(const char *directory, struct error *err) {
    struct dataset *val = NULL;
    TRY(dataset_open(&val, directory, NULL, err));
    const uint64_t texts_count = dataset_text_count(val);
    dataset_close(val);
    return texts_count > 0
               ? STATUS_OK
               : error_set(err, STATUS_USAGE, "%s has no captions to validate with", directory);
}

/* The built-in prompts alone: only the dataset's own class names can be used. */
static enum status check_classes(const char *directory, struct error *err) {
    struct text_list names;
    TRY(zeroshot_classes(&names, directory, err));
    const size_t count = names.count;
    text_list_fini(&names);
    return count > 0
               ? STATUS_OK
               : error_set(err, STATUS_USAGE,
                           "--zeroshot: %s has no class names; pack class folders or CIFAR files",
                           directory);
}

/* A validation set that cannot be opened is better known now than after the first epoch. */
enum status trainer_check_val(const struct trainer *t, struct error *err) {
    const struct trainer_options *o = &t->options;
    if (o->val != NULL && o->task == TRAINER_PAIRS) {
        TRY(check_captions(o->val, err));
    }
    return o->zeroshot != NULL && o->task == TRAINER_PAIRS ? check_classes(o->zeroshot, err)
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
    how.tokenizer = tokenizer_bytes(loader_tokenizer(t->loader), &how.tokenizer_size_bytes);
    how.augment = model_config_eval(&t->config, how.augment);
    return how;
}

/* The line of metrics.jsonl, with examples for pages that show the run. */
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
    TRY_OR_FAIL(s, metrics_retrieval(t->metrics, t->step, result, found, e, err));
    if (metrics_takes_images(t->metrics)) {
        s = trainer_show_examples(t, &found[0], e, err);
    }
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

/* As ccstream-eval zeroshot does without options. */
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

/* After an evaluation, whose failure may already be that of all: then nobody asks again. A rank
 * that failed alone is heard where the others ask next, here or inside embed_dataset. */
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
    }
    TRY(comm_broadcast(t->comm, has, sizeof has, 0, err));
    if (o->val != NULL && !has[METRICS_RETRIEVAL]) {
        TRY(agree_on(t, evaluate_retrieval(t, result, err), err));
    }
    if (o->zeroshot != NULL && !has[METRICS_ZEROSHOT]) {
        TRY(agree_on(t, evaluate_zeroshot(t, err), err));
    }
    return STATUS_OK;
}
