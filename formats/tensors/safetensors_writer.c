/*
 * Writing safetensors files in one pass.
 *
 * The header comes first in the file and names every tensor with its place, which is known from the
 * declarations alone; the hashes are known only after the data has gone by. So they are themselves
 * the last tensor, and nothing has to be written twice or held in memory:
 *
 *     declare ... | header -> disk, hash[0] | data -> disk, hash[1 + i] ... | hashes -> disk |
 * rename
 */
#include "formats/tensors/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/checked.h"
#include "formats/base/hash.h"
#include "formats/base/json_writer.h"
#include "formats/base/utf8.h"
#include "formats/tensors/safetensors_internal.h"

struct declared {
    char *name;
    uint64_t name_hash;
    enum safetensors_dtype dtype;
    uint32_t dim_count;
    uint64_t shape[SAFETENSORS_MAX_DIMS];
    uint64_t size_bytes;
};

struct entry {
    char *key;
    char *value;
};

struct safetensors_writer {
    struct file_draft out;
    struct declared *tensors;
    size_t tensor_count;
    size_t tensor_capacity;
    struct entry *metadata;
    size_t metadata_count;
    size_t metadata_capacity;
    uint64_t text_bytes; /* of all names, keys and values */
    bool plain;          /* the hashes are not written */
    struct hasher *hasher;
    uint64_t *hashes; /* once the header is written */
    size_t current;   /* tensor that the next bytes belong to */
    uint64_t current_done_bytes;
    bool broken; /* a write failed, so the file cannot be finished */
};

enum status safetensors_writer_create(struct safetensors_writer **out,
                                      const struct file_system *fs,
                                      const char *path,
                                      struct error *err) {
    REQUIRE(out && fs && path);
    *out = NULL;
    struct safetensors_writer *w = calloc(1, sizeof *w);
    TRY_MEMORY(w, err, "%s: out of memory", path);
    enum status s;
    TRY_OR_FAIL(s, hasher_create(&w->hasher, err));
    TRY_OR_FAIL(s, file_draft_open(&w->out, fs, path, err));
fail:
    RETURN_CREATED(s, out, w, safetensors_writer_destroy);
}

void safetensors_writer_omit_hashes(struct safetensors_writer *w) {
    w->plain = true;
}

void safetensors_writer_destroy(struct safetensors_writer *w) {
    if (!w) {
        return;
    }
    file_draft_close(&w->out, STATUS_INTERRUPTED, NULL);
    for (size_t i = 0; i < w->tensor_count; i++) {
        free(w->tensors[i].name);
    }
    for (size_t i = 0; i < w->metadata_count; i++) {
        free(w->metadata[i].key);
        free(w->metadata[i].value);
    }
    free(w->tensors);
    free(w->metadata);
    hasher_destroy(w->hasher);
    free(w->hashes);
    free(w);
}

/* ---- declarations -----------------------------------------------------------------------------
 */

static bool is_utf8(const char *text) {
    size_t size_bytes = strlen(text);
    return utf8_valid_prefix(text, size_bytes) == size_bytes;
}

static bool is_reserved(const char *name) {
    return strcmp(name, SAFETENSORS_HASH_NAME) == 0 || strcmp(name, "__metadata__") == 0;
}

/* What holds for a tensor's name and for a metadata key. */
static enum status
check_name(const struct safetensors_writer *w, const char *name, size_t count, struct error *err) {
    FAIL_IF(w->hashes, err, STATUS_INVALID, "%s: \"%.200s\" comes after the first data",
            w->out.path, name);
    FAIL_IF(name[0] == '\0' || !is_utf8(name) || is_reserved(name), err, STATUS_INVALID,
            "%s: \"%.200s\" is empty, reserved or not UTF-8", w->out.path, name);
    FAIL_IF(strlen(name) > SAFETENSORS_MAX_NAME_BYTES || count >= SAFETENSORS_MAX_TENSORS, err,
            STATUS_LIMIT, "%s: name of %zu bytes as entry %zu: at most %d bytes and %d entries",
            w->out.path, strlen(name), count + 1, SAFETENSORS_MAX_NAME_BYTES,
            SAFETENSORS_MAX_TENSORS);
    return STATUS_OK;
}

/* Room for one more element of `element_bytes` in a growing array. */
static enum status grow(const struct safetensors_writer *w,
                        void **array,
                        size_t *capacity,
                        size_t count,
                        size_t element_bytes,
                        struct error *err) {
    if (count < *capacity) {
        return STATUS_OK;
    }
    size_t wanted = *capacity ? 2 * *capacity : 64;
    void *larger = realloc(*array, wanted * element_bytes);
    TRY_MEMORY(larger, err, "%s: out of memory", w->out.path);
    *array = larger;
    *capacity = wanted;
    return STATUS_OK;
}

static enum status count_text(struct safetensors_writer *w, size_t size_bytes, struct error *err) {
    FAIL_IF(size_bytes > SAFETENSORS_MAX_HEADER_BYTES - w->text_bytes, err, STATUS_LIMIT,
            "%s: more than %d bytes of names and metadata", w->out.path,
            SAFETENSORS_MAX_HEADER_BYTES);
    w->text_bytes += size_bytes;
    return STATUS_OK;
}

enum status safetensors_writer_metadata(struct safetensors_writer *w,
                                        const char *key,
                                        const char *value,
                                        struct error *err) {
    REQUIRE(w && key && value);
    TRY(check_name(w, key, w->metadata_count, err));
    FAIL_IF(!is_utf8(value), err, STATUS_INVALID, "%s: metadata \"%.200s\" is not UTF-8",
            w->out.path, key);
    for (size_t i = 0; i < w->metadata_count; i++) {
        FAIL_IF(strcmp(w->metadata[i].key, key) == 0, err, STATUS_EXISTS,
                "%s: metadata \"%.200s\" is there already", w->out.path, key);
    }
    TRY(count_text(w, strlen(key) + strlen(value), err));
    void *array = w->metadata;
    TRY(grow(w, &array, &w->metadata_capacity, w->metadata_count, sizeof *w->metadata, err));
    w->metadata = array;
    struct entry e = {.key = strdup(key), .value = strdup(value)};
    if (!e.key || !e.value) {
        free(e.key);
        free(e.value);
        return error_set(err, STATUS_NOMEM, "%s: out of memory", w->out.path);
    }
    w->metadata[w->metadata_count++] = e;
    return STATUS_OK;
}

enum status safetensors_writer_declare(struct safetensors_writer *w,
                                       const char *name,
                                       enum safetensors_dtype dtype,
                                       const uint64_t *shape,
                                       uint32_t dim_count,
                                       struct error *err) {
    REQUIRE(w && name && (shape || dim_count == 0) && safetensors_dtype_bytes(dtype) > 0);
    TRY(check_name(w, name, w->tensor_count, err));
    struct declared t = {.dtype = dtype, .dim_count = dim_count};
    uint64_t element_count = 0;
    FAIL_IF(dim_count > SAFETENSORS_MAX_DIMS ||
                !safetensors_sizes(dtype, shape, dim_count, &element_count, &t.size_bytes),
            err, STATUS_LIMIT, "%s: tensor \"%.200s\" has more than %d dimensions or 2^63 bytes",
            w->out.path, name, SAFETENSORS_MAX_DIMS);
    if (dim_count > 0) {
        memcpy(t.shape, shape, dim_count * sizeof *shape);
    }
    t.name_hash = hash64(name, strlen(name));
    for (size_t i = 0; i < w->tensor_count; i++) {
        FAIL_IF(w->tensors[i].name_hash == t.name_hash && strcmp(w->tensors[i].name, name) == 0,
                err, STATUS_EXISTS, "%s: tensor \"%.200s\" is there already", w->out.path, name);
    }
    TRY(count_text(w, strlen(name), err));
    void *array = w->tensors;
    TRY(grow(w, &array, &w->tensor_capacity, w->tensor_count, sizeof *w->tensors, err));
    w->tensors = array;
    t.name = strdup(name);
    TRY_MEMORY(t.name, err, "%s: out of memory", w->out.path);
    w->tensors[w->tensor_count++] = t;
    return STATUS_OK;
}

/* ---- bytes ------------------------------------------------------------------------------------
 */

static void put_tensor(struct json_writer *json,
                       const char *name,
                       enum safetensors_dtype dtype,
                       const uint64_t *shape,
                       uint32_t dim_count,
                       uint64_t begin,
                       uint64_t end) {
    json_open_object(json, name);
    json_string(json, "dtype", safetensors_dtype_name(dtype));
    json_u64s(json, "shape", shape, dim_count);
    json_open_array(json, "data_offsets");
    json_u64(json, NULL, begin);
    json_u64(json, NULL, end);
    json_close_array(json);
    json_close_object(json);
}

static enum status
build_json(const struct safetensors_writer *w, struct json_writer *json, struct error *err) {
    json_open_object(json, NULL);
    json_open_object(json, "__metadata__");
    if (!w->plain) {
        json_string(json, SAFETENSORS_HASH_NAME, SAFETENSORS_HASH_VALUE);
    }
    for (size_t i = 0; i < w->metadata_count; i++) {
        json_string(json, w->metadata[i].key, w->metadata[i].value);
    }
    json_close_object(json);
    uint64_t at = 0;
    for (size_t i = 0; i < w->tensor_count; i++) {
        const struct declared *t = &w->tensors[i];
        uint64_t end = 0;
        FAIL_IF(!checked_add_u64(at, t->size_bytes, &end) || end > INT64_MAX - (1 << 20), err,
                STATUS_LIMIT, "%s: more than 2^63 bytes of tensors", w->out.path);
        put_tensor(json, t->name, t->dtype, t->shape, t->dim_count, at, end);
        at = end;
    }
    const uint64_t hash_count = w->tensor_count + 1;
    if (!w->plain) {
        put_tensor(json, SAFETENSORS_HASH_NAME, SAFETENSORS_U64, &hash_count, 1, at,
                   at + 8 * hash_count);
    }
    json_close_object(json);
    return json_writer_status(json, err);
}

/* Finishes the hash of every tensor that has all of its bytes: the current one, and empty ones
 * that follow. */
static void pass_complete(struct safetensors_writer *w) {
    while (w->current < w->tensor_count &&
           w->current_done_bytes == w->tensors[w->current].size_bytes) {
        w->hashes[1 + w->current] = hasher_value(w->hasher);
        hasher_reset(w->hasher);
        w->current++;
        w->current_done_bytes = 0;
    }
}

static enum status write_header(struct safetensors_writer *w, struct error *err) {
    struct json_writer json;
    json_writer_init(&json, SAFETENSORS_MAX_HEADER_BYTES);
    struct byte_buffer head;
    byte_buffer_init(&head, SAFETENSORS_MAX_HEADER_BYTES + SAFETENSORS_LENGTH_BYTES);
    enum status s = STATUS_OK;
    w->hashes = calloc(w->tensor_count + 1, sizeof *w->hashes);
    if (!w->hashes) {
        s = error_set(err, STATUS_NOMEM, "%s: out of memory", w->out.path);
        goto fail;
    }
    TRY_OR_FAIL(s, build_json(w, &json, err));
    size_t padding =
        (SAFETENSORS_ALIGNMENT_BYTES - json.out.size_bytes % SAFETENSORS_ALIGNMENT_BYTES) %
        SAFETENSORS_ALIGNMENT_BYTES;
    TRY_OR_FAIL(s, byte_buffer_u64(&head, json.out.size_bytes + padding, err));
    TRY_OR_FAIL(s, byte_buffer_append(&head, json.out.data, json.out.size_bytes, err));
    TRY_OR_FAIL(s, byte_buffer_append(&head, "        ", padding, err));
    w->hashes[0] = hash64(head.data, head.size_bytes);
    TRY_OR_FAIL(s, w->out.fs->write(w->out.file, head.data, head.size_bytes, err));
    pass_complete(w);
fail:
    w->broken = s < STATUS_OK;
    byte_buffer_fini(&head);
    json_writer_fini(&json);
    return s;
}

enum status safetensors_writer_data(struct safetensors_writer *w,
                                    const void *data,
                                    size_t size_bytes,
                                    struct error *err) {
    REQUIRE(w && (data || size_bytes == 0) && w->out.file);
    FAIL_IF(w->broken, err, STATUS_IO, "%s: an earlier write failed", w->out.path);
    if (!w->hashes) {
        TRY(write_header(w, err));
    }
    if (size_bytes == 0) {
        return STATUS_OK;
    }
    FAIL_IF(w->current == w->tensor_count ||
                size_bytes > w->tensors[w->current].size_bytes - w->current_done_bytes,
            err, STATUS_INVALID, "%s: %zu bytes of data exceed the rest of tensor \"%.200s\"",
            w->out.path, size_bytes,
            w->current == w->tensor_count ? "" : w->tensors[w->current].name);
    enum status s = w->out.fs->write(w->out.file, data, size_bytes, err);
    if (s < STATUS_OK) {
        w->broken = true;
        return s;
    }
    hasher_update(w->hasher, data, size_bytes);
    w->current_done_bytes += size_bytes;
    pass_complete(w);
    return STATUS_OK;
}

static enum status write_hashes(struct safetensors_writer *w, struct error *err) {
    struct byte_buffer out;
    byte_buffer_init(&out, 0);
    enum status s = STATUS_OK;
    for (size_t i = 0; i <= w->tensor_count && s == STATUS_OK; i++) {
        s = byte_buffer_u64(&out, w->hashes[i], err);
    }
    THEN(s, w->out.fs->write(w->out.file, out.data, out.size_bytes, err));
    byte_buffer_fini(&out);
    return s;
}

enum status safetensors_writer_finish(struct safetensors_writer *w, struct error *err) {
    REQUIRE(w && w->out.file);
    FAIL_IF(w->broken, err, STATUS_IO, "%s: an earlier write failed", w->out.path);
    if (!w->hashes) {
        TRY(write_header(w, err));
    }
    FAIL_IF(w->current < w->tensor_count, err, STATUS_INVALID,
            "%s: tensor \"%.200s\" has %llu of %llu bytes", w->out.path,
            w->tensors[w->current].name, (unsigned long long)w->current_done_bytes,
            (unsigned long long)w->tensors[w->current].size_bytes);
    if (!w->plain) {
        TRY(write_hashes(w, err));
    }
    return file_draft_close(&w->out, STATUS_OK, err);
}
