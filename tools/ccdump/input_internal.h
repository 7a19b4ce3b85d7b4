/*
 * input_internal: what the kinds of ccdump_input share. A kind begins its own struct with
 * struct ccdump_input and fills `ops`.
 */
#ifndef TOOLS_CCDUMP_INPUT_INTERNAL_H
#define TOOLS_CCDUMP_INPUT_INTERNAL_H

#include "tools/ccdump/input.h"

struct ccdump_input_ops {
    enum ccdump_kind kind;
    void (*close)(struct ccdump_input *in);
    /* Makes the sample at `position` the current one. END behind the last. */
    enum status (*choose)(struct ccdump_input *in,
                          struct ccdump_facts *out,
                          uint64_t position,
                          struct error *err);
    enum status (*caption)(struct ccdump_input *in,
                           struct shard_text *out,
                           uint32_t k,
                           struct error *err);
    enum status (*read)(struct ccdump_input *in, struct ccdump_content *out, struct error *err);
};

struct ccdump_input {
    const struct ccdump_input_ops *ops;
    const struct manifest *manifest; /* of a dataset, else NULL */
    const char *container;
    char path[PATH_MAX_BYTES];
    uint64_t sample_count; /* CCDUMP_UNKNOWN until it is known */
    uint64_t next_position;
    bool ids_are_positions; /* a tar: no search through samples that are not read yet */
};

const char *ccdump_file_name(const char *path);

enum status ccdump_open_dataset(struct ccdump_input **out, const char *path, struct error *err);
enum status ccdump_open_shard(struct ccdump_input **out, const char *path, struct error *err);
enum status ccdump_open_tar(struct ccdump_input **out, const char *path, struct error *err);

#endif
