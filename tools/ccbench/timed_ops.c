/*
 * One wrapper per operator, generated from OPS_LIST: clock, the real operator, sync, clock.
 */
#include "tools/ccbench/timed_ops.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "kernels/device_loss.h"

static struct {
    const struct ops *real;
    struct ops table;
    const struct device_losses *real_losses; /* NULL: the device has none */
    struct device_losses losses;
    struct op_time times[TIMED_MAX_OPS];
    size_t count;
    struct timed_convolution convolutions[TIMED_MAX_CONVOLUTIONS];
    size_t convolution_count;
} timed;

static enum status finish(struct device *dev,
                          const char *name,
                          int64_t start_ns,
                          double flops,
                          double bytes,
                          enum status s) {
    THEN(s, timed.real->sync(dev, NULL));
    const int64_t ns = clock_now_ns() - start_ns;
    size_t i = 0;
    while (i < timed.count && timed.times[i].name != name) {
        i++;
    }
    if (i == timed.count) {
        timed.times[i] = (struct op_time){.name = name};
        timed.count++;
    }
    timed.times[i].calls++;
    timed.times[i].ns += ns;
    timed.times[i].flops += flops;
    timed.times[i].bytes += bytes;
    return s;
}

static void note_convolution(const struct tensor *pre,
                             const struct tensor *in,
                             const struct tensor *weight,
                             const struct conv_params *p,
                             bool backward,
                             bool data) {
    if (timed.convolution_count == TIMED_MAX_CONVOLUTIONS) {
        return;
    }
    timed.convolutions[timed.convolution_count++] = (struct timed_convolution){
        cpu_convolution(CONV_FORWARD, WRITE_SET, pre, in, weight, p).shape, backward, data};
}

static enum status
timed_call(struct device *dev, enum op_id id, const void *args, enum status s, int64_t start_ns) {
    const enum status done =
        finish(dev, op_info(id)->name, start_ns, op_flops(id, args), op_bytes(id, args), s);
    if (id == OP_conv_bn) {
        const struct conv_bn *op = args;
        note_convolution(&op->pre, &op->in, &op->weight, &op->conv, false, false);
    } else if (id == OP_conv_bn_bwd) {
        const struct conv_bn_bwd *op = args;
        note_convolution(&op->pre, &op->in, &op->weight, &op->conv, true, tensor_present(&op->din));
    }
    return done;
}

#define TIMED(name)                                                                                \
    static enum status timed_##name(struct device *dev, const struct name *op,                     \
                                    struct error *err) {                                           \
        const int64_t start_ns = clock_now_ns();                                                   \
        return timed_call(dev, OP_##name, op, timed.real->name(dev, op, err), start_ns);           \
    }
OPS_LIST(TIMED)

static enum status timed_upload(struct device *dev,
                                void *dst,
                                const void *host,
                                size_t size_bytes,
                                struct error *err) {
    const int64_t start_ns = clock_now_ns();
    const enum status s = timed.real->upload(dev, dst, host, size_bytes, err);
    return finish(dev, "upload", start_ns, 0.0, (double)size_bytes, s);
}

static enum status timed_download(struct device *dev,
                                  void *host,
                                  const void *src,
                                  size_t size_bytes,
                                  struct error *err) {
    const int64_t start_ns = clock_now_ns();
    const enum status s = timed.real->download(dev, host, src, size_bytes, err);
    return finish(dev, "download", start_ns, 0.0, (double)size_bytes, s);
}

/* All launches of a loss step on the device. S and G are read or written once each; accesses to
 * per-sample state are not counted. */
static enum status timed_loss(struct device *dev, const struct device_loss *l, struct error *err) {
    const int64_t start_ns = clock_now_ns();
    const double rows = (l->views ? 2.0 : 1.0) * (double)l->batch_count;
    const double matrices = l->image_similarity != NULL ? 3.0 : 1.0;
    const enum status s = timed.real_losses->step(dev, l, err);
    return finish(dev, "loss", start_ns, 0.0, 2.0 * matrices * rows * rows * sizeof(float), s);
}

void timed_ops_install(struct device *dev) {
    memset(&timed, 0, sizeof timed);
    timed.real_losses = dev->losses;
    if (dev->losses != NULL) {
        timed.losses = *dev->losses;
        timed.losses.step = timed_loss;
        dev->losses = &timed.losses;
    }
    timed.real = dev->ops;
    timed.table = *dev->ops;
    timed.table.upload = timed_upload;
    timed.table.download = timed_download;
#define USE(name) timed.table.name = dev->ops->name != NULL ? timed_##name : NULL;
    OPS_LIST(USE)
    dev->ops = &timed.table;
}

void timed_ops_remove(struct device *dev) {
    dev->ops = timed.real;
    dev->losses = timed.real_losses;
}

static int by_time(const void *a, const void *b) {
    const int64_t x = ((const struct op_time *)a)->ns;
    const int64_t y = ((const struct op_time *)b)->ns;
    return x < y ? 1 : x > y ? -1 : 0;
}

size_t timed_ops_times(struct op_time out[TIMED_MAX_OPS]) {
    memcpy(out, timed.times, timed.count * sizeof *out);
    qsort(out, timed.count, sizeof *out, by_time);
    return timed.count;
}

size_t timed_ops_convolutions(const struct timed_convolution **out) {
    *out = timed.convolutions;
    return timed.convolution_count;
}
