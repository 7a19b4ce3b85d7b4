/*
 * loss: shared by the kernels of the losses: workspace, the negatives ("contrasts") of an anchor,
 * sums of exponentials in log space.
 *
 * The launches of a step, over the (N, N) similarities S of B samples (N = B, for two views 2 B):
 *
 *   examine    block per row of S          is S finite; is the position the first of its id; the
 *                                          sample's columns into the workspace
 *   (merge)                                with several ranks: the columns' entries of the others
 *   begin      one block                   number of distinct ids, ranks of positions, temperature
 *   anchors    block per anchor (per       its sums of exponentials: normaliser, value, new state
 *              sample for two views)       (siglip has none; emc2 walks its chains instead)
 *   gradient   block per row of S          dL/dS, both sides of an element at once
 *   popularity block per candidate         nuclr: zeta and its momentum
 *   finish     one block                   is everything finite; then scalars, state, report
 *
 * Anchor k of 2 B: pairs: image k, then text k - B; two views: view k.
 */
#ifndef KERNELS_CUDA_LOSS_LOSS_CUH
#define KERNELS_CUDA_LOSS_LOSS_CUH

#include "kernels/cuda/device/common.cuh"
#include "kernels/cuda/loss/loss_internal.h"

#define INFINITE ((double)INFINITY)

/* Set by `begin` for the launches after it. */
struct loss_head {
    int64_t count; /* distinct ids */
    double tau;    /* the temperature of all samples, if it is shared */
    int32_t fault; /* enum device_loss_fault */
    bool stopped;  /* an earlier step was not sound */
};

struct loss_workspace {
    struct loss_head *head;
    int32_t *rank;  /* (B): of the position among the first positions of ids; -1: a repeated id */
    int32_t *fault; /* (N): enum device_loss_fault by row */
    /* (B): the columns' entries of the batch: before the step, then after it; NULL as the column */
    float *columns[DEVICE_LOSS_COLUMN_COUNT][DEVICE_LOSS_SIDES];
    uint64_t *chain_id[DEVICE_LOSS_SIDES];
    uint64_t *visits; /* before the step */
    /* The three above are contiguous: what ranks merge. Count 0: the loss has only visits, which it
     * does not read. */
    uint32_t *window;
    int64_t window_count;
    /* (2 B), by anchor: */
    double *positive; /* similarity of its positive pair */
    double *tau;      /* its temperature */
    double *log_norm; /* see contrast_gradient */
    double *aux;      /* debiased: log m; nuclr: normaliser of p; emc2: number of recorded states */
    double *diagonal; /* gradient of its positive pair */
    double *value, *objective;
    double *extra; /* sogclr, fastclip-v3: term of dF/dtau; isogclr, fastclip-v2: tau / (2 B) */
    /* (N), by row of S: */
    double *row_value; /* siglip, cyclip */
    double *row_scale; /* sum of dL/dS S */
    double *row_bias;  /* siglip */
    uint16_t *records; /* (2 B, N), emc2: how often an anchor's chain was in this state */
};

/* Whether this rank keeps the sample's entries, and their index. */
static __device__ __forceinline__ bool is_own(const struct device_loss &l, uint64_t id) {
    return l.world == 1 || id % (uint64_t)l.world == (uint64_t)l.rank;
}

static __device__ __forceinline__ uint64_t entry_of(const struct device_loss &l, uint64_t id) {
    return l.world == 1 ? id : id / (uint64_t)l.world;
}

static __device__ __forceinline__ bool is_sound(const struct loss_head *head) {
    return head->fault == DEVICE_LOSS_SOUND && !head->stopped;
}

/* False: the launch only writes zeros or NaN. */
static __device__ __forceinline__ bool has_contrasts(const struct loss_head *head) {
    return is_sound(head) && head->count >= 2;
}

static __device__ __forceinline__ double log_add(double a, double b) {
    const double high = a > b ? a : b;
    const double low = a > b ? b : a;
    return high == -INFINITE ? high : high + log1p(exp(low - high));
}

/* One anchor and its elements of S. */
struct anchor_view {
    const float *similarity; /* of candidate c at c * stride */
    int64_t stride;
    int64_t number;  /* of the anchor, in [0, 2 B) */
    int64_t anchor;  /* its index in [0, N), */
    int64_t partner; /* and the index of its positive: equal for pairs */
    double positive;
};

static __device__ __forceinline__ int64_t position_of(const struct device_loss &l, int64_t place) {
    return place < l.batch_count ? place : place - l.batch_count;
}

/* side: for pairs the anchor's side, for two views its view. */
static __device__ __forceinline__ struct anchor_view
anchor_at(const struct device_loss &l, int64_t position, int side) {
    const int64_t b = l.batch_count;
    struct anchor_view v;
    v.number = side * b + position;
    if (l.views) {
        v.similarity = l.similarity + v.number * 2 * b;
        v.stride = 1;
        v.anchor = v.number;
        v.partner = (1 - side) * b + position;
    } else {
        v.similarity = l.similarity + (side == DEVICE_LOSS_IMAGE ? position * b : position);
        v.stride = side == DEVICE_LOSS_IMAGE ? 1 : b;
        v.anchor = position;
        v.partner = position;
    }
    v.positive = (double)v.similarity[v.partner * v.stride];
    return v;
}

static __device__ __forceinline__ bool is_contrast(const struct device_loss &l,
                                                   const struct loss_workspace &w,
                                                   const struct anchor_view &v,
                                                   int64_t c) {
    return c != v.anchor && c != v.partner && w.rank[position_of(l, c)] >= 0;
}

/* Number of an anchor's negatives: the other distinct samples (for two views both of their
 * views). */
static __device__ __forceinline__ double contrasts_count(const struct device_loss &l,
                                                         const struct loss_head *head) {
    return (double)(l.views ? 2 * head->count - 2 : head->count - 1);
}

/* The weight of an anchor in the mean; some losses halve it for the two sides of pairs. */
static __device__ __forceinline__ double anchor_share(const struct device_loss &l,
                                                      const struct loss_head *head) {
    switch (l.kind) {
    case DEVICE_LOSS_SIGLIP:
        return 1.0 / (double)head->count;
    case DEVICE_LOSS_SOGCLR:
    case DEVICE_LOSS_ISOGCLR:
    case DEVICE_LOSS_NUCLR:
        return (l.views ? 0.5 : 1.0) / (double)head->count;
    case DEVICE_LOSS_EMC2:
        return 0.5 / ((double)head->count * l.constants.tau);
    default:
        return 0.5 / (double)head->count;
    }
}

/* As schedule_gamma. */
static __device__ __forceinline__ double gamma_now(const struct device_loss &l) {
    const struct device_loss_constants &o = l.constants;
    const uint64_t epoch = l.values->epoch;
    if (o.gamma_epochs == 0 || epoch >= o.gamma_epochs) {
        return o.gamma;
    }
    if (epoch == 0) {
        return 1.0;
    }
    const double fall =
        0.5 * (1.0 + cos(3.14159265358979323846 * (double)epoch / (double)o.gamma_epochs));
    return o.gamma + (1.0 - o.gamma) * fall;
}

/* steps from 1. */
static __device__ __forceinline__ void adam(struct device_loss_learned *x,
                                            const struct device_loss_constants &o,
                                            double gradient,
                                            double lr,
                                            double steps) {
    x->m = o.adam_beta1 * x->m + (1.0 - o.adam_beta1) * gradient;
    x->v = o.adam_beta2 * x->v + (1.0 - o.adam_beta2) * gradient * gradient;
    const double m = x->m / (1.0 - pow(o.adam_beta1, steps));
    const double v = x->v / (1.0 - pow(o.adam_beta2, steps));
    x->value -= lr * m / (sqrt(v) + o.adam_eps);
}

/* Learning rate of a side's zeta. */
static __device__ __forceinline__ double zeta_rate(const struct device_loss &l, int side) {
    return side == DEVICE_LOSS_IMAGE ? l.values->zeta_lr_image : l.values->zeta_lr_text;
}

/* As block_sum_once and block_sum. */
template <typename N> static __device__ __forceinline__ N block_max_once(N x, N (&room)[WARPS]) {
    for (int step = WARP / 2; step > 0; step /= 2) {
        const N other = __shfl_xor_sync(FULL_WARP, x, step);
        x = other > x ? other : x;
    }
    if (threadIdx.x % WARP == 0) {
        room[threadIdx.x / WARP] = x;
    }
    __syncthreads();
    N most = room[0];
    for (int i = 1; i < WARPS; i++) {
        most = room[i] > most ? room[i] : most;
    }
    return most;
}

template <typename N> static __device__ __forceinline__ N block_max(N x, N (&room)[WARPS]) {
    const N most = block_max_once(x, room);
    __syncthreads();
    return most;
}

/* Over the negatives of an anchor, with e = (Delta - zeta) / tau, Delta = S - positive: */
struct anchor_sums {
    double largest;  /* e */
    double sum;      /* of exp(e - largest) */
    double weighted; /* of exp(e - largest) Delta */
};

/* Called by all threads of a block; zeta may be NULL. */
static __device__ __forceinline__ struct anchor_sums anchor_sum(const struct device_loss &l,
                                                                const struct loss_workspace &w,
                                                                const struct anchor_view &v,
                                                                double tau,
                                                                const float *zeta) {
    __shared__ double room[WARPS];
    const int64_t n = l.views ? 2 * l.batch_count : l.batch_count;
    struct anchor_sums s = {-INFINITE, 0.0, 0.0};
    for (int64_t c = threadIdx.x; c < n; c += THREADS) {
        if (is_contrast(l, w, v, c)) {
            const double delta = (double)v.similarity[c * v.stride] - v.positive;
            const double e = (zeta != NULL ? delta - (double)zeta[c] : delta) / tau;
            s.largest = e > s.largest ? e : s.largest;
        }
    }
    s.largest = block_max(s.largest, room);
    for (int64_t c = threadIdx.x; c < n; c += THREADS) {
        if (is_contrast(l, w, v, c)) {
            const double delta = (double)v.similarity[c * v.stride] - v.positive;
            const double e = (zeta != NULL ? delta - (double)zeta[c] : delta) / tau;
            const double x = exp(e - s.largest);
            s.sum += x;
            s.weighted += x * delta;
        }
    }
    s.sum = block_sum(s.sum, room);
    s.weighted = block_sum(s.weighted, room);
    return s;
}

/* log of the mean over negatives of exp(e) */
static __device__ __forceinline__ double log_mean(const struct anchor_sums &s, double count) {
    return s.largest + log(s.sum) - log(count);
}

/* ---- host side: the launchers of the other files ---- */

cudaError_t launch_loss_anchors(cudaStream_t stream,
                                const struct device_loss &l,
                                const struct loss_workspace &w);
cudaError_t launch_loss_chains(cudaStream_t stream,
                               const struct device_loss &l,
                               const struct loss_workspace &w);
cudaError_t launch_loss_popularity(cudaStream_t stream,
                                   const struct device_loss &l,
                                   const struct loss_workspace &w);

#endif
