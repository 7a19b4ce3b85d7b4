/*
 * embed: images through a sequential loader, captions through the iterator over all texts.
 *
 * Of W ranks each encodes a range of the groups that one rank would encode, groups of the same
 * size, because the last bits of an embedding may depend on how many are encoded with it:
 *
 *   groups   | 0 | 1 | 2 | 3 | 4 | 5 | 6 |      rank 0: 0 to 2, rank 1: 3 to 5, rank 2: 6
 *
 * A range has the same number of groups on all ranks but the last ones, so that a gather of ranges
 * is the whole, followed by unused rows.
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

/* The groups of one rank. */
struct range {
    uint64_t first, count, last; /* [first, last); count: of every rank but the last ones */
    int64_t size;                /* rows of a group */
    int64_t rows;                /* of all ranges: at least those of all groups */
    uint64_t rows_count;         /* of the dataset */
};

static struct range range_of(struct comm *comm, uint64_t rows_count, uint32_t size) {
    const uint64_t world = comm != NULL ? (uint64_t)comm_world(comm) : 1;
    const uint64_t rank = comm != NULL ? (uint64_t)comm_rank(comm) : 0;
    const uint64_t groups = (rows_count + size - 1) / size;
    struct range r = {
        .count = (groups + world - 1) / world, .size = size, .rows_count = rows_count};
    r.first = rank * r.count < groups ? rank * r.count : groups;
    r.last = r.first + r.count < groups ? r.first + r.count : groups;
    r.rows = (int64_t)(world * r.count * size);
    return r;
}

/* Brings all rows of `data` to all ranks, each of row_bytes. */
static enum status
gather(struct comm *comm, const struct range *r, void *data, size_t row_bytes, struct error *err) {
    const size_t own_bytes = (size_t)r->count * (size_t)r->size * row_bytes;
    return comm == NULL || data == NULL
               ? STATUS_OK
               : comm_gather(comm, data, (char *)data + (size_t)comm_rank(comm) * own_bytes,
                             own_bytes, err);
}

static enum status agree(const struct embed_options *opt, enum status own, struct error *err) {
    if (opt->comm == NULL) {
        return own;
    }
    const enum status s = comm_agree(opt->comm, own, err);
    *opt->failed_together = s != STATUS_OK;
    return s;
}

/* Returns OK or INTERRUPTED. */
static enum status report(const struct embed_options *opt,
                          const char *what,
                          int64_t done,
                          const struct range *r,
                          struct error *err) {
    if (opt->progress != NULL) {
        opt->progress(opt->cookie, what, (uint64_t)done, r->rows_count);
    }
    return opt->should_stop != NULL && opt->should_stop(opt->cookie)
               ? error_set(err, STATUS_INTERRUPTED, "stopped on request")
               : STATUS_OK;
}

/* To the rows from `first` on. */
static enum status encode_batch(struct embeddings *e,
                                const struct embed_model *model,
                                struct device *dev,
                                const struct loader_batch *batch,
                                int64_t first,
                                struct error *err) {
    struct tensor image;
    struct tensor features;
    struct tensor *requested = e->features != NULL ? &features : NULL;
    const int32_t count = (int32_t)batch->count;
    TRY(model->views != NULL
            ? view_encoder_encode(model->views, &image, requested, batch->images, count, err)
            : dual_encoder_encode_images(model->pairs, &image, requested, batch->images, count,
                                         err));
    TRY(dev->ops->download(dev, e->images + first * e->embed_dim, image.data,
                           tensor_size_bytes(&image), err));
    return requested == NULL ? STATUS_OK
                             : dev->ops->download(dev, e->features + first * e->feature_dim,
                                                  features.data, tensor_size_bytes(&features), err);
}

static enum status encode_images(struct embeddings *e,
                                 const struct embed_model *model,
                                 struct device *dev,
                                 struct loader *loader,
                                 const struct range *range,
                                 const struct embed_options *opt,
                                 struct error *err) {
    int64_t done = (int64_t)range->first * range->size;
    if (range->first > 0 && range->first < range->last) {
        struct loader_state place = loader_state(loader);
        place.step = range->first;
        TRY(loader_seek(loader, &place, err));
    }
    TRY(report(opt, "images", done, range, err));
    for (uint64_t i = range->first; i < range->last; i++) {
        struct loader_batch batch;
        TRY(loader_acquire(loader, &batch, err));
        TRY(e->images != NULL ? encode_batch(e, model, dev, &batch, done, err) : STATUS_OK);
        memcpy(e->sample_ids + done, batch.sample_ids, batch.count * sizeof *batch.sample_ids);
        memcpy(e->labels + done, batch.labels, batch.count * sizeof *batch.labels);
        done += batch.count;
        loader_release(loader, &batch);
        TRY(report(opt, "images", done, range, err));
    }
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
                                const struct range *range,
                                const struct embed_options *opt,
                                struct error *err) {
    int64_t done = 0;
    TRY(report(opt, "captions", done, range, err));
    for (uint64_t group = 0;; group++) { /* the captions of other ranks are read, not encoded */
        struct texts_batch batch;
        const enum status s = texts_next(texts, &batch, err);
        if (s == STATUS_END) {
            break;
        }
        TRY(s);
        if (group >= range->first && group < range->last) {
            struct tensor text;
            TRY(dual_encoder_encode_texts(model, &text, batch.tokens, batch.lengths,
                                          (int32_t)batch.count, err));
            TRY(dev->ops->download(dev, e->texts + done * e->embed_dim, text.data,
                                   tensor_size_bytes(&text), err));
        }
        for (uint32_t i = 0; i < batch.count; i++) {
            const uint64_t *found =
                bsearch(&batch.sample_ids[i], e->sample_ids, (size_t)e->images_count,
                        sizeof *e->sample_ids, compare_ids);
            FAIL_IF(found == NULL, err, STATUS_CORRUPT,
                    "caption of sample %" PRIu64 " has no image", batch.sample_ids[i]);
            e->owner[done + i] = (int32_t)(found - e->sample_ids);
        }
        done += batch.count;
        TRY(report(opt, "captions", done, range, err));
    }
    e->texts_count = done;
    return STATUS_OK;
}

static enum status
gather_images(struct embeddings *e, const struct range *r, struct comm *comm, struct error *err) {
    TRY(gather(comm, r, e->images, (size_t)e->embed_dim * sizeof *e->images, err));
    TRY(gather(comm, r, e->features, (size_t)e->feature_dim * sizeof *e->features, err));
    TRY(gather(comm, r, e->sample_ids, sizeof *e->sample_ids, err));
    return gather(comm, r, e->labels, sizeof *e->labels, err);
}

static bool encodes_images(const struct embed_model *model, const struct embed_options *opt) {
    return !opt->no_images &&
           (model->views != NULL || !dual_encoder_get_options(model->pairs)->texts_alone);
}

/* *size: images, and captions, that are encoded at a time. */
static enum status open_loader(struct loader **out,
                               uint32_t *size,
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
    *size = o.batch_count;
    if (!encodes_images(model, opt)) {
        o.views = 0;
        o.image_size_px = LOADER_MIN_IMAGE_SIDE_PX;
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
                               bool encodes_images,
                               const struct range *images,
                               const struct range *texts,
                               const struct embed_options *opt,
                               const char *dataset_dir,
                               struct error *err) {
    const size_t count = (size_t)images->rows;
    e->sample_ids = calloc(count, sizeof *e->sample_ids);
    e->labels = calloc(count, sizeof *e->labels);
    bool ok = e->sample_ids != NULL && e->labels != NULL;
    if (encodes_images) {
        e->images = calloc(count, (size_t)e->embed_dim * sizeof(float));
        ok = ok && e->images != NULL;
    }
    if (opt->features) {
        e->features = calloc(count, (size_t)e->feature_dim * sizeof(float));
        ok = ok && e->features != NULL;
    }
    if (opt->texts) {
        e->texts = calloc((size_t)texts->rows, (size_t)e->embed_dim * sizeof(float));
        e->owner = calloc((size_t)texts->rows, sizeof *e->owner);
        ok = ok && e->texts != NULL && e->owner != NULL;
    }
    return ok ? STATUS_OK
              : error_set(err, STATUS_NOMEM, "%s: no memory for its embeddings", dataset_dir);
}

static enum status embed_texts(struct embeddings *e,
                               struct dual_encoder *model,
                               struct device *dev,
                               struct loader *loader,
                               const struct range *range,
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
    THEN(s, texts_open(&texts, loader_dataset(loader, 0), tokenizer, &to, err));
    THEN(s, encode_texts(e, model, dev, texts, range, opt, err));
    texts_close(texts);
    tokenizer_close(tokenizer);
    TRY(agree(opt, s, err));
    return gather(opt->comm, range, e->texts, (size_t)e->embed_dim * sizeof *e->texts, err);
}

/* This rank's images, and what encoding its captions requires. */
struct job {
    struct loader *loader;
    struct range images, texts;
    int64_t images_count;
};

static enum status begin(struct job *j,
                         struct embeddings *out,
                         const struct embed_model *model,
                         struct device *dev,
                         const char *dataset_dir,
                         const struct embed_options *opt,
                         struct error *err) {
    struct loader_info info;
    uint32_t size;
    FAIL_IF(opt->texts && opt->tokenizer == NULL, err, STATUS_USAGE,
            "captions need a tokenizer, and the model has none");
    FAIL_IF(opt->texts && model->views != NULL, err, STATUS_USAGE,
            "a model of two views has no tower for captions");
    TRY(open_loader(&j->loader, &size, model, dataset_dir, opt, err));
    loader_info(j->loader, &info);
    if (model->views != NULL) {
        out->embed_dim = view_encoder_get_options(model->views)->embed_dim;
        out->feature_dim = view_encoder_feature_count(model->views);
    } else {
        out->embed_dim = dual_encoder_get_options(model->pairs)->embed_dim;
        out->feature_dim = dual_encoder_feature_count(model->pairs);
    }
    FAIL_IF(info.sample_count == 0 || info.sample_count > INT32_MAX, err, STATUS_USAGE,
            "%s has no samples, or too many to hold", dataset_dir);
    FAIL_IF(opt->texts && info.text_count == 0, err, STATUS_USAGE, "%s has no captions",
            dataset_dir);
    j->images_count = (int64_t)info.sample_count;
    j->images = range_of(opt->comm, info.sample_count, size);
    j->texts = range_of(opt->comm, info.text_count, size);
    TRY(take_memory(out, encodes_images(model, opt), &j->images, &j->texts, opt, dataset_dir, err));
    return encode_images(out, model, dev, j->loader, &j->images, opt, err);
}

enum status embed_dataset(struct embeddings *out,
                          const struct embed_model *model,
                          struct device *dev,
                          const char *dataset_dir,
                          const struct embed_options *opt,
                          struct error *err) {
    REQUIRE(out != NULL && model != NULL && dev != NULL && dataset_dir != NULL && opt != NULL);
    struct job j = {0};
    memset(out, 0, sizeof *out);
    enum status s = agree(opt, begin(&j, out, model, dev, dataset_dir, opt, err), err);
    if (s == STATUS_OK) {
        out->images_count = j.images_count;
        s = gather_images(out, &j.images, opt->comm, err);
    }
    if (s == STATUS_OK && opt->texts) {
        s = embed_texts(out, model->pairs, dev, j.loader, &j.texts, opt, err);
    }
    loader_close(j.loader);
    if (s != STATUS_OK) {
        embeddings_fini(out);
    }
    return s;
}
