/*
 * verify: shared by the two files of `ccdump verify`: options, faults, and the check of shards on
 * several threads.
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
    uint64_t jobs; /* 0: one per CPU */
    bool decode;
    bool sha256;
    const char *seal; /* file; NULL: none */
    bool json;
    bool quiet;
    struct remote_choice remote;
};

struct verify_fault {
    uint64_t id;       /* SHARD_NO_SAMPLE: not about a single sample */
    uint64_t offset;   /* byte in the shard */
    const char *shard; /* file name; NULL: about the whole dataset */
    const char *text;
};

/* Kinds of damage, which determine the remedy. Bits. */
enum verify_damage {
    VERIFY_DAMAGE_SHARD = 1,     /* the data is in no other file of the dataset */
    VERIFY_DAMAGE_FOREIGN = 2,   /* a tar or its index, in a dataset of tars in place */
    VERIFY_DAMAGE_REBUILT = 4,   /* ccpack repair rebuilds it: manifest, sidecar, token cache */
    VERIFY_DAMAGE_TOKENIZER = 8, /* its message has the remedy */
    VERIFY_DAMAGE_COLUMN = 16,   /* likewise */
};

struct verify_result {
    uint64_t faults;
    unsigned damage;  /* VERIFY_DAMAGE_... */
    uint64_t samples; /* without faults */
    uint64_t shards, bytes;
    uint64_t unlisted; /* shards in the directory that are not in the manifest */
    uint64_t fingerprint;
    bool has_fingerprint;  /* there is a fingerprint: a dataset */
    const char *files_are; /* "shard", "tar" */
};

/* Appends the fault as a line of output. Returns OK, NOMEM or LIMIT. */
enum status verify_fault_line(struct byte_buffer *out,
                              const struct verify_options *o,
                              const char *path,
                              const struct verify_fault *f,
                              struct error *err);

/* Checks a sample that was read: its label against class_count (0: classes have no names, and any
 * label is valid); with a decoder also that the image decodes, and its format and size. Returns OK,
 * NOMEM, or for a fault CORRUPT, UNSUPPORTED or LIMIT. */
enum status verify_sample(struct image_decoder *decoder,
                          const struct sample_view *view,
                          size_t class_count,
                          struct error *err);

/* Checks shards on several threads and prints their faults in shard order. `m` NULL: the single
 * shard `path`; else all shards of the directory `path`, with manifest m. Adds to result->faults
 * and result->samples. Returns OK even if there are faults; INTERRUPTED, NOMEM, or IO (of the
 * output). */
enum status verify_shards(const struct verify_options *o,
                          const char *path,
                          const struct manifest *m,
                          struct verify_result *result,
                          struct error *err);

#endif
