/*
 * tensor_list: the tensors of one exported file: copies of a checkpoint's under other names, and
 * values that are computed.
 *
 * Threading : single-owner.
 * Ownership : the list owns computed values until its fini; the checkpoint's file is borrowed.
 */
#ifndef TOOLS_CCSTREAM_EXPORT_TENSOR_LIST_H
#define TOOLS_CCSTREAM_EXPORT_TENSOR_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "formats/tensors/safetensors.h"

enum { TENSOR_LIST_NAME_BYTES = 192, TENSOR_LIST_MAX = 4096 };

struct tensor_item {
    char name[TENSOR_LIST_NAME_BYTES];
    enum safetensors_dtype dtype;
    uint64_t shape[SAFETENSORS_MAX_DIMS];
    uint32_t dim_count;
    size_t size_bytes;
    const struct safetensors_info *from; /* of `file`, or */
    void *values;                        /* owned */
};

struct tensor_list {
    const struct safetensors *file;
    struct tensor_item *items;
    size_t count;
};

/* Returns OK or NOMEM; `out` is good for fini either way. */
enum status
tensor_list_init(struct tensor_list *out, const struct safetensors *file, struct error *err);
void tensor_list_fini(struct tensor_list *l); /* accepts an all-zero one */

/* The tensor `from` of the file as `prefix` and `name`. Returns OK or LIMIT. */
enum status tensor_list_copy(struct tensor_list *l,
                             const char *prefix,
                             const char *name,
                             const struct safetensors_info *from,
                             struct error *err);

/* A computed tensor; *values is zeroed, to be filled by the caller. Returns OK, NOMEM or LIMIT. */
enum status tensor_list_add(struct tensor_list *l,
                            void **values,
                            const char *prefix,
                            const char *name,
                            enum safetensors_dtype dtype,
                            const uint64_t *shape,
                            uint32_t dim_count,
                            struct error *err);

/* The last tensor that was added under this name, whole; NULL: none. */
struct tensor_item *tensor_list_find(const struct tensor_list *l, const char *name);

/* The values of the checkpoint's tensor `name`, F32, to be freed; *info (may be NULL) describes it.
 * Returns OK, CORRUPT (no such tensor), IO or NOMEM. */
enum status tensor_list_read(float **values,
                             const struct safetensors_info **info,
                             const struct safetensors *file,
                             const char *name,
                             struct error *err);

/* A safetensors file as PyTorch's programs write it. Returns OK, IO, CORRUPT, NOMEM or LIMIT. */
enum status tensor_list_write(const struct tensor_list *l, const char *path, struct error *err);

#endif
