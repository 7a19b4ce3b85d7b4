/*
 * emulation: runs the threads of a CUDA kernel on the host, so that the .cu files of kernels/cuda,
 * compiled as C++, can be tested on machines without a GPU.
 *
 * Blocks run one after another. The threads of a block are fibers on one host thread: each runs
 * until it waits for its warp (a shuffle) or its block (__syncthreads), then the next one runs. A
 * kernel that reads what another thread has yet to write would be right by luck in one order: so
 * blocks, warps and lanes can also run from the last to the first, and tests do both. Waiting where
 * not all of the others come (a shuffle in a branch, an early return before it) ends the program
 * with a message.
 *
 * What it cannot show: memory that two blocks share, the chip's rounding of expf and erff, speed.
 *
 * Threading : one host thread, but for memory. Kernels do not launch kernels.
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

/* CUDA's own, of the thread that runs now. */
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
 * A stream is a list of things to do. They are done when they are asked for, or, from
 * emulation_late(true) or with CCSTREAM_EMULATED=late in the environment on, as late as CUDA
 * allows: when the host waits for them, or something that it waits for waits for them. What is used
 * too early, or overwritten too early, is then wrong for certain.
 *
 * Times of events are those of a machine on which the host takes none: a stream begins a thing when
 * the one before it is done and the host has asked for it; a kernel takes 2 us, a copy or fill 1 us
 * and 1 ns for every 32 bytes. */
struct emulation_stream; /* cudaStream_t */

void emulation_late(bool late);
/* Whether what the stream is given now is to be noted instead of done; if so, noting it: later
 * run(cookie), once or, in a graph, as often as that is started, then drop(cookie). */
bool emulation_is_deferred(const struct emulation_stream *stream);
void emulation_note(struct emulation_stream *stream,
                    void (*run)(void *cookie),
                    void (*drop)(void *cookie),
                    void *cookie,
                    size_t took_ns);
/* Something was done at once. */
void emulation_spend(struct emulation_stream *stream, size_t took_ns);
/* Does run(cookie) on a copy of size_bytes, or notes it. */
void emulation_do(struct emulation_stream *stream,
                  void (*run)(void *cookie),
                  const void *cookie,
                  size_t size_bytes,
                  size_t took_ns);
/* Called where a driver refuses what is unsafe between begin and end of a recording (memory,
 * waits). True for the thread that records, whose recording then cannot be ended well. */
bool emulation_spoils(void);
/* Everything that was given to any stream is done. */
void emulation_finish_all(void);
enum { EMULATION_KERNEL_NS = 2000, EMULATION_COPY_NS = 1000, EMULATION_BYTES_PER_NS = 32 };

/* Whether the byte lies in what cudaMallocHost or cudaHostAlloc gave (runtime.c). */
bool emulation_is_pinned(const void *host);
/* Whether there is a library for convolutions (convolution.c); true. */
void emulation_convolutions(bool on);

/* Whether the environment variable CCSTREAM_EMULATED_FAULT is this word: "open" fails to open a
 * device that is listed, "capture" refuses to record. A number N instead fails every launch from
 * the Nth of the process on. */
bool emulation_has_fault(const char *word);

/* From now on, run everything from the last to the first. */
void emulation_backwards(bool backwards);
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
