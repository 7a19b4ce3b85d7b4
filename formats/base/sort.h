/*
 * sort: sorts an array in place and allocates nothing, for paths that must not allocate. (qsort of
 * the C library may take memory from the heap.)
 *
 * Threading : a pure function of its arguments.
 */
#ifndef FORMATS_BASE_SORT_H
#define FORMATS_BASE_SORT_H

#include <stddef.h>

/* For sort_in_place, qsort and bsearch: by the uint64_t that an item begins with. */
int compare_u64(const void *a, const void *b);
/* The same for items that begin with a double, none of them NaN, or with a pointer to a text. */
int compare_double(const void *a, const void *b);
int compare_text(const void *a, const void *b);

enum { SORT_MAX_ITEM_BYTES = 64 };

/* Heap sort, at most about 2 n log2 n comparisons for any input. `compare` as of qsort; equal items
 * end in unspecified order. Requires size_bytes in [1, SORT_MAX_ITEM_BYTES]. */
void sort_in_place(void *items,
                   size_t count,
                   size_t size_bytes,
                   int (*compare)(const void *a, const void *b));

#endif
