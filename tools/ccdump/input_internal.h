/*
 * input_internal: what the kinds of ccdump_input share. A kind begins its own struct with
 * struct ccdump_input and fills `ops`.
 */
#ifndef TOOLS_CCDUMP_INPUT_INTERNAL_H
#define TOOLS_CCDUMP_INPUT_INTERNAL_H

#include "tools/ccdump/input.h"

struct ccdump_input_ops {
    void (*close)(struct ccdump_input *in);
    /* Makes the sample at `position` the current one. END after the last. */
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

const char *ccdump_file_name(const char *path);

enum status ccdump_open_dataset(struct ccdump_input **out, const char *path, struct error *err);
enum status ccdump_open_shard(struct ccdump_input **out, const char *path, struct error *err);
enum status ccdump_open_tar(struct ccdump_input **out, const char *path, struct error *err);

#endif
