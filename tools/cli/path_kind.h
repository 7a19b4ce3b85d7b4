/*
 * path_kind: whether a path is what a program requires, and if not, what it is and which command
 * uses it. A newcomer names a folder of tars as a dataset, a dataset as a run, or a bucket.
 *
 * Threading : pure functions, except that they read the file system.
 * Untrusted : the path, and what it leads to.
 */
#ifndef TOOLS_CLI_PATH_KIND_H
#define TOOLS_CLI_PATH_KIND_H

#include <stdbool.h>

#include "formats/base/status.h"

/* A folder with dataset.json, or a location whose datasets can be opened: they become readable here
 * if remote_choice_use was not called. Returns OK, or NOTFOUND with a message that says what the
 * path is. */
enum status path_check_dataset(const char *path, struct error *err);

/* The same for a folder that ccstream-train made, or a checkpoint file in one. */
enum status path_check_checkpoint(const char *path, struct error *err);

/* A file, or a run. Returns OK or NOTFOUND. */
enum status path_check_weights(const char *path, struct error *err);

/* Refuses what ccpack cannot pack: datasets, runs, checkpoints, folders of tars, remote addresses.
 * Returns OK, NOTFOUND or CORRUPT (a format that ccpack does not read). */
enum status path_check_source(const char *path, struct error *err);

/* Refuses files that ccdump's commands for samples cannot show: checkpoints, files of a dataset
 * that are not shards, empty ones. Returns OK or NOTFOUND. */
enum status path_check_inspectable(const char *path, struct error *err);

/* Whether it is the address of a tar at a server, which ccpack packs and ccdump looks into. */
bool path_is_remote_tar(const char *path);

/* Refuses an address such as s3://bucket/file where only local files are read or written. Returns
 * OK or NOTFOUND. */
enum status path_check_local(const char *path, struct error *err);

#endif
