/*
 * Opening and reading safetensors files.
 *
 *     u64 N | JSON header, N bytes | data ... tensors without gaps ... hashes
 *
 * The header is checked whole before a single number of it is used: tensors are sorted by their
 * place and must cover the data exactly, each with the bytes that its shape says. After that a
 * struct safetensors_info is trusted, and reading is one positioned read and one hash.
 */
#include "formats/tensors/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/checked.h"
#include "formats/base/hash.h"
#include "formats/json/json_reader.h"
#include "formats/tensors/safetensors_internal.h"

struct safetensors {
    const struct file_system *fs;
    struct file *file;
    struct json_document *header; /* owns all names, keys and values */
    char *path;
    uint64_t data_offset;
    uint64_t data_size;
    size_t tensor_count;
    struct safetensors_info *tensors;        /* in the order of their data */
    const struct safetensors_info **by_name; /* sorted */
    size_t metadata_count;
    const char **metadata_keys;
    const struct json_value *metadata; /* NULL when there is none */
    bool announces_hashes;
    uint64_t *hashes; /* [0] header, [1 + i] tensor i; NULL without */
};

static const struct {
    enum safetensors_dtype dtype;
    uint32_t size_bytes;
    const char *name;
} dtypes[] = {
    {SAFETENSORS_F32, 4, "F32"}, {SAFETENSORS_BF16, 2, "BF16"}, {SAFETENSORS_F16, 2, "F16"},
    {SAFETENSORS_F64, 8, "F64"}, {SAFETENSORS_I32, 4, "I32"},   {SAFETENSORS_I64, 8, "I64"},
    {SAFETENSORS_U64, 8, "U64"}, {SAFETENSORS_U32, 4, "U32"},   {SAFETENSORS_U8, 1, "U8"},
    {SAFETENSORS_I8, 1, "I8"},
};

enum { DTYPE_COUNT = sizeof dtypes / sizeof dtypes[0] };

size_t safetensors_dtype_bytes(enum safetensors_dtype dtype) {
    for (size_t i = 0; i < DTYPE_COUNT; i++) {
        if (dtypes[i].dtype == dtype) {
            return dtypes[i].size_bytes;
        }
    }
    return 0;
}

const char *safetensors_dtype_name(enum safetensors_dtype dtype) {
    for (size_t i = 0; i < DTYPE_COUNT; i++) {
        if (dtypes[i].dtype == dtype) {
            return dtypes[i].name;
        }
    }
    return "?";
}

enum safetensors_dtype safetensors_dtype_of(const char *name) {
    for (size_t i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            return dtypes[i].dtype;
        }
    }
    return (enum safetensors_dtype)0;
}

bool safetensors_sizes(enum safetensors_dtype dtype,
                       const uint64_t *shape,
                       uint32_t dim_count,
                       uint64_t *element_count,
                       uint64_t *size_bytes) {
    uint64_t count = 1;
    bool empty = false;
    for (uint32_t i = 0; i < dim_count; i++) {
        empty = empty || shape[i] == 0;
        if (!checked_mul_u64(count, shape[i] ? shape[i] : 1, &count)) {
            return false;
        }
    }
    uint64_t size = 0;
    if (!checked_mul_u64(count, safetensors_dtype_bytes(dtype), &size) || size > INT64_MAX) {
        return false;
    }
    *element_count = empty ? 0 : count;
    *size_bytes = empty ? 0 : size;
    return true;
}

/* ---- checking the header ----------------------------------------------------------------------
 */

static enum status
corrupt(const struct safetensors *r, const char *name, const char *what, struct error *err) {
    return error_set(err, STATUS_CORRUPT, "%s: tensor \"%.200s\": %s", r->path, name, what);
}

static enum status parse_tensor(const struct safetensors *r,
                                const char *name,
                                const struct json_value *v,
                                struct safetensors_info *out,
                                struct error *err) {
    const char *dtype = json_value_string(json_value_get(v, "dtype"), NULL);
    const struct json_value *shape = json_value_get(v, "shape");
    const struct json_value *offsets = json_value_get(v, "data_offsets");
    RETURN_IF(!dtype || !json_value_is_array(shape) || !json_value_is_array(offsets) ||
                  json_value_count(offsets) != 2 || json_value_count(v) != 3,
              corrupt(r, name, "needs exactly dtype, shape and two data_offsets", err));
    size_t name_size = strlen(name);
    size_t dim_count = json_value_count(shape);
    FAIL_IF(name_size == 0 || name_size > SAFETENSORS_MAX_NAME_BYTES ||
                dim_count > SAFETENSORS_MAX_DIMS,
            err, STATUS_LIMIT,
            "%s: tensor \"%.200s\" has %zu dimensions and %zu bytes of name; at most "
            "%d and 1 to %d are allowed",
            r->path, name, dim_count, name_size, SAFETENSORS_MAX_DIMS, SAFETENSORS_MAX_NAME_BYTES);
    *out = (struct safetensors_info){.name = name, .dim_count = (uint32_t)dim_count};
    out->dtype = safetensors_dtype_of(dtype);
    FAIL_IF(!out->dtype, err, STATUS_UNSUPPORTED,
            "%s: tensor \"%.200s\" has dtype \"%.32s\", which is not supported", r->path, name,
            dtype);
    for (size_t i = 0; i < dim_count; i++) {
        RETURN_IF(!json_value_u64(json_value_at(shape, i), &out->shape[i]),
                  corrupt(r, name, "a dimension of the shape is not a valid count", err));
    }
    uint64_t begin = 0;
    uint64_t end = 0;
    RETURN_IF(!json_value_u64(json_value_at(offsets, 0), &begin) ||
                  !json_value_u64(json_value_at(offsets, 1), &end) || begin > end ||
                  end > r->data_size,
              corrupt(r, name, "data_offsets lie outside the file", err));
    RETURN_IF(!safetensors_sizes(out->dtype, out->shape, out->dim_count, &out->element_count,
                                 &out->size_bytes) ||
                  out->size_bytes != end - begin,
              corrupt(r, name, "shape and data_offsets do not agree", err));
    out->offset_bytes = r->data_offset + begin;
    return STATUS_OK;
}

static enum status
parse_metadata(struct safetensors *r, const struct json_value *v, struct error *err) {
    size_t count = json_value_count(v);
    FAIL_IF(!json_value_is_object(v) || count > SAFETENSORS_MAX_TENSORS, err, STATUS_CORRUPT,
            "%s: __metadata__ is not an object, or too large", r->path);
    r->metadata = v;
    r->metadata_keys = calloc(count + 1, sizeof *r->metadata_keys);
    TRY_MEMORY(r->metadata_keys, err, "%s: out of memory", r->path);
    void *position = NULL;
    const char *key = NULL;
    const struct json_value *value = NULL;
    while (json_value_next_member(v, &position, &key, &value)) {
        FAIL_IF(!json_value_string(value, NULL), err, STATUS_CORRUPT,
                "%s: metadata \"%.200s\" is not a string", r->path, key);
        FAIL_IF(strlen(key) > SAFETENSORS_MAX_NAME_BYTES, err, STATUS_LIMIT,
                "%s: metadata key of more than %d bytes", r->path, SAFETENSORS_MAX_NAME_BYTES);
        if (strcmp(key, SAFETENSORS_HASH_NAME) == 0) {
            r->announces_hashes = true;
        } else {
            r->metadata_keys[r->metadata_count++] = key;
        }
    }
    return STATUS_OK;
}

static int compare_place(const void *a, const void *b) {
    const struct safetensors_info *x = a;
    const struct safetensors_info *y = b;
    if (x->offset_bytes != y->offset_bytes) {
        return x->offset_bytes < y->offset_bytes ? -1 : 1;
    }
    if (x->size_bytes != y->size_bytes) {
        return x->size_bytes < y->size_bytes ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static int compare_name(const void *a, const void *b) {
    const struct safetensors_info *const *x = a;
    const struct safetensors_info *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* The tensors must cover the data exactly once. */
static enum status check_cover(const struct safetensors *r, struct error *err) {
    uint64_t at = r->data_offset;
    for (size_t i = 0; i < r->tensor_count; i++) {
        RETURN_IF(r->tensors[i].offset_bytes != at,
                  corrupt(r, r->tensors[i].name, "overlaps another or leaves a gap", err));
        at += r->tensors[i].size_bytes;
    }
    FAIL_IF(at != r->data_offset + r->data_size, err, STATUS_CORRUPT,
            "%s: the tensors end at byte %llu, the file at %llu", r->path, (unsigned long long)at,
            (unsigned long long)(r->data_offset + r->data_size));
    return STATUS_OK;
}

static enum status parse_header(struct safetensors *r, struct error *err) {
    const struct json_value *root = json_document_root(r->header);
    size_t count = json_value_count(root);
    FAIL_IF(!json_value_is_object(root) || count > SAFETENSORS_MAX_TENSORS + 2u, err,
            STATUS_CORRUPT, "%s: the header is not an object of at most %d tensors", r->path,
            SAFETENSORS_MAX_TENSORS);
    r->tensors = calloc(count + 1, sizeof *r->tensors);
    r->by_name = calloc(count + 1, sizeof *r->by_name);
    TRY_MEMORY(r->tensors && r->by_name, err, "%s: out of memory", r->path);
    void *position = NULL;
    const char *key = NULL;
    const struct json_value *value = NULL;
    while (json_value_next_member(root, &position, &key, &value)) {
        if (strcmp(key, "__metadata__") == 0) {
            TRY(parse_metadata(r, value, err));
        } else {
            TRY(parse_tensor(r, key, value, &r->tensors[r->tensor_count], err));
            r->tensor_count++;
            /* Announced or not: a file that has them is checked with them. */
            r->announces_hashes = r->announces_hashes || strcmp(key, SAFETENSORS_HASH_NAME) == 0;
        }
    }
    qsort(r->tensors, r->tensor_count, sizeof *r->tensors, compare_place);
    return check_cover(r, err);
}

static enum status read_exactly(const struct safetensors *r,
                                void *out,
                                size_t size_bytes,
                                uint64_t offset,
                                struct error *err) {
    size_t got = 0;
    TRY(r->fs->pread(r->file, out, &got, size_bytes, offset, err));
    FAIL_IF(got != size_bytes, err, STATUS_CORRUPT, "%s: ends at byte %llu, expected %llu more",
            r->path, (unsigned long long)(offset + got), (unsigned long long)(size_bytes - got));
    return STATUS_OK;
}

/* Takes the hashes out of the list of tensors and checks the header with them. */
static enum status
take_hashes(struct safetensors *r, const uint8_t *head, size_t head_size, struct error *err) {
    const struct safetensors_info *last = r->tensor_count ? &r->tensors[r->tensor_count - 1] : NULL;
    if (!last || strcmp(last->name, SAFETENSORS_HASH_NAME) != 0) {
        FAIL_IF(r->announces_hashes, err, STATUS_CORRUPT,
                "%s: the last tensor must be " SAFETENSORS_HASH_NAME, r->path);
        return STATUS_OK;
    }
    RETURN_IF(last->dtype != SAFETENSORS_U64 || last->dim_count != 1 ||
                  last->shape[0] != r->tensor_count,
              corrupt(r, last->name, "must hold one number per tensor", err));
    size_t size = (size_t)last->size_bytes;
    r->hashes = calloc(1, size);
    TRY_MEMORY(r->hashes, err, "%s: out of memory", r->path);
    TRY(read_exactly(r, r->hashes, size, last->offset_bytes, err));
    for (size_t i = 0; i < r->tensor_count; i++) {
        uint8_t bytes[8];
        memcpy(bytes, &r->hashes[i], sizeof bytes);
        r->hashes[i] = load_u64(bytes);
    }
    r->tensor_count--;
    FAIL_IF(hash64(head, head_size) != r->hashes[0], err, STATUS_CORRUPT,
            "%s: the header does not match its hash", r->path);
    return STATUS_OK;
}

static enum status load_header(struct safetensors *r, struct error *err) {
    uint64_t file_size = 0;
    TRY(r->fs->size(r->file, &file_size, err));
    uint8_t length[SAFETENSORS_LENGTH_BYTES];
    TRY(read_exactly(r, length, sizeof length, 0, err));
    uint64_t header_size = load_u64(length);
    FAIL_IF(header_size > SAFETENSORS_MAX_HEADER_BYTES, err, STATUS_LIMIT,
            "%s: not a safetensors file, or its header of %llu bytes exceeds the limit of %d",
            r->path, (unsigned long long)header_size, SAFETENSORS_MAX_HEADER_BYTES);
    FAIL_IF(header_size < 2 || header_size > file_size - sizeof length, err, STATUS_CORRUPT,
            "%s: header of %llu bytes in a file of %llu", r->path, (unsigned long long)header_size,
            (unsigned long long)file_size);
    r->data_offset = sizeof length + header_size;
    r->data_size = file_size - r->data_offset;
    size_t head_size = sizeof length + (size_t)header_size;
    uint8_t *head = malloc(head_size);
    TRY_MEMORY(head, err, "%s: out of memory", r->path);
    enum status s = read_exactly(r, head, head_size, 0, err);
    if (s == STATUS_OK && head[sizeof length] != '{') {
        s = error_set(err, STATUS_CORRUPT, "%s: the header does not begin with {", r->path);
    }
    THEN(s,
         json_document_parse(&r->header, r->path, head + sizeof length, (size_t)header_size, err));
    THEN(s, parse_header(r, err));
    THEN(s, take_hashes(r, head, head_size, err));
    free(head);
    return s;
}

enum status safetensors_open(struct safetensors **out,
                             const struct file_system *fs,
                             const char *path,
                             struct error *err) {
    REQUIRE(out && fs && path);
    *out = NULL;
    enum status s = STATUS_OK;
    struct safetensors *r = calloc(1, sizeof *r);
    TRY_MEMORY(r, err, "%s: out of memory", path);
    r->fs = fs;
    r->path = strdup(path);
    if (!r->path) {
        s = error_set(err, STATUS_NOMEM, "%s: out of memory", path);
        goto fail;
    }
    TRY_OR_FAIL(s, fs->open(fs->context, &r->file, path, FILE_READ, err));
    TRY_OR_FAIL(s, load_header(r, err));
    for (size_t i = 0; i < r->tensor_count; i++) {
        r->by_name[i] = &r->tensors[i];
    }
    qsort(r->by_name, r->tensor_count, sizeof(r->by_name[0]), compare_name);
fail:
    RETURN_CREATED(s, out, r, safetensors_close);
}

void safetensors_close(struct safetensors *r) {
    if (!r) {
        return;
    }
    r->fs->close(r->file);
    json_document_destroy(r->header);
    free(r->tensors);
    free(r->by_name);
    free(r->metadata_keys);
    free(r->hashes);
    free(r->path);
    free(r);
}

/* ---- lookups ----------------------------------------------------------------------------------
 */

size_t safetensors_count(const struct safetensors *r) {
    return r->tensor_count;
}

const struct safetensors_info *safetensors_at(const struct safetensors *r, size_t index) {
    return index < r->tensor_count ? &r->tensors[index] : NULL;
}

const struct safetensors_info *safetensors_find(const struct safetensors *r, const char *name) {
    const struct safetensors_info key = {.name = name};
    const struct safetensors_info *p = &key;
    const struct safetensors_info **hit =
        bsearch(&p, r->by_name, r->tensor_count, sizeof(r->by_name[0]), compare_name);
    return hit ? *hit : NULL;
}

size_t safetensors_swap_names(struct safetensors *r, const char *prefix) {
    const size_t length = strlen(prefix);
    size_t count = 0;
    for (size_t i = 0; i < r->tensor_count; i++) {
        struct safetensors_info *a = &r->tensors[i];
        const struct safetensors_info *b =
            strncmp(a->name, prefix, length) == 0 ? safetensors_find(r, a->name + length) : NULL;
        if (b != NULL && a->dtype == b->dtype && a->dim_count == b->dim_count &&
            memcmp(a->shape, b->shape, sizeof a->shape) == 0) {
            const char *name = b->name;
            r->tensors[b - r->tensors].name = a->name;
            a->name = name;
            count++;
            qsort(r->by_name, r->tensor_count, sizeof(r->by_name[0]), compare_name);
        }
    }
    return count;
}

size_t safetensors_metadata_count(const struct safetensors *r) {
    return r->metadata_count;
}

const char *safetensors_metadata_key(const struct safetensors *r, size_t index) {
    return index < r->metadata_count ? r->metadata_keys[index] : NULL;
}

const char *safetensors_metadata(const struct safetensors *r, const char *key) {
    return json_value_string(json_value_get(r->metadata, key), NULL);
}

bool safetensors_has_hashes(const struct safetensors *r) {
    return r->hashes != NULL;
}

/* ---- reading ----------------------------------------------------------------------------------
 */

static enum status check_hash(const struct safetensors *r,
                              const struct safetensors_info *tensor,
                              uint64_t found,
                              struct error *err) {
    uint64_t expected = r->hashes[1 + (size_t)(tensor - r->tensors)];
    FAIL_IF(found != expected, err, STATUS_CORRUPT,
            "%s: tensor \"%.200s\" does not match its hash: %016llx, expected %016llx", r->path,
            tensor->name, (unsigned long long)found, (unsigned long long)expected);
    return STATUS_OK;
}

enum status safetensors_read(const struct safetensors *r,
                             const struct safetensors_info *tensor,
                             void *out,
                             size_t size_bytes,
                             struct error *err) {
    REQUIRE(r && tensor && (out || size_bytes == 0));
    FAIL_IF(size_bytes != tensor->size_bytes, err, STATUS_INVALID,
            "%s: tensor \"%.200s\" has %llu bytes, not %zu", r->path, tensor->name,
            (unsigned long long)tensor->size_bytes, size_bytes);
    TRY(read_exactly(r, out, size_bytes, tensor->offset_bytes, err));
    return r->hashes ? check_hash(r, tensor, hash64(out, size_bytes), err) : STATUS_OK;
}

enum status
safetensors_read_pieces(const struct safetensors *r,
                        const struct safetensors_info *tensor,
                        void (*take)(void *cookie, const void *piece, size_t size_bytes),
                        void *cookie,
                        struct error *err) {
    REQUIRE(r && tensor && take);
    enum status s = STATUS_OK;
    struct hasher *hasher = NULL;
    void *piece = malloc(SAFETENSORS_PIECE_BYTES);
    if (!piece) {
        s = error_set(err, STATUS_NOMEM, "%s: out of memory", r->path);
        goto fail;
    }
    TRY_OR_FAIL(s, hasher_create(&hasher, err));
    uint64_t size_bytes = 0;
    for (uint64_t done = 0; done < tensor->size_bytes; done += size_bytes) {
        size_bytes = tensor->size_bytes - done;
        size_bytes = size_bytes > SAFETENSORS_PIECE_BYTES ? SAFETENSORS_PIECE_BYTES : size_bytes;
        TRY_OR_FAIL(s,
                    read_exactly(r, piece, (size_t)size_bytes, tensor->offset_bytes + done, err));
        hasher_update(hasher, piece, (size_t)size_bytes);
        take(cookie, piece, (size_t)size_bytes);
    }
    if (r->hashes) {
        s = check_hash(r, tensor, hasher_value(hasher), err);
    }
fail:
    hasher_destroy(hasher);
    free(piece);
    return s;
}
