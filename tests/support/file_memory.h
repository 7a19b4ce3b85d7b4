/*
 * file_memory: a file system for tests that keeps its files in memory and can lose power.
 *
 * Threading : internally synchronised.
 * Ownership : create/destroy.
 */
#ifndef TESTS_SUPPORT_FILE_MEMORY_H
#define TESTS_SUPPORT_FILE_MEMORY_H

#include <stdbool.h>

#include "formats/base/file_io.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An empty file system in memory. Directories exist once made; "" and "." always do. rename is
 * atomic; data that was not synced is dropped by file_memory_crash. */
enum status file_memory_create(struct file_system **out, struct error *err);
void file_memory_destroy(struct file_system *fs);

/* The state after a power failure: files keep their last synced content, names their last synced
 * state of the directory. */
void file_memory_crash(struct file_system *fs);

/* Whether a directory has a name that ends in ".tmp"; the names of drafts are random. Removes them
 * if asked to. */
bool file_any_temporary(const struct file_system *fs, const char *directory, bool removes);

#ifdef __cplusplus
}
#endif

#endif
