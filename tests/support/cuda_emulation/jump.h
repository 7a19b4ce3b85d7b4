/*
 * jump: leaves one stack and continues on another. Unlike swapcontext it makes no system call, and
 * unlike libc's longjmp it does not look for handlers of a cancelled thread.
 *
 * Threading : a place belongs to one host thread.
 */
#ifndef TESTS_SUPPORT_CUDA_EMULATION_JUMP_H
#define TESTS_SUPPORT_CUDA_EMULATION_JUMP_H

#include <ucontext.h>

typedef void *jump_place[5]; /* as __builtin_setjmp demands */

/* Returns when something jumps to `from`. */
void jump_to(jump_place from, jump_place to);

/* The same, to the beginning of a function on a stack that makecontext prepared. */
void jump_begin(jump_place from, const ucontext_t *to);

#endif
