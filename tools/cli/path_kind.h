/*
 * path_kind: whether a path is what a program requires, and if not, what it is and which command
 * uses it: newcomers pass a folder of tars as a dataset, a dataset as a run, or a bucket.
 *
 * Threading : pure functions, except that they read the file system.
 * Untrusted : the path, and what it leads to.
 */
#ifndef TOOLS_CLI_PATH_KIND_H
#define TOOLS_CLI_PATH_KIND_H

#include <stdbool.h>

#include "formats/base/status.h"

/* Accepts a folder with dataset.json, or a remote location. Calls remote_choice_use with defaults,
 * which has no effect if the program called it before. Returns OK, NOTFOUND with a message that
 * describes what the path is, or a failure of remote_choice_use. */
enum status path_check_dataset(const char *path, struct error *err);

/* Accepts a run with a checkpoint, a safetensors file, or a model of open_clip or Hugging Face.
 * Returns OK or NOTFOUND. */
enum status path_check_checkpoint(const char *path, struct error *err);

/* Accepts a local file, or a folder that path_check_checkpoint accepts. Returns OK or NOTFOUND. */
enum status path_check_weights(const char *path, struct error *err);

/* Refuses what ccpack cannot pack: datasets, runs, checkpoints, folders of tars, remote files other
 * than tars. Returns OK, NOTFOUND or CORRUPT (a format that ccpack does not read). */
enum status path_check_source(const char *path, struct error *err);

/* Refuses files that ccdump's commands for samples cannot show: checkpoints, files of a dataset
 * that are not shards, empty ones. Returns OK or NOTFOUND. */
enum status path_check_inspectable(const char *path, struct error *err);

/* Whether it is the address of a remote tar, which ccpack can pack and ccdump can read. */
bool path_is_remote_tar(const char *path);

/* Refuses an address such as s3://bucket/file, for programs that read or write only local files.
 * Returns OK or NOTFOUND. */
enum status path_check_local(const char *path, struct error *err);

#endif
