/*
 * verify: what the two files of `ccdump verify` share: options, faults, and the check of many
 * shards on several threads.
 *
 * Threading : verify_shards starts and joins its own threads; everything else is the main thread's.
 * Ownership : the caller's storage.
 */
#ifndef TOOLS_CCDUMP_VERIFY_H
#define TOOLS_CCDUMP_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/bytes.h"
#include "formats/shard/shard_reader.h"

struct verify_options {
    uint64_t jobs; /* 0: one per processor */
    bool decode;
    bool json;
    bool quiet;
};

struct verify_fault {
    uint64_t id;       /* SHARD_NO_SAMPLE: not of a single sample */
    uint64_t offset;   /* byte in the shard */
    const char *shard; /* file name; NULL: of the whole dataset */
    const char *text;
};

struct verify_result {
    uint64_t faults;
    uint64_t samples; /* without faults */
    uint64_t shards, bytes;
    uint64_t fingerprint;
    bool has_fingerprint;  /* of a dataset */
    const char *files_are; /* "shard", "tar" */
};

/* Whether the status means a fault of the data, and not of the check itself. */
bool verify_is_fault(enum status s);

/* Appends the fault as a line to print. Returns OK, NOMEM or LIMIT. */
enum status verify_fault_line(struct byte_buffer *out,
                              const struct verify_options *o,
                              const char *path,
                              const struct verify_fault *f,
                              struct error *err);

/* Checks shards on several threads and prints their faults in the order of the shards. `expected`
 * NULL: the single shard at `path`; else the shards that the manifest of the directory `path`
 * names. Adds to result->faults and result->samples. Returns OK even if there are faults;
 * INTERRUPTED, NOMEM, or IO of the output. */
enum status verify_shards(const struct verify_options *o,
                          const char *path,
                          const struct shard_summary *expected,
                          size_t shard_count,
                          struct verify_result *result,
                          struct error *err);

#endif
