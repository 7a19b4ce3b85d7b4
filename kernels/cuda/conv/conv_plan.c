/*
 * conv_plan: finds, builds, keeps and executes the plans of a device. See conv_plan_internal.h.
 */
#include "kernels/cuda/conv/conv_plan_internal.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/log.h"
#include "kernels/cuda/device/cuda_internal.h"

enum {
    MAX_PLANS = 512,       /* shapes of one device; ResNet-50 has 69 per batch size */
    MAX_PROPOSALS = 64,    /* configurations requested */
    TIMED_PROPOSALS = 12,  /* of them timed by autotune */
    TIMED_ROUNDS = 3,      /* the median counts */
    TIMED_LAUNCHES = 10,   /* of a round, between two events */
    DELAY_CYCLES = 2000000 /* 1 ms: the host queues a round in a fifth of that */
};

struct plan {
    struct conv_problem problem;
    cudnnBackendDescriptor_t plan;
    int64_t workspace_bytes;
    bool none; /* searched: no engine supports it */
};

struct conv_plans {
    struct conv_gpu gpu;
    struct device_options options;
    char *folder; /* NULL: choices are not kept on disk */
    struct conv_choices *choices;
    int32_t count;
    struct plan plans[MAX_PLANS];
};

enum status conv_plans_create(struct conv_plans **out,
                              const struct conv_gpu *gpu,
                              const struct device_options *opt,
                              const char *cache_folder,
                              struct error *err) {
    *out = NULL;
    struct conv_plans *p = calloc(1, sizeof *p);
    TRY_MEMORY(p != NULL, err, "no memory for the convolutions' plans");
    p->gpu = *gpu;
    p->options = *opt;
    p->options.plan_cache = NULL;
    int32_t skipped;
    if (cache_folder != NULL && (p->folder = strdup(cache_folder)) == NULL) {
        conv_plans_destroy(p);
        return error_set(err, STATUS_NOMEM, "no memory for a path");
    }
    const enum status s = conv_choices_open(&p->choices, cache_folder, &skipped, err);
    RETURN_CREATED(s, out, p, conv_plans_destroy);
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
        dnn_destroy(&p->plans[i].plan);
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
    TRY(cuda_workspace(dev, WORKSPACE_DNN, (size_t)plan->workspace_bytes, &workspace, err));
    TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    enum status s = fill_pack(pack, data, workspace, err);
    if (s == STATUS_OK) {
        const cudnnStatus_t code = cudnnBackendExecute(dev->dnn, plan->plan, pack);
        cuda_counted(dev);
        s = code == CUDNN_STATUS_SUCCESS ? STATUS_OK
                                         : dnn_failed(code, "running a convolution", err);
    }
    dnn_destroy(&pack);
    return s;
}

/* ---- the search ---- */

struct proposals {
    cudnnBackendDescriptor_t configs[MAX_PROPOSALS];
    int64_t count;
};

static void drop_proposals(struct proposals *p) {
    for (int64_t i = 0; i < p->count; i++) {
        dnn_destroy(&p->configs[i]);
    }
    p->count = 0;
}

/* Heuristics A, then the fallback list. A mode that fails proposes nothing. */
static void propose(struct proposals *out, const struct conv_graph *g, const struct conv_gpu *gpu) {
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    out->count = 0;
    for (int i = 0; i < 2; i++) {
        struct error why = {0};
        int64_t found = 0;
        (void)conv_graph_propose(g, gpu, modes[i], out->configs + out->count,
                                 MAX_PROPOSALS - out->count, &found, &why);
        out->count += found;
    }
}

/* One plan at its first execution. */
struct trial {
    struct cuda_device *dev;
    const char *key;         /* of the problem, for the log */
    void *const *data;       /* the caller's tensors */
    void *const *timed_data; /* the same, with an output that timed runs may overwrite */
    cudaEvent_t begin, end;  /* with autotune; else NULL */
    struct error *no_memory; /* of the last plan whose workspace cannot be allocated */
};

/* The number of a configuration's engine; -1: cuDNN does not report it. */
static int64_t engine_of(cudnnBackendDescriptor_t config) {
    struct conv_choice choice;
    struct error why = {0};
    return conv_choice_of(config, &choice, &why) == STATUS_OK ? choice.engine : -1;
}

/* Builds the plan of a configuration and executes it once. *accepted is false if cuDNN refuses
 * either; the log has the reason of a refused execution. Returns OK, or NOMEM or DEVICE if the
 * device itself has failed. */
static enum status accept(const struct trial *t,
                          struct plan *out,
                          bool *accepted,
                          cudnnBackendDescriptor_t config,
                          void *const data[CONV_ROLES_COUNT],
                          struct error *err) {
    const struct conv_plans *plans = t->dev->convs;
    struct error why = {0};
    *accepted = false;
    if (!conv_config_allowed(config, &out->problem, &plans->options) ||
        conv_plan_of(config, &plans->gpu, &out->plan, &out->workspace_bytes, &why) != STATUS_OK) {
        return STATUS_OK;
    }
    const enum status s = execute(t->dev, out, data, &why);
    *accepted = s == STATUS_OK;
    if (*accepted) {
        return STATUS_OK;
    }
    dnn_destroy(&out->plan);
    if (s == STATUS_NOMEM) { /* for its workspace: another plan may need less */
        *t->no_memory = why;
    }
    log_write(plans->options.log, LOG_LEVEL_WARN,
              "cuDNN engine %lld failed in its first execution, trying the next one: %s: %s",
              (long long)engine_of(config), t->key, why.text);
    TRY_CUDA(cudaStreamSynchronize(t->dev->stream));
    return STATUS_OK;
}

/* One round: milliseconds per launch, negative if the plan fails. The launches are queued while a
 * delay kernel runs, so that the time between the events is the device's only. */
static float time_round(const struct trial *t, const struct plan *plan) {
    struct error why = {0};
    float ms = 0.0f;
    bool ok = launch_delay(t->dev->stream, DELAY_CYCLES) == cudaSuccess &&
              cudaEventRecord(t->begin, t->dev->stream) == cudaSuccess;
    for (int i = 0; ok && i < TIMED_LAUNCHES; i++) {
        ok = execute(t->dev, plan, t->timed_data, &why) == STATUS_OK;
    }
    ok = ok && cudaEventRecord(t->end, t->dev->stream) == cudaSuccess &&
         cudaEventSynchronize(t->end) == cudaSuccess &&
         cudaEventElapsedTime(&ms, t->begin, t->end) == cudaSuccess;
    if (!ok) {
        (void)cudaGetLastError();
        return -1.0f;
    }
    return ms / TIMED_LAUNCHES;
}

/* The median of the rounds; the first round if it is far slower than the best plan so far. */
static float time_plan(const struct trial *t, const struct plan *plan, float best_ms) {
    float ms[TIMED_ROUNDS];
    for (int i = 0; i < TIMED_ROUNDS; i++) {
        const float took = time_round(t, plan);
        if (took < 0.0f || (i == 0 && best_ms >= 0.0f && took > 1.5f * best_ms)) {
            return took;
        }
        int at = i;
        for (; at > 0 && ms[at - 1] > took; at--) {
            ms[at] = ms[at - 1];
        }
        ms[at] = took;
    }
    return ms[TIMED_ROUNDS / 2];
}

/* Chooses the first configuration that executes, or the fastest of the first few. *chosen is its
 * index, -1: none. An untimed plan has then computed the caller's result. */
static enum status choose(const struct trial *t,
                          struct plan *out,
                          int64_t *chosen,
                          const struct proposals *p,
                          struct error *err) {
    const bool timed = t->begin != NULL;
    float best_ms = -1.0f;
    int tried = 0;
    *chosen = -1;
    for (int64_t i = 0; i < p->count && tried < TIMED_PROPOSALS && (timed || *chosen < 0); i++) {
        struct plan candidate = {.problem = out->problem};
        bool accepted;
        TRY(accept(t, &candidate, &accepted, p->configs[i], timed ? t->timed_data : t->data, err));
        if (!accepted) {
            continue;
        }
        tried += timed;
        const float ms = timed ? time_plan(t, &candidate, best_ms) : 0.0f;
        if (ms >= 0.0f && (*chosen < 0 || ms < best_ms)) {
            dnn_destroy(&out->plan);
            *out = candidate;
            *chosen = i;
            best_ms = ms;
        } else {
            dnn_destroy(&candidate.plan);
        }
    }
    if (*chosen >= 0 && timed) {
        log_write(t->dev->convs->options.log, LOG_LEVEL_DEBUG,
                  "cuDNN engine %lld, the fastest of %d, %.3f ms: %s",
                  (long long)engine_of(p->configs[*chosen]), tried, (double)best_ms, t->key);
    } else if (*chosen >= 0) {
        log_write(t->dev->convs->options.log, LOG_LEVEL_DEBUG, "cuDNN engine %lld: %s",
                  (long long)engine_of(p->configs[*chosen]), t->key);
    }
    return STATUS_OK;
}

/* The choice of an earlier run, if cuDNN still accepts it and the options still allow it. */
static enum status recall(const struct trial *t,
                          struct plan *out,
                          bool *accepted,
                          const struct conv_graph *g,
                          struct error *err) {
    const struct conv_plans *plans = t->dev->convs;
    struct error why = {0};
    cudnnBackendDescriptor_t config;
    const struct conv_choice *known = conv_choices_find(plans->choices, t->key);
    *accepted = false;
    if (known == NULL || conv_config_of(g, &plans->gpu, known, &config, &why) != STATUS_OK) {
        return STATUS_OK;
    }
    const enum status s = accept(t, out, accepted, config, t->data, err);
    if (*accepted) {
        log_write(plans->options.log, LOG_LEVEL_DEBUG, "cuDNN engine %lld, remembered: %s",
                  (long long)known->engine, t->key);
    }
    dnn_destroy(&config);
    return s;
}

static enum status
search(struct trial *t, struct plan *out, const struct conv_graph *g, struct error *err) {
    struct conv_plans *plans = t->dev->convs;
    struct proposals p;
    int64_t chosen = -1;
    propose(&p, g, &plans->gpu);
    enum status s = choose(t, out, &chosen, &p, err);
    if (s == STATUS_OK && chosen < 0 && t->no_memory->text[0] != '\0') {
        s = error_pass(err, STATUS_NOMEM, t->no_memory);
    }
    out->none = s == STATUS_OK && chosen < 0;
    if (s == STATUS_OK && chosen >= 0) {
        struct conv_choice choice;
        struct error why = {0}; /* a choice that cannot be stored is searched for again */
        if (conv_choice_of(p.configs[chosen], &choice, &why) == STATUS_OK) {
            (void)conv_choices_put(plans->choices, t->key, &choice, &why);
        }
    }
    drop_proposals(&p);
    return s;
}

/* Searches with timing, then computes the result. Timed runs overwrite the output, which is then
 * computed; if the result is added, they write to separate memory. */
static enum status
search_timed(struct trial *t, struct plan *out, const struct conv_graph *g, struct error *err) {
    const struct conv_problem *q = &out->problem;
    void *timed_data[CONV_ROLES_COUNT] = {t->data[CONV_X], t->data[CONV_W], t->data[CONV_Y]};
    void *spare = NULL;
    if (q->add) {
        TRY(cuda_memory(t->dev, (size_t)(q->n * q->h * q->w * q->c) * dtype_size_bytes(q->dtype),
                        &spare, err));
        timed_data[CONV_X] = spare;
    }
    t->timed_data = timed_data;
    cudaError_t code = cudaEventCreate(&t->begin);
    if (code == cudaSuccess) {
        code = cudaEventCreate(&t->end);
    }
    enum status s =
        code == cudaSuccess ? search(t, out, g, err) : cuda_failed(code, "cudaEventCreate", err);
    if (t->begin != NULL) {
        (void)cudaEventDestroy(t->begin);
    }
    if (t->end != NULL) {
        (void)cudaEventDestroy(t->end);
    }
    (void)cudaFree(spare);
    return s == STATUS_OK && !out->none ? execute(t->dev, out, t->data, err) : s;
}

static struct plan *kept_plan(struct conv_plans *plans, const struct conv_problem *p) {
    for (int32_t i = 0; i < plans->count; i++) {
        if (conv_same_problem(&plans->plans[i].problem, p)) {
            return &plans->plans[i];
        }
    }
    return NULL;
}

/* Finds a plan for a problem that has none, by executing it. */
static enum status run_first(struct cuda_device *dev,
                             struct plan **out,
                             const struct conv_problem *p,
                             void *const data[CONV_ROLES_COUNT],
                             struct error *err) {
    struct conv_plans *plans = dev->convs;
    struct conv_graph g;
    char key[CONV_KEY_CHARS];
    if (dev->capture != NULL) { /* cuDNN loads code for a new plan, and timing waits; UNSUPPORTED
                             would mean that no engine supports it */
        return error_set(err, STATUS_LIMIT,
                         "a convolution of a new shape cannot be captured in a CUDA graph");
    }
    FAIL_IF(plans->count == MAX_PLANS, err, STATUS_LIMIT, "more than %d shapes of convolutions",
            MAX_PLANS);
    struct plan *plan = &plans->plans[plans->count];
    struct error no_memory = {0};
    struct trial t = {.dev = dev, .key = key, .data = data, .no_memory = &no_memory};
    bool recalled = false;
    memset(plan, 0, sizeof *plan);
    plan->problem = *p;
    conv_key(key, p, &plans->gpu, &plans->options);
    enum status s = conv_graph_create(&g, p, &plans->gpu, err);
    THEN(s, recall(&t, plan, &recalled, &g, err));
    if (s == STATUS_OK && !recalled) {
        s = plans->options.autotune ? search_timed(&t, plan, &g, err) : search(&t, plan, &g, err);
    }
    conv_graph_destroy(&g);
    if (s != STATUS_OK) {
        dnn_destroy(&plan->plan);
        return s;
    }
    if (plan->none) {
        log_write(plans->options.log, LOG_LEVEL_WARN,
                  "cuDNN has no engine, plain loops are used: %s", key);
    }
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
    for (int role = 0; role < CONV_ROLES_COUNT; role++) {
        TRY(cuda_aligned("conv_bn", data[role], err));
    }
    struct plan *plan = kept_plan(dev->convs, p);
    if (plan != NULL && !plan->none) {
        return execute(dev, plan, data, err);
    }
    if (plan == NULL) {
        TRY(run_first(dev, &plan, p, data, err));
    }
    return plan->none ? refuse(p, err) : STATUS_OK;
}
