#include "tests/support/lazy_stream.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"

enum { MOST = 256 };

struct copy {
    void *to;
    const void *from;
    size_t size_bytes;
};

/* Of each queue: copies that were asked for; before each mark there were so many. */
static struct {
    struct copy waiting[MOST];
    uint64_t asked, done;
} queues[2];
static struct {
    enum device_queue queue;
    uint64_t asked;
    int64_t time_ns;
} marks[DEVICE_MARK_COUNT];

bool lazy_stream_on;
enum status lazy_refusal = STATUS_UNSUPPORTED;
struct lazy_counts lazy_counts;

static enum status
alloc_host(struct device *dev, size_t size_bytes, void **out, struct error *err) {
    (void)dev;
    *out = aligned_alloc(64, (size_bytes + 63) / 64 * 64 + 64);
    if (*out == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory");
    }
    memset(*out, 0xA5, size_bytes);
    __atomic_add_fetch(&lazy_counts.allocations, 1, __ATOMIC_RELAXED);
    return STATUS_OK;
}

static void free_host(struct device *dev, void *data) {
    (void)dev;
    __atomic_sub_fetch(&lazy_counts.allocations, data != NULL, __ATOMIC_RELAXED);
    free(data);
}

static enum status
ask(enum device_queue queue, void *to, const void *from, size_t size_bytes, struct error *err) {
    if (queues[queue].asked - queues[queue].done == MOST) {
        return error_set(err, STATUS_DEVICE, "more copies than a test should have under way");
    }
    queues[queue].waiting[queues[queue].asked++ % MOST] = (struct copy){to, from, size_bytes};
    return STATUS_OK;
}

static void do_until(enum device_queue queue, uint64_t asked) {
    while (queues[queue].done < asked) {
        const struct copy *c = &queues[queue].waiting[queues[queue].done++ % MOST];
        memcpy(c->to, c->from, c->size_bytes);
    }
}

static enum status
copy_in(struct device *dev, void *dst, const void *host, size_t size_bytes, struct error *err) {
    (void)dev;
    lazy_counts.copies_in++;
    TRY(ask(QUEUE_COPY, dst, host, size_bytes, err));
    const uint64_t late = queues[QUEUE_COPY].asked - queues[QUEUE_COPY].done;
    lazy_counts.late_in = late > lazy_counts.late_in ? late : lazy_counts.late_in;
    return STATUS_OK;
}

/* What is copied out is what is there now; the host sees it when it waits. */
static enum status
copy_out(struct device *dev, void *host, const void *src, size_t size_bytes, struct error *err) {
    static uint8_t now[MOST][512];
    const uint64_t at = queues[QUEUE_COMPUTE].asked % MOST;
    (void)dev;
    lazy_counts.copies_out++;
    if (size_bytes > sizeof now[0]) {
        return error_set(err, STATUS_DEVICE, "a report of %zu bytes", size_bytes);
    }
    memcpy(now[at], src, size_bytes);
    return ask(QUEUE_COMPUTE, host, now[at], size_bytes, err);
}

static enum status mark(struct device *dev, enum device_queue queue, int32_t m, struct error *err) {
    (void)dev;
    (void)err;
    marks[m].queue = queue;
    marks[m].asked = queues[queue].asked;
    marks[m].time_ns = clock_now_ns();
    return STATUS_OK;
}

static enum status
follow(struct device *dev, enum device_queue queue, int32_t m, struct error *err) {
    (void)queue;
    (void)dev;
    (void)err;
    do_until(marks[m].queue, marks[m].asked);
    return STATUS_OK;
}

static enum status wait_for(struct device *dev, int32_t m, struct error *err) {
    return follow(dev, QUEUE_COMPUTE, m, err);
}

static enum status
seconds(struct device *dev, double *out, int32_t from, int32_t to, struct error *err) {
    (void)dev;
    (void)err;
    *out = (double)(marks[to].time_ns - marks[from].time_ns) * 1e-9;
    return STATUS_OK;
}

static enum status capture_begin(struct device *dev, struct error *err) {
    (void)dev;
    (void)err;
    lazy_counts.records_begun++;
    return error_set(err, lazy_refusal, "nothing is captured here");
}

static enum status capture_end(struct device *dev, struct captured_step **out, struct error *err) {
    (void)out;
    return capture_begin(dev, err);
}

static enum status replay(struct device *dev, struct captured_step *r, struct error *err) {
    (void)r;
    return capture_begin(dev, err);
}

static void captured_free(struct device *dev, struct captured_step *r) {
    (void)dev;
    (void)r;
}

static struct device_counters counters(struct device *dev) {
    (void)dev;
    return (struct device_counters){0};
}

/* Ops are the CPU's: only copies are seen. */
static uint64_t launches(struct device *dev) {
    (void)dev;
    return lazy_counts.copies_out;
}

const struct device_stream lazy_stream = {
    .alloc_host = alloc_host,
    .free_host = free_host,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .mark = mark,
    .follow = follow,
    .wait = wait_for,
    .seconds = seconds,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .replay = replay,
    .captured_free = captured_free,
    .counters = counters,
    .launches = launches,
};

enum status __real_device_open_with(struct device **out,
                                    const char *name,
                                    const struct device_options *opt,
                                    struct error *err);
enum status __wrap_device_open_with(struct device **out,
                                    const char *name,
                                    const struct device_options *opt,
                                    struct error *err);

enum status __wrap_device_open_with(struct device **out,
                                    const char *name,
                                    const struct device_options *opt,
                                    struct error *err) {
    TRY(__real_device_open_with(out, name, opt, err));
    if (lazy_stream_on) {
        memset(queues, 0, sizeof queues);
        (*out)->stream = &lazy_stream;
    }
    return STATUS_OK;
}
