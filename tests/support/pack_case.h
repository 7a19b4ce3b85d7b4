/*
 * pack_case: what the packer's tests share: tars of images, runs into any file system, and the
 * question whether two directories hold the same bytes.
 *
 * Threading : single-owner. Everything ends the test case on failure.
 */
#ifndef TESTS_SUPPORT_PACK_CASE_H
#define TESTS_SUPPORT_PACK_CASE_H

#include "pack/pack.h"

struct pack_case_tar {
    int rows;
    int first;     /* number of the first row: key, image and caption follow from it; default 0 */
    int bad_step;  /* every such row has no caption; 0: none */
    int same_step; /* every such row has the image of row `first`; 0: none */
    int side_px;   /* of the images; default 16 */
};

/* A JPEG of noise that follows from its number; the buffer is the caller's. */
void pack_case_jpeg(struct byte_buffer *jpeg, int number, int32_t width_px, int32_t height_px);

/* Makes NAME in the case's folder; the path is the harness's. */
const char *pack_case_tar(const char *name, const struct pack_case_tar *how);

/* Options for `directory` in `fs` (NULL: the operating system's), with two jobs, shards of four
 * samples and any share of bad rows. */
struct pack_options pack_case_options(const struct file_system *fs,
                                      const char *directory,
                                      const char *const *sources,
                                      size_t source_count);

bool pack_case_exists(const struct file_system *fs, const char *directory, const char *name);

/* Copies every file of a directory to another, which is made. */
void pack_case_copy(const struct file_system *from_fs,
                    const char *from,
                    const struct file_system *to_fs,
                    const char *to);

/* Whether both hold files of the same names and bytes; otherwise says what differs. */
bool pack_case_equal(const struct file_system *a_fs,
                     const char *a,
                     const struct file_system *b_fs,
                     const char *b);

/* Opens the dataset, verifies every shard, and gives its fingerprint; 0 where dataset.json is not
 * there. */
uint64_t pack_case_verify(const struct file_system *fs, const char *directory);

#endif
