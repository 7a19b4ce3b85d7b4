/*
 * filter: selects samples, and parses two arguments of the command line: a dataset with a weight,
 * and a filter.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/bytes.h"
#include "formats/base/hash.h"
#include "formats/dataset/dataset.h"
#include "loader/filter_internal.h"

/* --- "DIR:WEIGHT" --- */

/* Accepts a decimal number and nothing after it; no hexadecimal, names or spaces. */
static bool read_number(const char *text, double *out) {
    char *end = NULL;
    size_t length = strlen(text);
    if (length == 0 || strspn(text, "0123456789.eE+-") != length) {
        return false;
    }
    errno = 0;
    *out = strtod(text, &end);
    return *end == '\0' && errno == 0;
}

/* The colon before a weight, or NULL. That of "http://host:8080" is before a port. */
static const char *last_colon(const char *text) {
    const char *scheme = strncmp(text, "http", 4) == 0 ? strstr(text, "://") : NULL;
    return strrchr(scheme != NULL ? scheme + 3 + strcspn(scheme + 3, "/") : text, ':');
}

enum status loader_source_parse(struct loader_source *out,
                                char *directory,
                                size_t directory_size_bytes,
                                const char *text,
                                struct error *err) {
    REQUIRE(out != NULL && directory != NULL && text != NULL);
    *out = (struct loader_source){.directory = directory};
    struct stat info;
    const bool whole = stat(text, &info) == 0 && S_ISDIR(info.st_mode);
    const char *colon = whole ? NULL : last_colon(text);
    size_t length = strlen(text);
    if (colon != NULL && read_number(colon + 1, &out->weight)) {
        length = (size_t)(colon - text);
        FAIL_IF(!(out->weight > 0 && out->weight <= LOADER_MAX_WEIGHT), err, STATUS_USAGE,
                "%s: a weight must be above 0 and at most %d", text, LOADER_MAX_WEIGHT);
    }
    FAIL_IF(length == 0 || length >= directory_size_bytes, err, STATUS_USAGE,
            "'%s': the name of the directory must have fewer than %zu bytes", text,
            directory_size_bytes);
    memcpy(directory, text, length);
    directory[length] = '\0';
    return STATUS_OK;
}

/* --- "min-side=64,captions=1..5" --- */

void loader_filter_default(struct loader_filter *f) {
    *f = (struct loader_filter){
        .max_captions = UINT32_MAX,
        .max_caption_bytes = UINT32_MAX,
        .min_label = INT32_MIN,
        .max_label = INT32_MAX,
    };
}

static bool read_integer(const char *text, size_t length, int64_t min, int64_t max, int64_t *out) {
    char copy[24];
    char *end = NULL;
    if (length == 0 || length >= sizeof(copy) || strspn(text, "-0123456789") < length) {
        return false;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    errno = 0;
    long long value = strtoll(copy, &end, 10);
    *out = value;
    return *end == '\0' && errno == 0 && value >= min && value <= max;
}

/* "3", "1..5", "1..", "..5" within [min, max]; an omitted end is min or max. */
static bool
read_range(const char *text, size_t length, int64_t min, int64_t max, int64_t *from, int64_t *to) {
    const char *dots = NULL;
    *from = min;
    *to = max;
    for (size_t i = 0; i + 1 < length && dots == NULL; i++) {
        dots = text[i] == '.' && text[i + 1] == '.' ? text + i : NULL;
    }
    if (dots == NULL) {
        bool ok = read_integer(text, length, min, max, from);
        *to = *from;
        return ok;
    }
    size_t before = (size_t)(dots - text);
    size_t after = length - before - 2;
    return before + after > 0 && (before == 0 || read_integer(text, before, min, max, from)) &&
           (after == 0 || read_integer(dots + 2, after, min, max, to)) && *from <= *to;
}

static bool read_range_u32(const char *text, size_t length, uint32_t *from, uint32_t *to) {
    int64_t low = 0;
    int64_t high = 0;
    bool ok = read_range(text, length, 0, UINT32_MAX, &low, &high);
    *from = (uint32_t)low;
    *to = (uint32_t)high;
    return ok;
}

static bool read_aspect(const char *text, size_t length, double *out) {
    char copy[32];
    if (length >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    return read_number(copy, out) && *out >= 1 && *out <= LOADER_FILTER_MAX_ASPECT;
}

static bool is_name(const char *text, size_t length, const char *name) {
    return strlen(name) == length && memcmp(text, name, length) == 0;
}

static bool read_field(struct loader_filter *f,
                       const char *name,
                       size_t name_length,
                       const char *value,
                       size_t length) {
    if (is_name(name, name_length, "min-side")) {
        int64_t side = 0;
        bool ok = read_integer(value, length, 0, UINT32_MAX, &side);
        f->min_side_px = (uint32_t)side;
        return ok;
    }
    if (is_name(name, name_length, "max-aspect")) {
        return read_aspect(value, length, &f->max_aspect);
    }
    if (is_name(name, name_length, "captions")) {
        return read_range_u32(value, length, &f->min_captions, &f->max_captions);
    }
    if (is_name(name, name_length, "caption-bytes")) {
        return read_range_u32(value, length, &f->min_caption_bytes, &f->max_caption_bytes);
    }
    if (is_name(name, name_length, "label")) {
        int64_t low = 0;
        int64_t high = 0;
        bool ok = read_range(value, length, INT32_MIN, INT32_MAX, &low, &high);
        f->min_label = (int32_t)low;
        f->max_label = (int32_t)high;
        return ok;
    }
    return false;
}

enum status loader_filter_parse(struct loader_filter *out, const char *text, struct error *err) {
    REQUIRE(out != NULL && text != NULL);
    struct loader_filter f = *out;
    const char *at = text;
    do {
        size_t length = strcspn(at, ",");
        size_t name_length = strcspn(at, "=,");
        FAIL_IF(name_length == length || !read_field(&f, at, name_length, at + name_length + 1,
                                                     length - name_length - 1),
                err, STATUS_USAGE,
                "filter '%.*s': expected min-side=N, max-aspect=X (1 or more), "
                "captions=, caption-bytes= or label= with N, A..B, A.. or ..B",
                (int)(length < 60 ? length : 60), at);
        at += length;
    } while (*at++ == ',');
    *out = f;
    return STATUS_OK;
}

/* --- what passes --- */

bool filter_is_open(const struct loader_filter *f) {
    return f->min_side_px == 0 && f->max_aspect <= 0 && f->min_captions == 0 &&
           f->max_captions == UINT32_MAX && f->min_caption_bytes == 0 &&
           f->max_caption_bytes == UINT32_MAX && f->min_label == INT32_MIN &&
           f->max_label == INT32_MAX && f->ids == NULL && f->ids_hash == 0;
}

bool filter_needs_captions(const struct loader_filter *f) {
    return f->min_caption_bytes != 0 || f->max_caption_bytes != UINT32_MAX;
}

/* Aspect ratios are compared in thousandths, so that neither the hash nor the selection depends on
 * the representation of a number. */
static uint64_t thousandths(double aspect) {
    return (uint64_t)llround(aspect * 1000);
}

uint64_t filter_hash(const struct loader_filter *f) {
    uint8_t bytes[40];
    if (filter_is_open(f)) {
        return 0;
    }
    store_u32(bytes, f->min_side_px);
    store_u64(bytes + 4, thousandths(f->max_aspect));
    store_u32(bytes + 12, f->min_captions);
    store_u32(bytes + 16, f->max_captions);
    store_u32(bytes + 20, f->min_caption_bytes);
    store_u32(bytes + 24, f->max_caption_bytes);
    store_u32(bytes + 28, (uint32_t)f->min_label);
    store_u32(bytes + 32, (uint32_t)f->max_label);
    store_u32(bytes + 36, 1); /* version of these rules */
    return hash64(bytes, sizeof(bytes)) ^ f->ids_hash;
}

bool filter_passes_record(const struct loader_filter *f, const struct dataset_sample *s) {
    uint32_t shorter = s->width_px < s->height_px ? s->width_px : s->height_px;
    uint32_t longer = s->width_px < s->height_px ? s->height_px : s->width_px;
    if (shorter < f->min_side_px || s->text_count < f->min_captions ||
        s->text_count > f->max_captions || s->label < f->min_label || s->label > f->max_label) {
        return false;
    }
    return f->max_aspect <= 0 ||
           (shorter > 0 && (uint64_t)longer * 1000 <= thousandths(f->max_aspect) * shorter);
}

bool filter_passes_caption_bytes(const struct loader_filter *f, size_t size_bytes) {
    return size_bytes >= f->min_caption_bytes && size_bytes <= f->max_caption_bytes;
}
