/*
 * Reading columns:
 *
 *     data | u64 id of each row | u32 check of each row, or frames | info, a JSON object | trailer
 *
 * Rows of numbers are the data as they are; texts are in zstd frames. A damaged table leads to a
 * wrong row or frame, which fails its check, because that is tied to ids.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_map.h"
#include "formats/base/hash.h"
#include "formats/columns/columns_internal.h"
#include "formats/json/json_reader.h"

struct column {
    struct column_info info;
    char path[PATH_MAX_BYTES];
    struct file_map file;
    const uint8_t *ids, *checks, *frames;
    uint32_t id_bytes;
    uint64_t data_bytes, frame_count, info_at;
};

struct column_workspace {
    struct zstd_unpacker *unpacker;
    const struct column *column; /* whose frame is in `bytes`; NULL: none */
    uint64_t frame, first;       /* first: row of it */
    struct byte_buffer bytes;
};

/* ---- what there is --------------------------------------------------------------------------- */

const char *column_kind_name(int kind) {
    static const char *const names[] = {"?",   "f32", "bf16", "f16", "f64", "i32",
                                        "i64", "u64", "u32",  "u8",  "i8"};
    return kind == COLUMN_CAPTIONS ? "captions"
           : kind == COLUMN_TEXT   ? "text"
           : kind == COLUMN_JSON   ? "json"
                                   : names[kind >= 1 && kind <= SAFETENSORS_I8 ? kind : 0];
}

int column_kind_find(const char *name) {
    int kind = COLUMN_JSON;
    while (kind > 0 && strcmp(name, column_kind_name(kind)) != 0) {
        kind--;
    }
    return kind;
}

uint32_t column_row_bytes(const struct column_info *c) {
    return c->values * (uint32_t)safetensors_dtype_bytes((enum safetensors_dtype)c->kind);
}

uint32_t column_check(const void *row, size_t row_bytes, uint64_t id) {
    return (uint32_t)hash64(row, row_bytes) ^ (uint32_t)id;
}

uint32_t column_frame_check(const uint8_t *ids, size_t count) {
    return (uint32_t)hash64(ids, 8 * count);
}

static bool is_name(const char *name) {
    const size_t n = strlen(name);
    return n > 0 && n <= COLUMN_MAX_NAME_BYTES &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

enum status
column_path(char out[PATH_MAX_BYTES], const char *directory, const char *name, struct error *err) {
    char file[COLUMN_MAX_NAME_BYTES + 32];
    FAIL_IF(!is_name(name), err, STATUS_USAGE,
            "'%.60s' is not a valid column name: use at most %d of a-z, 0-9 and _", name,
            COLUMN_MAX_NAME_BYTES);
    (void)snprintf(file, sizeof(file), COLUMNS_FOLDER "/%s.ccc", name);
    return path_join(out, PATH_MAX_BYTES, directory, file, err);
}

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

/* All zeros without a list. */
static enum status read_list(struct column_names *out,
                             const struct file_system *fs,
                             const char *path,
                             struct error *err) {
    struct byte_buffer text;
    char *rest = NULL;
    memset(out, 0, sizeof(*out));
    byte_buffer_init(&text, 0);
    enum status s = file_read_all(fs, &text, path, COLUMNS_MAX * (COLUMN_MAX_NAME_BYTES + 1), err);
    THEN(s, byte_buffer_append(&text, "", 1, err));
    char *name = s == STATUS_OK ? strtok_r((char *)text.data, "\n", &rest) : NULL;
    for (; s == STATUS_OK && name; name = strtok_r(NULL, "\n", &rest)) {
        if (!is_name(name) || out->count == COLUMNS_MAX) {
            s = error_set(err, STATUS_CORRUPT, "%s: is not a list of columns", path);
        } else {
            strcpy(out->items[out->count++], name);
        }
    }
    byte_buffer_fini(&text);
    return s;
}

enum status column_names_read(struct column_names *out,
                              const struct file_system *fs,
                              const char *directory,
                              struct error *err) {
    char folder[PATH_MAX_BYTES];
    char list[PATH_MAX_BYTES];
    struct byte_buffer names;
    struct error why = {0};
    memset(out, 0, sizeof(*out));
    byte_buffer_init(&names, 0);
    TRY(path_join(folder, sizeof(folder), directory, COLUMNS_FOLDER, err));
    TRY(path_join(list, sizeof(list), directory, COLUMN_LIST_NAME, err));
    enum status s = fs->list(fs->context, folder, &names, &why);
    for (size_t at = 0; s == STATUS_OK && at < names.size_bytes && out->count < COLUMNS_MAX;) {
        char *name = (char *)names.data + at;
        char *end = strrchr(name, '.');
        at += strlen(name) + 1;
        if (end && strcmp(end, ".ccc") == 0) {
            *end = '\0';
            if (is_name(name)) {
                strcpy(out->items[out->count++], name);
            }
        }
    }
    if (s == STATUS_OK && names.size_bytes == 0) {
        s = read_list(out, fs, list, &why);
    }
    byte_buffer_fini(&names);
    qsort(out->items, out->count, sizeof(out->items[0]), by_name);
    return s == STATUS_OK || s == STATUS_NOTFOUND ? STATUS_OK : error_pass(err, s, &why);
}

enum status column_list_mend(const struct file_system *fs,
                             const char *directory,
                             const char *more,
                             bool write,
                             struct error *err) {
    struct column_names there, listed;
    char text[sizeof(there)];
    char path[PATH_MAX_BYTES];
    size_t size = 0;
    struct error why = {0};
    TRY(path_join(path, sizeof(path), directory, COLUMN_LIST_NAME, err));
    TRY(column_names_read(&there, fs, directory, err));
    if (more && !bsearch(more, there.items, there.count, sizeof(there.items[0]), by_name)) {
        FAIL_IF(there.count == COLUMNS_MAX, err, STATUS_LIMIT, "%s: has %d columns already",
                directory, COLUMNS_MAX);
        strcpy(there.items[there.count++], more);
        qsort(there.items, there.count, sizeof(there.items[0]), by_name);
    }
    const enum status s = read_list(&listed, fs, path, &why);
    RETURN_IF(s == STATUS_NOMEM, error_pass(err, s, &why));
    if ((s == STATUS_OK || s == STATUS_NOTFOUND) && memcmp(&there, &listed, sizeof(there)) == 0) {
        return STATUS_OK;
    }
    FAIL_IF(!write, err, s == STATUS_NOTFOUND ? s : STATUS_MISMATCH,
            "%s: does not list the existing columns", path);
    for (size_t i = 0; i < there.count; i++) {
        size += (size_t)snprintf(text + size, sizeof(text) - size, "%s\n", there.items[i]);
    }
    return size > 0 ? file_write_atomic(fs, path, text, size, err)
                    : fs->remove(fs->context, path, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

static enum status damaged(const struct column *c, const char *what, struct error *err) {
    return error_set(err, STATUS_CORRUPT, "%s: %s; 'ccpack attach --replace' rebuilds the column",
                     c->path, what);
}

/* Whether the members are there and agree with the file. */
static bool get_info(struct column *c, const struct json_value *v) {
    struct column_info *i = &c->info;
    const char *kind = json_value_string(json_value_get(v, "kind"), NULL);
    i->kind = kind ? column_kind_find(kind) : 0;
    if (i->kind == 0 || !json_value_u32(json_value_get(v, "values"), &i->values) ||
        !json_value_u32(json_value_get(v, "vectors"), &i->vectors) ||
        !json_value_u64(json_value_get(v, "rows"), &i->rows) ||
        !json_value_u32(json_value_get(v, "id_bytes"), &c->id_bytes) ||
        !json_value_u64(json_value_get(v, "frames"), &c->frame_count) ||
        !json_value_hex64(json_value_get(v, "hash"), &i->hash) ||
        !json_value_hex64(json_value_get(v, "fingerprint"), &i->fingerprint)) {
        return false;
    }
    const bool text = i->kind >= COLUMN_CAPTIONS;
    if (text != (i->values == 0) || i->values > COLUMN_MAX_ROW_BYTES ||
        (c->id_bytes != 4 && c->id_bytes != 8) || column_row_bytes(i) > COLUMN_MAX_ROW_BYTES ||
        i->rows > c->info_at / c->id_bytes || c->frame_count > (text ? i->rows : 0) ||
        (!text && (i->vectors == 0 || i->values % i->vectors != 0))) {
        return false;
    }
    const uint64_t tables =
        i->rows * (c->id_bytes + (text ? 0 : 4)) + c->frame_count * COLUMN_FRAME_ENTRY_BYTES;
    c->data_bytes = c->info_at - tables;
    c->ids = c->file.bytes + c->data_bytes;
    c->checks = c->ids + c->id_bytes * i->rows;
    c->frames = c->checks;
    i->source = json_value_text(json_value_get(v, "source"));
    return tables <= c->info_at && (text || c->data_bytes == i->rows * column_row_bytes(i));
}

static enum status parse(struct column *c, struct error *err) {
    const uint64_t size = c->file.size_bytes;
    struct json_document *d = NULL;
    RETURN_IF(size < COLUMN_TRAILER_BYTES, damaged(c, "is not a column, or is truncated", err));
    const uint8_t *t = c->file.bytes + (size - COLUMN_TRAILER_BYTES);
    const uint64_t info_bytes = load_u64(t);
    RETURN_IF(memcmp(t + 24, COLUMN_MAGIC, 8) != 0,
              damaged(c, "is not a column, or is truncated", err));
    FAIL_IF(load_u64(t + 16) != COLUMNS_VERSION, err, STATUS_VERSION,
            "%s: version %" PRIu64 ", this program reads version %d", c->path, load_u64(t + 16),
            COLUMNS_VERSION);
    RETURN_IF(info_bytes > COLUMN_MAX_INFO_BYTES || info_bytes > size - COLUMN_TRAILER_BYTES ||
                  hash64(t - info_bytes, (size_t)info_bytes) != load_u64(t + 8),
              damaged(c, "the info fails its check", err));
    c->info_at = size - COLUMN_TRAILER_BYTES - info_bytes;
    TRY(json_document_parse(&d, c->path, t - info_bytes, (size_t)info_bytes, err));
    const bool good = get_info(c, json_document_root(d));
    json_document_destroy(d);
    return good && c->info.source ? STATUS_OK : damaged(c, "the info contradicts the file", err);
}

enum status column_open(struct column **out,
                        const struct file_system *fs,
                        const char *directory,
                        const char *name,
                        const struct manifest *dataset,
                        struct error *err) {
    REQUIRE(out && fs && directory && name);
    *out = NULL;
    struct column *c = calloc(1, sizeof(*c));
    TRY_MEMORY(c, err, "out of memory for a column");
    struct error why = {0};
    enum status s = column_path(c->path, directory, name, &why);
    THEN(s, file_map_open(&c->file, fs, c->path, &why));
    if (s == STATUS_NOTFOUND) {
        error_set(&why, s, "%s: there is no column '%s'; 'ccpack attach' adds one", directory,
                  name);
    }
    THEN(s, parse(c, &why));
    if (s == STATUS_OK) {
        strcpy(c->info.name, name);
        if (dataset && !manifest_has_been(dataset, c->info.fingerprint)) {
            s = error_set(&why, STATUS_MISMATCH,
                          "%s: was attached to dataset %016" PRIx64
                          ", which this one has never been: attach it again with --replace",
                          c->path, c->info.fingerprint);
        }
    }
    if (s != STATUS_OK) {
        column_close(c);
        return error_pass(err, s, &why);
    }
    *out = c;
    return STATUS_OK;
}

void column_close(struct column *c) {
    if (c) {
        file_map_close(&c->file);
        free(c->info.source);
        free(c);
    }
}

const struct column_info *column_info(const struct column *c) {
    return &c->info;
}

/* ---- rows ------------------------------------------------------------------------------------ */

enum status column_workspace_create(struct column_workspace **out, struct error *err) {
    struct column_workspace *s = calloc(1, sizeof(*s));
    TRY_MEMORY(s, err, "out of memory for reading columns");
    const enum status status = zstd_unpacker_create(&s->unpacker, err);
    RETURN_CREATED(status, out, s, column_workspace_destroy);
}

void column_workspace_destroy(struct column_workspace *s) {
    if (s) {
        zstd_unpacker_destroy(s->unpacker);
        byte_buffer_fini(&s->bytes);
        free(s);
    }
}

uint64_t column_row_id(const struct column *c, uint64_t row) {
    const uint8_t *id = c->ids + c->id_bytes * row;
    return c->id_bytes == 4 ? load_u32(id) : load_u64(id);
}

static uint64_t first_of_frame(const struct column *c, uint64_t frame) {
    return frame < c->frame_count ? load_u64(c->frames + frame * COLUMN_FRAME_ENTRY_BYTES + 8)
                                  : c->info.rows;
}

/* The last of `count` ascending numbers that is at most `v`; or the first. */
static uint64_t search(const struct column *c,
                       uint64_t (*number)(const struct column *c, uint64_t i),
                       uint64_t count,
                       uint64_t v) {
    uint64_t at = 0;
    while (count > 1) {
        const uint64_t half = count / 2;
        const bool after = number(c, at + half) > v;
        at += after ? 0 : half;
        count = after ? half : count - half;
    }
    return at;
}

static bool find_row(const struct column *c, uint64_t id, uint64_t *row) {
    const uint64_t rows = c->info.rows;
    *row = rows > 0 ? id - column_row_id(c, 0) : 0; /* right where no id is missing */
    if (*row >= rows || column_row_id(c, *row) != id) {
        *row = search(c, column_row_id, rows, id);
    }
    return rows > 0 && column_row_id(c, *row) == id;
}

bool column_has(const struct column *c, uint64_t id) {
    uint64_t row = 0;
    return find_row(c, id, &row);
}

/* Whether the frame in `s` was made of the rows that the tables name. */
static bool is_of_rows(const struct column *c, const struct column_workspace *s) {
    uint8_t ids[8 * COLUMN_FRAME_ROWS];
    const uint64_t end = first_of_frame(c, s->frame + 1);
    if (s->first >= end || end > c->info.rows || end - s->first > COLUMN_FRAME_ROWS ||
        s->bytes.size_bytes < COLUMN_FRAME_CHECK_BYTES) {
        return false;
    }
    const size_t count = (size_t)(end - s->first);
    for (size_t i = 0; i < count; i++) {
        store_u64(ids + 8 * i, column_row_id(c, s->first + i));
    }
    return load_u32(s->bytes.data) == column_frame_check(ids, count);
}

/* Decompresses the frame that has the row. */
static enum status
read_frame(const struct column *c, struct column_workspace *s, uint64_t row, struct error *err) {
    RETURN_IF(c->frame_count == 0, damaged(c, "has no frames", err));
    const uint64_t frame = search(c, first_of_frame, c->frame_count, row);
    const uint8_t *entry = c->frames + frame * COLUMN_FRAME_ENTRY_BYTES;
    const uint64_t from = load_u64(entry);
    const uint64_t to =
        frame + 1 < c->frame_count ? load_u64(entry + COLUMN_FRAME_ENTRY_BYTES) : c->data_bytes;
    uint64_t size = 0;
    if (s->column == c && s->frame == frame) {
        return STATUS_OK;
    }
    s->column = NULL;
    RETURN_IF(from > to || to > c->data_bytes ||
                  !zstd_content_size(c->file.bytes + from, (size_t)(to - from), &size) ||
                  size > COLUMN_MAX_TEXT_BYTES + COLUMN_FRAME_BYTES + COLUMN_FRAME_CHECK_BYTES,
              damaged(c, "the table of frames is damaged", err));
    s->bytes.size_bytes = 0;
    TRY(byte_buffer_reserve(&s->bytes, (size_t)size, err));
    TRY(zstd_unpack(s->unpacker, s->bytes.data, (size_t)size, c->file.bytes + from,
                    (size_t)(to - from), c->path, err));
    s->bytes.size_bytes = (size_t)size;
    s->frame = frame;
    s->first = first_of_frame(c, frame);
    s->column = is_of_rows(c, s) ? c : NULL;
    return s->column != NULL ? STATUS_OK : damaged(c, "the tables are damaged", err);
}

bool column_take_row(struct cursor *c, int kind, const uint8_t **row, size_t *row_bytes) {
    const size_t begin = c->position;
    uint32_t texts = 1;
    *row = c->data + begin;
    if (kind == COLUMN_CAPTIONS) {
        const uint32_t head = cursor_u16(c);
        texts = head & ~(uint32_t)(COLUMN_HAS_WEIGHTS | COLUMN_HAS_SOURCES);
        (void)cursor_take(c, texts * ((head & COLUMN_HAS_WEIGHTS ? 4U : 0U) +
                                      (head & COLUMN_HAS_SOURCES ? 1U : 0U)));
    }
    for (uint32_t i = 0; i < texts && cursor_ok(c); i++) {
        const uint8_t *text = c->data + c->position;
        const uint8_t *end = memchr(text, 0, cursor_left(c));
        (void)cursor_take(c, end != NULL ? (size_t)(end - text) + 1 : cursor_left(c) + 1);
    }
    *row_bytes = c->position - begin - (kind == COLUMN_CAPTIONS ? 0 : 1);
    return cursor_ok(c) && texts <= COLUMN_MAX_CAPTIONS;
}

/* *out NULL: the frame does not have it. */
static enum status get_text(const struct column *c,
                            struct column_workspace *s,
                            uint64_t row,
                            const uint8_t **out,
                            size_t *size_bytes,
                            struct error *err) {
    struct cursor at;
    bool whole = true;
    TRY(read_frame(c, s, row, err));
    cursor_init(&at, s->bytes.data, s->bytes.size_bytes);
    (void)cursor_u32(&at);
    for (uint64_t i = s->first; i <= row && whole; i++) {
        whole = column_take_row(&at, c->info.kind, out, size_bytes);
    }
    *out = whole ? *out : NULL;
    return STATUS_OK;
}

enum status column_get(const struct column *c,
                       struct column_workspace *workspace,
                       uint64_t id,
                       const uint8_t **row,
                       size_t *row_bytes,
                       struct error *err) {
    REQUIRE(c && row && row_bytes && (workspace || c->info.values > 0));
    uint64_t at = 0;
    if (!find_row(c, id, &at)) {
        return STATUS_NOTFOUND;
    }
    if (c->info.values == 0) {
        TRY(get_text(c, workspace, at, row, row_bytes, err));
    } else {
        *row_bytes = column_row_bytes(&c->info);
        *row = c->file.bytes + at * *row_bytes;
        *row = column_check(*row, *row_bytes, id) == load_u32(c->checks + 4 * at) ? *row : NULL;
    }
    FAIL_IF(!*row, err, STATUS_CORRUPT,
            "%s: the row of sample %" PRIu64
            " is damaged; 'ccpack attach --replace' rebuilds the column",
            c->path, id);
    return STATUS_OK;
}

/* Of f32 bits. */
static double single(uint64_t bits) {
    const uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof(value));
    return (double)value;
}

/* Of f16 bits, without a branch: infinity and NaN too. */
static inline float half(uint16_t bits) {
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t rest = (uint32_t)(bits & 0x7FFF) << 13;
    const uint32_t special = rest >= UINT32_C(0x1F) << 23 ? UINT32_C(0xFF) << 23 : 0;
    float value;
    memcpy(&value, &rest, sizeof(value));
    value *= 0x1p112F;
    memcpy(&rest, &value, sizeof(rest));
    rest |= sign | special;
    memcpy(&value, &rest, sizeof(value));
    return value;
}

double column_number(const struct column *c, const uint8_t *row, uint32_t i) {
    const size_t size = safetensors_dtype_bytes((enum safetensors_dtype)c->info.kind);
    uint8_t bytes[8] = {0};
    double wide;
    memcpy(bytes, row + i * size, size);
    const uint64_t bits = load_u64(bytes);
    memcpy(&wide, &bits, sizeof(wide));
    switch (c->info.kind) {
    case SAFETENSORS_F32:
        return single(bits);
    case SAFETENSORS_BF16:
        return single(bits << 16);
    case SAFETENSORS_F16:
        return (double)half((uint16_t)bits);
    case SAFETENSORS_F64:
        return wide;
    case SAFETENSORS_I8:
    case SAFETENSORS_I32:
    case SAFETENSORS_I64:
        return (double)((int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size));
    default:
        return (double)bits;
    }
}

void column_floats(const struct column *c, const uint8_t *row, float *out) {
    const uint32_t count = c->info.values;
    const int kind = c->info.kind; /* in a register, or the loop of f16 is not vectorised */
    if (kind == SAFETENSORS_F32) {
        memcpy(out, row, count * sizeof(*out));
        return;
    }
    for (uint32_t i = 0; i < count && kind == SAFETENSORS_F16; i++) {
        uint16_t bits;
        memcpy(&bits, row + 2 * (size_t)i, sizeof(bits));
        out[i] = half(bits);
    }
    for (uint32_t i = 0; i < count && kind != SAFETENSORS_F16; i++) {
        out[i] = (float)column_number(c, row, i);
    }
}

bool column_next_caption(struct column_caption *c, const uint8_t *row, size_t row_bytes) {
    struct cursor at;
    cursor_init(&at, row, row_bytes);
    const uint32_t head = cursor_u16(&at);
    const uint32_t count = head & ~(uint32_t)(COLUMN_HAS_WEIGHTS | COLUMN_HAS_SOURCES);
    const uint8_t *weights = cursor_take(&at, head & COLUMN_HAS_WEIGHTS ? 4 * count : 0);
    const uint8_t *sources = cursor_take(&at, head & COLUMN_HAS_SOURCES ? count : 0);
    const uint32_t i = c->next;
    if (!cursor_ok(&at) || i >= count) {
        return false;
    }
    const char *begin = i > 0 ? c->text + c->size_bytes + 1 : (const char *)row + at.position;
    const char *end = memchr(begin, 0, row_bytes - (size_t)(begin - (const char *)row));
    *c = (struct column_caption){.text = begin, .weight = 1.0F, .next = i + 1};
    c->size_bytes = end != NULL ? (size_t)(end - begin) : 0;
    c->source = head & COLUMN_HAS_SOURCES ? sources[i] : 0;
    if (head & COLUMN_HAS_WEIGHTS) {
        const uint32_t bits = load_u32(weights + 4 * (size_t)i);
        memcpy(&c->weight, &bits, sizeof(bits));
    }
    return end != NULL;
}

enum status column_verify(const struct column *c, struct error *err) {
    struct column_workspace *workspace = NULL;
    const uint8_t *row = NULL;
    size_t row_bytes = 0;
    TRY(column_workspace_create(&workspace, err));
    enum status s = STATUS_OK;
    for (uint64_t i = 0; s == STATUS_OK && i < c->info.rows; i++) {
        s = column_get(c, workspace, column_row_id(c, i), &row, &row_bytes, err);
        if (s == STATUS_NOTFOUND || (i > 0 && column_row_id(c, i - 1) >= column_row_id(c, i))) {
            s = damaged(c, "its ids do not ascend", err);
        }
    }
    if (s == STATUS_OK && hash64(c->file.bytes, (size_t)c->info_at) != c->info.hash) {
        s = damaged(c, "its tables are damaged", err);
    }
    column_workspace_destroy(workspace);
    return s;
}
