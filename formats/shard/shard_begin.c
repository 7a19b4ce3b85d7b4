/*
 * The beginning of a file whose end is not that of a shard. Headers of our own tars follow from
 * name and size alone, so a file whose first headers have exactly these bytes was written as a
 * shard, or by `ccdump cat`, which writes complete plain tars of the same members:
 *
 *     tar.zst  the first frame holds one sample and no end of tar
 *     tar      no zero blocks at the end, or a member with an index
 */
#include <stdlib.h>
#include <string.h>

#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_reader.h"

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
