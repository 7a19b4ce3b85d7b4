/*
 * probe: logits = x W^T + b on the device, softmax on the host, AdamW on the device. Weights start
 * uniform in +-1/sqrt(dim), the bias at 0; each epoch visits the rows in a keyed permutation.
 */
#include "train/eval/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"

enum { BLOCKS = 4 }; /* of a parameter: value, gradient, m, v */

struct probe {
    const struct probe_options *opt;
    struct device *dev;
    const struct classify_set *set;
    int64_t *rows; /* rows with the label of a class */
    int64_t row_count, batch_count;
    int32_t class_count;
    void *weight, *bias, *x, *z; /* device: BLOCKS blocks each, a batch, its logits */
    struct step_values *values;  /* of the step, on the device */
    float *host_x, *host_z;      /* a batch and its logits, then their gradient */
    int32_t *host_labels;
    uint64_t steps, total_steps;
};

void probe_options_default(struct probe_options *opt) {
    *opt =
        (struct probe_options){.epochs = 32, .batch_count = 512, .lr = 0.005, .weight_decay = 0.01};
}

/* Block `index` of a parameter of `rows` rows. */
static struct tensor block(void *base, int index, int64_t rows, int64_t width) {
    return tensor_2d((float *)base + (int64_t)index * rows * width, DTYPE_F32, rows, width);
}

static enum status find_rows(struct probe *p, struct error *err) {
    p->rows = calloc((size_t)p->set->count, sizeof *p->rows);
    FAIL_IF(p->rows == NULL, err, STATUS_NOMEM, "no memory for %lld rows",
            (long long)p->set->count);
    for (int64_t i = 0; i < p->set->count; i++) {
        const int32_t label = p->set->labels[i];
        if (label >= 0 && label < p->class_count) {
            p->rows[p->row_count++] = i;
        }
    }
    FAIL_IF(p->row_count == 0, err, STATUS_USAGE, "no image has the label of a class");
    p->batch_count = p->opt->batch_count < p->row_count ? p->opt->batch_count : p->row_count;
    p->total_steps =
        (uint64_t)p->opt->epochs * (uint64_t)((p->row_count + p->batch_count - 1) / p->batch_count);
    return STATUS_OK;
}

static enum status take_memory(struct probe *p, float *weight, struct error *err) {
    const struct ops *ops = p->dev->ops;
    const int64_t dim = p->set->dim;
    const size_t weight_bytes = (size_t)(p->class_count * dim) * sizeof(float);
    const size_t bias_bytes = (size_t)p->class_count * sizeof(float);
    const size_t x_bytes = (size_t)(p->batch_count * dim) * sizeof(float);
    const size_t z_bytes = (size_t)p->batch_count * bias_bytes;
    TRY(ops->alloc(p->dev, BLOCKS * weight_bytes, &p->weight, err));
    TRY(ops->alloc(p->dev, BLOCKS * bias_bytes, &p->bias, err));
    TRY(ops->alloc(p->dev, x_bytes, &p->x, err));
    TRY(ops->alloc(p->dev, z_bytes, &p->z, err));
    void *values;
    TRY(ops->alloc(p->dev, sizeof *p->values, &values, err));
    p->values = values;
    p->host_x = malloc(x_bytes);
    p->host_z = malloc(z_bytes);
    p->host_labels = calloc((size_t)p->batch_count, sizeof *p->host_labels);
    FAIL_IF(p->host_x == NULL || p->host_z == NULL || p->host_labels == NULL, err, STATUS_NOMEM,
            "no memory for a batch of %lld rows", (long long)p->batch_count);
    struct tensor all = tensor_2d(p->weight, DTYPE_F32, BLOCKS * p->class_count, dim);
    struct tensor all_bias = tensor_2d(p->bias, DTYPE_F32, BLOCKS, p->class_count);
    TRY(ops->fill(p->dev, &(struct fill){.out = all}, err));
    TRY(ops->fill(p->dev, &(struct fill){.out = all_bias}, err));
    struct rng r;
    rng_init(&r, p->opt->seed, RNG_INIT, 0, 0);
    const double bound = 1.0 / sqrt((double)dim);
    for (int64_t i = 0; i < p->class_count * dim; i++) {
        weight[i] = (float)((2.0 * rng_uniform(&r) - 1.0) * bound);
    }
    return ops->upload(p->dev, p->weight, weight, weight_bytes, err);
}

/* Softmax cross-entropy of `rows` rows of logits, which become its gradient. Returns the sum. */
static double cross_entropy(float *z, const int32_t *labels, int64_t rows, int32_t class_count) {
    double total = 0.0;
    for (int64_t r = 0; r < rows; r++) {
        float *row = z + r * class_count;
        double largest = -HUGE_VAL;
        double sum = 0.0;
        for (int32_t c = 0; c < class_count; c++) {
            largest = fmax(largest, (double)row[c]);
        }
        for (int32_t c = 0; c < class_count; c++) {
            sum += exp((double)row[c] - largest);
        }
        total += largest + log(sum) - (double)row[labels[r]];
        for (int32_t c = 0; c < class_count; c++) {
            const double share = exp((double)row[c] - largest) / sum;
            row[c] = (float)((share - (c == labels[r] ? 1.0 : 0.0)) / (double)rows);
        }
    }
    return total;
}

static enum status put_values(struct probe *p, struct error *err) {
    static const double pi = 3.14159265358979323846;
    const double done = (double)p->steps / (double)p->total_steps;
    const struct step_values values = {.step = p->steps,
                                       .lr = p->opt->lr * 0.5 * (1.0 + cos(pi * done)),
                                       .grad_scale = 1.0,
                                       .sound = 1};
    return p->dev->ops->upload(p->dev, p->values, &values, sizeof values, err);
}

static enum status step_parameter(struct probe *p,
                                  void *base,
                                  int64_t rows,
                                  int64_t width,
                                  double decay,
                                  struct error *err) {
    return p->dev->ops->adamw(p->dev,
                              &(struct adamw){.value = block(base, 0, rows, width),
                                              .grad = block(base, 1, rows, width),
                                              .m = block(base, 2, rows, width),
                                              .v = block(base, 3, rows, width),
                                              .lr_scale = 1.0f,
                                              .beta1 = 0.9f,
                                              .beta2 = 0.999f,
                                              .eps = 1e-8f,
                                              .weight_decay = (float)decay,
                                              .values = p->values},
                              err);
}

/* Copies the rows at positions [first, first + rows) of the epoch's order. */
static enum status one_batch(struct probe *p,
                             const struct permutation *order,
                             int64_t first,
                             int64_t rows,
                             double *loss,
                             struct error *err) {
    const struct ops *ops = p->dev->ops;
    const int64_t dim = p->set->dim;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t row = p->rows[permutation_at(order, (uint64_t)(first + r))];
        memcpy(p->host_x + r * dim, p->set->rows + row * dim, (size_t)dim * sizeof(float));
        p->host_labels[r] = p->set->labels[row];
    }
    const struct tensor x = tensor_2d(p->x, DTYPE_F32, rows, dim);
    const struct tensor z = tensor_2d(p->z, DTYPE_F32, rows, p->class_count);
    const struct tensor weight = block(p->weight, 0, p->class_count, dim);
    const struct tensor dweight = block(p->weight, 1, p->class_count, dim);
    struct tensor bias = block(p->bias, 0, 1, p->class_count);
    struct tensor dbias = block(p->bias, 1, 1, p->class_count);
    bias = tensor_1d(bias.data, DTYPE_F32, p->class_count);
    dbias = tensor_1d(dbias.data, DTYPE_F32, p->class_count);
    TRY(ops->upload(p->dev, p->x, p->host_x, tensor_size_bytes(&x), err));
    const struct linear forward = {.out = z, .in = x, .weight = weight, .bias = bias};
    TRY(ops->linear(p->dev, &forward, err));
    TRY(ops->download(p->dev, p->host_z, p->z, tensor_size_bytes(&z), err));
    *loss += cross_entropy(p->host_z, p->host_labels, rows, p->class_count);
    TRY(ops->upload(p->dev, p->z, p->host_z, tensor_size_bytes(&z), err));
    const struct linear_bwd backward = {
        .dweight = dweight, .dbias = dbias, .dout = z, .in = x, .weight = weight};
    TRY(ops->linear_bwd(p->dev, &backward, err));
    TRY(put_values(p, err));
    p->steps++;
    TRY(step_parameter(p, p->weight, p->class_count, dim, p->opt->weight_decay, err));
    return step_parameter(p, p->bias, 1, p->class_count, 0.0, err);
}

static enum status run_epochs(struct probe *p, double *loss, struct error *err) {
    const struct probe_options *o = p->opt;
    for (int32_t e = 0; e < o->epochs; e++) {
        struct permutation order;
        permutation_init(&order, (uint64_t)p->row_count, o->seed, (uint64_t)e);
        *loss = 0.0;
        for (int64_t first = 0; first < p->row_count; first += p->batch_count) {
            const int64_t left = p->row_count - first;
            TRY(one_batch(p, &order, first, left < p->batch_count ? left : p->batch_count, loss,
                          err));
        }
        *loss /= (double)p->row_count;
        FAIL_IF(!isfinite(*loss), err, STATUS_CORRUPT,
                "the probe's loss is not finite in epoch %d; use a smaller --lr", e);
        FAIL_IF(o->should_stop != NULL && o->should_stop(o->cookie), err, STATUS_INTERRUPTED,
                "stopped on request");
    }
    return STATUS_OK;
}

enum status probe_train(float *weight,
                        float *bias,
                        double *loss,
                        struct device *dev,
                        const struct classify_set *set,
                        int32_t class_count,
                        const struct probe_options *opt,
                        struct error *err) {
    REQUIRE(weight != NULL && bias != NULL && dev != NULL && set != NULL && opt != NULL);
    REQUIRE(class_count >= 1 && opt->epochs >= 1 && opt->batch_count >= 1 && set->count >= 1);
    struct probe p = {.opt = opt, .dev = dev, .set = set, .class_count = class_count};
    const size_t bias_bytes = (size_t)class_count * sizeof *bias;
    double last = 0.0;
    enum status s;
    TRY_OR_FAIL(s, find_rows(&p, err));
    TRY_OR_FAIL(s, take_memory(&p, weight, err));
    TRY_OR_FAIL(s, run_epochs(&p, &last, err));
    TRY_OR_FAIL(s, dev->ops->download(dev, weight, p.weight, (size_t)set->dim * bias_bytes, err));
    TRY_OR_FAIL(s, dev->ops->download(dev, bias, p.bias, bias_bytes, err));
    if (loss != NULL) {
        *loss = last;
    }
fail:
    dev->ops->free(dev, p.weight);
    dev->ops->free(dev, p.bias);
    dev->ops->free(dev, p.x);
    dev->ops->free(dev, p.z);
    dev->ops->free(dev, p.values);
    free(p.rows);
    free(p.host_x);
    free(p.host_z);
    free(p.host_labels);
    return s;
}
