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
#include "formats/dataset/manifest.h"
#include "formats/image/image_codec.h"
#include "formats/shard/shard_reader.h"
#include "tools/cli/remote_choice.h"
#include "tools/inspect/damage.h"

struct verify_options {
    uint64_t jobs; /* 0: one per processor */
    bool decode;
    bool sha256;
    const char *seal; /* file; NULL: none */
    bool json;
    bool quiet;
    struct remote_choice remote;
};

struct verify_fault {
    uint64_t id;       /* SHARD_NO_SAMPLE: not of a single sample */
    uint64_t offset;   /* byte in the shard */
    const char *shard; /* file name; NULL: of the whole dataset */
    const char *text;
};

/* What is damaged, as far as it decides on the repair. Bits. */
enum verify_damage {
    VERIFY_DAMAGE_SHARD = 1,     /* no other file of the dataset has what is lost */
    VERIFY_DAMAGE_FOREIGN = 2,   /* a tar or its index, in a dataset of tars in place */
    VERIFY_DAMAGE_REBUILT = 4,   /* what ccdump repair rebuilds: manifest, sidecar, token cache */
    VERIFY_DAMAGE_TOKENIZER = 8, /* its message says what to do */
    VERIFY_DAMAGE_COLUMN = 16,   /* likewise */
};

struct verify_result {
    uint64_t faults;
    unsigned damage;  /* VERIFY_DAMAGE_... */
    uint64_t samples; /* without faults */
    uint64_t shards, bytes;
    uint64_t unlisted; /* shards in the directory that are not in the manifest */
    uint64_t fingerprint;
    bool has_fingerprint;  /* of a dataset */
    const char *files_are; /* "shard", "tar" */
};

/* Appends the fault as a line to print. Returns OK, NOMEM or LIMIT. */
enum status verify_fault_line(struct byte_buffer *out,
                              const struct verify_options *o,
                              const char *path,
                              const struct verify_fault *f,
                              struct error *err);

/* Checks what a sample that was read says about itself: its label against the number of classes (0:
 * they have no names, and any label is right); with a decoder also that the image decodes, and
 * its format and size. Returns OK, or CORRUPT, UNSUPPORTED or LIMIT for a fault; NOMEM. */
enum status verify_sample(struct image_decoder *decoder,
                          const struct sample_view *view,
                          size_t class_count,
                          struct error *err);

/* Checks shards on several threads and prints their faults in the order of the shards. `m` NULL:
 * the single shard at `path`; else the shards of the directory `path`, whose manifest this is. Adds
 * to result->faults and result->samples. Returns OK even if there are faults; INTERRUPTED, NOMEM,
 * or IO of the output. */
enum status verify_shards(const struct verify_options *o,
                          const char *path,
                          const struct manifest *m,
                          struct verify_result *result,
                          struct error *err);

#endif
