/*
 * trainer_eval: retrieval between epochs.
 */
#include "train/run/trainer_internal.h"

#include "formats/dataset/dataset.h"
#include "formats/tokenizer/tokenizer.h"

/* A validation set that cannot be opened is better known now than after the first epoch. */
enum status trainer_check_val(const struct trainer *t, struct error *err) {
    struct dataset *val = NULL;
    if (t->options.val == NULL) {
        return STATUS_OK;
    }
    TRY(dataset_open(&val, t->options.val, file_posix(), err));
    const uint64_t texts_count = dataset_text_count(val);
    dataset_close(val);
    return texts_count > 0 ? STATUS_OK
                           : error_set(err, STATUS_USAGE, "%s has no captions to validate with",
                                       t->options.val);
}

enum status
trainer_evaluate(struct trainer *t, struct retrieval_result *result, struct error *err) {
    const struct trainer_options *o = &t->options;
    struct embed_options ro;
    embed_options_default(&ro);
    ro.clean_captions = o->clean_captions;
    ro.threads = o->loader_threads;
    ro.log = o->log;
    ro.should_stop = o->should_stop;
    ro.cookie = o->cookie;
    ro.tokenizer = tokenizer_bytes(loader_tokenizer(t->loader), &ro.tokenizer_size_bytes);
    TRY(retrieval_evaluate(result, t->model, t->dev, o->val, &ro, err));
    TRY(metrics_retrieval(t->metrics, t->step, result, err));
    if (o->on_retrieval != NULL) {
        o->on_retrieval(o->cookie, t->step, result);
    }
    return STATUS_OK;
}
