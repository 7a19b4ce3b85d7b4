/*
 * run_dir: names inside a run, and which checkpoints are kept.
 */
#include "train/run/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_CHECKPOINTS = 4096 };

static const char folder_name[] = "checkpoints";
static const char name_format[] = "step-%" PRIu64 ".safetensors";

enum status run_dir_resolve(char out[PATH_MAX_BYTES], const char *path, struct error *err) {
    REQUIRE(out != NULL && path != NULL);
    struct stat st;
    FAIL_ERRNO_IF(stat(path, &st) != 0, err, "cannot open checkpoint %s", path);
    if (!S_ISDIR(st.st_mode)) {
        return path_join(out, PATH_MAX_BYTES, "", path, err);
    }
    TRY(path_join(out, PATH_MAX_BYTES, path, "last", err));
    FAIL_IF(stat(out, &st) != 0, err, STATUS_NOTFOUND,
            "%s holds no checkpoint yet (no %s); train on with --resume, or name a checkpoint file",
            path, out);
    return STATUS_OK;
}

enum status run_dir_checkpoint_path(char out[PATH_MAX_BYTES],
                                    const char *run,
                                    uint64_t step,
                                    struct error *err) {
    char folder[PATH_MAX_BYTES];
    char name[64];
    (void)snprintf(name, sizeof name, name_format, step);
    TRY(path_join(folder, sizeof folder, run, folder_name, err));
    return path_join(out, PATH_MAX_BYTES, folder, name, err);
}

enum status
run_dir_make_checkpoints(const struct file_system *fs, const char *run, struct error *err) {
    REQUIRE(fs != NULL && run != NULL);
    char folder[PATH_MAX_BYTES];
    TRY(path_join(folder, sizeof folder, run, folder_name, err));
    return fs->make_directory(fs->context, folder, err);
}

enum status run_dir_has_checkpoint(const char *run, bool *out, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct stat st;
    TRY(path_join(path, sizeof path, run, "last", err));
    *out = stat(path, &st) == 0;
    FAIL_ERRNO_IF(!*out && errno != ENOENT && errno != ENOTDIR, err, "cannot read the status of %s",
                  path);
    return STATUS_OK;
}

static int newest_first(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return x > y ? -1 : x < y ? 1 : 0;
}

/* Steps of the checkpoints in `run`, newest first; steps has MAX_CHECKPOINTS entries. Deletes an
 * incomplete checkpoint of a killed process. */
static enum status
list_checkpoints(const char *run, uint64_t *steps, size_t *count, struct error *err) {
    *count = 0;
    char folder[PATH_MAX_BYTES];
    TRY(path_join(folder, sizeof folder, run, folder_name, err));
    DIR *dir = opendir(folder);
    FAIL_ERRNO_IF(dir == NULL, err, "cannot list %s", folder);
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL && *count < MAX_CHECKPOINTS) {
        uint64_t step;
        char name[64];
        if (sscanf(entry->d_name, "step-%" SCNu64, &step) == 1) {
            const int n = snprintf(name, sizeof name, name_format, step);
            if (strcmp(name, entry->d_name) == 0) {
                steps[(*count)++] = step;
            } else if (strncmp(name, entry->d_name, (size_t)n) == 0 &&
                       file_draft_name_bytes(entry->d_name) == (size_t)n) {
                (void)unlinkat(dirfd(dir), entry->d_name, 0); /* of a process that was killed */
            }
        }
    }
    (void)closedir(dir);
    qsort(steps, *count, sizeof *steps, newest_first);
    return STATUS_OK;
}

/* Points RUN/NAME at the checkpoint of `step`. */
static enum status link_to(const struct file_system *fs,
                           const char *run,
                           const char *link_name,
                           uint64_t step,
                           struct error *err) {
    char name[64];
    char target[PATH_MAX_BYTES];
    char path[PATH_MAX_BYTES];
    (void)snprintf(name, sizeof name, name_format, step);
    TRY(path_join(target, sizeof target, folder_name, name, err));
    TRY(path_join(path, sizeof path, run, link_name, err));
    TRY(fs->link(fs->context, target, path, err));
    return fs->sync_directory(fs->context, run, err);
}

enum status
run_dir_keep_best(const struct file_system *fs, const char *run, uint64_t step, struct error *err) {
    REQUIRE(fs != NULL && run != NULL);
    return link_to(fs, run, "best", step, err);
}

/* The step of RUN/best, or `other` if there is none. */
static uint64_t best_step(const char *run, uint64_t other) {
    char path[PATH_MAX_BYTES];
    char target[PATH_MAX_BYTES] = "";
    uint64_t step;
    const bool linked = path_join(path, sizeof path, run, "best", NULL) == STATUS_OK &&
                        readlink(path, target, sizeof target - 1) > 0;
    return linked && sscanf(target, "checkpoints/step-%" SCNu64, &step) == 1 ? step : other;
}

enum status run_dir_publish(const struct file_system *fs,
                            const char *run,
                            uint64_t step,
                            uint32_t keep_count,
                            struct error *err) {
    REQUIRE(fs != NULL && run != NULL && keep_count >= 1);
    char path[PATH_MAX_BYTES];
    const uint64_t best = best_step(run, step);
    TRY(link_to(fs, run, "last", step, err));
    uint64_t *all = malloc(MAX_CHECKPOINTS * sizeof *all);
    TRY_MEMORY(all != NULL, err, "no memory to list %s", run);
    size_t count;
    enum status s = list_checkpoints(run, all, &count, err);
    uint32_t kept = 0;
    for (size_t i = 0; s == STATUS_OK && i < count; i++) {
        const bool named = all[i] == step || all[i] == best;
        if (named || kept + 1 < keep_count) {
            kept += named ? 0 : 1;
            continue;
        }
        s = run_dir_checkpoint_path(path, run, all[i], err);
        THEN(s, fs->remove(fs->context, path, err));
    }
    free(all);
    return s;
}
