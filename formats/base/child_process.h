/*
 * child_process: what another program is started with: its environment and its file.
 *
 * Threading : reads the environment, which nobody may change meanwhile.
 * Ownership : the caller frees the environment, which is one allocation.
 * Untrusted : the current folder: no list of folders names it.
 */
#ifndef FORMATS_BASE_CHILD_PROCESS_H
#define FORMATS_BASE_CHILD_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

/* This process's environment for execve, without what names code to run (PYTHONSTARTUP, BASH_ENV
 * and the like), and without empty and relative entries of PATH, PYTHONPATH, LD_LIBRARY_PATH and
 * their kind. Unless `with_secrets`: also without variables that hold keys, tokens or passwords
 * (AWS_..., HF_TOKEN, ...), the addresses of proxies and of the SSH agent. NULL: out of memory. */
char **child_environment(bool with_secrets);

/* The file of a program: a name with a slash as it is, another in the folders of PATH that are
 * absolute. Returns whether there is one. */
bool child_program_find(char *path, size_t path_size, const char *name);

#endif
