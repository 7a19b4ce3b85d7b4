/*
 * retrieval: every image and every caption of a dataset through the model, then ranks.
 */
#include "train/retrieval.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer.h"
#include "loader/loader.h"
#include "loader/texts.h"

struct embeddings {
    float *images;       /* (I, E) */
    float *texts;        /* (T, E) */
    uint64_t *image_ids; /* (I), ascending */
    int32_t *owner;      /* (T): index of the text's image */
    int64_t images_count, texts_count, embed_dim;
};

static void embeddings_fini(struct embeddings *e) {
    free(e->images);
    free(e->texts);
    free(e->image_ids);
    free(e->owner);
}

static bool stop_asked(const struct retrieval_options *opt) {
    return opt->should_stop != NULL && opt->should_stop(opt->cookie);
}

static enum status encode_images(struct embeddings *e,
                                 struct dual_encoder *model,
                                 struct device *dev,
                                 struct loader *loader,
                                 const struct retrieval_options *opt,
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
        TRY(dual_encoder_encode_images(model, &image, batch.images, (int32_t)batch.count, err));
        TRY(dev->ops->download(dev, e->images + done * e->embed_dim, image.data,
                               tensor_size_bytes(&image), err));
        memcpy(e->image_ids + done, batch.sample_ids, batch.count * sizeof *batch.sample_ids);
        done += batch.count;
        loader_release(loader, &batch);
        if (stop_asked(opt)) {
            return error_set(err, STATUS_INTERRUPTED, "evaluation stopped on request");
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
                                const struct retrieval_options *opt,
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
                bsearch(&batch.sample_ids[i], e->image_ids, (size_t)e->images_count,
                        sizeof *e->image_ids, compare_ids);
            if (found == NULL) {
                return error_set(err, STATUS_CORRUPT, "caption of sample %" PRIu64 " has no image",
                                 batch.sample_ids[i]);
            }
            e->owner[done + i] = (int32_t)(found - e->image_ids);
        }
        done += batch.count;
        if (stop_asked(opt)) {
            return error_set(err, STATUS_INTERRUPTED, "evaluation stopped on request");
        }
    }
    e->texts_count = done;
    return STATUS_OK;
}

static enum status open_loader(struct loader **out,
                               const struct dual_encoder_options *model,
                               const char *dataset_dir,
                               const struct retrieval_options *opt,
                               struct error *err) {
    struct loader_options o;
    loader_options_default(&o);
    o.batch_count = (uint32_t)model->max_batch;
    o.image_size_px = (uint32_t)model->image.image_px;
    o.augment = AUGMENT_EVAL_SQUASH;
    o.captions = LOADER_CAPTIONS_NONE;
    o.order = LOADER_ORDER_SEQUENTIAL;
    o.drop_last = false;
    o.epochs = 1;
    o.max_corrupt_count = 0;
    o.threads = opt->threads;
    o.log = opt->log;
    return loader_open(out, dataset_dir, &o, err);
}

enum status retrieval_evaluate(struct retrieval_result *out,
                               struct dual_encoder *model,
                               struct device *dev,
                               const char *dataset_dir,
                               const struct retrieval_options *opt,
                               struct error *err) {
    REQUIRE(out != NULL && model != NULL && dev != NULL && dataset_dir != NULL && opt != NULL);
    if (opt->tokenizer == NULL) {
        return error_set(err, STATUS_USAGE, "retrieval needs captions: the model has no tokenizer");
    }
    const struct dual_encoder_options *mo = dual_encoder_get_options(model);
    struct embeddings e = {.embed_dim = mo->embed_dim};
    struct loader *loader = NULL;
    struct texts *texts = NULL;
    struct tokenizer *tokenizer = NULL;
    enum status s;
    TRY_OR_FAIL(s, tokenizer_open(&tokenizer, opt->tokenizer, opt->tokenizer_size_bytes, err));
    TRY_OR_FAIL(s, open_loader(&loader, mo, dataset_dir, opt, err));
    struct loader_info info;
    loader_info(loader, &info);
    if (info.text_count == 0 || info.sample_count == 0 || info.sample_count > INT32_MAX) {
        s = error_set(err, STATUS_USAGE, "%s has no captions to retrieve", dataset_dir);
        goto fail;
    }
    const size_t row_bytes = (size_t)e.embed_dim * sizeof(float);
    e.images = calloc(info.sample_count, row_bytes);
    e.texts = calloc(info.text_count, row_bytes);
    e.image_ids = calloc(info.sample_count, sizeof *e.image_ids);
    e.owner = calloc(info.text_count, sizeof *e.owner);
    if (e.images == NULL || e.texts == NULL || e.image_ids == NULL || e.owner == NULL) {
        s = error_set(err, STATUS_NOMEM, "%s: no memory for its embeddings", dataset_dir);
        goto fail;
    }
    TRY_OR_FAIL(s, encode_images(&e, model, dev, loader, opt, err));
    struct texts_options to;
    texts_options_default(&to);
    to.batch_count = (uint32_t)mo->max_batch;
    to.max_tokens = (uint32_t)mo->text.max_tokens;
    to.clean_captions = opt->clean_captions;
    TRY_OR_FAIL(s, texts_open(&texts, loader_dataset(loader, 0), tokenizer, &to, err));
    TRY_OR_FAIL(s, encode_texts(&e, model, dev, texts, opt, err));
    s = retrieval_ranks(out, dev, e.images, e.images_count, e.texts, e.texts_count, e.owner,
                        e.embed_dim, err);
fail:
    texts_close(texts);
    loader_close(loader);
    tokenizer_close(tokenizer);
    embeddings_fini(&e);
    return s;
}
