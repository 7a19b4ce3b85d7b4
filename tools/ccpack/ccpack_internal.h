/*
 * ccpack_internal: shared by the commands of ccpack.
 */
#ifndef TOOLS_CCPACK_CCPACK_INTERNAL_H
#define TOOLS_CCPACK_CCPACK_INTERNAL_H

#include "formats/base/json_writer.h"
#include "formats/dataset/dataset.h"
#include "formats/tokenizer/tokenizer.h"
#include "pack/pack.h"
#include "tools/cli/cli.h"
#include "tools/cli/remote_choice.h"

int ccpack_pack_main(int argc, char **argv);
int ccpack_fetch_main(int argc, char **argv);
int ccpack_merge_main(int argc, char **argv);
int ccpack_plan_main(int argc, char **argv);
int ccpack_index_main(int argc, char **argv);
int ccpack_tokenizer_main(int argc, char **argv);
int ccpack_subset_main(int argc, char **argv);
int ccpack_remove_main(int argc, char **argv);
int ccpack_repair_main(int argc, char **argv);
int ccpack_compact_main(int argc, char **argv);
int ccpack_seal_main(int argc, char **argv);
int ccpack_attach_main(int argc, char **argv);
int ccpack_detach_main(int argc, char **argv);

/* First field of the options of commands that read rows. */
struct ccpack_options {
    struct pack_options pack; /* as filled by options, see ccpack_take */
    const char *resize, *max_bad;
    struct cli_list captions; /* --caption-column */
    int container;
    bool json, quiet;
    struct remote_choice remote; /* for pack and index */
};

extern const struct cli_rows ccpack_shape_rows[]; /* of commands that also pack images */

/* The library's options, with its defaults for options that the program does not have; the
 * arguments are the sources, which are checked. The caller sets the cookie to the struct
 * ccpack_run. Returns OK, USAGE or what path_check_source returns. */
enum status ccpack_take(struct pack_options *out,
                        const struct cli_program *p,
                        const struct ccpack_options *o,
                        const struct cli_arguments *a,
                        struct error *err);

/* The arguments, with patterns in locations expanded to files; on the Hub pinned to the revision's
 * current commit, or to the commit in `journal`, a file of a run to be resumed. Once per process;
 * do not free *out. Returns OK or what listing_expand and listing_pin return. */
enum status ccpack_expand(struct cli_arguments *out,
                          const struct cli_arguments *a,
                          const struct ccpack_options *o,
                          const char *journal,
                          struct error *err);

/* Before an append: options that are not on the command line get the values with which the dataset
 * was packed, which is reported on stderr; with same_list also the options for reading a list of
 * URLs. Returns OK, NOMEM or USAGE. */
enum status ccpack_take_settings(const struct cli_program *p,
                                 struct ccpack_options *o,
                                 const struct cli_arguments *a,
                                 bool same_list,
                                 struct error *err);

/* After a failure: prints what the directory contains, and how to resume. */
void ccpack_print_remains(const struct pack_summary *s, enum status status, const char *directory);

struct ccpack_cache_result {
    uint64_t captions;
    uint64_t tokens; /* without start, end and padding */
    double seconds;
};

/* Writes DIRECTORY/tokens.cct, the token ids of all captions of `d`, the dataset in DIRECTORY.
 * Returns OK, INTERRUPTED (Ctrl-C; nothing has changed), NOMEM, IO, CORRUPT or LIMIT. */
enum status ccpack_write_cache(struct ccpack_cache_result *out,
                               const char *directory,
                               const struct dataset *d,
                               const struct tokenizer *t,
                               bool clean,
                               bool quiet,
                               struct error *err);

/* Writes the fields of a summary as JSON. */
void ccpack_put_summary(struct json_writer *w, const struct pack_summary *s, double seconds);

/* A command that packs, indexes or merges: signals, progress line, duration. */
struct ccpack_run {
    struct cli_progress progress;
    int64_t started_ns;
};

void ccpack_begin(struct ccpack_run *r, const char *what, bool quiet);

/* If `status` is OK, prints the summary: to stderr unless quiet, and with `json` to stdout. Returns
 * `status`, or a failure to print. */
enum status ccpack_end(struct ccpack_run *r,
                       enum status status,
                       const struct pack_summary *s,
                       const char *directory,
                       bool quiet,
                       bool json,
                       struct error *err);

/* A file of ids or keys, one per line (id_list.c). White space at both ends of lines, empty lines
 * and lines beginning with # are ignored. */
struct id_list {
    struct byte_buffer text; /* lines, each NUL-terminated */
    const char **lines;      /* (count) */
    size_t *numbers;         /* (count) 1-based line numbers in the file */
    size_t count;
};

/* Returns OK, NOTFOUND, IO, LIMIT, NOMEM, or CORRUPT (no line). Call fini even after a failure. */
enum status id_list_read(struct id_list *l, const char *path, struct error *err);
void id_list_fini(struct id_list *l);

/* The lines of the file as numbers, u64 in *out, in their order. Returns as above; CORRUPT names a
 * line that is not a number. */
enum status id_list_numbers(struct byte_buffer *out, const char *path, struct error *err);

#endif
