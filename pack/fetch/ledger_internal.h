/*
 * ledger: what became of every row of a list of URLs, DIR/fetch/ledger.jsonl. pack/FETCH.md
 * specifies its lines.
 *
 * Threading : single-owner.
 * Untrusted : the file. A damaged line counts as not written.
 */
#ifndef PACK_FETCH_LEDGER_INTERNAL_H
#define PACK_FETCH_LEDGER_INTERNAL_H

#include "formats/base/file_io.h"
#include "formats/base/json_writer.h"
#include "pack/fetch/fetch.h"

enum ledger_state { LEDGER_FETCHED, LEDGER_FAILED, LEDGER_EXCLUDED };

struct ledger_line {
    uint64_t row;
    enum ledger_state state;
    char reason[FETCH_REASON_BYTES]; /* "http-404"; empty when fetched */
    uint32_t http_status;            /* 0: none */
    uint32_t attempts;
    uint64_t time_s;      /* since 1970 */
    uint64_t elapsed_ms;  /* of the last attempt */
    uint64_t bytes, hash; /* XXH64 of the picture as it came */
    char etag[256];       /* empty: none */
    char detail[240];
};

/* A line is one of a row, or the beginning of a retry. */
struct ledger_entry {
    bool is_retry;
    struct ledger_line line;
    char retry[256];
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
enum status ledger_sync(struct ledger *l, struct error *err);
void ledger_close(struct ledger *l); /* accepts NULL */

#endif
