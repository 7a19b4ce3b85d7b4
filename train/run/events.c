#include "train/run/events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/file_io.h"
#include "formats/json/json_reader.h"

enum {
    MAX_EVENT_BYTES = 1 << 22,
    MAX_TAG_BYTES = 256,
    MAX_DEPTH = 4,
    MAX_BINS = 4096,
    MAX_FILES = 10000, /* of one process and second */
    WIRE_VARINT = 0,
    WIRE_FIXED64 = 1,
    WIRE_BYTES = 2,
    WIRE_FIXED32 = 5,
    SESSION_START = 1,
};

struct events {
    FILE *file;
    char path[PATH_MAX_BYTES];
    struct byte_buffer event, summary, value, inner; /* messages, inner ones last */
};

/* --- TFRecord --- */

uint32_t events_crc32c(const void *data, size_t size_bytes) {
    const uint8_t *bytes = data;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size_bytes; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (0x82F63B78u & (0u - (crc & 1u)));
        }
    }
    return ~crc;
}

uint32_t events_masked_crc(const void *data, size_t size_bytes) {
    const uint32_t crc = events_crc32c(data, size_bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static enum status put_record(struct events *e, struct error *err) {
    uint8_t head[12], tail[4];
    const struct byte_buffer *b = &e->event;
    store_u64(head, b->size_bytes);
    store_u32(head + 8, events_masked_crc(head, 8));
    store_u32(tail, events_masked_crc(b->data, b->size_bytes));
    FAIL_ERRNO_IF(fwrite(head, 1, sizeof head, e->file) != sizeof head ||
                      fwrite(b->data, 1, b->size_bytes, e->file) != b->size_bytes ||
                      fwrite(tail, 1, sizeof tail, e->file) != sizeof tail || fflush(e->file) != 0,
                  err, "cannot write %s", e->path);
    return STATUS_OK;
}

/* --- protocol buffers --- */

static void reset(struct byte_buffer *b) {
    b->size_bytes = 0;
}

static enum status put_varint(struct byte_buffer *b, uint64_t value, struct error *err) {
    uint8_t bytes[10];
    size_t n = 0;
    do {
        bytes[n++] = (uint8_t)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
        value >>= 7;
    } while (value > 0);
    return byte_buffer_append(b, bytes, n, err);
}

static enum status
put_key(struct byte_buffer *b, uint32_t field, uint32_t wire, struct error *err) {
    return put_varint(b, field << 3 | wire, err);
}

static enum status put_double(struct byte_buffer *b, double value, struct error *err) {
    uint64_t bits;
    uint8_t bytes[8];
    memcpy(&bits, &value, sizeof bits);
    store_u64(bytes, bits);
    return byte_buffer_append(b, bytes, sizeof bytes, err);
}

static enum status
put_double_field(struct byte_buffer *b, uint32_t field, double value, struct error *err) {
    TRY(put_key(b, field, WIRE_FIXED64, err));
    return put_double(b, value, err);
}

static enum status put_bytes(struct byte_buffer *b,
                             uint32_t field,
                             const void *data,
                             size_t size_bytes,
                             struct error *err) {
    TRY(put_key(b, field, WIRE_BYTES, err));
    TRY(put_varint(b, size_bytes, err));
    return byte_buffer_append(b, data, size_bytes, err);
}

/* The fields that every event begins with. */
static enum status begin_event(struct events *e, uint64_t step, struct error *err) {
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    reset(&e->event);
    TRY(put_double_field(&e->event, 1, (double)now.tv_sec + (double)now.tv_nsec / 1e9, err));
    TRY(put_key(&e->event, 2, WIRE_VARINT, err));
    return put_varint(&e->event, step, err);
}

/* --- values --- */

/* Ends the value in e->value, whose field `kind` follows the tag. */
static enum status begin_value(struct events *e, const char *tag, struct error *err) {
    reset(&e->value);
    return put_bytes(&e->value, 1, tag, strlen(tag), err);
}

static enum status end_value(struct events *e, struct error *err) {
    return put_bytes(&e->summary, 1, e->value.data, e->value.size_bytes, err);
}

static enum status put_scalar(struct events *e, const char *tag, double number, struct error *err) {
    const float value = (float)number;
    uint32_t bits;
    uint8_t bytes[4];
    memcpy(&bits, &value, sizeof bits);
    store_u32(bytes, bits);
    TRY(begin_value(e, tag, err));
    TRY(put_key(&e->value, 2, WIRE_FIXED32, err));
    TRY(byte_buffer_append(&e->value, bytes, sizeof bytes, err));
    return end_value(e, err);
}

struct bins {
    double low, width;
    const struct json_value *counts;
    size_t count;
};

static double count_of(const struct bins *b, size_t i) {
    double count = 0;
    (void)json_value_double(json_value_at(b->counts, i), &count);
    return count;
}

/* HistogramProto: 1 min, 2 max, 3 num, 4 sum, 5 sum of squares; 6 the right end of each bucket, 7
 * their counts. Sums are those of the middles of bins. */
static enum status
put_histogram(struct events *e, const char *tag, const struct bins *b, struct error *err) {
    double total[3] = {0}; /* number, sum, sum of squares */
    struct byte_buffer *h = &e->inner;
    reset(h);
    for (size_t i = 0; i < b->count; i++) {
        const double middle = b->low + ((double)i + 0.5) * b->width;
        total[0] += count_of(b, i);
        total[1] += count_of(b, i) * middle;
        total[2] += count_of(b, i) * middle * middle;
    }
    TRY(put_double_field(h, 1, b->low, err));
    TRY(put_double_field(h, 2, b->low + (double)b->count * b->width, err));
    for (uint32_t i = 0; i < 3; i++) {
        TRY(put_double_field(h, 3 + i, total[i], err));
    }
    for (uint32_t field = 6; field <= 7; field++) {
        TRY(put_key(h, field, WIRE_BYTES, err));
        TRY(put_varint(h, b->count * sizeof(double), err));
        for (size_t i = 0; i < b->count; i++) {
            TRY(put_double(h, field == 6 ? b->low + (double)(i + 1) * b->width : count_of(b, i),
                           err));
        }
    }
    TRY(begin_value(e, tag, err));
    TRY(put_bytes(&e->value, 5, h->data, h->size_bytes, err));
    return end_value(e, err);
}

static enum status
put_number(struct byte_buffer *b, uint32_t field, uint64_t value, struct error *err) {
    TRY(put_key(b, field, WIRE_VARINT, err));
    return put_varint(b, value, err);
}

/* Summary.Image: 1 height, 2 width, 3 channels, 4 the file. */
static enum status put_image(struct events *e, const struct events_image *p, struct error *err) {
    struct byte_buffer *b = &e->inner;
    reset(b);
    TRY(put_number(b, 1, p->height_px, err));
    TRY(put_number(b, 2, p->width_px, err));
    TRY(put_number(b, 3, 3, err));
    TRY(put_bytes(b, 4, p->jpeg, p->jpeg_bytes, err));
    TRY(begin_value(e, p->tag, err));
    TRY(put_bytes(&e->value, 4, b->data, b->size_bytes, err));
    return end_value(e, err);
}

/* A TensorProto of one string (1: DT_STRING, 2: no dimensions, 8: it), of the plugin "text". */
static enum status put_text(struct events *e, const struct events_image *p, struct error *err) {
    enum { STRING = 7 };
    static const char plugin[] = {
        1 << 3 | WIRE_BYTES, 6, 1 << 3 | WIRE_BYTES, 4, 't', 'e', 'x', 't'};
    struct byte_buffer *b = &e->inner;
    char tag[MAX_TAG_BYTES];
    (void)snprintf(tag, sizeof tag, "%s/text", p->tag);
    reset(b);
    TRY(put_number(b, 1, STRING, err));
    TRY(put_bytes(b, 2, "", 0, err));
    TRY(put_bytes(b, 8, p->text, p->text_bytes, err));
    TRY(begin_value(e, tag, err));
    TRY(put_bytes(&e->value, 8, b->data, b->size_bytes, err));
    TRY(put_bytes(&e->value, 9, plugin, sizeof plugin, err));
    return end_value(e, err);
}

static bool is_histogram(const struct json_value *v, struct bins *out) {
    out->counts = json_value_get(v, "counts");
    out->count = json_value_count(out->counts);
    return json_value_double(json_value_get(v, "low"), &out->low) &&
           json_value_double(json_value_get(v, "width"), &out->width) && out->count > 0 &&
           out->count <= MAX_BINS;
}

/* The members of an object, and of objects in it. */
static enum status put_members(struct events *e,
                               const struct json_value *v,
                               const char *path,
                               int depth,
                               struct error *err) {
    void *position = NULL;
    const char *key;
    const struct json_value *member;
    while (json_value_next_member(v, &position, &key, &member)) {
        char tag[MAX_TAG_BYTES];
        double number;
        struct bins bins;
        const int size = snprintf(tag, sizeof tag, "%s%s%s", path, path[0] != '\0' ? "/" : "", key);
        if (size >= (int)sizeof tag || (depth == 0 && strcmp(key, "step") == 0)) {
            continue;
        }
        if (json_value_double(member, &number)) {
            TRY(put_scalar(e, tag, number, err));
        } else if (json_value_get(member, "counts") != NULL) {
            TRY(is_histogram(member, &bins) ? put_histogram(e, tag, &bins, err) : STATUS_OK);
        } else if (json_value_is_object(member) && depth < MAX_DEPTH) {
            TRY(put_members(e, member, tag, depth + 1, err));
        }
    }
    return STATUS_OK;
}

enum status events_line(struct events *e, const char *line, size_t size_bytes, struct error *err) {
    REQUIRE(e != NULL && line != NULL);
    struct json_document *document = NULL;
    uint64_t step;
    TRY(json_document_parse(&document, e->path, line, size_bytes, err));
    const struct json_value *root = json_document_root(document);
    reset(&e->summary);
    enum status s = json_value_u64(json_value_get(root, "step"), &step)
                        ? begin_event(e, step, err)
                        : error_set(err, STATUS_CORRUPT, "%s: a line without a step", e->path);
    THEN(s, put_members(e, root, "", 0, err));
    json_document_destroy(document);
    if (s != STATUS_OK || e->summary.size_bytes == 0) {
        return s;
    }
    TRY(put_bytes(&e->event, 5, e->summary.data, e->summary.size_bytes, err));
    return put_record(e, err);
}

enum status
events_image(struct events *e, uint64_t step, const struct events_image *p, struct error *err) {
    REQUIRE(e != NULL && p != NULL);
    reset(&e->summary);
    TRY(put_image(e, p, err));
    TRY(put_text(e, p, err));
    TRY(begin_event(e, step, err));
    TRY(put_bytes(&e->event, 5, e->summary.data, e->summary.size_bytes, err));
    return put_record(e, err);
}

/* --- life --- */

static enum status create_file(struct events *e, const char *directory, struct error *err) {
    char host[64] = "";
    char name[160];
    const long long now = (long long)time(NULL);
    (void)gethostname(host, sizeof host - 1);
    for (int i = 0; i < MAX_FILES; i++) {
        (void)snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld.%d", now, host,
                       (long)getpid(), i);
        TRY(path_join(e->path, sizeof e->path, directory, name, err));
        e->file = fopen(e->path, "wxe");
        if (e->file != NULL || errno != EEXIST) {
            break;
        }
    }
    return e->file != NULL ? STATUS_OK : error_set_errno(err, "cannot make %s", e->path);
}

static enum status begin_file(struct events *e, uint64_t step, struct error *err) {
    static const char version[] = "brain.Event:2";
    static const uint8_t start[] = {1 << 3 | WIRE_VARINT, SESSION_START};
    TRY(begin_event(e, 0, err));
    TRY(put_bytes(&e->event, 3, version, sizeof version - 1, err));
    TRY(put_record(e, err));
    TRY(begin_event(e, step + 1, err));
    TRY(put_bytes(&e->event, 7, start, sizeof start, err));
    return put_record(e, err);
}

enum status
events_open(struct events **out, const char *directory, uint64_t step, struct error *err) {
    REQUIRE(out != NULL && directory != NULL);
    const struct file_system *fs = file_posix();
    *out = NULL;
    TRY(file_make_parents(fs, directory, err));
    TRY(fs->make_directory(fs->context, directory, err));
    struct events *e = calloc(1, sizeof *e);
    TRY_MEMORY(e != NULL, err, "events: out of memory");
    byte_buffer_init(&e->event, MAX_EVENT_BYTES);
    byte_buffer_init(&e->summary, MAX_EVENT_BYTES);
    byte_buffer_init(&e->value, MAX_EVENT_BYTES);
    byte_buffer_init(&e->inner, MAX_EVENT_BYTES);
    enum status s = create_file(e, directory, err);
    THEN(s, begin_file(e, step, err));
    RETURN_CREATED(s, out, e, events_close);
}

void events_close(struct events *e) {
    if (e != NULL) {
        if (e->file != NULL) {
            (void)fclose(e->file);
        }
        byte_buffer_fini(&e->event);
        byte_buffer_fini(&e->summary);
        byte_buffer_fini(&e->value);
        byte_buffer_fini(&e->inner);
        free(e);
    }
}
