/*
 * A walk over tar headers. Two kinds of members are not members but say something about the next:
 *
 *     L header | long name | header | body ...          GNU: the name
 *     x header | "27 path=..\n11 size=..\n" | header | body ...     pax: name and size
 */
#include "formats/shard/tar.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

static void put_octal(uint8_t *field, int digits, uint64_t v) {
    for (int i = digits - 1; i >= 0; i--) {
        field[i] = (uint8_t)('0' + (v & 7u));
        v >>= 3;
    }
}

void tar_header(uint8_t out[TAR_BLOCK_BYTES], const char *name, uint64_t size_bytes) {
    enum { FIELDS_END = TAR_MAGIC_AT + TAR_MAGIC_BYTES };
    memset(out, 0, TAR_BLOCK_BYTES);
    size_t name_bytes = strlen(name);
    memcpy(out, name, name_bytes < TAR_NAME_BYTES ? name_bytes : TAR_NAME_BYTES);
    put_octal(out + TAR_MODE_AT, TAR_ID_BYTES - 1, 0644);
    put_octal(out + TAR_UID_AT, TAR_ID_BYTES - 1, 0);
    put_octal(out + TAR_GID_AT, TAR_ID_BYTES - 1, 0);
    put_octal(out + TAR_SIZE_AT, TAR_SIZE_BYTES - 1, size_bytes);
    put_octal(out + TAR_MTIME_AT, TAR_MTIME_BYTES - 1, 0);
    out[TAR_TYPE_AT] = '0';
    memcpy(out + TAR_MAGIC_AT, "ustar\00000", TAR_MAGIC_BYTES);
    uint64_t sum = TAR_SUM_BYTES * ' '; /* as tar_header_sum, without the bytes that are zero */
    for (size_t i = 0; i < name_bytes && i < TAR_NAME_BYTES; i++) {
        sum += out[i];
    }
    for (size_t i = TAR_NAME_BYTES; i < FIELDS_END; i++) {
        sum += out[i];
    }
    put_octal(out + TAR_SUM_AT, 6, sum);
    out[TAR_SUM_AT + 7] = ' ';
}

uint32_t tar_header_sum(const uint8_t header[TAR_BLOCK_BYTES]) {
    uint32_t sum = TAR_SUM_BYTES * ' ';
    for (size_t i = 0; i < TAR_BLOCK_BYTES; i++) {
        sum += header[i];
    }
    for (size_t i = TAR_SUM_AT; i < TAR_SUM_AT + TAR_SUM_BYTES; i++) {
        sum -= header[i];
    }
    return sum;
}

bool tar_read_octal(uint64_t *out, const uint8_t *field, size_t digits) {
    *out = 0;
    for (size_t i = 0; i < digits; i++) {
        if (field[i] < '0' || field[i] > '7') {
            return false;
        }
        *out = *out << 3 | (uint64_t)(field[i] - '0');
    }
    return true;
}

/* ---- members of a piece ---- */

/* What the headers before a member specify about it. */
struct announced {
    const char *name; /* NULL: nothing */
    size_t name_bytes;
    bool has_size;
    uint64_t size;
};

void tar_walk_init(struct tar_walk *w, const void *data, size_t size_bytes) {
    *w = (struct tar_walk){.data = data, .size_bytes = size_bytes};
}

static enum status bad(const struct tar_walk *w, const char *what, struct error *err) {
    return error_set(err, STATUS_CORRUPT, "%s at byte %zu of its members", what, w->at);
}

/* Octal digits with spaces or NULs around them, or GNU's binary form for large ones. */
static bool read_number(const uint8_t *field, size_t size_bytes, uint64_t *out) {
    size_t i = 0;
    *out = 0;
    if (field[0] == 0x80) {
        for (i = 1; i < size_bytes; i++) {
            if (*out >> 55 != 0) {
                return false;
            }
            *out = *out << 8 | field[i];
        }
        return true;
    }
    while (i < size_bytes && field[i] == ' ') {
        i++;
    }
    size_t digits = i;
    while (i < size_bytes && field[i] >= '0' && field[i] <= '7') {
        *out = *out << 3 | (uint64_t)(field[i++] - '0');
    }
    return i > digits && (i == size_bytes || field[i] == ' ' || field[i] == '\0');
}

/* Some old tars sum signed bytes: 256 less for each byte above 127. */
static bool sum_is_right(const uint8_t *header) {
    uint64_t stored = 0;
    uint32_t sum = tar_header_sum(header);
    if (!read_number(header + TAR_SUM_AT, TAR_SUM_BYTES, &stored)) {
        return false;
    }
    int64_t signed_sum = sum;
    for (size_t i = 0; i < TAR_BLOCK_BYTES; i++) {
        bool in_sum = i >= TAR_SUM_AT && i < TAR_SUM_AT + TAR_SUM_BYTES;
        signed_sum -= !in_sum && header[i] > 127 ? 256 : 0;
    }
    return stored == sum || (signed_sum >= 0 && stored == (uint64_t)signed_sum);
}

static size_t text_bytes(const void *field, size_t size_bytes) {
    const void *end = memchr(field, '\0', size_bytes);
    return end ? (size_t)((const char *)end - (const char *)field) : size_bytes;
}

/* The name in the header itself. */
static void header_name(struct tar_walk *w, const uint8_t *header, struct tar_walk_member *m) {
    const char *name = (const char *)header;
    const char *prefix = (const char *)header + TAR_PREFIX_AT;
    size_t prefix_bytes = 0;
    m->name = name;
    m->name_bytes = text_bytes(name, TAR_NAME_BYTES);
    if (memcmp(header + TAR_MAGIC_AT, "ustar", 6) == 0) { /* with the NUL: GNU's has a space */
        prefix_bytes = text_bytes(prefix, TAR_PREFIX_BYTES);
    }
    if (prefix_bytes > 0) {
        memcpy(w->joined, prefix, prefix_bytes);
        w->joined[prefix_bytes] = '/';
        memcpy(w->joined + prefix_bytes + 1, name, m->name_bytes);
        m->name = w->joined;
        m->name_bytes += prefix_bytes + 1;
    }
}

/* A decimal number at *p, before `end`. */
static bool read_decimal(const char **p, const char *end, uint64_t *out) {
    const char *start = *p;
    *out = 0;
    while (*p < end && **p >= '0' && **p <= '9') {
        if (*out > UINT64_MAX / 16) {
            return false;
        }
        *out = *out * 10 + (uint64_t)(*(*p)++ - '0');
    }
    return *p > start;
}

/* "SIZE KEY=VALUE\n" until the end; SIZE counts all of it. False for what is none of that, and for
 * sparse files. */
static bool read_pax(const uint8_t *body, size_t size_bytes, struct announced *a) {
    const char *p = (const char *)body;
    const char *end = p + size_bytes;
    while (p < end) {
        const char *start = p;
        uint64_t record_bytes = 0;
        if (!read_decimal(&p, end, &record_bytes) || record_bytes > (uint64_t)(end - start) ||
            record_bytes < (uint64_t)(p - start) + 3 || *p != ' ' ||
            start[record_bytes - 1] != '\n') {
            return false;
        }
        const char *key = p + 1;
        const char *stop = start + record_bytes - 1;
        const char *equals = memchr(key, '=', (size_t)(stop - key));
        if (!equals) {
            return false;
        }
        const char *value = equals + 1;
        size_t key_bytes = (size_t)(equals - key);
        if (key_bytes >= 10 && memcmp(key, "GNU.sparse", 10) == 0) {
            return false;
        }
        if (key_bytes == 4 && memcmp(key, "path", 4) == 0) {
            a->name = value;
            a->name_bytes = (size_t)(stop - value);
        } else if (key_bytes == 4 && memcmp(key, "size", 4) == 0) {
            a->has_size = read_decimal(&value, stop, &a->size) && value == stop;
            if (!a->has_size) {
                return false;
            }
        }
        p = stop + 1;
    }
    return true;
}

/* Takes in a member that speaks about the next one. */
static enum status take_announcement(struct tar_walk *w,
                                     uint8_t type,
                                     const uint8_t *body,
                                     size_t size_bytes,
                                     struct announced *a,
                                     struct error *err) {
    if (type == 'L') {
        a->name = (const char *)body;
        a->name_bytes = text_bytes(body, size_bytes);
    } else if ((type == 'x' || type == 'X') && !read_pax(body, size_bytes, a)) {
        return bad(w, "a malformed pax header, or one of a sparse file,", err);
    }
    return STATUS_OK; /* K: where a link points to; g: about all members */
}

static bool is_announcement(uint8_t type) {
    return type == 'L' || type == 'K' || type == 'x' || type == 'X' || type == 'g';
}

enum status tar_walk_next(struct tar_walk *w, struct tar_walk_member *out, struct error *err) {
    struct announced a = {0};
    while (w->at < w->size_bytes) {
        const uint8_t *header = w->data + w->at;
        uint64_t size = 0;
        RETURN_IF(w->size_bytes - w->at < TAR_BLOCK_BYTES || !sum_is_right(header),
                  bad(w, "not a tar header", err));
        RETURN_IF(!read_number(header + TAR_SIZE_AT, TAR_SIZE_BYTES, &size),
                  bad(w, "a tar header without a size", err));
        uint8_t type = header[TAR_TYPE_AT];
        bool extra = is_announcement(type);
        bool plain = type == '0' || type == '\0' || type == '7';
        size = a.has_size && !extra ? a.size : size;
        RETURN_IF(!extra && !plain && !(type >= '1' && type <= '6' && size == 0),
                  bad(w, "a member whose type cannot be read in place", err));
        size_t room = w->size_bytes - w->at - TAR_BLOCK_BYTES;
        RETURN_IF(size > room || tar_padding(size) > room - size ||
                      (extra && size > TAR_WALK_MAX_EXTRA_BYTES),
                  bad(w, "a member that is larger than the rest", err));
        size_t body_offset = w->at + TAR_BLOCK_BYTES;
        if (extra) {
            TRY(take_announcement(w, type, w->data + body_offset, (size_t)size, &a, err));
            w->at = body_offset + (size_t)size + tar_padding(size);
            continue;
        }
        header_name(w, header, out);
        if (a.name) {
            out->name = a.name;
            out->name_bytes = a.name_bytes;
        }
        if (out->name_bytes >= 2 && memcmp(out->name, "./", 2) == 0) {
            out->name += 2;
            out->name_bytes -= 2;
        }
        out->is_file = plain;
        out->body_offset = body_offset;
        out->body = w->data + body_offset;
        out->size_bytes = (size_t)size;
        w->at = body_offset + (size_t)size + tar_padding(size);
        return STATUS_OK;
    }
    return a.name || a.has_size ? bad(w, "a name without its member", err) : STATUS_END;
}

size_t tar_stem_bytes(const char *name, size_t name_bytes, bool last_dot) {
    size_t stem = name_bytes;
    for (size_t i = name_bytes; i > 0 && name[i - 1] != '/'; i--) {
        stem = name[i - 1] == '.' && (stem == name_bytes || !last_dot) ? i - 1 : stem;
    }
    return stem;
}

bool tar_member_is(const struct tar_walk_member *m,
                   const char *stem,
                   size_t stem_bytes,
                   const char *extension) {
    size_t extension_bytes = strlen(extension);
    return m->is_file && m->name_bytes == stem_bytes + 1 + extension_bytes &&
           memcmp(m->name, stem, stem_bytes) == 0 && m->name[stem_bytes] == '.' &&
           strncasecmp(m->name + stem_bytes + 1, extension, extension_bytes) == 0;
}
