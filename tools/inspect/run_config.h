/*
 * run_config: RUN/config.json: the options of a run, kept so that --resume needs nothing else.
 *
 *     {"program": NAME, "run": ID, "folder": INODE, "options": {OPTION: VALUE, ...}}
 *
 * ID: 16 hexadecimal digits drawn when the run is made; every line of metrics.jsonl carries it.
 * INODE: of the folder it was written in, by which a copy is known.
 *
 * Threading : single-owner.
 * Ownership : the words belong to struct run_config_words until its fini.
 * Untrusted : the file.
 */
#ifndef TOOLS_INSPECT_RUN_CONFIG_H
#define TOOLS_INSPECT_RUN_CONFIG_H

#include "formats/base/log.h"
#include "formats/base/status.h"
#include "tools/cli/cli.h"

enum { RUN_CONFIG_MAX_WORDS = 512, RUN_CONFIG_ID_BYTES = 17 };

/* A command line for cli_parse_words, made of several sources; of an option that comes twice the
 * later word counts. */
struct run_config_words {
    char *words[RUN_CONFIG_MAX_WORDS];
    int count;
};

/* Each appends to an all-zero or begun list. On failure the list is still good for fini.
 * run_config_add_words: copies. Returns OK, NOMEM or USAGE (too many words). */
enum status run_config_add_words(struct run_config_words *w,
                                 int count,
                                 const char *const *words,
                                 struct error *err);

/* The options of a configuration file as words. Returns OK, NOTFOUND, IO, CORRUPT, LIMIT, NOMEM or
 * USAGE. */
enum status run_config_add_file(struct run_config_words *w, const char *path, struct error *err);

/* Removes the words of an option: a later source replaces what an earlier one set, also for options
 * that may be repeated. */
void run_config_drop(struct run_config_words *w, const char *option);

/* Those of RUN/config.json; NOTFOUND: RUN is not a run. */
enum status run_config_add_run(struct run_config_words *w, const char *run, struct error *err);

/* A run that was copied, or that others may write, may be a stranger's: it cannot say what is asked
 * or written outside of its folder. Takes the options that do (cache, endpoint, ...) out of the
 * words and names them to `log`. Returns OK, also where the run is the caller's own (its folder is
 * the one it was made in, and nobody else may write there); USAGE where it names a dataset at a
 * server. */
enum status run_config_restrain(struct run_config_words *w,
                                const char *run,
                                const struct log_sink *log,
                                struct error *err);

/* The options that describe the model of a checkpoint, or of a run's newest one. Returns OK, NOMEM
 * or what checkpoint_open returns. */
enum status
run_config_add_model(struct run_config_words *w, const char *checkpoint, struct error *err);
/* What `model` of --model sets unless later words do: its sizes, no dropout, captions as stored,
 * how images are resized and normalised if it is a file with a preprocess_cfg; for a task without
 * captions the size of its images alone; and --model itself, as JSON, so that what is recorded does
 * not depend on a file. The second: --model alone. Return OK, NOMEM or what open_clip_config and
 * foreign_read_images return. */
enum status run_config_add_clip(struct run_config_words *w,
                                const char *model,
                                bool image_alone,
                                struct error *err);
enum status
run_config_add_clip_word(struct run_config_words *w, const char *model, struct error *err);
void run_config_words_fini(struct run_config_words *w); /* accepts an all-zero one */

/* The id in RUN/config.json, or a new one if there is none. */
void run_config_id(char out[RUN_CONFIG_ID_BYTES], const char *run);

/* Writes the options in force, atomically. Returns OK, IO, NOMEM or LIMIT. */
enum status run_config_write(const struct cli_program *program,
                             const void *options,
                             const char *id,
                             const char *run,
                             struct error *err);

#endif
