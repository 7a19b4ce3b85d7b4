/*
 * fetch_internal: what the fetch thread and the source of its rows share.
 *
 * The source hands rows to pack_run in the order of the list. The fetch thread is up to
 * FETCH_WINDOW_ROWS ahead of it, in a ring of entries:
 *
 *      head (the source waits for it)          ahead (read from the list next)
 *        v                                       v
 *   ...  done  done  running  waiting  done  ... free
 */
#ifndef PACK_FETCH_FETCH_INTERNAL_H
#define PACK_FETCH_FETCH_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "formats/base/hash.h"
#include "net/http.h"
#include "pack/fetch/fetch.h"
#include "pack/fetch/ledger_internal.h"
#include "pack/fetch/opt_out_internal.h"
#include "pack/fetch/sites_internal.h"
#include "pack/run/map_internal.h"
#include "pack/source/source_internal.h"

enum { FETCH_SNIFF_BYTES = 32 };

/* A row of the list that is selected. */
struct fetch_entry {
    struct sites_waiter waiter; /* first: it is what sites know of an entry */
    struct fetch *fetch;
    uint64_t sequence; /* among the selected rows */
    struct ledger_line line;
    bool unusable; /* the row itself is bad: its reason is the source's */
    atomic_bool done;
    char *url;
    bool robots_asked; /* and allowed */
    int64_t retry_ns;  /* when it waits for another attempt */
    struct fetch_entry *next_waiting;
    /* Of the attempt that runs. */
    struct file *file;
    struct hasher *hasher;
    uint8_t first_bytes[FETCH_SNIFF_BYTES];
    size_t first_count;
    bool reuses_file;
    const char *stopped; /* the reason why we ended it; NULL: we did not */
    enum status status;  /* of writing the file */
};

struct fetch {
    const struct fetch_options *opt;
    char ledger_path[PATH_MAX_BYTES];
    char spool[PATH_MAX_BYTES];
    struct opt_out *opt_out;
    uint8_t *selected; /* a bit for each row; NULL: all */
    uint64_t selected_bytes;
    struct ledger *ledger;
    uint64_t round_bytes; /* where this run's lines begin in the ledger */

    /* The fetch thread's. */
    struct http *http;
    struct sites *sites;
    struct source *ahead;
    struct source_row *ahead_row;
    uint64_t ahead_sequence;
    bool ahead_ended;
    struct fetch_entry *waiting; /* for another attempt, in no order */
    struct pack_map *known;      /* row to where its line begins in the ledger; NULL: none */

    /* The source's. */
    struct source_options source_options;
    struct pack_map *pictures; /* hash to row, of pictures that are packed; NULL: no dedup */
    uint64_t removed;          /* spooled pictures below are removed, or spare */
    bool started;
    pthread_t thread;

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    uint64_t spares[FETCH_WINDOW_ROWS]; /* rows whose spooled pictures are packed: files to reuse */
    size_t spare_count;
    struct fetch_entry *entries; /* FETCH_WINDOW_ROWS; `done` ones are the source's */
    uint64_t head;
    bool stop;
    enum status status; /* of the thread */
    struct error error;
    struct fetch_stats stats;
    struct pack_map *hosts; /* hash of a host that was asked: 0 */
};

static inline bool fetch_is_selected(const struct fetch *f, uint64_t row) {
    return !f->selected || (row / 8 < f->selected_bytes && (f->selected[row / 8] >> row % 8 & 1));
}

/* The file of a row's picture. Returns OK or LIMIT. */
enum status fetch_spool_path(const struct fetch *f,
                             char path[PATH_MAX_BYTES],
                             uint64_t sequence,
                             struct error *err);

/* Opens a list as a table of URLs, whatever it is called. */
enum status fetch_open_list(struct source **out, const struct fetch *f, struct error *err);

/* Opens the ledger and selects the rows. Called once the directory is locked. Returns OK, NOTFOUND
 * (a retry without a ledger), IO or NOMEM. */
enum status fetch_open_ledger(struct fetch *f, struct error *err);

/* Reads what the ledger knows: results of the rows of this round from `rows` on, if it is resumed,
 * and with dedup the pictures of the others. */
enum status fetch_read_known(struct fetch *f, uint64_t rows, struct error *err);

/* Begins to fetch from the sequence-th selected row on, with `rows` rows of the list before it. */
enum status fetch_start(struct fetch *f, uint64_t sequence, uint64_t rows, struct error *err);

/* Waits for the head's result and takes it. how->stop is polled. Returns OK, INTERRUPTED or the
 * thread's failure. */
enum status fetch_take(struct fetch *f,
                       struct ledger_line *line,
                       bool *unusable,
                       const struct source_options *how,
                       struct error *err);

void fetch_stop(struct fetch *f); /* joins the thread */

/* Opens the list for pack_run: see pack_open_source. */
enum status fetch_open_source(struct source **out,
                              const char *path,
                              const struct source_options *opt,
                              struct error *err);

/* The rows before this one are in shards that are on the disk: their spooled pictures go, or become
 * the files of further ones. */
void fetch_committed(struct fetch *f, uint64_t sequence);

#endif
