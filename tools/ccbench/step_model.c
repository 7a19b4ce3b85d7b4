/*
 * ccbench step, the step itself: a batch that is made up or comes from the loader, the model or one
 * tower, the loss, the optimiser.
 */
#include <stdlib.h>

#include "formats/base/clock.h"
#include "formats/base/rng.h"
#include "kernels/device_stream.h"
#include "tools/ccbench/step_internal.h"
#include "tools/cli/path_kind.h"

static const double RATE = 1e-5;
static const double ZETA_RATE = 5e-6;

/* ---- made-up pairs ---- */

static enum status make_input(struct bench_step *b, struct error *err) {
    const struct step_options *o = b->o;
    const size_t n = (size_t)o->batch;
    const size_t bytes = n * (size_t)o->image_size * (size_t)o->image_size * 3;
    struct rng r;
    b->host = bench_step_host_memory(b->dev);
    b->pixels = b->host.alloc(b->host.cookie, bytes);
    b->lengths = b->host.alloc(b->host.cookie, n * sizeof *b->lengths);
    b->ids = b->host.alloc(b->host.cookie, n * sizeof *b->ids);
    b->tokens = calloc(n * (size_t)o->tokens, sizeof *b->tokens);
    b->starts = calloc(n, sizeof *b->starts);
    TRY_MEMORY(b->pixels != NULL && b->tokens != NULL && b->lengths != NULL && b->starts != NULL &&
                   b->ids != NULL,
               err, "no memory for a batch of %zu", n);
    rng_init(&r, 1, RNG_INIT, 0, 0);
    for (size_t i = 0; i < bytes; i++) {
        b->pixels[i] = (uint8_t)rng_below(&r, 256);
    }
    for (size_t i = 0; i < n * (size_t)o->tokens; i++) {
        b->tokens[i] = (int32_t)rng_below(&r, (uint32_t)o->vocab);
    }
    const uint32_t least = (uint32_t)(o->tokens + 2) / 3;
    for (size_t i = 0; i < n; i++) {
        const uint32_t more = (uint32_t)o->tokens - least;
        b->lengths[i] = (int32_t)(o->full || i == 0 ? o->tokens : least + rng_below(&r, more + 1));
        b->token_count += (uint64_t)b->lengths[i];
        b->ids[i] = (uint64_t)i;
    }
    return STATUS_OK;
}

/* ---- pairs of a dataset ---- */

static enum status open_loader(struct bench_step *b, struct loader_info *info, struct error *err) {
    const struct step_options *o = b->o;
    struct loader_options lo;
    loader_options_default(&lo);
    lo.batch_count = (uint32_t)o->batch;
    lo.image_size_px = (uint32_t)o->image_size;
    lo.augment = AUGMENT_TRAIN;
    lo.seed = 1;
    lo.max_tokens = (uint32_t)o->tokens;
    lo.threads = (uint32_t)o->loader_threads;
    lo.host_memory = bench_step_host_memory(b->dev);
    TRY(path_check_dataset(o->data, err));
    TRY(loader_open(&b->loader, o->data, &lo, err));
    loader_info(b->loader, info);
    FAIL_IF(info->vocab_count == 0, err, STATUS_USAGE,
            "%s has no tokenizer; make one with 'ccpack tokenizer %s'", o->data, o->data);
    FAIL_IF(info->vocab_count > o->vocab, err, STATUS_USAGE,
            "%s has %u pieces: give --vocab %u or more", o->data, (unsigned)info->vocab_count,
            (unsigned)info->vocab_count);
    return STATUS_OK;
}

enum status bench_step_take_batch(struct bench_step *b,
                                  struct loader_batch *held,
                                  bool *held_used,
                                  struct error *err) {
    if (b->loader == NULL || (b->hold && *held_used)) {
        return STATUS_OK;
    }
    const int64_t start_ns = clock_now_ns();
    if (*held_used) {
        loader_release(b->loader, held);
        *held_used = false;
    }
    TRY(loader_acquire(b->loader, held, err));
    *held_used = true;
    b->waited_s += (double)(clock_now_ns() - start_ns) * 1e-9;
    b->token_count = 0;
    for (uint32_t i = 0; i < held->count; i++) {
        b->token_count += (uint64_t)held->lengths[i];
    }
    return STATUS_OK;
}

struct dual_encoder_batch bench_step_batch(const struct bench_step *b,
                                           const struct loader_batch *held) {
    return (struct dual_encoder_batch){.count = (int32_t)b->o->batch,
                                       .images = held != NULL ? held->images : b->pixels,
                                       .tokens = held != NULL ? held->tokens : b->tokens,
                                       .lengths = held != NULL ? held->lengths : b->lengths,
                                       .sample_ids = held != NULL ? held->sample_ids : b->ids,
                                       .seed = 1,
                                       .values = b->values};
}

/* ---- the whole model ---- */

static enum status take(struct bench_step *b, size_t size_bytes, void **out, struct error *err) {
    return b->dev->ops->alloc(b->dev, size_bytes, out, err);
}

/* The loss to where its state is to be. */
static enum status place_loss(struct bench_step *b, struct error *err) {
    static const char *const names[] = {"host", "device", "pinned"};
    enum sample_state_place place = SAMPLE_STATE_HOST;
    struct error why = {0};
    b->state_place = names[SAMPLE_STATE_HOST];
    const int wanted = b->o->state;
    if (wanted == STEP_STATE_HOST || !loss_device_offered(b->loss, b->dev, &why)) {
        return wanted == STEP_STATE_DEVICE || wanted == STEP_STATE_PINNED
                   ? error_set(err, STATUS_UNSUPPORTED, "--state-memory: %s", why.text)
                   : STATUS_OK;
    }
    if (wanted == STEP_STATE_AUTO) {
        TRY(sample_state_choose_place(&place, b->state, b->dev, err));
    } else {
        place = wanted == STEP_STATE_DEVICE ? SAMPLE_STATE_DEVICE : SAMPLE_STATE_PINNED;
    }
    b->state_place = names[place];
    return loss_device_create(&b->loss_device, b->loss, b->state, b->dev, place,
                              (int64_t)b->o->batch, b->values, err);
}

static enum status
open_both(struct bench_step *b, const struct loader_info *data_info, struct error *err) {
    const int64_t n = (int64_t)b->o->batch;
    const int64_t e = b->model.embed_dim;
    struct loss_options lo;
    void *data[3];
    TRY(dual_encoder_create(&b->both, b->dev, &b->model, err));
    TRY(params_init(dual_encoder_params(b->both), 1, err));
    loss_options_default(&lo);
    lo.name = b->o->loss;
    lo.emc2_carry = LOSS_EMC2_SKIP; /* no samples of other batches are at hand */
    TRY(sample_state_create(&b->state, data_info->id_space, NULL, err));
    TRY(loss_create(&b->loss, &lo, b->state, data_info->sample_count, n, err));
    FAIL_IF(loss_uses_self(b->loss) || loss_carries(b->loss), err, STATUS_USAGE,
            "--loss %s is not measured here", lo.name);
    TRY(place_loss(b, err));
    if (b->loss_device == NULL) {
        b->similarity = calloc((size_t)(n * n), sizeof(float));
        b->gradient = calloc((size_t)(n * n), sizeof(float));
        TRY_MEMORY(b->similarity != NULL && b->gradient != NULL, err,
                   "no memory for a batch of %lld", (long long)n);
        TRY(take(b, (size_t)(n * n) * sizeof(float), &data[0], err));
        b->s = tensor_2d(data[0], DTYPE_F32, n, n);
    }
    TRY(take(b, (size_t)(n * e) * sizeof(float), &data[1], err));
    b->dx = tensor_2d(data[1], DTYPE_F32, n, e);
    TRY(take(b, (size_t)(n * e) * sizeof(float), &data[2], err));
    b->dt = tensor_2d(data[2], DTYPE_F32, n, e);
    return STATUS_OK;
}

/* S to the host, the loss there, its gradient to b->s. */
static enum status
loss_on_host(struct bench_step *b, const struct dual_encoder_batch *batch, struct error *err) {
    const struct ops *ops = b->dev->ops;
    const size_t size = tensor_size_bytes(&b->s);
    const struct loss_input in = {.similarity = b->similarity,
                                  .sample_ids = batch->sample_ids,
                                  .batch_count = batch->count,
                                  .step = b->step,
                                  .lr = RATE,
                                  .zeta_lr_text = ZETA_RATE,
                                  .zeta_lr_image = ZETA_RATE};
    struct loss_output out = {.gradient = b->gradient};
    TRY(ops->download(b->dev, b->similarity, b->s.data, size, err));
    TRY(loss_step(b->loss, &in, &out, err));
    b->loss_value = out.value;
    return ops->upload(b->dev, b->s.data, b->gradient, size, err);
}

static enum status
step_both(struct bench_step *b, const struct dual_encoder_batch *batch, struct error *err) {
    const struct ops *ops = b->dev->ops;
    const struct loss_device_matrix here = {b->s, b->s};
    const struct loss_device_matrix *m =
        b->loss_device != NULL ? loss_device_matrix(b->loss_device, LOSS_DEVICE_CROSS) : &here;
    struct tensor x, t;
    TRY(dual_encoder_forward(b->both, &x, &t, batch, true, err));
    const struct matmul multiply = {
        .out = m->similarity, .a = x, .b = t, .transpose_b = true, .alpha = 1.0f};
    TRY(ops->matmul(b->dev, &multiply, err));
    TRY(b->loss_device != NULL ? loss_device_step(b->loss_device, err)
                               : loss_on_host(b, batch, err));
    const struct matmul dx = {.out = b->dx, .a = m->gradient, .b = t, .alpha = 1.0f};
    const struct matmul dt = {
        .out = b->dt, .a = m->gradient, .b = x, .transpose_a = true, .alpha = 1.0f};
    TRY(ops->matmul(b->dev, &dx, err));
    TRY(ops->matmul(b->dev, &dt, err));
    return dual_encoder_backward(b->both, &b->dx, &b->dt, batch, WRITE_SET, NULL, err);
}

/* ---- one tower ---- */

static enum status upload_tower_input(struct bench_step *b, int64_t token_rows, struct error *err) {
    const struct ops *ops = b->dev->ops;
    const int64_t n = (int64_t)b->o->batch;
    if (b->image != NULL) {
        const int64_t px = (int64_t)b->o->image_size;
        b->images = tensor_4d(b->input, DTYPE_U8, n, px, px, 3);
        return ops->upload(b->dev, b->input, b->pixels, tensor_size_bytes(&b->images), err);
    }
    int32_t *at = b->input;
    b->captions.tokens = tensor_1d(at, DTYPE_I32, token_rows);
    b->captions.starts = tensor_1d(at + token_rows, DTYPE_I32, n);
    b->captions.lengths = tensor_1d(at + token_rows + n, DTYPE_I32, n);
    uint64_t *ids = (uint64_t *)((uint8_t *)b->input + b->ids_at);
    b->captions.sample_ids = ids;
    TRY(ops->upload(b->dev, ids, b->ids, (size_t)n * sizeof *ids, err));
    b->captions.longest = (int64_t)b->o->tokens;
    int32_t start = 0;
    for (int64_t i = 0; i < n; i++) {
        b->starts[i] = start;
        start += b->o->padding == 1 ? (int32_t)b->o->tokens : b->lengths[i];
    }
    TRY(ops->upload(b->dev, at, b->tokens, (size_t)token_rows * sizeof *at, err));
    TRY(ops->upload(b->dev, at + token_rows, b->starts, (size_t)n * sizeof *at, err));
    return ops->upload(b->dev, at + token_rows + n, b->lengths, (size_t)n * sizeof *at, err);
}

static enum status open_tower(struct bench_step *b, struct error *err) {
    const int64_t n = (int64_t)b->o->batch;
    const enum dtype dtype = b->model.dtype;
    const bool image = b->o->tower == STEP_IMAGE;
    const int64_t token_rows =
        b->o->padding == 1 ? n * (int64_t)b->o->tokens : (int64_t)b->token_count;
    struct carve kept = {0};
    struct carve scratch = {0};
    size_t input;
    b->model.image.max_batch = (int32_t)n;
    b->model.text.max_batch = (int32_t)n;
    TRY(b->dev->ops->supports(b->dev, dtype, err));
    TRY(params_create(&b->params, err));
    if (image) {
        TRY(resnet_create(&b->image, b->params, &b->model.image, err));
        resnet_place(b->image, NULL, dtype, &kept, &scratch);
        input = (size_t)n * (size_t)b->o->image_size * (size_t)b->o->image_size * 3;
    } else {
        TRY(transformer_create(&b->text, b->params, &b->model.text, err));
        transformer_place(b->text, NULL, dtype, &kept, &scratch);
        b->ids_at = ((size_t)(token_rows + 2 * n) * sizeof(int32_t) + 7) / 8 * 8;
        input = b->ids_at + (size_t)n * sizeof(uint64_t);
    }
    TRY(params_alloc(b->params, b->dev, dtype, true, err));
    TRY(params_init(b->params, 1, err));
    TRY(take(b, kept.used_bytes, &b->kept, err));
    TRY(take(b, scratch.used_bytes, &b->scratch, err));
    TRY(take(b, input, &b->input, err));
    const int64_t f = image ? resnet_feature_count(b->image) : b->model.text.dim;
    void *data;
    TRY(take(b, (size_t)(n * f) * dtype_size_bytes(dtype), &data, err));
    b->dfeatures = tensor_2d(data, dtype, n, f);
    const struct fill fill = {.out = b->dfeatures, .value = 1.0 / (double)(n * f)};
    TRY(b->dev->ops->fill(b->dev, &fill, err));
    kept = (struct carve){.base = b->kept};
    scratch = (struct carve){.base = b->scratch};
    if (image) {
        resnet_place(b->image, b->dev, dtype, &kept, &scratch);
    } else {
        transformer_place(b->text, b->dev, dtype, &kept, &scratch);
    }
    return upload_tower_input(b, token_rows, err);
}

static enum status step_tower(struct bench_step *b, struct error *err) {
    struct tensor features;
    if (b->image != NULL) {
        TRY(resnet_forward(b->image, &features, &b->images, RESNET_TRAINING, err));
        return resnet_backward(b->image, &b->dfeatures, WRITE_SET, NULL, err);
    }
    b->captions.seed = 1;
    b->captions.values = b->values;
    TRY(transformer_forward(b->text, &features, &b->captions, true, err));
    return transformer_backward(b->text, &b->dfeatures, &b->captions, WRITE_SET, NULL, err);
}

/* ---- all of it ---- */

enum status bench_step_put_values(struct bench_step *b,
                                  const struct dual_encoder_batch *batch,
                                  struct error *err) {
    const struct step_values values = {
        .step = b->step, .lr = RATE, .zeta_lr_image = ZETA_RATE, .zeta_lr_text = ZETA_RATE};
    TRY(b->dev->ops->upload(b->dev, b->values, &values, STEP_VALUES_SET_BYTES, err));
    return b->loss_device != NULL ? loss_device_put_ids(b->loss_device, batch->sample_ids, err)
                                  : STATUS_OK;
}

enum status bench_step_compute(struct bench_step *b,
                               const struct dual_encoder_batch *batch,
                               struct error *err) {
    struct optimizer_options how;
    struct params *p = b->both != NULL ? dual_encoder_params(b->both) : b->params;
    optimizer_options_default(&how);
    TRY(b->both != NULL ? step_both(b, batch, err) : step_tower(b, err));
    return optimizer_step(p, b->dev, b->values, &how, err);
}

enum status bench_step_run(struct bench_step *b, double *seconds, struct error *err) {
    struct bench_flight *f = &b->flights[0];
    const int64_t start_ns = clock_now_ns();
    TRY(bench_step_take_batch(b, &f->held, &f->held_used, err));
    const struct dual_encoder_batch batch = bench_step_batch(b, f->held_used ? &f->held : NULL);
    const struct device_stream *stream = b->dev->stream;
    TRY(bench_step_put_values(b, &batch, err));
    const uint64_t before = stream != NULL ? stream->launches(b->dev) : 0;
    TRY(bench_step_compute(b, &batch, err));
    b->launches_count = stream != NULL ? stream->launches(b->dev) - before : 0;
    b->step++;
    TRY(b->dev->ops->sync(b->dev, err));
    *seconds = (double)(clock_now_ns() - start_ns) * 1e-9;
    return cli_interrupted() ? error_set(err, STATUS_INTERRUPTED, "stopped on request") : STATUS_OK;
}

static enum status model_of(struct bench_step *b, struct error *err) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};
    const struct step_options *o = b->o;
    struct dual_encoder_options *m = &b->model;
    TRY(dual_encoder_preset(m, o->image_tower, o->text_tower, err));
    m->image.image_px = (int32_t)o->image_size;
    m->image.stem = o->stem == 1 ? RESNET_STEM_SMALL : RESNET_STEM_STANDARD;
    m->text.max_tokens = (int32_t)o->tokens;
    m->text.vocab_count = (int32_t)o->vocab;
    m->text.dropout = (float)o->dropout;
    m->max_batch = (int32_t)o->batch;
    m->micro_batch = (int32_t)o->micro_batch;
    m->padded = o->padding == 1;
    m->dtype = types[o->precision];
    return STATUS_OK;
}

void bench_step_close(struct bench_step *b) {
    bench_step_overlap_close(b);
    loss_device_destroy(b->loss_device);
    loss_destroy(b->loss);
    sample_state_destroy(b->state);
    dual_encoder_destroy(b->both);
    resnet_destroy(b->image);
    transformer_destroy(b->text);
    params_destroy(b->params);
    void *const blocks[] = {b->kept,   b->scratch, b->input,   b->dfeatures.data,
                            b->s.data, b->dx.data, b->dt.data, b->values};
    for (size_t i = 0; b->dev != NULL && i < CLI_COUNT(blocks); i++) {
        b->dev->ops->free(b->dev, blocks[i]);
    }
    loader_close(b->loader);
    void *const host[] = {b->pixels, b->lengths, b->ids};
    for (size_t i = 0; b->host.release != NULL && i < CLI_COUNT(host); i++) {
        b->host.release(b->host.cookie, host[i]);
    }
    device_close(b->dev);
    free(b->tokens);
    free(b->starts);
    free(b->similarity);
    free(b->gradient);
}

static enum status open_device(struct bench_step *b, struct error *err) {
    const struct step_options *o = b->o;
    const struct step_values first = {.grad_scale = 1.0, .sound = 1};
    void *values;
    TRY(bench_open_device(&b->dev, o->device, o->threads, o->autotune, o->plan_cache, &b->log,
                          err));
    TRY(take(b, sizeof *b->values, &values, err));
    b->values = values;
    return b->dev->ops->upload(b->dev, b->values, &first, sizeof first, err);
}

enum status bench_step_open(struct bench_step *b, struct error *err) {
    const struct step_options *o = b->o;
    struct loader_info data = {.sample_count = o->batch, .id_space = o->batch};
    TRY(model_of(b, err));
    FAIL_IF(o->tower != STEP_BOTH && (o->micro_batch > 0 || o->data != NULL), err, STATUS_USAGE,
            "--micro-batch and --data go with --tower both");
    TRY(open_device(b, err));
    b->model.slots = b->dev->stream != NULL && o->tower == STEP_BOTH ? BENCH_FLIGHTS : 0;
    if (o->data != NULL) {
        TRY(open_loader(b, &data, err));
    } else {
        TRY(make_input(b, err));
    }
    return o->tower == STEP_BOTH ? open_both(b, &data, err) : open_tower(b, err);
}

enum status bench_step_finish(struct bench_step *b, struct error *err) {
    struct step_values values;
    TRY(b->dev->ops->download(b->dev, &values, b->values, sizeof values, err));
    FAIL_IF(values.sound == 0, err, STATUS_CORRUPT, "a measured step was not finite");
    if (b->loss_device != NULL) {
        b->loss_value = values.loss;
    }
    return STATUS_OK;
}

size_t bench_step_planned_bytes(const struct bench_step *b) {
    if (b->both == NULL) {
        return 0;
    }
    const size_t loss = b->loss_device != NULL ? loss_device_bytes(b->loss_device) : 0;
    const bool state_here =
        b->loss_device != NULL && sample_state_where(b->state) == SAMPLE_STATE_DEVICE;
    const struct tensor *const parts[] = {&b->s, &b->dx, &b->dt};
    size_t sum = dual_encoder_memory_used(b->both).total_bytes + loss + sizeof *b->values;
    for (size_t i = 0; i < CLI_COUNT(parts); i++) {
        sum += parts[i]->data != NULL ? tensor_size_bytes(parts[i]) : 0;
    }
    return sum + (state_here ? sample_state_bytes(b->state) : 0);
}
