/*
 * free_memory: how much of the machine's memory this process may still use.
 *
 * Threading : pure functions, except that they read files.
 * Untrusted : their bytes.
 */
#ifndef TOOLS_CLI_FREE_MEMORY_H
#define TOOLS_CLI_FREE_MEMORY_H

#include <stdint.h>

/* Available memory and free swap, or the limit of this process's control group (version 1 or 2) or
 * of one above it if that is less. 0: not known. `root`: "", or the folder of proc and sys in
 * tests. */
uint64_t free_memory_bytes(const char *root);

#endif
