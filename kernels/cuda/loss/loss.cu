/*
 * loss: a step of a contrastive loss, from similarities to gradient, state and report. loss.cuh
 * lists the launches. This file has all except anchors, chains and popularity: checks of the input,
 * the gradient of every element, and the end; state changes only if every value is finite.
 */
#include "kernels/cuda/loss/loss.cuh"

/* ---- before ---- */

/* Whether a row of `count` similarities has one that is not finite. */
static __device__ __forceinline__ int32_t bad_row(const float *row, int64_t count) {
    int32_t fault = DEVICE_LOSS_SOUND;
    for (int64_t c = threadIdx.x; c < count; c += THREADS) {
        if (!isfinite(row[c])) {
            fault = DEVICE_LOSS_BAD_SIMILARITY;
        }
    }
    return fault;
}

/* Whether an earlier position of the batch has the same id. */
static __device__ __forceinline__ int32_t was_before(const uint64_t *ids, int64_t position) {
    const uint64_t id = ids[position];
    int32_t before = 0;
    for (int64_t i = threadIdx.x; i < position; i += THREADS) {
        before |= ids[i] == id;
    }
    return before;
}

/* Reads the entries of a sample, or zeros if another rank keeps them; one thread per column. */
static __device__ __forceinline__ void
take_state(const struct device_loss &l, const struct loss_workspace &w, int64_t position) {
    const uint64_t id = l.sample_ids[position];
    const uint64_t at = entry_of(l, id);
    const bool own = is_own(l, id);
    if (threadIdx.x < DEVICE_LOSS_COLUMN_COUNT * DEVICE_LOSS_SIDES) {
        const int column = threadIdx.x / DEVICE_LOSS_SIDES;
        const int side = threadIdx.x % DEVICE_LOSS_SIDES;
        if (l.columns[column][side] != NULL) {
            w.columns[column][side][position] = own ? l.columns[column][side][at] : 0.0f;
        }
    }
    if (threadIdx.x < DEVICE_LOSS_SIDES && l.chain_id[threadIdx.x] != NULL) {
        w.chain_id[threadIdx.x][position] = own ? l.chain_id[threadIdx.x][at] : 0;
    }
    if (threadIdx.x == 0) {
        w.visits[position] = own ? l.visits[at] : 0;
    }
}

static __global__ void examine(struct device_loss l, struct loss_workspace w) {
    __shared__ int32_t room[WARPS];
    const int64_t row = blockIdx.x;
    const int64_t b = l.batch_count;
    const int64_t n = l.views ? 2 * b : b;
    int32_t fault = bad_row(l.similarity + row * n, n);
    if (l.kind == DEVICE_LOSS_CYCLIP) {
        const int32_t image = bad_row(l.image_similarity + row * b, b);
        const int32_t text = bad_row(l.text_similarity + row * b, b);
        fault = image > fault ? image : fault;
        fault = text > fault ? text : fault;
    }
    fault = block_max(fault, room);
    if (row < b) {
        const int32_t before = block_max_once(was_before(l.sample_ids, row), room);
        if (threadIdx.x == 0) {
            w.rank[row] = before ? -1 : 0;
        }
        if (l.sample_ids[row] < l.id_space) {
            take_state(l, w, row);
        } else {
            fault = DEVICE_LOSS_BAD_ID;
        }
    }
    if (threadIdx.x == 0) {
        w.fault[row] = fault;
    }
}

/* Numbers the first positions of ids in order: each thread counts those in its stretch. */
static __device__ __forceinline__ int32_t put_ranks(int32_t *rank, int64_t count) {
    __shared__ int32_t counts[THREADS];
    const int64_t stretch = (count + THREADS - 1) / THREADS;
    const int64_t begin = stretch * threadIdx.x;
    const int64_t end = begin + stretch < count ? begin + stretch : count;
    int32_t mine = 0;
    for (int64_t i = begin; i < end; i++) {
        mine += rank[i] >= 0;
    }
    counts[threadIdx.x] = mine;
    __syncthreads();
    int32_t before = 0;
    int32_t all = 0;
    for (int i = 0; i < THREADS; i++) {
        before += i < (int)threadIdx.x ? counts[i] : 0;
        all += counts[i];
    }
    for (int64_t i = begin; i < end; i++) {
        if (rank[i] >= 0) {
            rank[i] = before++;
        }
    }
    return all;
}

static __global__ void begin(struct device_loss l, struct loss_workspace w) {
    __shared__ int32_t room[WARPS];
    const int64_t n = l.views ? 2 * l.batch_count : l.batch_count;
    int32_t fault = DEVICE_LOSS_SOUND;
    for (int64_t row = threadIdx.x; row < n; row += THREADS) {
        fault = w.fault[row] > fault ? w.fault[row] : fault;
    }
    fault = block_max_once(fault, room);
    const int32_t count = put_ranks(w.rank, l.batch_count);
    if (threadIdx.x == 0) {
        w.head->count = count;
        w.head->fault = fault;
        w.head->stopped = l.values->sound == 0;
        w.head->tau = l.constants.global_tau ? exp(-l.scalars->scale.value) : l.constants.tau;
    }
}

/* ---- gradient ---- */

/* One side of an element's gradient: for anchor number `a`, of which it is a negative. */
static __device__ __forceinline__ double contrast_gradient(const struct device_loss &l,
                                                           const struct loss_workspace &w,
                                                           double share,
                                                           int64_t a,
                                                           double similarity,
                                                           double zeta) {
    const double tau = w.tau[a];
    const double e = (similarity - w.positive[a] - zeta) / tau;
    const double log_norm = w.log_norm[a];
    switch (l.kind) {
    case DEVICE_LOSS_DEBIASED: {
        const double beta = l.constants.beta;
        return share / tau *
               ((1.0 + beta) * exp((1.0 + beta) * e - log_norm) -
                beta * exp(beta * e + w.aux[a] - log_norm));
    }
    case DEVICE_LOSS_CLIP:
    case DEVICE_LOSS_CYCLIP:
    case DEVICE_LOSS_RINCE:
        return exp(e - log_norm) * share / tau;
    default:
        return exp(e - log_norm) * share;
    }
}

/* One side of an element's gradient: anchor number a at `anchor`, its positive at `partner`,
 * candidate c. */
static __device__ __forceinline__ double side_gradient(const struct device_loss &l,
                                                       const struct loss_workspace &w,
                                                       double share,
                                                       int64_t a,
                                                       int64_t anchor,
                                                       int64_t partner,
                                                       int64_t c,
                                                       double similarity) {
    if (l.kind == DEVICE_LOSS_EMC2) {
        const int64_t n = l.views ? 2 * l.batch_count : l.batch_count;
        const double recorded = w.aux[a];
        return recorded > 0.0
                   ? share * ((double)w.records[a * n + c] / recorded - (c == partner ? 1.0 : 0.0))
                   : 0.0;
    }
    if (c == partner) {
        return w.diagonal[a];
    }
    if (c == anchor) {
        return 0.0;
    }
    const float *zeta =
        l.kind == DEVICE_LOSS_NUCLR
            ? w.columns[DEVICE_LOSS_ZETA][a < l.batch_count ? DEVICE_LOSS_TEXT : DEVICE_LOSS_IMAGE]
            : NULL;
    return contrast_gradient(l, w, share, a, similarity, zeta != NULL ? (double)zeta[c] : 0.0);
}

/* Results of rows that `finish` reads. */
struct row_sums {
    double value, scale, bias;
    int32_t fault;
};

static __device__ __forceinline__ float siglip_gradient(const struct device_loss &l,
                                                        const struct loss_workspace &w,
                                                        bool own,
                                                        double similarity,
                                                        struct row_sums *sums) {
    const double count = (double)w.head->count;
    const double z = own ? 1.0 : -1.0;
    const double t = -z * (similarity / w.head->tau + l.scalars->bias.value);
    const double softplus = log_add(0.0, t);
    const double g = -z * exp(t - softplus) / count;
    sums->value += softplus / count;
    sums->bias += g;
    return (float)(g / w.head->tau);
}

/* The two terms that cyclip adds to clip, of element (row, c). */
static __device__ __forceinline__ float cyclic_gradient(const struct device_loss &l,
                                                        double count,
                                                        int64_t row,
                                                        int64_t c,
                                                        float g,
                                                        struct row_sums *sums) {
    const int64_t b = l.batch_count;
    const int64_t at = row * b + c;
    const double self = l.constants.cyclic_self / count;
    const double cross = l.constants.cyclic_cross / count;
    const double apart = (double)l.image_similarity[at] - (double)l.text_similarity[at];
    const double skew = (double)l.similarity[at] - (double)l.similarity[c * b + row];
    sums->value += self * apart * apart + cross * skew * skew;
    l.image_gradient[at] = (float)(2.0 * self * apart);
    l.text_gradient[at] = (float)(-2.0 * self * apart);
    return (float)((double)g + 4.0 * cross * skew);
}

static __device__ __forceinline__ void
fill_row(const struct device_loss &l, int64_t row, int64_t c, float with) {
    const int64_t n = l.views ? 2 * l.batch_count : l.batch_count;
    l.gradient[row * n + c] = with;
    if (l.kind == DEVICE_LOSS_CYCLIP) {
        l.image_gradient[row * n + c] = with;
        l.text_gradient[row * n + c] = with;
    }
}

static __device__ __forceinline__ float element_gradient(const struct device_loss &l,
                                                         const struct loss_workspace &w,
                                                         double share,
                                                         int64_t row,
                                                         int64_t c,
                                                         double similarity,
                                                         struct row_sums *sums) {
    const int64_t b = l.batch_count;
    if (l.kind == DEVICE_LOSS_SIGLIP) {
        return siglip_gradient(l, w, row == c, similarity, sums);
    }
    if (l.views) {
        const int64_t partner = row < b ? row + b : row - b;
        return (float)side_gradient(l, w, share, row, row, partner, c, similarity);
    }
    /* Rounded after each side, as the host stores it. */
    const float image = (float)side_gradient(l, w, share, row, row, row, c, similarity);
    return (float)((double)image + side_gradient(l, w, share, b + c, c, c, row, similarity));
}

static __global__ void gradient(struct device_loss l, struct loss_workspace w) {
    __shared__ double room[WARPS];
    __shared__ int32_t fault_room[WARPS];
    const int64_t row = blockIdx.x;
    const int64_t n = l.views ? 2 * l.batch_count : l.batch_count;
    const bool sound = is_sound(w.head);
    const bool counts = has_contrasts(w.head) && w.rank[position_of(l, row)] >= 0;
    const double share = counts ? anchor_share(l, w.head) : 0.0;
    struct row_sums sums = {};
    for (int64_t c = threadIdx.x; c < n; c += THREADS) {
        if (!counts || w.rank[position_of(l, c)] < 0) {
            fill_row(l, row, c, sound ? 0.0f : NAN);
            continue;
        }
        const double similarity = (double)l.similarity[row * n + c];
        float g = element_gradient(l, w, share, row, c, similarity, &sums);
        sums.scale += (double)g * similarity;
        if (l.kind == DEVICE_LOSS_CYCLIP) {
            g = cyclic_gradient(l, (double)w.head->count, row, c, g, &sums);
        }
        l.gradient[row * n + c] = g;
        if (!isfinite(g)) {
            sums.fault = DEVICE_LOSS_BAD_GRADIENT;
        }
    }
    sums.value = block_sum(sums.value, room);
    sums.scale = block_sum(sums.scale, room);
    sums.bias = block_sum_once(sums.bias, room);
    sums.fault = block_max_once(sums.fault, fault_room);
    if (threadIdx.x == 0) {
        w.row_value[row] = sums.value;
        w.row_scale[row] = sums.scale;
        w.row_bias[row] = sums.bias;
        w.fault[row] = sums.fault;
    }
}

/* ---- after ---- */

static __device__ __forceinline__ double sum_of(const double *x, int64_t count) {
    __shared__ double room[WARPS];
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < count; i += THREADS) {
        sum += x[i];
    }
    return block_sum(sum, room);
}

/* The largest new zeta over the distinct samples; infinite if one is not finite. */
static __device__ __forceinline__ double
largest_zeta(const struct device_loss &l, const struct loss_workspace &w, int side) {
    __shared__ double room[WARPS];
    double most = -INFINITE;
    for (int64_t i = threadIdx.x; i < l.batch_count; i += THREADS) {
        if (w.rank[i] >= 0) {
            const double zeta = (double)w.columns[DEVICE_LOSS_ZETA][side][i];
            most = !isfinite(zeta) ? INFINITE : zeta > most ? zeta : most;
        }
    }
    return block_max(most, room);
}

/* The mean of a column after the step over the distinct samples; NaN without the column. */
static __device__ __forceinline__ double
batch_mean(const struct device_loss &l, const struct loss_workspace &w, const float *column) {
    __shared__ double room[WARPS];
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < l.batch_count && column != NULL; i += THREADS) {
        if (w.rank[i] >= 0) {
            sum += (double)column[i];
        }
    }
    sum = block_sum(sum, room);
    return column != NULL ? sum / (double)w.head->count : (double)NAN;
}

struct step_sums {
    double value, objective, extra, scale, bias;
    double zeta[DEVICE_LOSS_SIDES]; /* the largest */
    int32_t fault;
};

static __device__ __forceinline__ struct step_sums sum_step(const struct device_loss &l,
                                                            const struct loss_workspace &w) {
    __shared__ int32_t room[WARPS];
    const int64_t b = l.batch_count;
    const int64_t n = l.views ? 2 * b : b;
    struct step_sums s = {};
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        s.fault = w.fault[i] > s.fault ? w.fault[i] : s.fault;
    }
    s.fault = block_max_once(s.fault, room);
    s.scale = sum_of(w.row_scale, n);
    s.bias = sum_of(w.row_bias, n);
    s.value = sum_of(w.row_value, n);
    if (l.kind != DEVICE_LOSS_SIGLIP) {
        s.value += sum_of(w.value, 2 * b);
    }
    const bool estimates = l.kind == DEVICE_LOSS_SOGCLR || l.kind == DEVICE_LOSS_ISOGCLR ||
                           l.kind == DEVICE_LOSS_NUCLR || l.kind == DEVICE_LOSS_FASTCLIP ||
                           l.kind == DEVICE_LOSS_EMC2;
    s.objective = estimates ? sum_of(w.objective, 2 * b) : s.value;
    if (l.kind == DEVICE_LOSS_SOGCLR || l.kind == DEVICE_LOSS_ISOGCLR ||
        l.kind == DEVICE_LOSS_FASTCLIP) {
        s.extra = sum_of(w.extra, 2 * b);
    }
    for (int side = 0; side < DEVICE_LOSS_SIDES && l.kind == DEVICE_LOSS_NUCLR; side++) {
        s.zeta[side] = largest_zeta(l, w, side);
    }
    if (!(isfinite(s.value) && isfinite(s.objective) && isfinite(s.extra) && isfinite(s.scale) &&
          isfinite(s.bias) && isfinite(s.zeta[0]) && isfinite(s.zeta[1]))) {
        s.fault = DEVICE_LOSS_BAD_GRADIENT;
    }
    return s;
}

static __device__ __forceinline__ void
learn(const struct device_loss &l, double tau, const struct step_sums &s) {
    const struct device_loss_constants &o = l.constants;
    struct device_loss_scalars *scalars = l.scalars;
    if (l.kind == DEVICE_LOSS_NUCLR && !o.zeta_frozen) {
        for (int side = 0; side < DEVICE_LOSS_SIDES; side++) {
            if (zeta_rate(l, side) > 0.0) {
                scalars->xi[side] = fmax(scalars->xi[side], s.zeta[side]);
            }
        }
    }
    if (!o.global_tau) {
        return;
    }
    double lr = o.tau_lr > 0.0 ? o.tau_lr : l.values->lr;
    double gradient = s.scale;
    if (l.kind == DEVICE_LOSS_SOGCLR) {
        gradient = -tau * (2.0 * o.rho + s.extra);
    } else if (l.kind == DEVICE_LOSS_FASTCLIP) {
        lr = tau <= o.slow_tau ? lr / 3.0 : lr;
        gradient = o.times_tau ? -tau * (o.rho + s.extra) : s.value;
    }
    scalars->learned_steps += 1.0;
    adam(&scalars->scale, o, gradient, lr, scalars->learned_steps);
    scalars->scale.value = fmax(-log(o.tau_max), fmin(-log(o.tau_min), scalars->scale.value));
    if (l.kind == DEVICE_LOSS_SIGLIP) {
        adam(&scalars->bias, o, s.bias, lr, scalars->learned_steps);
    }
}

/* Writes back the entries that this rank keeps, and counts a visit of each sample. */
static __device__ __forceinline__ void put_state(const struct device_loss &l,
                                                 const struct loss_workspace &w) {
    const bool changed = w.head->count >= 2;
    for (int64_t i = threadIdx.x; i < l.batch_count; i += THREADS) {
        const uint64_t id = l.sample_ids[i];
        if (w.rank[i] < 0 || !is_own(l, id)) {
            continue;
        }
        const uint64_t at = entry_of(l, id);
        l.visits[at]++;
        for (int side = 0; side < DEVICE_LOSS_SIDES && changed; side++) {
            for (int k = 0; k < DEVICE_LOSS_COLUMN_COUNT; k++) {
                if (l.columns[k][side] != NULL) {
                    l.columns[k][side][at] = w.columns[k][side][i];
                }
            }
            if (l.chain_id[side] != NULL) {
                l.chain_id[side][at] = w.chain_id[side][i];
            }
        }
    }
}

/* Results for the host. */
static __device__ __forceinline__ void
put_values(const struct device_loss &l, const struct loss_head *head, const struct step_sums &s) {
    const bool sound = s.fault == DEVICE_LOSS_SOUND && !head->stopped;
    const bool individual =
        (l.kind == DEVICE_LOSS_ISOGCLR || l.constants.own_tau) && head->count >= 2;
    l.values->loss = sound ? s.value : (double)NAN;
    l.values->objective = sound ? s.objective : (double)NAN;
    l.values->tau = !sound ? (double)NAN : individual ? s.extra : head->tau;
    if (!head->stopped) {
        *l.fault = s.fault;
        l.values->sound = sound ? 1 : 0;
    }
}

static __global__ void finish(struct device_loss l, struct loss_workspace w) {
    struct step_sums s = {};
    s.fault = w.head->fault;
    if (has_contrasts(w.head)) {
        s = sum_step(l, w);
    }
    const bool sound = s.fault == DEVICE_LOSS_SOUND && !w.head->stopped;
    for (int side = 0; side < DEVICE_LOSS_SIDES; side++) {
        const double log_u = batch_mean(l, w, w.columns[DEVICE_LOSS_LOG_U][side]);
        const double zeta = batch_mean(l, w, w.columns[DEVICE_LOSS_ZETA][side]);
        if (threadIdx.x == 0) {
            l.values->batch_log_u[side] = sound ? log_u : (double)NAN;
            l.values->batch_zeta[side] = sound ? zeta : (double)NAN;
        }
    }
    if (sound) {
        put_state(l, w);
    }
    if (threadIdx.x == 0) {
        put_values(l, w.head, s);
        if (sound && w.head->count >= 2) {
            learn(l, w.head->tau, s);
        }
    }
}

/* ---- host side ---- */

/* The next `size` bytes of a workspace; base NULL: they are only counted. */
static void *carve(char *base, size_t *used, size_t size) {
    void *at = base != NULL ? base + *used : NULL;
    *used += (size + 15) / 16 * 16;
    return at;
}

template <typename T> static void carve_array(T **out, char *base, size_t *used, int64_t count) {
    *out = (T *)carve(base, used, (size_t)count * sizeof(T));
}

/* Room for the columns that the loss has, or for the others, so that the size does not depend on
 * them. Returns their number. */
static int carve_columns(struct loss_workspace *w,
                         const struct device_loss *l,
                         char *base,
                         size_t *used,
                         bool present) {
    int count = 0;
    for (int side = 0; side < DEVICE_LOSS_SIDES; side++) {
        if ((l->chain_id[side] != NULL) == present) {
            carve_array(&w->chain_id[side], base, used, l->batch_count);
        }
        for (int k = 0; k < DEVICE_LOSS_COLUMN_COUNT; k++) {
            if ((l->columns[k][side] != NULL) == present) {
                carve_array(&w->columns[k][side], base, used, l->batch_count);
                w->columns[k][side] = present ? w->columns[k][side] : NULL;
                count++;
            }
        }
    }
    return count;
}

/* The columns' entries of the batch. */
static void
carve_window(struct loss_workspace *w, const struct device_loss *l, char *base, size_t *used) {
    const size_t begin = *used;
    carve_array(&w->visits, base, used, l->batch_count);
    const int count = carve_columns(w, l, base, used, true);
    w->window = base != NULL ? (uint32_t *)(base + begin) : NULL;
    w->window_count = count > 0 ? (int64_t)((*used - begin) / sizeof *w->window) : 0;
    (void)carve_columns(w, l, base, used, false);
}

/* Lays out the workspace, equal for all losses except the records of emc2. */
static size_t lay_out(struct loss_workspace *w, const struct device_loss *l, char *base) {
    const int64_t b = l->batch_count;
    const int64_t n = l->views ? 2 * b : b;
    size_t used = 0;
    carve_array(&w->head, base, &used, 1);
    carve_array(&w->rank, base, &used, b);
    carve_array(&w->fault, base, &used, n);
    carve_window(w, l, base, &used);
    double **const by_anchor[] = {&w->positive, &w->tau,   &w->log_norm,  &w->aux,
                                  &w->diagonal, &w->value, &w->objective, &w->extra};
    for (size_t i = 0; i < sizeof by_anchor / sizeof by_anchor[0]; i++) {
        carve_array(by_anchor[i], base, &used, 2 * b);
    }
    carve_array(&w->row_value, base, &used, n);
    carve_array(&w->row_scale, base, &used, n);
    carve_array(&w->row_bias, base, &used, n);
    carve_array(&w->records, base, &used, l->kind == DEVICE_LOSS_EMC2 ? 2 * b * n : 0);
    return used;
}

size_t launch_loss_workspace_bytes(const struct device_loss *l) {
    struct loss_workspace w;
    return lay_out(&w, l, NULL);
}

static dim3 rows_of(const struct device_loss *l) {
    return dim3((unsigned)(l->views ? 2 * l->batch_count : l->batch_count));
}

cudaError_t launch_loss_examine(cudaStream_t stream,
                                const struct device_loss *l,
                                uint32_t **window,
                                int64_t *window_count) {
    struct loss_workspace w;
    (void)lay_out(&w, l, (char *)l->workspace);
    *window = w.window;
    *window_count = w.window_count;
    return launch(stream, rows_of(l), examine, *l, w);
}

cudaError_t launch_loss(cudaStream_t stream, const struct device_loss *l) {
    struct loss_workspace w;
    const dim3 rows = rows_of(l);
    (void)lay_out(&w, l, (char *)l->workspace);
    TRY_LAUNCH(launch(stream, dim3(1), begin, *l, w));
    if (l->kind == DEVICE_LOSS_EMC2) {
        TRY_LAUNCH(launch_loss_chains(stream, *l, w));
    } else if (l->kind != DEVICE_LOSS_SIGLIP) {
        TRY_LAUNCH(launch_loss_anchors(stream, *l, w));
    }
    TRY_LAUNCH(launch(stream, rows, gradient, *l, w));
    if (l->kind == DEVICE_LOSS_NUCLR && !l->constants.zeta_frozen) {
        TRY_LAUNCH(launch_loss_popularity(stream, *l, w));
    }
    return launch(stream, dim3(1), finish, *l, w);
}
