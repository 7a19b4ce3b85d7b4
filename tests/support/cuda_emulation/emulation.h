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
 * Threading : one host thread. Kernels do not launch kernels.
 */
#ifndef TESTS_SUPPORT_CUDA_EMULATION_EMULATION_H
#define TESTS_SUPPORT_CUDA_EMULATION_EMULATION_H

#include <stdbool.h>
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
