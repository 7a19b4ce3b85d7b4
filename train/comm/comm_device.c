/*
 * comm_device: comm's collectives if the device's memory is the host's, else the device's own: comm
 * sends their group's id to all ranks. One rank needs none.
 */
#include "train/comm/comm_device.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/device_ranks.h"
#include "train/comm/comm_internal.h"

enum status comm_device_choose(const struct comm *c,
                               const char *name,
                               struct device_options *how,
                               struct error *err) {
    REQUIRE(c != NULL && name != NULL && how != NULL);
    FAIL_IF(comm_local_world(c) > 1 && strncmp(name, "cuda:", 5) == 0, err, STATUS_UNSUPPORTED,
            "--device %s gives all %d ranks of this host one GPU; with --device cuda "
            "each has its own",
            name, (int)comm_local_world(c));
    how->local_rank = comm_local_rank(c);
    return STATUS_OK;
}

/* ---- opening ---- */

enum { NAME_BYTES = 16 };

/* If some ranks have no GPU, "auto" may have opened different devices. */
static enum status check_alike(struct comm *c, const struct device *dev, struct error *err) {
    char first[NAME_BYTES] = "";
    (void)strncpy(first, dev->ops->name, sizeof first - 1);
    TRY(comm_broadcast(c, first, sizeof first, 0, err));
    enum status s = STATUS_OK;
    if (strncmp(first, dev->ops->name, sizeof first - 1) != 0) {
        s = error_set(err, STATUS_UNSUPPORTED,
                      "the device here is %s, that of rank 0 is %s; choose one with --device",
                      dev->ops->name, first);
    }
    return comm_agree(c, s, err);
}

/* Before NCCL, whose error has no reason. */
static enum status check_own_gpus(struct comm *c, const struct device *dev, struct error *err) {
    enum { UUID_BYTES = sizeof dev->uuid };
    static const unsigned char unknown[UUID_BYTES];
    unsigned char(*all)[UUID_BYTES] = calloc((size_t)comm_world(c), sizeof *all);
    TRY_MEMORY(all != NULL, err, "out of memory");
    enum status s = comm_gather(c, all, dev->uuid, UUID_BYTES, err);
    for (int32_t r = 1; r < comm_world(c) && s == STATUS_OK; r++) {
        for (int32_t q = 0; q < r && s == STATUS_OK; q++) {
            if (memcmp(all[q], all[r], UUID_BYTES) == 0 && memcmp(all[q], unknown, UUID_BYTES)) {
                s = error_set(err, STATUS_UNSUPPORTED,
                              "ranks %d and %d have the same GPU; start at most one rank for each "
                              "GPU of a host, which sees all of them or one of its own",
                              q, r);
            }
        }
    }
    free(all);
    return s;
}

static enum status check_ranks(struct device *dev, struct error *err) {
    return dev->ranks != NULL
               ? dev->ranks->check(dev, err)
               : error_set(err, STATUS_UNSUPPORTED,
                           "the device %s has no collectives: use one rank", dev->ops->name);
}

static void stop_device(void *cookie) {
    struct device *dev = cookie;
    dev->ranks->abort(dev);
}

enum status comm_device_open(struct comm *c, struct device *dev, struct error *err) {
    REQUIRE(c != NULL && dev != NULL);
    unsigned char id[DEVICE_RANKS_ID_BYTES] = {0};
    if (comm_world(c) == 1) {
        return STATUS_OK;
    }
    TRY(check_alike(c, dev, err));
    if (dev->stream == NULL) {
        return STATUS_OK;
    }
    TRY(check_own_gpus(c, dev, err));
    TRY(comm_agree(c, check_ranks(dev, err), err));
    const bool names = comm_rank(c) == 0;
    TRY(comm_agree(c, names ? dev->ranks->unique_id(dev, id, err) : STATUS_OK, err));
    TRY(comm_broadcast(c, id, sizeof id, 0, err));
    const enum status s =
        dev->ranks->join(dev, id, comm_rank(c), comm_world(c), comm_timeout_ms(c), err);
    if (s == STATUS_OK) {
        comm_set_stop(c, stop_device, dev);
    }
    return comm_agree(c, s, err);
}

void comm_device_close(struct comm *c, struct device *dev) {
    if (c != NULL && dev != NULL) {
        comm_set_stop(c, NULL, NULL);
    }
}

/* ---- collectives ---- */

/* The device's collectives; NULL: comm's. */
static const struct device_ranks *ranks_of(const struct comm *c, const struct device *dev) {
    return comm_world(c) > 1 && dev->stream != NULL ? dev->ranks : NULL;
}

enum status comm_device_gather(struct comm *c,
                               struct device *dev,
                               void *all,
                               const void *own,
                               size_t own_bytes,
                               struct error *err) {
    REQUIRE(c != NULL && dev != NULL);
    REQUIRE(comm_world(c) > 1 || dev->stream == NULL || own == all);
    const struct device_ranks *ranks = ranks_of(c, dev);
    return ranks != NULL ? ranks->gather(dev, all, own, own_bytes, err)
                         : comm_gather(c, all, own, own_bytes, err);
}

enum status comm_device_begin_sum(struct comm *c,
                                  struct device *dev,
                                  float *data,
                                  int64_t count,
                                  struct error *err) {
    REQUIRE(c != NULL && dev != NULL);
    const struct device_ranks *ranks = ranks_of(c, dev);
    return ranks != NULL ? ranks->begin_sum(dev, data, count, err)
                         : comm_begin_sum(c, data, count, err);
}

enum status comm_device_finish(struct comm *c, struct device *dev, struct error *err) {
    REQUIRE(c != NULL && dev != NULL);
    const struct device_ranks *ranks = ranks_of(c, dev);
    return ranks != NULL ? ranks->finish(dev, err) : comm_finish(c, err);
}
