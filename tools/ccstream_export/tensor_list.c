/*
 * tensor_list: eight-byte integers come first in the file, so that every tensor is aligned to its
 * element's size, as in files of public writers.
 */
#include "tools/ccstream_export/export_internal.h"
#include "tools/cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status
tensor_list_init(struct tensor_list *out, const struct safetensors *file, struct error *err) {
    *out = (struct tensor_list){.file = file, .items = calloc(TENSOR_LIST_MAX, sizeof *out->items)};
    return out->items != NULL ? STATUS_OK : error_set(err, STATUS_NOMEM, "out of memory");
}

void tensor_list_fini(struct tensor_list *l) {
    for (size_t i = 0; i < l->count; i++) {
        free(l->items[i].values);
    }
    free(l->items);
    *l = (struct tensor_list){0};
}

static enum status add(struct tensor_list *l,
                       struct tensor_item **out,
                       const char *prefix,
                       const char *name,
                       struct error *err) {
    struct tensor_item *item = &l->items[l->count];
    FAIL_IF(l->count == TENSOR_LIST_MAX || snprintf(item->name, sizeof item->name, "%s%s", prefix,
                                                    name) >= (int)sizeof item->name,
            err, STATUS_LIMIT, "%s%s: more than %d tensors, or too long a name", prefix, name,
            TENSOR_LIST_MAX);
    l->count++;
    *out = item;
    return STATUS_OK;
}

enum status tensor_list_copy(struct tensor_list *l,
                             const char *prefix,
                             const char *name,
                             const struct safetensors_info *from,
                             struct error *err) {
    struct tensor_item *item = NULL;
    TRY(add(l, &item, prefix, name, err));
    item->dtype = from->dtype;
    item->dim_count = from->dim_count;
    item->size_bytes = (size_t)from->size_bytes;
    item->from = from;
    memcpy(item->shape, from->shape, sizeof item->shape);
    return STATUS_OK;
}

enum status tensor_list_add(struct tensor_list *l,
                            void **values,
                            const char *prefix,
                            const char *name,
                            enum safetensors_dtype dtype,
                            const uint64_t *shape,
                            uint32_t dim_count,
                            struct error *err) {
    struct tensor_item *item = NULL;
    TRY(add(l, &item, prefix, name, err));
    size_t count = 1;
    for (uint32_t i = 0; i < dim_count; i++) {
        item->shape[i] = shape[i];
        count *= (size_t)shape[i];
    }
    item->dtype = dtype;
    item->dim_count = dim_count;
    item->size_bytes = count * safetensors_dtype_bytes(dtype);
    item->values = calloc(count, safetensors_dtype_bytes(dtype));
    *values = item->values;
    return item->values != NULL ? STATUS_OK
                                : error_set(err, STATUS_NOMEM, "no memory for %s", item->name);
}

struct tensor_item *tensor_list_find(const struct tensor_list *l, const char *name) {
    for (size_t i = l->count; i-- > 0;) {
        if (strcmp(l->items[i].name, name) == 0) {
            return &l->items[i];
        }
    }
    return NULL;
}

enum status tensor_list_read(float **values,
                             const struct safetensors_info **info,
                             const struct safetensors *file,
                             const char *name,
                             struct error *err) {
    const struct safetensors_info *found = safetensors_find(file, name);
    *values = NULL;
    FAIL_IF(found == NULL || found->dtype != SAFETENSORS_F32, err, STATUS_CORRUPT,
            "the checkpoint has no tensor %s", name);
    if (info != NULL) {
        *info = found;
    }
    *values = malloc((size_t)found->size_bytes);
    return *values != NULL ? safetensors_read(file, found, *values, (size_t)found->size_bytes, err)
                           : error_set(err, STATUS_NOMEM, "no memory for %s", name);
}

static enum status write_item(struct safetensors_writer *w,
                              const struct tensor_list *l,
                              const struct tensor_item *item,
                              struct error *err) {
    if (item->from == NULL) {
        return safetensors_writer_data(w, item->values, item->size_bytes, err);
    }
    void *data = malloc(item->size_bytes);
    enum status s = data != NULL
                        ? safetensors_read(l->file, item->from, data, item->size_bytes, err)
                        : error_set(err, STATUS_NOMEM, "no memory for %s", item->name);
    THEN(s, safetensors_writer_data(w, data, item->size_bytes, err));
    free(data);
    return s;
}

enum status tensor_list_write(const struct tensor_list *l, const char *path, struct error *err) {
    struct safetensors_writer *w = NULL;
    enum status s = safetensors_writer_create(&w, file_posix(), path, err);
    if (s == STATUS_OK) {
        safetensors_writer_omit_hashes(w);
        s = safetensors_writer_metadata(w, "format", "pt", err);
        THEN(s, safetensors_writer_metadata(w, "generator", cli_command_name(), err));
    }
    for (int pass = 0; pass < 4; pass++) { /* declare, then write: integers, then the rest */
        for (size_t i = 0; i < l->count && s == STATUS_OK; i++) {
            const struct tensor_item *item = &l->items[i];
            if ((item->dtype == SAFETENSORS_I64) == (pass % 2 == 0)) {
                s = pass < 2 ? safetensors_writer_declare(w, item->name, item->dtype, item->shape,
                                                          item->dim_count, err)
                             : write_item(w, l, item, err);
            }
        }
    }
    THEN(s, safetensors_writer_finish(w, err));
    safetensors_writer_destroy(w);
    return s;
}
