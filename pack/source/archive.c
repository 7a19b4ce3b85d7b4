/*
 * Tars and zips, also inside gzip and zstd, are read once from front to back. This is the only file
 * that includes libarchive and zlib. A plain tar is read by source_tar, which is faster, up to the
 * first header that source_tar does not support, and by libarchive from there on.
 *
 * In a plain tar, the rest of a member is skipped with a seek if it has SEEK_BYTES or more, so that
 * counting the rows of large images reads little. A disk reads SEEK_BYTES in the time of a seek.
 * After a seek blocks start small, because another seek may follow.
 *
 * gzip is read by zlib, because libarchive ignores the checksum and the length at the end of each
 * gzip member.
 *
 * Names in a zip that are marked as UTF-8 are taken from the member's header, byte for byte:
 * libarchive would convert them to the locale's encoding, and normalise them even to UTF-8. Other
 * zip names are read in a UTF-8 locale, which only the reading thread gets, and only for LC_CTYPE.
 */
#include "pack/source/archive_internal.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <locale.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "formats/shard/tar.h"
#include "net/http_stream.h"
#include "net/location.h"

enum {
    READ_BYTES = 256 << 10,
    FIRST_BYTES = 8 << 10, /* of the block after a seek */
    SEEK_BYTES = 256 << 10,
    WAIT_MS = 100,
    KEPT_BYTES = 4 << 10, /* of what precedes a block, for names in a zip */
    NAME_AT = 30,         /* of a zip's local file header */
    UTF8_NAME = 0x800,    /* in its flags */
};

struct source_archive {
    char path[PATH_MAX_BYTES]; /* for messages */
    struct source_tar *tar;    /* NULL: libarchive reads */
    struct archive *archive;   /* NULL: source_tar reads */
    bool primes;               /* the next block is a header that we made */
    uint64_t before_bytes;     /* to be added to libarchive's offsets, modulo 2^64 */
    int fd;
    struct http_stream *stream; /* of a remote file; NULL: `fd` */
    struct error failure;       /* of it */
    bool seekable;              /* a regular file, opened by us */
    size_t block_bytes;         /* of the next block */
    bool stopped;
    struct source_options opt; /* of these stop, bytes, their cookies, from */
    bool plain_tar, is_zip;
    uint8_t *block;               /* READ_BYTES, what libarchive reads from; KEPT_BYTES before it */
    uint64_t given_bytes;         /* to libarchive, this block included */
    size_t kept_bytes, got_bytes; /* before the block, and in it */
    locale_t utf8;                /* of names in a zip; 0: it is none, or there is none */
    z_stream gzip;
    uint8_t *packed;                     /* READ_BYTES of gzip; NULL: it is none */
    bool between;                        /* two gzip members, or after the last */
    char name[KEPT_BYTES];               /* of the member of a zip */
    uint64_t position_bytes, size_bytes; /* size: 0 for a pipe */
    bool at_member;
    struct source_member member;
    uint64_t body_bytes; /* read of it by libarchive */
    bool has_ended;      /* an end mark precedes the next header */
    uint64_t end_bytes;  /* where that mark begins */
    char note[240];      /* see source_archive_note */
    uint64_t members;
    const uint64_t *rows; /* for messages */
};

static bool must_stop(struct source_archive *a) {
    a->stopped = a->stopped || (a->opt.stop && a->opt.stop(a->opt.stop_cookie));
    return a->stopped;
}

/* Reads bytes of the file. Waits in small steps, so that a run can be stopped while a pipe is idle.
 */
static la_ssize_t read_file(struct source_archive *a, uint8_t *out, size_t size_bytes) {
    while (!must_stop(a)) {
        size_t arrived = 0;
        enum status s = a->stream
                            ? http_stream_read(a->stream, out, size_bytes, &arrived, &a->failure)
                            : STATUS_OK;
        if (s == STATUS_AGAIN) {
            continue;
        }
        if (s != STATUS_OK) {
            archive_set_error(a->archive, EIO, "%s", a->failure.text);
            return -1;
        }
        struct pollfd p = {.fd = a->fd, .events = POLLIN};
        int ready = a->seekable || a->stream ? 1 : poll(&p, 1, WAIT_MS);
        if (ready == 0 || (ready < 0 && errno == EINTR)) {
            continue; /* a signal, which may be the one that stops the run */
        }
        ssize_t got = a->stream ? (ssize_t)arrived : read(a->fd, out, size_bytes);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) {
            continue;
        }
        if (got < 0) {
            archive_set_error(a->archive, errno, "cannot read: %s", strerror(errno));
        }
        if (got > 0) {
            a->position_bytes += (uint64_t)got;
            a->size_bytes = a->stream ? http_stream_size(a->stream) : a->size_bytes;
            if (a->opt.bytes) {
                a->opt.bytes(a->opt.bytes_cookie, out, (size_t)got);
            }
        }
        return got;
    }
    archive_set_error(a->archive, EINTR, "stopped on request");
    return -1;
}

/* ---- gzip ---- */

/* The file's first block, in a->block, is gzip: it becomes a->packed. */
static la_ssize_t begin_gzip(struct source_archive *a, size_t got) {
    enum { GZIP_ONLY = 16 }; /* zlib then checks CRC-32 and length of each member */
    a->packed = malloc(READ_BYTES);
    if (!a->packed || inflateInit2(&a->gzip, MAX_WBITS + GZIP_ONLY) != Z_OK) {
        archive_set_error(a->archive, ENOMEM, "out of memory");
        return -1;
    }
    memcpy(a->packed, a->block, got);
    a->gzip.next_in = a->packed;
    a->gzip.avail_in = (uInt)got;
    return 0;
}

/* Another member may follow one, or zeros up to the end. */
static void begin_member(struct source_archive *a) {
    while (a->gzip.avail_in > 0 && a->gzip.next_in[0] == 0) {
        a->gzip.next_in++;
        a->gzip.avail_in--;
    }
    if (a->gzip.avail_in > 0) {
        a->between = false;
        inflateReset(&a->gzip);
    }
}

/* Decompresses up to READ_BYTES into a->block; 0 at the end of the file. */
static la_ssize_t read_gzip(struct source_archive *a) {
    z_stream *z = &a->gzip;
    z->next_out = a->block;
    z->avail_out = READ_BYTES;
    while (z->avail_out == READ_BYTES) {
        if (z->avail_in == 0) {
            la_ssize_t got = read_file(a, a->packed, READ_BYTES);
            if (got == 0 && !a->between) {
                archive_set_error(a->archive, EIO, "the gzip is truncated");
                return -1;
            }
            if (got <= 0) {
                return got;
            }
            z->next_in = a->packed;
            z->avail_in = (uInt)got;
        }
        if (a->between) {
            begin_member(a);
            continue;
        }
        int code = inflate(z, Z_NO_FLUSH);
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
            archive_set_error(a->archive, EIO, "the gzip is damaged: %s",
                              z->msg ? z->msg : "out of memory");
            return -1;
        }
        a->between = code == Z_STREAM_END;
    }
    return (la_ssize_t)(READ_BYTES - z->avail_out);
}

/* ---- blocks ---- */

/* Moves the end of what was given to libarchive before the block. */
static void keep_end(struct source_archive *a) {
    size_t all = a->kept_bytes + a->got_bytes;
    size_t kept = all < KEPT_BYTES ? all : KEPT_BYTES;
    memmove(a->block - kept, a->block + a->got_bytes - kept, kept);
    a->kept_bytes = kept;
    a->got_bytes = 0;
}

static la_ssize_t fill_block(struct source_archive *a) {
    if (a->packed) {
        return read_gzip(a);
    }
    bool first = a->given_bytes == 0 && a->before_bytes == 0;
    la_ssize_t got = read_file(a, a->block, a->block_bytes);
    a->block_bytes = a->block_bytes < READ_BYTES / 2 ? 2 * a->block_bytes : READ_BYTES;
    if (first && got >= 2 && a->block[0] == 0x1F && a->block[1] == 0x8B) {
        return begin_gzip(a, (size_t)got) < 0 ? -1 : read_gzip(a);
    }
    return got;
}

static la_ssize_t read_block(struct archive *unused, void *context, const void **block) {
    (void)unused;
    struct source_archive *a = context;
    *block = a->block;
    if (a->primes) {
        tar_header(a->block, "before", 0);
        a->primes = false;
        a->given_bytes = TAR_BLOCK_BYTES;
        return TAR_BLOCK_BYTES;
    }
    keep_end(a);
    bool first = a->given_bytes == 0;
    la_ssize_t got = fill_block(a);
    if (got > 0) {
        a->got_bytes = (size_t)got;
        a->given_bytes += (uint64_t)got;
    }
    a->is_zip = first ? got >= 3 && memcmp(a->block, "PK", 2) == 0 && a->block[2] < ' ' : a->is_zip;
    if (first && a->is_zip) {
        a->utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    }
    return got;
}

/* Never beyond the end of the file, so that reading finds a truncated one; never if the caller
 * receives every byte. */
static la_int64_t skip_bytes(struct archive *unused, void *context, la_int64_t request) {
    (void)unused;
    struct source_archive *a = context;
    if (!a->seekable || a->packed || a->opt.bytes || a->position_bytes >= a->size_bytes ||
        request < SEEK_BYTES) {
        return 0;
    }
    uint64_t left = a->size_bytes - a->position_bytes;
    uint64_t step = (uint64_t)request < left ? (uint64_t)request : left;
    if (lseek(a->fd, (off_t)(a->position_bytes + step), SEEK_SET) < 0) {
        return 0;
    }
    a->position_bytes += step;
    a->given_bytes += step;
    a->kept_bytes = a->got_bytes = 0;
    a->block_bytes = FIRST_BYTES;
    return (la_int64_t)step;
}

static enum status broken(struct source_archive *a, struct error *err) {
    FAIL_IF(a->stopped, err, STATUS_INTERRUPTED, "stopped on request");
    RETURN_IF(a->failure.status != STATUS_OK, error_pass(err, a->failure.status, &a->failure));
    const char *text = archive_error_string(a->archive);
    text = text ? text : "unknown reason";
    FAIL_IF(a->members == 0, err, STATUS_CORRUPT,
            "%s: not readable as a tar or zip: %s; tables and JSON are read unpacked", a->path,
            text);
    return error_set(
        err, STATUS_CORRUPT, "%s: not readable as a tar or zip after row %" PRIu64 "%s%.80s: %s",
        a->path, *a->rows, a->at_member ? ", in " : "", a->at_member ? a->member.name : "", text);
}

static enum status open_file(struct source_archive *a, const char *path, struct error *err) {
    if (strcmp(path, "-") == 0) {
        a->fd = STDIN_FILENO;
        strcpy(a->path, "standard input");
        return STATUS_OK;
    }
    FAIL_IF(strlen(path) >= sizeof(a->path), err, STATUS_LIMIT, "%.80s...: the path is too long",
            path);
    strcpy(a->path, path);
    if (location_is_remote(path)) {
        a->position_bytes = a->opt.from ? a->opt.from->offset_bytes : 0;
        return http_stream_open(&a->stream, path, a->position_bytes, err);
    }
    a->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (a->fd < 0) {
        return error_set_errno(err, "%s: cannot open it", path);
    }
    struct stat info;
    if (fstat(a->fd, &info) == 0 && S_ISREG(info.st_mode)) {
        a->size_bytes = (uint64_t)info.st_size;
        a->seekable = true;
    }
    return STATUS_OK;
}

/* Reads from the file's current offset. `plain`: as an uncompressed tar only. */
static enum status open_libarchive(struct source_archive *a, bool plain, struct error *err) {
    uint8_t *memory = malloc(KEPT_BYTES + READ_BYTES);
    a->archive = archive_read_new();
    a->block = memory ? memory + KEPT_BYTES : NULL;
    TRY_MEMORY(a->block && a->archive, err, "%s: out of memory", a->path);
    archive_read_support_format_tar(a->archive);
    if (!plain) {
        archive_read_support_filter_zstd(a->archive);
        archive_read_support_format_zip_streamable(a->archive);
    }
    if (!a->opt.bytes) {
        archive_read_set_option(a->archive, "tar", "read_concatenated_archives", "1");
    }
    if (archive_read_open2(a->archive, a, NULL, read_block, skip_bytes, NULL) != ARCHIVE_OK) {
        return broken(a, err);
    }
    return STATUS_OK;
}

/* Libarchive begins at the header at `offset`, where the file is. It accepts fewer headers at the
 * start of an archive than after a member, so it first gets a header that we made. */
static enum status begin_at(struct source_archive *a, uint64_t offset, struct error *err) {
    struct archive_entry *e = NULL;
    a->primes = true;
    a->before_bytes = offset - TAR_BLOCK_BYTES;
    TRY(open_libarchive(a, true, err));
    return archive_read_next_header(a->archive, &e) == ARCHIVE_OK ? STATUS_OK : broken(a, err);
}

/* Libarchive continues at a header that source_tar does not support. */
static enum status change_reader(struct source_archive *a, struct error *err) {
    uint64_t offset = a->tar->header_offset;
    a->has_ended = a->tar->has_ended;
    a->end_bytes = a->tar->begin;
    source_tar_close(a->tar);
    a->tar = NULL;
    a->position_bytes = offset;
    if (lseek(a->fd, (off_t)offset, SEEK_SET) < 0) {
        return error_set_errno(err, "%s: cannot read at byte %llu", a->path,
                               (unsigned long long)offset);
    }
    if (offset == 0) {
        return open_libarchive(a, false, err);
    }
    return begin_at(a, offset, err);
}

static enum status open_archive(struct source_archive *a, struct error *err) {
    if (a->seekable && !a->opt.bytes) { /* `bytes` receives what libarchive reads */
        struct error why = {0};
        enum status s = source_tar_open(&a->tar, a->fd, a->size_bytes, a->path, &why);
        if (s == STATUS_OK) {
            a->plain_tar = true;
            return STATUS_OK;
        }
        FAIL_IF(s != STATUS_UNSUPPORTED, err, s, "%s", why.text);
    }
    if (a->opt.from) {
        a->plain_tar = true;
        a->members = a->opt.from->members;
        return begin_at(a, a->opt.from->offset_bytes, err);
    }
    TRY(open_libarchive(a, false, err));
    a->plain_tar = (a->seekable || a->stream) && a->size_bytes > 0 && !a->is_zip && !a->packed &&
                   archive_filter_count(a->archive) == 1;
    return STATUS_OK;
}

enum status source_archive_open(struct source_archive **out,
                                const char *path,
                                const struct source_options *opt,
                                const uint64_t *rows,
                                struct error *err) {
    *out = NULL;
    struct source_archive *a = calloc(1, sizeof(*a));
    TRY_MEMORY(a, err, "%s: out of memory", path);
    a->fd = -1;
    a->block_bytes = READ_BYTES;
    a->rows = rows;
    a->opt = *opt;
    enum status s = open_file(a, path, err);
    THEN(s, open_archive(a, err));
    RETURN_CREATED(s, out, a, source_archive_close);
}

void source_archive_close(struct source_archive *a) {
    if (!a) {
        return;
    }
    source_tar_close(a->tar);
    archive_read_free(a->archive);
    http_stream_close(a->stream);
    if (a->fd > STDERR_FILENO) {
        close(a->fd);
    }
    if (a->utf8) {
        freelocale(a->utf8);
    }
    if (a->packed) {
        inflateEnd(&a->gzip);
        free(a->packed);
    }
    free(a->block ? a->block - KEPT_BYTES : NULL);
    free(a);
}

static bool is_tar(const struct source_archive *a) {
    return (archive_format(a->archive) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_TAR;
}

/* The name in the header of a zip's member, if it is marked as UTF-8; NULL if it is not, or if
 * libarchive did not get the header from us, but decompressed. */
static const char *zip_name(struct source_archive *a) {
    uint64_t at = (uint64_t)archive_read_header_position(a->archive);
    uint64_t begin = a->given_bytes - a->got_bytes - a->kept_bytes;
    if (at < begin || a->given_bytes - at < NAME_AT || archive_filter_count(a->archive) != 1) {
        return NULL;
    }
    const uint8_t *header = a->block - a->kept_bytes + (at - begin);
    size_t name_bytes = header[26] | (size_t)header[27] << 8;
    if (memcmp(header, "PK\3\4", 4) != 0 || !((header[6] | header[7] << 8) & UTF8_NAME) ||
        name_bytes >= sizeof(a->name) || name_bytes > a->given_bytes - at - NAME_AT) {
        return NULL;
    }
    memcpy(a->name, header + NAME_AT, name_bytes);
    a->name[name_bytes] = '\0';
    return a->name;
}

static const char *name_of(struct source_archive *a, struct archive_entry *e) {
    const char *name = a->utf8 ? zip_name(a) : NULL;
    name = name ? name : archive_entry_pathname(e);
    name = name ? name : archive_entry_pathname_utf8(e);
    if (!name) {
        return "";
    }
    return strncmp(name, "./", 2) == 0 ? name + 2 : name;
}

/* archive_read_next_header in a UTF-8 locale if it is a zip. */
static int next_header(struct source_archive *a, struct archive_entry **e) {
    locale_t before = a->utf8 ? uselocale(a->utf8) : (locale_t)0;
    int code = archive_read_next_header(a->archive, e);
    if (before) {
        uselocale(before);
    }
    return code;
}

/* Reads gzip to its end, so that its checksum is verified. A zip ends before its directory. */
static enum status end_gzip(struct source_archive *a, struct error *err) {
    la_ssize_t got = 1;
    while (a->packed && got > 0) {
        got = read_gzip(a);
    }
    return got < 0 ? broken(a, err) : STATUS_OK;
}

/* Skips what is unread of a member. Of a zip it is read: if the member's sizes contradict each
 * other, libarchive would skip to another place than reading ends at, and find other members. */
static enum status leave_member(struct source_archive *a, struct error *err) {
    int code = ARCHIVE_OK;
    while (code == ARCHIVE_OK && !is_tar(a)) {
        const void *data;
        size_t size_bytes;
        la_int64_t offset;
        code = archive_read_data_block(a->archive, &data, &size_bytes, &offset);
    }
    if (is_tar(a)) {
        code = archive_read_data_skip(a->archive);
    }
    return code == ARCHIVE_EOF || code == ARCHIVE_OK ? STATUS_OK : broken(a, err);
}

static bool is_zero(const uint8_t *p, size_t size_bytes) {
    return p[0] == 0 && memcmp(p, p + 1, size_bytes - 1) == 0;
}

static bool is_zero_block(const struct source_archive *a, uint64_t offset) {
    uint8_t block[TAR_BLOCK_BYTES];
    return pread(a->fd, block, sizeof(block), (off_t)offset) == sizeof(block) &&
           is_zero(block, sizeof(block));
}

/* Whether libarchive, which was to find a header from `begin` on, failed at what follows an end
 * mark of a plain tar. It has consumed at most the block at which it failed. */
static bool failed_after_end(struct source_archive *a, uint64_t begin) {
    uint64_t end = (uint64_t)archive_filter_bytes(a->archive, 0);
    bool found = a->has_ended;
    for (int k = 1; k <= 2 && a->plain_tar && !found && end >= begin + k * TAR_BLOCK_BYTES; k++) {
        found = is_zero_block(a, a->before_bytes + end - (uint64_t)k * TAR_BLOCK_BYTES);
    }
    return found;
}

/* Reads on to the end of the file, whose every byte the caller receives. *more: after the end of
 * the archive there are not only zeros. */
static enum status read_rest(struct source_archive *a, bool *more, struct error *err) {
    const uint64_t unread = a->given_bytes - (uint64_t)archive_filter_bytes(a->archive, 0);
    const size_t held = a->kept_bytes + a->got_bytes;
    const size_t left = unread < held ? (size_t)unread : held;
    la_ssize_t got;
    *more = left > 0 && !is_zero(a->block + a->got_bytes - left, left);
    while ((got = read_file(a, a->block, READ_BYTES)) > 0) {
        *more = *more || !is_zero(a->block, (size_t)got);
    }
    return got < 0 ? broken(a, err) : STATUS_OK;
}

/* At the end of a tar. */
static void note_end(struct source_archive *a, bool has_ended, bool more) {
    if (has_ended && more) {
        snprintf(a->note, sizeof(a->note),
                 "%.120s: data after the end mark, which follows %" PRIu64
                 " members, was not read; ccpack -o DIR reads another tar there",
                 a->path, a->members);
    }
    if (!has_ended) {
        snprintf(a->note, sizeof(a->note),
                 "%.120s: the tar has no end mark after its %" PRIu64
                 " members: it may be truncated",
                 a->path, a->members);
    }
}

/* source_archive_next by source_tar; UNSUPPORTED: libarchive must continue. */
static enum status next_of_tar(struct source_archive *a, struct error *err) {
    struct error why = {0};
    a->at_member = false;
    FAIL_IF(must_stop(a), err, STATUS_INTERRUPTED, "stopped on request");
    enum status s = source_tar_next(a->tar, &a->member, &why);
    a->member.offset_bytes = a->tar->header_offset;
    a->position_bytes = source_tar_position(a->tar);
    a->at_member = s == STATUS_OK;
    a->members += s == STATUS_OK;
    if (s == STATUS_END) {
        note_end(a, a->tar->has_ended, false);
    }
    return s < STATUS_OK && s != STATUS_UNSUPPORTED ? error_set(err, s, "%s", why.text) : s;
}

enum status source_archive_next(struct source_archive *a, struct error *err) {
    struct archive_entry *e = NULL;
    if (a->tar) {
        enum status s = next_of_tar(a, err);
        if (s != STATUS_UNSUPPORTED) {
            return s;
        }
        TRY(change_reader(a, err));
    }
    if (a->at_member) {
        TRY(leave_member(a, err));
    }
    a->at_member = false;
    uint64_t begin = (uint64_t)archive_filter_bytes(a->archive, 0);
    int code = next_header(a, &e);
    a->member.offset_bytes = a->before_bytes + (uint64_t)archive_read_header_position(a->archive);
    if (code == ARCHIVE_EOF) {
        const bool ended = (uint64_t)archive_filter_bytes(a->archive, 0) > begin;
        bool more = false;
        if (a->opt.bytes) {
            TRY(read_rest(a, &more, err));
        }
        if (is_tar(a)) {
            note_end(a, a->has_ended || ended, more);
        }
        TRY(end_gzip(a, err));
        return STATUS_END;
    }
    if (code != ARCHIVE_OK && code != ARCHIVE_WARN) {
        if (a->stopped || !is_tar(a) || !failed_after_end(a, begin)) {
            return broken(a, err);
        }
        a->member.offset_bytes = a->has_ended ? a->end_bytes : a->before_bytes + begin;
        snprintf(a->note, sizeof(a->note),
                 "%.120s: the data after the end of the tar, which has %" PRIu64
                 " members, is not a tar and was not read",
                 a->path, a->members);
        return STATUS_END;
    }
    a->has_ended = false;
    la_int64_t size_bytes = archive_entry_size(e);
    const char *link = size_bytes > 0 ? NULL : archive_entry_hardlink(e);
    link = link ? link : archive_entry_symlink(e);
    a->member = (struct source_member){
        .name = name_of(a, e),
        .is_file = archive_entry_filetype(e) == AE_IFREG && !link,
        .is_folder = archive_entry_filetype(e) == AE_IFDIR,
        .link = link,
        .size_known = archive_entry_size_is_set(e) && size_bytes >= 0,
        .size_bytes = size_bytes > 0 ? (uint64_t)size_bytes : 0,
        .offset_bytes = a->member.offset_bytes,
        .body_bytes = a->before_bytes + (uint64_t)archive_filter_bytes(a->archive, 0),
    };
    a->body_bytes = 0;
    a->at_member = true;
    a->members++;
    return STATUS_OK;
}

struct source_archive_view source_archive_view(const struct source_archive *a) {
    return (struct source_archive_view){.member = a->at_member ? &a->member : NULL,
                                        .offset_bytes = a->member.offset_bytes,
                                        .position_bytes = a->position_bytes,
                                        .size_bytes = a->size_bytes,
                                        .members = a->members,
                                        .is_plain_tar = a->plain_tar,
                                        .etag = http_stream_etag(a->stream),
                                        .note = a->note};
}

/* Libarchive ends a sparse member of a tar where its last hole begins. The rest is zeros. Returns
 * how many of them fit after the `read_bytes` that were just read. */
static size_t
read_hole(const struct source_archive *a, uint8_t *out, size_t room_bytes, uint64_t read_bytes) {
    const struct source_member *m = &a->member;
    uint64_t at = a->body_bytes + read_bytes;
    if (!m->size_known || at >= m->size_bytes || !is_tar(a)) {
        return 0;
    }
    size_t n = room_bytes < m->size_bytes - at ? room_bytes : (size_t)(m->size_bytes - at);
    memset(out, 0, n);
    return n;
}

/* Reads some of the member's body; less than size_bytes only at its end. */
static enum status
read_body(struct source_archive *a, void *out, size_t size_bytes, size_t *got, struct error *err) {
    if (a->tar) {
        return source_tar_read(a->tar, out, size_bytes, got, err);
    }
    la_ssize_t n = archive_read_data(a->archive, out, size_bytes);
    if (n < 0) {
        return broken(a, err);
    }
    *got = (size_t)n + read_hole(a, (uint8_t *)out + n, size_bytes - (size_t)n, (uint64_t)n);
    a->body_bytes += *got;
    return STATUS_OK;
}

/* A known size is only a hint for the buffer. The body ends where a read returns less than
 * requested, so one byte more than the size is requested. */
enum status source_archive_read(struct source_archive *a,
                                struct byte_buffer *out,
                                size_t max_bytes,
                                bool *fits,
                                struct error *err) {
    const struct source_member *m = &a->member;
    out->size_bytes = 0;
    *fits = m->size_bytes <= max_bytes;
    size_t step = m->size_known && *fits ? (size_t)m->size_bytes + 1 : READ_BYTES;
    while (*fits) {
        uint8_t beyond;
        size_t room = max_bytes - out->size_bytes;
        step = step < room ? step : room;
        TRY(byte_buffer_reserve(out, step, err));
        void *to = room > 0 ? out->data + out->size_bytes : &beyond;
        size_t asked = room > 0 ? step : sizeof(beyond);
        size_t got = 0;
        TRY(read_body(a, to, asked, &got, err));
        out->size_bytes += room > 0 ? got : 0;
        if (got < asked) { /* only at the body's end */
            return STATUS_OK;
        }
        *fits = room > 0;
        step = READ_BYTES;
    }
    out->size_bytes = 0;
    return STATUS_OK;
}

enum status source_archive_peek(struct source_archive *a,
                                void *head,
                                size_t *got,
                                size_t size_bytes,
                                struct error *err) {
    return read_body(a, head, size_bytes, got, err);
}
