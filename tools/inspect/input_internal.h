/*
 * input_internal: shared by the kinds of input. A kind's struct begins with struct input, and it
 * fills `ops`.
 */
#ifndef TOOLS_INSPECT_INPUT_INTERNAL_H
#define TOOLS_INSPECT_INPUT_INTERNAL_H

#include "tools/inspect/input.h"

struct input_ops {
    void (*close)(struct input *in);
    /* Makes the sample at `position` the current one. END: after the last. */
    enum status (*choose)(struct input *in,
                          struct sample_facts *out,
                          uint64_t position,
                          struct error *err);
    enum status (*caption)(struct input *in, struct shard_text *out, uint32_t k, struct error *err);
    enum status (*read)(struct input *in, struct sample_content *out, struct error *err);
};

const char *input_file_name(const char *path);

enum status input_open_dataset(struct input **out, const char *path, struct error *err);
enum status input_open_shard(struct input **out, const char *path, struct error *err);
enum status input_open_tar(struct input **out, const char *path, struct error *err);

void input_columns_close(struct input_columns *c); /* accepts NULL */

#endif
