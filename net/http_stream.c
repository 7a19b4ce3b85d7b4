/*
 * The first piece is requested alone, and is small: its answer has the size, and leads to where the
 * hub redirects the others. Then AHEAD pieces are requested at a time.
 *
 *     head: the reader takes from it     tail: requested next
 *       v                                  v
 *     | done | running | done | running |
 */
#include "net/http_stream.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "net/location.h"
#include "net/retry.h"

enum {
    AHEAD = 4,
    FIRST_BYTES = 1 << 20,
    PIECE_BYTES = 8 << 20,
    WAIT_MS = 100,
    MAX_TRIES = 10,  /* in a row that bring nothing */
    FIRST_TRIES = 3, /* of a server that never answered: its name is more likely wrong */
    RETRY_BASE_MS = 100,
    RETRY_MAX_MS = 10000,
    MIN_BYTES_PER_S = 1024, /* what a try must bring to count as one that brings anything */
};

struct piece {
    struct http_stream *stream;
    uint64_t offset;
    size_t size_bytes, got_bytes, before_bytes; /* before: at the beginning of this try */
    uint32_t tries;
    int64_t retry_ns; /* 0: it runs, or is done */
    int64_t try_ns;   /* when this try began */
    bool done;
    uint8_t *data;
};

struct http_stream {
    char *text;
    char url[HTTP_MAX_URL_BYTES];
    struct location *location;
    struct http *http;
    bool allow_private; /* its option */
    bool head_only;
    uint64_t begin_bytes; /* where the first piece begins */
    size_t taken_bytes;   /* the reader's: of the first piece */
    bool started;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows, and `done` of pieces */
    pthread_cond_t changed;
    bool stop, known;
    uint64_t size_bytes;
    char etag[256];
    uint64_t head, tail;
    enum status status;
    struct error error;
    struct piece pieces[AHEAD];
};

/* Of streams that were closed, for the next ones: buffers, because new memory costs as much as a
 * copy, and connections. */
static struct {
    pthread_mutex_t mutex;
    uint8_t *data[AHEAD];
    size_t count;
    struct http *http;  /* NULL: none */
    bool allow_private; /* its option */
    pid_t process;      /* that opened its connections, which no child of a fork may use */
} spare = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static uint8_t *take_buffer(void) {
    pthread_mutex_lock(&spare.mutex);
    uint8_t *data = spare.count > 0 ? spare.data[--spare.count] : NULL;
    pthread_mutex_unlock(&spare.mutex);
    return data != NULL ? data : malloc(PIECE_BYTES);
}

static void give_buffer(uint8_t *data) {
    pthread_mutex_lock(&spare.mutex);
    if (data != NULL && spare.count < AHEAD) {
        spare.data[spare.count++] = data;
        data = NULL;
    }
    pthread_mutex_unlock(&spare.mutex);
    free(data);
}

/* NULL: none that has these rules. */
static struct http *take_http(bool allow_private) {
    pthread_mutex_lock(&spare.mutex);
    const bool usable = spare.process == getpid() && spare.allow_private == allow_private;
    struct http *h = usable ? spare.http : NULL;
    spare.http = usable ? NULL : spare.http;
    pthread_mutex_unlock(&spare.mutex);
    return h;
}

static void give_http(struct http *h, bool allow_private) {
    pthread_mutex_lock(&spare.mutex);
    if (h != NULL && spare.http == NULL && http_pending(h) == 0) {
        spare.http = h;
        spare.allow_private = allow_private;
        spare.process = getpid();
        h = NULL;
    }
    pthread_mutex_unlock(&spare.mutex);
    http_destroy(h);
}

static const char replaced[] = "was replaced at the server while it was read";

static void fail(struct http_stream *s, enum status status, const char *why) {
    pthread_mutex_lock(&s->mutex);
    if (s->status == STATUS_OK) {
        s->status = error_set(&s->error, status, "%.200s: %.400s", s->text, why);
    }
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

/* ---- a piece -------------------------------------------------------------------------------- */

static bool on_head(void *cookie, const struct http_response *r) {
    struct piece *p = cookie;
    struct http_stream *s = p->stream;
    pthread_mutex_lock(&s->mutex);
    const bool first = !s->known;
    if (first && r->range_total != HTTP_UNKNOWN) {
        s->known = true;
        s->size_bytes = r->range_total;
        (void)snprintf(s->etag, sizeof s->etag, "%s", r->etag);
        const uint64_t left = s->size_bytes - p->offset;
        p->size_bytes = left < p->size_bytes ? (size_t)left : p->size_bytes;
    }
    const bool known = s->known;
    const bool same = known && r->range_total == s->size_bytes && strcmp(r->etag, s->etag) == 0;
    pthread_mutex_unlock(&s->mutex);
    if (!known) {
        fail(s, STATUS_IO, "the server does not announce its size");
    } else if (!same) {
        fail(s, STATUS_CORRUPT, replaced);
    }
    return same;
}

static bool on_body(void *cookie, const void *bytes, size_t size_bytes) {
    struct piece *p = cookie;
    const size_t room = p->size_bytes - p->got_bytes;
    const size_t taken = size_bytes < room ? size_bytes : room;
    memcpy(p->data + p->got_bytes, bytes, taken);
    p->got_bytes += taken;
    return taken == size_bytes;
}

static void on_done(void *cookie, const struct http_result *r) {
    struct piece *p = cookie;
    struct http_stream *s = p->stream;
    const int status = r->response->status;
    const bool ignores = r->outcome == HTTP_PROTOCOL && status == 200;
    const bool absent = !s->known && (r->outcome == HTTP_DNS || r->outcome == HTTP_CONNECT);
    char why[560];
    if (r->outcome == HTTP_CANCELLED) {
        return;
    }
    if (p->got_bytes == p->size_bytes) {
        pthread_mutex_lock(&s->mutex);
        p->done = true;
        pthread_cond_signal(&s->changed);
        pthread_mutex_unlock(&s->mutex);
        return;
    }
    const size_t brought_bytes = p->got_bytes - p->before_bytes;
    const int64_t passed_ms = (clock_now_ns() - p->try_ns) / 1000000;
    p->tries = brought_bytes > 0 && brought_bytes >= (size_t)passed_ms * MIN_BYTES_PER_S / 1000
                   ? 1
                   : p->tries + 1;
    if ((r->outcome == HTTP_OK || retry_worth(r->outcome, status)) && !ignores &&
        p->tries <= (absent ? FIRST_TRIES : MAX_TRIES)) {
        const uint64_t seed = hash64(s->text, strlen(s->text)) ^ p->offset;
        p->retry_ns =
            clock_now_ns() + 1000000 * retry_delay_ms(p->tries, RETRY_BASE_MS, RETRY_MAX_MS,
                                                      r->response->retry_after_ms, seed);
        return;
    }
    if (r->outcome == HTTP_STATUS && status == 412) {
        fail(s, STATUS_CORRUPT, replaced);
        return;
    }
    (void)snprintf(why, sizeof why, "cannot be read at byte %llu: %.240s%s",
                   (unsigned long long)(p->offset + p->got_bytes), r->message,
                   ignores         ? "; 'curl -sL URL | ccpack -o DIR -' reads it without"
                   : status == 401 ? "; a token is needed (HF_TOKEN)"
                   : status == 403 ? "; the server denies you access to it"
                                   : "");
    fail(s,
         status == 401 || status == 403 || status == 404 || status == 410 ? STATUS_NOTFOUND
                                                                          : STATUS_IO,
         why);
}

static void begin(struct piece *p) {
    struct http_stream *s = p->stream;
    struct error err = {0};
    struct http_request request = {
        .url = s->url,
        .remembers = true,
        .range_first = p->offset + p->got_bytes,
        .range_bytes = p->size_bytes - p->got_bytes,
        .max_bytes = p->size_bytes - p->got_bytes,
        .if_match = s->known && s->etag[0] == '"' ? s->etag : NULL,
        .cookie = p,
        .on_head = on_head,
        .on_body = on_body,
        .on_done = on_done,
    };
    p->before_bytes = p->got_bytes;
    p->try_ns = clock_now_ns();
    p->retry_ns = 0;
    enum status status = location_authorize(s->location, &request, &err);
    THEN(status, http_start(s->http, &request, &err));
    if (status != STATUS_OK) {
        fail(s, status, err.text);
    }
}

/* ---- the thread ----------------------------------------------------------------------------- */

/* Where a piece begins in the file. */
static uint64_t offset_of(const struct http_stream *s, uint64_t piece) {
    return s->begin_bytes + (piece == 0 ? 0 : FIRST_BYTES + (piece - 1) * PIECE_BYTES);
}

/* The next piece, if there is room for it; NULL: none now. */
static struct piece *take_piece(struct http_stream *s) {
    struct piece *p = NULL;
    pthread_mutex_lock(&s->mutex);
    const uint64_t offset = offset_of(s, s->tail);
    const size_t most = s->tail == 0 ? FIRST_BYTES : PIECE_BYTES;
    const bool first_done = s->tail > 0 && (s->head > 0 || s->pieces[0].done);
    const bool more = first_done && !s->head_only && offset < s->size_bytes;
    if (s->status == STATUS_OK && s->tail - s->head < AHEAD && (s->tail == 0 || more)) {
        p = &s->pieces[s->tail++ % AHEAD];
        const uint64_t left = s->known ? s->size_bytes - offset : most;
        *p = (struct piece){.stream = s, .offset = offset, .data = p->data};
        p->size_bytes = s->head_only ? 1 : left < most ? (size_t)left : most;
    }
    pthread_mutex_unlock(&s->mutex);
    return p;
}

static void *stream_main(void *cookie) {
    struct http_stream *s = cookie;
    struct error err = {0};
    for (;;) {
        struct piece *p;
        pthread_mutex_lock(&s->mutex);
        const bool ends = s->stop || s->status != STATUS_OK;
        pthread_mutex_unlock(&s->mutex);
        if (ends) {
            return NULL;
        }
        while ((p = take_piece(s)) != NULL) {
            p->data = p->data != NULL ? p->data : take_buffer();
            if (p->data == NULL) {
                fail(s, STATUS_NOMEM, "out of memory for what is read ahead");
                return NULL;
            }
            begin(p);
        }
        for (size_t i = 0; i < AHEAD; i++) {
            p = &s->pieces[i];
            if (p->retry_ns != 0 && p->retry_ns <= clock_now_ns()) {
                begin(p);
            }
        }
        const enum status status = http_run(s->http, WAIT_MS, &err);
        if (status != STATUS_OK) {
            fail(s, status, err.text);
        }
    }
}

/* ---- the reader ----------------------------------------------------------------------------- */

enum status http_stream_read(struct http_stream *s,
                             void *out,
                             size_t size_bytes,
                             size_t *got,
                             struct error *err) {
    struct piece *p = &s->pieces[s->head % AHEAD];
    *got = 0;
    pthread_mutex_lock(&s->mutex);
    const bool ended = s->known && offset_of(s, s->head) >= s->size_bytes;
    const bool ready = s->head < s->tail && p->done;
    if (!ended && !ready && s->status == STATUS_OK) {
        clock_wait_ms(&s->changed, &s->mutex, WAIT_MS);
    }
    enum status status = ended                          ? STATUS_OK
                         : s->head < s->tail && p->done ? STATUS_OK
                         : s->status != STATUS_OK       ? error_pass(err, s->status, &s->error)
                                                        : STATUS_AGAIN;
    pthread_mutex_unlock(&s->mutex);
    if (status != STATUS_OK || ended) {
        return status;
    }
    const size_t left = p->size_bytes - s->taken_bytes;
    *got = left < size_bytes ? left : size_bytes;
    memcpy(out, p->data + s->taken_bytes, *got);
    s->taken_bytes += *got;
    if (s->taken_bytes == p->size_bytes) {
        s->taken_bytes = 0;
        pthread_mutex_lock(&s->mutex);
        s->head++;
        pthread_mutex_unlock(&s->mutex);
        http_wake(s->http);
    }
    return STATUS_OK;
}

uint64_t http_stream_size(struct http_stream *s) {
    pthread_mutex_lock(&s->mutex);
    const uint64_t size_bytes = s->size_bytes;
    pthread_mutex_unlock(&s->mutex);
    return size_bytes;
}

const char *http_stream_etag(struct http_stream *s) {
    if (s == NULL) {
        return "";
    }
    pthread_mutex_lock(&s->mutex); /* written once, before `known` */
    pthread_mutex_unlock(&s->mutex);
    return s->etag;
}

static enum status open_stream(struct http_stream **out,
                               const char *text,
                               uint64_t begin_bytes,
                               bool head_only,
                               struct error *err) {
    struct http_options opt;
    *out = NULL;
    FAIL_IF(strpbrk(text, "?#@") != NULL && strncmp(text, "hf://", 5) != 0, err, STATUS_USAGE,
            "a URL with a query or a user name, which may be secrets, cannot be packed, because a "
            "dataset records its sources; use 'curl -sL URL | ccpack -o DIR -'");
    struct http_stream *s = calloc(1, sizeof *s);
    TRY_MEMORY(s != NULL, err, "out of memory for a remote file");
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->head_only = head_only;
    s->begin_bytes = begin_bytes;
    s->text = strdup(text);
    http_options_default(&opt);
    opt.max_connections = opt.max_connections_per_host = AHEAD;
    opt.total_timeout_ms = 120000;
    opt.allow_named = opt.keep_https = true;
    opt.allow_private = s->allow_private = location_allows_private();
    opt.user_agent = "ccstream/" CCSTREAM_VERSION " (ccpack)";
    enum status status = s->text != NULL ? location_create(&s->location, text, NULL, err)
                                         : error_set(err, STATUS_NOMEM, "out of memory for a URL");
    THEN(status, location_file_url(s->location, s->url, err));
    s->http = take_http(s->allow_private);
    THEN(status, s->http != NULL ? STATUS_OK : http_create(&s->http, &opt, err));
    if (status == STATUS_OK) {
        s->started = pthread_create(&s->thread, NULL, stream_main, s) == 0;
        status = s->started ? status : error_set(err, STATUS_NOMEM, "cannot start a thread");
    }
    RETURN_CREATED(status, out, s, http_stream_close);
}

enum status http_stream_open(struct http_stream **out,
                             const char *text,
                             uint64_t offset_bytes,
                             struct error *err) {
    return open_stream(out, text, offset_bytes, false, err);
}

void http_stream_close(struct http_stream *s) {
    if (s == NULL) {
        return;
    }
    if (s->started) {
        pthread_mutex_lock(&s->mutex);
        s->stop = true;
        pthread_mutex_unlock(&s->mutex);
        http_wake(s->http);
        pthread_join(s->thread, NULL);
    }
    give_http(s->http, s->allow_private);
    location_destroy(s->location);
    for (size_t i = 0; i < AHEAD; i++) {
        give_buffer(s->pieces[i].data);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    free(s->text);
    free(s);
}

enum status
http_stream_identity(uint64_t *size_bytes, uint64_t *hash, const char *text, struct error *err) {
    struct http_stream *s;
    uint8_t byte;
    size_t got;
    TRY(open_stream(&s, text, 0, true, err));
    enum status status;
    do {
        status = http_stream_read(s, &byte, 1, &got, err);
    } while (status == STATUS_AGAIN);
    const uint64_t parts[] = {s->size_bytes, hash64(s->etag, strlen(s->etag))};
    *size_bytes = s->size_bytes;
    *hash = hash64(parts, sizeof parts);
    http_stream_close(s);
    return status;
}

enum status
http_stream_measure(double *bytes_per_s, const char *text, bool (*stop)(void), struct error *err) {
    enum { BUFFER_BYTES = 1 << 20 };
    struct http_stream *s = NULL;
    uint64_t untimed_bytes = 0, read_bytes = 0;
    size_t got = 1;
    uint8_t *buffer = malloc(BUFFER_BYTES);
    enum status status = buffer != NULL ? open_stream(&s, text, 0, false, err)
                                        : error_set(err, STATUS_NOMEM, "out of memory");
    int64_t begin_ns = clock_now_ns();
    while (status >= STATUS_OK && got > 0 && read_bytes < (uint64_t)AHEAD * PIECE_BYTES) {
        status = stop != NULL && stop() ? error_set(err, STATUS_INTERRUPTED, "stopped on request")
                                        : http_stream_read(s, buffer, BUFFER_BYTES, &got, err);
        if (status == STATUS_OK && read_bytes == 0 && http_stream_size(s) > FIRST_BYTES) {
            untimed_bytes = FIRST_BYTES; /* which came alone, after names and keys were exchanged */
            begin_ns = clock_now_ns();
        }
        read_bytes += status == STATUS_OK ? got : 0;
        got = status == STATUS_AGAIN ? 1 : got;
    }
    const double seconds = (double)(clock_now_ns() - begin_ns) / 1e9;
    *bytes_per_s = read_bytes > untimed_bytes && seconds > 0
                       ? (double)(read_bytes - untimed_bytes) / seconds
                       : 0;
    http_stream_close(s);
    free(buffer);
    return status < STATUS_OK ? status : STATUS_OK;
}
