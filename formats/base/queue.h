/*
 * queue: a bounded queue of pointers between threads; every wait has a limit.
 *
 * Threading : internally synchronised; any number of producers and consumers.
 * Ownership : the queue owns its slots, never the objects in them.
 * Shutdown  : queue_close wakes everybody; pops drain what is left, then give END; pushes give END.
 */
#ifndef FORMATS_BASE_QUEUE_H
#define FORMATS_BASE_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct queue;

enum { QUEUE_MAX_CAPACITY = 1 << 20 };

/* capacity_count in [1, QUEUE_MAX_CAPACITY]. Returns OK, NOMEM or INVALID. */
enum status queue_create(struct queue **out, size_t capacity_count, struct error *err);
void queue_destroy(struct queue *q); /* accepts NULL; no thread may be inside */

/* Waits up to timeout_ms (-1: for ever, 0: not at all). Returns OK, AGAIN on time-out, END once
 * closed. */
enum status queue_push(struct queue *q, void *item, int64_t timeout_ms);

/* Returns OK and *item, AGAIN on time-out, END once closed and empty. */
enum status queue_pop(struct queue *q, void **item, int64_t timeout_ms);

void queue_close(struct queue *q);
size_t queue_depth(struct queue *q);

#ifdef __cplusplus
}
#endif

#endif
