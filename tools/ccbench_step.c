/*
 * ccbench step: whole training steps on made-up pairs: forward, loss, backward, optimiser; where
 * the time goes by operator; and, on the cpu, how fast the image tower's convolutions alone are, in
 * the same run: oneDNN's primitives on the same shapes, one after another.
 *
 * `--tower image` and `--tower text` leave out the other tower, the projections and the loss: the
 * gradient of the features is then given.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/json_writer.h"
#include "formats/base/rng.h"
#include "kernels/cpu/onednn.h"
#include "tools/ccbench_internal.h"
#include "tools/timed_ops.h"
#include "train/dual_encoder.h"
#include "train/loss.h"
#include "train/optimizer.h"

enum { MAX_STEPS = 1000 };
enum tower { TOWER_BOTH, TOWER_IMAGE, TOWER_TEXT };

struct options {
    const char *device, *image_tower, *text_tower;
    int tower, stem, precision, captions;
    uint64_t image_size, batch, micro_batch, tokens, vocab, threads, steps;
    double dropout;
    bool full, json;
};

static const char *const tower_choices[] = {"both", "image", "text", NULL};
static const char *const stem_choices[] = {"standard", "small", NULL};
static const char *const precision_choices[] = {"f32", "bf16", NULL};
static const char *const captions_choices[] = {"packed", "padded", NULL};

#define FIELD(name) CLI_FIELD(struct options, name)

static const struct cli_option rows[] = {
    {"tower", 0, CLI_ENUM, FIELD(tower), .default_text = "both", .choices = tower_choices,
     .metavar = "WHAT", .help = "the whole model with its loss, or one tower alone"},
    {"image-tower", 0, CLI_STRING, FIELD(image_tower), .default_text = "resnet50",
     .metavar = "NAME", .help = "resnet10t, resnet18, resnet34 or resnet50"},
    {"text-tower", 0, CLI_STRING, FIELD(text_tower), .default_text = "distil", .metavar = "NAME",
     .help = "tiny, small or distil"},
    {"image-size", 0, CLI_U64, FIELD(image_size), .min = "8", .max = "1024", .default_text = "224",
     .metavar = "PX", .help = "side of the pictures"},
    {"stem", 0, CLI_ENUM, FIELD(stem), .default_text = "standard", .choices = stem_choices,
     .metavar = "KIND", .help = "of the image tower"},
    {"batch", 'b', CLI_U64, FIELD(batch), .min = "2", .max = "32768", .default_text = "16",
     .metavar = "N", .help = "pairs of a step"},
    {"micro-batch", 0, CLI_U64, FIELD(micro_batch), .min = "0", .max = "32768", .default_text = "0",
     .metavar = "N",
     .help = "pairs that the towers hold at a time; 0: the batch; with --tower both"},
    {"tokens", 0, CLI_U64, FIELD(tokens), .min = "2", .max = "512", .default_text = "32",
     .metavar = "N", .help = "tokens of the longest caption; lengths lie between a third and all"},
    {"full", 0, CLI_FLAG, FIELD(full), .help = "every caption has all tokens"},
    {"vocab", 0, CLI_U64, FIELD(vocab), .min = "2", .max = "1000000", .default_text = "30522",
     .metavar = "N", .help = "pieces of the vocabulary"},
    {"captions", 0, CLI_ENUM, FIELD(captions), .default_text = "packed",
     .choices = captions_choices, .metavar = "KIND", .help = "packed, or padded to the longest"},
    {"dropout", 0, CLI_DOUBLE, FIELD(dropout), .min = "0", .max = "0.9", .default_text = "0.1",
     .metavar = "P", .help = "of the text tower"},
    {"precision", 0, CLI_ENUM, FIELD(precision), .default_text = "f32",
     .choices = precision_choices, .metavar = "TYPE", .help = "f32 or bf16"},
    {"device", 0, CLI_STRING, FIELD(device), .default_text = "cpu", .metavar = "NAME",
     .help = "as that of ccstream-train"},
    {"threads", 't', CLI_U64, FIELD(threads), .min = "0", .max = "1024", .default_text = "0",
     .metavar = "N", .help = "compute threads; 0: all CPUs"},
    {"steps", 's', CLI_U64, FIELD(steps), .min = "1", .max = "1000", .default_text = "5",
     .metavar = "N", .help = "measured steps, after two that are not"},
    {"json", 0, CLI_FLAG, FIELD(json), .help = "one JSON object on one line"},
};

static const struct cli_program program = {
    .name = "ccbench step",
    .purpose = "measures whole training steps on made-up pairs, operator by operator",
    .usage = (const char *const[]){"[options]", NULL},
    .notes =
        (const char *const[]){
            "A rate is that of the median step. gflops counts the arithmetic of convolutions, "
            "matrix "
            "products and attention that was done, without padding left out by packed captions. "
            "conv_only: the image tower's convolutions alone, forward and backward, in the same "
            "run; its ratio is what the rest of the step leaves of it.",
            NULL},
    .options = rows,
    .option_count = CLI_COUNT(rows),
};

struct bench {
    const struct options *o;
    struct device *dev;
    struct dual_encoder_options model;
    struct dual_encoder *both;
    /* One tower alone. */
    struct params *params;
    struct resnet *image;
    struct transformer *text;
    void *kept, *scratch, *input;
    size_t ids_at;           /* bytes from `input` to the sample ids */
    struct tensor dfeatures; /* (N, F) */
    struct transformer_batch captions;
    struct tensor images;

    uint8_t *pixels;
    int32_t *tokens, *lengths, *starts;
    uint64_t *ids;
    uint64_t token_count; /* of all captions */

    struct sample_state *state;
    struct loss *loss;
    float *similarity, *gradient; /* (N, N) */
    struct tensor s, dx, dt;      /* (N, N), (N, E), (N, E) */
    struct step_values *values;   /* of the step, on the device */
    uint64_t step;
    double loss_value;
};

struct result {
    double step_s[MAX_STEPS]; /* sorted, as the next */
    double conv_s[MAX_STEPS]; /* of each step's convolutions alone */
    double median_s, fastest_s;
    struct op_time ops[TIMED_MAX_OPS];
    size_t op_count;
    double flops;       /* of a step */
    double conv_only_s; /* the median of conv_s; 0: not measured */
};

/* ---- input ---- */

static enum status make_input(struct bench *b, struct error *err) {
    const struct options *o = b->o;
    const size_t n = (size_t)o->batch;
    const size_t bytes = n * (size_t)o->image_size * (size_t)o->image_size * 3;
    struct rng r;
    b->pixels = malloc(bytes);
    b->tokens = calloc(n * (size_t)o->tokens, sizeof *b->tokens);
    b->lengths = calloc(n, sizeof *b->lengths);
    b->starts = calloc(n, sizeof *b->starts);
    b->ids = calloc(n, sizeof *b->ids);
    if (b->pixels == NULL || b->tokens == NULL || b->lengths == NULL || b->starts == NULL ||
        b->ids == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for a batch of %zu", n);
    }
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

/* ---- the whole model ---- */

static enum status take(struct bench *b, size_t size_bytes, void **out, struct error *err) {
    return b->dev->ops->alloc(b->dev, size_bytes, out, err);
}

static enum status open_both(struct bench *b, struct error *err) {
    const int64_t n = (int64_t)b->o->batch;
    const int64_t e = b->model.embed_dim;
    struct loss_options lo;
    void *data[3];
    TRY(dual_encoder_create(&b->both, b->dev, &b->model, err));
    TRY(params_init(dual_encoder_params(b->both), 1, err));
    loss_options_default(&lo);
    lo.name = "clip";
    TRY(sample_state_create(&b->state, (uint64_t)n, err));
    TRY(loss_create(&b->loss, &lo, b->state, (uint64_t)n, n, err));
    b->similarity = calloc((size_t)(n * n), sizeof(float));
    b->gradient = calloc((size_t)(n * n), sizeof(float));
    if (b->similarity == NULL || b->gradient == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for a batch of %lld", (long long)n);
    }
    TRY(take(b, (size_t)(n * n) * sizeof(float), &data[0], err));
    b->s = tensor_2d(data[0], DTYPE_F32, n, n);
    TRY(take(b, (size_t)(n * e) * sizeof(float), &data[1], err));
    b->dx = tensor_2d(data[1], DTYPE_F32, n, e);
    TRY(take(b, (size_t)(n * e) * sizeof(float), &data[2], err));
    b->dt = tensor_2d(data[2], DTYPE_F32, n, e);
    return STATUS_OK;
}

static enum status step_both(struct bench *b, struct error *err) {
    const struct ops *ops = b->dev->ops;
    const size_t size = tensor_size_bytes(&b->s);
    const struct dual_encoder_batch batch = {.count = (int32_t)b->o->batch,
                                             .images = b->pixels,
                                             .tokens = b->tokens,
                                             .lengths = b->lengths,
                                             .sample_ids = b->ids,
                                             .seed = 1,
                                             .values = b->values};
    struct tensor x, t;
    TRY(dual_encoder_forward(b->both, &x, &t, &batch, true, err));
    TRY(ops->matmul(b->dev, &b->s, WRITE_SET, &x, false, &t, true, 1.0f, err));
    TRY(ops->download(b->dev, b->similarity, b->s.data, size, err));
    const struct loss_input in = {.similarity = b->similarity,
                                  .sample_ids = b->ids,
                                  .batch_count = batch.count,
                                  .step = b->step};
    struct loss_output out = {.gradient = b->gradient};
    TRY(loss_step(b->loss, &in, &out, err));
    b->loss_value = out.value;
    TRY(ops->upload(b->dev, b->s.data, b->gradient, size, err));
    TRY(ops->matmul(b->dev, &b->dx, WRITE_SET, &b->s, false, &t, false, 1.0f, err));
    TRY(ops->matmul(b->dev, &b->dt, WRITE_SET, &b->s, true, &x, false, 1.0f, err));
    return dual_encoder_backward(b->both, &b->dx, &b->dt, &batch, WRITE_SET, err);
}

/* ---- one tower ---- */

static enum status upload_tower_input(struct bench *b, int64_t token_rows, struct error *err) {
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
        start += b->o->captions == 1 ? (int32_t)b->o->tokens : b->lengths[i];
    }
    TRY(ops->upload(b->dev, at, b->tokens, (size_t)token_rows * sizeof *at, err));
    TRY(ops->upload(b->dev, at + token_rows, b->starts, (size_t)n * sizeof *at, err));
    return ops->upload(b->dev, at + token_rows + n, b->lengths, (size_t)n * sizeof *at, err);
}

static enum status open_tower(struct bench *b, struct error *err) {
    const int64_t n = (int64_t)b->o->batch;
    const enum dtype dtype = b->model.dtype;
    const bool image = b->o->tower == TOWER_IMAGE;
    const int64_t token_rows =
        b->o->captions == 1 ? n * (int64_t)b->o->tokens : (int64_t)b->token_count;
    size_t kept;
    size_t scratch;
    size_t input;
    b->model.image.max_batch = (int32_t)n;
    b->model.text.max_batch = (int32_t)n;
    TRY(b->dev->ops->supports(b->dev, dtype, err));
    TRY(params_create(&b->params, err));
    if (image) {
        TRY(resnet_create(&b->image, b->params, &b->model.image, err));
        resnet_memory(b->image, dtype, &kept, &scratch);
        input = (size_t)n * (size_t)b->o->image_size * (size_t)b->o->image_size * 3;
    } else {
        TRY(transformer_create(&b->text, b->params, &b->model.text, err));
        transformer_memory(b->text, dtype, &kept, &scratch);
        b->ids_at = ((size_t)(token_rows + 2 * n) * sizeof(int32_t) + 7) / 8 * 8;
        input = b->ids_at + (size_t)n * sizeof(uint64_t);
    }
    TRY(params_alloc(b->params, b->dev, dtype, true, err));
    TRY(params_init(b->params, 1, err));
    TRY(take(b, kept, &b->kept, err));
    TRY(take(b, scratch, &b->scratch, err));
    TRY(take(b, input, &b->input, err));
    const int64_t f = image ? resnet_feature_count(b->image) : b->model.text.dim;
    void *data;
    TRY(take(b, (size_t)(n * f) * dtype_size_bytes(dtype), &data, err));
    b->dfeatures = tensor_2d(data, dtype, n, f);
    TRY(b->dev->ops->fill(b->dev, &b->dfeatures, 1.0 / (double)(n * f), err));
    if (image) {
        resnet_attach(b->image, b->dev, dtype, b->kept, b->scratch);
    } else {
        transformer_attach(b->text, b->dev, dtype, b->kept, b->scratch);
    }
    return upload_tower_input(b, token_rows, err);
}

static enum status step_tower(struct bench *b, struct error *err) {
    struct tensor features;
    if (b->image != NULL) {
        TRY(resnet_forward(b->image, &features, &b->images, RESNET_TRAINING, err));
        return resnet_backward(b->image, &b->dfeatures, WRITE_SET, err);
    }
    b->captions.seed = 1;
    b->captions.values = b->values;
    TRY(transformer_forward(b->text, &features, &b->captions, true, err));
    return transformer_backward(b->text, &b->dfeatures, &b->captions, WRITE_SET, err);
}

/* ---- measuring ---- */

static enum status one_step(struct bench *b, double *seconds, struct error *err) {
    struct optimizer_options how;
    struct params *p = b->both != NULL ? dual_encoder_params(b->both) : b->params;
    const struct step_values values = {.step = b->step, .lr = 1e-5, .grad_scale = 1.0, .sound = 1};
    optimizer_options_default(&how);
    const int64_t start_ns = clock_now_ns();
    TRY(b->dev->ops->upload(b->dev, b->values, &values, sizeof values, err));
    TRY(b->both != NULL ? step_both(b, err) : step_tower(b, err));
    b->step++;
    TRY(optimizer_step(p, b->dev, b->values, &how, err));
    TRY(b->dev->ops->sync(b->dev, err));
    *seconds = (double)(clock_now_ns() - start_ns) * 1e-9;
    return cli_interrupted() ? error_set(err, STATUS_INTERRUPTED, "stopped on request") : STATUS_OK;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

static struct conv_shape onednn_shape(const struct timed_convolution *c) {
    struct conv_shape s;
    memset(&s, 0, sizeof s); /* compared as bytes */
    s.n = c->n;
    s.h = c->h;
    s.w = c->w;
    s.in = c->in;
    s.out = c->out;
    s.kernel_h = c->kernel;
    s.kernel_w = c->kernel;
    s.stride = c->stride;
    s.pad = c->pad;
    s.out_h = c->out_h;
    s.out_w = c->out_w;
    s.dtype = c->dtype;
    return s;
}

static enum status convolve(struct onednn *library,
                            const struct timed_convolution *c,
                            void *const buffers[3],
                            struct error *err) {
    const struct conv_shape s = onednn_shape(c);
    if (!c->backward) {
        return convolve_forward(library, &s, buffers[0], buffers[1], buffers[2], err);
    }
    if (c->data) {
        TRY(convolve_backward_data(library, &s, buffers[1], buffers[0], buffers[2], err));
    }
    return convolve_backward_weight(library, &s, buffers[2], buffers[0], buffers[1], err);
}

/* The step's convolutions alone: one after another, over the same buffers. */
struct bare {
    struct onednn *library;
    const struct timed_convolution *list; /* of the step that was timed */
    size_t count;
    void *buffers[3]; /* output, input, weight: of the largest one */
};

static void bare_close(struct bare *bare) {
    for (int k = 0; k < 3; k++) {
        free(bare->buffers[k]);
    }
    onednn_destroy(bare->library);
}

static enum status bare_open(struct bare *bare, struct error *err) {
    *bare = (struct bare){0};
    bare->count = timed_ops_convolutions(&bare->list);
    size_t sizes[3] = {64, 64, 64};
    for (size_t i = 0; i < bare->count; i++) {
        const struct timed_convolution *c = &bare->list[i];
        const int64_t elements[3] = {c->n * c->out_h * c->out_w * c->out,
                                     c->n * c->h * c->w * c->in,
                                     c->out * c->kernel * c->kernel * c->in};
        for (int k = 0; k < 3; k++) {
            const size_t size = (size_t)elements[k] * sizeof(float);
            sizes[k] = size > sizes[k] ? size : sizes[k];
        }
    }
    for (int k = 0; k < 3; k++) {
        sizes[k] = (sizes[k] + 63) / 64 * 64;
        bare->buffers[k] = aligned_alloc(64, sizes[k]);
        if (bare->buffers[k] == NULL) {
            bare_close(bare);
            return error_set(err, STATUS_NOMEM, "no memory for the convolutions alone");
        }
        memset(bare->buffers[k], 0, sizes[k]);
    }
    const enum status s = onednn_create(&bare->library, err);
    if (s != STATUS_OK) {
        bare_close(bare);
    }
    return s;
}

static enum status bare_run(struct bare *bare, double *seconds, struct error *err) {
    const int64_t start_ns = clock_now_ns();
    for (size_t i = 0; i < bare->count; i++) {
        TRY(convolve(bare->library, &bare->list[i], bare->buffers, err));
    }
    *seconds = (double)(clock_now_ns() - start_ns) * 1e-9;
    return STATUS_OK;
}

/* One step that is timed by operator. */
static enum status time_operators(struct bench *b, struct result *r, struct error *err) {
    double unused;
    timed_ops_install(b->dev);
    const enum status s = one_step(b, &unused, err);
    timed_ops_remove(b->dev);
    TRY(s);
    r->op_count = timed_ops_times(r->ops);
    for (size_t i = 0; i < r->op_count; i++) {
        r->flops += r->ops[i].flops;
    }
    return STATUS_OK;
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof values[0], by_value);
    return values[count / 2];
}

/* Step and bare convolutions in turn, so that both meet the machine in the same state. */
static enum status
in_turn(struct bench *b, struct result *r, struct bare *bare, struct error *err) {
    const size_t steps = (size_t)b->o->steps;
    double unused;
    if (bare != NULL) {
        TRY(bare_run(bare, &unused, err)); /* makes the library's kernels */
    }
    for (size_t i = 0; i < steps; i++) {
        TRY(one_step(b, &r->step_s[i], err));
        if (bare != NULL) {
            TRY(bare_run(bare, &r->conv_s[i], err));
        }
    }
    r->median_s = median(r->step_s, steps);
    r->fastest_s = r->step_s[0];
    r->conv_only_s = bare != NULL ? median(r->conv_s, steps) : 0.0;
    return STATUS_OK;
}

static enum status measure(struct bench *b, struct result *r, struct error *err) {
    double unused;
    for (int warm = 0; warm < 2; warm++) {
        TRY(one_step(b, &unused, err));
    }
    TRY(time_operators(b, r, err));
    if (strcmp(b->o->device, "cpu") != 0 || b->o->tower == TOWER_TEXT) {
        return in_turn(b, r, NULL, err);
    }
    struct bare bare;
    TRY(bare_open(&bare, err));
    const enum status s = in_turn(b, r, &bare, err);
    bare_close(&bare);
    return s;
}

static enum status print_json(const struct bench *b, const struct result *r, struct error *err) {
    const struct options *o = b->o;
    const double n = (double)o->batch;
    struct json_writer w;
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    json_double(&w, "pairs_per_s", n / r->median_s);
    json_double(&w, "fastest_pairs_per_s", n / r->fastest_s);
    json_double(&w, "gflops", r->flops / r->median_s * 1e-9);
    json_double(&w, "step_ms", r->median_s * 1e3);
    if (r->conv_only_s > 0.0) {
        json_double(&w, "conv_only_pairs_per_s", n / r->conv_only_s);
        json_double(&w, "conv_only_ratio", r->conv_only_s / r->median_s);
    }
    json_string(&w, "tower", tower_choices[o->tower]);
    json_string(&w, "image_tower", o->image_tower);
    json_string(&w, "text_tower", o->text_tower);
    json_string(&w, "precision", precision_choices[o->precision]);
    json_string(&w, "captions", captions_choices[o->captions]);
    json_string(&w, "device", o->device);
    json_u64(&w, "threads", o->threads);
    json_u64(&w, "image_size", o->image_size);
    json_u64(&w, "batch", o->batch);
    json_u64(&w, "micro_batch", o->micro_batch);
    json_u64(&w, "tokens", o->tokens);
    json_u64(&w, "caption_tokens", b->token_count);
    json_u64(&w, "steps", o->steps);
    json_open_array(&w, "ops");
    for (size_t i = 0; i < r->op_count; i++) {
        const struct op_time *t = &r->ops[i];
        json_open_object(&w, NULL);
        json_string(&w, "name", t->name);
        json_u64(&w, "calls", t->calls);
        json_double(&w, "ms", (double)t->ns * 1e-6);
        json_double(&w, "gflops", t->flops / (double)(t->ns > 0 ? t->ns : 1));
        json_close_object(&w);
    }
    json_close_array(&w);
    json_close_object(&w);
    json_newline(&w);
    const enum status s = json_writer_status(&w, err);
    if (s == STATUS_OK) {
        (void)fwrite(w.out.data, 1, w.out.size_bytes, stdout);
    }
    json_writer_fini(&w);
    return s;
}

static void print_text(const struct bench *b, const struct result *r) {
    const struct options *o = b->o;
    const double n = (double)o->batch;
    const char *what = o->tower == TOWER_IMAGE  ? "images"
                       : o->tower == TOWER_TEXT ? "texts"
                                                : "pairs";
    printf("%s, %" PRIu64 " %s a step: %.1f ms, %.2f %s/s (fastest %.2f), %.0f GFLOP/s\n",
           precision_choices[o->precision], o->batch, what, r->median_s * 1e3, n / r->median_s,
           what, n / r->fastest_s, r->flops / r->median_s * 1e-9);
    if (r->conv_only_s > 0.0) {
        printf("convolutions alone: %.1f ms, %.2f images/s; the step reaches %.2f of it\n",
               r->conv_only_s * 1e3, n / r->conv_only_s, r->conv_only_s / r->median_s);
    }
    double sum = 0.0;
    for (size_t i = 0; i < r->op_count; i++) {
        sum += (double)r->ops[i].ns * 1e-6;
    }
    printf("  %-20s %6s %10s %7s %9s\n", "operator", "calls", "ms", "share", "GFLOP/s");
    for (size_t i = 0; i < r->op_count; i++) {
        const struct op_time *t = &r->ops[i];
        printf("  %-20s %6" PRIu64 " %10.2f %6.1f%% %9.0f\n", t->name, t->calls,
               (double)t->ns * 1e-6, (double)t->ns * 1e-4 / sum,
               t->flops / (double)(t->ns > 0 ? t->ns : 1));
    }
}

/* ---- the command ---- */

static enum status model_of(struct bench *b, struct error *err) {
    const struct options *o = b->o;
    struct dual_encoder_options *m = &b->model;
    TRY(dual_encoder_preset(m, o->image_tower, o->text_tower, err));
    m->image.image_px = (int32_t)o->image_size;
    m->image.stem = o->stem == 1 ? RESNET_STEM_SMALL : RESNET_STEM_STANDARD;
    m->text.max_tokens = (int32_t)o->tokens;
    m->text.vocab_count = (int32_t)o->vocab;
    m->text.dropout = (float)o->dropout;
    m->max_batch = (int32_t)o->batch;
    m->micro_batch = (int32_t)o->micro_batch;
    m->padded = o->captions == 1;
    m->dtype = o->precision == 1 ? DTYPE_BF16 : DTYPE_F32;
    return STATUS_OK;
}

static void close_bench(struct bench *b) {
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
    device_close(b->dev);
    free(b->pixels);
    free(b->tokens);
    free(b->lengths);
    free(b->starts);
    free(b->ids);
    free(b->similarity);
    free(b->gradient);
}

static enum status run(const struct options *o, struct error *err) {
    struct bench b = {.o = o};
    static struct result r;
    enum status s = model_of(&b, err);
    if (s == STATUS_OK && o->micro_batch > 0 && o->tower != TOWER_BOTH) {
        s = error_set(err, STATUS_USAGE, "--micro-batch goes with --tower both");
    }
    if (s == STATUS_OK) {
        s = device_open(&b.dev, o->device, (int32_t)o->threads, err);
    }
    if (s == STATUS_OK) {
        s = make_input(&b, err);
    }
    if (s == STATUS_OK) {
        void *values;
        s = take(&b, sizeof *b.values, &values, err);
        b.values = s == STATUS_OK ? values : NULL;
    }
    if (s == STATUS_OK) {
        s = o->tower == TOWER_BOTH ? open_both(&b, err) : open_tower(&b, err);
    }
    if (s == STATUS_OK) {
        s = measure(&b, &r, err);
    }
    if (s == STATUS_OK && o->json) {
        s = print_json(&b, &r, err);
    } else if (s == STATUS_OK) {
        print_text(&b, &r);
    }
    close_bench(&b);
    if (s == STATUS_OK && (fflush(stdout) != 0 || ferror(stdout))) {
        return error_set_errno(err, "cannot write to stdout");
    }
    return s;
}

int ccbench_step(int argc, char **argv) {
    struct options o;
    struct cli_arguments a = {0};
    struct error err = {0};
    enum status s = cli_parse(&program, &o, &a, argc, argv, &err);
    if (s != STATUS_OK) {
        return cli_exit(&program, s, &err);
    }
    cli_signals_install();
    s = run(&o, &err);
    cli_arguments_fini(&a);
    return cli_exit(&program, s, &err);
}
