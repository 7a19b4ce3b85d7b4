/*
 * file_fault: a file system for tests that forwards its calls to another one and makes the nth
 * fail. With it, tests prove every write path against full disks and kills.
 *
 * Threading : internally synchronised.
 * Ownership : create/destroy.
 */
#ifndef TESTS_SUPPORT_FILE_FAULT_H
#define TESTS_SUPPORT_FILE_FAULT_H

#include "formats/base/file_io.h"

#ifdef __cplusplus
extern "C" {
#endif

enum file_fault {
    FILE_FAULT_ERROR,       /* the call fails with IO */
    FILE_FAULT_SHORT_WRITE, /* half of the bytes are written, then IO */
    FILE_FAULT_DEAD, /* this call and all later ones fail: as if the process was killed here */
    FILE_FAULT_READ, /* as ERROR, for calls that only read; nth counts those */
};

/* From one failing call to the next in a test that lets all fail in turn. Sanitizers watch memory
 * and locks, which neighbouring calls use alike; other builds skip none and compare all results. */
#ifdef __SANITIZE_THREAD__
enum { FILE_FAULT_STEP = 19 };
#elif defined(__SANITIZE_ADDRESS__)
enum { FILE_FAULT_STEP = 11 };
#else
enum { FILE_FAULT_STEP = 1 };
#endif

/* Wraps `inner` (borrowed). `fault` hits mutating call number `nth`, from 0: open for writing,
 * write, sync, rename, remove, make_directory, sync_directory, link, hard_link, truncate. With
 * FILE_FAULT_READ it hits call number `nth` of the others: open for reading, pread, size, exists,
 * list. */
enum status file_fault_create(struct file_system **out,
                              const struct file_system *inner,
                              uint64_t nth,
                              enum file_fault fault,
                              struct error *err);
/* Calls counted so far. A run with nth = UINT64_MAX finds how many there are. */
uint64_t file_fault_count(const struct file_system *fs);
void file_fault_destroy(struct file_system *fs);

#ifdef __cplusplus
}
#endif

#endif
