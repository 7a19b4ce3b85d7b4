/*
 * nccl, emulated: the entry points of libnccl.so.2 that kernels/cuda/ranks uses, between processes
 * of one machine whose GPUs are emulated (tests/support/cuda_emulation).
 *
 * A communicator is a file in shared memory, which the id names. A collective is a task of the
 * stream: it waits for the other ranks when the emulation runs it, for ever if one is gone, as
 * NCCL's kernels do. Sums are added in the order of ranks. Calls answer "in progress" first, as
 * those of a communicator that does not block may.
 *
 * What NCCL forbids ends the process with a message: ranks whose next collectives differ in kind,
 * type or size, and a collective that is captured.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cuda/ranks/nccl_internal.h"
#include "tests/support/cuda_emulation/emulation.h"

enum {
    MAX_WORLD = 16,
    CHUNK_BYTES = 1 << 18,
    INTERNAL_ERROR = 3,
    INVALID_USAGE = 5,
    ANSWERS = 2 /* "in progress" before a call is done */
};

/* The next collective, as each rank has it. */
struct request {
    int32_t kind, type;
    uint64_t count;
};
enum { GATHER, REDUCE };

struct shared {
    _Atomic int32_t joined, waiting, turn;
    struct request requests[MAX_WORLD];
    unsigned char chunks[MAX_WORLD][CHUNK_BYTES];
};

struct nccl_comm {
    struct shared *shared;
    int rank, world;
    int answers; /* left */
    bool is_member;
    _Atomic bool aborted;
    char name[NCCL_ID_BYTES];
};

#define EXPORT __attribute__((visibility("default")))

static void nap(void) {
    const struct timespec pause = {.tv_nsec = 20000};
    (void)nanosleep(&pause, NULL);
}

/* False after an abort. */
static bool meet(struct nccl_comm *c) {
    struct shared *s = c->shared;
    const int32_t turn = s->turn;
    if (atomic_fetch_add(&s->waiting, 1) + 1 == c->world) {
        s->waiting = 0;
        s->turn = turn + 1;
        return true;
    }
    for (int tries = 0; s->turn == turn; tries++) {
        if (c->aborted) {
            return false;
        }
        if (tries > 100) {
            nap();
        }
    }
    return true;
}

static void stop(const struct nccl_comm *c, const char *why) {
    (void)fprintf(stderr, "nccl, emulated: rank %d of %d: %s\n", c->rank, c->world, why);
    abort();
}

/* ---- collectives ---- */

struct task {
    struct nccl_comm *comm;
    struct request request;
    const unsigned char *in;
    unsigned char *out;
};

static void add(unsigned char *out, const unsigned char *in, size_t size_bytes, int type) {
    for (size_t at = 0; at < size_bytes; at += 4) {
        float x[2];
        uint32_t words[2];
        memcpy(words, out + at, 4);
        memcpy(words + 1, in + at, 4);
        memcpy(x, words, sizeof x);
        if (type == NCCL_FLOAT32) {
            x[0] += x[1];
            memcpy(out + at, x, 4);
        } else {
            words[0] += words[1];
            memcpy(out + at, words, 4);
        }
    }
}

static bool meet_alike(const struct task *t) {
    struct nccl_comm *c = t->comm;
    c->shared->requests[c->rank] = t->request;
    if (!meet(c)) {
        return false;
    }
    for (int r = 0; r < c->world; r++) {
        if (memcmp(&c->shared->requests[r], &t->request, sizeof t->request) != 0) {
            stop(c, "the ranks' collectives are not the same");
        }
    }
    return meet(c);
}

static void run(void *cookie) {
    const struct task *t = cookie;
    struct nccl_comm *c = t->comm;
    const bool gathers = t->request.kind == GATHER;
    const size_t size_bytes = t->request.count * (gathers ? 1 : 4);
    if (!meet_alike(t)) {
        return;
    }
    for (size_t at = 0; at < size_bytes; at += CHUNK_BYTES) {
        const size_t rest = size_bytes - at;
        const size_t size = rest < CHUNK_BYTES ? rest : CHUNK_BYTES;
        memcpy(c->shared->chunks[c->rank], t->in + at, size);
        if (!meet(c)) {
            return;
        }
        for (int r = 0; r < c->world; r++) {
            const unsigned char *theirs = c->shared->chunks[r];
            if (gathers) {
                memcpy(t->out + (size_t)r * size_bytes + at, theirs, size);
            } else if (r == 0) {
                memcpy(t->out + at, theirs, size);
            } else {
                add(t->out + at, theirs, size, t->request.type);
            }
        }
        if (!meet(c)) {
            return;
        }
    }
}

static int submit(struct nccl_comm *c,
                  cudaStream_t stream,
                  struct request request,
                  const void *in,
                  void *out) {
    const struct emulation_stream_head *head = (const void *)stream;
    const struct task t = {.comm = c, .request = request, .in = in, .out = out};
    if (!c->is_member || (request.kind == GATHER) != (request.type == NCCL_UINT8)) {
        return INVALID_USAGE;
    }
    if (head->is_captured(stream)) {
        stop(c, "a collective is captured, by a rank that records alone");
    }
    head->submit(stream, run, &t, sizeof t, EMULATION_KERNEL_NS);
    c->answers = ANSWERS;
    return NCCL_IN_PROGRESS;
}

EXPORT int ncclAllGather(const void *own,
                         void *all,
                         size_t own_count,
                         int type,
                         struct nccl_comm *c,
                         cudaStream_t stream) {
    return submit(c, stream, (struct request){.kind = GATHER, .type = type, .count = own_count},
                  own, all);
}

EXPORT int ncclAllReduce(const void *in,
                         void *out,
                         size_t count,
                         int type,
                         int op,
                         struct nccl_comm *c,
                         cudaStream_t stream) {
    return op != NCCL_SUM
               ? INVALID_USAGE
               : submit(c, stream, (struct request){.kind = REDUCE, .type = type, .count = count},
                        in, out);
}

/* ---- communicators ---- */

/* CCSTREAM_EMULATED_NCCL in the environment, else 2.28.9. */
EXPORT int ncclGetVersion(int *version) {
    const char *other = getenv("CCSTREAM_EMULATED_NCCL");
    *version = other != NULL ? atoi(other) : 22809;
    return NCCL_SUCCESS;
}

EXPORT int ncclGetUniqueId(struct nccl_id *id) {
    static int count;
    memset(id, 0, sizeof *id);
    (void)snprintf(id->bytes, sizeof id->bytes, "/ccstream-nccl-%d-%d", (int)getpid(), ++count);
    (void)shm_unlink(id->bytes); /* of a process of this number that was killed */
    const int fd = shm_open(id->bytes, O_RDWR | O_CREAT | O_EXCL, 0600);
    const bool made = fd >= 0 && ftruncate(fd, sizeof(struct shared)) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return made ? NCCL_SUCCESS : INTERNAL_ERROR;
}

EXPORT int ncclCommInitRankConfig(struct nccl_comm **out,
                                  int world,
                                  struct nccl_id id,
                                  int rank,
                                  struct nccl_config *config) {
    *out = NULL;
    if (config->size != sizeof *config || config->magic != (unsigned)NCCL_MAGIC ||
        config->blocking != 0 || world > MAX_WORLD || rank < 0 || rank >= world) {
        return INVALID_USAGE;
    }
    const int fd = shm_open(id.bytes, O_RDWR, 0600);
    if (fd < 0) {
        return INTERNAL_ERROR;
    }
    void *data = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    struct nccl_comm *c = calloc(1, sizeof *c);
    if (data == MAP_FAILED || c == NULL) {
        free(c);
        return INTERNAL_ERROR;
    }
    c->shared = data;
    c->rank = rank;
    c->world = world;
    memcpy(c->name, id.bytes, sizeof id.bytes);
    (void)atomic_fetch_add(&c->shared->joined, 1);
    *out = c;
    return NCCL_IN_PROGRESS;
}

EXPORT int ncclCommGetAsyncError(struct nccl_comm *c, int *result) {
    *result = NCCL_IN_PROGRESS;
    if (!c->is_member) {
        c->is_member = c->shared->joined == c->world;
        if (!c->is_member) {
            return NCCL_SUCCESS;
        }
        (void)shm_unlink(c->name);
    }
    if (c->answers == 0) {
        *result = NCCL_SUCCESS;
    } else {
        c->answers--;
    }
    return NCCL_SUCCESS;
}

EXPORT int ncclCommFinalize(struct nccl_comm *c) {
    c->answers = ANSWERS;
    return NCCL_IN_PROGRESS;
}

EXPORT int ncclCommDestroy(struct nccl_comm *c) {
    (void)munmap(c->shared, sizeof *c->shared);
    free(c);
    return NCCL_SUCCESS;
}

/* The memory stays: a task may still be using it. */
EXPORT int ncclCommAbort(struct nccl_comm *c) {
    c->aborted = true;
    (void)shm_unlink(c->name);
    return NCCL_SUCCESS;
}

EXPORT const char *ncclGetErrorString(int result) {
    return result == NCCL_SUCCESS       ? "no error"
           : result == INVALID_USAGE    ? "invalid usage"
           : result == NCCL_IN_PROGRESS ? "in progress"
                                        : "internal error";
}

EXPORT const char *ncclGetLastError(struct nccl_comm *c) {
    (void)c;
    return "emulated";
}
