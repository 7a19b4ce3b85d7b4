/*
 * gloo_link: a comm's messages by Gloo, PyTorch's collectives for CPUs, over TCP; the only file
 * that includes its headers, and the only symbol exported by libccstream_gloo.so.
 *
 * Gloo's buffers have no test for completion, and a timeout closes all connections: so poll waits,
 * first for the timeout, then for longer than the watching thread lets any rank wait. A connection
 * closed by another rank ends the wait at once. Gloo cannot notify a launcher: other ranks notice
 * the end of a rank by heartbeat files, or torchrun or srun ends them.
 */
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "train/comm/comm_link.h"

namespace {

using milliseconds = std::chrono::milliseconds;

constexpr size_t piece_bytes = size_t{16} << 20;
constexpr uint64_t slot = 1;       /* of exchanges; collectives have others */
constexpr int timeouts_later = 11; /* a rank that saves may take ten */

struct gloo_link : comm_link {
    std::shared_ptr<gloo::Context> context;
    std::function<void()> wait; /* completes the current operation */
    milliseconds later{};
};

/* No exception crosses into C. */
template <typename F> enum status guarded(const char *what, struct error *err, F &&body) {
    try {
        body();
        return STATUS_OK;
    } catch (const std::bad_alloc &) {
        return error_set(err, STATUS_NOMEM, "out of memory");
    } catch (const std::exception &e) {
        return error_set(err, STATUS_IO, "Gloo reports an error of %s: %.300s", what, e.what());
    }
}

enum status begin_exchange(comm_link *base,
                           int32_t peer,
                           void *received,
                           size_t received_bytes,
                           const void *sent,
                           size_t sent_bytes,
                           struct error *err) {
    gloo_link *l = static_cast<gloo_link *>(base);
    return guarded("a message", err, [&] {
        std::shared_ptr<gloo::transport::UnboundBuffer> in, out;
        if (received_bytes > 0) {
            in = l->context->createUnboundBuffer(received, received_bytes);
            in->recv(peer, slot);
        }
        if (sent_bytes > 0) {
            out = l->context->createUnboundBuffer(const_cast<void *>(sent), sent_bytes);
            out->send(peer, slot);
        }
        l->wait = [l, in, out] {
            if (in != nullptr) {
                (void)in->waitRecv(l->context->getTimeout());
            }
            if (out != nullptr) {
                (void)out->waitSend(l->context->getTimeout());
            }
        };
    });
}

enum status begin_gather(comm_link *base, void *all, size_t own_bytes, struct error *) {
    gloo_link *l = static_cast<gloo_link *>(base);
    l->wait = [l, all, own_bytes] {
        gloo::AllgatherOptions o(l->context);
        o.setOutput(static_cast<char *>(all), own_bytes * static_cast<size_t>(l->world));
        gloo::allgather(o);
    };
    return STATUS_OK;
}

enum status
begin_broadcast(comm_link *base, void *data, size_t size_bytes, int32_t root, struct error *) {
    gloo_link *l = static_cast<gloo_link *>(base);
    l->wait = [l, data, size_bytes, root] {
        gloo::BroadcastOptions o(l->context);
        o.setOutput(static_cast<char *>(data), size_bytes);
        o.setRoot(root);
        gloo::broadcast(o);
    };
    return STATUS_OK;
}

enum status begin_merge(comm_link *base, uint32_t *words, size_t count, struct error *) {
    gloo_link *l = static_cast<gloo_link *>(base);
    l->wait = [l, words, count] {
        gloo::AllreduceOptions o(l->context);
        o.setOutput(words, count);
        o.setReduceFunction(
            static_cast<void (*)(void *, const void *, const void *, size_t)>(gloo::sum<uint32_t>));
        gloo::allreduce(o);
    };
    return STATUS_OK;
}

enum status poll_link(comm_link *base, struct error *err) {
    gloo_link *l = static_cast<gloo_link *>(base);
    return guarded("a message", err, [l] {
        l->wait();
        l->wait = nullptr;
        l->context->setTimeout(l->later);
    });
}

void abort_group(comm_link *, int) {
}

/* One more round, so that no rank closes a connection from which another still reads. */
bool close_link(comm_link *base, bool complete) {
    gloo_link *l = static_cast<gloo_link *>(base);
    uint32_t word = 0;
    const bool closed = !complete || (begin_merge(base, &word, 1, nullptr) == STATUS_OK &&
                                      poll_link(base, nullptr) == STATUS_OK);
    delete l;
    return closed;
}

/* The loopback of one host; else GLOO_SOCKET_IFNAME, as for PyTorch, or the host's own name. */
std::shared_ptr<gloo::transport::Device> open_device(const comm_place *place) {
    gloo::transport::tcp::attr attr;
    const char *interface = std::getenv("GLOO_SOCKET_IFNAME");
    if (place->one_host) {
        attr.hostname = "127.0.0.1";
    } else if (interface != nullptr) {
        attr.iface = interface;
    }
    return gloo::transport::tcp::CreateDevice(attr);
}

enum status open_link(comm_link **out, const comm_place *place, struct error *err) {
    *out = nullptr;
    std::unique_ptr<gloo_link> l;
    const enum status s = guarded("connecting the ranks", err, [&] {
        l = std::make_unique<gloo_link>();
        auto device = open_device(place);
        gloo::rendezvous::FileStore store(place->folder);
        auto context = std::make_shared<gloo::rendezvous::Context>(place->rank, place->world);
        context->setTimeout(milliseconds(place->timeout_ms));
        context->connectFullMesh(store, device);
        l->context = context;
    });
    if (s != STATUS_OK) {
        return s;
    }
    l->later = milliseconds(timeouts_later * place->timeout_ms);
    l->rank = place->rank;
    l->world = place->world;
    l->piece_bytes = piece_bytes;
    l->begin_exchange = begin_exchange;
    l->begin_gather = begin_gather;
    l->begin_broadcast = begin_broadcast;
    l->begin_merge = begin_merge;
    l->poll = poll_link;
    l->abort_group = abort_group;
    l->close = close_link;
    *out = l.release();
    return STATUS_OK;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const struct comm_module *
ccstream_comm_module(void);

const struct comm_module *ccstream_comm_module(void) {
    static const comm_module module = {COMM_MODULE_ABI, sizeof(comm_link), CCSTREAM_VERSION,
                                       open_link};
    return &module;
}
