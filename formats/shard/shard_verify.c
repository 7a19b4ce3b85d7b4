/*
 * The check of a whole shard: every byte of the file belongs to something, and every something
 * agrees with what is said about it elsewhere.
 *
 *     manifest --size, hash, counts--> file
 *     index records --tile--> frames --content, hashes--> images, captions
 *     tar.zst: seek table --sizes--> frames    tar: header, zeros, trailer    sidecar == index
 *
 * A foreign tar is bytes that only the manifest's hash covers as a whole; in it the records must
 * not overlap, and each must lead to what it says.
 *
 * One fault does not end the check, so that a single run names all damaged samples.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/sort.h"
#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_reader.h"

/* A frame by its place in the file. */
struct place {
    uint64_t offset;
    uint32_t index;
};

struct verify {
    const struct file_system *fs;
    const char *path;
    const struct shard_verify *how;
    struct shard_reader *reader;
    uint64_t faults;
    struct place *places; /* (sample_count), by offset */
    uint64_t *keys;       /* (sample_count) hashes of the keys seen */
    uint32_t key_count;
    uint8_t *seek; /* (sample_count + 2) entries; NULL but in container tar.zst */
};

__attribute__((format(printf, 5, 6))) static void report(struct verify *v,
                                                         enum shard_part part,
                                                         uint64_t sample_id,
                                                         uint64_t offset,
                                                         const char *fmt,
                                                         ...) {
    char text[sizeof(((struct error *)NULL)->text)];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    v->faults++;
    if (v->how->fault) {
        v->how->fault(v->how->cookie, part, sample_id, offset, text);
    }
}

/* Of the shard itself; of what is said about it elsewhere. */
#define fault(v, sample_id, offset, ...)    report(v, SHARD_PART_SHARD, sample_id, offset, __VA_ARGS__)
#define fault_outside(v, part, offset, ...) report(v, part, SHARD_NO_SAMPLE, offset, __VA_ARGS__)

static bool progress(const struct verify *v, uint64_t bytes) {
    return !v->how->progress || v->how->progress(v->how->cookie, bytes);
}

/* CORRUPT and the like are faults of the file; the rest is trouble with looking at it. */
static bool is_fault(enum status s) {
    return s == STATUS_CORRUPT || s == STATUS_VERSION || s == STATUS_LIMIT ||
           s == STATUS_UNSUPPORTED;
}

static enum status check_file(struct verify *v, struct error *err) {
    const struct shard_summary *expected = v->how->expected;
    struct file *f = NULL;
    const char *changed = v->reader ? shard_container_changed(v->reader->index.container) : "";
    uint64_t size = 0;
    uint64_t hash = 0;
    TRY(v->fs->open(v->fs->context, &f, v->path, FILE_READ, err));
    enum status s = v->fs->size(f, &size, err);
    THEN(s, shard_file_hash(v->fs, f, v->path, &hash, v->how->progress, v->how->cookie, err));
    v->fs->close(f);
    TRY(s);
    if (expected && size != expected->size_bytes) {
        fault_outside(v, SHARD_PART_MANIFEST, size,
                      "%s: has %" PRIu64 " bytes, the manifest says %" PRIu64 "%s", v->path, size,
                      expected->size_bytes, changed);
    }
    if (expected && hash != expected->hash) {
        fault_outside(v, SHARD_PART_MANIFEST, 0,
                      "%s: has the hash %016" PRIx64 ", the manifest says %016" PRIx64 "%s",
                      v->path, hash, expected->hash, changed);
    }
    return STATUS_OK;
}

static void check_counts(struct verify *v) {
    const struct shard_summary *e = v->how->expected;
    const struct shard_index *x = &v->reader->index;
    if (e && (e->sample_count != x->sample_count || e->text_count != x->text_count ||
              e->image_bytes != x->image_bytes || e->first_id != x->first_id ||
              e->last_id != x->last_id || e->index_hash != x->hash)) {
        fault_outside(v, SHARD_PART_MANIFEST, v->reader->index_offset,
                      "%s: its index and the manifest differ in counts, ids or hash", v->path);
    }
}

/* The records by themselves: ids ascend, captions are numbered through, sums are right. */
static enum status check_records(struct verify *v, struct error *err) {
    struct shard_reader *r = v->reader;
    struct shard_record record = {0};
    uint64_t texts = 0;
    uint64_t image_bytes = 0;
    uint64_t last_id = 0;
    uint32_t largest = 0;
    for (uint32_t i = 0; i < r->index.sample_count; i++) {
        struct error why = {0};
        enum status s = shard_index_record(&r->index, i, &record, &why);
        v->places[i] = (struct place){record.frame_offset, i};
        if (s != STATUS_OK) {
            fault(v, record.sample_id, r->index_offset, "%s", why.text);
            continue;
        }
        if ((i == 0 && record.sample_id != r->index.first_id) ||
            (i > 0 && record.sample_id <= last_id) || record.first_text != texts) {
            fault(v, record.sample_id, r->index_offset,
                  "%s: index record %u is out of order by id or caption", v->path, i);
        }
        last_id = record.sample_id;
        texts += record.text_count;
        image_bytes += record.image_bytes;
        largest = record.image_bytes > largest ? record.image_bytes : largest;
    }
    if (last_id != r->index.last_id || texts != r->index.text_count ||
        image_bytes != r->index.image_bytes || largest != r->index.largest_image_bytes) {
        fault(v, SHARD_NO_SAMPLE, r->index_offset,
              "%s: the records do not add up to the index header", v->path);
    }
    qsort(v->places, r->index.sample_count, sizeof(*v->places), compare_u64);
    return progress(v, 0) ? STATUS_OK
                          : error_set(err, STATUS_INTERRUPTED, "stopped in %s", v->path);
}

static enum status read_seek_table(struct verify *v, struct error *err) {
    struct shard_reader *r = v->reader;
    size_t size = ((size_t)r->index.sample_count + 2) * SEEK_ENTRY_BYTES;
    uint64_t offset = r->index_offset + r->index_bytes;
    uint8_t header[SKIPPABLE_HEADER_BYTES];
    size_t got = 0;
    v->seek = calloc(1, size);
    TRY_MEMORY(v->seek, err, "%s: out of memory to check it", v->path);
    TRY(r->fs->pread(r->file, header, &got, sizeof(header), offset, err));
    if (got != sizeof(header) || load_u32(header) != SEEK_FRAME_MAGIC ||
        load_u32(header + 4) != size + SEEK_FOOTER_BYTES) {
        fault(v, SHARD_NO_SAMPLE, offset, "%s: no seek table after the index", v->path);
    }
    TRY(r->fs->pread(r->file, v->seek, &got, size, offset + sizeof(header), err));
    if (got != size) {
        fault(v, SHARD_NO_SAMPLE, offset, "%s: the seek table is truncated", v->path);
    }
    return STATUS_OK;
}

static void check_seek_entry(struct verify *v,
                             uint32_t number,
                             uint64_t sample_id,
                             uint64_t frame_bytes,
                             uint64_t content_bytes) {
    const uint8_t *entry = v->seek + (size_t)number * SEEK_ENTRY_BYTES;
    if (load_u32(entry) != frame_bytes || load_u32(entry + 4) != content_bytes) {
        fault(v, sample_id,
              v->reader->index_offset + v->reader->index_bytes + SKIPPABLE_HEADER_BYTES +
                  (uint64_t)number * SEEK_ENTRY_BYTES,
              "%s: seek table entry %u does not match its frame", v->path, number);
    }
}

/* The caption column against the captions in the tar. */
static enum status
check_column(struct verify *v, uint32_t index, const struct sample_view *view, struct error *err) {
    for (uint32_t k = 0; k < view->caption_count; k++) {
        struct shard_text text;
        TRY(caption_chunk_get(&v->reader->chunk, &v->reader->index, index, &view->record, k, &text,
                              err));
        FAIL_IF(text.size_bytes != view->captions[k].size_bytes ||
                    memcmp(text.data, view->captions[k].data, text.size_bytes) != 0,
                err, STATUS_CORRUPT,
                "%s: caption %u of sample %" PRIu64 " differs between index and tar", v->path, k,
                view->record.sample_id);
    }
    return STATUS_OK;
}

static enum status
check_sample(struct verify *v, uint32_t number, uint64_t *end, struct error *err) {
    const struct place *place = &v->places[number];
    struct shard_reader *r = v->reader;
    struct sample_view view;
    struct shard_record record;
    if (shard_index_record(&r->index, place->index, &record, NULL) != STATUS_OK) {
        return STATUS_OK; /* reported with the records */
    }
    bool foreign = r->index.container == SHARD_CONTAINER_TAR_FOREIGN;
    if (foreign ? record.frame_offset < *end : record.frame_offset != *end) {
        fault(v, record.sample_id, record.frame_offset,
              "%s: the frame does not follow the one before it", v->path);
    }
    *end = record.frame_offset + record.frame_bytes;
    struct error why = {0};
    enum status s = shard_reader_get(r, place->index, &view, &why);
    if (s == STATUS_OK) {
        if (v->seek) {
            check_seek_entry(v, number, record.sample_id, record.frame_bytes,
                             r->content.size_bytes);
        }
        v->keys[v->key_count++] = hash64(view.key, strlen(view.key));
        s = check_column(v, place->index, &view, &why);
    }
    if (s == STATUS_OK && v->how->sample) {
        s = v->how->sample(v->how->cookie, &view, &why);
    }
    if (is_fault(s)) {
        fault(v, record.sample_id, record.frame_offset, "%s", why.text);
    } else if (s != STATUS_OK) {
        return error_pass(err, s, &why);
    }
    return progress(v, record.frame_bytes)
               ? STATUS_OK
               : error_set(err, STATUS_INTERRUPTED, "stopped in %s", v->path);
}

static enum status check_samples(struct verify *v, struct error *err) {
    struct shard_reader *r = v->reader;
    uint64_t end = 0;
    for (uint32_t i = 0; i < r->index.sample_count; i++) {
        TRY(check_sample(v, i, &end, err));
    }
    if (r->index.container == SHARD_CONTAINER_TAR_FOREIGN) {
        return STATUS_OK; /* with bytes of no sample and keys as they come */
    }
    if (end != r->index.data_bytes) {
        fault(v, SHARD_NO_SAMPLE, end, "%s: the frames do not fill the file up to its end of tar",
              v->path);
    }
    qsort(v->keys, v->key_count, sizeof(*v->keys), compare_u64);
    for (uint32_t i = 1; i < v->key_count; i++) {
        if (v->keys[i] == v->keys[i - 1]) {
            fault(v, SHARD_NO_SAMPLE, 0, "%s: two samples have the same key", v->path);
        }
    }
    return STATUS_OK;
}

static enum status check_zst_end(struct verify *v, struct error *err) {
    struct shard_reader *r = v->reader;
    uint8_t expected[END_FRAME_BYTES];
    uint8_t end[END_FRAME_BYTES];
    size_t got = 0;
    end_frame(expected);
    TRY(r->fs->pread(r->file, end, &got, sizeof(end), r->index.data_bytes, err));
    if (got != sizeof(end) || memcmp(end, expected, sizeof(end)) != 0) {
        fault(v, SHARD_NO_SAMPLE, r->index.data_bytes, "%s: no end of the tar after the samples",
              v->path);
    }
    check_seek_entry(v, r->index.sample_count, SHARD_NO_SAMPLE, END_FRAME_BYTES, TAR_END_BYTES);
    check_seek_entry(v, r->index.sample_count + 1, SHARD_NO_SAMPLE,
                     (uint64_t)r->index_bytes + SKIPPABLE_HEADER_BYTES, 0);
    return STATUS_OK;
}

/* Checks the header of the index member and the zeros after the index; the rest was compared when
 * the index was located. */
static enum status check_tar_end(struct verify *v, struct error *err) {
    static const uint8_t zeros[TAR_BLOCK_BYTES];
    struct shard_reader *r = v->reader;
    uint8_t expected[TAR_BLOCK_BYTES];
    uint8_t block[TAR_BLOCK_BYTES];
    size_t got = 0;
    size_t padding = tar_padding(r->index_bytes);
    uint64_t padding_offset = r->index_offset + r->index_bytes;
    tar_header(expected, TAR_INDEX_NAME, tar_index_member_bytes(r->index_bytes));
    TRY(r->fs->pread(r->file, block, &got, sizeof(block), r->index.data_bytes, err));
    if (got != sizeof(block) || memcmp(block, expected, sizeof(block)) != 0) {
        fault(v, SHARD_NO_SAMPLE, r->index.data_bytes,
              "%s: no member with the index after the samples", v->path);
    }
    TRY(r->fs->pread(r->file, block, &got, padding, padding_offset, err));
    if (got != padding || memcmp(block, zeros, padding) != 0) {
        fault(v, SHARD_NO_SAMPLE, padding_offset, "%s: no zeros after the index", v->path);
    }
    return STATUS_OK;
}

static enum status check_sidecar(struct verify *v, struct error *err) {
    char path[PATH_MAX_BYTES];
    bool exists = false;
    struct byte_buffer bytes = {0};
    TRY(shard_index_name(path, sizeof(path), v->path, err));
    TRY(v->fs->exists(v->fs->context, path, &exists, err));
    if (!exists) {
        return STATUS_OK;
    }
    enum status s = file_read_all(v->fs, &bytes, path, v->reader->index_bytes, err);
    if (s == STATUS_LIMIT ||
        (s == STATUS_OK && (bytes.size_bytes != v->reader->index_bytes ||
                            memcmp(bytes.data, v->reader->index_data, bytes.size_bytes) != 0))) {
        fault_outside(v, SHARD_PART_SIDECAR, v->reader->index_offset,
                      "%s: is not the index of its shard", path);
        s = STATUS_OK;
    }
    byte_buffer_fini(&bytes);
    return s;
}

static enum status check_inside(struct verify *v, struct error *err) {
    enum shard_container container = v->reader->index.container;
    size_t samples = v->reader->index.sample_count;
    v->places = calloc(samples, sizeof(*v->places));
    v->keys = calloc(samples, sizeof(*v->keys));
    TRY_MEMORY(v->places && v->keys, err, "%s: out of memory to check it", v->path);
    check_counts(v);
    TRY(check_records(v, err));
    if (container == SHARD_CONTAINER_TAR_ZSTD) {
        TRY(read_seek_table(v, err));
    }
    TRY(check_samples(v, err));
    switch (container) {
    case SHARD_CONTAINER_TAR_ZSTD:
        TRY(check_zst_end(v, err));
        break;
    case SHARD_CONTAINER_TAR:
        TRY(check_tar_end(v, err));
        break;
    case SHARD_CONTAINER_TAR_FOREIGN:
        return STATUS_OK; /* the sidecar is what was read */
    }
    return v->how->index ? STATUS_OK : check_sidecar(v, err);
}

/* All of it, once it is known whether the file opens at all; `opened` and `why` say so. */
static enum status
check_all(struct verify *v, enum status opened, const struct error *why, struct error *err) {
    TRY(check_file(v, err));
    if (v->reader) {
        return check_inside(v, err);
    }
    if (is_fault(opened)) {
        fault(v, SHARD_NO_SAMPLE, 0, "%s", why->text);
        return STATUS_OK;
    }
    return error_pass(err, opened, why);
}

enum status shard_verify(const struct file_system *fs,
                         const char *path,
                         const struct shard_verify *how,
                         struct error *err) {
    REQUIRE(fs && path && how);
    struct verify v = {.fs = fs, .path = path, .how = how};
    struct error why = {0};
    enum status opened = how->index
                             ? shard_reader_open_foreign(&v.reader, fs, path, how->index, &why)
                             : shard_reader_open(&v.reader, fs, path, &why);
    enum status s = check_all(&v, opened, &why, err);
    free(v.places);
    free(v.keys);
    free(v.seek);
    shard_reader_close(v.reader);
    TRY(s);
    FAIL_IF(v.faults > 0, err, STATUS_CORRUPT, "%s: %" PRIu64 " fault%s found", path, v.faults,
            v.faults == 1 ? "" : "s");
    return STATUS_OK;
}
