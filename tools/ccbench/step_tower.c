/*
 * ccbench step --tower image or text: one tower without projection and loss.
 */
#include <stdlib.h>

#include "tools/ccbench/step_internal.h"
#include "train/model/carve.h"
#include "train/model/dual_encoder.h"
#include "train/model/open_clip.h"

enum { BLOCKS = 16 };

struct bench_tower {
    struct device *dev;
    struct params *params;
    struct resnet *image; /* or */
    struct vit *vit;      /* or */
    struct transformer *text;
    struct tensor images; /* (N, S, S, 3) */
    struct transformer_batch captions;
    struct tensor dfeatures; /* (N, F) */
    struct step_values *values;
    int64_t feature_count; /* F */
    void *blocks[BLOCKS];  /* all device memory */
    int block_count;
};

/* Allocates size_bytes on the device, with a copy of `from` unless it is NULL. */
static enum status
take(struct bench_tower *t, void **out, const void *from, size_t size_bytes, struct error *err) {
    TRY(t->dev->ops->alloc(t->dev, size_bytes, out, err));
    t->blocks[t->block_count++] = *out;
    return from != NULL ? t->dev->ops->upload(t->dev, *out, from, size_bytes, err) : STATUS_OK;
}

static enum status put_captions(struct bench_tower *t,
                                struct bench_step *b,
                                const struct loader_batch *pairs,
                                struct error *err) {
    const int64_t n = (int64_t)b->o->batch;
    const bool padded = b->o->padding == 1;
    int32_t *starts = calloc(2 * (size_t)n + 1, sizeof *starts);
    int32_t *ends = starts + n + 1;
    void *data[5] = {NULL};
    TRY_MEMORY(starts, err, "no memory for a batch of %lld", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        b->token_count += (uint64_t)pairs->lengths[i];
        starts[i + 1] = starts[i] + (padded ? (int32_t)b->o->tokens : pairs->lengths[i]);
        ends[i] = starts[i] + pairs->lengths[i] - 1;
    }
    const int64_t rows = starts[n];
    enum status s = take(t, &data[0], pairs->tokens, (size_t)rows * sizeof *starts, err);
    THEN(s, take(t, &data[1], starts, (size_t)n * sizeof *starts, err));
    THEN(s, take(t, &data[2], pairs->lengths, (size_t)n * sizeof *starts, err));
    THEN(s, take(t, &data[3], pairs->sample_ids, (size_t)n * sizeof(uint64_t), err));
    THEN(s, take(t, &data[4], ends, (size_t)n * sizeof *ends, err));
    free(starts);
    t->captions = (struct transformer_batch){.tokens = tensor_1d(data[0], DTYPE_I32, rows),
                                             .starts = tensor_1d(data[1], DTYPE_I32, n),
                                             .lengths = tensor_1d(data[2], DTYPE_I32, n),
                                             .ends = tensor_1d(data[4], DTYPE_I32, n),
                                             .sample_ids = data[3],
                                             .longest = (int64_t)b->o->tokens,
                                             .seed = 1,
                                             .values = t->values};
    return s;
}

static void place(struct bench_tower *t,
                  struct device *dev,
                  enum dtype dtype,
                  struct carve *kept,
                  struct carve *workspace) {
    if (t->image != NULL) {
        resnet_place(t->image, dev, dtype, kept, workspace);
    } else if (t->vit != NULL) {
        vit_place(t->vit, dev, dtype, kept, workspace);
    } else {
        transformer_place(t->text, dev, dtype, kept, workspace);
    }
}

enum status step_options_of_model(struct dual_encoder_options *out,
                                  const struct step_options *o,
                                  struct error *err) {
    char config[OPEN_CLIP_CONFIG_BYTES];
    if (o->model == NULL) {
        return dual_encoder_preset(out, o->image_tower, o->text_tower, err);
    }
    TRY(open_clip_config(config, o->model, err));
    return open_clip_options(out, config, err);
}

static enum status
create_tower(struct bench_tower *t, const struct bench_step *b, struct error *err) {
    const struct step_options *o = b->o;
    struct dual_encoder_options m;
    TRY(step_options_of_model(&m, o, err));
    m.image.image_px = (int32_t)o->image_size;
    m.image.stem = o->stem == 1 ? RESNET_STEM_SMALL : RESNET_STEM_STANDARD;
    m.text.max_tokens = (int32_t)o->tokens;
    m.text.vocab_count = (int32_t)o->vocab;
    m.text.dropout = o->dropout >= 0.0 ? (float)o->dropout : m.text.dropout;
    m.image.max_batch = m.text.max_batch = m.vit.max_batch = (int32_t)o->batch;
    m.text.training = m.vit.training = true;
    m.vit.image_px = m.image.image_px;
    t->feature_count = o->tower == STEP_IMAGE ? m.vit.dim : m.text.dim;
    m.image.training = true;
    TRY(params_create(&t->params, err));
    const enum blocks_keep keep = blocks_keep_of(false, t->dev->stream == NULL);
    if (o->tower == STEP_IMAGE && m.vit.layers > 0) {
        TRY(vit_create(&t->vit, t->params, &m.vit, err));
        vit_set_backward(t->vit, 0, keep);
    } else if (o->tower == STEP_IMAGE) {
        TRY(resnet_create(&t->image, t->params, &m.image, err));
    } else {
        TRY(transformer_create(&t->text, t->params, &m.text, err));
        transformer_set_backward(t->text, 0, keep);
    }
    return STATUS_OK;
}

static enum status open_tower(struct bench_tower *t, struct bench_step *b, struct error *err) {
    const struct step_values first = {.grad_scale = 1.0, .sound = 1, .lr = 1e-5};
    const int64_t n = (int64_t)b->o->batch;
    const int64_t px = (int64_t)b->o->image_size;
    struct carve kept = {0};
    struct carve workspace = {0};
    void *data = NULL;
    TRY(t->dev->ops->supports(t->dev, b->dtype, err));
    TRY(create_tower(t, b, err));
    place(t, NULL, b->dtype, &kept, &workspace);
    TRY(params_alloc(t->params, t->dev, b->dtype, true, err));
    TRY(params_init(t->params, 1, err));
    TRY(take(t, &data, &first, sizeof first, err));
    t->values = data;
    TRY(take(t, &data, NULL, kept.used_bytes, err));
    kept = (struct carve){.base = data};
    TRY(take(t, &data, NULL, workspace.used_bytes, err));
    workspace = (struct carve){.base = data};
    place(t, t->dev, b->dtype, &kept, &workspace);
    TRY(t->vit != NULL ? vit_ready(t->vit, err) : resnet_ready(t->image, err));
    const int64_t f = t->image != NULL ? resnet_feature_count(t->image) : t->feature_count;
    TRY(take(t, &data, NULL, (size_t)(n * f) * dtype_size_bytes(b->dtype), err));
    t->dfeatures = tensor_2d(data, b->dtype, n, f);
    const struct fill fill = {.out = t->dfeatures, .value = 1.0 / (double)(n * f)};
    TRY(t->dev->ops->fill(t->dev, &fill, err));
    struct loader_batch pairs = {0};
    enum status s = step_make_pairs(&pairs, b->o, NULL, err);
    if (s == STATUS_OK && b->o->tower == STEP_IMAGE) {
        s = take(t, &data, pairs.images, (size_t)(n * px * px * 3), err);
        t->images = tensor_4d(data, DTYPE_U8, n, px, px, 3);
    } else if (s == STATUS_OK) {
        s = put_captions(t, b, &pairs, err);
    }
    const void *const parts[] = {pairs.images, pairs.tokens, pairs.lengths, pairs.sample_ids};
    for (size_t i = 0; i < CLI_COUNT(parts); i++) {
        free((void *)(uintptr_t)parts[i]);
    }
    return s;
}

enum status bench_tower_open(struct bench_tower **out, struct bench_step *b, struct error *err) {
    struct bench_tower *t = calloc(1, sizeof *t);
    TRY_MEMORY(t, err, "no memory for a tower");
    t->dev = b->dev;
    const enum status s = open_tower(t, b, err);
    RETURN_CREATED(s, out, t, bench_tower_close);
}

enum status bench_tower_run(struct bench_tower *t, struct error *err) {
    struct tensor features;
    struct optimizer_options how;
    struct step_values values;
    optimizer_options_default(&how);
    if (t->image != NULL) {
        TRY(resnet_forward(t->image, &features, &t->images, RESNET_TRAINING, err));
        TRY(resnet_backward(t->image, &t->dfeatures, WRITE_SET, NULL, err));
    } else if (t->vit != NULL) {
        TRY(vit_forward(t->vit, &features, &t->images, NOT_WANTED, true, err));
        TRY(vit_backward(t->vit, &t->dfeatures, WRITE_SET, NULL, err));
    } else {
        TRY(transformer_forward(t->text, &features, &t->captions, true, err));
        TRY(transformer_backward(t->text, &t->dfeatures, &t->captions, WRITE_SET, NULL, err));
    }
    TRY(optimizer_step(t->params, t->dev, t->values, &how, err));
    TRY(t->dev->ops->download(t->dev, &values, t->values, sizeof values, err));
    FAIL_IF(values.sound == 0, err, STATUS_CORRUPT, "a measured step was not finite");
    return STATUS_OK;
}

void bench_tower_close(struct bench_tower *t) {
    if (t == NULL) {
        return;
    }
    resnet_destroy(t->image);
    vit_destroy(t->vit);
    transformer_destroy(t->text);
    params_destroy(t->params);
    for (int i = 0; i < t->block_count; i++) {
        t->dev->ops->free(t->dev, t->blocks[i]);
    }
    free(t);
}
