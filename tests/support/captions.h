/*
 * captions: every caption of a file of the test data, for comparisons with what a reference made of
 * the same captions (tests/golden/data_captions.py reads them alike).
 *
 * Threading : one call at a time.
 */
#ifndef TESTS_SUPPORT_CAPTIONS_H
#define TESTS_SUPPORT_CAPTIONS_H

#include <stddef.h>
#include <stdint.h>

struct tokenizer; /* formats/tokenizer/tokenizer.h */

/* Calls `each` for every caption of `name`, a file below the folder of test data: a tar (the
 * "captions" of its .json members), a COCO .json, or a .tsv (first column). Returns how many.
 * Skips the test where there is no data. */
uint64_t test_captions(const char *name,
                       void (*each)(void *cookie, const char *text, size_t size_bytes),
                       void *cookie);

/* Demands that the captions of each file that `golden`, a file of this tree, names have the count
 * that it says, and their rows of 30 ids the XXH64. Lines of "code_points" are for others. */
void test_caption_rows(const struct tokenizer *t, const char *golden);

#endif
