/*
 * loader_internal: the loader as a whole, for the files that open, start, stop and close it.
 *
 * Threading : everything except the pipeline belongs to the thread that calls the loader.
 */
#ifndef LOADER_LOADER_INTERNAL_H
#define LOADER_LOADER_INTERNAL_H

#include "loader/pipeline_internal.h"

struct loader_thread {
    struct loader *loader;
    pthread_t thread;
    struct reader *reader;    /* of a reader */
    struct sample_work *work; /* of a decoder; neither: the quarantine thread */
    bool started;
};

struct loader {
    struct pipeline p;
    struct sources *sources;
    struct classes *classes; /* LOADER_ORDER_CLASSES; else NULL */
    struct tokenizer *tokenizer;
    struct loader_thread *threads; /* (thread_count) readers, decoders, the quarantine thread */
    uint32_t thread_count;
    uint32_t cached_count; /* sources with a token cache that fits */
    uint8_t *read_memory;
    bool has_sync; /* lock and conditions exist */
    bool is_noisy; /* abandoned reads may still write to read_memory: it is never freed */
};

/* Starts all threads at take_step. Requires that none runs. Returns OK or what starting a thread
 * returned; then the pipeline has failed. */
enum status threads_start(struct loader *l, struct error *err);

/* Ends all threads and reads within a time limit. False when a thread does not return; with
 * `for_good` the loader then belongs to the threads that remain. */
bool threads_stop(struct loader *l, bool for_good);

/* Releases the memory of the batches. */
void threads_release_batches(struct pipeline *p);

/* Frees everything except the memory of the batches. Requires that no thread runs. */
void loader_free(struct loader *l);

#endif
