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
#include "train/model/foreign.h"

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
    KIND_MODEL, /* of open_clip or Hugging Face */
    KIND_TARS,  /* a folder of tars */
    KIND_TAR,
    KIND_COMPRESSED_TAR,
    KIND_FOLDER,
    KIND_EMPTY_FOLDER,
    KIND_FILE,
    KIND_EMPTY_FILE,
}; /* fewer than 32 */

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

bool path_is_remote_tar(const char *path) {
    return location_is_remote(path) && names_tar(path);
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
    } else if (foreign_is(path)) {
        out->kind = KIND_MODEL;
    } else {
        look_into_folder(out, path);
    }
}

static enum status explain_remote(const char *path, struct error *err) {
    FAIL_IF(strncmp(path, "pipe:", 5) == 0, err, STATUS_NOTFOUND,
            "'%.150s': commands are not run; use '%.150s | ccpack -o DIR -'", path, path + 5);
    FAIL_IF(strncmp(path, "gs://", 5) == 0, err, STATUS_NOTFOUND,
            "%.150s: name a dataset in Google's storage by its S3 interface: "
            "'s3://%.150s' with --endpoint https://storage.googleapis.com",
            path, path + 5);
    return error_set(err, STATUS_NOTFOUND,
                     "%.200s: only local files are read; download it or mount it first", path);
}

static enum status check_location(const char *path, struct error *err) {
    if (!location_is_remote(path)) {
        return explain_remote(path, err);
    }
    FAIL_IF(names_tar(path), err, STATUS_NOTFOUND,
            "%.150s names a tar, but a remote dataset is a folder: 'ccpack -o DIR' packs it, "
            "'ccpack index -o DIR' makes a dataset of it where it is",
            path);
    return remote_choice_use(&(struct remote_choice)CLI_REMOTE_DEFAULTS, err);
}

/* Why a path may be missing that the shell usually expands; "" if it has no such character. */
static const char *shell_hint(const char *path) {
    return path[0] == '~' ? "; the shell expands ~ only at the beginning of a word: --data ~/DIR"
           : strpbrk(path, "*?[{") != NULL
               ? "; the shell expands *, ? and {a..b} only without quotes, to files that exist"
               : "";
}

/* The message for some kinds, with the path for $ and found.other for @. */
struct rule {
    unsigned kinds;   /* bits 1 << enum kind; 0 ends a list */
    const char *text; /* NULL: accepted */
};

#define IS(kind) (1u << (kind))
#define ANY      (~0u)
#define IS_RUN   (IS(KIND_RUN) | IS(KIND_EMPTY_RUN))

/* The first rule that has the kind decides; without one it is accepted. */
static enum status
apply(const struct rule *rules, const struct found *found, const char *path, struct error *err) {
    char text[sizeof err->text];
    size_t used = 0;
    while (rules->kinds != 0 && (rules->kinds & IS(found->kind)) == 0) {
        rules++;
    }
    if (rules->kinds == 0 || rules->text == NULL) {
        return STATUS_OK;
    }
    text[0] = '\0';
    for (const char *at = rules->text; *at != '\0' && used < sizeof text; at++) {
        const size_t room = sizeof text - used;
        used += (size_t)(*at == '$'   ? snprintf(text + used, room, "%.150s", path)
                         : *at == '@' ? snprintf(text + used, room, "%.150s", found->other)
                                      : snprintf(text + used, room, "%c", *at));
    }
    return error_set(err, STATUS_NOTFOUND, "%s", text);
}

enum status path_check_local(const char *path, struct error *err) {
    return is_remote(path) ? explain_remote(path, err) : STATUS_OK;
}

enum status path_check_dataset(const char *path, struct error *err) {
    static const struct rule rules[] = {
        {IS(KIND_DATASET), NULL},
        {IS(KIND_UNFINISHED),
         "$ is not a complete dataset: ccpack was interrupted; repeat its command with --resume"},
        {IS(KIND_SHARDS), "$ has shards but no " MANIFEST_NAME "; 'ccpack repair $' rebuilds it"},
        {IS(KIND_DATASET_FILE), "$ is one file of a dataset; name the folder: @"},
        {IS(KIND_DATASETS), "$ is not a dataset (it has no " MANIFEST_NAME "), but @ is"},
        {IS_RUN, "$ is a training run, not a dataset; 'ccdump state $' shows what it stores, "
                 "'ccstream-eval retrieval $ --data DIR' evaluates it"},
        {IS(KIND_CHECKPOINT),
         "$ is a checkpoint, not a dataset; 'ccdump state $' shows what it stores"},
        {IS(KIND_MODEL), "$ is a model of open_clip or Hugging Face, not a dataset"},
        {IS(KIND_TARS), "$ is a folder of tars, not a dataset; 'ccpack -o DIR $/*.tar' packs them, "
                        "'ccpack index $/*.tar' uses them in place"},
        {IS(KIND_TAR), "$ is a tar, not a dataset; 'ccpack -o DIR $' packs it, 'ccpack index $' "
                       "uses it in place"},
        {IS(KIND_EMPTY_FILE) | IS(KIND_EMPTY_FOLDER), "$ is not a dataset: it is empty"},
        {IS(KIND_COMPRESSED_TAR) | IS(KIND_FILE),
         "$ is a file, not a dataset; 'ccpack -o DIR $' packs tars, tables and JSON files"},
        {ANY, "$ is not a dataset (it has no " MANIFEST_NAME "); 'ccpack -o DIR $' makes one of a "
              "folder of images"},
    };
    const char *hint = shell_hint(path);
    struct found found;
    find_kind(&found, path);
    if (found.kind == KIND_REMOTE) {
        return check_location(path, err);
    }
    FAIL_IF(found.kind == KIND_MISSING, err, STATUS_NOTFOUND, "%.200s: no such dataset%s%s%s%s",
            path, hint, hint[0] == '\0' ? "; 'ccpack -o " : "", hint[0] == '\0' ? path : "",
            hint[0] == '\0' ? " SOURCE...' makes one" : "");
    TRY(apply(rules, &found, path, err));
    /* Its tars may be remote. */
    return remote_choice_use(&(struct remote_choice)CLI_REMOTE_DEFAULTS, err);
}

enum status path_check_checkpoint(const char *path, struct error *err) {
    static const struct rule rules[] = {
        {IS(KIND_RUN) | IS(KIND_CHECKPOINT) | IS(KIND_MODEL), NULL},
        {IS(KIND_REMOTE), "$: only local files are read; download it or mount it first"},
        {IS(KIND_EMPTY_RUN), "$ has no checkpoint yet; continue with 'ccstream-train --resume $'"},
        {IS(KIND_DATASET_FILE), "$ is a file of a dataset, not a run or checkpoint; pass the run "
                                "directory (ccstream-train --out)"},
        {IS(KIND_DATASET) | IS(KIND_UNFINISHED) | IS(KIND_SHARDS),
         "$ is a dataset, not a run or checkpoint; pass the run directory (ccstream-train --out)"},
        {IS(KIND_TARS) | IS(KIND_FOLDER) | IS(KIND_DATASETS) | IS(KIND_EMPTY_FOLDER),
         "$ is another kind of folder, not a run or checkpoint; pass the run directory "
         "(ccstream-train --out), or a .safetensors file in it"},
        {ANY, "$ is another kind of file, not a run or checkpoint; pass the run directory "
              "(ccstream-train --out), or a .safetensors file in it"},
    };
    struct found found;
    find_kind(&found, path);
    return found.kind == KIND_MISSING
               ? error_set(err, STATUS_NOTFOUND,
                           "%.200s: no such run or checkpoint%s; ccstream-train --out "
                           "makes runs",
                           path, shell_hint(path))
               : apply(rules, &found, path, err);
}

enum status path_check_weights(const char *path, struct error *err) {
    struct stat st;
    TRY(path_check_local(path, err));
    FAIL_IF(stat(path, &st) != 0, err, STATUS_NOTFOUND,
            "%.200s: no such file; weights are not downloaded by name: pass a safetensors file or "
            "a run",
            path);
    return S_ISDIR(st.st_mode) ? path_check_checkpoint(path, err) : STATUS_OK;
}

/* What to do with a file whose kind ccpack does not read; NULL for others. */
static const char *conversion(const char *path) {
    static const char *const sheets[] = {".xlsx", ".xls", ".ods"};
    static const char *const arrays[] = {".npy", ".npz",    ".h5",    ".hdf5",    ".pkl",
                                         ".mdb", ".pickle", ".arrow", ".tfrecord"};
    for (size_t i = 0; i < CLI_COUNT(sheets); i++) {
        if (ends_with(path, sheets[i])) {
            return "save the sheet as CSV";
        }
    }
    for (size_t i = 0; i < CLI_COUNT(arrays); i++) {
        if (ends_with(path, arrays[i])) {
            return "write its images as files, in class folders or with a CSV of captions";
        }
    }
    return NULL;
}

enum status path_check_source(const char *path, struct error *err) {
    static const struct rule rules[] = {
        {IS(KIND_DATASET), "$ is a dataset already; 'ccdump cat $ | ccpack -o DIR -' packs it "
                           "again, 'ccpack merge' joins parts"},
        {IS_RUN, "$ is a training run; ccpack packs images: tars, tables, JSON files or class "
                 "folders"},
        {IS(KIND_CHECKPOINT), "$ is a file of tensors; ccpack packs images: tars, tables, JSON "
                              "files or class folders"},
        {IS(KIND_TARS), "$ is a folder of tars; name the tars: $/*.tar"},
        {0, NULL},
    };
    struct found found;
    find_kind(&found, path);
    FAIL_IF(location_is_remote(path) && !path_is_remote_tar(path), err, STATUS_NOTFOUND,
            "%.200s: only tars can be packed remotely: pass them as in '.../*.tar', and download "
            "other files first",
            path);
    if (found.kind == KIND_REMOTE) {
        return path_is_remote_tar(path) ? STATUS_OK : explain_remote(path, err);
    }
    FAIL_IF(found.kind == KIND_MISSING && strcmp(path, "-") != 0, err, STATUS_NOTFOUND,
            "%.250s: no such file or folder%s", path, shell_hint(path));
    FAIL_IF(found.kind == KIND_FILE && conversion(path) != NULL, err, STATUS_CORRUPT,
            "%.200s: ccpack does not read this format; %s", path, conversion(path));
    return apply(rules, &found, path, err);
}

enum status path_check_inspectable(const char *path, struct error *err) {
    static const struct rule rules[] = {
        {IS(KIND_CHECKPOINT), "$ is a checkpoint; 'ccdump state $' shows what it stores"},
        {IS(KIND_DATASET_FILE),
         "$ is a file of a dataset, but not a shard; name a shard or the folder: @"},
        {IS(KIND_EMPTY_FILE), "$ is empty"},
        {0, NULL},
    };
    struct found found;
    find_kind(&found, path);
    return apply(rules, &found, path, err);
}
