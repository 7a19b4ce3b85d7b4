/*
 * The way into a shard, from its end:
 *
 *     tar.zst  .. index frame | seek table: .. entry of the index frame, footer
 *     tar      .. header, index, zeros | trailer | two zero blocks
 *
 * Both ends are written last, so that a file that has one was finished. Of a file whose end is not
 * that of a shard, the beginning: headers of our own tars follow from name and size alone, so a
 * file whose first headers have exactly these bytes was written as a shard, or by `ccdump cat`,
 * which writes complete plain tars of the same members:
 *
 *     tar.zst  the first frame holds one sample and no end of tar
 *     tar      no zero blocks at the end, or a member with an index
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_reader.h"

static const char trailer_magic[8] = {'C', 'C', 'S', 'T', 'R', 'A', 'I', 'L'};

enum { TRAILER_HASHED_BYTES = TRAILER_BYTES - 8 };

void tar_trailer(uint8_t out[TRAILER_BYTES],
                 uint64_t index_offset,
                 uint64_t index_bytes,
                 uint64_t file_bytes) {
    memset(out, 0, TRAILER_BYTES);
    memcpy(out, trailer_magic, sizeof(trailer_magic));
    store_u64(out + 8, index_offset);
    store_u64(out + 16, index_bytes);
    store_u64(out + 24, file_bytes);
    store_u64(out + TRAILER_HASHED_BYTES, hash64(out, TRAILER_HASHED_BYTES));
}

/* The last bytes of a file, all that both containers ask for. */
struct end {
    uint8_t bytes[TRAILER_BYTES + TAR_END_BYTES];
    size_t size_bytes; /* fewer in a short file */
};

static bool ends_as_zst(const struct end *e) {
    return e->size_bytes >= SEEK_ENTRY_BYTES + SEEK_FOOTER_BYTES &&
           load_u32(e->bytes + e->size_bytes - 4) == SEEK_FOOTER_MAGIC;
}

static bool ends_as_tar(const struct end *e) {
    static const uint8_t zeros[TAR_END_BYTES];
    return e->size_bytes == sizeof(e->bytes) &&
           memcmp(e->bytes, trailer_magic, sizeof(trailer_magic)) == 0 &&
           memcmp(e->bytes + TRAILER_BYTES, zeros, sizeof(zeros)) == 0;
}

static enum status find_in_zst(const struct file_system *fs,
                               struct file *f,
                               const char *path,
                               uint64_t file_bytes,
                               const struct end *e,
                               struct shard_tail *out,
                               struct error *err) {
    const uint8_t *tail = e->bytes + e->size_bytes - SEEK_ENTRY_BYTES - SEEK_FOOTER_BYTES;
    uint8_t header[SKIPPABLE_HEADER_BYTES];
    size_t got = 0;
    uint64_t frames = load_u32(tail + SEEK_ENTRY_BYTES);
    uint64_t table = SKIPPABLE_HEADER_BYTES + frames * SEEK_ENTRY_BYTES + SEEK_FOOTER_BYTES;
    uint64_t frame = load_u32(tail);
    FAIL_IF(tail[SEEK_ENTRY_BYTES + 4] != SEEK_DESCRIPTOR || frames < 3 ||
                frames > SHARD_MAX_SAMPLES + 2 || table > file_bytes ||
                frame > file_bytes - table || frame < SKIPPABLE_HEADER_BYTES,
            err, STATUS_CORRUPT, "%s: its seek table does not fit the file", path);
    uint64_t offset = file_bytes - table - frame;
    TRY(fs->pread(f, header, &got, sizeof(header), offset, err));
    FAIL_IF(got != sizeof(header) || load_u32(header) != SHARD_INDEX_FRAME_MAGIC ||
                load_u32(header + 4) != frame - SKIPPABLE_HEADER_BYTES,
            err, STATUS_CORRUPT, "%s: no index before the seek table (byte %" PRIu64 ")", path,
            offset);
    *out = (struct shard_tail){
        .container = SHARD_CONTAINER_TAR_ZSTD,
        .index_offset = offset + SKIPPABLE_HEADER_BYTES,
        .index_bytes = (uint32_t)(frame - SKIPPABLE_HEADER_BYTES),
    };
    return STATUS_OK;
}

static enum status find_in_tar(const char *path,
                               uint64_t file_bytes,
                               const struct end *e,
                               struct shard_tail *out,
                               struct error *err) {
    uint8_t expected[TRAILER_BYTES];
    uint64_t offset = load_u64(e->bytes + 8);
    uint64_t size = load_u64(e->bytes + 16);
    tar_trailer(expected, offset, size, file_bytes);
    /* The sizes are bounded before they are added. */
    FAIL_IF(memcmp(e->bytes, expected, sizeof(expected)) != 0 || offset > file_bytes ||
                size > UINT32_MAX - SKIPPABLE_HEADER_BYTES || offset < TAR_BLOCK_BYTES ||
                file_bytes - offset != tar_index_member_bytes(size) + TAR_END_BYTES,
            err, STATUS_CORRUPT,
            "%s: its trailer (byte %" PRIu64 ") is damaged or belongs to another file", path,
            file_bytes - sizeof(e->bytes));
    *out = (struct shard_tail){
        .container = SHARD_CONTAINER_TAR,
        .index_offset = offset,
        .index_bytes = (uint32_t)size,
    };
    return STATUS_OK;
}

enum status shard_tail_find(const struct file_system *fs,
                            struct file *f,
                            const char *path,
                            uint64_t file_bytes,
                            struct shard_tail *out,
                            struct error *err) {
    struct end e = {.size_bytes = sizeof(e.bytes)};
    if (file_bytes < e.size_bytes) {
        e.size_bytes = (size_t)file_bytes;
    }
    size_t got = 0;
    TRY(fs->pread(f, e.bytes, &got, e.size_bytes, file_bytes - e.size_bytes, err));
    if (got == e.size_bytes && ends_as_zst(&e)) {
        return find_in_zst(fs, f, path, file_bytes, &e, out, err);
    }
    if (got == e.size_bytes && ends_as_tar(&e)) {
        return find_in_tar(path, file_bytes, &e, out, err);
    }
    return error_set(
        err, STATUS_CORRUPT,
        "%s: ends with neither a seek table nor a trailer: unfinished, truncated or not "
        "a shard (%" PRIu64 " bytes)",
        path, file_bytes);
}

enum status shard_reader_recognise(bool *out,
                                   const struct file_system *fs,
                                   const char *path,
                                   struct error *err) {
    REQUIRE(out && fs && path);
    *out = false;
    struct file *f = NULL;
    struct shard_tail tail;
    uint64_t file_bytes = 0;
    TRY(fs->open(fs->context, &f, path, FILE_READ, err));
    enum status s = fs->size(f, &file_bytes, err);
    if (s == STATUS_OK) {
        struct error why = {0};
        s = shard_tail_find(fs, f, path, file_bytes, &tail, &why);
        *out = s == STATUS_OK;
        if (s == STATUS_CORRUPT) {
            s = STATUS_OK;
        } else if (s != STATUS_OK && err) {
            *err = why;
        }
    }
    fs->close(f);
    return s;
}

/* ---- the beginning ---- */

/* Of the file, and of the first frame's content: enough for every head but the longest. */
enum { BEGIN_BYTES = 1 << 20 };

/* Reads the name and the size from a header that is exactly as writers make it. */
static bool
own_header(const uint8_t header[TAR_BLOCK_BYTES], char name[TAR_NAME_BYTES], uint64_t *size_bytes) {
    uint8_t expected[TAR_BLOCK_BYTES];
    memcpy(name, header, TAR_NAME_BYTES);
    if (name[0] == '\0' || name[TAR_NAME_BYTES - 1] != '\0' ||
        !tar_read_octal(size_bytes, header + TAR_SIZE_AT, TAR_SIZE_BYTES - 1)) {
        return false;
    }
    tar_header(expected, name, *size_bytes);
    return memcmp(header, expected, sizeof(expected)) == 0;
}

static bool is_text_member(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".txt") == 0 || strcmp(dot, ".json") == 0);
}

/* Whether the content of a first frame, as far as it is there, is one sample: texts, then an image
 * that ends the content. */
static bool is_one_sample(const uint8_t *content, size_t got, uint64_t content_bytes) {
    uint64_t at = 0;
    char name[TAR_NAME_BYTES];
    uint64_t size = 0;
    bool any = false;
    while (at + TAR_BLOCK_BYTES <= got) {
        if (!own_header(content + at, name, &size)) {
            return false;
        }
        any = true;
        at += TAR_BLOCK_BYTES + size + tar_padding(size);
        if (!is_text_member(name)) {
            return at == content_bytes;
        }
    }
    return any && at < content_bytes;
}

/* The first frame of a tar.zst. */
static enum status
begins_as_zst(bool *out, const uint8_t *begin, size_t begin_bytes, struct error *err) {
    uint32_t content_bytes = 0;
    struct zstd_unpacker *u = NULL;
    size_t got = 0;
    if (!frame_content_bytes(begin, begin_bytes, &content_bytes)) {
        return STATUS_OK;
    }
    TRY(zstd_unpacker_create(&u, err));
    uint8_t *content = malloc(BEGIN_BYTES);
    enum status s = content ? STATUS_OK : error_set(err, STATUS_NOMEM, "out of memory");
    if (content) {
        got = zstd_unpack_begin(u, content, BEGIN_BYTES, begin, begin_bytes);
        *out = is_one_sample(content, got, content_bytes);
    }
    free(content);
    zstd_unpacker_destroy(u);
    return s;
}

/* Walks the members of a tar that begins with one of ours and ends with zeros. */
static enum status has_index_member(bool *out,
                                    const struct file_system *fs,
                                    struct file *f,
                                    uint64_t file_bytes,
                                    struct error *err) {
    uint8_t header[TAR_BLOCK_BYTES];
    char name[TAR_NAME_BYTES];
    uint64_t size = 0;
    size_t got = sizeof(header);
    for (uint64_t at = 0; at < file_bytes; at += TAR_BLOCK_BYTES + size + tar_padding(size)) {
        TRY(fs->pread(f, header, &got, sizeof(header), at, err));
        if (got != sizeof(header) || !own_header(header, name, &size)) {
            break;
        }
        if (strcmp(name, TAR_INDEX_NAME) == 0) {
            *out = true;
            break;
        }
    }
    return STATUS_OK;
}

static enum status begins_as_tar(bool *out,
                                 const struct file_system *fs,
                                 struct file *f,
                                 uint64_t file_bytes,
                                 struct error *err) {
    static const uint8_t zeros[TAR_END_BYTES];
    uint8_t end[TAR_END_BYTES];
    size_t got = 0;
    TRY(fs->pread(f, end, &got, sizeof(end),
                  file_bytes > sizeof(end) ? file_bytes - sizeof(end) : 0, err));
    if (got != sizeof(end) || memcmp(end, zeros, sizeof(end)) != 0) {
        *out = true;
        return STATUS_OK;
    }
    return has_index_member(out, fs, f, file_bytes, err);
}

static enum status
look(bool *out, const struct file_system *fs, struct file *f, uint8_t *begin, struct error *err) {
    uint64_t file_bytes = 0;
    uint64_t size = 0;
    size_t got = 0;
    char name[TAR_NAME_BYTES];
    TRY(fs->size(f, &file_bytes, err));
    TRY(fs->pread(f, begin, &got, BEGIN_BYTES, 0, err));
    if (got >= TAR_BLOCK_BYTES && own_header(begin, name, &size)) {
        return begins_as_tar(out, fs, f, file_bytes, err);
    }
    return begins_as_zst(out, begin, got, err);
}

enum status
shard_reader_begins(bool *out, const struct file_system *fs, const char *path, struct error *err) {
    REQUIRE(out && fs && path);
    *out = false;
    struct file *f = NULL;
    TRY(fs->open(fs->context, &f, path, FILE_READ, err));
    uint8_t *begin = malloc(BEGIN_BYTES);
    enum status s = begin ? look(out, fs, f, begin, err)
                          : error_set(err, STATUS_NOMEM, "%s: out of memory", path);
    free(begin);
    fs->close(f);
    return s;
}
