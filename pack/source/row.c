/*
 * Filling a row by the same rules for every kind of source, and completing a row, on any thread,
 * after it was read.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/utf8.h"
#include "formats/image/image_codec.h"
#include "formats/json/json_reader.h"
#include "pack/source/source_internal.h"

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
        [REASON_OUTSIDE] = "outside",
        [REASON_FETCH_FAILED] = "fetch-failed",
        [REASON_IMAGE_SMALL] = "image-small",
        [REASON_IMAGE_LARGE] = "image-large",
        [REASON_IMAGE_ASPECT] = "image-aspect",
        [REASON_CAPTION_LONG] = "caption-long",
        [REASON_DUPLICATE] = "duplicate",
        [REASON_FETCH_EXCLUDED] = "fetch-excluded",
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

void source_row_reset(struct source_row *r, uint64_t row) {
    r->image.size_bytes = 0;
    r->text.size_bytes = 0;
    r->json.size_bytes = 0;
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
    r->absent = false;
    r->reason = REASON_NONE;
    r->detail[0] = '\0';
    r->json_problem[0] = '\0';
    r->captions_optional = false;
    r->planes_side_px = 0;
    r->json_unchecked = false;
    r->caption_member[0] = '\0';
    r->member_bytes = 0;
    r->raw = NULL;
}

enum status source_row_take_json(struct source_row *r, struct json_writer *w, struct error *err) {
    json_close_object(w);
    TRY(json_writer_status(w, err));
    r->json.size_bytes = 0;
    return byte_buffer_append(&r->json, w->out.data, w->out.size_bytes, err);
}

void source_row_drop_json(struct source_row *r, const char *why) {
    r->json.size_bytes = 0;
    r->json_unchecked = false;
    snprintf(r->json_problem, sizeof(r->json_problem), "%.*s", (int)sizeof(r->json_problem) - 1,
             why);
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

void source_row_set_number_key(struct source_row *r, uint64_t number) {
    char digits[24];
    int n = snprintf(digits, sizeof(digits), "%" PRIu64, number);
    source_row_set_key(r, digits, (size_t)n);
}

void source_row_set_stem(struct source_row *r, const char *path, size_t size_bytes) {
    const char *begin = path;
    const char *end = path + size_bytes;
    for (const char *p = begin; p < end; p++) {
        begin = *p == '/' ? p + 1 : begin;
    }
    const char *dot = end;
    for (const char *p = begin + 1; p < end; p++) {
        dot = *p == '.' ? p : dot;
    }
    source_row_set_key(r, begin, (size_t)(dot - begin));
}

bool source_is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Blanks, invisible and control characters, of any script, in ascending ranges. */
static bool is_blank(uint32_t c) {
    static const uint32_t ranges[][2] = {
        {0, 0x20},         {0x7F, 0xA0},     {0xAD, 0xAD},     {0x34F, 0x34F},   {0x61C, 0x61C},
        {0x115F, 0x1160},  {0x1680, 0x1680}, {0x17B4, 0x17B5}, {0x180B, 0x180F}, {0x2000, 0x200F},
        {0x2028, 0x202F},  {0x205F, 0x206F}, {0x2800, 0x2800}, {0x3000, 0x3000}, {0x3164, 0x3164},
        {0xFE00, 0xFE0F},  {0xFEFF, 0xFEFF}, {0xFFA0, 0xFFA0}, {0xFFF0, 0xFFFB}, {0x1D173, 0x1D17A},
        {0xE0000, 0xE0FFF}};
    size_t i = 0;
    while (i < sizeof(ranges) / sizeof(ranges[0]) && c > ranges[i][1]) {
        i++;
    }
    return i < sizeof(ranges) / sizeof(ranges[0]) && c >= ranges[i][0];
}

static bool is_all_blank(const char *text, size_t size_bytes) {
    size_t at = 0;
    size_t character_bytes = 0;
    while (at < size_bytes && is_blank(utf8_decode(text + at, size_bytes - at, &character_bytes))) {
        at += character_bytes;
    }
    return at == size_bytes;
}

/* Rejects a row for a caption that is no text. */
static bool check_caption(struct source_row *r, const char *text, size_t size_bytes) {
    const size_t valid = utf8_valid_prefix(text, size_bytes);
    const char *nul = memchr(text, '\0', size_bytes);
    if (valid != size_bytes) {
        const bool utf16 = size_bytes >= 2 &&
                           (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0);
        source_row_reject(r, REASON_CAPTION_NOT_UTF8, "at its byte %zu%s", valid,
                          utf16 ? ": it is UTF-16" : "");
    } else if (nul) {
        source_row_reject(r, REASON_CAPTION_NOT_UTF8, "a NUL at its byte %zu; it may be UTF-16",
                          (size_t)(nul - text));
    }
    return valid == size_bytes && !nul;
}

enum status source_row_add_caption(struct source_row *r,
                                   const char *text,
                                   size_t size_bytes,
                                   struct error *err) {
    if (size_bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) { /* a byte order mark */
        text += 3;
        size_bytes -= 3;
    }
    while (size_bytes > 0 && source_is_space(text[0])) {
        text++;
        size_bytes--;
    }
    while (size_bytes > 0 && source_is_space(text[size_bytes - 1])) {
        size_bytes--;
    }
    if (is_all_blank(text, size_bytes)) {
        return STATUS_OK;
    }
    if (r->caption_count == SOURCE_MAX_CAPTIONS ||
        size_bytes > SOURCE_MAX_TEXT_BYTES - r->text.size_bytes) {
        source_row_reject(r, REASON_CAPTION_LIMIT,
                          "at most %d captions and %d bytes of them together", SOURCE_MAX_CAPTIONS,
                          SOURCE_MAX_TEXT_BYTES);
        return STATUS_OK;
    }
    if (!check_caption(r, text, size_bytes)) {
        return STATUS_OK;
    }
    TRY(byte_buffer_append(&r->text, text, size_bytes, err));
    r->caption_size_bytes[r->caption_count++] = (uint32_t)size_bytes;
    return STATUS_OK;
}

static enum status
add_member(struct source_row *r, const struct json_value *v, const char *name, struct error *err) {
    size_t count = json_value_is_array(v) ? json_value_count(v) : 1;
    for (size_t i = 0; i < count; i++) {
        size_t size_bytes = 0;
        const struct json_value *one = json_value_is_array(v) ? json_value_at(v, i) : v;
        const char *text = json_value_string(one, &size_bytes);
        if (!text) {
            source_row_reject(r, REASON_CAPTION_MISSING,
                              "'%s' is neither a string nor a list of strings", name);
            return STATUS_OK;
        }
        TRY(source_row_add_caption(r, text, size_bytes, err));
    }
    return STATUS_OK;
}

/* Bytes of the line at the front, without its end; *next: with it. */
static size_t line_bytes(const char *text, size_t size_bytes, size_t *next) {
    const char *end = memchr(text, '\n', size_bytes);
    const size_t n = end ? (size_t)(end - text) : size_bytes;
    *next = n + (end != NULL);
    return n;
}

size_t source_count_lines(const char *text, size_t size_bytes) {
    size_t count = 0;
    for (size_t at = 0, next = 0; at < size_bytes; at += next) {
        count += !is_all_blank(text + at, line_bytes(text + at, size_bytes - at, &next));
    }
    return count;
}

enum status source_row_add_text(struct source_row *r,
                                struct source *s,
                                const char *text,
                                size_t size_bytes,
                                struct error *err) {
    const bool split = s->lines == SOURCE_LINES_EACH || s->lines == SOURCE_LINES_FIRST;
    if (!split) {
        s->joined += s->lines == SOURCE_LINES_AUTO && source_count_lines(text, size_bytes) > 1;
        return source_row_add_caption(r, text, size_bytes, err);
    }
    const uint32_t before = r->caption_count;
    for (size_t at = 0, next = 0; at < size_bytes; at += next) {
        const size_t n = line_bytes(text + at, size_bytes - at, &next);
        if (s->lines == SOURCE_LINES_EACH || r->caption_count == before) {
            TRY(source_row_add_caption(r, text + at, n, err));
        }
    }
    return STATUS_OK;
}

bool source_look_at_lines(struct source *s, size_t *first, size_t lines, size_t looked) {
    *first = looked == 1 ? lines : *first;
    const bool agree = lines > 1 && lines == *first;
    s->lines = agree ? SOURCE_LINES_EACH : SOURCE_LINES_AUTO;
    s->columns[0] = '\0';
    if (agree) {
        snprintf(s->columns, sizeof(s->columns),
                 "each line of a .txt is a caption, as all have %zu lines; --caption-lines join "
                 "makes them one",
                 lines);
    }
    return agree && looked < SOURCE_LINES_LOOKED;
}

void source_note_joined(struct source *s) {
    if (s->joined > 0 && (!s->note || s->note[0] == '\0')) {
        snprintf(s->joined_note, sizeof(s->joined_note),
                 "%" PRIu64 " texts of several lines are one caption each; --caption-lines each "
                 "makes each line one",
                 s->joined);
        s->note = s->joined_note;
    }
}

enum status source_row_add_json_captions(struct source_row *r,
                                         const struct json_value *object,
                                         const char *names,
                                         struct error *err) {
    char name[SOURCE_MAX_NAME_BYTES + 1];
    bool any = false;
    for (const char *list = names; source_next_name(&list, name);) {
        const struct json_value *v = json_value_get(object, name);
        any |= v != NULL;
        TRY(v ? add_member(r, v, name, err) : STATUS_OK);
    }
    if (!any) {
        source_row_reject(r, REASON_CAPTION_MISSING, "no member '%s'", names);
    }
    return STATUS_OK;
}

void source_row_set_path(struct source_row *r,
                         const struct source *s,
                         const char *name,
                         size_t size_bytes) {
    char text[PATH_MAX_BYTES];
    if (size_bytes == 0 || size_bytes >= sizeof(text) || memchr(name, '\0', size_bytes)) {
        source_row_reject(r, REASON_ROW_BAD, "its path is empty, too long or holds a NUL");
        return;
    }
    memcpy(text, name, size_bytes);
    text[size_bytes] = '\0';
    if (s->urls) {
        strcpy(r->path, text);
        return;
    }
    if (path_join(r->path, sizeof(r->path), s->images, text, NULL) != STATUS_OK) {
        r->path[0] = '\0';
        source_row_reject(r, REASON_ROW_BAD, "its path is too long");
    }
}

bool source_leads_outside(struct source *s, const char *path) {
    if (s->follow_links) {
        return false;
    }
    if (!s->folder) {
        s->folder = realpath(s->images, NULL);
    }
    char *real = s->folder ? realpath(path, NULL) : NULL;
    const size_t n = s->folder ? strlen(s->folder) : 0;
    const bool outside =
        real && n > 1 && (strncmp(real, s->folder, n) != 0 || (real[n] != '/' && real[n] != '\0'));
    free(real);
    return outside;
}

void source_row_reject_outside(struct source_row *r, const struct source *s, const char *path) {
    source_row_reject(r, REASON_OUTSIDE,
                      "%.120s: leads out of %.60s; to read it, add --follow-links", path,
                      s->images);
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

int source_image_rank(const char *extension, bool real) {
    static const char *const preferred[] = {"webp", "jpeg", "png", "jpg"};
    const char *dot = strrchr(extension, '.');
    const char *last = dot ? dot + 1 : extension;
    int rank = dot ? 0 : 4;
    rank += source_is_image_extension(last, strlen(last)) ? 2 : 0;
    rank = 8 * (rank + real);
    for (int i = 0; i < 4; i++) {
        rank += strcasecmp(last, preferred[i]) == 0 ? i + 1 : 0;
    }
    return rank;
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

/* O_NONBLOCK: a pipe or a device in a list of images must not block the run. */
static enum status load_image(struct source_row *r, struct error *err) {
    enum status s = STATUS_OK;
    struct stat info;
    int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0) {
        r->absent = errno == ENOENT || errno == ENOTDIR;
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

/* Drops invalid JSON from the row. If the captions should be in it, the row is rejected. */
static enum status check_json(struct source_row *r, struct error *err) {
    struct json_document *document = NULL;
    struct error why = {0};
    r->json_unchecked = false;
    if (r->caption_member[0] == '\0' && json_text_is_plain(r->json.data, r->json.size_bytes)) {
        return STATUS_OK;
    }
    enum status s = json_document_parse(&document, ".json", r->json.data, r->json.size_bytes, &why);
    FAIL_IF(s == STATUS_NOMEM, err, s, "%s", why.text);
    if (s != STATUS_OK) {
        source_row_drop_json(r, why.text);
        return STATUS_OK;
    }
    if (r->caption_member[0] != '\0') {
        s = source_row_add_json_captions(r, json_document_root(document), r->caption_member, err);
    }
    json_document_destroy(document);
    return s;
}

/* Replaces the three planes by a PNG. */
static enum status make_png(struct source_row *r, struct error *err) {
    const int32_t side = (int32_t)r->planes_side_px;
    const size_t pixels = (size_t)side * (size_t)side;
    uint8_t *rgb = malloc(3 * pixels);
    TRY_MEMORY(rgb, err, "out of memory for an image of %zu pixels", pixels);
    for (size_t i = 0; i < pixels; i++) {
        for (size_t c = 0; c < 3; c++) {
            rgb[3 * i + c] = r->image.data[c * pixels + i];
        }
    }
    struct image_view view = {rgb, side, side, 3 * (size_t)side};
    r->planes_side_px = 0;
    r->image.size_bytes = 0;
    const enum status s = image_encode_png(&r->image, &view, err);
    free(rgb);
    return s;
}

enum status source_row_load(struct source_row *r, struct error *err) {
    REQUIRE(r);
    if (r->reason != REASON_NONE) {
        return STATUS_OK;
    }
    if (r->planes_side_px > 0) {
        TRY(make_png(r, err));
    }
    if (r->json_unchecked) {
        TRY(check_json(r, err));
    }
    if (r->caption_member[0] != '\0' && r->caption_count == 0) {
        source_row_reject(r, r->json_problem[0] ? REASON_CAPTION_MISSING : REASON_CAPTION_EMPTY,
                          "%s", r->json_problem);
    }
    if (r->path[0] != '\0' && r->reason == REASON_NONE) {
        TRY(load_image(r, err));
    }
    return STATUS_OK;
}
