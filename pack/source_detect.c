/*
 * Telling kinds of sources apart by the first bytes of a file.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "pack/source_internal.h"

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
    static const uint8_t zip[] = {'P', 'K', 3, 4};
    if (n == 0) {
        return error_set(err, STATUS_CORRUPT, "%s: the file is empty", path);
    }
    if ((n >= sizeof(gzip) && memcmp(p, gzip, sizeof(gzip)) == 0) ||
        (n >= sizeof(zstd) && memcmp(p, zstd, sizeof(zstd)) == 0) ||
        (n >= sizeof(zip) && memcmp(p, zip, sizeof(zip)) == 0) || is_tar_header(p, n)) {
        *out = SOURCE_WDS;
        return STATUS_OK;
    }
    size_t at = n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    while (at < n && source_is_space((char)p[at])) {
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
