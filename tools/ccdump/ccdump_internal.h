/*
 * ccdump_internal: what the commands of ccdump share: choosing samples, and printing one.
 */
#ifndef TOOLS_CCDUMP_CCDUMP_INTERNAL_H
#define TOOLS_CCDUMP_CCDUMP_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/ccdump/input.h"
#include "tools/cli/cli.h"
#include "tools/cli/remote_choice.h"

int ccdump_info(int argc, char **argv);
int ccdump_ls(int argc, char **argv);
int ccdump_show(int argc, char **argv);
int ccdump_find(int argc, char **argv);
int ccdump_stats(int argc, char **argv);
int ccdump_duplicates(int argc, char **argv);
int ccdump_verify(int argc, char **argv);
int ccdump_repair(int argc, char **argv);
int ccdump_cat(int argc, char **argv);
int ccdump_extract(int argc, char **argv);
int ccdump_state(int argc, char **argv);
int ccdump_popularity(int argc, char **argv);
int ccdump_order(int argc, char **argv);
int ccdump_why(int argc, char **argv);

/* Ctrl-C sets the flag that cli_interrupted reads; a closed pipe on stdout still ends the program
 * without a message. */
void ccdump_signals(void);

/* ---- which samples -----------------------------------------------------------------------------
 */

enum { CCDUMP_MAX_RANGES = 1 << 16 };

/* First member of the options of commands that let the user choose samples. */
struct ccdump_choice {
    struct cli_list ids; /* each "7", "3-9", "100-", or several with commas */
    uint64_t from;
    uint64_t count; /* 0: no limit */
    struct remote_choice remote;
};

/* Its rows, shared by their option tables. */
extern const struct cli_rows ccdump_choice_rows[];

struct ccdump_range {
    uint64_t first, last;
    bool must_exist; /* a single id that the user named */
};

/* The chosen samples in the order of their ids, with a progress line. */
struct ccdump_walk {
    struct ccdump_input *input;
    struct ccdump_range *ranges; /* disjoint, ascending */
    size_t range_count, range_at;
    uint64_t left;
    bool chosen;    /* by ids, not all samples */
    bool inside;    /* the input is in ranges[range_at] */
    uint64_t done;  /* samples that next gave */
    uint64_t bytes; /* for the byte rate: the caller adds what it read; 0: not shown */
    struct cli_progress progress;
};

/* Parses "7", "3-9", "100-", "1,5,7-9" to disjoint ascending ranges. Returns OK, USAGE or NOMEM;
 * the caller frees *out. */
enum status ccdump_ranges_parse(struct ccdump_range **out,
                                size_t *count,
                                const struct cli_list *texts,
                                struct error *err);

/* quiet: without the progress line. Returns OK, USAGE or NOMEM. */
enum status ccdump_walk_init(struct ccdump_walk *w,
                             struct ccdump_input *in,
                             const struct ccdump_choice *choice,
                             bool quiet,
                             struct error *err);
void ccdump_walk_fini(struct ccdump_walk *w); /* accepts an all-zero one */

/* The next chosen sample. Returns OK; END; NOTFOUND for a single id that does not exist;
 * INTERRUPTED; or a failure of reading. */
enum status ccdump_walk_next(struct ccdump_walk *w, struct ccdump_facts *out, struct error *err);

/* ---- one sample --------------------------------------------------------------------------------
 */

/* The sample as a JSON object. `content` NULL: without key and meta. */
enum status ccdump_write_sample(struct json_writer *w,
                                struct ccdump_input *in,
                                const struct ccdump_facts *f,
                                const struct ccdump_content *content,
                                struct error *err);

/* A hash as 16 hexadecimal digits. Returns whether it is one. */
bool ccdump_parse_hash(const char *text, uint64_t *out);

/* Readable JSON, a member per line; text that is not JSON is only wrapped. The cursor stands at
 * `indent`; ends with a line feed. columns 0: not wrapped. */
void ccdump_print_json(const char *text, size_t size_bytes, size_t indent, size_t columns);

/* A bar of `part` (0 to 1) of `width` columns, drawn to an eighth of a column; never empty for a
 * part above 0. Ends with a line feed. */
void ccdump_print_bar(double part, size_t width);

struct ccdump_list_how {
    bool json;
    bool keys;
    size_t columns; /* lines are truncated to so many; 0: not */
};

/* The sample as a JSON object or as a readable line, with its key where `how` asks for it. A tar's
 * keys cost nothing and are always shown. */
enum status ccdump_list_sample(struct ccdump_input *in,
                               const struct ccdump_facts *f,
                               const struct ccdump_list_how *how,
                               struct json_writer *w,
                               struct error *err);

#endif
