/*
 * child_process: the environment and the executable file of a child process.
 *
 * Threading : reads the environment, which no thread may change meanwhile.
 * Ownership : the caller frees the environment, which is one allocation.
 * Untrusted : the current folder, which is removed from all search paths.
 */
#ifndef FORMATS_BASE_CHILD_PROCESS_H
#define FORMATS_BASE_CHILD_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

/* This process's environment for execve, without variables that name code to run (PYTHONSTARTUP,
 * BASH_ENV, ...), and without empty and relative entries of PATH, PYTHONPATH, LD_LIBRARY_PATH and
 * similar lists. Unless `with_secrets`, also without keys, tokens and passwords (AWS_..., HF_TOKEN,
 * ...), proxy addresses, and the SSH agent's address. NULL: out of memory. */
char **child_environment(bool with_secrets);

/* Finds the executable `name`: unchanged if it contains a slash, else in the absolute folders of
 * PATH. Returns false if there is none. */
bool child_program_find(char *path, size_t path_size, const char *name);

#endif
