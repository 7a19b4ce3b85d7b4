/*
 * clock: monotonic time for rates, waits and progress; never for anything that is stored.
 */
#ifndef FORMATS_BASE_CLOCK_H
#define FORMATS_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>

int64_t clock_now_ns(void);         /* monotonic */
int64_t clock_thread_cpu_ns(void);  /* CPU time of the calling thread */
int64_t clock_process_cpu_ns(void); /* of all threads */

/* Waits for a condition, for `ms` at most; may return earlier. Requires the mutex. */
void clock_wait_ms(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t ms);

#endif
