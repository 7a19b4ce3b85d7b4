/*
 * mpi_link: a comm's messages by MPI; the only file that includes mpi.h, and the only symbol
 * exported by libccstream_mpi.so.
 *
 * Only non-blocking calls, completed by MPI_Test: a rank that waits for a lost one stays in the
 * worker's own loop, so that the watching thread can end the process at any time. Any thread may
 * call MPI, one at a time (MPI_THREAD_SERIALIZED): the owner initialises and finalises it, the
 * worker does everything between. Only MPI_Abort may be called by the watching thread.
 */
#include <mpi.h>
#include <stdlib.h>

#include "train/comm/comm_internal.h"

enum { PIECE_BYTES = 16 << 20, TAG = 1 };

struct mpi_link {
    struct comm_link link;
    MPI_Request requests[2];
};

static enum status check(int code, const char *call, struct error *err) {
    if (code == MPI_SUCCESS) {
        return STATUS_OK;
    }
    char text[MPI_MAX_ERROR_STRING] = "no message";
    int length;
    (void)MPI_Error_string(code, text, &length);
    return error_set(err, STATUS_IO, "MPI reports an error of %s: %.300s", call, text);
}

static enum status begin_exchange(struct comm_link *base,
                                  int32_t peer,
                                  void *received,
                                  size_t received_bytes,
                                  const void *sent,
                                  size_t sent_bytes,
                                  struct error *err) {
    struct mpi_link *l = (struct mpi_link *)base;
    if (received_bytes > 0) {
        TRY(check(MPI_Irecv(received, (int)received_bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                            &l->requests[0]),
                  "MPI_Irecv", err));
    }
    if (sent_bytes > 0) {
        TRY(check(
            MPI_Isend(sent, (int)sent_bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &l->requests[1]),
            "MPI_Isend", err));
    }
    return STATUS_OK;
}

static enum status
begin_gather(struct comm_link *base, void *all, size_t own_bytes, struct error *err) {
    struct mpi_link *l = (struct mpi_link *)base;
    return check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_BYTE, all, (int)own_bytes, MPI_BYTE,
                                MPI_COMM_WORLD, &l->requests[0]),
                 "MPI_Iallgather", err);
}

static enum status begin_broadcast(struct comm_link *base,
                                   void *data,
                                   size_t size_bytes,
                                   int32_t root,
                                   struct error *err) {
    struct mpi_link *l = (struct mpi_link *)base;
    return check(MPI_Ibcast(data, (int)size_bytes, MPI_BYTE, root, MPI_COMM_WORLD, &l->requests[0]),
                 "MPI_Ibcast", err);
}

static enum status
begin_merge(struct comm_link *base, uint32_t *words, size_t count, struct error *err) {
    struct mpi_link *l = (struct mpi_link *)base;
    return check(MPI_Iallreduce(MPI_IN_PLACE, words, (int)count, MPI_UINT32_T, MPI_SUM,
                                MPI_COMM_WORLD, &l->requests[0]),
                 "MPI_Iallreduce", err);
}

static enum status poll_link(struct comm_link *base, struct error *err) {
    struct mpi_link *l = (struct mpi_link *)base;
    int done = 0;
    TRY(check(MPI_Testall(2, l->requests, &done, MPI_STATUSES_IGNORE), "MPI_Testall", err));
    return done ? STATUS_OK : STATUS_AGAIN;
}

static void abort_group(struct comm_link *base, int exit_code) {
    (void)base;
    (void)MPI_Abort(MPI_COMM_WORLD, exit_code);
}

static bool close_link(struct comm_link *base, bool complete) {
    if (complete) {
        (void)MPI_Finalize(); /* after a failure it would wait for ranks that are gone */
    }
    free(base);
    return true;
}

static int initialise(int *provided) {
    /* OpenMPI yields in every test if ranks share cores; the worker sleeps, which is faster. */
    (void)setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
    /* If a process may not read another's memory (most containers), OpenMPI copies through shared
     * memory, 32 KB per poll of both sides. The second name is OpenMPI 5's. */
    (void)setenv("OMPI_MCA_btl_vader_max_send_size", "524288", 0);
    (void)setenv("OMPI_MCA_btl_sm_max_send_size", "524288", 0);
    return MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, provided);
}

static enum status
open_link(struct comm_link **out, const struct comm_place *place, struct error *err) {
    (void)place; /* MPI uses its own */
    int used_before = 0, provided = 0, rank = 0, world = 0;
    (void)MPI_Initialized(&used_before);
    FAIL_IF(used_before, err, STATUS_IO, "MPI cannot be initialised twice by one process");
    struct mpi_link *l = calloc(1, sizeof *l);
    TRY_MEMORY(l != NULL, err, "out of memory");
    enum status s;
    TRY_OR_FAIL(s, check(initialise(&provided), "MPI_Init_thread", err));
    TRY_OR_FAIL(s, check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
                         "MPI_Comm_set_errhandler", err));
    TRY_OR_FAIL(s, check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank", err));
    TRY_OR_FAIL(s, check(MPI_Comm_size(MPI_COMM_WORLD, &world), "MPI_Comm_size", err));
    if (provided < MPI_THREAD_SERIALIZED) {
        s = error_set(err, STATUS_UNSUPPORTED,
                      "this MPI is built without threads (MPI_THREAD_SERIALIZED)");
        goto fail;
    }
    l->requests[0] = l->requests[1] = MPI_REQUEST_NULL;
    l->link = (struct comm_link){.rank = rank,
                                 .world = world,
                                 .piece_bytes = PIECE_BYTES,
                                 .begin_exchange = begin_exchange,
                                 .begin_gather = begin_gather,
                                 .begin_broadcast = begin_broadcast,
                                 .begin_merge = begin_merge,
                                 .poll = poll_link,
                                 .abort_group = abort_group,
                                 .close = close_link};
    *out = &l->link;
    return STATUS_OK;
fail:
    free(l);
    return s;
}

__attribute__((visibility("default"))) const struct comm_module *ccstream_comm_module(void);

const struct comm_module *ccstream_comm_module(void) {
    static const struct comm_module module = {.abi = COMM_MODULE_ABI,
                                              .link_size_bytes = sizeof(struct comm_link),
                                              .version = CCSTREAM_VERSION,
                                              .open = open_link};
    return &module;
}
