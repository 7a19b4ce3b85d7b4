/*
 * clock: monotonic time for rates, waits and progress; never for anything that is stored.
 */
#ifndef FORMATS_BASE_CLOCK_H
#define FORMATS_BASE_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

int64_t clock_now_ns(void);        /* monotonic */
int64_t clock_thread_cpu_ns(void); /* CPU time of the calling thread */

#ifdef __cplusplus
}
#endif

#endif
