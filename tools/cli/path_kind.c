/*
 * path_kind: a kind follows from the names in a folder, or from a file's name and first bytes.
 */
#include "tools/cli/path_kind.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/bytes.h"
#include "formats/base/file_io.h"
#include "formats/dataset/manifest.h"
#include "net/location.h"
#include "pack/pack.h"
#include "tools/cli/remote_choice.h"

enum kind {
    KIND_REMOTE,
    KIND_MISSING,
    KIND_DATASET,
    KIND_UNFINISHED,   /* ccpack was interrupted in it */
    KIND_DATASET_FILE, /* a file in a dataset */
    KIND_SHARDS,       /* a dataset without dataset.json */
    KIND_DATASETS,     /* a folder of datasets */
    KIND_RUN,
    KIND_EMPTY_RUN, /* without a checkpoint */
    KIND_CHECKPOINT,
    KIND_TARS, /* a folder of tars */
    KIND_TAR,
    KIND_COMPRESSED_TAR,
    KIND_FOLDER,
    KIND_EMPTY_FOLDER,
    KIND_FILE,
    KIND_EMPTY_FILE,
};

struct found {
    enum kind kind;
    char other[PATH_MAX_BYTES]; /* DATASET_FILE: the folder; DATASETS: one of them */
};

static bool ends_with(const char *text, const char *end) {
    const size_t a = strlen(text);
    const size_t b = strlen(end);
    return a > b && strcmp(text + a - b, end) == 0;
}

static bool names_tar(const char *name) {
    return ends_with(name, ".tar") || ends_with(name, ".tgz") || ends_with(name, ".tar.gz") ||
           ends_with(name, ".tar.zst");
}

static bool is_in(const char *folder, const char *name) {
    char path[PATH_MAX_BYTES];
    struct stat st;
    return path_join(path, sizeof path, folder, name, NULL) == STATUS_OK && stat(path, &st) == 0;
}

/* A folder without dataset.json: what the names in it suggest. */
static void look_into_folder(struct found *out, const char *path) {
    struct byte_buffer names;
    bool tars = false;
    bool folders = false;
    out->kind = KIND_FOLDER;
    byte_buffer_init(&names, 0);
    (void)file_posix()->list(file_posix()->context, path, &names, NULL);
    for (size_t at = 0; at < names.size_bytes; at += strlen((char *)names.data + at) + 1) {
        const char *name = (const char *)names.data + at;
        char inner[PATH_MAX_BYTES];
        struct stat st;
        if (strncmp(name, "shard-", 6) == 0 && ends_with(name, ".cci")) {
            out->kind = KIND_SHARDS;
            break;
        }
        tars = tars || names_tar(name);
        if (tars || path_join(inner, sizeof inner, path, name, NULL) != STATUS_OK ||
            stat(inner, &st) != 0 || !S_ISDIR(st.st_mode)) {
            continue; /* the first tar decides: folders may have 100,000 */
        }
        folders = true;
        if (is_in(inner, MANIFEST_NAME) &&
            (out->kind != KIND_DATASETS || strcmp(inner, out->other) < 0)) {
            out->kind = KIND_DATASETS;
            (void)snprintf(out->other, sizeof out->other, "%s", inner);
        }
    }
    if (names.size_bytes == 0) {
        out->kind = KIND_EMPTY_FOLDER;
    }
    if (out->kind == KIND_FOLDER && tars && !folders) {
        out->kind = KIND_TARS;
    }
    byte_buffer_fini(&names);
}

/* The length of a header as 8 bytes, then the header: JSON. */
static bool is_safetensors(const char *path) {
    struct file *f = NULL;
    uint8_t bytes[9] = {0};
    size_t got = 0;
    if (file_posix()->open(file_posix()->context, &f, path, FILE_READ, NULL) != STATUS_OK) {
        return false;
    }
    const bool whole = file_posix()->pread(f, bytes, &got, sizeof bytes, 0, NULL) == STATUS_OK &&
                       got == sizeof bytes;
    file_posix()->close(f);
    return whole && bytes[8] == '{' && bytes[5] == 0 && bytes[6] == 0 && bytes[7] == 0;
}

static void look_at_file(struct found *out, const char *path, const struct stat *st) {
    const bool regular = S_ISREG(st->st_mode);
    if (path_directory(out->other, sizeof out->other, path, NULL) == STATUS_OK &&
        is_in(out->other, MANIFEST_NAME)) {
        out->kind = KIND_DATASET_FILE;
    } else if (regular && st->st_size == 0) {
        out->kind = KIND_EMPTY_FILE;
    } else if (ends_with(path, ".tar")) {
        out->kind = KIND_TAR;
    } else if (names_tar(path)) {
        out->kind = KIND_COMPRESSED_TAR;
    } else {
        out->kind = regular && is_safetensors(path) ? KIND_CHECKPOINT : KIND_FILE;
    }
}

static bool is_remote(const char *path) {
    return strstr(path, "://") != NULL || strncmp(path, "pipe:", 5) == 0;
}

static void find_kind(struct found *out, const char *path) {
    struct stat st;
    out->other[0] = '\0';
    if (is_remote(path)) {
        out->kind = KIND_REMOTE;
    } else if (stat(path, &st) != 0) {
        out->kind = KIND_MISSING;
    } else if (!S_ISDIR(st.st_mode)) {
        look_at_file(out, path, &st);
    } else if (is_in(path, MANIFEST_NAME)) {
        out->kind = KIND_DATASET;
    } else if (is_in(path, PACK_JOURNAL_NAME)) {
        out->kind = KIND_UNFINISHED;
    } else if (is_in(path, "config.json") && is_in(path, "metrics.jsonl")) {
        out->kind = is_in(path, "last") ? KIND_RUN : KIND_EMPTY_RUN;
    } else {
        look_into_folder(out, path);
    }
}

/* How a tar at an address reaches ccpack's standard input; NULL: no program for it is known. */
static const char *downloader(const char *path) {
    return strncmp(path, "s3://", 5) == 0      ? "aws s3 cp"
           : strncmp(path, "http://", 7) == 0  ? "curl -sL"
           : strncmp(path, "https://", 8) == 0 ? "curl -sL"
                                               : NULL;
}

static enum status explain_remote(const char *path, struct error *err) {
    const char *program = downloader(path);
    if (strncmp(path, "pipe:", 5) == 0) {
        return error_set(err, STATUS_NOTFOUND,
                         "'%.150s': commands are not run; write '%.150s | ccpack -o DIR -'", path,
                         path + 5);
    }
    if (strncmp(path, "gs://", 5) == 0) {
        return error_set(err, STATUS_NOTFOUND,
                         "%.150s: name a dataset in Google's storage by its S3 interface: "
                         "'s3://%.150s' with --endpoint https://storage.googleapis.com",
                         path, path + 5);
    }
    if (program == NULL) {
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s: only local files are read; download it or mount it first", path);
    }
    return error_set(err, STATUS_NOTFOUND,
                     "%.150s: only local files are read; download it or mount it first; a tar can "
                     "also be packed from a pipe: '%s %.150s%s | ccpack -o DIR -'",
                     path, program, path, path[0] == 's' ? " -" : "");
}

static enum status check_location(const char *path, struct error *err) {
    const char *program = downloader(path);
    if (!location_is_remote(path)) {
        return explain_remote(path, err);
    }
    if (names_tar(path) && program != NULL) {
        return error_set(
            err, STATUS_NOTFOUND,
            "%.150s names a tar, and a dataset at a server is a folder: '%s %.150s%s | "
            "ccdump info -' reads a tar",
            path, program, path, path[0] == 's' ? " -" : "");
    }
    return remote_choice_use(&(struct remote_choice)CLI_REMOTE_DEFAULTS, err);
}

/* Why a path may be missing that the shell usually expands; "" where it has no such character. */
static const char *shell_hint(const char *path) {
    return path[0] == '~' ? "; the shell expands ~ only at the beginning of a word: --data ~/DIR"
           : strpbrk(path, "*?[{") != NULL
               ? "; the shell expands *, ? and {a..b} only without quotes, to files that exist"
               : "";
}

enum status path_check_local(const char *path, struct error *err) {
    return is_remote(path) ? explain_remote(path, err) : STATUS_OK;
}

enum status path_check_dataset(const char *path, struct error *err) {
    const char *hint = shell_hint(path);
    struct found found;
    find_kind(&found, path);
    switch (found.kind) {
    case KIND_DATASET:
        return STATUS_OK;
    case KIND_REMOTE:
        return check_location(path, err);
    case KIND_MISSING:
        return error_set(err, STATUS_NOTFOUND, "%.200s: there is no such dataset%s%s%s%s", path,
                         hint, hint[0] == '\0' ? "; 'ccpack -o " : "", hint[0] == '\0' ? path : "",
                         hint[0] == '\0' ? " SOURCE...' makes one" : "");
    case KIND_UNFINISHED:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s is not a complete dataset: ccpack was interrupted; repeat its "
                         "command with --resume",
                         path);
    case KIND_SHARDS:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s has shards but no %s; 'ccpack repair %.100s' rebuilds it", path,
                         MANIFEST_NAME, path);
    case KIND_DATASET_FILE:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s is one file of a dataset; name the folder: %.100s", path,
                         found.other);
    case KIND_DATASETS:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s is not a dataset (it has no %s), but %.100s is", path,
                         MANIFEST_NAME, found.other);
    case KIND_RUN:
    case KIND_EMPTY_RUN:
        return error_set(err, STATUS_NOTFOUND,
                         "%.150s is a training run, not a dataset; 'ccdump state %.100s' shows "
                         "what it stores, 'ccstream-eval retrieval %.100s --data DIR' evaluates it",
                         path, path, path);
    case KIND_CHECKPOINT:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s is a checkpoint, not a dataset; 'ccdump state %.100s' shows what "
                         "it stores",
                         path, path);
    case KIND_TARS:
        return error_set(err, STATUS_NOTFOUND,
                         "%.150s is a folder of tars, not a dataset; 'ccpack -o DIR %.100s/*.tar' "
                         "packs them, 'ccpack index %.100s/*.tar' uses them in place",
                         path, path, path);
    case KIND_TAR:
        return error_set(err, STATUS_NOTFOUND,
                         "%.150s is a tar, not a dataset; 'ccpack -o DIR %.100s' packs it, "
                         "'ccpack index %.100s' uses it in place",
                         path, path, path);
    case KIND_EMPTY_FILE:
    case KIND_EMPTY_FOLDER:
        return error_set(err, STATUS_NOTFOUND, "%.200s is not a dataset: it is empty", path);
    case KIND_COMPRESSED_TAR:
    case KIND_FILE:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s is a file, not a dataset; 'ccpack -o DIR %.100s' packs tars, "
                         "tables and JSON files",
                         path, path);
    case KIND_FOLDER:
        break;
    }
    return error_set(err, STATUS_NOTFOUND,
                     "%.150s is not a dataset (it has no %s); 'ccpack -o DIR %.100s' makes one of "
                     "a folder of pictures",
                     path, MANIFEST_NAME, path);
}

enum status path_check_checkpoint(const char *path, struct error *err) {
    struct found found;
    find_kind(&found, path);
    switch (found.kind) {
    case KIND_RUN:
    case KIND_CHECKPOINT:
        return STATUS_OK;
    case KIND_REMOTE:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s: only local files are read; download it or mount it first", path);
    case KIND_MISSING:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s: there is no such run or checkpoint%s; ccstream-train --out makes "
                         "runs",
                         path, shell_hint(path));
    case KIND_EMPTY_RUN:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s has no checkpoint yet; 'ccstream-train --resume %.100s' trains on",
                         path, path);
    case KIND_DATASET:
    case KIND_UNFINISHED:
    case KIND_SHARDS:
    case KIND_DATASET_FILE:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s is %s, not a run or checkpoint; name the folder that "
                         "ccstream-train --out made",
                         path,
                         found.kind == KIND_DATASET_FILE ? "a file of a dataset" : "a dataset");
    default:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s is %s, not a run or checkpoint; name the folder that "
                         "ccstream-train --out made, or a .safetensors file in it",
                         path,
                         found.kind == KIND_TARS || found.kind == KIND_FOLDER ||
                                 found.kind == KIND_DATASETS || found.kind == KIND_EMPTY_FOLDER
                             ? "another kind of folder"
                             : "another kind of file");
    }
}

enum status path_check_weights(const char *path, struct error *err) {
    struct stat st;
    TRY(path_check_local(path, err));
    if (stat(path, &st) != 0) {
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s: there is no such file; weights are not downloaded by a model's "
                         "name: name a safetensors file or a run",
                         path);
    }
    return S_ISDIR(st.st_mode) ? path_check_checkpoint(path, err) : STATUS_OK;
}

/* What to do with a file whose kind ccpack does not read; NULL for others. */
static const char *conversion(const char *path) {
    static const struct {
        const char *end, *advice;
    } rows[] = {
        {".xlsx", "save the sheet as CSV"},
        {".xls", "save the sheet as CSV"},
        {".ods", "save the sheet as CSV"},
        {".npy", NULL},
        {".npz", NULL},
        {".h5", NULL},
        {".hdf5", NULL},
        {".pkl", NULL},
        {".pickle", NULL},
        {".arrow", NULL},
        {".tfrecord", NULL},
        {".mdb", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (ends_with(path, rows[i].end)) {
            return rows[i].advice != NULL
                       ? rows[i].advice
                       : "write its pictures as files, in class folders or with a CSV of captions";
        }
    }
    return NULL;
}

enum status path_check_source(const char *path, struct error *err) {
    struct found found;
    find_kind(&found, path);
    switch (found.kind) {
    case KIND_REMOTE:
        return explain_remote(path, err);
    case KIND_MISSING:
        return strcmp(path, "-") == 0
                   ? STATUS_OK
                   : error_set(err, STATUS_NOTFOUND, "%.250s: there is no such file or folder%s",
                               path, shell_hint(path));
    case KIND_DATASET:
        return error_set(err, STATUS_NOTFOUND,
                         "%.150s is a dataset already; 'ccdump cat %.100s | ccpack -o DIR -' packs "
                         "it again, 'ccpack merge' joins parts",
                         path, path);
    case KIND_RUN:
    case KIND_EMPTY_RUN:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s is a training run; ccpack packs pictures: tars, tables, JSON "
                         "files or class folders",
                         path);
    case KIND_CHECKPOINT:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s is a file of tensors; ccpack packs pictures: tars, tables, JSON "
                         "files or class folders",
                         path);
    case KIND_TARS:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s is a folder of tars; name the tars: %.100s/*.tar", path, path);
    case KIND_FILE:
        if (conversion(path) != NULL) {
            return error_set(err, STATUS_CORRUPT, "%.200s: ccpack does not read this format; %s",
                             path, conversion(path));
        }
        return STATUS_OK;
    default:
        return STATUS_OK;
    }
}

enum status path_check_inspectable(const char *path, struct error *err) {
    struct found found;
    find_kind(&found, path);
    switch (found.kind) {
    case KIND_CHECKPOINT:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s is a checkpoint; 'ccdump state %.100s' shows what it stores", path,
                         path);
    case KIND_DATASET_FILE:
        return error_set(err, STATUS_NOTFOUND,
                         "%.200s is a file of a dataset, but not a shard; name a shard or the "
                         "folder: %.100s",
                         path, found.other);
    case KIND_EMPTY_FILE:
        return error_set(err, STATUS_NOTFOUND, "%.200s is empty", path);
    default:
        return STATUS_OK;
    }
}

enum status path_check_out_folder(const char *path, struct error *err) {
    struct stat st;
    if (is_remote(path)) {
        return error_set(err, STATUS_USAGE,
                         "%.200s: only local folders are written; upload the folder afterwards: "
                         "'aws s3 sync DIR s3://...' or 'rclone copy DIR REMOTE:...'",
                         path);
    }
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
        return error_set(err, STATUS_EXISTS, "%.200s is a file; --out requires a folder", path);
    }
    return STATUS_OK;
}
