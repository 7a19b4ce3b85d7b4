/* Clocks of the operating system that exist on every Linux, so there is no failure to report. */
#include "formats/base/clock.h"

#include <time.h>

static int64_t read_ns(clockid_t id) {
    struct timespec t = {0};
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_nsec;
}

int64_t clock_now_ns(void) {
    return read_ns(CLOCK_MONOTONIC);
}

int64_t clock_thread_cpu_ns(void) {
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

int64_t clock_process_cpu_ns(void) {
    return read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

void clock_wait_ms(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t ms) {
    int64_t end_ns = clock_now_ns() + ms * 1000000;
    const struct timespec end = {.tv_sec = end_ns / 1000000000, .tv_nsec = end_ns % 1000000000};
    pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &end);
}
