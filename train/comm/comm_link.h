/*
 * comm_link: carries the messages of a comm; and the interface of the modules that provide one: MPI
 * (mpi/), Gloo (gloo/), and threads of one process in tests. Also for C++.
 */
#ifndef TRAIN_COMM_COMM_LINK_H
#define TRAIN_COMM_COMM_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Carries the messages of one rank. begin_x starts an operation, the only one in progress, whose
 * buffers are borrowed until poll returns OK; every rank begins the same operations in the same
 * order. One thread at a time calls these, but any thread abort_group. begin_x return OK or IO,
 * without waiting; poll OK, AGAIN or IO. poll may wait for a message, for the first one up to the
 * timeout of struct comm_place: the watching thread ends a process that waits for a lost rank. */
struct comm_link {
    int32_t rank, world;
    size_t piece_bytes; /* largest operation, a multiple of 4 */

    /* Sends to `peer` and receives from it; a size of 0: no message in that direction. */
    enum status (*begin_exchange)(struct comm_link *l,
                                  int32_t peer,
                                  void *received,
                                  size_t received_bytes,
                                  const void *sent,
                                  size_t sent_bytes,
                                  struct error *err);
    /* all (world * own_bytes), this rank's part already in place. */
    enum status (*begin_gather)(struct comm_link *l, void *all, size_t own_bytes, struct error *);
    enum status (*begin_broadcast)(struct comm_link *l,
                                   void *data,
                                   size_t size_bytes,
                                   int32_t root,
                                   struct error *err);
    /* words (count) = the sum over ranks, modulo 2^32. */
    enum status (*begin_merge)(struct comm_link *l, uint32_t *words, size_t count, struct error *);
    enum status (*poll)(struct comm_link *l, struct error *err);

    /* Ends all processes of the group; may return before they ended. */
    void (*abort_group)(struct comm_link *l, int exit_code);
    /* Frees l. `complete`: all ranks have completed all operations and close it too. Returns false
     * if one of them did not. */
    bool (*close)(struct comm_link *l, bool complete);
};

/* Where a module finds the other ranks. The MPI module asks MPI instead. */
struct comm_place {
    int32_t rank, world;
    const char *folder; /* of this launch only, shared by all ranks */
    bool one_host;      /* all ranks are on this host */
    int64_t timeout_ms; /* to join, and for the first message */
};

/* The interface of libccstream_mpi.so and libccstream_gloo.so. Module and program must be of the
 * same build: version, size and the number below are compared before any other call. */
enum { COMM_MODULE_ABI = 3 }; /* increased whenever this struct or struct comm_link changes */

struct comm_module {
    uint32_t abi;             /* COMM_MODULE_ABI */
    uint32_t link_size_bytes; /* sizeof(struct comm_link) */
    const char *version;      /* ccstream's */

    /* Joins the group that the launcher started; once per process. Returns OK, NOMEM, UNSUPPORTED
     * (an MPI without threads) or IO. */
    enum status (*open)(struct comm_link **out, const struct comm_place *place, struct error *err);
};

typedef const struct comm_module *comm_module_entry(void);
#define COMM_MODULE_SYMBOL "ccstream_comm_module"

#ifdef __cplusplus
}
#endif

#endif
