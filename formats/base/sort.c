/*
 * sort: a heap with the largest item on top; it goes to the end of the shrinking heap.
 */
#include "formats/base/sort.h"

#include <stdint.h>

#include <assert.h>
#include <string.h>

int compare_u64(const void *a, const void *b) {
    uint64_t x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return (x > y) - (x < y);
}

int compare_double(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int compare_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void swap(unsigned char *a, unsigned char *b, size_t size_bytes) {
    unsigned char kept[SORT_MAX_ITEM_BYTES];
    memcpy(kept, a, size_bytes);
    memcpy(a, b, size_bytes);
    memcpy(b, kept, size_bytes);
}

static void sift_down(unsigned char *heap,
                      size_t count,
                      size_t size_bytes,
                      size_t i,
                      int (*compare)(const void *, const void *)) {
    for (size_t child; (child = 2 * i + 1) < count; i = child) {
        const unsigned char *left = heap + child * size_bytes;
        if (child + 1 < count && compare(left + size_bytes, left) > 0) {
            child++;
        }
        if (compare(heap + child * size_bytes, heap + i * size_bytes) <= 0) {
            return;
        }
        swap(heap + child * size_bytes, heap + i * size_bytes, size_bytes);
    }
}

void sort_in_place(void *items,
                   size_t count,
                   size_t size_bytes,
                   int (*compare)(const void *a, const void *b)) {
    assert(size_bytes >= 1 && size_bytes <= SORT_MAX_ITEM_BYTES);
    unsigned char *heap = items;
    for (size_t i = count / 2; i > 0; i--) {
        sift_down(heap, count, size_bytes, i - 1, compare);
    }
    for (size_t left = count; left > 1; left--) {
        swap(heap, heap + (left - 1) * size_bytes, size_bytes);
        sift_down(heap, left - 1, size_bytes, 0, compare);
    }
}
