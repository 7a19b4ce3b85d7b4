/*
 * The fetch thread: reads the list ahead, asks robots.txt, requests images, spools them, and
 * writes what became of each row to the ledger. Everything happens in callbacks of its struct http;
 * only the ring of entries is shared with the source.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "formats/base/clock.h"
#include "formats/image/image_codec.h"
#include "formats/json/json_reader.h"
#include "net/retry.h"
#include "pack/fetch/fetch_internal.h"

enum {
    WAIT_MS = 50,
    ROWS_AT_A_TIME = 1024, /* read from the list between two looks at the network */
    RETRY_BASE_MS = 500,
    RETRY_MAX_MS = 30000,
    DESCRIBE_MS = 200,
    LONGEST_RETRY_AFTER_MS = 60000, /* a server that asks for more is left to a later --retry */
    MAX_HOST_COUNTS = 65536,
};

/* ---- results -------------------------------------------------------------------------------- */

/* The thread's first failure ends it. */
static void fail(struct fetch *f, enum status s, const struct error *err) {
    pthread_mutex_lock(&f->mutex);
    if (f->status == STATUS_OK) {
        f->status = s;
        f->error = *err;
    }
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->mutex);
}

static void count_reason(struct fetch_stats *s, const char *name) {
    size_t i = 0;
    while (i < s->reason_count && strcmp(s->reasons[i].name, name) != 0) {
        i++;
    }
    if (i == FETCH_MAX_REASONS) {
        return;
    }
    if (i == s->reason_count) {
        s->reasons[s->reason_count++] = (struct fetch_reason){.count = 0};
        snprintf(s->reasons[i].name, sizeof(s->reasons[i].name), "%s", name);
    }
    s->reasons[i].count++;
}

/* Counts a failure at the host that was asked, if any. Requires the mutex. */
static void count_at_host(struct fetch *f, const struct fetch_entry *e) {
    const uint64_t at = e->host != 0 ? hash_map_get(f->hosts, e->host) : HASH_MAP_NONE;
    if (at >= f->host_counts.size_bytes / sizeof(struct fetch_host)) {
        return;
    }
    struct fetch_host *h = (struct fetch_host *)(void *)f->host_counts.data + at;
    if (h->failed++ == 0) {
        memcpy(h->reason, e->line.reason, sizeof(h->reason));
    }
    h->mixed = h->mixed || strcmp(h->reason, e->line.reason) != 0;
}

/* The entry has its result. `is_known`: from the ledger. */
static void end_entry(struct fetch_entry *e, bool is_known) {
    struct fetch *f = e->fetch;
    free(e->url);
    e->url = NULL;
    pthread_mutex_lock(&f->mutex);
    if (!e->unusable) {
        struct fetch_stats *s = &f->stats;
        s->fetched += e->line.state == LEDGER_FETCHED;
        s->failed += e->line.state == LEDGER_FAILED;
        s->excluded += e->line.state == LEDGER_EXCLUDED;
        s->known += is_known;
        if (e->line.state == LEDGER_FAILED && s->failed == 1) {
            memcpy(s->failure, e->line.detail, sizeof(s->failure));
        }
        if (e->line.state != LEDGER_FETCHED) {
            count_reason(s, e->line.reason);
        }
        if (e->line.state == LEDGER_FAILED) {
            count_at_host(f, e);
        }
    }
    atomic_store_explicit(&e->done, true, memory_order_relaxed); /* ordered by the mutex */
    if (e->sequence == f->head) {
        pthread_cond_signal(&f->changed);
    }
    pthread_mutex_unlock(&f->mutex);
}

static void write_line(struct fetch_entry *e) {
    struct error err = {0};
    e->line.time_s = (uint64_t)time(NULL);
    const enum status s = ledger_add(e->fetch->ledger, &e->line, &err);
    if (s != STATUS_OK) {
        fail(e->fetch, s, &err);
    }
    end_entry(e, false);
}

static void
end_with(struct fetch_entry *e, enum ledger_state state, const char *reason, const char *detail) {
    e->line.state = state;
    snprintf(e->line.reason, sizeof(e->line.reason), "%s", reason);
    snprintf(e->line.detail, sizeof(e->line.detail), "%.239s", detail);
    write_line(e);
}

/* ---- a request ------------------------------------------------------------------------------ */

static void begin_attempt(struct fetch_entry *e);

static bool stop(struct fetch_entry *e, const char *reason) {
    e->stopped = reason;
    return false;
}

static bool on_head(void *cookie, const struct http_response *r) {
    struct fetch_entry *e = cookie;
    if (e->fetch->opt->robots && r->robots_noai) {
        return stop(e, "noai");
    }
    return true;
}

/* Moves a file that is no longer needed to `path`. Returns whether there was one. */
static bool take_spare(struct fetch *f, const char *path) {
    const struct file_system *fs = f->opt->fs;
    char spare[PATH_MAX_BYTES];
    pthread_mutex_lock(&f->mutex);
    const bool any = f->spare_count > 0;
    const uint64_t sequence = any ? f->spares[--f->spare_count] : 0;
    pthread_mutex_unlock(&f->mutex);
    return any && fetch_spool_path(f, spare, sequence, NULL) == STATUS_OK &&
           fs->rename(fs->context, spare, path, NULL) == STATUS_OK;
}

static enum status open_spooled(struct fetch_entry *e, struct error *err) {
    const struct file_system *fs = e->fetch->opt->fs;
    char path[PATH_MAX_BYTES];
    TRY(fetch_spool_path(e->fetch, path, e->sequence, err));
    e->reuses_file = take_spare(e->fetch, path);
    TRY(fs->open(fs->context, &e->file, path, e->reuses_file ? FILE_REUSE : FILE_REPLACE, err));
    if (!e->hasher) {
        TRY(hasher_create(&e->hasher, err));
    }
    hasher_reset(e->hasher);
    sha256_init(&e->sha256);
    return STATUS_OK;
}

static bool write_body(struct fetch_entry *e, const void *bytes, size_t size_bytes) {
    const struct file_system *fs = e->fetch->opt->fs;
    struct error err = {0};
    e->status = e->file ? STATUS_OK : open_spooled(e, &err);
    if (e->status == STATUS_OK) {
        hasher_update(e->hasher, bytes, size_bytes);
        if (e->expected[0] != '\0') {
            sha256_update(&e->sha256, bytes, size_bytes);
        }
        e->status = fs->write(e->file, bytes, size_bytes, &err);
    }
    if (e->status != STATUS_OK) {
        fail(e->fetch, e->status, &err);
        return stop(e, "spool");
    }
    e->line.bytes += size_bytes;
    return true;
}

/* A body that is no image ends with its first bytes. */
static bool on_body(void *cookie, const void *bytes, size_t size_bytes) {
    struct fetch_entry *e = cookie;
    if (e->first_count < FETCH_SNIFF_BYTES) {
        const size_t room = FETCH_SNIFF_BYTES - e->first_count;
        const size_t taken = size_bytes < room ? size_bytes : room;
        memcpy(e->first_bytes + e->first_count, bytes, taken);
        e->first_count += taken;
        if (e->first_count == FETCH_SNIFF_BYTES &&
            image_format_of(e->first_bytes, FETCH_SNIFF_BYTES) == IMAGE_FORMAT_UNKNOWN) {
            return stop(e, "not-an-image");
        }
    }
    return write_body(e, bytes, size_bytes);
}

/* Puts the entry among those that wait for another attempt. */
static bool retry_later(struct fetch_entry *e, const struct http_result *r) {
    struct fetch *f = e->fetch;
    if (!retry_worth(r->outcome, r->response->status) || e->line.attempts >= f->opt->attempts ||
        r->response->retry_after_ms > LONGEST_RETRY_AFTER_MS) {
        return false;
    }
    const int64_t delay_ms = retry_delay_ms(e->line.attempts, RETRY_BASE_MS, RETRY_MAX_MS,
                                            r->response->retry_after_ms, e->line.row);
    e->retry_ns = clock_now_ns() + delay_ms * 1000000;
    e->next_waiting = f->waiting;
    f->waiting = e;
    return true;
}

/* Closes the spooled image; keeps it only if it is whole. */
static bool keep_spooled(struct fetch_entry *e, bool is_whole) {
    const struct file_system *fs = e->fetch->opt->fs;
    struct error err = {0};
    char path[PATH_MAX_BYTES];
    if (!e->file) {
        return false;
    }
    fs->close(e->file);
    e->file = NULL;
    if (fetch_spool_path(e->fetch, path, e->sequence, NULL) != STATUS_OK) {
        return false;
    }
    if (!is_whole) {
        (void)fs->remove(fs->context, path, NULL);
    } else if (e->reuses_file) { /* what the file had before may be longer */
        const enum status s = fs->truncate(fs->context, path, e->line.bytes, &err);
        if (s != STATUS_OK) {
            fail(e->fetch, s, &err);
        }
    }
    return is_whole;
}

static void end_stopped(struct fetch_entry *e) {
    if (strcmp(e->stopped, "noai") == 0) {
        end_with(e, LEDGER_EXCLUDED, "noai", "X-Robots-Tag forbids its use");
    } else if (strcmp(e->stopped, "not-an-image") == 0) {
        char detail[80];
        snprintf(detail, sizeof(detail), "begins with '%.16s'", (const char *)e->first_bytes);
        end_with(e, LEDGER_FAILED, "not-an-image", detail);
    } else { /* the spool failed, and with it the run */
        end_entry(e, false);
    }
}

static void remove_spooled(const struct fetch_entry *e) {
    char path[PATH_MAX_BYTES];
    const struct file_system *fs = e->fetch->opt->fs;
    if (fetch_spool_path(e->fetch, path, e->sequence, NULL) == STATUS_OK) {
        (void)fs->remove(fs->context, path, NULL);
    }
}

/* Whether the image is the one that the list means; `is`: its SHA-256. */
static bool is_expected(struct fetch_entry *e, char is[SHA256_HEX_BYTES]) {
    uint8_t digest[SHA256_BYTES];
    if (e->expected[0] == '\0') {
        return true;
    }
    sha256_final(&e->sha256, digest);
    sha256_hex(is, digest);
    return strcasecmp(is, e->expected) == 0;
}

static void end_whole(struct fetch_entry *e) {
    char detail[240];
    char is[SHA256_HEX_BYTES];
    e->line.hash = hasher_value(e->hasher);
    if (opt_out_has_image(e->fetch->opt_out, e->line.hash)) {
        remove_spooled(e);
        end_with(e, LEDGER_EXCLUDED, "opt-out", "the opt-out list has this image");
    } else if (!is_expected(e, is)) {
        remove_spooled(e);
        snprintf(detail, sizeof(detail), "the image has the SHA-256 %s, the list says %s", is,
                 e->expected);
        end_with(e, LEDGER_FAILED, "sha256", detail);
    } else {
        end_with(e, LEDGER_FETCHED, "", "");
    }
}

static void on_done(void *cookie, const struct http_result *r) {
    struct fetch_entry *e = cookie;
    struct fetch *f = e->fetch;
    const bool is_whole = keep_spooled(e, r->outcome == HTTP_OK);
    e->line.http_status = (uint32_t)r->response->status;
    e->line.elapsed_ms = (uint64_t)(r->elapsed_us / 1000);
    snprintf(e->line.etag, sizeof(e->line.etag), "%s", r->response->etag);
    pthread_mutex_lock(&f->mutex);
    f->stats.bytes += r->body_bytes;
    f->stats.attempts += r->outcome != HTTP_CANCELLED;
    pthread_mutex_unlock(&f->mutex);
    if (r->outcome == HTTP_CANCELLED) {
        free(e->url);
        e->url = NULL;
    } else if (r->outcome == HTTP_OK && is_whole) {
        end_whole(e);
    } else if (r->outcome == HTTP_OK) {
        end_with(e, LEDGER_FAILED, "empty", "the answer has no body");
    } else if (r->outcome == HTTP_STOPPED) {
        end_stopped(e);
    } else if (!retry_later(e, r)) {
        char reason[FETCH_REASON_BYTES];
        snprintf(reason, sizeof(reason), "http-%d", r->response->status);
        end_with(e, LEDGER_FAILED,
                 r->outcome == HTTP_STATUS ? reason : http_outcome_name(r->outcome), r->message);
    }
}

static void count_host(struct fetch_entry *e, const struct url *u) {
    struct fetch *f = e->fetch;
    struct fetch_host h = {.failed = 0};
    e->host = hash64(u->host, strlen(u->host));
    pthread_mutex_lock(&f->mutex);
    if (hash_map_get(f->hosts, e->host) == HASH_MAP_NONE &&
        hash_map_put(f->hosts, e->host, f->stats.hosts, NULL) == STATUS_OK) {
        snprintf(h.name, sizeof(h.name), "%.63s", u->host);
        if (f->stats.hosts++ < MAX_HOST_COUNTS) {
            (void)byte_buffer_append(&f->host_counts, &h, sizeof(h), NULL);
        }
    }
    pthread_mutex_unlock(&f->mutex);
}

static void request(struct fetch_entry *e, const struct url *u) {
    struct fetch *f = e->fetch;
    struct error err = {0};
    e->line.attempts++;
    e->line.bytes = 0;
    e->first_count = 0;
    e->stopped = NULL;
    e->status = STATUS_OK;
    const struct http_request r = {
        .url = u->text,
        .max_bytes = f->opt->max_bytes,
        .compressed = true,
        .cookie = e,
        .on_head = on_head,
        .on_body = on_body,
        .on_done = on_done,
    };
    count_host(e, u);
    const enum status s = http_start(f->http, &r, &err);
    if (s == STATUS_NOMEM) {
        fail(f, s, &err);
    } else if (s != STATUS_OK) {
        end_with(e, LEDGER_FAILED, "bad-url", err.text);
    }
}

/* Asks robots.txt first, once for each row. */
static void begin_allowed(struct fetch_entry *e, const struct url *u) {
    struct fetch *f = e->fetch;
    struct error err = {0};
    enum sites_answer answer = SITES_ALLOWED;
    if (f->opt->robots && !e->robots_asked) {
        const enum status s = sites_ask(f->sites, &answer, u->origin, u->path, &e->waiter, &err);
        if (s != STATUS_OK) {
            fail(f, s, &err);
            return;
        }
    }
    switch (answer) {
    case SITES_ALLOWED:
        e->robots_asked = true;
        request(e, u);
        break;
    case SITES_FORBIDDEN:
        end_with(e, LEDGER_EXCLUDED, "robots", "the host's robots.txt forbids it");
        break;
    case SITES_UNREACHABLE:
        end_with(e, LEDGER_FAILED, "robots-unreachable", "the host's robots.txt cannot be read");
        break;
    case SITES_ASKED:
        break;
    }
}

static void begin_attempt(struct fetch_entry *e) {
    struct url u;
    struct error err = {0};
    if (url_init(&u, e->url, NULL, &err) != STATUS_OK) {
        end_with(e, LEDGER_FAILED, "bad-url", err.text);
        return;
    }
    if (opt_out_has_url(e->fetch->opt_out, &u)) {
        end_with(e, LEDGER_EXCLUDED, "opt-out", "the opt-out list has its host or URL");
    } else {
        begin_allowed(e, &u);
    }
    url_fini(&u);
}

static void on_site_ready(struct sites_waiter *w) {
    begin_attempt((struct fetch_entry *)w);
}

/* ---- reading ahead -------------------------------------------------------------------------- */

/* Whether the spooled image is still what the ledger says. */
static bool has_spooled(const struct fetch_entry *e) {
    const struct file_system *fs = e->fetch->opt->fs;
    struct byte_buffer image = {0};
    char path[PATH_MAX_BYTES];
    bool exists = false;
    if (fetch_spool_path(e->fetch, path, e->sequence, NULL) != STATUS_OK ||
        fs->exists(fs->context, path, &exists, NULL) != STATUS_OK || !exists ||
        file_read_all(fs, &image, path, SOURCE_MAX_IMAGE_BYTES, NULL) != STATUS_OK) {
        return false;
    }
    const bool same =
        image.size_bytes == e->line.bytes && hash64(image.data, image.size_bytes) == e->line.hash;
    byte_buffer_fini(&image);
    return same;
}

/* Whether the ledger has the row's result, which is then the entry's. */
static bool is_known(struct fetch_entry *e) {
    const struct fetch *f = e->fetch;
    const uint64_t at = f->known ? hash_map_get(f->known, e->line.row) : HASH_MAP_NONE;
    if (at == HASH_MAP_NONE) {
        return false;
    }
    const struct ledger_line empty = {.row = e->line.row, .url_hash = e->line.url_hash};
    if (ledger_line_at(f->ledger, &e->line, at) && e->line.row == empty.row &&
        (e->line.state != LEDGER_FETCHED || has_spooled(e))) {
        return true;
    }
    e->line = empty;
    return false;
}

/* Takes the SHA-256 that the list gives for a row's image. False: there is no such column. */
static bool take_expected(struct fetch_entry *e, const struct source_row *row) {
    struct json_document *d = NULL;
    const struct json_value *v = NULL;
    const char *text = NULL;
    size_t size_bytes = 0;
    if (row->json.size_bytes > 0 &&
        json_document_parse(&d, "row", row->json.data, row->json.size_bytes, NULL) == STATUS_OK) {
        v = json_value_get(json_document_root(d), "sha256");
        text = json_value_string(v, &size_bytes);
    }
    if (text && size_bytes > 0) { /* a text that is no hash matches no image */
        snprintf(e->expected, sizeof(e->expected), "%.*s", (int)size_bytes, text);
    }
    json_document_destroy(d);
    return v != NULL;
}

static void begin_entry(struct fetch *f, const struct source_row *row) {
    struct fetch_entry *e = &f->entries[f->ahead_sequence % FETCH_WINDOW_ROWS];
    struct hasher *hasher = e->hasher;
    pthread_mutex_lock(&f->mutex); /* the source may be looking at `done` */
    memset(e, 0, sizeof(*e));
    pthread_mutex_unlock(&f->mutex);
    e->hasher = hasher;
    e->fetch = f;
    e->sequence = f->ahead_sequence++;
    e->line.row = f->first_row + row->row;
    e->line.url_hash = hash64(row->path, strlen(row->path));
    if (row->reason != REASON_NONE) {
        e->unusable = true;
        end_entry(e, false);
        return;
    }
    if (is_known(e)) {
        end_entry(e, true);
        return;
    }
    if (f->opt->verify && !take_expected(e, row)) {
        struct error err = {0};
        fail(f,
             error_set(&err, STATUS_USAGE,
                       "%.200s: --verify sha256 needs a column 'sha256' that is kept",
                       f->opt->list),
             &err);
        return;
    }
    e->url = strdup(row->path);
    if (!e->url) {
        struct error err = {0};
        fail(f, error_set(&err, STATUS_NOMEM, "out of memory for a URL"), &err);
        return;
    }
    begin_attempt(e);
}

/* *more: there is room for further rows already. */
static enum status read_ahead(struct fetch *f, bool *more, struct error *err) {
    pthread_mutex_lock(&f->mutex);
    const uint64_t end = f->head + FETCH_WINDOW_ROWS;
    pthread_mutex_unlock(&f->mutex);
    for (int i = 0; i < ROWS_AT_A_TIME && f->ahead_sequence < end && !f->ahead_ended; i++) {
        const enum status s = source_next(f->ahead, f->ahead_row, err);
        if (s == STATUS_END) {
            f->ahead_ended = true;
            pthread_mutex_lock(&f->mutex);
            pthread_cond_signal(&f->changed);
            pthread_mutex_unlock(&f->mutex);
        } else if (s != STATUS_OK) {
            return s;
        } else if (fetch_is_selected(f, f->ahead_row)) {
            begin_entry(f, f->ahead_row);
        }
    }
    *more = f->ahead_sequence < end && !f->ahead_ended;
    return STATUS_OK;
}

/* Begins those attempts whose time has come. */
static void begin_due(struct fetch *f) {
    const int64_t now_ns = clock_now_ns();
    struct fetch_entry *all = f->waiting;
    f->waiting = NULL;
    while (all) {
        struct fetch_entry *e = all;
        all = e->next_waiting;
        if (e->retry_ns <= now_ns) {
            begin_attempt(e);
        } else {
            e->next_waiting = f->waiting;
            f->waiting = e;
        }
    }
}

/* What the first row that is not finished waits for. Requires the mutex. */
static void describe_wait(struct fetch *f) {
    const struct fetch_entry *e = &f->entries[f->head % FETCH_WINDOW_ROWS];
    const int64_t left_ms = (e->retry_ns - clock_now_ns()) / 1000000;
    char *out = f->stats.waiting;
    const size_t size_bytes = sizeof(f->stats.waiting);
    struct url u = {0};
    out[0] = '\0';
    if (f->head >= f->ahead_sequence || !e->url || e->done ||
        url_init(&u, e->url, NULL, NULL) != STATUS_OK) {
        return;
    }
    if (left_ms > 0) {
        snprintf(out, size_bytes, "%.100s, again in %d s", u.host, (int)(left_ms / 1000) + 1);
    } else if (http_host_waits(f->http, u.host)) {
        snprintf(out, size_bytes, "%.100s, %g requests/s (--rate-per-host)", u.host,
                 f->opt->http.requests_per_second_per_host);
    } else {
        snprintf(out, size_bytes, "%.100s to %s", u.host,
                 f->opt->robots && !e->robots_asked ? "send its robots.txt" : "answer");
    }
    url_fini(&u);
}

static bool must_stop(struct fetch *f) {
    const int64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&f->mutex);
    if (now_ns - f->described_ns > DESCRIBE_MS * INT64_C(1000000)) {
        f->described_ns = now_ns;
        describe_wait(f);
    }
    const bool must = f->stop || f->status != STATUS_OK;
    f->stats.running = http_pending(f->http);
    pthread_mutex_unlock(&f->mutex);
    return must;
}

static void *fetch_main(void *cookie) {
    struct fetch *f = cookie;
    struct error err = {0};
    while (!must_stop(f)) {
        bool more = false;
        enum status s = read_ahead(f, &more, &err);
        if (s == STATUS_OK) {
            begin_due(f);
            s = http_run(f->http, more ? 0 : WAIT_MS, &err);
        }
        if (s != STATUS_OK) {
            fail(f, s, &err);
        }
    }
    return NULL;
}

/* ---- for the source ------------------------------------------------------------------------- */

static enum status create_http(struct fetch *f, struct error *err) {
    const char *name = f->opt->http.user_agent;
    char agent[64];
    TRY(http_create(&f->http, &f->opt->http, err));
    snprintf(agent, sizeof(agent), "%.*s", (int)strcspn(name, "/ ("), name);
    return sites_create(&f->sites, f->http, agent, on_site_ready, err);
}

static enum status open_ahead(struct fetch *f, uint64_t rows, struct error *err) {
    uint64_t skipped = 0;
    TRY(fetch_open_list(&f->ahead, f, err));
    f->ahead_row = malloc(sizeof(*f->ahead_row));
    TRY_MEMORY(f->ahead_row, err, "out of memory for a row");
    source_row_init(f->ahead_row);
    const enum status s = source_skip(f->ahead, rows, &skipped, err);
    f->ahead_ended = s == STATUS_END;
    return s == STATUS_END ? STATUS_OK : s;
}

enum status fetch_start(struct fetch *f, uint64_t sequence, uint64_t rows, struct error *err) {
    f->entries = calloc(FETCH_WINDOW_ROWS, sizeof(*f->entries));
    TRY_MEMORY(f->entries, err, "out of memory for rows");
    f->ahead_sequence = f->head = sequence;
    TRY(hash_map_create(&f->hosts, err));
    TRY(create_http(f, err));
    TRY(open_ahead(f, rows, err));
    f->started = pthread_create(&f->thread, NULL, fetch_main, f) == 0;
    return f->started ? STATUS_OK : error_set(err, STATUS_NOMEM, "cannot start a thread");
}

enum status
fetch_take(struct fetch *f, struct ledger_line *line, bool *unusable, struct error *err) {
    const struct source_options *how = &f->source_options;
    struct fetch_entry *e = &f->entries[f->head % FETCH_WINDOW_ROWS];
    enum status s = STATUS_OK;
    pthread_mutex_lock(&f->mutex);
    while (f->status == STATUS_OK && !atomic_load_explicit(&e->done, memory_order_relaxed)) {
        if (how->stop && how->stop(how->stop_cookie)) {
            s = error_set(err, STATUS_INTERRUPTED, "stopped on request");
            break;
        }
        clock_wait_ms(&f->changed, &f->mutex, WAIT_MS);
    }
    if (s == STATUS_OK && f->status != STATUS_OK) {
        s = error_set(err, f->status, "%s", f->error.text);
    }
    if (s == STATUS_OK) {
        *line = e->line;
        *unusable = e->unusable;
        atomic_store_explicit(&e->done, false, memory_order_relaxed);
        f->head++;
    }
    pthread_mutex_unlock(&f->mutex);
    return s;
}

void fetch_stop(struct fetch *f) {
    if (f->started) {
        pthread_mutex_lock(&f->mutex);
        f->stop = true;
        pthread_mutex_unlock(&f->mutex);
        http_wake(f->http);
        pthread_join(f->thread, NULL);
        f->started = false;
    }
    http_destroy(f->http);
    sites_destroy(f->sites);
    f->http = NULL;
    f->sites = NULL;
    for (size_t i = 0; f->entries && i < FETCH_WINDOW_ROWS; i++) {
        struct fetch_entry *e = &f->entries[i];
        free(e->url);
        if (e->file) {
            f->opt->fs->close(e->file);
        }
        hasher_destroy(e->hasher);
    }
    free(f->entries);
    f->entries = NULL;
    source_close(f->ahead);
    f->ahead = NULL;
    if (f->ahead_row) {
        source_row_fini(f->ahead_row);
        free(f->ahead_row);
        f->ahead_row = NULL;
    }
}
