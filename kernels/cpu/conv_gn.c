/*
 * conv_gn: oneDNN's convolution, then group norm + residual + ReLU, image by image: sums over the
 * pixels of each channel in double, which are added per group, then one pass that writes the
 * result. The backward pass mirrors it. An image belongs to one thread, and sums over images are
 * added in order: bit-identical for any number of threads.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/conv_gradients.h"
#include "kernels/cpu/cpu_internal.h"

/* `count` channels of one pixel. */
struct span {
    const float *x, *dout, *out, *other; /* other: the residual, or NULL */
    float *to;
    const float *mean, *a, *b, *k, *scale; /* by channel */
    double *first, *second;                /* sums, by channel */
    int64_t count;
    float floor; /* of the activation: 0 or minus infinity */
};

CPU_CLONES static void add_values(const struct span *span) {
    const struct span s = *span;
#pragma omp simd
    for (int64_t i = 0; i < s.count; i++) {
        s.first[i] += (double)s.x[i];
    }
}

CPU_CLONES static void add_squares(const struct span *span) {
    const struct span s = *span;
#pragma omp simd
    for (int64_t i = 0; i < s.count; i++) {
        const double d = (double)(s.x[i] - s.mean[i]);
        s.second[i] += d * d;
    }
}

/* out = act((x - mean) a + k + residual) */
CPU_CLONES static void apply(const struct span *span) {
    const struct span s = *span;
    if (s.other == NULL) {
#pragma omp simd
        for (int64_t i = 0; i < s.count; i++) {
            const float y = (s.x[i] - s.mean[i]) * s.a[i] + s.k[i];
            s.to[i] = y > s.floor ? y : s.floor;
        }
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < s.count; i++) {
        const float y = (s.x[i] - s.mean[i]) * s.a[i] + s.k[i] + s.other[i];
        s.to[i] = y > s.floor ? y : s.floor;
    }
}

/* dy, and dy (x - mean) */
CPU_CLONES static void add_gradients(const struct span *span) {
    const struct span s = *span;
#pragma omp simd
    for (int64_t i = 0; i < s.count; i++) {
        const float d = s.dout[i];
        const float dy = s.out[i] > s.floor ? d : 0.0f;
        s.first[i] += (double)dy;
        s.second[i] += (double)dy * (double)(s.x[i] - s.mean[i]);
    }
}

/* dx = scale ((a dy - k) + b (x - mean)); the difference first: for a group of one element it is 0,
 * and the scale may be large. */
CPU_CLONES static void apply_gradient(const struct span *span) {
    const struct span s = *span;
#pragma omp simd
    for (int64_t i = 0; i < s.count; i++) {
        const float d = s.dout[i];
        const float dy = s.out[i] > s.floor ? d : 0.0f;
        s.to[i] = s.scale[i] * ((s.a[i] * dy - s.k[i]) + s.b[i] * (s.x[i] - s.mean[i]));
    }
}

/* dy. Element by element: `to` may be dout. */
CPU_CLONES static void apply_mask(const struct span *span) {
    const struct span s = *span;
#pragma omp simd
    for (int64_t i = 0; i < s.count; i++) {
        const float d = s.dout[i];
        s.to[i] = s.out[i] > s.floor ? d : 0.0f;
    }
}

/* One image: its tensors (data NULL: none) and its vectors by channel. */
struct image {
    struct tensor x, dout, out, other, to;
    double *first, *second;
    float *mean, *a, *b, *k, *scale;
    int64_t n, pixels, channels;
    float floor;
};

static const float *read(const struct tensor *t, int64_t at, int64_t count, float *buffer) {
    return tensor_present(t) ? cpu_read(t, at, count, buffer) : NULL;
}

enum { MOST_CHANNELS = 512 }; /* of a span */

/* Calls `loop` for all channels of every pixel. */
static void walk(const struct image *m, void (*loop)(const struct span *)) {
    float x[MOST_CHANNELS];
    float dout[MOST_CHANNELS];
    float out[MOST_CHANNELS];
    float other[MOST_CHANNELS];
    float to[MOST_CHANNELS];
    const int64_t step = m->channels < MOST_CHANNELS ? m->channels : MOST_CHANNELS;
    for (int64_t e = 0; e < m->pixels * m->channels; e += m->channels) {
        for (int64_t c = 0; c < m->channels; c += step) {
            const int64_t count = m->channels - c < step ? m->channels - c : step;
            const int64_t at = m->n * m->pixels * m->channels + e + c;
            const struct span s = {.x = read(&m->x, at, count, x),
                                   .dout = read(&m->dout, at, count, dout),
                                   .out = read(&m->out, at, count, out),
                                   .other = read(&m->other, at, count, other),
                                   .to = tensor_present(&m->to) ? cpu_target(&m->to, at, to) : NULL,
                                   .mean = m->mean + c,
                                   .a = m->a + c,
                                   .b = m->b + c,
                                   .k = m->k + c,
                                   .scale = m->scale + c,
                                   .first = m->first + c,
                                   .second = m->second + c,
                                   .count = count,
                                   .floor = m->floor};
            loop(&s);
            if (tensor_present(&m->to)) {
                cpu_store(&m->to, at, count, s.to);
            }
        }
    }
}

/* Vectors of every image: two of doubles and six of floats (the sixth keeps the doubles of the next
 * image aligned). */
static size_t vectors_bytes(int64_t channels) {
    return (size_t)channels * (2 * sizeof(double) + 6 * sizeof(float));
}

/* Image n of tensors like `like`, its vectors zeroed. */
static struct image
image_of(void *workspace, const struct tensor *like, int64_t n, enum activation act) {
    const int64_t c = like->shape[3];
    unsigned char *vectors = (unsigned char *)workspace + (size_t)n * vectors_bytes(c);
    memset(vectors, 0, vectors_bytes(c));
    struct image m = {.n = n,
                      .pixels = like->shape[1] * like->shape[2],
                      .channels = c,
                      .first = (double *)(void *)vectors,
                      .floor = act == ACTIVATION_RELU ? 0.0f : -INFINITY};
    m.second = m.first + c;
    m.mean = (float *)(m.second + c);
    m.a = m.mean + c;
    m.b = m.a + c;
    m.k = m.b + c;
    m.scale = m.k + c;
    return m;
}

/* The sum over the channels of group g. */
static double group_sum(const double *x, const float *factor, int64_t width, int64_t g) {
    double sum = 0.0;
    for (int64_t i = g * width; i < (g + 1) * width; i++) {
        sum += x[i] * (factor != NULL ? (double)factor[i] : 1.0);
    }
    return sum;
}

/* mean and rstd of every group, and the vectors that `apply` reads. */
static void normalise(const struct conv_gn *op, struct image *m) {
    const int64_t width = m->channels / op->groups;
    const double count = (double)(width * m->pixels);
    const float *gamma = op->gamma.data;
    float *mean = (float *)op->mean.data + m->n * op->groups;
    float *rstd = (float *)op->rstd.data + m->n * op->groups;
    walk(m, add_values);
    for (int64_t c = 0; c < m->channels; c++) {
        const int64_t g = c / width;
        mean[g] = c % width == 0 ? (float)(group_sum(m->first, NULL, width, g) / count) : mean[g];
        m->mean[c] = mean[g];
    }
    walk(m, add_squares);
    for (int64_t g = 0; g < op->groups; g++) {
        const double variance = group_sum(m->second, NULL, width, g) / count;
        rstd[g] = (float)(1.0 / sqrt(variance + (double)op->eps));
    }
    for (int64_t c = 0; c < m->channels; c++) {
        m->a[c] = gamma[c] * rstd[c / width];
        m->k[c] = ((const float *)op->beta.data)[c];
    }
}

enum status cpu_conv_gn(struct device *dev, const struct conv_gn *op, struct error *err) {
    const struct tensor *pre = op->groups > 0 ? &op->pre : &op->out;
    const struct convolution forward =
        cpu_convolution(CONV_FORWARD, WRITE_SET, pre, &op->in, &op->weight, &op->conv);
    TRY(cpu_convolve(dev, &forward, err));
    const int64_t images = pre->shape[0];
    void *workspace;
    TRY(cpu_workspace(dev, (size_t)images * vectors_bytes(pre->shape[3]), &workspace, err));
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < images; n++) {
        struct image m = image_of(workspace, pre, n, op->conv.act);
        m.x = *pre;
        if (op->groups > 0) {
            normalise(op, &m);
        } else {
            for (int64_t c = 0; c < m.channels; c++) {
                m.a[c] = 1.0f;
            }
        }
        m.to = op->out;
        m.other = op->residual;
        walk(&m, apply);
    }
    return STATUS_OK;
}

/* The vectors of dx = scale ((a dy - k) + b (x - mean)), from the sums over the image's pixels. In
 * a group with `count` elements and h = gamma dy: dx = rstd (h - sum h / count - xhat sum(h xhat) /
 * count). */
static void set_factors(const struct conv_gn_bwd *op, struct image *m) {
    const int64_t width = m->channels / op->groups;
    const double count = (double)(width * m->pixels);
    const float *gamma = op->gamma.data;
    for (int64_t g = 0; g < op->groups; g++) {
        const double rstd = (double)((const float *)op->rstd.data)[m->n * op->groups + g];
        const double sum_h = group_sum(m->first, gamma, width, g);
        const double sum_h_xhat = group_sum(m->second, gamma, width, g) * rstd;
        for (int64_t c = g * width; c < (g + 1) * width; c++) {
            m->a[c] = gamma[c];
            m->b[c] = (float)(-rstd * sum_h_xhat / count);
            m->k[c] = (float)(sum_h / count);
            m->scale[c] = (float)rstd;
        }
    }
}

/* dpre of one image; its sums of dy and dy xhat stay in `first` and `second`. */
static void image_backward(const struct conv_gn_bwd *op, struct image *m) {
    const int64_t width = m->channels / op->groups;
    const float *mean = (const float *)op->mean.data + m->n * op->groups;
    const float *rstd = (const float *)op->rstd.data + m->n * op->groups;
    for (int64_t c = 0; c < m->channels; c++) {
        m->mean[c] = mean[c / width];
    }
    m->x = op->pre;
    walk(m, add_gradients);
    set_factors(op, m);
    for (int64_t c = 0; c < m->channels; c++) {
        m->second[c] *= (double)rstd[c / width];
    }
    m->to = op->dpre;
    walk(m, apply_gradient);
    m->x = (struct tensor){.data = NULL};
}

/* dgamma and dbeta: the sums of all images, in order. */
static void set_vector_gradients(const struct conv_gn_bwd *op, const unsigned char *workspace) {
    const int64_t channels = op->out.shape[3];
    const bool add = op->param_mode == WRITE_ADD;
    float *dgamma = op->dgamma.data;
    float *dbeta = op->dbeta.data;
    for (int64_t c = 0; c < channels; c++) {
        double sum_dy = 0.0;
        double sum_dy_xhat = 0.0;
        for (int64_t n = 0; n < op->out.shape[0]; n++) {
            const double *sums = (const void *)(workspace + (size_t)n * vectors_bytes(channels));
            sum_dy += sums[c];
            sum_dy_xhat += sums[channels + c];
        }
        dbeta[c] = (float)(sum_dy + (add ? (double)dbeta[c] : 0.0));
        dgamma[c] = (float)(sum_dy_xhat + (add ? (double)dgamma[c] : 0.0));
    }
}

enum status cpu_conv_gn_bwd(struct device *dev, const struct conv_gn_bwd *op, struct error *err) {
    const int64_t images = op->out.shape[0];
    void *workspace;
    TRY(cpu_workspace(dev, (size_t)images * vectors_bytes(op->out.shape[3]), &workspace, err));
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < images; n++) {
        struct image m = image_of(workspace, &op->out, n, op->conv.act);
        m.dout = op->dout;
        m.out = op->out;
        if (op->groups > 0) {
            image_backward(op, &m);
        } else {
            m.to = op->dpre;
            walk(&m, apply_mask);
        }
        if (tensor_present(&op->dresidual)) { /* last: it may be dout */
            m.to = op->dresidual;
            walk(&m, apply_mask);
        }
    }
    if (op->groups > 0) {
        set_vector_gradients(op, workspace);
    }
    const struct convolution by_weight = cpu_convolution(
        CONV_BACKWARD_WEIGHT, op->param_mode, &op->dpre, &op->in, &op->dweight, &op->conv);
    TRY(cpu_convolve(dev, &by_weight, err));
    if (!tensor_present(&op->din)) {
        return STATUS_OK;
    }
    const struct convolution by_data = cpu_convolution(CONV_BACKWARD_DATA, op->din_mode, &op->dpre,
                                                       &op->din, &op->weight, &op->conv);
    return cpu_convolve(dev, &by_data, err);
}
