/*
 * fetch: the images of a list of URLs, downloaded while they are packed.
 *
 *     table (ahead) ---> requests, many at a time ---> fetch/spool/N       fetch thread
 *                                                 \--> fetch/ledger.jsonl
 *     table ----------> row, waits for its image --> workers, shards     pack_run
 *
 * A struct fetch goes into pack_options.fetch, with the list as the only source and PACK_IDS_KEY:
 * the id of a sample is its row in the list. Rows are committed in the order of the list, so the
 * dataset depends on the servers' responses, not on their timing. pack/FETCH.md has the rules and
 * the files.
 *
 * Threading : one owner; pack_run uses it while it runs. fetch_stats may be called by any thread.
 * Ownership : borrows its options, which must outlive it.
 * Untrusted : the list, the ledger, everything that servers send.
 * Memory    : about 32 MiB for the rows ahead, libcurl's buffers (about 100 KiB for each connection
 *             with TLS), the rules of at most 65,536 hosts (usually below 1 KiB each); with `dedup`
 *             24 bytes per image; with `retry` one bit per row of the list.
 */
#ifndef PACK_FETCH_FETCH_H
#define PACK_FETCH_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/file_io.h"
#include "net/http.h"

#define FETCH_DIRECTORY "fetch" /* in the dataset's */

enum {
    FETCH_WINDOW_ROWS = 16384, /* rows that are fetched ahead of the first that is not */
    FETCH_MAX_ATTEMPTS = 20,
    FETCH_REASON_BYTES = 32,
    FETCH_MAX_REASONS = 96,
};

struct fetch; /* opaque */

struct fetch_options {
    const struct file_system *fs; /* file_posix() */
    const char *directory;        /* of the dataset; created if needed */
    const char *list;             /* a TSV, a CSV, or a text with a URL in each line */
    struct http_options http;     /* with 256 connections, and 5 requests per second and host */
    uint32_t attempts;            /* for each row of this run, [1, FETCH_MAX_ATTEMPTS]; default 3 */
    uint64_t max_bytes;           /* of an image; 20 MiB */
    bool robots;                  /* robots.txt and X-Robots-Tag are obeyed; default true */
    const char *opt_out; /* file of hosts, URLs and hashes that are not fetched; default NULL */
    bool dedup;          /* of images with the same bytes only the first is packed */
    const char *retry;   /* only rows that failed before for these reasons, see fetch_create;
                          * NULL: all rows */
    bool resume;         /* rows that the ledger records for this run are not fetched again */
    bool append;         /* new rows follow those of the ledger; URLs in the ledger are skipped */
    uint64_t first_row;  /* with append: the dataset's id_space; ids continue from there or later */
    bool verify;         /* the column "sha256" has what an image's bytes must hash to */
    bool overwrite;      /* an earlier ledger is removed */
};

enum { FETCH_MAX_BYTES_DEFAULT = 20 << 20 };

/* All but directory, list and http.user_agent. */
void fetch_options_default(struct fetch_options *opt);

/* `retry` is a list with commas: "failed" (all but excluded rows), "excluded" (by robots.txt,
 * X-Robots-Tag or the opt-out list), "4xx", "5xx", or reasons of the ledger: "timeout", "dns",
 * "http-429". Returns OK, NOTFOUND (the list, the opt-out file), USAGE (invalid retry or resolvers,
 * or a list that is not a file), UNSUPPORTED (no libcurl, or one that cannot use these resolvers),
 * IO, LIMIT or NOMEM. */
enum status fetch_create(struct fetch **out, const struct fetch_options *opt, struct error *err);
const struct fetch_options *fetch_options_of(const struct fetch *f);
void fetch_destroy(struct fetch *f); /* after pack_run; accepts NULL */

/* Call after pack_run has returned OK: removes files that are only needed to resume. Returns OK or
 * IO. */
enum status fetch_finish(struct fetch *f, struct error *err);

struct fetch_stats {
    uint64_t fetched, failed, excluded; /* rows, of this process */
    uint64_t known;                     /* rows whose result was already in the ledger */
    uint64_t attempts;                  /* requests for images */
    uint64_t bytes;                     /* of bodies */
    uint64_t hosts;                     /* with at least one request */
    bool opened;                        /* the ledger was opened */
    uint64_t selected;                  /* rows selected by `retry`, if set */
    uint64_t skipped;                   /* append: rows whose URL was already in the ledger */
    uint32_t running;                   /* requests at this moment, queued ones included */
    char waiting[160]; /* the host of the next row and the reason for waiting; empty: not waiting */
    char failure[240]; /* what happened to the first row that failed; empty: none */
    size_t reason_count;
    struct fetch_reason {
        char name[FETCH_REASON_BYTES];
        uint64_t count;
    } reasons[FETCH_MAX_REASONS]; /* of failed and excluded rows, most frequent first */
};

void fetch_stats(struct fetch *f, struct fetch_stats *out);

/* A host with failed rows in this process; only the first 65,536 hosts are counted. */
struct fetch_host {
    char name[64];                   /* longer ones are cut */
    char reason[FETCH_REASON_BYTES]; /* of the first that failed */
    uint64_t failed;
    bool mixed; /* others failed for other reasons */
};

/* The hosts with most failures, most first; returns how many. Any thread. */
size_t fetch_worst_hosts(struct fetch *f, struct fetch_host *out, size_t room);

#endif
