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

int ccpack_pack_main(int argc, char **argv);
int ccpack_fetch_main(int argc, char **argv);
int ccpack_merge_main(int argc, char **argv);
int ccpack_index_main(int argc, char **argv);
int ccpack_tokenizer_main(int argc, char **argv);
int ccpack_subset_main(int argc, char **argv);
int ccpack_remove_main(int argc, char **argv);
int ccpack_repair_main(int argc, char **argv);
int ccpack_compact_main(int argc, char **argv);

/* Options of every command that packs pictures. Their structs begin with it. */
struct ccpack_shape {
    uint64_t min_side;
    double max_aspect;
    uint64_t max_pixels;
    uint64_t max_caption_bytes;
    const char *resize;
    uint64_t quality;
    bool phash;
    int container;
    uint64_t zstd_level;
    uint64_t shard_samples;
    uint64_t shard_size;
    uint64_t jobs;
    bool json;
    bool quiet;
};

extern const struct cli_rows ccpack_shape_rows[];

/* Returns OK or USAGE. */
enum status
ccpack_take_shape(struct pack_options *out, const struct ccpack_shape *o, struct error *err);

/* After a failure: what the directory holds now, and how to resume. */
void ccpack_print_remains(const struct pack_summary *s, enum status status, const char *directory);

/* The threads for --jobs; 0: one for each core. */
uint32_t ccpack_jobs(uint64_t asked);

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

/* For struct pack_options, whose cookie is the run. */
void ccpack_show_progress(void *run, const struct pack_progress *p);

/* After a `status` of OK prints the summary: on stderr unless quiet, and with `json` on stdout.
 * Returns `status`, or a failure to print. */
enum status ccpack_end(struct ccpack_run *r,
                       enum status status,
                       const struct pack_summary *s,
                       const char *directory,
                       bool quiet,
                       bool json,
                       struct error *err);

#endif
