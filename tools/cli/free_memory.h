/*
 * free_memory: how much memory a process may still use on this machine.
 *
 * Threading : reads files under /proc and /sys; no state.
 */
#ifndef TOOLS_CLI_FREE_MEMORY_H
#define TOOLS_CLI_FREE_MEMORY_H

#include <stdint.h>

/* Available memory and free swap, or the container's limit where that is less. 0: not known. */
uint64_t free_memory_bytes(void);

#endif
