/*
 * conv_plan: the plans of a device: found, built, kept and run. See conv_plan_internal.h.
 */
#include "kernels/cuda/conv/conv_plan_internal.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device/cuda_internal.h"

enum {
    MAX_PLANS = 512,      /* shapes of one device; ResNet-50 has 69 per batch size */
    MAX_PROPOSALS = 64,   /* configurations looked at */
    TIMED_PROPOSALS = 12, /* of them run, when told to time */
    TIMED_RUNS = 5
};

struct plan {
    struct conv_problem problem;
    cudnnBackendDescriptor_t plan;
    int64_t workspace_bytes;
    bool none; /* searched, and no engine takes it */
};

struct conv_plans {
    struct conv_chip chip;
    struct device_options options;
    char *folder; /* NULL: nothing is remembered */
    struct conv_choices *choices;
    int32_t count;
    struct plan plans[MAX_PLANS];
};

static void destroy(cudnnBackendDescriptor_t *d) {
    if (*d != NULL) {
        (void)cudnnBackendDestroyDescriptor(*d);
        *d = NULL;
    }
}

enum status conv_plans_create(struct conv_plans **out,
                              const struct conv_chip *chip,
                              const struct device_options *opt,
                              const char *cache_folder,
                              struct error *err) {
    *out = NULL;
    struct conv_plans *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for the convolutions' plans");
    }
    p->chip = *chip;
    p->options = *opt;
    p->options.plan_cache = NULL;
    int32_t passed_over;
    if (cache_folder != NULL && (p->folder = strdup(cache_folder)) == NULL) {
        conv_plans_destroy(p);
        return error_set(err, STATUS_NOMEM, "no memory for a path");
    }
    const enum status s = conv_choices_open(&p->choices, cache_folder, &passed_over, err);
    if (s != STATUS_OK) {
        conv_plans_destroy(p);
        return s;
    }
    *out = p;
    return STATUS_OK;
}

void conv_plans_destroy(struct conv_plans *p) {
    if (p == NULL) {
        return;
    }
    if (p->choices != NULL && p->folder != NULL) {
        (void)conv_choices_save(p->choices, p->folder, NULL);
    }
    conv_choices_close(p->choices);
    for (int32_t i = 0; i < p->count; i++) {
        destroy(&p->plans[i].plan);
    }
    free(p->folder);
    free(p);
}

/* ---- one plan ---- */

/* Pointers and workspace of one run. A finalised pack cannot be changed, so each run makes one. */
static enum status fill_pack(cudnnBackendDescriptor_t pack,
                             void *const data[CONV_ROLES_COUNT],
                             void *workspace,
                             struct error *err) {
    static const int64_t uids[CONV_ROLES_COUNT] = {CONV_UID(CONV_X), CONV_UID(CONV_W),
                                                   CONV_UID(CONV_Y)};
    TRY_DNN(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                     CONV_ROLES_COUNT, uids));
    TRY_DNN(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                     CUDNN_TYPE_VOID_PTR, CONV_ROLES_COUNT, (const void *)data));
    TRY_DNN(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
                                     1, (const void *)&workspace));
    TRY_DNN(cudnnBackendFinalize(pack));
    return STATUS_OK;
}

static enum status execute(struct cuda_device *dev,
                           const struct plan *plan,
                           void *const data[CONV_ROLES_COUNT],
                           struct error *err) {
    cudnnBackendDescriptor_t pack = NULL;
    void *workspace;
    TRY(cuda_scratch(dev, SCRATCH_DNN, (size_t)plan->workspace_bytes, &workspace, err));
    TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    enum status s = fill_pack(pack, data, workspace, err);
    if (s == STATUS_OK) {
        const cudnnStatus_t code = cudnnBackendExecute(dev->dnn, plan->plan, pack);
        cuda_counted(dev);
        s = code == CUDNN_STATUS_SUCCESS ? STATUS_OK
                                         : dnn_failed(code, "running a convolution", err);
    }
    destroy(&pack);
    return s;
}

/* ---- the search ---- */

struct proposals {
    cudnnBackendDescriptor_t configs[MAX_PROPOSALS];
    int64_t count;
};

static void drop_proposals(struct proposals *p) {
    for (int64_t i = 0; i < p->count; i++) {
        destroy(&p->configs[i]);
    }
    p->count = 0;
}

/* False where this configuration cannot be used here; the next one is tried. */
static bool
try_config(struct plan *out, cudnnBackendDescriptor_t config, const struct conv_chip *chip) {
    struct error why = {0};
    return conv_plan_of(config, chip, &out->plan, &out->workspace_bytes, &why) == STATUS_OK;
}

/* Heuristics A, then what always works. A mode that fails offers nothing. */
static void
propose(struct proposals *out, const struct conv_graph *g, const struct conv_chip *chip) {
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    out->count = 0;
    for (int i = 0; i < 2; i++) {
        struct error why = {0};
        int64_t found = 0;
        (void)conv_graph_propose(g, chip, modes[i], out->configs + out->count,
                                 MAX_PROPOSALS - out->count, &found, &why);
        out->count += found;
    }
}

/* Milliseconds of the fastest of a few runs, or a negative number where it does not run. */
static float time_plan(struct cuda_device *dev,
                       const struct plan *plan,
                       void *const data[CONV_ROLES_COUNT],
                       cudaEvent_t begin,
                       cudaEvent_t end) {
    struct error why = {0};
    float best = -1.0f;
    if (execute(dev, plan, data, &why) != STATUS_OK) { /* warm, and loaded */
        return -1.0f;
    }
    for (int i = 0; i < TIMED_RUNS; i++) {
        float ms = 0.0f;
        if (cudaEventRecord(begin, dev->stream) != cudaSuccess ||
            execute(dev, plan, data, &why) != STATUS_OK ||
            cudaEventRecord(end, dev->stream) != cudaSuccess ||
            cudaEventSynchronize(end) != cudaSuccess ||
            cudaEventElapsedTime(&ms, begin, end) != cudaSuccess) {
            (void)cudaGetLastError();
            return -1.0f;
        }
        best = best < 0.0f || ms < best ? ms : best;
    }
    return best;
}

/* The first configuration that builds, or of the first few the fastest. `chosen` is its index, -1:
 * none. Timed runs overwrite the output with the result that the caller is about to compute; where
 * that is added, `data` names another output. */
static enum status choose(struct cuda_device *dev,
                          struct plan *out,
                          int64_t *chosen,
                          const struct proposals *p,
                          void *const data[CONV_ROLES_COUNT],
                          struct error *err) {
    const struct conv_plans *plans = dev->convs;
    const bool timed = plans->options.autotune;
    cudaEvent_t begin = NULL;
    cudaEvent_t end = NULL;
    float best_ms = -1.0f;
    int tried = 0;
    *chosen = -1;
    if (timed) {
        TRY_CUDA(cudaEventCreate(&begin));
        if (cudaEventCreate(&end) != cudaSuccess) {
            (void)cudaEventDestroy(begin);
            return cuda_failed(cudaGetLastError(), "cudaEventCreate", err);
        }
    }
    for (int64_t i = 0; i < p->count && tried < TIMED_PROPOSALS && (timed || *chosen < 0); i++) {
        struct plan candidate = {.problem = out->problem};
        if (!conv_config_allowed(p->configs[i], &out->problem, &plans->options) ||
            !try_config(&candidate, p->configs[i], &plans->chip)) {
            continue;
        }
        tried++;
        const float ms = timed ? time_plan(dev, &candidate, data, begin, end) : 0.0f;
        if (ms >= 0.0f && (*chosen < 0 || ms < best_ms)) {
            destroy(&out->plan);
            *out = candidate;
            *chosen = i;
            best_ms = ms;
        } else {
            destroy(&candidate.plan);
        }
    }
    if (timed) {
        (void)cudaEventDestroy(begin);
        (void)cudaEventDestroy(end);
    }
    return STATUS_OK;
}

/* What an earlier run found, if cuDNN still takes it and the options still allow it. */
static bool
recall(struct conv_plans *plans, struct plan *out, const struct conv_graph *g, const char *key) {
    struct error why = {0};
    cudnnBackendDescriptor_t config;
    const struct conv_choice *known = conv_choices_find(plans->choices, key);
    if (known == NULL || conv_config_of(g, &plans->chip, known, &config, &why) != STATUS_OK) {
        return false;
    }
    const bool ok = conv_config_allowed(config, &out->problem, &plans->options) &&
                    try_config(out, config, &plans->chip);
    destroy(&config);
    return ok;
}

static enum status search(struct cuda_device *dev,
                          struct plan *out,
                          const struct conv_graph *g,
                          const char *key,
                          void *const data[CONV_ROLES_COUNT],
                          struct error *err) {
    struct conv_plans *plans = dev->convs;
    struct proposals p;
    int64_t chosen;
    void *spare = NULL;
    if (plans->options.autotune && out->problem.add) {
        const struct conv_problem *q = &out->problem;
        TRY(cuda_memory(dev, (size_t)(q->n * q->h * q->w * q->c) * dtype_size_bytes(q->dtype),
                        &spare, err));
    }
    void *const timed[CONV_ROLES_COUNT] = {[CONV_X] = spare != NULL ? spare : data[CONV_X],
                                           [CONV_W] = data[CONV_W],
                                           [CONV_Y] = data[CONV_Y]};
    propose(&p, g, &plans->chip);
    enum status s = choose(dev, out, &chosen, &p, timed, err);
    (void)cudaFree(spare);
    out->none = s == STATUS_OK && chosen < 0;
    if (s == STATUS_OK && chosen >= 0) {
        struct conv_choice choice;
        struct error why = {0}; /* one that cannot be remembered is searched for again */
        if (conv_choice_of(p.configs[chosen], &choice, &why) == STATUS_OK) {
            (void)conv_choices_put(plans->choices, key, &choice, &why);
        }
    }
    drop_proposals(&p);
    return s;
}

static enum status find_plan(struct cuda_device *dev,
                             struct plan **out,
                             const struct conv_problem *p,
                             void *const data[CONV_ROLES_COUNT],
                             struct error *err) {
    struct conv_plans *plans = dev->convs;
    struct conv_graph g;
    char key[CONV_KEY_CHARS];
    for (int32_t i = 0; i < plans->count; i++) {
        if (conv_same_problem(&plans->plans[i].problem, p)) {
            *out = &plans->plans[i];
            return STATUS_OK;
        }
    }
    if (dev->recording) { /* cuDNN loads code for a new plan, and timing waits; UNSUPPORTED would
                             say that no engine takes it */
        return error_set(err, STATUS_LIMIT,
                         "a convolution that was not met before is not recorded");
    }
    if (plans->count == MAX_PLANS) {
        return error_set(err, STATUS_LIMIT, "more than %d shapes of convolutions", MAX_PLANS);
    }
    struct plan *plan = &plans->plans[plans->count];
    memset(plan, 0, sizeof *plan);
    plan->problem = *p;
    conv_key(key, p, &plans->chip, &plans->options);
    enum status s = conv_graph_create(&g, p, &plans->chip, err);
    if (s == STATUS_OK && !recall(plans, plan, &g, key)) {
        s = search(dev, plan, &g, key, data, err);
    }
    conv_graph_destroy(&g);
    TRY(s);
    plans->count++;
    *out = plan;
    return STATUS_OK;
}

static enum status refuse(const struct conv_problem *p, struct error *err) {
    return error_set(
        err, STATUS_UNSUPPORTED,
        "cuDNN has no engine for the %s of a convolution of (%lld,%lld,%lld,%lld) with "
        "%lld kernels of %lld x %lld, stride %d, pad %d",
        p->pass == CONV_FORWARD ? "forward pass"
        : p->pass == CONV_DATA  ? "data gradient"
                                : "weight gradient",
        (long long)p->n, (long long)p->h, (long long)p->w, (long long)p->c, (long long)p->k,
        (long long)p->r, (long long)p->s, p->stride, p->pad);
}

enum status conv_run(struct cuda_device *dev,
                     const struct conv_problem *p,
                     void *x,
                     void *w,
                     void *y,
                     struct error *err) {
    void *const data[CONV_ROLES_COUNT] = {[CONV_X] = x, [CONV_W] = w, [CONV_Y] = y};
    struct plan *plan = NULL;
    for (int role = 0; role < CONV_ROLES_COUNT; role++) {
        TRY(cuda_aligned("conv_bn", data[role], err));
    }
    TRY(find_plan(dev, &plan, p, data, err));
    return plan->none ? refuse(p, err) : execute(dev, plan, data, err);
}
