/*
 * file_memory: file systems for tests: one that lives in memory, and one that passes calls on and
 * makes the nth one fail. They let every write path be proven against full disks and kills.
 *
 * Threading : internally synchronised.
 * Ownership : create/destroy.
 */
#ifndef FORMATS_BASE_FILE_MEMORY_H
#define FORMATS_BASE_FILE_MEMORY_H

#include "formats/base/file_io.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An empty file system in memory. Directories exist once made; "" and "." always do. rename is
 * atomic; data that was not synced is dropped by file_memory_crash. */
enum status file_memory_create(struct file_system **out, struct error *err);
void file_memory_destroy(struct file_system *fs);

/* What a power cut leaves: files keep their last synced content, names their last synced state of
 * the directory. */
void file_memory_crash(struct file_system *fs);

enum file_fault {
    FILE_FAULT_ERROR,       /* the call fails with IO */
    FILE_FAULT_SHORT_WRITE, /* half of the bytes are written, then IO */
    FILE_FAULT_DEAD,        /* this call and all later ones fail: the process "died" here */
    FILE_FAULT_READ,        /* as ERROR, of the calls that only look: nth counts those */
};

/* Wraps `inner` (borrowed): mutating call number `nth` (from 0: open for writing, write, sync,
 * rename, remove, make_directory, sync_directory, link, hard_link, truncate) suffers `fault`; with
 * FILE_FAULT_READ call number `nth` of the others (open for reading, pread, size, exists, list). */
enum status file_fault_create(struct file_system **out,
                              const struct file_system *inner,
                              uint64_t nth,
                              enum file_fault fault,
                              struct error *err);
/* Calls of that sort seen so far: run once with nth = UINT64_MAX to learn how many there are. */
uint64_t file_fault_count(const struct file_system *fs);
void file_fault_destroy(struct file_system *fs);

#ifdef __cplusplus
}
#endif

#endif
