/*
 * jump: by the compiler's own setjmp, which saves the place alone; the registers that a call must
 * keep are saved because jump_to is a function. So no caller may be compiled together with it: one
 * in this file, or one that link-time optimisation inlines, could keep values in other registers.
 */
#include "tests/support/cuda_emulation/jump.h"

#include <stdlib.h>

/* Not in the function that sets the place: GCC would drop the place. */
static __attribute__((noinline, noreturn)) void leave(jump_place to) {
    __builtin_longjmp(to, 1);
}

void jump_to(jump_place from, jump_place to) {
    if (__builtin_setjmp(from) == 0) {
        leave(to);
    }
}

void jump_begin(jump_place from, const ucontext_t *to) {
    if (__builtin_setjmp(from) == 0) {
        (void)setcontext(to);
        abort();
    }
}
