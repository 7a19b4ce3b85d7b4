/*
 * embed: images through a sequential loader, captions through the iterator over all texts.
 */
#include "train/eval/embed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer.h"
#include "loader/texts.h"

void embed_options_default(struct embed_options *opt) {
    *opt = (struct embed_options){.augment = AUGMENT_EVAL_SQUASH, .clean_captions = true};
}

void embeddings_fini(struct embeddings *e) {
    free(e->images);
    free(e->features);
    free(e->sample_ids);
    free(e->labels);
    free(e->texts);
    free(e->owner);
    memset(e, 0, sizeof *e);
}

static bool stop_asked(const struct embed_options *opt) {
    return opt->should_stop != NULL && opt->should_stop(opt->cookie);
}

static enum status encode_images(struct embeddings *e,
                                 const struct embed_model *model,
                                 struct device *dev,
                                 struct loader *loader,
                                 const struct embed_options *opt,
                                 struct error *err) {
    int64_t done = 0;
    for (;;) {
        struct loader_batch batch;
        const enum status s = loader_acquire(loader, &batch, err);
        if (s == STATUS_END) {
            break;
        }
        TRY(s);
        struct tensor image;
        struct tensor features;
        struct tensor *requested = e->features != NULL ? &features : NULL;
        const int32_t count = (int32_t)batch.count;
        TRY(model->views != NULL
                ? view_encoder_encode(model->views, &image, requested, batch.images, count, err)
                : dual_encoder_encode_images(model->pairs, &image, requested, batch.images, count,
                                             err));
        TRY(dev->ops->download(dev, e->images + done * e->embed_dim, image.data,
                               tensor_size_bytes(&image), err));
        if (requested != NULL) {
            TRY(dev->ops->download(dev, e->features + done * e->feature_dim, features.data,
                                   tensor_size_bytes(&features), err));
        }
        memcpy(e->sample_ids + done, batch.sample_ids, batch.count * sizeof *batch.sample_ids);
        memcpy(e->labels + done, batch.labels, batch.count * sizeof *batch.labels);
        done += batch.count;
        loader_release(loader, &batch);
        if (stop_asked(opt)) {
            return error_set(err, STATUS_INTERRUPTED, "stopped on request");
        }
    }
    e->images_count = done;
    return STATUS_OK;
}

static int compare_ids(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

static enum status encode_texts(struct embeddings *e,
                                struct dual_encoder *model,
                                struct device *dev,
                                struct texts *texts,
                                const struct embed_options *opt,
                                struct error *err) {
    int64_t done = 0;
    for (;;) {
        struct texts_batch batch;
        const enum status s = texts_next(texts, &batch, err);
        if (s == STATUS_END) {
            break;
        }
        TRY(s);
        struct tensor text;
        TRY(dual_encoder_encode_texts(model, &text, batch.tokens, batch.lengths,
                                      (int32_t)batch.count, err));
        TRY(dev->ops->download(dev, e->texts + done * e->embed_dim, text.data,
                               tensor_size_bytes(&text), err));
        for (uint32_t i = 0; i < batch.count; i++) {
            const uint64_t *found =
                bsearch(&batch.sample_ids[i], e->sample_ids, (size_t)e->images_count,
                        sizeof *e->sample_ids, compare_ids);
            if (found == NULL) {
                return error_set(err, STATUS_CORRUPT, "caption of sample %" PRIu64 " has no image",
                                 batch.sample_ids[i]);
            }
            e->owner[done + i] = (int32_t)(found - e->sample_ids);
        }
        done += batch.count;
        if (stop_asked(opt)) {
            return error_set(err, STATUS_INTERRUPTED, "stopped on request");
        }
    }
    e->texts_count = done;
    return STATUS_OK;
}

static enum status open_loader(struct loader **out,
                               const struct embed_model *model,
                               const char *dataset_dir,
                               const struct embed_options *opt,
                               struct error *err) {
    struct loader_options o;
    loader_options_default(&o);
    if (model->views != NULL) {
        const struct view_encoder_options *vo = view_encoder_get_options(model->views);
        o.batch_count = (uint32_t)vo->max_batch;
        o.image_size_px = (uint32_t)vo->image.image_px;
    } else {
        const struct dual_encoder_options *mo = dual_encoder_get_options(model->pairs);
        o.batch_count = (uint32_t)mo->micro_batch;
        o.image_size_px = (uint32_t)mo->image.image_px;
    }
    o.augment = opt->augment;
    o.captions = LOADER_CAPTIONS_NONE;
    o.order = LOADER_ORDER_SEQUENTIAL;
    o.drop_last = false;
    o.epochs = 1;
    o.max_corrupt_count = 0;
    o.threads = opt->threads;
    o.log = opt->log;
    return loader_open(out, dataset_dir, &o, err);
}

static enum status take_memory(struct embeddings *e,
                               const struct loader_info *info,
                               const struct embed_options *opt,
                               const char *dataset_dir,
                               struct error *err) {
    const size_t count = (size_t)info->sample_count;
    e->images = calloc(count, (size_t)e->embed_dim * sizeof(float));
    e->sample_ids = calloc(count, sizeof *e->sample_ids);
    e->labels = calloc(count, sizeof *e->labels);
    bool ok = e->images != NULL && e->sample_ids != NULL && e->labels != NULL;
    if (opt->features) {
        e->features = calloc(count, (size_t)e->feature_dim * sizeof(float));
        ok = ok && e->features != NULL;
    }
    if (opt->texts) {
        e->texts = calloc((size_t)info->text_count, (size_t)e->embed_dim * sizeof(float));
        e->owner = calloc((size_t)info->text_count, sizeof *e->owner);
        ok = ok && e->texts != NULL && e->owner != NULL;
    }
    return ok ? STATUS_OK
              : error_set(err, STATUS_NOMEM, "%s: no memory for its embeddings", dataset_dir);
}

static enum status embed_texts(struct embeddings *e,
                               struct dual_encoder *model,
                               struct device *dev,
                               struct loader *loader,
                               const struct embed_options *opt,
                               struct error *err) {
    const struct dual_encoder_options *mo = dual_encoder_get_options(model);
    struct tokenizer *tokenizer = NULL;
    struct texts *texts = NULL;
    struct texts_options to;
    texts_options_default(&to);
    to.batch_count = (uint32_t)mo->micro_batch;
    to.max_tokens = (uint32_t)mo->text.max_tokens;
    to.clean_captions = opt->clean_captions;
    enum status s = tokenizer_open(&tokenizer, opt->tokenizer, opt->tokenizer_size_bytes, err);
    if (s == STATUS_OK) {
        s = texts_open(&texts, loader_dataset(loader, 0), tokenizer, &to, err);
    }
    if (s == STATUS_OK) {
        s = encode_texts(e, model, dev, texts, opt, err);
    }
    texts_close(texts);
    tokenizer_close(tokenizer);
    return s;
}

enum status embed_dataset(struct embeddings *out,
                          const struct embed_model *model,
                          struct device *dev,
                          const char *dataset_dir,
                          const struct embed_options *opt,
                          struct error *err) {
    REQUIRE(out != NULL && model != NULL && dev != NULL && dataset_dir != NULL && opt != NULL);
    memset(out, 0, sizeof *out);
    if (opt->texts && opt->tokenizer == NULL) {
        return error_set(err, STATUS_USAGE, "captions need a tokenizer, and the model has none");
    }
    if (opt->texts && model->views != NULL) {
        return error_set(err, STATUS_USAGE, "a model of two views has no tower for captions");
    }
    struct loader *loader = NULL;
    struct loader_info info;
    TRY(open_loader(&loader, model, dataset_dir, opt, err));
    loader_info(loader, &info);
    if (model->views != NULL) {
        out->embed_dim = view_encoder_get_options(model->views)->embed_dim;
        out->feature_dim = view_encoder_feature_count(model->views);
    } else {
        out->embed_dim = dual_encoder_get_options(model->pairs)->embed_dim;
        out->feature_dim = dual_encoder_feature_count(model->pairs);
    }
    enum status s = STATUS_OK;
    if (info.sample_count == 0 || info.sample_count > INT32_MAX) {
        s = error_set(err, STATUS_USAGE, "%s has no samples, or too many to hold", dataset_dir);
    } else if (opt->texts && info.text_count == 0) {
        s = error_set(err, STATUS_USAGE, "%s has no captions", dataset_dir);
    }
    if (s == STATUS_OK) {
        s = take_memory(out, &info, opt, dataset_dir, err);
    }
    if (s == STATUS_OK) {
        s = encode_images(out, model, dev, loader, opt, err);
    }
    if (s == STATUS_OK && opt->texts) {
        s = embed_texts(out, model->pairs, dev, loader, opt, err);
    }
    loader_close(loader);
    if (s != STATUS_OK) {
        embeddings_fini(out);
    }
    return s;
}
