#include "tools/cli/output.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/file_io.h"
#include "formats/dataset/manifest.h"
#include "pack/pack.h"
#include "tools/cli/cli.h"
#include "tools/cli/path_kind.h"

enum { HEAD_BYTES = 1024 };

/* The beginning of a file, ended with 0; empty if it cannot be read. */
static size_t read_head(char out[HEAD_BYTES + 1], const char *path) {
    struct file *f = NULL;
    size_t got = 0;
    if (file_posix()->open(file_posix()->context, &f, path, FILE_READ, NULL) == STATUS_OK) {
        (void)file_posix()->pread(f, out, &got, HEAD_BYTES, 0, NULL);
        file_posix()->close(f);
    }
    out[got] = '\0';
    return got;
}

static bool is_there(const char *folder, const char *name) {
    char path[PATH_MAX_BYTES];
    struct stat st;
    return path_join(path, sizeof path, folder, name, NULL) == STATUS_OK && stat(path, &st) == 0;
}

/* "dataset" or "run"; NULL: another folder. A dataset.json may be another program's. */
static const char *kept_by_us(const char *folder) {
    char path[PATH_MAX_BYTES];
    char head[HEAD_BYTES + 1] = "";
    if (path_join(path, sizeof path, folder, MANIFEST_NAME, NULL) == STATUS_OK) {
        (void)read_head(head, path);
    }
    return strstr(head, "\"ccstream-dataset\"") != NULL || is_there(folder, PACK_JOURNAL_NAME)
               ? "dataset"
           : is_there(folder, "config.json") && is_there(folder, "metrics.jsonl") ? "run"
                                                                                  : NULL;
}

/* The real path of the innermost folder above `path` that is there. */
static enum status find_above(char real[PATH_MAX], const char *path, struct error *err) {
    char at[PATH_MAX_BYTES];
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) && realpath(path, real) != NULL) {
        return path_directory(real, PATH_MAX, real, err);
    }
    TRY(path_join(at, sizeof at, "", path, err));
    do {
        TRY(path_directory(at, sizeof at, at, err)); /* ends with "." or "/" */
    } while (realpath(at, real) == NULL && errno == ENOENT && at[1] != '\0');
    return STATUS_OK;
}

/* Refuses a path in a dataset or a run, and one that is not in a writable folder. */
static enum status check_above(const char *path, struct error *err) {
    char real[PATH_MAX] = "";
    struct stat st;
    TRY(find_above(real, path, err));
    errno = ENOTDIR;
    FAIL_ERRNO_IF(stat(real, &st) != 0 || !S_ISDIR(st.st_mode) || access(real, W_OK | X_OK) != 0,
                  err, "%.200s: cannot write to %.200s", path, real);
    while (real[0] != '\0') {
        const char *kind = kept_by_us(real);
        FAIL_IF(kind != NULL, err, STATUS_EXISTS,
                "%.200s: is inside the %s %.200s, which must not contain other output; choose "
                "another place",
                path, kind, real);
        *strrchr(real, '/') = '\0';
    }
    return STATUS_OK;
}

static enum status check_local(const char *path, struct error *err) {
    return path_check_local(path, NULL) == STATUS_OK
               ? STATUS_OK
               : error_set(err, STATUS_USAGE,
                           "%.200s: output must be local; upload it afterwards: 'aws s3 sync DIR "
                           "s3://...' or 'rclone copy DIR REMOTE:...'",
                           path);
}

/* Whether the file names this command as its generator. */
static bool made_here(const char *path) {
    char head[HEAD_BYTES + 1];
    char name[80];
    const size_t got = read_head(head, path);
    (void)snprintf(name, sizeof name, "\"%s\"", cli_command_name());
    return memmem(head, got, "\"generator\"", 11) != NULL &&
           memmem(head, got, name, strlen(name)) != NULL;
}

enum status output_check_file(const char *path, bool force, struct error *err) {
    struct stat st;
    if (path == NULL || strcmp(path, "-") == 0) {
        return STATUS_OK;
    }
    TRY(check_local(path, err));
    TRY(check_above(path, err));
    if (stat(path, &st) != 0) {
        return STATUS_OK;
    }
    FAIL_IF(!S_ISREG(st.st_mode), err, STATUS_EXISTS, "%.200s is not a file", path);
    FAIL_IF(!force && !made_here(path), err, STATUS_EXISTS,
            "%.200s exists and was not written by '%s'; pass --force to replace it", path,
            cli_command_name());
    return STATUS_OK;
}

enum status output_check_folder(const char *path, enum output_place place, struct error *err) {
    struct stat st;
    TRY(check_local(path, err));
    FAIL_IF(stat(path, &st) == 0 && !S_ISDIR(st.st_mode), err, STATUS_EXISTS,
            "%.200s is a file; --out requires a folder", path);
    const char *kind = kept_by_us(path);
    FAIL_IF(kind != NULL && (place != OUTPUT_DATASET || strcmp(kind, "dataset") != 0), err,
            STATUS_EXISTS, "%.200s is a %s, which holds no other output; choose another --out",
            path, kind);
    return check_above(path, err);
}

enum status
output_check_own_folder(const char *path, const char *const *files, bool force, struct error *err) {
    char own[PATH_MAX_BYTES];
    struct byte_buffer names = {0};
    struct stat st;
    TRY(output_check_folder(path, OUTPUT_FOLDER, err));
    bool free_to = force || stat(path, &st) != 0;
    for (; *files != NULL && !free_to; files++) {
        TRY(path_join(own, sizeof own, path, *files, err));
        free_to = made_here(own);
    }
    if (free_to) {
        return STATUS_OK;
    }
    byte_buffer_init(&names, 0);
    const enum status s = file_posix()->list(file_posix()->context, path, &names, err);
    const bool empty = names.size_bytes == 0;
    byte_buffer_fini(&names);
    TRY(s);
    return empty
               ? STATUS_OK
               : error_set(err, STATUS_EXISTS,
                           "%.200s is not empty and was not written by '%s'; pass --force to write "
                           "into it",
                           path, cli_command_name());
}
