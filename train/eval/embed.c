/*
 * embed: images through a sequential loader, captions through the iterator over all texts.
 *
 * With W ranks each encodes a range of the groups that one rank would encode, of the same size,
 * because an embedding's rounding may depend on how many are encoded together:
 *
 *   groups   | 0 | 1 | 2 | 3 | 4 | 5 | 6 |      rank 0: 0 to 2, rank 1: 3 to 5, rank 2: 6
 *
 * All ranks except the last ones have the same number of groups, so that the gathered ranges are
 * the whole, followed by unused rows.
 */
#include "train/eval/embed.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/sort.h"
#include "formats/tokenizer/tokenizer.h"
#include "kernels/bf16.h"
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
    uint64_t first, count, last; /* [first, last); count: of every rank except the last ones */
    int64_t size;                /* rows of a group */
    int64_t rows;                /* of all ranges, at least the groups' rows */
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

/* One call of embed_dataset. */
struct job {
    struct embeddings *out;
    const struct embed_model *model;
    struct device *dev;
    const char *dataset_dir;
    const struct embed_options *opt;
    struct loader *loader;
    struct range images, texts;
};

/* Gathers all rows of `data`, each of row_bytes, on all ranks. */
static enum status gather(const struct job *j,
                          const struct range *r,
                          void *data,
                          size_t row_bytes,
                          struct error *err) {
    struct comm *comm = j->opt->comm;
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
static enum status report(const struct job *j, bool texts, int64_t done, struct error *err) {
    const struct embed_options *opt = j->opt;
    if (opt->progress != NULL) {
        opt->progress(opt->cookie, texts ? "captions" : "images", (uint64_t)done,
                      texts ? j->texts.rows_count : j->images.rows_count);
    }
    return opt->should_stop != NULL && opt->should_stop(opt->cookie)
               ? error_set(err, STATUS_INTERRUPTED, "stopped on request")
               : STATUS_OK;
}

/* Copies rows as f32. BF16 rows are first copied to the second half of the rows' memory. */
static enum status
take_features(const struct job *j, const struct tensor *features, float *out, struct error *err) {
    const size_t size_bytes = tensor_size_bytes(features);
    if (features->dtype != DTYPE_BF16) {
        return j->dev->ops->download(j->dev, out, features->data, size_bytes, err);
    }
    uint8_t *half = (uint8_t *)out + size_bytes;
    TRY(j->dev->ops->download(j->dev, half, features->data, size_bytes, err));
    for (size_t i = 0; i < size_bytes / sizeof(uint16_t); i++) {
        uint16_t x;
        memcpy(&x, half + i * sizeof x, sizeof x);
        out[i] = bf16_to_f32(x);
    }
    return STATUS_OK;
}

/* Copies to the rows from `first` on. */
static enum status encode_batch(const struct job *j,
                                const struct loader_batch *batch,
                                int64_t first,
                                struct error *err) {
    struct embeddings *e = j->out;
    struct device *dev = j->dev;
    struct tensor image;
    struct tensor features;
    struct tensor *requested = e->features != NULL ? &features : NULL;
    const int32_t count = (int32_t)batch->count;
    TRY(j->model->views != NULL
            ? view_encoder_encode(j->model->views, &image, requested, batch->images, count, err)
            : dual_encoder_encode_images(j->model->pairs, &image, requested, batch->images, count,
                                         err));
    TRY(dev->ops->download(dev, e->images + first * e->embed_dim, image.data,
                           tensor_size_bytes(&image), err));
    return requested == NULL
               ? STATUS_OK
               : take_features(j, &features, e->features + first * e->feature_dim, err);
}

static enum status encode_images(const struct job *j, struct error *err) {
    const struct range *range = &j->images;
    struct embeddings *e = j->out;
    int64_t done = (int64_t)range->first * range->size;
    if (range->first > 0 && range->first < range->last) {
        struct loader_state place = loader_state(j->loader);
        place.step = range->first;
        TRY(loader_seek(j->loader, &place, err));
    }
    TRY(report(j, false, done, err));
    for (uint64_t i = range->first; i < range->last; i++) {
        struct loader_batch batch;
        TRY(loader_acquire(j->loader, &batch, err));
        TRY(e->images != NULL ? encode_batch(j, &batch, done, err) : STATUS_OK);
        memcpy(e->sample_ids + done, batch.sample_ids, batch.count * sizeof *batch.sample_ids);
        memcpy(e->labels + done, batch.labels, batch.count * sizeof *batch.labels);
        done += batch.count;
        loader_release(j->loader, &batch);
        TRY(report(j, false, done, err));
    }
    struct loader_stats stats;
    loader_stats(j->loader, &stats);
    e->unturned_count = stats.unturned_count;
    e->opaque_count = stats.opaque_count;
    return STATUS_OK;
}

static enum status encode_texts(const struct job *j, struct texts *texts, struct error *err) {
    const struct range *range = &j->texts;
    struct embeddings *e = j->out;
    int64_t done = 0;
    TRY(report(j, true, done, err));
    for (uint64_t group = 0;; group++) { /* the captions of other ranks are read, not encoded */
        struct texts_batch batch;
        const enum status s = texts_next(texts, &batch, err);
        if (s == STATUS_END) {
            break;
        }
        TRY(s);
        if (group >= range->first && group < range->last) {
            struct tensor text;
            TRY(dual_encoder_encode_texts(j->model->pairs, &text, batch.tokens, batch.lengths,
                                          (int32_t)batch.count, err));
            TRY(j->dev->ops->download(j->dev, e->texts + done * e->embed_dim, text.data,
                                      tensor_size_bytes(&text), err));
        }
        for (uint32_t i = 0; i < batch.count; i++) {
            const uint64_t *found =
                bsearch(&batch.sample_ids[i], e->sample_ids, (size_t)e->images_count,
                        sizeof *e->sample_ids, compare_u64);
            FAIL_IF(found == NULL, err, STATUS_CORRUPT,
                    "caption of sample %" PRIu64 " has no image", batch.sample_ids[i]);
            e->owner[done + i] = (int32_t)(found - e->sample_ids);
        }
        done += batch.count;
        TRY(report(j, true, done, err));
    }
    e->texts_count = done;
    return STATUS_OK;
}

static enum status gather_images(const struct job *j, struct error *err) {
    struct embeddings *e = j->out;
    const struct range *r = &j->images;
    TRY(gather(j, r, e->images, (size_t)e->embed_dim * sizeof *e->images, err));
    TRY(gather(j, r, e->features, (size_t)e->feature_dim * sizeof *e->features, err));
    TRY(gather(j, r, e->sample_ids, sizeof *e->sample_ids, err));
    return gather(j, r, e->labels, sizeof *e->labels, err);
}

static bool encodes_images(const struct job *j) {
    return !j->opt->no_images &&
           (j->model->views != NULL || !dual_encoder_get_options(j->model->pairs)->texts_alone);
}

/* *size: images, or captions, encoded at a time. Sets the dimensions of the result. */
static enum status open_loader(struct job *j, uint32_t *size, struct error *err) {
    struct loader_options o;
    loader_options_default(&o);
    if (j->model->views != NULL) {
        const struct view_encoder_options *vo = view_encoder_get_options(j->model->views);
        o.batch_count = (uint32_t)(vo->micro_batch > 0 ? 2 * vo->micro_batch : vo->max_batch);
        o.image_size_px = (uint32_t)vo->image.image_px;
        j->out->embed_dim = vo->embed_dim;
        j->out->feature_dim = view_encoder_feature_count(j->model->views);
    } else {
        const struct dual_encoder_options *mo = dual_encoder_get_options(j->model->pairs);
        o.batch_count = (uint32_t)mo->micro_batch;
        o.image_size_px = (uint32_t)mo->image.image_px;
        j->out->embed_dim = mo->embed_dim;
        j->out->feature_dim = dual_encoder_feature_count(j->model->pairs);
    }
    *size = o.batch_count;
    if (!encodes_images(j)) {
        o.views = 0;
        o.image_size_px = LOADER_MIN_IMAGE_SIDE_PX;
    }
    o.augment = j->opt->augment;
    o.as_stored = j->opt->as_stored;
    o.captions = LOADER_CAPTIONS_NONE;
    o.order = LOADER_ORDER_SEQUENTIAL;
    o.drop_last = false;
    o.epochs = 1;
    o.max_corrupt_count = 0;
    o.threads = j->opt->threads;
    o.log = j->opt->log;
    return loader_open(&j->loader, j->dataset_dir, &o, err);
}

static enum status take_memory(const struct job *j, struct error *err) {
    struct embeddings *e = j->out;
    const size_t count = (size_t)j->images.rows;
    e->sample_ids = calloc(count, sizeof *e->sample_ids);
    e->labels = calloc(count, sizeof *e->labels);
    bool ok = e->sample_ids != NULL && e->labels != NULL;
    if (encodes_images(j)) {
        e->images = calloc(count, (size_t)e->embed_dim * sizeof(float));
        ok = ok && e->images != NULL;
    }
    if (j->opt->features) {
        e->features = calloc(count, (size_t)e->feature_dim * sizeof(float));
        ok = ok && e->features != NULL;
    }
    if (j->opt->texts) {
        e->texts = calloc((size_t)j->texts.rows, (size_t)e->embed_dim * sizeof(float));
        e->owner = calloc((size_t)j->texts.rows, sizeof *e->owner);
        ok = ok && e->texts != NULL && e->owner != NULL;
    }
    return ok ? STATUS_OK
              : error_set(err, STATUS_NOMEM, "%s: no memory for its embeddings", j->dataset_dir);
}

static enum status embed_texts(const struct job *j, struct error *err) {
    const struct dual_encoder_options *mo = dual_encoder_get_options(j->model->pairs);
    struct tokenizer *tokenizer = NULL;
    struct texts *texts = NULL;
    struct texts_options to;
    texts_options_default(&to);
    to.batch_count = (uint32_t)mo->micro_batch;
    to.max_tokens = (uint32_t)mo->text.max_tokens;
    to.clean_captions = j->opt->clean_captions;
    enum status s =
        tokenizer_open(&tokenizer, j->opt->tokenizer, j->opt->tokenizer_size_bytes, err);
    THEN(s, texts_open(&texts, loader_dataset(j->loader, 0), tokenizer, &to, err));
    THEN(s, encode_texts(j, texts, err));
    texts_close(texts);
    tokenizer_close(tokenizer);
    TRY(agree(j->opt, s, err));
    return gather(j, &j->texts, j->out->texts, (size_t)j->out->embed_dim * sizeof(float), err);
}

/* Encodes this rank's images, and prepares its captions. */
static enum status begin(struct job *j, struct error *err) {
    const struct embed_options *opt = j->opt;
    struct loader_info info;
    uint32_t size;
    FAIL_IF(opt->texts && opt->tokenizer == NULL, err, STATUS_USAGE,
            "captions need a tokenizer, and the model has none");
    FAIL_IF(opt->texts && j->model->views != NULL, err, STATUS_USAGE,
            "a model for two views has no text tower");
    TRY(open_loader(j, &size, err));
    loader_info(j->loader, &info);
    FAIL_IF(info.sample_count == 0 || info.sample_count > INT32_MAX, err, STATUS_USAGE,
            "%s has no samples, or too many to hold", j->dataset_dir);
    FAIL_IF(opt->texts && info.text_count == 0, err, STATUS_USAGE, "%s has no captions",
            j->dataset_dir);
    j->images = range_of(opt->comm, info.sample_count, size);
    j->texts = range_of(opt->comm, info.text_count, size);
    TRY(take_memory(j, err));
    return encode_images(j, err);
}

/* NaN would have an arbitrary rank. */
static enum status check_finite(const struct job *j, struct error *err) {
    const struct embeddings *e = j->out;
    const struct {
        const char *what;
        const float *values;
        int64_t rows, dim;
    } all[] = {{"image", e->images, e->images_count, e->embed_dim},
               {"image features", e->features, e->images_count, e->feature_dim},
               {"caption", e->texts, e->texts_count, e->embed_dim}};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        for (int64_t i = 0; all[k].values != NULL && i < all[k].rows * all[k].dim; i++) {
            FAIL_IF(!isfinite(all[k].values[i]), err, STATUS_CORRUPT,
                    "%s: the model's %s embedding of row %lld is not finite; training diverged",
                    j->dataset_dir, all[k].what, (long long)(i / all[k].dim));
        }
    }
    return STATUS_OK;
}

enum status embed_dataset(struct embeddings *out,
                          const struct embed_model *model,
                          struct device *dev,
                          const char *dataset_dir,
                          const struct embed_options *opt,
                          struct error *err) {
    REQUIRE(out != NULL && model != NULL && dev != NULL && dataset_dir != NULL && opt != NULL);
    struct job j = {.out = out, .model = model, .dev = dev, .dataset_dir = dataset_dir, .opt = opt};
    memset(out, 0, sizeof *out);
    enum status s = agree(opt, begin(&j, err), err);
    if (s == STATUS_OK) {
        out->images_count = (int64_t)j.images.rows_count;
        s = gather_images(&j, err);
    }
    if (s == STATUS_OK && opt->texts) {
        s = embed_texts(&j, err);
    }
    THEN(s, check_finite(&j, err));
    loader_close(j.loader);
    if (s != STATUS_OK) {
        embeddings_fini(out);
    }
    return s;
}
