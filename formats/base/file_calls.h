/*
 * file_calls: whether the disks of this process answer.
 *
 * Threading : any thread.
 */
#ifndef FORMATS_BASE_FILE_CALLS_H
#define FORMATS_BASE_FILE_CALLS_H

#include <stdint.h>

/* Reads, writes and syncs of file_posix() that have returned: while a disk hangs there are no
 * further ones. */
uint64_t file_calls(void);

#endif
