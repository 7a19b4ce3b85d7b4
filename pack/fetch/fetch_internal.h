/*
 * fetch_internal: what the fetch thread and the source of its rows share.
 *
 * The source hands rows to pack_run in the order of the list. The fetch thread is up to
 * FETCH_WINDOW_ROWS ahead of it, in a ring of entries:
 *
 *      head (the source waits for it)          ahead (read from the list next)
 *        v                                       v
 *   ...  done  done  running  waiting  done  ... free
 *
 * Threading : the ledger and the sites have one owner; an opt_out does not change once it is open.
 * Untrusted : the files of the ledger, where a damaged line counts as not written, and of the
 *             opt-out list.
 */
#ifndef PACK_FETCH_FETCH_INTERNAL_H
#define PACK_FETCH_FETCH_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "formats/base/hash.h"
#include "formats/base/hash_map.h"
#include "formats/base/json_writer.h"
#include "formats/base/sha256.h"
#include "net/http.h"
#include "net/url.h"
#include "pack/fetch/fetch.h"
#include "pack/source/source_internal.h"

enum { FETCH_SNIFF_BYTES = 32 };

/* ---- ledger: what became of every row of a list of URLs, DIR/fetch/ledger.jsonl. pack/FETCH.md
 * specifies its lines. ---- */

enum ledger_state { LEDGER_FETCHED, LEDGER_FAILED, LEDGER_EXCLUDED };

struct ledger_line {
    uint64_t row;
    enum ledger_state state;
    char reason[FETCH_REASON_BYTES]; /* "http-404"; empty when fetched */
    uint32_t http_status;            /* 0: none */
    uint32_t attempts;
    uint64_t time_s;      /* since 1970 */
    uint64_t elapsed_ms;  /* of the last attempt */
    uint64_t bytes, hash; /* XXH64 of the image as it came */
    uint64_t url_hash;    /* XXH64 of the URL as the list has it; 0: not known */
    char etag[256];       /* empty: none */
    char detail[240];
};

/* A line is one of a row, or the beginning of a round: a retry, or another list. */
struct ledger_entry {
    bool is_retry, is_list;
    struct ledger_line line;
    char retry[256];                 /* or the list's name */
    uint64_t first_row;              /* of the list: the number of its row 0 */
    uint64_t begin_bytes, end_bytes; /* of the line in the file */
};

/* Reads one line without its line feed. Returns OK, CORRUPT (damaged), VERSION or NOMEM. */
enum status
ledger_parse(struct ledger_entry *out, const uint8_t *text, size_t size_bytes, struct error *err);

/* Calls `seen` for every undamaged line, in order. *good_bytes is the end of the last one. A
 * missing file has no lines. Returns OK, VERSION, IO, NOMEM, or what `seen` returned. */
enum status
ledger_scan(const struct file_system *fs,
            const char *path,
            enum status (*seen)(void *cookie, const struct ledger_entry *entry, struct error *err),
            void *cookie,
            uint64_t *good_bytes,
            struct error *err);

struct ledger; /* opaque */

/* Opens for appending after the first good_bytes; what follows them is cut off. */
enum status ledger_open(struct ledger **out,
                        const struct file_system *fs,
                        const char *path,
                        uint64_t good_bytes,
                        struct error *err);
/* Reads the line that begins at begin_bytes again. False if it is damaged or not a row. */
bool ledger_line_at(struct ledger *l, struct ledger_line *out, uint64_t begin_bytes);

enum status ledger_add(struct ledger *l, const struct ledger_line *line, struct error *err);
enum status ledger_add_retry(struct ledger *l, const char *retry, struct error *err);
enum status
ledger_add_list(struct ledger *l, const char *name, uint64_t first_row, struct error *err);
enum status ledger_sync(struct ledger *l, struct error *err);
void ledger_close(struct ledger *l); /* accepts NULL */

/* ---- opt_out: a list of hosts, URLs and images that must not be fetched, with 8 bytes an entry in
 * memory. A text, one entry a line; empty lines and those that begin with # are skipped:
 *
 *     example.org                      this host and all below it
 *     https://example.com/a/b.jpg      this URL
 *     9f86d081884c7d65                 the image with this XXH64, as the ledger writes it
 * ---- */

struct opt_out; /* opaque */

/* Returns OK, NOTFOUND, IO, LIMIT (more than 1 GiB), NOMEM, UNSUPPORTED (URLs without libcurl), or
 * CORRUPT with the line that is none of the three. */
enum status opt_out_open(struct opt_out **out,
                         const struct file_system *fs,
                         const char *path,
                         struct error *err);
void opt_out_close(struct opt_out *o); /* accepts NULL */

/* NULL has no entries. */
bool opt_out_has_url(const struct opt_out *o, const struct url *u);
bool opt_out_has_image(const struct opt_out *o, uint64_t hash);

/* ---- sites: what the robots.txt of each origin allows, requested once and kept ---- */

enum sites_answer {
    SITES_ALLOWED,
    SITES_FORBIDDEN,
    SITES_UNREACHABLE, /* the server fails to answer for it: nothing may be fetched */
    SITES_ASKED,       /* the answer comes later, to `ready` */
};

/* Someone who waits for a robots.txt. */
struct sites_waiter {
    struct sites_waiter *next;
};

struct sites; /* opaque */

/* `ready` is called for every waiter of an origin whose robots.txt is known now; it asks again.
 * agent: the token that robots.txt files name us by. Returns OK or NOMEM. */
enum status sites_create(struct sites **out,
                         struct http *http,
                         const char *agent,
                         void (*ready)(struct sites_waiter *w),
                         struct error *err);
void sites_destroy(struct sites *s); /* after the http; accepts NULL */

/* Whether `path` (with its query) of an origin may be fetched. Keeps `waiter` when it returns
 * SITES_ASKED. Returns OK or NOMEM. */
enum status sites_ask(struct sites *s,
                      enum sites_answer *out,
                      const char *origin,
                      const char *path,
                      struct sites_waiter *waiter,
                      struct error *err);

/* ---- rows ---- */

/* A row of the list that is selected. */
struct fetch_entry {
    struct sites_waiter waiter; /* first: it is what sites know of an entry */
    struct fetch *fetch;
    uint64_t sequence; /* among the selected rows */
    struct ledger_line line;
    bool unusable; /* the row itself is bad: its reason is the source's */
    atomic_bool done;
    char *url;
    uint64_t host;     /* hash of the one that was asked; 0: none was */
    bool robots_asked; /* and allowed */
    int64_t retry_ns;  /* when it waits for another attempt */
    struct fetch_entry *next_waiting;
    /* Of the attempt that runs. */
    struct file *file;
    struct hasher *hasher;
    struct sha256 sha256;            /* as the next, with fetch_options.verify */
    char expected[SHA256_HEX_BYTES]; /* empty: the row has none */
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
    uint64_t round_bytes;  /* where this run's lines begin in the ledger */
    uint64_t first_row;    /* the number of the list's row 0 */
    struct hash_map *urls; /* of an append: hashes of those that are there; NULL: none */
    struct {
        uint64_t begin_bytes, first_row; /* of its line */
        uint64_t rows_before, rows;      /* one more than the largest row, before it and in all */
        bool is_list;
    } last_round;

    /* The fetch thread's. */
    struct http *http;
    struct sites *sites;
    struct source *ahead;
    struct source_row *ahead_row;
    uint64_t ahead_sequence;
    bool ahead_ended;
    struct fetch_entry *waiting; /* for another attempt, in no order */
    struct hash_map *known;      /* row to where its line begins in the ledger; NULL: none */

    /* The source's. */
    struct source_options source_options;
    struct hash_map *images; /* hash to row, of images that are packed; NULL: no dedup */
    uint64_t removed;        /* spooled images below are removed, or spare */
    bool started;
    pthread_t thread;

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    uint64_t spares[FETCH_WINDOW_ROWS]; /* rows whose spooled images are packed: files to reuse */
    size_t spare_count;
    struct fetch_entry *entries; /* FETCH_WINDOW_ROWS; `done` ones are the source's */
    uint64_t head;
    bool stop;
    enum status status; /* of the thread */
    struct error error;
    struct fetch_stats stats;
    int64_t described_ns;           /* when stats.waiting was written; the fetch thread's */
    struct hash_map *hosts;         /* hash of a host that was asked: its place in: */
    struct byte_buffer host_counts; /* struct fetch_host */
};

/* Whether a row of the list is fetched. */
bool fetch_is_selected(const struct fetch *f, const struct source_row *row);

/* The file of a row's image. Returns OK or LIMIT. */
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
 * and with dedup the images of the others. */
enum status fetch_read_known(struct fetch *f, uint64_t rows, struct error *err);

/* Begins to fetch from the sequence-th selected row on, with `rows` rows of the list before it. */
enum status fetch_start(struct fetch *f, uint64_t sequence, uint64_t rows, struct error *err);

/* Waits for the head's result and takes it, polling the source's `stop`. Returns OK, INTERRUPTED or
 * the thread's failure. */
enum status
fetch_take(struct fetch *f, struct ledger_line *line, bool *unusable, struct error *err);

void fetch_stop(struct fetch *f); /* joins the thread */

/* Opens the list for pack_run: see pack_open_source. */
enum status fetch_open_source(struct source **out,
                              const char *path,
                              const struct source_options *opt,
                              struct error *err);

/* The rows before this one are in shards that are on the disk: their spooled images go, or become
 * the files of further ones. */
void fetch_committed(struct fetch *f, uint64_t sequence);

#endif
