/*
 * ranks: collectives between GPUs by NCCL.
 *
 *   compute  | forward | gather | loss | backward: text | image              | finish | optimiser
 *   sums     |                                    | text's sum | image's sum |
 *
 * There is one non-blocking communicator: calls return while connections are still being made, and
 * are polled here until a deadline. Gathers and merges run in order on the compute stream. Sums run
 * on a separate stream, which waits for the compute stream at each begin_sum; the compute stream
 * waits for it at finish. A gather during sums waits for them, so the order of collectives is the
 * same on all ranks.
 *
 * None is captured: NCCL requires all ranks to replay the graph of the same capture, but each rank
 * captures by the shapes of its own captions. stream.c captures the parts of a step between
 * collectives instead.
 */
#include "kernels/cuda/ranks/ranks_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/base/clock.h"
#include "kernels/cuda/device/cuda_internal.h"
#include "kernels/cuda/ranks/nccl_internal.h"

_Static_assert((int)DEVICE_RANKS_ID_BYTES == (int)NCCL_ID_BYTES, "an id is NCCL's");

enum { POLL_NS = 50000, ABORT_SECONDS = 5 };

struct cuda_ranks {
    const struct nccl *nccl;
    struct nccl_comm *comm;
    int32_t rank, world;
    int64_t timeout_ms;
    cudaStream_t sums;
    cudaEvent_t computed, summed;
    bool sums_begun;      /* since the last finish */
    _Atomic bool aborted; /* by another thread: comm must not be used */
};

static enum status
nccl_failed(const struct cuda_ranks *r, int code, const char *call, struct error *err) {
    const char *why = r->comm != NULL ? r->nccl->last_error(r->comm) : "";
    char line[200];
    size_t n = 0;
    for (; why != NULL && why[n] != '\0' && n + 1 < sizeof line; n++) { /* messages are one line */
        line[n] = why[n] == '\n' ? ' ' : why[n];
    }
    line[n] = '\0';
    (void)cudaGetLastError();
    return error_set(err, STATUS_DEVICE, "NCCL: %s (%s, rank %d of %d)%s%s",
                     r->nccl->error_string(code), call, (int)r->rank, (int)r->world,
                     n > 0 ? ": " : "", line);
}

/* Waits until a call that returned `code` has been completed on the host; its work on the GPU may
 * continue. */
static enum status settle(struct cuda_ranks *r, int code, const char *call, struct error *err) {
    const int64_t start_ns = clock_now_ns();
    while (code == NCCL_IN_PROGRESS) {
        const struct timespec pause = {.tv_nsec = POLL_NS};
        FAIL_IF(r->aborted, err, STATUS_DEVICE, "NCCL: %s was aborted", call);
        const int asked = r->nccl->async_error(r->comm, &code);
        if (asked != NCCL_SUCCESS) {
            return nccl_failed(r, asked, call, err);
        }
        if (code == NCCL_IN_PROGRESS && clock_now_ns() - start_ns > r->timeout_ms * 1000000) {
            return error_set(err, STATUS_DEVICE,
                             "NCCL: %s is not done after %.3g s on rank %d of %d; NCCL_DEBUG=INFO "
                             "shows what it waits for",
                             call, (double)r->timeout_ms * 1e-3, (int)r->rank, (int)r->world);
        }
        if (code == NCCL_IN_PROGRESS) {
            (void)nanosleep(&pause, NULL);
        }
    }
    return code == NCCL_SUCCESS ? STATUS_OK : nccl_failed(r, code, call, err);
}

/* ---- opening ---- */

static enum status check(struct device *device, struct error *err) {
    const struct nccl *nccl;
    (void)device;
    return nccl_open(&nccl, err);
}

static enum status
unique_id(struct device *device, unsigned char id[DEVICE_RANKS_ID_BYTES], struct error *err) {
    struct cuda_ranks r = {0};
    struct nccl_id made;
    TRY(nccl_open(&r.nccl, err));
    TRY_CUDA(cudaSetDevice(cuda_of(device)->index));
    const int code = r.nccl->get_unique_id(&made);
    if (code != NCCL_SUCCESS) {
        return nccl_failed(&r, code, "ncclGetUniqueId", err);
    }
    memcpy(id, made.bytes, sizeof made.bytes);
    return STATUS_OK;
}

static enum status join_group(struct cuda_device *dev, const unsigned char *id, struct error *err) {
    struct cuda_ranks *r = dev->ranks;
    struct nccl_id name;
    struct nccl_config config = {.size = sizeof config,
                                 .magic = (unsigned)NCCL_MAGIC,
                                 .version = NCCL_CONFIG_VERSION,
                                 .blocking = 0};
    memcpy(name.bytes, id, sizeof name.bytes);
    TRY_CUDA(cudaSetDevice(dev->index));
    TRY_CUDA(cudaStreamCreateWithFlags(&r->sums, cudaStreamNonBlocking));
    TRY_CUDA(cudaEventCreateWithFlags(&r->computed, cudaEventDisableTiming));
    TRY_CUDA(cudaEventCreateWithFlags(&r->summed, cudaEventDisableTiming));
    const int code = r->nccl->init_rank(&r->comm, r->world, name, r->rank, &config);
    return settle(r, code, "ncclCommInitRankConfig", err);
}

static void leave(struct cuda_ranks *r, bool all_is_done) {
    struct error ignored = {0};
    if (r->comm != NULL && !r->aborted) {
        if (all_is_done && settle(r, r->nccl->finalize(r->comm), "", &ignored) == STATUS_OK) {
            (void)r->nccl->destroy(r->comm);
        } else {
            (void)r->nccl->abort(r->comm);
        }
    }
    if (r->computed != NULL) {
        (void)cudaEventDestroy(r->computed);
    }
    if (r->summed != NULL) {
        (void)cudaEventDestroy(r->summed);
    }
    if (r->sums != NULL) {
        (void)cudaStreamDestroy(r->sums);
    }
    free(r);
}

static enum status join(struct device *device,
                        const unsigned char id[DEVICE_RANKS_ID_BYTES],
                        int32_t rank,
                        int32_t world,
                        int64_t timeout_ms,
                        struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    REQUIRE(dev->ranks == NULL && rank >= 0 && rank < world && timeout_ms > 0);
    const struct nccl *nccl;
    TRY(nccl_open(&nccl, err));
    struct cuda_ranks *r = calloc(1, sizeof *r);
    TRY_MEMORY(r != NULL, err, "cuda: out of memory for a group of ranks");
    r->nccl = nccl;
    r->rank = rank;
    r->world = world;
    r->timeout_ms = timeout_ms;
    dev->ranks = r;
    const enum status s = join_group(dev, id, err);
    if (s != STATUS_OK) {
        dev->ranks = NULL;
        leave(r, false);
    }
    return s;
}

void cuda_ranks_close(struct cuda_device *dev) {
    if (dev->ranks != NULL) {
        const bool done = cudaStreamSynchronize(dev->ranks->sums) == cudaSuccess;
        leave(dev->ranks, done);
        dev->ranks = NULL;
    }
}

/* ---- collectives ---- */

/* The compute stream follows all sums. */
static enum status follow_sums(struct cuda_device *dev, struct error *err) {
    struct cuda_ranks *r = dev->ranks;
    if (r->sums_begun) {
        r->sums_begun = false;
        TRY_CUDA(cudaEventRecord(r->summed, r->sums));
        TRY_CUDA(cudaStreamWaitEvent(dev->stream, r->summed, 0));
    }
    return STATUS_OK;
}

static enum status
reduce(struct cuda_device *dev, const struct collective *c, cudaStream_t on, struct error *err) {
    struct cuda_ranks *r = dev->ranks;
    const int type = c->kind == COLLECTIVE_MERGE ? NCCL_UINT32 : NCCL_FLOAT32;
    return settle(r, r->nccl->all_reduce(c->in, c->out, c->count, type, NCCL_SUM, r->comm, on),
                  "ncclAllReduce", err);
}

enum status
cuda_collective(struct cuda_device *dev, const struct collective *c, struct error *err) {
    struct cuda_ranks *r = dev->ranks;
    FAIL_IF(r->aborted, err, STATUS_DEVICE, "NCCL: the group of ranks was aborted");
    if (c->kind == COLLECTIVE_SUM) {
        TRY_CUDA(cudaEventRecord(r->computed, dev->stream));
        TRY_CUDA(cudaStreamWaitEvent(r->sums, r->computed, 0));
        r->sums_begun = true;
        return reduce(dev, c, r->sums, err);
    }
    TRY(follow_sums(dev, err));
    if (c->kind == COLLECTIVE_FINISH) {
        return STATUS_OK;
    }
    dev->launches_count++;
    if (c->kind == COLLECTIVE_MERGE) {
        return reduce(dev, c, dev->stream, err);
    }
    return settle(r, r->nccl->all_gather(c->in, c->out, c->count, NCCL_UINT8, r->comm, dev->stream),
                  "ncclAllGather", err);
}

/* Makes the call now, or adds it to the step that is captured. */
static enum status call(struct device *device, struct collective c, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    REQUIRE(dev->ranks != NULL);
    return dev->capture != NULL ? cuda_capture_collective(dev, &c, err)
                                : cuda_collective(dev, &c, err);
}

static enum status
gather(struct device *device, void *all, const void *own, size_t own_bytes, struct error *err) {
    return own_bytes == 0
               ? STATUS_OK
               : call(device,
                      (struct collective){
                          .kind = COLLECTIVE_GATHER, .out = all, .in = own, .count = own_bytes},
                      err);
}

static enum status sum(struct device *device,
                       enum collective_kind kind,
                       void *data,
                       int64_t count,
                       struct error *err) {
    REQUIRE(count >= 0);
    return count == 0 ? STATUS_OK
                      : call(device,
                             (struct collective){
                                 .kind = kind, .out = data, .in = data, .count = (size_t)count},
                             err);
}

static enum status merge(struct device *device, uint32_t *words, int64_t count, struct error *err) {
    return sum(device, COLLECTIVE_MERGE, words, count, err);
}

static enum status begin_sum(struct device *device, float *data, int64_t count, struct error *err) {
    return sum(device, COLLECTIVE_SUM, data, count, err);
}

static enum status finish(struct device *device, struct error *err) {
    return call(device, (struct collective){.kind = COLLECTIVE_FINISH}, err);
}

/* ---- abort ---- */

static void *abort_group(void *cookie) {
    struct cuda_ranks *r = cookie;
    (void)r->nccl->abort(r->comm);
    return NULL;
}

/* NCCL's abort has been reported to hang: a thread runs it, and is joined for ABORT_SECONDS
 * only. */
static void abort_ranks(struct device *device) {
    struct cuda_ranks *r = cuda_of(device)->ranks;
    pthread_t thread;
    struct timespec until;
    if (r == NULL || r->comm == NULL || atomic_exchange(&r->aborted, true) ||
        pthread_create(&thread, NULL, abort_group, r) != 0) {
        return;
    }
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABORT_SECONDS;
    (void)pthread_timedjoin_np(thread, NULL, &until);
}

const struct device_ranks cuda_device_ranks = {.check = check,
                                               .unique_id = unique_id,
                                               .join = join,
                                               .gather = gather,
                                               .merge = merge,
                                               .begin_sum = begin_sum,
                                               .finish = finish,
                                               .abort = abort_ranks};
