/*
 * run_config: RUN/config.json: the options of a run, stored so that --resume needs no others.
 *
 *     {"program": NAME, "run": ID, "folder": INODE, "options": {OPTION: VALUE, ...}}
 *
 * ID: 16 random hexadecimal digits of a new run; every line of metrics.jsonl has it. INODE: of the
 * folder it was written to, which identifies a copy.
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

/* A command line for cli_parse_words, from several sources; later words override earlier ones. */
struct run_config_words {
    char *words[RUN_CONFIG_MAX_WORDS];
    int count;
};

/* Each appends to a list, initially all-zero. Call fini even after a failure. run_config_add_words:
 * copies the words. Returns OK, NOMEM or USAGE (too many words). */
enum status run_config_add_words(struct run_config_words *w,
                                 int count,
                                 const char *const *words,
                                 struct error *err);

/* The options of a configuration file as words. Returns OK, NOTFOUND, IO, CORRUPT, LIMIT, NOMEM or
 * USAGE. */
enum status run_config_add_file(struct run_config_words *w, const char *path, struct error *err);

/* Removes an option's words, so that a later source replaces an earlier one, also for options that
 * may be repeated. */
void run_config_drop(struct run_config_words *w, const char *option);

/* The options of RUN/config.json, as run_config_add_file; NOTFOUND: RUN is not a run. */
enum status run_config_add_run(struct run_config_words *w, const char *run, struct error *err);

/* Restricts the options of an untrusted run, one that was copied or that others can write: it must
 * not cause requests, or writes outside its folder. Removes such options (cache, endpoint, ...)
 * from the words and logs them to `log`. Does nothing for the caller's own run: in the folder it
 * was made in, writable only by its owner. Returns OK, or USAGE if an untrusted run has a remote
 * dataset. */
enum status run_config_restrain(struct run_config_words *w,
                                const char *run,
                                const struct log_sink *log,
                                struct error *err);

/* The options that describe the model of a checkpoint, or of a run's newest one. Returns OK, NOMEM
 * or what checkpoint_open returns. */
enum status
run_config_add_model(struct run_config_words *w, const char *checkpoint, struct error *err);
/* The options that --model implies, which later words override: sizes, no dropout, captions as
 * stored, and if `model` is a file with a preprocess_cfg how images are resized and normalised;
 * with image_alone, for a task without captions, only the image size; and --model itself, as JSON,
 * so that the record does not depend on a file. The second adds only --model. Return OK, NOMEM or
 * what open_clip_config and foreign_read_images return. */
enum status run_config_add_clip(struct run_config_words *w,
                                const char *model,
                                bool image_alone,
                                struct error *err);
enum status
run_config_add_clip_word(struct run_config_words *w, const char *model, struct error *err);
void run_config_words_fini(struct run_config_words *w); /* accepts an all-zero one */

/* The id in RUN/config.json, or a new one if there is none. */
void run_config_id(char out[RUN_CONFIG_ID_BYTES], const char *run);

/* Writes the current options, atomically; if they contain secrets, readable only by the owner.
 * Returns OK, IO, NOMEM or LIMIT. */
enum status run_config_write(const struct cli_program *program,
                             const void *options,
                             const char *id,
                             const char *run,
                             struct error *err);

#endif
