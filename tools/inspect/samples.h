/*
 * samples: selects samples of an input (--id --from --count), and prints one as JSON or as a line.
 *
 * Threading : single-owner.
 * Ownership : a walk owns its ranges until fini, and borrows the input.
 * Untrusted : the samples.
 */
#ifndef TOOLS_INSPECT_SAMPLES_H
#define TOOLS_INSPECT_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/json_writer.h"
#include "tools/cli/cli.h"
#include "tools/cli/remote_choice.h"
#include "tools/inspect/input.h"

/* For commands that print lists: Ctrl-C sets the flag that cli_interrupted reads; a closed pipe on
 * stdout ends the program silently. */
void samples_signals(void);

/* ---- which samples --------------------------------------------------------------------------- */

enum { SAMPLE_MAX_RANGES = 1 << 16 };

/* First field of the options of commands that select samples. */
struct sample_choice {
    struct cli_list ids; /* each "7", "3-9", "100-", or several with commas */
    uint64_t from;
    uint64_t count; /* 0: no limit */
    struct remote_choice remote;
};

/* Its option rows. */
extern const struct cli_rows sample_choice_rows[];

struct sample_range {
    uint64_t first, last;
    bool must_exist; /* a single id given by the user */
};

/* The selected samples in id order, with a progress line. */
struct sample_walk {
    struct input *input;
    struct sample_range *ranges; /* disjoint, ascending */
    size_t range_count, range_at;
    uint64_t left;
    bool chosen;    /* --id or --from was given */
    bool inside;    /* the input is in ranges[range_at] */
    uint64_t done;  /* samples returned by sample_walk_next */
    uint64_t bytes; /* bytes read, which the caller adds, for the byte rate; 0: not shown */
    struct cli_progress progress;
};

/* Parses "7", "3-9", "100-", "1,5,7-9" to disjoint ascending ranges. Returns OK, USAGE or NOMEM;
 * the caller frees *out. */
enum status sample_ranges_parse(struct sample_range **out,
                                size_t *count,
                                const struct cli_list *texts,
                                struct error *err);

/* quiet: without the progress line. Returns OK, USAGE or NOMEM. */
enum status sample_walk_init(struct sample_walk *w,
                             struct input *in,
                             const struct sample_choice *choice,
                             bool quiet,
                             struct error *err);
void sample_walk_fini(struct sample_walk *w); /* accepts an all-zero one */

/* The next selected sample. Returns OK; END; NOTFOUND for a single id that does not exist;
 * INTERRUPTED; or a failure of reading. */
enum status sample_walk_next(struct sample_walk *w, struct sample_facts *out, struct error *err);

/* ---- one sample ------------------------------------------------------------------------------ */

/* Writes the sample as a JSON object. `content` NULL: without key and meta. */
enum status sample_write(struct json_writer *w,
                         struct input *in,
                         const struct sample_facts *f,
                         const struct sample_content *content,
                         struct error *err);

/* Writes the image's bytes unchanged to a file, or to stdout for "-". Returns OK, IO, or NOTFOUND
 * (no image). */
enum status sample_write_image(const char *path,
                               const struct sample_facts *f,
                               const struct sample_content *content,
                               struct error *err);

/* Prints the JSON object of `w` as one line, or, unless `json`, as readable text with the same
 * fields, lists of objects as tables. Returns as cli_put_json. */
enum status put_result(struct json_writer *w, bool json, struct error *err);
/* The same after cli_begin_json: also closes the object and frees `w`. */
enum status end_result(struct json_writer *w, bool json, struct error *err);

struct sample_list_how {
    bool json;
    bool keys;
    size_t columns; /* truncate lines to so many; 0: no */
};

/* Prints the sample as a JSON object or as a readable line, with its key if how->keys. A tar's keys
 * cost nothing and are always shown. */
enum status sample_list(struct input *in,
                        const struct sample_facts *f,
                        const struct sample_list_how *how,
                        struct json_writer *w,
                        struct error *err);

#endif
