/*
 * nccl: the part of NCCL's interface that is used here. The library is opened at run time: neither
 * a build nor a run on one GPU requires NCCL.
 *
 * The declarations are those of nccl.h 2.18 to 2.28 (github.com/NVIDIA/nccl, src/nccl.h.in), under
 * our own names. NCCL keeps them within major version 2: enumerators are only added, and
 * ncclConfig_t contains its size and version, so a library accepts an older, shorter one. A test
 * compares them with nccl.h if it is installed.
 *
 * Threading : nccl_open by any thread.
 */
#ifndef KERNELS_CUDA_RANKS_NCCL_INTERNAL_H
#define KERNELS_CUDA_RANKS_NCCL_INTERNAL_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "formats/base/status.h"

#define NCCL_LIBRARY "libnccl.so.2"

enum {
    NCCL_MINIMUM = 21800, /* 2.18.0, as ncclGetVersion counts: 10000 major + 100 minor + patch */
    NCCL_CONFIG_VERSION = 21400,
    NCCL_ID_BYTES = 128,
    NCCL_MAGIC = (int)0xcafebeef
};

enum nccl_result { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 }; /* the others are failures */
enum nccl_type { NCCL_UINT8 = 1, NCCL_UINT32 = 3, NCCL_FLOAT32 = 7 };
enum nccl_op { NCCL_SUM = 0 };

struct nccl_comm; /* ncclComm_t points to it */

struct nccl_id {
    char bytes[NCCL_ID_BYTES];
};

/* ncclConfig_t as it was in NCCL_CONFIG_VERSION: later fields are left to the library. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking; /* 0: calls return NCCL_IN_PROGRESS instead of waiting */
};

/* Every function, as X(member, name, result, parameters). */
#define NCCL_LIST(X)                                                                               \
    X(get_version, ncclGetVersion, int, (int *version))                                            \
    X(get_unique_id, ncclGetUniqueId, int, (struct nccl_id *))                                     \
    X(init_rank, ncclCommInitRankConfig, int,                                                      \
      (struct nccl_comm * *out, int world, struct nccl_id, int rank, struct nccl_config *))        \
    X(async_error, ncclCommGetAsyncError, int, (struct nccl_comm *, int *result))                  \
    X(all_gather, ncclAllGather, int,                                                              \
      (const void *own, void *all, size_t own_count, int type, struct nccl_comm *, cudaStream_t))  \
    X(all_reduce, ncclAllReduce, int,                                                              \
      (const void *in, void *out, size_t count, int type, int op, struct nccl_comm *,              \
       cudaStream_t))                                                                              \
    X(finalize, ncclCommFinalize, int, (struct nccl_comm *))                                       \
    X(destroy, ncclCommDestroy, int, (struct nccl_comm *))                                         \
    X(abort, ncclCommAbort, int, (struct nccl_comm *))                                             \
    X(error_string, ncclGetErrorString, const char *, (int result))                                \
    X(last_error, ncclGetLastError, const char *, (struct nccl_comm *))

struct nccl {
#define NCCL_MEMBER(member, name, result, parameters) result(*member) parameters;
    NCCL_LIST(NCCL_MEMBER)
#undef NCCL_MEMBER
    int version;
};

/* Opens the library once per process. Returns OK, or UNSUPPORTED with what is missing and a
 * remedy. */
enum status nccl_open(const struct nccl **out, struct error *err);

#endif
