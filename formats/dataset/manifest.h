/*
 * manifest: dataset.json, the file that makes a directory of shards a dataset: which shards belong
 * to it and what they hold, how many samples, captions and ids there are, and the fingerprint of
 * every state the dataset has been in.
 *
 * Threading : single-owner.
 * Ownership : a manifest owns what its pointers point at until manifest_fini.
 * Untrusted : the file: sizes, counts and names are checked, sums must agree.
 */
#ifndef FORMATS_DATASET_MANIFEST_H
#define FORMATS_DATASET_MANIFEST_H

#include "formats/base/file_io.h"
#include "formats/shard/shard.h"

struct json_writer;
struct json_value;

#define MANIFEST_NAME "dataset.json"

enum {
    MANIFEST_VERSION = 1,
    MANIFEST_VERSION_REMOVED = 2, /* of a dataset that shrank */
    MANIFEST_VERSION_BASE = 3,    /* of one with a base */
    MANIFEST_MAX_BYTES = 256 << 20,
    MANIFEST_MAX_SHARDS = 250000,
    MANIFEST_MAX_SOURCES = 1 << 16,
    MANIFEST_MAX_OPTIONS = 256,
    MANIFEST_MAX_GENERATIONS = 4096,
    MANIFEST_MAX_CLASSES = 1 << 20,
    MANIFEST_MAX_CLASS_BYTES = 64 << 20, /* of the names of all classes, as JSON */
    MANIFEST_MAX_REMOVED = 1 << 21,
    MANIFEST_MAX_TEXT_BYTES = 4096, /* of a source's, class's or option's text, created_by */
};

struct manifest_source {
    char *name;           /* file name without folder */
    uint64_t rows;        /* how many ids it took */
    uint64_t bytes;       /* size of its file; 0: not a file, or unknown */
    uint64_t sample_hash; /* of that size and of samples of the file; 0: likewise */
    uint64_t content;     /* hash over its rows; 0: there are none, or it is not known */
};

struct manifest_option {
    char *name;
    char *value;
};

/* The tokenizer in the directory; no part of the fingerprint. */
struct manifest_tokenizer {
    char *file;    /* name without folder; NULL: none is recorded */
    char *kind;    /* tokenizer_kind_name */
    uint64_t hash; /* XXH64 of the file */
};

/* Samples that were removed. Their ids are never used again. */
struct manifest_removed {
    uint64_t *ids; /* ascending */
    uint32_t *at;  /* (count) generations that were before the removal; 0: it is not known */
    size_t count;
    /* Removed samples that are still in shards, where readers skip them: */
    uint64_t samples, texts, image_bytes;
};

/* The dataset after one run that changed it; unless samples were removed or compacted since, each
 * holds the shards of the one before it as its first ones. */
struct manifest_generation {
    uint32_t shards;
    uint64_t samples, texts, id_space;
    uint64_t fingerprint;
};

struct manifest {
    char *created_by; /* "ccpack 0.1.0" */
    char *base; /* location of the shards, https://HOST/FOLDER; NULL: the manifest's folder, which
                   always has the indexes. Only with container tar-foreign */
    enum shard_container container;
    uint64_t samples;  /* sum over the shards, without removed ones; also the next two */
    uint64_t texts;    /* captions */
    uint64_t id_space; /* largest id + 1 */
    uint64_t image_bytes;
    uint64_t bytes; /* of the shard files */
    uint64_t fingerprint;
    struct shard_summary *shards; /* any order of ids; no two hold the same id */
    size_t shard_count;
    struct manifest_source *sources;
    size_t source_count;
    struct manifest_option *options; /* what shaped the bytes: names and values as text */
    size_t option_count;
    char **classes; /* names: a sample's label i is classes[i]; may be none */
    size_t class_count;
    struct manifest_tokenizer tokenizer;
    struct manifest_removed removed;
    /* Earlier generations may have had samples and shards that are not there any more. True as soon
     * as there are removed samples. */
    bool shrank;
    struct manifest_generation *generations; /* the last one is the current state */
    size_t generation_count;
};

/* An empty one, which is valid: a part of a run may have got no samples. Returns OK, LIMIT or
 * NOMEM.
 */
enum status manifest_init(struct manifest *m,
                          enum shard_container container,
                          const char *created_by,
                          struct error *err);
void manifest_fini(struct manifest *m); /* accepts an all-zero one */

/* Whether the dataset is, or once was, the one with this fingerprint. */
bool manifest_has_been(const struct manifest *m, uint64_t fingerprint);

/* Append an entry; texts are copied. Return OK, NOMEM, LIMIT, or INVALID for names that cannot be
 * stored. The size and hash of a source are 0 until the caller sets them. */
enum status
manifest_add_shard(struct manifest *m, const struct shard_summary *shard, struct error *err);
enum status
manifest_add_source(struct manifest *m, const char *name, uint64_t rows, struct error *err);
enum status
manifest_add_option(struct manifest *m, const char *name, const char *value, struct error *err);
enum status manifest_add_class(struct manifest *m, const char *name, struct error *err);

/* Replaces the recorded tokenizer; `file` NULL: removes it. Does not require manifest_seal. Returns
 * OK, NOMEM or LIMIT; after a failure the record is unchanged. */
enum status manifest_set_tokenizer(struct manifest *m,
                                   const char *file,
                                   const char *kind,
                                   uint64_t hash,
                                   struct error *err);

/* Adds ids in any order, after the last generation, to the removed ones, those that are there
 * already once; the caller counts what of them is in shards. Returns OK, NOMEM or LIMIT. */
enum status
manifest_add_removed(struct manifest *m, const uint64_t *ids, size_t count, struct error *err);

/* Copies the text. Returns OK, NOMEM, LIMIT, or INVALID if it is no location (SCHEME://...). */
enum status manifest_set_base(struct manifest *m, const char *base, struct error *err);

bool manifest_is_removed(const struct manifest *m, uint64_t id);

/* Sums up the shards into the totals, raises id_space to the largest id + 1 (never lowers it), and
 * appends the generation with this fingerprint (see dataset_fingerprint_of).
 * A generation equal to the last one is not added twice. Returns OK, NOMEM or LIMIT. */
enum status manifest_seal(struct manifest *m, uint64_t fingerprint, struct error *err);

/* Parts of the manifest as JSON, the same in dataset.json, the packer's journal and reports: a
 * shard as an object, or as a field of this name; the others as fields of their own names. */
void manifest_put_shard(struct json_writer *w, const char *name, const struct shard_summary *s);
void manifest_put_generations(struct json_writer *w, const struct manifest *m);
void manifest_put_options(struct json_writer *w, const struct manifest *m);
void manifest_put_classes(struct json_writer *w, const struct manifest *m);
void manifest_put_tokenizer(struct json_writer *w, const struct manifest *m);

/* Reads a shard's object. Returns the name of the first bad field, or NULL. */
const char *manifest_get_shard(struct shard_summary *s, const struct json_value *v);

/* DIRECTORY/dataset.json, atomically. Requires manifest_seal after the last change. Returns OK, IO,
 * LIMIT or NOMEM. */
enum status manifest_write(const struct manifest *m,
                           const struct file_system *fs,
                           const char *directory,
                           struct error *err);

/* `m` is initialised by this call; on failure nothing is left to free. Returns OK, NOTFOUND, IO,
 * CORRUPT, VERSION, LIMIT or NOMEM. */
enum status manifest_read(struct manifest *m,
                          const struct file_system *fs,
                          const char *directory,
                          struct error *err);

/* Which parts of a damaged manifest could be read; each is read whole or not at all. */
struct manifest_salvaged {
    bool shards, sources, options, classes, fingerprint;
    bool removed; /* or there are none */
};

/* For repair, where manifest_read refuses: what can still be read of DIRECTORY/dataset.json.
 * Nothing is known to be right: counts need not agree, and generations may be wrong. Call
 * manifest_fini after OK. Returns OK, CORRUPT (it is not JSON), NOTFOUND, IO, LIMIT or NOMEM. */
enum status manifest_salvage(struct manifest *m,
                             struct manifest_salvaged *read,
                             const struct file_system *fs,
                             const char *directory,
                             struct error *err);

#endif
