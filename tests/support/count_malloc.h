/*
 * count_malloc: how often this process asks the C library for memory, by the program or library
 * whose code makes the call. All of ccstream is linked into the test program; codecs, SentencePiece
 * and oneDNN are shared libraries. What the C library itself allocates for a caller (qsort, fopen,
 * strdup) counts as its own, and so is seen.
 *
 * Threading : internally synchronised; read the counts when other threads have nothing to do.
 */
#ifndef TESTS_SUPPORT_COUNT_MALLOC_H
#define TESTS_SUPPORT_COUNT_MALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* False under a sanitizer, which replaces malloc itself. */
bool count_malloc_works(void);

/* From zero. Libraries that are loaded later count as unknown. */
void count_malloc_start(void);
void count_malloc_stop(void);

/* Calls by the library whose file name begins with `library`; "": by this program. */
uint64_t count_malloc_by(const char *library);

/* Ends the test unless every call came from one of the NULL-ended `libraries` (beginnings of file
 * names), and names the others. First makes sure that calls from here and from the C library are
 * seen. */
void count_malloc_assert_only(const char *const *libraries);

#endif
