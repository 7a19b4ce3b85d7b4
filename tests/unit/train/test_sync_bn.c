/*
 * Batch norm over ranks: gradients and running statistics of a model whose ranks each have a part
 * of every micro-batch, against those of one process that has all of it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/comm_threads.h"
#include "tests/support/test.h"
#include "train/model/view_encoder.h"

enum { COUNT = 6, PX = 8, HIDDEN = 7, EMBED = 5, IMAGE_BYTES = PX * PX * 3, MAX_WORLD = 3 };

/* One run of `world` ranks. */
struct run {
    const char *device;
    enum dtype dtype;
    int32_t micro; /* images of a micro-batch, of all ranks together */
    uint64_t seed;
    uint8_t views[2][COUNT * IMAGE_BYTES];
    double weights[2 * COUNT * EMBED]; /* the loss is the sum of embeddings times these */
    double *results[MAX_WORLD][2];     /* by rank: gradients, running statistics */
};

static enum status
gather(void *cookie, void *all, const void *own, size_t own_bytes, struct error *err) {
    return comm_gather(cookie, all, own, own_bytes, err);
}

static enum status create(struct view_encoder **out,
                          struct device *dev,
                          const struct run *run,
                          int32_t world,
                          const struct batch_norm_group *group,
                          struct error *err) {
    struct view_encoder_options o = {.hidden_dim = HIDDEN,
                                     .embed_dim = EMBED,
                                     .max_batch = 2 * COUNT / world,
                                     .micro_batch = run->micro / world,
                                     .training = true,
                                     .moments = 2,
                                     .dtype = run->dtype};
    TRY(resnet_preset(&o.image, "resnet18", err));
    o.image.width = 8;
    o.image.image_px = PX;
    o.image.stem = RESNET_STEM_SMALL;
    o.image.bn_group = group;
    return view_encoder_create(out, dev, &o, err);
}

static double get(const void *v, int64_t i, enum dtype dtype) {
    return dtype == DTYPE_F64 ? ((const double *)v)[i] : (double)((const float *)v)[i];
}

static void put(void *v, int64_t i, enum dtype dtype, double x) {
    if (dtype == DTYPE_F64) {
        ((double *)v)[i] = x;
    } else {
        ((float *)v)[i] = (float)x;
    }
}

/* The same on all ranks. No gamma stays 0, which would hide the convolutions before it. */
static enum status fill(struct params *p, const struct run *run, struct error *err) {
    struct rng r;
    rng_init(&r, run->seed, RNG_INIT, 5, 0);
    TRY(params_init(p, 7, err));
    for (int32_t i = 0; i < params_count(p); i++) {
        const struct param_info info = params_info(p, i);
        const size_t size = (size_t)info.count * dtype_size_bytes(run->dtype);
        void *v = malloc(size);
        RANK_CHECK(v != NULL);
        TRY(params_read(p, i, PARAM_VALUE, v, size, err));
        for (int64_t k = 0; k < info.count && info.kind == PARAM_TRAINED; k++) {
            put(v, k, run->dtype, get(v, k, run->dtype) + 0.1 * rng_normal(&r));
        }
        TRY(params_write(p, i, PARAM_VALUE, v, size, err));
        free(v);
    }
    return STATUS_OK;
}

/* Gradients or running statistics, one tensor after another. */
static enum status
results(double **out, struct params *p, enum param_kind kind, enum dtype dtype, struct error *err) {
    int64_t at = 0;
    *out = calloc((size_t)params_element_count(p, kind), sizeof **out);
    RANK_CHECK(*out != NULL);
    for (int32_t i = 0; i < params_count(p); i++) {
        const struct param_info info = params_info(p, i);
        const size_t size = (size_t)info.count * dtype_size_bytes(dtype);
        void *v = malloc(size);
        RANK_CHECK(v != NULL);
        if (info.kind == kind) {
            TRY(params_read(p, i, kind == PARAM_TRAINED ? PARAM_GRAD : PARAM_VALUE, v, size, err));
            for (int64_t k = 0; k < info.count; k++) {
                (*out)[at++] = get(v, k, dtype);
            }
        }
        free(v);
    }
    return STATUS_OK;
}

/* The place in the whole batch of a rank's image i: every micro-batch of the whole is divided among
 * the ranks, also a last one that is smaller. */
static int32_t place(const struct run *run, struct comm *c, int32_t i) {
    const int32_t own = run->micro / comm_world(c);
    const int32_t start = i / own * run->micro;
    const int32_t size = COUNT - start < run->micro ? COUNT - start : run->micro;
    return start + comm_rank(c) * size / comm_world(c) + i % own;
}

/* Forward and backward of a rank's images. */
static enum status
step(struct view_encoder *m, const struct run *run, struct comm *c, struct error *err) {
    static _Thread_local uint8_t views[2][COUNT * IMAGE_BYTES];
    double weights[2 * COUNT * EMBED];
    const int32_t count = COUNT / comm_world(c);
    struct tensor x;
    for (int32_t i = 0; i < 2 * count; i++) {
        const int32_t view = i / count;
        const int32_t from = place(run, c, i % count);
        memcpy(views[view] + i % count * IMAGE_BYTES, run->views[view] + from * IMAGE_BYTES,
               IMAGE_BYTES);
        for (int32_t k = 0; k < EMBED; k++) {
            put(weights, i * EMBED + k, run->dtype,
                run->weights[(view * COUNT + from) * EMBED + k]);
        }
    }
    const struct view_encoder_batch batch = {.count = count, .first = views[0], .second = views[1]};
    const struct tensor dx = tensor_2d(weights, run->dtype, 2 * count, EMBED);
    TRY(view_encoder_forward(m, &x, &batch, err));
    return view_encoder_backward(m, &dx, &batch, WRITE_SET, NULL, err);
}

static enum status body(struct comm *c, void *cookie, struct error *err) {
    struct run *run = cookie;
    const struct batch_norm_group group = {comm_world(c), gather, c};
    double **to = run->results[comm_rank(c)];
    struct view_encoder *m;
    struct device *dev;
    TRY(device_open(&dev, run->device, 1, err));
    TRY(create(&m, dev, run, comm_world(c), comm_world(c) > 1 ? &group : NULL, err));
    struct params *p = view_encoder_params(m);
    TRY(fill(p, run, err));
    TRY(step(m, run, c, err));
    TRY(results(&to[0], p, PARAM_TRAINED, run->dtype, err));
    TRY(results(&to[1], p, PARAM_BUFFER, run->dtype, err));
    view_encoder_destroy(m);
    device_close(dev);
    return STATUS_OK;
}

/* |a - b| / |b| */
static double distance(const double *a, const double *b, int64_t count) {
    double squares = 0.0;
    double size = 0.0;
    for (int64_t i = 0; i < count; i++) {
        squares += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(squares / size);
}

static void counts(int64_t out[2]) {
    const struct run plan = {.dtype = DTYPE_F32, .micro = COUNT};
    struct view_encoder *m;
    struct device *dev;
    struct error err = {0};
    assert_ok(device_open(&dev, "cpu", 1, &err), err);
    assert_ok(create(&m, dev, &plan, 1, NULL, &err), err);
    out[0] = params_element_count(view_encoder_params(m), PARAM_TRAINED);
    out[1] = params_element_count(view_encoder_params(m), PARAM_BUFFER);
    view_encoder_destroy(m);
    device_close(dev);
}

static void check(const char *device, enum dtype dtype, int world, int32_t micro, double bar) {
    static struct run one;
    static struct run many;
    struct error err = {0};
    struct rng r;
    int64_t sizes[2];
    counts(sizes);
    one = (struct run){.device = device, .dtype = dtype, .micro = micro, .seed = test_seed()};
    rng_init(&r, test_seed(), RNG_INIT, 6, 0);
    for (size_t i = 0; i < sizeof one.views; i++) {
        one.views[i / sizeof one.views[0]][i % sizeof one.views[0]] = (uint8_t)rng_below(&r, 256);
    }
    for (int i = 0; i < 2 * COUNT * EMBED; i++) {
        one.weights[i] = rng_normal(&r);
    }
    many = one;
    assert_ok(comm_threads_run(1, body, &one, &err), err);
    assert_ok(comm_threads_run(world, body, &many, &err), err);
    for (int rank = 1; rank < world; rank++) {
        for (int64_t i = 0; i < sizes[0]; i++) {
            many.results[0][0][i] += many.results[rank][0][i];
        }
        assert_memory_equal(many.results[rank][1], many.results[0][1],
                            (size_t)sizes[1] * sizeof(double));
    }
    for (int k = 0; k < 2; k++) {
        const double found = distance(many.results[0][k], one.results[0][k], sizes[k]);
        if (!(found <= bar)) {
            fail_msg("%s, %d ranks, micro-batch %d: %s differ by %.3g of their norm", device, world,
                     (int)micro, k == 0 ? "gradients" : "running statistics", found);
        }
        for (int rank = 0; rank < world; rank++) {
            free(many.results[rank][k]);
        }
        free(one.results[0][k]);
    }
}

TEST(ranks_have_the_gradients_of_one_process) {
    check("cpu-ref", DTYPE_F64, 2, COUNT, 1e-11);
    check("cpu", DTYPE_F32, 2, COUNT, 1e-5);
    check("cpu", DTYPE_F32, 3, COUNT, 1e-5);
}

/* Each backward runs a forward again, which exchanges its statistics again. The last micro-batch
 * of 2 ranks is smaller. */
TEST(ranks_have_the_gradients_of_one_process_in_micro_batches) {
    check("cpu-ref", DTYPE_F64, 2, 4, 1e-11);
    check("cpu", DTYPE_F32, 2, 4, 1e-5);
    check("cpu", DTYPE_F32, 3, 3, 1e-5);
}
