/*
 * safetensors_internal: what the writer and the reader of safetensors files share.
 */
#ifndef FORMATS_TENSORS_SAFETENSORS_INTERNAL_H
#define FORMATS_TENSORS_SAFETENSORS_INTERNAL_H

#include "formats/tensors/safetensors.h"

/* Name of the tensor of hashes, and key of the metadata entry that announces it. */
#define SAFETENSORS_HASH_NAME  "ccstream.xxh64"
#define SAFETENSORS_HASH_VALUE "last tensor: header, then each tensor"

enum { SAFETENSORS_LENGTH_BYTES = 8, SAFETENSORS_ALIGNMENT_BYTES = 8 };

/* The dtype of this name, or 0. */
enum safetensors_dtype safetensors_dtype_of(const char *name);

/* The product of the extents; false beyond 2^63 - 1 bytes. dtype must be one of the list. */
bool safetensors_sizes(enum safetensors_dtype dtype,
                       const uint64_t *shape,
                       uint32_t dim_count,
                       uint64_t *element_count,
                       uint64_t *size_bytes);

#endif
