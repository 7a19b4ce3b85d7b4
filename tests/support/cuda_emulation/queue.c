/*
 * queue: the emulated streams, events and graphs. See emulation.h.
 */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cuda_emulation/emulation.h"

struct item {
    void (*run)(void *cookie);
    void (*drop)(void *cookie);
    void *cookie;
    struct item *next;
};

struct emulation_stream {
    struct emulation_stream_head head;
    bool is_first; /* of those that exist */
    struct item *first, **end;
    uint64_t noted_count, done_count;
    double now_ns; /* when all its tasks are done */
    struct emulation_stream *next;
};

struct emulation_event {
    struct emulation_stream *stream; /* NULL: not recorded */
    uint64_t place;                  /* tasks of the stream before it */
    double at_ns;
};

struct emulation_graph {
    struct item *first, **end;
    size_t count;
    double took_ns;
    int owners; /* the graph, its executable forms and starts that are under way */
};

static struct emulation_stream legacy; /* NULL's */
static struct emulation_stream *streams;
static struct emulation_graph *capture;
static const struct emulation_stream *captured;
static pthread_t capturer; /* the thread that captures; others are not restricted */
static bool is_spoilt;     /* the capture is invalid: a call that a driver regards as unsafe */
static bool is_late, is_apart, is_running;
static double host_ns; /* what the host has waited for */

static struct emulation_stream *stream_of(struct emulation_stream *stream) {
    return stream != NULL ? stream : &legacy;
}

__attribute__((constructor)) static void read_environment(void) {
    const char *when = getenv("CCSTREAM_EMULATED");
    is_late = when != NULL && strcmp(when, "late") == 0;
}

void emulation_late(bool late) {
    emulation_finish_all();
    is_late = late;
}

void emulation_apart(bool apart) {
    emulation_late(apart);
    is_apart = apart;
}

static bool is_captured(const struct emulation_stream *stream) {
    return capture != NULL && stream == captured;
}

bool emulation_spoils(void) {
    const bool captures = capture != NULL && pthread_equal(capturer, pthread_self());
    is_spoilt = is_spoilt || captures;
    return captures;
}

bool emulation_is_deferred(const struct emulation_stream *stream) {
    const bool late = is_late && !(is_apart && stream != NULL && !stream->is_first);
    return !is_running && (late || is_captured(stream));
}

static struct item *item_of(void (*run)(void *), void (*drop)(void *), void *cookie) {
    struct item *i = malloc(sizeof *i);
    if (i == NULL) {
        abort();
    }
    *i = (struct item){.run = run, .drop = drop, .cookie = cookie};
    return i;
}

void emulation_spend(struct emulation_stream *stream, size_t took_ns) {
    struct emulation_stream *s = stream_of(stream);
    if (!is_running) {
        s->now_ns = (s->now_ns > host_ns ? s->now_ns : host_ns) + (double)took_ns;
    }
}

void emulation_note(struct emulation_stream *stream,
                    void (*run)(void *cookie),
                    void (*drop)(void *cookie),
                    void *cookie,
                    size_t took_ns) {
    struct item *i = item_of(run, drop, cookie);
    if (is_captured(stream)) {
        *capture->end = i;
        capture->end = &i->next;
        capture->count++;
        capture->took_ns += (double)took_ns;
        return;
    }
    struct emulation_stream *s = stream_of(stream);
    if (s->first == NULL) {
        s->end = &s->first;
    }
    *s->end = i;
    s->end = &i->next;
    s->noted_count++;
    emulation_spend(stream, took_ns);
}

void emulation_do(struct emulation_stream *stream,
                  void (*run)(void *cookie),
                  const void *cookie,
                  size_t size_bytes,
                  size_t took_ns) {
    void *copy = malloc(size_bytes);
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, cookie, size_bytes);
    if (emulation_is_deferred(stream)) {
        emulation_note(stream, run, free, copy, took_ns);
        return;
    }
    run(copy);
    free(copy);
    emulation_spend(stream, took_ns);
}

/* Runs the stream's first `place` tasks. One of them may wait for another stream. */
static void run_until(struct emulation_stream *s, uint64_t place) {
    const bool inner = is_running;
    while (s->done_count < place && s->first != NULL) {
        struct item *i = s->first;
        s->first = i->next;
        s->done_count++;
        is_running = true;
        i->run(i->cookie);
        is_running = inner;
        i->drop(i->cookie);
        free(i);
    }
}

static void finish(struct emulation_stream *s) {
    run_until(s, s->noted_count);
    host_ns = s->now_ns > host_ns ? s->now_ns : host_ns;
}

void emulation_finish_all(void) {
    finish(&legacy);
    for (struct emulation_stream *s = streams; s != NULL; s = s->next) {
        finish(s);
    }
}

/* ---- copies and fills ---- */

struct transfer {
    void *out;
    const void *in; /* NULL: a fill */
    int value;
    size_t size_bytes;
};

static void run_transfer(void *cookie) {
    const struct transfer *t = cookie;
    if (t->in != NULL) {
        memcpy(t->out, t->in, t->size_bytes);
    } else {
        memset(t->out, t->value, t->size_bytes);
    }
}

static void transfer(cudaStream_t stream, struct transfer t) {
    emulation_do(stream, run_transfer, &t, sizeof t,
                 EMULATION_COPY_NS + t.size_bytes / EMULATION_BYTES_PER_NS);
}

cudaError_t cudaMemsetAsync(void *out, int value, size_t size_bytes, cudaStream_t stream) {
    transfer(stream, (struct transfer){.out = out, .value = value, .size_bytes = size_bytes});
    return cudaSuccess;
}

/* Memory of the host that is not pinned has been read or written when the call returns. */
cudaError_t cudaMemcpyAsync(void *out,
                            const void *in,
                            size_t size_bytes,
                            enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    const bool pinned = emulation_is_pinned(kind == cudaMemcpyHostToDevice ? in : out);
    if (!pinned && is_captured(stream)) {
        return cudaErrorStreamCaptureUnsupported;
    }
    transfer(stream, (struct transfer){.out = out, .in = in, .size_bytes = size_bytes});
    if (!pinned) {
        finish(stream_of(stream));
    }
    return cudaSuccess;
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    (void)flags;
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return cudaErrorMemoryAllocation;
    }
    (*out)->head =
        (struct emulation_stream_head){.submit = emulation_do, .is_captured = is_captured};
    (*out)->is_first = streams == NULL;
    (*out)->next = streams;
    streams = *out;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (is_captured(stream)) {
        (void)emulation_spoils();
        return cudaErrorStreamCaptureUnsupported;
    }
    finish(stream_of(stream));
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    struct emulation_stream **at = &streams;
    emulation_finish_all(); /* others may wait for it */
    while (*at != stream) {
        at = &(*at)->next;
    }
    *at = stream->next;
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    (void)flags;
    *out = calloc(1, sizeof **out);
    return *out != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end) {
    if (begin->stream == NULL || end->stream == NULL) {
        return cudaErrorInvalidValue;
    }
    *ms = (float)((end->at_ns - begin->at_ns) * 1e-6);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    struct emulation_stream *s = stream_of(stream);
    event->stream = s;
    event->place = s->noted_count;
    emulation_spend(stream, 0);
    event->at_ns = s->now_ns;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (emulation_spoils()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (event->stream != NULL) {
        run_until(event->stream, event->place);
        host_ns = event->at_ns > host_ns ? event->at_ns : host_ns;
    }
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    free(event);
    return cudaSuccess;
}

/* The event's present state: it may be recorded again before the stream gets here. */
static void run_wait(void *cookie) {
    const struct emulation_event *event = cookie;
    run_until(event->stream, event->place);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    struct emulation_stream *s = stream_of(stream);
    (void)flags;
    if (event->stream != NULL) {
        s->now_ns = event->at_ns > s->now_ns ? event->at_ns : s->now_ns;
        emulation_do(stream, run_wait, event, sizeof *event, 0);
    }
    return cudaSuccess;
}

/* ---- graphs: lists of stored tasks ---- */

static void drop_graph(void *cookie) {
    struct emulation_graph *graph = cookie;
    if (--graph->owners > 0) {
        return;
    }
    while (graph->first != NULL) {
        struct item *i = graph->first;
        graph->first = i->next;
        i->drop(i->cookie);
        free(i);
    }
    free(graph);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    (void)mode;
    if (emulation_has_fault("capture")) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (capture != NULL) {
        return cudaErrorInvalidValue;
    }
    capture = calloc(1, sizeof *capture);
    if (capture == NULL) {
        return cudaErrorMemoryAllocation;
    }
    capture->end = &capture->first;
    capture->owners = 1;
    captured = stream;
    capturer = pthread_self();
    is_spoilt = false;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    (void)stream;
    *out = capture;
    capture = NULL;
    if (*out != NULL && is_spoilt) {
        drop_graph(*out);
        *out = NULL;
        return cudaErrorStreamCaptureInvalidated;
    }
    return *out != NULL ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    (void)nodes;
    *count = graph->count;
    return cudaSuccess;
}

cudaError_t
cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    (void)flags;
    graph->owners++;
    *out = graph;
    return cudaSuccess;
}

static void run_graph(void *cookie) {
    const struct emulation_graph *graph = cookie;
    for (struct item *i = graph->first; i != NULL; i = i->next) {
        i->run(i->cookie);
    }
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    exec->owners++;
    if (emulation_is_deferred(stream)) {
        emulation_note(stream, run_graph, drop_graph, exec, (size_t)exec->took_ns);
        return cudaSuccess;
    }
    emulation_spend(stream, (size_t)exec->took_ns);
    is_running = true;
    run_graph(exec);
    is_running = false;
    drop_graph(exec);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    drop_graph(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    drop_graph(exec);
    return cudaSuccess;
}
