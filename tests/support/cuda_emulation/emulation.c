/*
 * emulation: a thread runs on a stack of its own as soon as it waits, and is entered and left by a
 * jump (jump.h). A thread that returns without having waited leaves its stack to the next one of
 * its warp: no jump at all.
 *
 *     block:  repeat { each warp: repeat { run its ready lanes } while they all meet as a warp }
 *             until every thread has returned; each round ends with all others at the barrier
 */
#include "tests/support/cuda_emulation/emulation.h"

#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cuda_emulation/jump.h"

enum { WARP = 32, MAX_THREADS = 1024, STACK_BYTES = 128 << 10, DIRT = 0xFF };

struct thread {
    struct emulation_size index;
    bool begun, done;
    uint8_t turn;                   /* of emulation_exchange, 0 or 1 */
    enum emulation_meeting meeting; /* what it waits for */
};

/* Of a thread that has waited. */
struct waiting {
    jump_place place;
    uint64_t given[2]; /* to emulation_exchange, by turn */
};

struct stack {
    jump_place place; /* where it begins the next thread */
    struct stack *next_free;
};

struct emulation_size threadIdx, blockIdx, blockDim, gridDim;

static struct {
    struct thread threads[MAX_THREADS];
    struct waiting waiting[MAX_THREADS];
    struct stack *free;
    jump_place scheduler;
    unsigned running, count;
    unsigned first,
        lane; /* of the warp that runs: its first thread; which of its lanes, in order */
    bool backwards, sample;
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

/* The i-th of `count` in the chosen order. */
static unsigned in_order(unsigned i, unsigned count) {
    return state.backwards ? count - 1 - i : i;
}

/* Steps to the next lane of the warp that can run; false: there is none. */
static bool next_lane(void) {
    while (++state.lane < WARP) {
        state.running = state.first + in_order(state.lane, WARP);
        const struct thread *t = &state.threads[state.running];
        if (!t->done && t->meeting == EMULATION_NONE) {
            threadIdx = t->index;
            return true;
        }
    }
    return false;
}

/* Begins threads, one after another. A thread that waits keeps this stack until it has returned. */
static void stack_main(void) {
    struct stack *stack = state.free;
    for (;;) {
        state.free = stack->next_free;
        bool has_next;
        do {
            state.threads[state.running].begun = true;
            state.body(state.cookie);
            state.threads[state.running].done = true;
            has_next = next_lane();
        } while (has_next && !state.threads[state.running].begun);
        stack->next_free = state.free;
        state.free = stack;
        jump_to(stack->place, has_next ? state.waiting[state.running].place : state.scheduler);
    }
}

/* Adds a stack to the free ones and begins the running thread there. */
static void stack_make(jump_place from) {
    ucontext_t context;
    struct stack *stack = malloc(sizeof *stack + STACK_BYTES); /* never freed */
    if (stack == NULL) {
        emulation_stop("no memory for a stack");
    }
    stack->next_free = NULL;
    state.free = stack;
    (void)getcontext(&context);
    context.uc_stack.ss_sp = stack + 1;
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = NULL;
    makecontext(&context, stack_main, 0);
    jump_begin(from, &context);
}

/* Enters the running thread. */
static void enter(jump_place from) {
    if (state.threads[state.running].begun) {
        jump_to(from, state.waiting[state.running].place);
    } else if (state.free != NULL) {
        jump_to(from, state.free->place);
    } else {
        stack_make(from);
    }
}

void emulation_wait(enum emulation_meeting meeting) {
    struct waiting *own = &state.waiting[state.running];
    state.threads[state.running].meeting = meeting;
    if (next_lane()) {
        enter(own->place);
    } else {
        jump_to(own->place, state.scheduler);
    }
}

void emulation_full_warp(unsigned mask) {
    if (mask != 0xffffffffu) {
        emulation_stop("only masks of the whole warp are known here");
    }
}

uint64_t emulation_exchange(uint64_t value, unsigned from_lane) {
    /* Two places in turn: a lane that gives its next value does not overwrite one that others have
     * not read yet, and before its third value all have met again. */
    const unsigned turn = state.threads[state.running].turn ^= 1;
    state.waiting[state.running].given[turn] = value;
    const unsigned first = state.running / WARP * WARP;
    emulation_wait(EMULATION_WARP);
    return state.waiting[first + from_lane].given[turn];
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

/* Runs the ready lanes of a warp; true when all lanes met as a warp and are ready again. */
static bool warp_round(unsigned first) {
    struct thread *threads = &state.threads[first];
    state.first = first;
    state.lane = UINT_MAX; /* before the first */
    if (next_lane()) {
        enter(state.scheduler); /* returns after the last */
    }
    unsigned met = 0;
    for (unsigned i = 0; i < WARP; i++) {
        met += !threads[i].done && threads[i].meeting == EMULATION_WARP;
    }
    if (met == 0) {
        return false;
    }
    if (met != WARP) {
        emulation_stop("a shuffle that not all lanes of the warp reach");
    }
    for (unsigned i = 0; i < WARP; i++) {
        threads[i].meeting = EMULATION_NONE;
    }
    return true;
}

static void block_run(const struct emulation_size *size) {
    struct emulation_size index = {0, 0, 0};
    for (unsigned i = 0; i < state.count; i++) {
        state.threads[i] = (struct thread){.index = index, .meeting = EMULATION_NONE};
        if (++index.x == size->x) {
            index.x = 0;
            if (++index.y == size->y) {
                index.y = 0;
                index.z++;
            }
        }
    }
    unsigned left = state.count;
    while (left > 0) {
        for (unsigned i = 0; i < state.count / WARP; i++) {
            while (warp_round(in_order(i, state.count / WARP) * WARP)) {
            }
        }
        left = 0;
        for (unsigned i = 0; i < state.count; i++) {
            state.threads[i].meeting = EMULATION_NONE;
            left += !state.threads[i].done;
        }
        if (left > 0 && left < state.count) {
            emulation_stop("a barrier that not all threads of the block reach");
        }
    }
}

void emulation_backwards(bool backwards) {
    state.backwards = backwards;
}

void emulation_sample_blocks(bool sample) {
    state.sample = sample;
}

static bool is_sample(uint64_t i, uint64_t blocks) {
    return !state.sample || i < 2 || i + 2 >= blocks || i == blocks / 2;
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
        if (!is_sample(i, blocks)) {
            continue;
        }
        blockIdx =
            (struct emulation_size){(unsigned)(b % grid->x), (unsigned)(b / grid->x % grid->y),
                                    (unsigned)(b / grid->x / grid->y)};
        block_run(block);
    }
    return true;
}
