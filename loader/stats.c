/*
 * stats: the loader's counters as a struct and as JSON.
 */
#include "formats/base/clock.h"
#include "formats/base/json_writer.h"
#include "loader/pipeline_internal.h"

void loader_stats(struct loader *l, struct loader_stats *out) {
    struct pipeline *p = loader_pipeline(l);
    pthread_mutex_lock(&p->lock);
    *out = p->stats;
    out->elapsed_ns = clock_now_ns() - p->start_ns;
    out->read.threads = p->reader_count;
    out->read.queue_depth = p->free_count;
    out->read.queue_capacity = p->read_slot_count;
    out->decode.threads = p->thread_count;
    out->decode.queue_depth = p->ready_count;
    out->decode.queue_capacity = p->read_slot_count;
    out->deliver.threads = 1;
    out->deliver.queue_capacity = p->batch_slot_count;
    for (uint32_t i = 0; i < p->batch_slot_count; i++) {
        out->deliver.queue_depth += p->batch_slots[i].state == BATCH_READY;
    }
    out->deliver.wait_ns = out->consumer_stall_ns;
    pthread_mutex_unlock(&p->lock);
}

enum status loader_corrupt_at(struct loader *l, uint64_t index, struct loader_corrupt *out) {
    struct pipeline *p = loader_pipeline(l);
    enum status s = STATUS_END;
    pthread_mutex_lock(&p->lock);
    if (index < p->corrupt_listed_count) {
        *out = p->corrupt_list[index];
        s = STATUS_OK;
    }
    pthread_mutex_unlock(&p->lock);
    return s;
}

static double seconds(int64_t ns) {
    return (double)ns / 1e9;
}

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

static void stage_json(struct json_writer *w,
                       const char *name,
                       const struct loader_stage_stats *s,
                       double elapsed_s) {
    json_open_object(w, name);
    json_u64(w, "items", s->items_count);
    json_double(w, "items_per_s", ratio((double)s->items_count, elapsed_s));
    json_u64(w, "bytes", s->bytes);
    json_double(w, "bytes_per_s", ratio((double)s->bytes, elapsed_s));
    json_double(w, "busy_s", seconds(s->busy_ns));
    json_double(w, "wait_s", seconds(s->wait_ns));
    json_u64(w, "threads", s->threads);
    json_u64(w, "queue_depth", s->queue_depth);
    json_u64(w, "queue_capacity", s->queue_capacity);
    json_close_object(w);
}

void loader_stages_json(struct json_writer *w, const char *key, const struct loader_stats *s) {
    double t = seconds(s->elapsed_ns);
    json_open_object(w, key);
    stage_json(w, "read", &s->read, t);
    stage_json(w, "decode", &s->decode, t);
    stage_json(w, "deliver", &s->deliver, t);
    json_close_object(w);
}
