/*
 * emulation: runs the threads of a CUDA kernel on the host, so that the .cu files of kernels/cuda,
 * compiled as C++, can be tested on machines without a GPU.
 *
 * Blocks run one after another. The threads of a block are fibers on one host thread: each runs
 * until it waits for its warp (a shuffle) or its block (__syncthreads), then the next one runs. A
 * kernel that reads what another thread has not written yet may be right by luck in one order, so
 * blocks, warps and lanes can also run from the last to the first, and tests do both. A wait that
 * not all other threads reach (a shuffle in a branch, an early return before it) ends the program
 * with a message.
 *
 * What it cannot show: memory that two blocks share, the GPU's rounding of expf and erff, speed.
 *
 * Threading : one host thread, except for memory. Kernels do not launch kernels.
 */
#ifndef TESTS_SUPPORT_CUDA_EMULATION_EMULATION_H
#define TESTS_SUPPORT_CUDA_EMULATION_EMULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct emulation_size {
    unsigned x, y, z;
};

/* CUDA's variables of the current thread. */
extern struct emulation_size threadIdx, blockIdx, blockDim, gridDim;

enum emulation_meeting { EMULATION_NONE, EMULATION_WARP, EMULATION_BLOCK };

/* Called inside a kernel. */
void emulation_wait(enum emulation_meeting meeting);
void emulation_full_warp(unsigned mask); /* ends the program unless all 32 lanes are named */
uint64_t emulation_exchange(uint64_t value, unsigned from_lane); /* the value lane `from` gave */

/* Ends the program where [p, p + size_bytes) is shared memory, or p no multiple of size_bytes. */
void emulation_check_global(const void *p, size_t size_bytes);
/* ---- queues (queue.c) ----
 *
 * A stream is a list of tasks. A task runs when it is submitted or, after emulation_late(true) or
 * with CCSTREAM_EMULATED=late in the environment, as late as CUDA allows: when the host waits for
 * it, directly or through another task. Data that is used or overwritten too early is then
 * certainly wrong.
 *
 * Event times assume a host that takes no time: a task starts when the previous one of its stream
 * is done and the host has submitted it; a kernel takes 2 us, a copy or fill 1 us and 1 ns for
 * every 32 bytes. */
struct emulation_stream; /* cudaStream_t */

/* What every stream begins with: all that a library in a file of its own (tests/support/nccl) has
 * of the emulation. */
struct emulation_stream_head {
    /* emulation_do */
    void (*submit)(struct emulation_stream *stream,
                   void (*run)(void *cookie),
                   const void *cookie,
                   size_t size_bytes,
                   size_t took_ns);
    bool (*is_captured)(const struct emulation_stream *stream);
};

void emulation_late(bool late);
/* The same, but the tasks of all streams but the first run when they are submitted: a stream that
 * does not wait for the first one is then certainly too early. */
void emulation_apart(bool apart);
/* Whether tasks of the stream are stored now instead of run. emulation_note stores one: run(cookie)
 * is called later, once or, in a graph, at each launch; then drop(cookie). */
bool emulation_is_deferred(const struct emulation_stream *stream);
void emulation_note(struct emulation_stream *stream,
                    void (*run)(void *cookie),
                    void (*drop)(void *cookie),
                    void *cookie,
                    size_t took_ns);
/* Accounts for a task that ran at once. */
void emulation_spend(struct emulation_stream *stream, size_t took_ns);
/* Runs run(cookie) on a copy of size_bytes, or stores it. */
void emulation_do(struct emulation_stream *stream,
                  void (*run)(void *cookie),
                  const void *cookie,
                  size_t size_bytes,
                  size_t took_ns);
/* Called by functions that a driver refuses during a capture (memory, waits). True for the thread
 * that captures; its capture is then invalid. */
bool emulation_spoils(void);
/* Runs all tasks of all streams. */
void emulation_finish_all(void);
enum { EMULATION_KERNEL_NS = 2000, EMULATION_COPY_NS = 1000, EMULATION_BYTES_PER_NS = 32 };

/* Whether the address is in memory of cudaMallocHost or cudaHostAlloc (runtime.c). */
bool emulation_is_pinned(const void *host);
/* Sets whether there is a library for convolutions (convolution.c); default true. */
void emulation_convolutions(bool on);

/* For executor.h: kernels that are launched directly may access this memory; within an allocation,
 * nothing else of it. */
void emulation_announce(const void *data, size_t size_bytes);
void emulation_forget(const void *data); /* before it is freed, where other memory may follow */

/* Whether the environment variable CCSTREAM_EMULATED_FAULT is this word: "open" fails to open a
 * device that is listed, "capture" refuses to capture. A number N instead fails every launch from
 * the Nth of the process on. */
bool emulation_has_fault(const char *word);

/* Sets whether everything runs from the last to the first. */
void emulation_backwards(bool backwards);
/* Sets whether of each launch only the first two blocks, the middle one and the last two run. */
void emulation_sample_blocks(bool sample);
/* Kernels launched since the program began. */
uint64_t emulation_launches_count(void);

/* Calls body(cookie) once for each thread of each block. False, with nothing run, when a GPU would
 * refuse the sizes: none or too many, or a block that is not whole warps (a rule of ours). */
bool emulation_launch(const struct emulation_size *grid,
                      const struct emulation_size *block,
                      void (*body)(void *cookie),
                      void *cookie);

#ifdef __cplusplus
}
#endif

#endif
