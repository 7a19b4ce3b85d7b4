/*
 * emulation: fibers. ucontext makes each once; then it is entered and left by _longjmp, which
 * unlike swapcontext makes no system call. A thread that never waits costs one jump there and one
 * back.
 *
 *     block:  repeat { each warp: repeat { run its ready lanes } while they all meet as a warp }
 *             until every thread has returned; each round ends with all others at the barrier
 */
#include "tests/support/cuda_emulation/emulation.h"

#include <link.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { WARP = 32, MAX_THREADS = 1024, STACK_BYTES = 128 << 10, DIRT = 0xFF };

struct fiber {
    jmp_buf place; /* where it waits */
    void *stack;   /* NULL: not made yet */
    bool done;
    enum emulation_meeting meeting; /* what it waits for */
    struct emulation_size index;
    unsigned turn;     /* of emulation_exchange, 0 or 1 */
    uint64_t given[2]; /* to it, by turn */
};

struct emulation_size threadIdx, blockIdx, blockDim, gridDim;

static struct {
    struct fiber fibers[MAX_THREADS];
    jmp_buf scheduler;
    unsigned running, count;
    bool backwards;
    uint64_t launches_count;
    void (*body)(void *cookie);
    void *cookie;
} state;

static struct {
    unsigned char *variables, *variables_end; /* __shared__ ones of all kernels */
} shared;

static void emulation_stop(const char *what) {
    (void)fprintf(stderr, "emulation: block (%u,%u,%u), thread %u: %s\n", blockIdx.x, blockIdx.y,
                  blockIdx.z, state.running, what);
    abort();
}

/* Back to the scheduler, until it runs this fiber again. */
static void leave(struct fiber *f) {
    if (_setjmp(f->place) == 0) {
        _longjmp(state.scheduler, 1);
    }
}

static void fiber_main(void) {
    for (;;) {
        struct fiber *f = &state.fibers[state.running];
        state.body(state.cookie);
        f->done = true;
        leave(f);
    }
}

/* On its own stack for the first time. */
static void fiber_make(struct fiber *f) {
    ucontext_t context;
    f->stack = malloc(STACK_BYTES); /* never freed */
    if (f->stack == NULL) {
        emulation_stop("no memory for a stack");
    }
    (void)getcontext(&context);
    context.uc_stack.ss_sp = f->stack;
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = NULL;
    makecontext(&context, fiber_main, 0);
    (void)setcontext(&context);
}

static void fiber_run(unsigned i) {
    struct fiber *f = &state.fibers[i];
    state.running = i;
    threadIdx = f->index;
    if (_setjmp(state.scheduler) != 0) {
        return;
    }
    if (f->stack != NULL) {
        _longjmp(f->place, 1);
    }
    fiber_make(f);
}

void emulation_wait(enum emulation_meeting meeting) {
    struct fiber *f = &state.fibers[state.running];
    f->meeting = meeting;
    leave(f);
}

void emulation_full_warp(unsigned mask) {
    if (mask != 0xffffffffu) {
        emulation_stop("only masks of the whole warp are known here");
    }
}

uint64_t emulation_exchange(uint64_t value, unsigned from_lane) {
    struct fiber *f = &state.fibers[state.running];
    /* Two places in turn: a lane that writes again does not overwrite values that others have not
     * read yet; before the third write all lanes have met. */
    const unsigned turn = f->turn ^= 1;
    f->given[turn] = value;
    const unsigned first = state.running / WARP * WARP;
    emulation_wait(EMULATION_WARP);
    return state.fibers[first + from_lane].given[turn];
}

/* ---- shared memory ---- */

static bool is_within(const void *p, const unsigned char *begin, const unsigned char *end) {
    return (uintptr_t)p >= (uintptr_t)begin && (uintptr_t)p < (uintptr_t)end;
}

void emulation_check_global(const void *p, size_t size_bytes) {
    if (is_within(p, shared.variables, shared.variables_end)) {
        emulation_stop("a store for global memory only goes to shared memory");
    }
    if ((uintptr_t)p % size_bytes != 0) {
        emulation_stop("a store to an address that is not a multiple of its size");
    }
}

/* The thread-local memory of the program or module that this file is part of. */
static int find_in(struct dl_phdr_info *info, size_t size, void *cookie) {
    bool ours = false;
    size_t size_bytes = 0;
    (void)size;
    (void)cookie;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        const unsigned char *begin = (const unsigned char *)info->dlpi_addr + part->p_vaddr;
        ours =
            ours || (part->p_type == PT_LOAD && is_within(&shared, begin, begin + part->p_memsz));
        size_bytes = part->p_type == PT_TLS ? part->p_memsz : size_bytes;
    }
    if (ours && info->dlpi_tls_data != NULL) {
        shared.variables = info->dlpi_tls_data;
        shared.variables_end = shared.variables + size_bytes;
    }
    return ours;
}

/* Of this host thread: NULL to NULL in a module whose variables it has not touched yet. */
static void find_variables(void) {
    shared.variables = NULL;
    shared.variables_end = NULL;
    (void)dl_iterate_phdr(find_in, NULL);
}

/* The i-th of `count` in the chosen order. */
static unsigned in_order(unsigned i, unsigned count) {
    return state.backwards ? count - 1 - i : i;
}

/* Runs the ready lanes of a warp; true when all lanes met as a warp and are ready again. */
static bool warp_round(unsigned first) {
    unsigned met = 0;
    for (unsigned i = 0; i < WARP; i++) {
        const unsigned lane = first + in_order(i, WARP);
        struct fiber *f = &state.fibers[lane];
        if (!f->done && f->meeting == EMULATION_NONE) {
            fiber_run(lane);
        }
        met += !f->done && f->meeting == EMULATION_WARP;
    }
    if (met == 0) {
        return false;
    }
    if (met != WARP) {
        emulation_stop("a shuffle that not all lanes of the warp reach");
    }
    for (unsigned i = 0; i < WARP; i++) {
        state.fibers[first + i].meeting = EMULATION_NONE;
    }
    return true;
}

static void block_run(const struct emulation_size *size) {
    for (unsigned i = 0; i < state.count; i++) {
        state.fibers[i].index =
            (struct emulation_size){i % size->x, i / size->x % size->y, i / (size->x * size->y)};
        state.fibers[i].done = false;
        state.fibers[i].turn = 0;
        state.fibers[i].meeting = EMULATION_NONE;
    }
    unsigned left = state.count;
    while (left > 0) {
        for (unsigned i = 0; i < state.count / WARP; i++) {
            while (warp_round(in_order(i, state.count / WARP) * WARP)) {
            }
        }
        left = 0;
        for (unsigned i = 0; i < state.count; i++) {
            state.fibers[i].meeting = EMULATION_NONE;
            left += !state.fibers[i].done;
        }
        if (left > 0 && left < state.count) {
            emulation_stop("a barrier that not all threads of the block reach");
        }
    }
}

void emulation_backwards(bool backwards) {
    state.backwards = backwards;
}

uint64_t emulation_launches_count(void) {
    return state.launches_count;
}

bool emulation_has_fault(const char *word) {
    const char *fault = getenv("CCSTREAM_EMULATED_FAULT");
    return fault != NULL && strcmp(fault, word) == 0;
}

static bool launches_fail(void) {
    const char *fault = getenv("CCSTREAM_EMULATED_FAULT");
    return fault != NULL && fault[0] >= '0' && fault[0] <= '9' &&
           state.launches_count >= strtoull(fault, NULL, 10);
}

bool emulation_launch(const struct emulation_size *grid,
                      const struct emulation_size *block,
                      void (*body)(void *cookie),
                      void *cookie) {
    const uint64_t threads = (uint64_t)block->x * block->y * block->z;
    const uint64_t blocks = (uint64_t)grid->x * grid->y * grid->z;
    if (threads == 0 || threads > MAX_THREADS || threads % WARP != 0 || blocks == 0 ||
        grid->x > 0x7fffffffu || grid->y > 65535 || grid->z > 65535 || launches_fail()) {
        return false;
    }
    state.launches_count++;
    find_variables();
    if (shared.variables != NULL) {
        memset(shared.variables, DIRT, (size_t)(shared.variables_end - shared.variables));
    }
    state.count = (unsigned)threads;
    state.body = body;
    state.cookie = cookie;
    blockDim = *block;
    gridDim = *grid;
    for (uint64_t i = 0; i < blocks; i++) {
        const uint64_t b = state.backwards ? blocks - 1 - i : i;
        blockIdx =
            (struct emulation_size){(unsigned)(b % grid->x), (unsigned)(b / grid->x % grid->y),
                                    (unsigned)(b / grid->x / grid->y)};
        block_run(block);
    }
    return true;
}
