/*
 * ccpack_internal: what the commands of ccpack share.
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

/* Options of the commands that read rows. Their structs begin with it. */
struct ccpack_options {
    struct pack_options pack; /* what options fill in it, see ccpack_take */
    const char *resize, *max_bad;
    struct cli_list captions; /* --caption-column */
    int container;
    bool json, quiet;
    struct remote_choice remote; /* of pack and index */
};

extern const struct cli_rows ccpack_shape_rows[]; /* of those that also pack images */

/* The options for the library, with its defaults for those that the program does not have; the
 * arguments are the sources, which are checked. The cookie is still to be set to the struct
 * ccpack_run. Returns OK, USAGE or what path_check_source returns. */
enum status ccpack_take(struct pack_options *out,
                        const struct cli_program *p,
                        const struct ccpack_options *o,
                        const struct cli_arguments *a,
                        struct error *err);

/* The arguments, with the files that locations with patterns stand for; of the Hub at the commit
 * that the revision is now, or that `journal`, a file of a run to be resumed, names.
 * Once in a program; what *out points to is not to be freed. Returns OK or what listing_expand and
 * listing_pin return. */
enum status ccpack_expand(struct cli_arguments *out,
                          const struct cli_arguments *a,
                          const struct ccpack_options *o,
                          const char *journal,
                          struct error *err);

/* Before an append: options that the command line does not name get the values that the dataset was
 * packed with, and a line on stderr says so; with same_list also those that say how a list of URLs
 * is read. Returns OK, NOMEM or USAGE. */
enum status ccpack_take_settings(const struct cli_program *p,
                                 struct ccpack_options *o,
                                 const struct cli_arguments *a,
                                 bool same_list,
                                 struct error *err);

/* After a failure: what the directory holds now, and how to resume. */
void ccpack_print_remains(const struct pack_summary *s, enum status status, const char *directory);

struct ccpack_cache_result {
    uint64_t captions;
    uint64_t tokens; /* begin, end and padding not counted */
    double seconds;
};

/* Writes DIRECTORY/tokens.cct: the ids of all captions of `d`, the dataset in DIRECTORY. Returns
 * OK, INTERRUPTED (Ctrl-C; nothing has changed then), NOMEM, IO, CORRUPT or LIMIT. */
enum status ccpack_write_cache(struct ccpack_cache_result *out,
                               const char *directory,
                               const struct dataset *d,
                               const struct tokenizer *t,
                               bool clean,
                               bool quiet,
                               struct error *err);

/* The members of a summary as JSON. */
void ccpack_put_summary(struct json_writer *w, const struct pack_summary *s, double seconds);

/* A command that packs, indexes or merges: signals, the line of progress, the time it takes. */
struct ccpack_run {
    struct cli_progress progress;
    int64_t started_ns;
};

void ccpack_begin(struct ccpack_run *r, const char *what, bool quiet);

/* After a `status` of OK prints the summary: on stderr unless quiet, and with `json` on stdout.
 * Returns `status`, or a failure to print. */
enum status ccpack_end(struct ccpack_run *r,
                       enum status status,
                       const struct pack_summary *s,
                       const char *directory,
                       bool quiet,
                       bool json,
                       struct error *err);

/* A file of ids or keys, one on each line (id_list.c). White space at both ends of lines, empty
 * lines and those that begin with # do not count. */
struct id_list {
    struct byte_buffer text; /* lines, each ended with a NUL */
    const char **lines;      /* (count) */
    size_t *numbers;         /* (count) of the lines in the file, from 1 */
    size_t count;
};

/* Returns OK, NOTFOUND, IO, LIMIT, NOMEM, or CORRUPT (there is no line). Call fini in any case. */
enum status id_list_read(struct id_list *l, const char *path, struct error *err);
void id_list_fini(struct id_list *l);

/* The lines of the file as numbers: *out (size_bytes / 8), in their order. Returns OK or as above;
 * CORRUPT names a line that is not a number. */
enum status id_list_numbers(struct byte_buffer *out, const char *path, struct error *err);

#endif
