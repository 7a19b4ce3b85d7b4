/*
 * executor: a library that runs kernels instead of their C++ bodies, named by the environment
 * variable CCSTREAM_PTX. tests/support/ptx makes such libraries from the code that nvcc generates
 * and checks each access of a kernel; tests/ptx/run uses them.
 *
 * Threading : kernels run on one host thread; memory may be announced by several.
 */
#ifndef TESTS_SUPPORT_CUDA_EMULATION_EXECUTOR_H
#define TESTS_SUPPORT_CUDA_EMULATION_EXECUTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/cuda_emulation/emulation.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EXECUTOR_PARAMETER_BYTES = 4096 };

/* What the library uses of the emulation. */
struct executor_host {
    void (*wait)(enum emulation_meeting meeting);
    uint64_t (*exchange)(uint64_t value, unsigned from_lane);
    const struct emulation_size *thread, *block, *threads, *blocks; /* of the current thread */
};

/* Memory that the kernels of one operator may access. */
struct executor_operand {
    const char *name;
    const void *data;
    size_t size_bytes; /* SIZE_MAX: to the end of its allocation */
    bool is_written;
};

struct executor {
    /* The kernel of a mangled name; NULL: it has none, and the C++ body runs. */
    const void *(*find)(const char *name);
    /* Memory that exists from now on; within memory that exists already, all that may be accessed
     * there. */
    void (*appears)(const void *data, size_t size_bytes);
    void (*disappears)(const void *data);
    /* A number above 0 for what the next launches may access. */
    unsigned (*operands)(const char *op, const struct executor_operand *all, int count);
    /* One launch: the parameters by index, the begin, then every thread. */
    void (*parameter)(const void *kernel,
                      unsigned char *room,
                      int index,
                      const void *value,
                      size_t size_bytes);
    void (*begin)(const void *kernel, int parameters_count, unsigned operands);
    void (*thread)(const void *kernel, const unsigned char *room);
};

/* The symbol of the library. */
typedef const struct executor *executor_open_function(const struct executor_host *host);
#define EXECUTOR_SYMBOL "ptx_executor"

/* NULL: C++ bodies. Ends the program where the library cannot be opened. */
const struct executor *executor(void);
/* Kernel of a host function, NULL where its body runs. */
const void *executor_kernel(const void *host_function);
/* What launches from now on may access; noted with those that run later. */
unsigned executor_operands_now(void);
void executor_operands_set(unsigned operands);

#ifdef __cplusplus
}
#endif

#endif
