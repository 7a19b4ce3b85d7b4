/*
 * What all kinds of sources share: telling kinds apart, and filling a row so that every kind judges
 * captions, keys and files in the same way.
 */
#include "pack/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/utf8.h"
#include "formats/json_reader.h"
#include "pack/source_internal.h"

/* A buffer that one large row has grown is not kept for the small ones after it. */
enum { KEEP_BYTES = 1 << 20 };

const char *source_kind_name(enum source_kind k) {
    static const char *const names[SOURCE_KIND_COUNT] = {
        "auto", "wds", "tsv", "csv", "coco", "karpathy", "json", "folders", "cifar"};
    return k >= SOURCE_AUTO && k < SOURCE_KIND_COUNT ? names[k] : "unknown";
}

const char *source_reason_name(enum source_reason r) {
    static const char *const names[REASON_COUNT] = {
        [REASON_NONE] = "none",
        [REASON_IMAGE_MISSING] = "image-missing",
        [REASON_IMAGE_UNREADABLE] = "image-unreadable",
        [REASON_IMAGE_UNSUPPORTED] = "image-unsupported",
        [REASON_IMAGE_DAMAGED] = "image-damaged",
        [REASON_IMAGE_LIMIT] = "image-limit",
        [REASON_IMAGE_EXTRA] = "image-extra",
        [REASON_CAPTION_MISSING] = "caption-missing",
        [REASON_CAPTION_EMPTY] = "caption-empty",
        [REASON_CAPTION_NOT_UTF8] = "caption-not-utf8",
        [REASON_CAPTION_LIMIT] = "caption-limit",
        [REASON_ROW_BAD] = "row-bad",
        [REASON_KEY_NOT_NUMBER] = "key-not-number",
        [REASON_IMAGE_SMALL] = "image-small",
        [REASON_IMAGE_LARGE] = "image-large",
        [REASON_IMAGE_ASPECT] = "image-aspect",
        [REASON_CAPTION_LONG] = "caption-long",
        [REASON_DUPLICATE] = "duplicate",
    };
    return r >= REASON_NONE && r < REASON_COUNT ? names[r] : "unknown";
}

void source_row_init(struct source_row *r) {
    memset(r, 0, sizeof(*r));
    byte_buffer_init(&r->image, SOURCE_MAX_IMAGE_BYTES);
    byte_buffer_init(&r->text, SOURCE_MAX_TEXT_BYTES);
    byte_buffer_init(&r->json, SOURCE_MAX_JSON_BYTES);
}

void source_row_fini(struct source_row *r) {
    byte_buffer_fini(&r->image);
    byte_buffer_fini(&r->text);
    byte_buffer_fini(&r->json);
}

static void empty_buffer(struct byte_buffer *b) {
    if (b->capacity_bytes > KEEP_BYTES) {
        size_t max_bytes = b->max_bytes;
        byte_buffer_fini(b);
        byte_buffer_init(b, max_bytes);
    }
    b->size_bytes = 0;
}

static void row_reset(struct source_row *r, uint64_t row) {
    empty_buffer(&r->image);
    empty_buffer(&r->text);
    empty_buffer(&r->json);
    r->row = row;
    r->offset_bytes = 0;
    r->end_bytes = 0;
    r->image_offset_bytes = 0;
    r->key[0] = '\0';
    r->has_number = false;
    r->number = 0;
    r->path[0] = '\0';
    r->class_index = -1;
    r->caption_count = 0;
    r->reason = REASON_NONE;
    r->detail[0] = '\0';
    r->json_problem[0] = '\0';
    r->captions_optional = false;
    r->json_unchecked = false;
    r->caption_member[0] = '\0';
}

static void drop_json(struct source_row *r, const char *why) {
    r->json.size_bytes = 0;
    snprintf(r->json_problem, sizeof(r->json_problem), "%.*s", (int)sizeof(r->json_problem) - 1,
             why);
}

enum status
source_row_set_json(struct source_row *r, const char *text, size_t size_bytes, struct error *err) {
    struct json_document *document = NULL;
    struct error why = {0};
    if (size_bytes > SOURCE_MAX_JSON_BYTES) {
        snprintf(why.text, sizeof(why.text), "more than %d bytes", SOURCE_MAX_JSON_BYTES);
        drop_json(r, why.text);
        return STATUS_OK;
    }
    enum status s = json_document_parse(&document, ".json", text, size_bytes, &why);
    json_document_destroy(document);
    if (s == STATUS_NOMEM) {
        return error_set(err, s, "%s", why.text);
    }
    if (s != STATUS_OK) {
        drop_json(r, why.text);
        return STATUS_OK;
    }
    return byte_buffer_append(&r->json, text, size_bytes, err);
}

void source_row_reject(struct source_row *r, enum source_reason reason, const char *fmt, ...) {
    if (r->reason != REASON_NONE) {
        return;
    }
    r->reason = reason;
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->detail, sizeof(r->detail), fmt, args);
    va_end(args);
}

void source_row_set_key(struct source_row *r, const char *key, size_t size_bytes) {
    if (size_bytes > SOURCE_MAX_KEY_BYTES) { /* names differ at their end */
        key += size_bytes - SOURCE_MAX_KEY_BYTES;
        size_bytes = SOURCE_MAX_KEY_BYTES;
    }
    memcpy(r->key, key, size_bytes);
    r->key[size_bytes] = '\0';
    const char *slash = strrchr(r->key, '/');
    const char *digits = slash ? slash + 1 : r->key;
    size_t count = strlen(digits);
    if (count == 0 || strspn(digits, "0123456789") != count) {
        return;
    }
    errno = 0;
    unsigned long long number = strtoull(digits, NULL, 10);
    r->has_number = errno == 0 && number < (unsigned long long)INT64_MAX;
    r->number = r->has_number ? number : 0;
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

enum status source_row_add_caption(struct source_row *r,
                                   const char *text,
                                   size_t size_bytes,
                                   struct error *err) {
    while (size_bytes > 0 && is_space(text[0])) {
        text++;
        size_bytes--;
    }
    while (size_bytes > 0 && is_space(text[size_bytes - 1])) {
        size_bytes--;
    }
    if (size_bytes == 0) {
        return STATUS_OK;
    }
    if (r->caption_count == SOURCE_MAX_CAPTIONS ||
        size_bytes > SOURCE_MAX_TEXT_BYTES - r->text.size_bytes) {
        source_row_reject(r, REASON_CAPTION_LIMIT,
                          "at most %d captions and %d bytes of them together", SOURCE_MAX_CAPTIONS,
                          SOURCE_MAX_TEXT_BYTES);
        return STATUS_OK;
    }
    size_t valid = utf8_valid_prefix(text, size_bytes);
    if (valid != size_bytes) {
        source_row_reject(r, REASON_CAPTION_NOT_UTF8, "at its byte %zu", valid);
        return STATUS_OK;
    }
    TRY(byte_buffer_append(&r->text, text, size_bytes, err));
    r->caption_size_bytes[r->caption_count++] = (uint32_t)size_bytes;
    return STATUS_OK;
}

void source_row_set_path(struct source_row *r,
                         const char *images,
                         const char *name,
                         size_t size_bytes) {
    char text[PATH_MAX_BYTES];
    if (size_bytes == 0 || size_bytes >= sizeof(text) || memchr(name, '\0', size_bytes)) {
        source_row_reject(r, REASON_ROW_BAD, "its path is empty, too long or holds a NUL");
        return;
    }
    memcpy(text, name, size_bytes);
    text[size_bytes] = '\0';
    if (path_join(r->path, sizeof(r->path), images, text, NULL) != STATUS_OK) {
        r->path[0] = '\0';
        source_row_reject(r, REASON_ROW_BAD, "its path is too long");
    }
}

enum status source_images_folder(char *out,
                                 size_t out_size_bytes,
                                 const char *path,
                                 const struct source_options *opt,
                                 struct error *err) {
    if (!opt->images) {
        return path_directory(out, out_size_bytes, path, err);
    }
    if (strlen(opt->images) >= out_size_bytes) {
        return error_set(err, STATUS_LIMIT, "%.80s...: the path is too long", opt->images);
    }
    strcpy(out, opt->images);
    return STATUS_OK;
}

bool source_is_image_extension(const char *text, size_t size_bytes) {
    static const char *const known[] = {"jpg", "jpeg", "png",  "webp", "gif",
                                        "bmp", "tif",  "tiff", "heic"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strlen(known[i]) == size_bytes && strncasecmp(text, known[i], size_bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* Reads an open regular file whole. */
static enum status read_file(struct source_row *r, int fd, uint64_t size, struct error *err) {
    TRY(byte_buffer_reserve(&r->image, (size_t)size, err));
    while (r->image.size_bytes < size) {
        ssize_t got =
            read(fd, r->image.data + r->image.size_bytes, (size_t)size - r->image.size_bytes);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            source_row_reject(r, REASON_IMAGE_UNREADABLE, "%.160s: %s", r->path,
                              got < 0 ? strerror(errno) : "became shorter while it was read");
            return STATUS_OK;
        }
        r->image.size_bytes += (size_t)got;
    }
    return STATUS_OK;
}

/* O_NONBLOCK: a pipe or a device in a list of pictures must not hold up the run. */
enum status source_row_load(struct source_row *r, struct error *err) {
    if (r->path[0] == '\0' || r->reason != REASON_NONE) {
        return STATUS_OK;
    }
    enum status s = STATUS_OK;
    struct stat info;
    int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0) {
        source_row_reject(r, REASON_IMAGE_UNREADABLE, "%.160s: %s", r->path, strerror(errno));
    } else if (!S_ISREG(info.st_mode) || info.st_size == 0) {
        source_row_reject(r, REASON_IMAGE_UNREADABLE, "%.160s: %s", r->path,
                          S_ISREG(info.st_mode) ? "is empty" : "is not a file");
    } else if (info.st_size > SOURCE_MAX_IMAGE_BYTES) {
        source_row_reject(r, REASON_IMAGE_LIMIT, "%.160s: more than %d bytes", r->path,
                          SOURCE_MAX_IMAGE_BYTES);
    } else {
        s = read_file(r, fd, (uint64_t)info.st_size, err);
    }
    if (fd >= 0) {
        close(fd);
    }
    return s;
}

/* A tar header's checksum, for tars from before "ustar": fields as they are, its own as spaces. */
static bool is_tar_header(const uint8_t *p, size_t size_bytes) {
    if (size_bytes < 512 || p[0] == '\0') {
        return false;
    }
    unsigned long sum = 0;
    for (size_t i = 0; i < 512; i++) {
        sum += i >= 148 && i < 156 ? ' ' : p[i];
    }
    char field[9] = {0};
    memcpy(field, p + 148, 8);
    return strtoul(field, NULL, 8) == sum;
}

static enum status
judge_head(enum source_kind *out, const char *path, const uint8_t *p, size_t n, struct error *err) {
    static const uint8_t gzip[] = {0x1F, 0x8B};
    static const uint8_t zstd[] = {0x28, 0xB5, 0x2F, 0xFD};
    if (n == 0) {
        return error_set(err, STATUS_CORRUPT, "%s: the file is empty", path);
    }
    if ((n >= sizeof(gzip) && memcmp(p, gzip, sizeof(gzip)) == 0) ||
        (n >= sizeof(zstd) && memcmp(p, zstd, sizeof(zstd)) == 0) || is_tar_header(p, n)) {
        *out = SOURCE_WDS;
        return STATUS_OK;
    }
    size_t at = n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    while (at < n && is_space((char)p[at])) {
        at++;
    }
    if (memchr(p, '\0', n)) {
        return error_set(
            err, STATUS_CORRUPT,
            "%s: neither a tar (plain, .gz, .zst) nor a TSV nor COCO JSON; --from says "
            "which it is",
            path);
    }
    if (at < n && p[at] == '[') {
        return error_set(err, STATUS_CORRUPT,
                         "%s: a JSON list; COCO captions are an object with \"images\" and "
                         "\"annotations\"",
                         path);
    }
    *out = at < n && p[at] == '{' ? SOURCE_COCO : SOURCE_TSV;
    return STATUS_OK;
}

enum status source_kind_of(enum source_kind *out, const char *path, struct error *err) {
    REQUIRE(out && path);
    *out = SOURCE_WDS;
    if (strcmp(path, "-") == 0) {
        return STATUS_OK;
    }
    struct stat info;
    if (stat(path, &info) != 0) {
        return error_set_errno(err, "%s: cannot read it", path);
    }
    if (S_ISDIR(info.st_mode)) {
        return error_set(err, STATUS_CORRUPT,
                         "%s: is a folder; name the tar, TSV or JSON files in it", path);
    }
    if (!S_ISREG(info.st_mode)) {
        return error_set(err, STATUS_CORRUPT, "%s: is not a file; a tar can come as '-'", path);
    }
    const struct file_system *fs = file_posix();
    uint8_t head[1024];
    size_t got = 0;
    struct file *f = NULL;
    TRY(fs->open(fs->context, &f, path, FILE_READ, err));
    enum status s = fs->pread(f, head, &got, sizeof(head), 0, err);
    fs->close(f);
    TRY(s);
    return judge_head(out, path, head, got, err);
}

enum status source_open(struct source **out,
                        const char *path,
                        const struct source_options *opt,
                        struct error *err) {
    REQUIRE(out && path && opt);
    *out = NULL;
    enum source_kind kind = opt->kind;
    if (kind == SOURCE_AUTO) {
        TRY(source_kind_of(&kind, path, err));
    }
    switch (kind) {
    case SOURCE_AUTO:
    case SOURCE_WDS:
        return source_open_wds(out, path, opt, err);
    case SOURCE_TSV:
        return source_open_table(out, path, opt, err);
    case SOURCE_COCO:
        return source_open_coco(out, path, opt, err);
    case SOURCE_CSV:
    case SOURCE_KARPATHY:
    case SOURCE_JSON:
    case SOURCE_FOLDERS:
    case SOURCE_CIFAR:
    case SOURCE_KIND_COUNT:
        break;
    }
    return error_set(err, STATUS_UNSUPPORTED, "%s: sources of kind %s are not read by this build",
                     path, source_kind_name(kind));
}

/* One row, by `step`: the kind's next or skip. */
static enum status
take_row(struct source *s,
         struct source_row *row,
         enum status (*step)(struct source *, struct source_row *, struct error *),
         struct error *err) {
    row_reset(row, s->rows);
    enum status status = step(s, row, err);
    s->rows += status == STATUS_OK;
    return status;
}

enum status source_next(struct source *s, struct source_row *row, struct error *err) {
    REQUIRE(s && row);
    enum status status = take_row(s, row, s->ops->next, err);
    if (status == STATUS_OK && row->caption_count == 0 && !row->captions_optional) {
        source_row_reject(row, REASON_CAPTION_EMPTY, "%s", "");
    }
    return status;
}

enum status source_skip(struct source *s, uint64_t count, uint64_t *skipped, struct error *err) {
    REQUIRE(s && skipped);
    *skipped = 0;
    if (!s->scratch) {
        s->scratch = malloc(sizeof(*s->scratch));
        if (!s->scratch) {
            return error_set(err, STATUS_NOMEM, "out of memory for a row");
        }
        source_row_init(s->scratch);
    }
    enum status status = STATUS_OK;
    while (status == STATUS_OK && *skipped < count) {
        status = take_row(s, s->scratch, s->ops->skip ? s->ops->skip : s->ops->next, err);
        *skipped += status == STATUS_OK;
    }
    return status;
}

uint64_t source_rows_read(const struct source *s) {
    return s->rows;
}

size_t source_class_count(const struct source *s) {
    return s->class_count;
}

const char *source_class_name(const struct source *s, size_t i) {
    return i < s->class_count ? s->class_names[i] : NULL;
}

uint64_t source_ignored(const struct source *s) {
    return s->ignored;
}

void source_position(const struct source *s, uint64_t *position_bytes, uint64_t *size_bytes) {
    *position_bytes = s->position_bytes < s->size_bytes ? s->position_bytes : s->size_bytes;
    *size_bytes = s->size_bytes;
}

bool source_is_plain_tar(const struct source *s) {
    return s->plain_tar;
}

void source_close(struct source *s) {
    if (s) {
        if (s->scratch) {
            source_row_fini(s->scratch);
            free(s->scratch);
        }
        s->ops->close(s);
    }
}
