/*
 * ccdump_internal: what the commands of ccdump share: stdout, which samples are meant, and how one
 * sample is shown.
 */
#ifndef TOOLS_CCDUMP_CCDUMP_INTERNAL_H
#define TOOLS_CCDUMP_CCDUMP_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/json_writer.h"
#include "tools/ccdump/input.h"
#include "tools/cli/cli.h"

int ccdump_info(int argc, char **argv);
int ccdump_ls(int argc, char **argv);
int ccdump_show(int argc, char **argv);
int ccdump_find(int argc, char **argv);
int ccdump_stats(int argc, char **argv);
int ccdump_verify(int argc, char **argv);
int ccdump_cat(int argc, char **argv);
int ccdump_extract(int argc, char **argv);
int ccdump_state(int argc, char **argv);
int ccdump_popularity(int argc, char **argv);

/* ---- stdout -----------------------------------------------------------------------------------
 */

/* Returns OK or IO. */
enum status ccdump_put(const void *data, size_t size_bytes, struct error *err);

/* Writes the text and a line feed, and empties the writer. Returns OK, IO, NOMEM or LIMIT. */
enum status ccdump_put_json(struct json_writer *w, struct error *err);

/* Makes sure that everything reached stdout. Returns OK or IO. */
enum status ccdump_flush(struct error *err);

/* Ctrl-C sets the flag that cli_interrupted reads; a reader of stdout that is gone ends the program
 * as it ends every other one. */
void ccdump_signals(void);

/* ---- which samples -----------------------------------------------------------------------------
 */

enum { CCDUMP_MAX_RANGES = 1 << 16 };

/* Fields of the options that choose samples. */
struct ccdump_choice {
    struct cli_list ids; /* each "7", "3-9", "100-", several with commas */
    uint64_t from;
    uint64_t count; /* 0: no limit */
};

/* Their rows in an option table. */
#define CCDUMP_ID_ROW(options, field)                                                              \
    {                                                                                              \
        "id", 0, CLI_LIST, CLI_FIELD(options, field.ids),                                          \
            .metavar = "N", .help = "only these ids: 7, 3-9, 100- or several with commas",         \
            .group = "Which samples"                                                               \
    }
#define CCDUMP_FROM_ROW(options, field)                                                            \
    {                                                                                              \
        "from", 0, CLI_U64, CLI_FIELD(options, field.from),                                        \
            .default_text = "0", .metavar = "ID",                                                  \
            .help = "begin at the first sample whose id is not below this"                         \
    }
#define CCDUMP_COUNT_ROW(options, field)                                                           \
    {                                                                                              \
        "count", 'n', CLI_U64, CLI_FIELD(options, field.count),                                    \
            .default_text = "0", .metavar = "N", .help = "at most so many; 0: all"                 \
    }

struct ccdump_range {
    uint64_t first, last;
    bool must_exist; /* named by itself */
};

/* Samples in the order of their ids. */
struct ccdump_walk {
    struct ccdump_input *input;
    struct ccdump_range *ranges; /* apart from each other, ascending */
    size_t range_count, range_at;
    uint64_t left;
    bool inside; /* the input stands in ranges[range_at] */
};

/* "7", "3-9", "100-", "1,5,7-9" into ranges that ascend and do not touch. Returns OK, USAGE or
 * NOMEM; *out is the caller's to free. */
enum status ccdump_ranges_parse(struct ccdump_range **out,
                                size_t *count,
                                const struct cli_list *texts,
                                struct error *err);

/* Returns OK, USAGE or NOMEM. */
enum status ccdump_walk_init(struct ccdump_walk *w,
                             struct ccdump_input *in,
                             const struct ccdump_choice *choice,
                             struct error *err);
void ccdump_walk_fini(struct ccdump_walk *w); /* accepts an all-zero one */

/* The next sample that is meant. Returns OK; END; NOTFOUND for an id that was asked for by itself
 * and is not there; or what reading gives. */
enum status ccdump_walk_next(struct ccdump_walk *w, struct ccdump_facts *out, struct error *err);

/* ---- one sample --------------------------------------------------------------------------------
 */

/* The sample as one JSON object. `content` NULL: without key and meta. */
enum status ccdump_write_sample(struct json_writer *w,
                                struct ccdump_input *in,
                                const struct ccdump_facts *f,
                                const struct ccdump_content *content,
                                struct error *err);

/* The sample as one line for people; key NULL: without it; columns 0: not cut. */
enum status ccdump_print_line(struct ccdump_input *in,
                              const struct ccdump_facts *f,
                              const char *key,
                              size_t columns,
                              struct error *err);

/* JSON for people, a member per line; text that is no JSON as it is, wrapped. The cursor stands at
 * `indent`; ends with a line feed. columns 0: not wrapped. */
void ccdump_print_json(const char *text, size_t size_bytes, size_t indent, size_t columns);

/* Whether the text holds `wanted`, A-Z and a-z being the same. */
bool ccdump_holds_text(const char *text, size_t size_bytes, const char *wanted);

struct ccdump_list_how {
    bool json;
    bool keys;
    size_t columns;
};

/* Either of the two, with the key where it is wanted. A tar's keys cost nothing and are shown. */
enum status ccdump_list_sample(struct ccdump_input *in,
                               const struct ccdump_facts *f,
                               const struct ccdump_list_how *how,
                               struct json_writer *w,
                               struct error *err);

#endif
