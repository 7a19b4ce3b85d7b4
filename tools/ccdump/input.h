/*
 * input: what the commands of ccdump look into, whatever it is stored as: one list of
 * samples by ascending id.
 *
 *   dataset  a directory with dataset.json: indexes first, sample bytes on demand
 *   shard    one shard file by itself, without the manifest: its own index
 *   tar      a plain WebDataset tar, also .gz and .zst, or "-": no index, read from front to back;
 *            the rows of the tar are the ids, and rows that could not be packed have a problem
 *
 * One sample at a time is the current one: next, find and at choose it, caption and read give what
 * belongs to it.
 *
 * Threading : single-owner.
 * Ownership : the input owns everything it gives out; texts, pictures and facts are borrowed until
 *             the next call that chooses a sample.
 * Untrusted : every byte; limits are those of formats/shard/shard.h and pack/source/source.h.
 */
#ifndef TOOLS_CCDUMP_INPUT_H
#define TOOLS_CCDUMP_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/dataset/manifest.h"
#include "formats/shard/shard.h"

#define CCDUMP_UNKNOWN UINT64_MAX

enum ccdump_kind { CCDUMP_DATASET, CCDUMP_SHARD, CCDUMP_TAR };

struct ccdump_input; /* opaque */

/* What the index says of a sample (of a tar: what is found by looking). */
struct ccdump_facts {
    uint64_t position; /* among all samples, from 0 */
    uint64_t id;
    uint64_t first_text_id; /* CCDUMP_UNKNOWN in a tar; in a shard, counted in the shard */
    uint64_t offset; /* in `file`: of the picture; in a plain tar, of the row's first member */
    uint64_t image_hash, caption_hash;
    const char *file; /* name without folder */
    uint32_t caption_count;
    uint32_t image_bytes; /* 0: a row without a picture */
    uint32_t width_px, height_px;
    enum image_format format;
    uint32_t flags;
    int32_t label;
    const char *class_name; /* NULL: none known */
    const char *problem;    /* why a row of a tar is no sample, in words; NULL: it is one */
};

/* What takes reading the sample itself. */
struct ccdump_content {
    const char *key;
    const struct shard_text *captions; /* (facts.caption_count) */
    struct shard_text json;            /* data NULL: none */
    const uint8_t *image;              /* (facts.image_bytes) */
};

/* What is at `path`. Returns OK, NOTFOUND, IO, or CORRUPT (nothing that ccdump knows). */
enum status ccdump_kind_of(enum ccdump_kind *out, const char *path, struct error *err);

/* Returns OK, or what ccdump_kind_of and opening such a thing can give. On failure *out is NULL. */
enum status ccdump_input_open(struct ccdump_input **out, const char *path, struct error *err);
void ccdump_input_close(struct ccdump_input *in); /* accepts NULL */

enum ccdump_kind ccdump_input_kind(const struct ccdump_input *in);
const struct manifest *ccdump_input_manifest(const struct ccdump_input *in); /* of a dataset */

/* "tar.zst", ..., of a plain tar "webdataset". */
const char *ccdump_input_container(const struct ccdump_input *in);

/* NULL where the class has no name. */
const char *ccdump_input_class_name(const struct ccdump_input *in, int32_t label);

/* CCDUMP_UNKNOWN for a tar that has not been read to its end. */
uint64_t ccdump_input_sample_count(const struct ccdump_input *in);

/* Makes next give the first sample of which the id is not below `id`. Returns OK, or what reading
 * can give. */
enum status ccdump_input_from(struct ccdump_input *in, uint64_t id, struct error *err);

/* The sample behind the current one; at first the first one. Returns OK; END behind the last; IO,
 * CORRUPT, NOMEM or LIMIT. */
enum status ccdump_input_next(struct ccdump_input *in, struct ccdump_facts *out, struct error *err);

/* The sample with this id, or at this position. Return OK, NOTFOUND, or as next. */
enum status ccdump_input_find(struct ccdump_input *in,
                              struct ccdump_facts *out,
                              uint64_t id,
                              struct error *err);
enum status ccdump_input_at(struct ccdump_input *in,
                            struct ccdump_facts *out,
                            uint64_t position,
                            struct error *err);

/* Caption k of the current sample, without reading its picture where there is an index. Borrowed
 * until the next caption. Requires k < facts.caption_count. Returns OK, CORRUPT, IO or NOMEM. */
enum status ccdump_input_caption(struct ccdump_input *in,
                                 struct shard_text *out,
                                 uint32_t k,
                                 struct error *err);

/* The current sample whole, checked against its hashes. Returns OK, IO, CORRUPT, LIMIT or NOMEM. */
enum status
ccdump_input_read(struct ccdump_input *in, struct ccdump_content *out, struct error *err);

#endif
