/*
 * shard_reader: the samples of one shard file with all that belongs to them, for tools; and the
 * check of a whole shard. Training reads images through formats/dataset/dataset.h instead.
 *
 * Threading : one owner at a time; distinct readers are independent.
 * Ownership : the reader owns its file and index. A sample_view borrows from the reader until the
 *             next call on the same reader.
 * Untrusted : every byte of the file. Limits are in formats/SHARD_FORMAT.md.
 */
#ifndef FORMATS_SHARD_SHARD_READER_H
#define FORMATS_SHARD_SHARD_READER_H

#include "formats/base/file_io.h"
#include "formats/shard/shard.h"

struct shard_reader; /* opaque */

struct sample_view { /* borrowed, never freed */
    struct shard_record record;
    const char *key; /* ends with a NUL */
    const uint8_t *image;
    size_t image_bytes;
    const struct shard_text *captions;
    size_t caption_count;
    struct shard_text json; /* data NULL: none */
};

/* Reads the index inside the shard (never the sidecar). On failure *out is NULL. Returns OK, IO,
 * NOTFOUND, CORRUPT, VERSION, LIMIT or NOMEM. */
enum status shard_reader_open(struct shard_reader **out,
                              const struct file_system *fs,
                              const char *path,
                              struct error *err);
/* As shard_reader_open, for a foreign tar with the index file `index`, which is borrowed until
 * close. */
enum status shard_reader_open_foreign(struct shard_reader **out,
                                      const struct file_system *fs,
                                      const char *path,
                                      const char *index,
                                      struct error *err);
void shard_reader_close(struct shard_reader *r); /* accepts NULL */

/* Whether a file ends like a shard, to distinguish a damaged shard from another kind of file. The
 * rest is not checked. Returns OK, IO or NOTFOUND. */
enum status shard_reader_recognise(bool *out,
                                   const struct file_system *fs,
                                   const char *path,
                                   struct error *err);

/* Whether a file that does not end like a shard begins like one: its writer was interrupted, or the
 * file was truncated, or its end is damaged. Returns OK, IO, NOTFOUND or NOMEM. */
enum status
shard_reader_begins(bool *out, const struct file_system *fs, const char *path, struct error *err);

uint32_t shard_reader_sample_count(const struct shard_reader *r);
enum shard_container shard_reader_container(const struct shard_reader *r);

/* The record at `index`, by ascending id. Requires index < shard_reader_sample_count(r). Returns OK
 * or CORRUPT. */
enum status shard_reader_record(struct shard_reader *r,
                                uint32_t index,
                                struct shard_record *out,
                                struct error *err);

/* Reads, decompresses and checks one sample: the frame's checksum, the tar inside, the image's and
 * the captions' hashes, and that the image is at the recorded position in the file. Requires index
 * < shard_reader_sample_count(r). Returns OK, IO, CORRUPT, LIMIT or NOMEM; on failure *view is
 * empty.
 */
enum status shard_reader_get(struct shard_reader *r,
                             uint32_t index,
                             struct sample_view *view,
                             struct error *err);

/* The k-th caption of a sample out of the caption column. Requires index and k in range. Returns
 * OK, CORRUPT or NOMEM. */
enum status shard_reader_caption(struct shard_reader *r,
                                 uint32_t index,
                                 uint32_t k,
                                 struct shard_text *out,
                                 struct error *err);

/* The index inside the shard, which is what its sidecar must hold. Borrowed. */
const void *shard_reader_index(const struct shard_reader *r, size_t *size_bytes);

/* Reads the whole file for its hash; the result is the summary to record in the manifest. Returns
 * OK, IO or NOMEM. */
enum status
shard_reader_summary(struct shard_reader *r, struct shard_summary *out, struct error *err);

/* ---- the check of everything ----------------------------------------------------------------- */

#define SHARD_NO_SAMPLE UINT64_MAX

/* Where a fault is: in the shard itself, the manifest's record of it, or the sidecar. */
enum shard_part { SHARD_PART_SHARD, SHARD_PART_MANIFEST, SHARD_PART_SIDECAR };

struct shard_verify {
    const char *index; /* index file of a foreign tar; NULL: the shard's own or its sidecar */
    const struct shard_summary
        *expected; /* the manifest's record; NULL: check only the shard itself */
    /* Called for each fault: the sample's id or SHARD_NO_SAMPLE, the byte in the shard file where
     * it was found, what is wrong. */
    void (*fault)(void *cookie,
                  enum shard_part part,
                  uint64_t sample_id,
                  uint64_t offset,
                  const char *text);
    /* Called now and then with the bytes done since the last call; false stops with INTERRUPTED.
     * May be NULL. */
    bool (*progress)(void *cookie, uint64_t bytes);
    /* Called for each intact sample, for further checks of its content. CORRUPT, UNSUPPORTED or
     * LIMIT with a message is a fault of the sample; any other failure stops the check. May be
     * NULL. */
    enum status (*sample)(void *cookie, const struct sample_view *view, struct error *err);
    void *cookie;
};

/* Reads and checks every byte: size and hash against the manifest, that frames, index and seek
 * table tile the file, every frame, every image, captions and records against the content, the
 * sidecar beside it against the index. Returns OK when there was no fault; CORRUPT when there was
 * any; INTERRUPTED, IO, NOTFOUND or NOMEM when the check itself could not be done, or what `sample`
 * returned. */
enum status shard_verify(const struct file_system *fs,
                         const char *path,
                         const struct shard_verify *how,
                         struct error *err);

#endif
