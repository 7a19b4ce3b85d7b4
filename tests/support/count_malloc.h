/*
 * count_malloc: how often this program's own text, in which all of ccstream is linked, asks the C
 * library for memory. Codecs, SentencePiece and oneDNN are shared libraries: what they allocate
 * inside a call is theirs.
 *
 * Threading : internally synchronised; read the counts when other threads have nothing to do.
 */
#ifndef TESTS_SUPPORT_COUNT_MALLOC_H
#define TESTS_SUPPORT_COUNT_MALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* False under a sanitizer, which has malloc for itself. */
bool count_malloc_works(void);

void count_malloc_start(void); /* from zero */
void count_malloc_stop(void);

uint64_t count_malloc_ours(void);
uint64_t count_malloc_all(void); /* with those of shared libraries */

/* Ends the test unless a call of malloc from here would have been seen. */
void count_malloc_check(void);

#endif
