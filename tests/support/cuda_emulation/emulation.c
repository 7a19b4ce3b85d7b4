/*
 * emulation: fibers. ucontext makes each once; from then on it is entered and left by _longjmp,
 * which unlike swapcontext makes no system call. A thread that never waits costs one jump there and
 * one back.
 *
 *     block:  repeat { each warp: repeat { run its ready lanes } while they all meet as a warp }
 *             until every thread has returned; each round ends with all others at the barrier
 */
#include "tests/support/cuda_emulation/emulation.h"

#include <link.h>
#include <setjmp.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum {
    WARP = 32,
    MAX_THREADS = 1024,
    STACK_BYTES = 128 << 10,
    MAX_COPIES = 256,             /* of a thread, on their way */
    MAX_SHARED_BYTES = 227 << 10, /* of a block on Hopper */
    GUARD_BYTES = 128,
    DIRT = 0xFF,
    GUARD = 0xA5,
    FIRST_ADDRESS = 1024, /* of shared memory: what lies before is the chip's */
    COPY_BYTES = 16
};

struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    size_t size_bytes;
};

struct fiber {
    jmp_buf place; /* where it waits */
    void *stack;   /* NULL: not made yet */
    bool done;
    enum emulation_meeting meeting; /* what it waits for */
    struct emulation_size index;
    unsigned turn;     /* of emulation_exchange, 0 or 1 */
    uint64_t given[2]; /* to it, by turn */
    struct copy copies[MAX_COPIES];
    unsigned copies_count, groups_count;
    unsigned groups[MAX_COPIES]; /* how many copies were asked for when each group ended */
    unsigned proxy_fences;
};

struct emulation_size threadIdx, blockIdx, blockDim, gridDim;

static struct {
    struct fiber fibers[MAX_THREADS];
    jmp_buf scheduler;
    unsigned running, count;
    bool backwards;
    uint64_t launches_count, blocks_count;
    void (*body)(void *cookie);
    void *cookie;
} state;

static struct {
    unsigned char before[GUARD_BYTES];
    alignas(1024) unsigned char at[MAX_SHARED_BYTES];
    unsigned char after[GUARD_BYTES];
    size_t size_bytes;
    unsigned char *variables, *variables_end; /* __shared__ ones of all kernels */
    const void *shared_pointers[MAX_THREADS];
    struct {
        unsigned thread, fences; /* of it, before the copy landed; thread counted from 1 */
    } landed[MAX_SHARED_BYTES / COPY_BYTES];
} shared;

void emulation_stop(const char *what) {
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
    f->stack = malloc(STACK_BYTES); /* kept for the life of the program */
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
    /* Two places in turn: who gives anew leaves alone what others have not taken yet, and the third
     * time all have met in between. */
    const unsigned turn = f->turn ^= 1;
    f->given[turn] = value;
    const unsigned first = state.running / WARP * WARP;
    emulation_wait(EMULATION_WARP);
    return state.fibers[first + from_lane].given[turn];
}

const void *const *emulation_share(const void *mine) {
    const unsigned first = state.running / WARP * WARP;
    shared.shared_pointers[state.running] = mine;
    emulation_wait(EMULATION_WARP);
    return shared.shared_pointers + first;
}

/* ---- shared memory and copies into it ---- */

unsigned char *emulation_shared_of_launch(void) {
    return shared.at;
}

void emulation_check_shared(const void *p, size_t size_bytes) {
    const uintptr_t at = (uintptr_t)p;
    const uintptr_t begin = (uintptr_t)shared.at;
    if (at % size_bytes != 0 || at < begin || at + size_bytes > begin + shared.size_bytes) {
        emulation_stop("an address that is not the block's shared memory, or not aligned");
    }
}

static bool is_within(const void *p, const unsigned char *begin, const unsigned char *end) {
    return (uintptr_t)p >= (uintptr_t)begin && (uintptr_t)p < (uintptr_t)end;
}

void emulation_check_global(const void *p, size_t size_bytes) {
    if (is_within(p, shared.at, shared.at + MAX_SHARED_BYTES) ||
        is_within(p, shared.variables, shared.variables_end)) {
        emulation_stop("a store that is for global memory alone goes to shared memory");
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

static void land(const struct copy *c) {
    const size_t place = (size_t)((unsigned char *)c->to - shared.at) / COPY_BYTES;
    shared.landed[place].thread = state.running + 1;
    shared.landed[place].fences = state.fibers[state.running].proxy_fences;
    if (c->from != NULL) {
        memcpy(c->to, c->from, c->size_bytes);
    } else {
        memset(c->to, 0, c->size_bytes);
    }
}

void emulation_copy(void *to, const void *from, size_t size_bytes) {
    struct fiber *f = &state.fibers[state.running];
    const struct copy c = {to, from, size_bytes};
    emulation_check_shared(to, COPY_BYTES);
    if ((uintptr_t)from % size_bytes != 0) {
        emulation_stop("an asynchronous copy from an address that is not aligned");
    }
    if (state.backwards) {
        land(&c);
    } else if (f->copies_count < MAX_COPIES) {
        f->copies[f->copies_count++] = c;
    } else {
        emulation_stop("too many asynchronous copies on their way");
    }
}

void emulation_put_chunk(void *to, const void *from, size_t size_bytes) {
    const struct copy c = {to, from, size_bytes};
    emulation_check_shared(to, COPY_BYTES);
    land(&c);
}

void emulation_copy_group(void) {
    struct fiber *f = &state.fibers[state.running];
    if (f->groups_count == MAX_COPIES) {
        emulation_stop("too many groups of asynchronous copies on their way");
    }
    f->groups[f->groups_count++] = f->copies_count;
}

void emulation_copy_wait(unsigned left) {
    struct fiber *f = &state.fibers[state.running];
    if (f->groups_count <= left) {
        return;
    }
    const unsigned done = f->groups_count - left;
    const unsigned landed = f->groups[done - 1];
    for (unsigned i = 0; i < landed; i++) {
        land(&f->copies[i]);
    }
    f->copies_count -= landed;
    memmove(f->copies, f->copies + landed, f->copies_count * sizeof f->copies[0]);
    f->groups_count = left;
    memmove(f->groups, f->groups + done, left * sizeof f->groups[0]);
    for (unsigned i = 0; i < left; i++) {
        f->groups[i] -= landed;
    }
}

uint32_t emulation_shared_address(const void *p) {
    emulation_check_shared(p, 1);
    return FIRST_ADDRESS + (uint32_t)((const unsigned char *)p - shared.at);
}

void emulation_proxy_fence(void) {
    state.fibers[state.running].proxy_fences++;
}

const void *emulation_shared_seen_by_products(uint32_t address, size_t size_bytes) {
    if (address < FIRST_ADDRESS || address - FIRST_ADDRESS + size_bytes > shared.size_bytes) {
        emulation_stop("a product that reads beside the block's shared memory");
    }
    const size_t at = address - FIRST_ADDRESS;
    const unsigned thread = shared.landed[at / COPY_BYTES].thread;
    if (thread == 0) {
        emulation_stop("a product that reads what was never copied");
    }
    if (state.fibers[thread - 1].proxy_fences == shared.landed[at / COPY_BYTES].fences) {
        emulation_stop("a product that reads a copy without a fence of the proxy in between");
    }
    return shared.at + at;
}

uint64_t emulation_block(void) {
    return state.blocks_count;
}

bool emulation_is_backwards(void) {
    return state.backwards;
}

static void shared_begin(void) {
    memset(shared.landed, 0, shared.size_bytes / COPY_BYTES * sizeof shared.landed[0]);
    memset(shared.at, DIRT, shared.size_bytes);
    memset(shared.before, GUARD, GUARD_BYTES);
    memset(shared.at + shared.size_bytes, GUARD,
           shared.size_bytes + GUARD_BYTES <= MAX_SHARED_BYTES ? GUARD_BYTES : 0);
    memset(shared.after, GUARD, GUARD_BYTES);
}

static bool is_guard(const unsigned char *p) {
    for (unsigned i = 0; i < GUARD_BYTES; i++) {
        if (p[i] != GUARD) {
            return false;
        }
    }
    return true;
}

static void shared_end(void) {
    const bool inside = shared.size_bytes + GUARD_BYTES <= MAX_SHARED_BYTES;
    if (!is_guard(shared.before) || !is_guard(shared.after) ||
        (inside && !is_guard(shared.at + shared.size_bytes))) {
        emulation_stop("memory beside the block's shared memory was written");
    }
}

/* The i-th of `count` in the order that was asked for. */
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
        state.fibers[i].copies_count = 0;
        state.fibers[i].groups_count = 0;
        state.fibers[i].proxy_fences = 0;
    }
    state.blocks_count++;
    shared_begin();
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
    shared_end();
}

void emulation_backwards(bool backwards) {
    state.backwards = backwards;
}

uint64_t emulation_launches_count(void) {
    return state.launches_count;
}

bool emulation_launch(const struct emulation_size *grid,
                      const struct emulation_size *block,
                      size_t shared_bytes,
                      void (*body)(void *cookie),
                      void *cookie) {
    const uint64_t threads = (uint64_t)block->x * block->y * block->z;
    const uint64_t blocks = (uint64_t)grid->x * grid->y * grid->z;
    if (threads == 0 || threads > MAX_THREADS || threads % WARP != 0 || blocks == 0 ||
        shared_bytes > MAX_SHARED_BYTES || grid->x > 0x7fffffffu || grid->y > 65535 ||
        grid->z > 65535) {
        return false;
    }
    state.launches_count++;
    find_variables();
    if (shared.variables != NULL) {
        memset(shared.variables, DIRT, (size_t)(shared.variables_end - shared.variables));
    }
    state.count = (unsigned)threads;
    shared.size_bytes = shared_bytes;
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
