/*
 * pipeline: what the stages of the loader share. The drawing is at the top of loader.c.
 *
 * Threading : the fields of `struct pipeline` below the lock are guarded by it; those above it do
 *             not change while threads run. A read_slot or batch_slot has one owner at a time,
 *             which its state names; its other fields belong to that owner. Ownership changes only
 *             under the lock.
 */
#ifndef LOADER_PIPELINE_INTERNAL_H
#define LOADER_PIPELINE_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/file_io.h"
#include "formats/columns/columns.h"
#include "formats/tokenizer/tokenizer.h"
#include "loader/loader.h"
#include "loader/read_engine_internal.h"
#include "loader/sampler.h"
#include "loader/shard_files_internal.h"
#include "loader/sources.h"

enum {
    READ_BUFFER_PADDING_BYTES = 64,
    READ_MEMORY_MAX_MIB = 1024,
    READ_TRIES = 4,
    READ_DIRECT_ALIGN_BYTES = 4096, /* of memory, offset and size: accepted by every disk */
};

enum read_slot_state { READ_SLOT_FREE, READ_SLOT_READING, READ_SLOT_READ, READ_SLOT_DECODING };

/* One image on its way from the file to the decoder. */
struct read_slot {
    enum read_slot_state state; /* guarded by the pipeline's lock */
    int64_t since_ns;           /* when `state` began; guarded as well */
    struct sampler_place place; /* written with the state */
    uint32_t batch_slot;
    uint32_t index;  /* in the batch */
    uint8_t *buffer; /* this and all fields below belong to the owner */
    uint8_t *data;   /* where in the buffer the image begins */
    struct source_sample source;
    bool damaged;     /* the index record is damaged; nothing was read */
    struct error why; /* how, if it is */
};

enum batch_slot_state { BATCH_FREE, BATCH_FILLING, BATCH_READY, BATCH_HELD };

struct batch_slot {
    enum batch_slot_state state; /* this and the next two: guarded by the pipeline's lock */
    uint32_t remaining_count;    /* samples still missing */
    uint32_t replaced_count;
    struct sampler_batch batch;
    void *block;                        /* one piece of host memory, which holds: */
    uint8_t *images[AUGMENT_MAX_VIEWS]; /* [1] NULL with one view */
    int32_t *tokens;
    int32_t *lengths;
    uint64_t *sample_ids;
    uint64_t *text_ids;
    uint32_t *captions;
    int32_t *labels;
    float *columns;
    uint8_t *present;
};

/* A sample of the batch whose reads are being started, sorted by its place on the disk. */
struct claim {
    struct sampler_place place;
    uint32_t index;
};

/* Numbers of attached columns in batches: see columns.c. */
struct loader_columns {
    uint32_t count, values; /* columns; numbers of all together */
    bool required;
    uint64_t hash; /* of what they hold */
    const struct sources *sources;
    struct loader_column items[LOADER_MAX_COLUMNS];
    struct column *columns[LOADER_MAX_COLUMNS][LOADER_MAX_SOURCES];
};

struct pipeline {
    struct loader_options opt;
    struct sampler sampler;
    const struct sources *sources;
    struct loader_columns columns;     /* zeros: none */
    const struct tokenizer *tokenizer; /* NULL: none */
    const struct read_engine_ops *engine;
    struct shard_files *files;
    uint32_t thread_count;
    uint32_t reader_count;
    uint32_t reader_depth; /* requests of one reading thread */
    uint32_t read_slot_count;
    uint32_t batch_slot_count;
    size_t image_bytes;       /* S * S * 3 */
    uint32_t wake_free_count; /* readers sleep until that many buffers are free */
    struct file *quarantine;  /* the quarantine thread's; NULL: not requested */
    int64_t start_ns;         /* clock at open or seek */

    pthread_mutex_t lock;      /* guards everything below */
    pthread_cond_t for_reader; /* buffers or a batch slot became free */
    pthread_cond_t for_decode; /* an image was read */
    pthread_cond_t for_batch;  /* a batch is ready, all records are written, or the run failed */
    pthread_cond_t for_record; /* a damaged sample was listed, or a decoder left */
    bool stopping;
    bool failed;
    bool failure_reported; /* to the consumer, which gets nothing else from then on */
    struct error failure;

    struct read_slot *read_slots; /* (read_slot_count) */
    uint32_t *free_slots;         /* (read_slot_count) a stack */
    uint32_t free_count;
    uint32_t *ready_slots; /* (read_slot_count) a ring: read, not yet decoded */
    uint32_t ready_first, ready_count;

    struct batch_slot *batch_slots; /* (batch_slot_count) */
    struct claim *claims;           /* (largest batch) of a block order; NULL otherwise */
    bool claim_open;                /* reads of the batch in claim_slot are being started */
    uint32_t claim_index;           /* its next sample */
    uint32_t claim_slot;
    uint64_t claim_step; /* next global step to open */
    uint64_t take_step;  /* next global step that the consumer acquires */
    uint32_t held_count;

    uint32_t running_count; /* threads that have not left yet */
    uint32_t running_decoders_count;
    bool abandoned;          /* close stopped waiting: the last thread to leave frees everything */
    pthread_cond_t for_exit; /* a thread left */

    struct loader_corrupt
        *corrupt_list; /* (LOADER_MAX_CORRUPT_LIST) rows are added, never changed */
    uint32_t corrupt_listed_count;
    uint32_t quarantined_count; /* of them, those that are in the quarantine file */
    struct loader_stats stats;  /* counts and times; the rest is filled on request */
};

struct reader;
struct sample_work;

static inline bool pipeline_reads_images(const struct pipeline *p) {
    return p->opt.views > 0 || p->opt.hooks.wants_image;
}

/* Records the first failure and wakes all threads. */
void pipeline_fail(struct pipeline *p, enum status s, const struct error *err);
/* Tells all threads to leave. */
void pipeline_stop(struct pipeline *p);
bool pipeline_is_over(struct pipeline *p);

/* Readers: takes up to `max` free read slots, each for the next position in order. With may_wait,
 * waits until there is one. Returns how many; 0 when the run is over. */
uint32_t pipeline_claim(struct pipeline *p, uint32_t *out, uint32_t max, bool may_wait);
/* The result of one round of a reader. */
struct read_done {
    uint32_t ids[LOADER_MAX_READ_DEPTH + LOADER_MAX_THREADS]; /* slots whose image is read */
    uint32_t count;
    uint32_t requests_count;
    uint32_t retried_count;
    uint64_t bytes;
    int64_t busy_ns;
};
void pipeline_read_done(struct pipeline *p, const struct read_done *done);

/* Decoders: waits for an image; false when the run is over. */
bool pipeline_take_read(struct pipeline *p, uint32_t *id);
/* Decoders: the sample is in its batch, the read slot is free again. `ignored`: of its image, see
 * sample_work_ignored. */
void pipeline_decode_done(struct pipeline *p,
                          uint32_t id,
                          bool replaced,
                          uint64_t bytes,
                          unsigned ignored);
/* Decoders: lists a damaged sample. Returns OK, or CORRUPT when there are too many. */
enum status pipeline_corrupt(struct pipeline *p,
                             const struct source_sample *sample,
                             const struct error *why,
                             struct error *err);

/* The quarantine thread: waits for a damaged sample that is not in the file yet; NULL when the
 * decoders have left and none is pending. */
const struct loader_corrupt *pipeline_next_pending(struct pipeline *p);
/* The quarantine thread: that sample's record is written. */
void pipeline_quarantined(struct pipeline *p);

/* The consumer's side of loader_acquire and loader_release. */
enum status pipeline_acquire(struct pipeline *p,
                             struct batch_slot **out,
                             int64_t timeout_ms,
                             struct error *err);
void pipeline_release(struct pipeline *p, uint32_t slot);

/* The main functions of the threads; they return when the run is over. */
void reader_run(struct reader *r);
void decode_run(struct pipeline *p, struct sample_work *work);
void quarantine_run(struct pipeline *p);

/* The state of one reading thread: its engine and the requests in it. Returns OK, NOMEM or
 * UNSUPPORTED. */
enum status reader_create(struct reader **out, struct pipeline *p, struct error *err);
/* Creates the engine, before the thread starts. Returns what reader_create returns; after a failure
 * there is no engine, and reader_run must not be called. */
enum status reader_start(struct reader *r, struct error *err);
/* Destroys the engine, after the thread has left. Returns what read_engine_ops.destroy returns. */
bool reader_stop(struct reader *r, int64_t timeout_ms);
void reader_destroy(struct reader *r); /* accepts NULL */

/* Makes the row slot->index of batch slot->batch_slot from slot->source and the bytes at
 * slot->data. Returns what sample_work_image and sample_work_text return; of a slot that is marked
 * as damaged CORRUPT. */
enum status decode_sample(struct pipeline *p,
                          struct sample_work *work,
                          struct read_slot *slot,
                          struct error *err);
/* Whether such a failure means that this sample alone cannot be used. */
bool decode_is_damage(enum status s);

/* *c is zeros before, and closed after a failure too. Returns OK, USAGE, LIMIT or what column_open
 * returns. */
enum status loader_columns_open(struct loader_columns *c,
                                const struct loader_options *opt,
                                const struct sources *sources,
                                struct error *err);
void loader_columns_close(struct loader_columns *c);

/* The numbers of a sample, and whether it has a row in each column; `id` is that in the dataset.
 * Returns OK, CORRUPT or, where a row is required, USAGE. */
enum status loader_columns_read(const struct loader_columns *c,
                                float *out,
                                uint8_t *present,
                                uint32_t source,
                                uint64_t id,
                                struct error *err);

/* The memory of a batch of up to `count` samples, from opt.host_memory, which also frees b->block.
 * Returns OK or NOMEM. */
enum status
batch_slot_alloc(struct batch_slot *b, const struct pipeline *p, size_t count, struct error *err);
/* The batch in a slot, as it is delivered. */
struct loader_batch batch_slot_view(const struct batch_slot *b);

/* Bytes from one buffer for an image to the next, and the alignment of the first. */
size_t read_buffer_bytes(const struct pipeline *p, size_t *align_bytes);

/* Reads slot->source into slot->buffer on the calling thread. Returns OK, IO, CORRUPT (the file is
 * too short or was replaced) or NOTFOUND. */
enum status reader_load(struct pipeline *p, struct read_slot *slot, struct error *err);

/* loader_open_mix with the caller's reading engine, for tests that inject faults. With NULL the
 * options choose it. */
enum status loader_open_with_engine(struct loader **out,
                                    const struct loader_source *sources,
                                    uint32_t source_count,
                                    const struct loader_options *opt,
                                    const struct read_engine_ops *engine,
                                    struct error *err);

/* For loader_stats. */
struct pipeline *loader_pipeline(struct loader *l);

#endif
