/*
 * loss_chain: emc2's chains, one block each: see train/loss/emc2.c.
 *
 * The decisions of a walk depend on each other, but the numbers that they compare do not: all
 * threads compute scores and random numbers of THREADS candidates, then one thread walks over them
 * in shared memory.
 */
#include "formats/base/rng.h"
#include "kernels/cuda/loss/loss.cuh"
#include "kernels/cuda/text/captions.cuh"

struct chain {
    int64_t state;   /* index in [0, N); -1: a sample of an earlier batch */
    float log_score; /* of the state; NaN: the sample has no chain yet */
    int64_t proposals_count, recorded_count;
};

/* The stream of rng_init(seed, RNG_CHAIN, step, stream). */
struct draws {
    uint32_t key[2], word;
    uint64_t stream;
};

static __device__ __forceinline__ struct draws
draws_of(uint64_t seed, uint64_t step, uint64_t stream) {
    uint32_t derived[4];
    philox(derived, (uint32_t)seed, (uint32_t)(seed >> 32), RNG_CHAIN, 0, (uint32_t)step,
           (uint32_t)(step >> 32));
    return {{derived[0], derived[1]}, derived[2], stream};
}

/* Number i of rng_uniform. */
static __device__ __forceinline__ double draw_at(const struct draws &d, int64_t i) {
    uint32_t four[4];
    philox(four, d.key[0], d.key[1], (uint32_t)(i / 2), d.word, (uint32_t)d.stream,
           (uint32_t)(d.stream >> 32));
    const uint64_t bits =
        i % 2 == 0 ? four[0] | (uint64_t)four[1] << 32 : four[2] | (uint64_t)four[3] << 32;
    return (double)(bits >> 11) * 0x1p-53;
}

/* The index of a sample among the distinct samples of the batch; -1: it is not in the batch. */
static __device__ __forceinline__ int64_t find_sample(const struct device_loss &l,
                                                      const struct loss_workspace &w,
                                                      uint64_t id) {
    __shared__ int64_t room[WARPS];
    int64_t found = -1;
    for (int64_t i = threadIdx.x; i < l.batch_count; i += THREADS) {
        if (w.rank[i] >= 0 && l.sample_ids[i] == id) {
            found = i;
        }
    }
    return block_max_once(found, room);
}

/* Which of the anchor's proposals a candidate is: its rank among distinct views, without the two
 * that are omitted. */
static __device__ __forceinline__ int64_t proposal_of(const struct device_loss &l,
                                                      const struct loss_workspace &w,
                                                      const struct anchor_view &v,
                                                      int64_t c) {
    const int64_t rank = w.rank[position_of(l, c)] + (c < l.batch_count ? 0 : w.head->count);
    return rank - (v.anchor < c ? 1 : 0) - (v.partner != v.anchor && v.partner < c ? 1 : 0);
}

/* One thread's walk over THREADS candidates from `first` on. */
static __device__ __forceinline__ void walk_over(struct chain *chain,
                                                 uint16_t *records,
                                                 const double *scores,
                                                 const double *log_draws,
                                                 int64_t first,
                                                 int64_t burn_in) {
    int64_t state = chain->state;
    float log_score = chain->log_score;
    uint16_t stays = 0;
    for (int64_t i = 0; i < THREADS; i++) {
        const double score = scores[i];
        if (isnan(score)) {
            continue; /* not a candidate */
        }
        if (isnan(log_score) || log_draws[i] < score - (double)log_score) {
            if (stays > 0) {
                records[state] += stays;
            }
            stays = 0;
            state = first + i;
            log_score = (float)score;
        }
        if (chain->proposals_count++ >= burn_in && state >= 0) {
            stays++;
            chain->recorded_count++;
        }
    }
    if (stays > 0) {
        records[state] += stays;
    }
    chain->state = state;
    chain->log_score = log_score;
}

/* Called by all threads: continues the anchor's chain over all candidates. */
static __device__ __forceinline__ void walk(const struct device_loss &l,
                                            const struct loss_workspace &w,
                                            const struct anchor_view &v,
                                            const struct draws &draws,
                                            struct chain *chain) {
    __shared__ double scores[THREADS];
    __shared__ double log_draws[THREADS];
    const int64_t n = l.views ? 2 * l.batch_count : l.batch_count;
    const double tau = l.constants.tau;
    const int64_t burn_in = (int64_t)(l.constants.burn_in * contrasts_count(l, w.head));
    uint16_t *records = w.records + v.number * n;
    for (int64_t c = threadIdx.x; c < n; c += THREADS) {
        records[c] = 0;
    }
    if (threadIdx.x == 0) {
        chain->proposals_count = 0;
        chain->recorded_count = 0;
        if (chain->state >= 0) {
            chain->log_score = (float)((double)v.similarity[chain->state * v.stride] / tau);
        }
    }
    for (int64_t first = 0; first < n; first += THREADS) {
        const int64_t c = first + threadIdx.x;
        scores[threadIdx.x] = (double)NAN;
        if (c < n && is_contrast(l, w, v, c)) {
            scores[threadIdx.x] = (double)v.similarity[c * v.stride] / tau;
            log_draws[threadIdx.x] = log(draw_at(draws, proposal_of(l, w, v, c)));
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            walk_over(chain, records, scores, log_draws, first, burn_in);
        }
        __syncthreads();
    }
}

/* Stores value and objective of an anchor; its gradient is computed from the records. */
static __device__ __forceinline__ void put_anchor(const struct device_loss &l,
                                                  const struct loss_workspace &w,
                                                  const struct anchor_view &v,
                                                  int64_t recorded_count) {
    __shared__ double room[WARPS];
    const int64_t n = l.views ? 2 * l.batch_count : l.batch_count;
    const uint16_t *records = w.records + v.number * n;
    double value = 0.0;
    for (int64_t c = threadIdx.x; c < n && recorded_count > 0; c += THREADS) {
        const double own = c == v.partner ? 1.0 : 0.0;
        const double g = (double)records[c] / (double)recorded_count - own;
        value += g * (double)v.similarity[c * v.stride];
    }
    value = block_sum_once(value, room);
    const double count = contrasts_count(l, w.head);
    const struct anchor_sums s = anchor_sum(l, w, v, l.constants.tau, NULL);
    if (threadIdx.x == 0) {
        w.aux[v.number] = (double)recorded_count;
        w.value[v.number] = anchor_share(l, w.head) * value;
        w.objective[v.number] =
            0.5 * log_add(0.0, log_mean(s, count) + log(count)) / (double)w.head->count;
    }
}

static __global__ void chains(struct device_loss l, struct loss_workspace w) {
    __shared__ struct chain chain;
    const int64_t b = l.batch_count;
    const int64_t position = blockIdx.x % b;
    const int side = (int)(blockIdx.x / b);
    const int views = l.views ? 2 : 1;
    if (!has_contrasts(w.head) || w.rank[position] < 0) {
        for (int i = 0; i < views && threadIdx.x == 0; i++) {
            const int64_t number = (l.views ? i : side) * b + position;
            w.aux[number] = 0.0;
            w.value[number] = 0.0;
            w.objective[number] = 0.0;
        }
        return;
    }
    float *log_score = &w.columns[DEVICE_LOSS_CHAIN][side][position];
    uint64_t *stands_on = &w.chain_id[side][position];
    const uint64_t id = l.sample_ids[position];
    const int64_t start = find_sample(l, w, *stands_on);
    if (threadIdx.x == 0) {
        chain.state = start;
        chain.log_score = *log_score;
    }
    __syncthreads();
    for (int i = 0; i < views; i++) {
        const int number = l.views ? i : side;
        const struct anchor_view v = anchor_at(l, position, number);
        const struct draws draws =
            draws_of(l.constants.seed, l.values->step, 2 * id + (uint64_t)number);
        walk(l, w, v, draws, &chain);
        put_anchor(l, w, v, chain.recorded_count);
        __syncthreads(); /* all have read the count */
    }
    if (threadIdx.x == 0) {
        *log_score = chain.log_score;
        if (chain.state >= 0) {
            *stands_on = l.sample_ids[position_of(l, chain.state)];
        }
    }
}

cudaError_t launch_loss_chains(cudaStream_t stream,
                               const struct device_loss &l,
                               const struct loss_workspace &w) {
    const int64_t blocks = l.views ? l.batch_count : 2 * l.batch_count;
    return launch(stream, dim3((unsigned)blocks), chains, l, w);
}
