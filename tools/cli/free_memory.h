/*
 * free_memory: what this process may still take of the machine's memory.
 *
 * Threading : pure functions, except that they read files.
 * Untrusted : their bytes.
 */
#ifndef TOOLS_CLI_FREE_MEMORY_H
#define TOOLS_CLI_FREE_MEMORY_H

#include <stdint.h>

/* Available memory and free swap, or the limit of this process's control group (version 1 or 2) or
 * of one above it where that is less. 0: not known. `root`: "", or a folder in whose place tests
 * have proc and sys. */
uint64_t free_memory_bytes(const char *root);

#endif
