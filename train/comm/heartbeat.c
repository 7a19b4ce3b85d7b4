/*
 * heartbeat: writes and reads a line of fixed format without a JSON library, because both happen
 * once per second on a thread that allocates nothing. The reader accepts only what the writer
 * writes.
 */
#include "train/comm/heartbeat.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/file_io.h"
#include "formats/base/utf8.h"

enum { VERSION = 1 };

static const char *const phase_names[COMM_PHASE_COUNT] = {
    "open", "load", "forward", "loss", "backward", "optimizer", "save", "evaluate", "end",
};

static const char *const state_names[] = {"running", "failed", "lost-peer", "ended"};

enum { STATE_COUNT = sizeof state_names / sizeof *state_names };

const char *comm_phase_name(enum comm_phase phase) {
    return (unsigned)phase < COMM_PHASE_COUNT ? phase_names[phase] : "?";
}

/* ---- writing ---- */

/* Bytes of the printable character at the start of text, which is not empty; 0: none. */
static size_t printable(const char *text, size_t size_bytes) {
    const unsigned char first = (unsigned char)text[0];
    return first < 0x20 || first == 0x7f ? 0 : utf8_character(text, size_bytes);
}

/* `text` as the inside of a JSON string of less than out_bytes; returns its size. */
static size_t escape(char *out, size_t out_bytes, const char *text, size_t text_bytes) {
    const size_t size_bytes = strnlen(text, text_bytes);
    size_t used = 0;
    for (size_t at = 0; at < size_bytes;) {
        char piece[5] = "?";
        const size_t n = printable(text + at, size_bytes - at);
        if (n == 1 && (text[at] == '"' || text[at] == '\\')) {
            piece[0] = '\\';
            piece[1] = text[at];
            piece[2] = '\0';
        } else if (n > 0) {
            memcpy(piece, text + at, n);
            piece[n] = '\0';
        }
        const size_t piece_bytes = strlen(piece);
        if (used + piece_bytes >= out_bytes) {
            break;
        }
        memcpy(out + used, piece, piece_bytes);
        used += piece_bytes;
        at += n > 0 ? n : 1;
    }
    out[used] = '\0';
    return used;
}

size_t heartbeat_format(char out[HEARTBEAT_MAX_BYTES], const struct heartbeat *h) {
    char host[2 * COMM_HOST_BYTES];
    char reason[2 * HEARTBEAT_REASON_BYTES];
    (void)escape(host, sizeof host, h->host, sizeof h->host - 1);
    (void)escape(reason, sizeof reason, h->reason, sizeof h->reason - 1);
    const int n = snprintf(
        out, HEARTBEAT_MAX_BYTES,
        "{\"heartbeat\":%d,\"rank\":%" PRId32 ",\"world\":%" PRId32
        ",\"host\":\"%s\",\"pid\":%" PRId64 ",\"start\":%" PRIu64 ",\"beat\":%" PRIu64
        ",\"step\":%" PRIu64 ",\"phase\":\"%s\",\"wait_ms\":%" PRId64 ",\"still_ms\":%" PRId64
        ",\"state\":\"%s\",\"lost\":%" PRId32 ",\"reason\":\"%s\"}\n",
        VERSION, h->rank, h->world, host, h->pid, h->start_ticks, h->beat, h->step,
        comm_phase_name(h->phase), h->wait_ms, h->still_ms, state_names[h->state], h->lost, reason);
    return (size_t)n;
}

enum status
heartbeat_path(char out[PATH_MAX_BYTES], const char *folder, int32_t rank, struct error *err) {
    const int n = snprintf(out, PATH_MAX_BYTES, "%s/%" PRId32 ".json", folder, rank);
    FAIL_IF(n < 0 || n >= PATH_MAX_BYTES, err, STATUS_LIMIT, "%s: the path is too long", folder);
    return STATUS_OK;
}

/* 0, or errno. */
static int write_file(const char *path, int flags, const char *data, size_t size_bytes) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | flags, 0666);
    if (fd < 0) {
        return errno;
    }
    int failed = 0;
    errno = 0;
    if (pwrite(fd, data, size_bytes, 0) != (ssize_t)size_bytes) {
        failed = errno != 0 ? errno : ENOSPC; /* a short write */
    }
    if (close(fd) != 0 && failed == 0) {
        failed = errno;
    }
    return failed;
}

enum status heartbeat_write(const char *path, const struct heartbeat *h, struct error *err) {
    char line[HEARTBEAT_MAX_BYTES];
    char temporary[PATH_MAX_BYTES];
    char ending[FILE_TEMPORARY_BYTES];
    const size_t size_bytes = heartbeat_format(line, h);
    TRY(file_temporary_ending(ending, err));
    const int n = snprintf(temporary, sizeof temporary, "%s%s", path, ending);
    int failed = n >= (int)sizeof temporary
                     ? ENAMETOOLONG
                     : write_file(temporary, O_CREAT | O_EXCL, line, size_bytes);
    if (failed == 0 && rename(temporary, path) != 0) {
        failed = errno;
    }
    if (failed != 0) {
        (void)unlink(temporary);
    }
    if (failed == 0) {
        return STATUS_OK;
    }
    /* Blanks cover what is left of a longer line. */
    memset(line + size_bytes, ' ', sizeof line - size_bytes);
    if (write_file(path, 0, line, sizeof line) == 0) {
        return STATUS_OK;
    }
    return error_set(err, STATUS_IO, "%s: cannot write: %s", path, strerror(failed));
}

/* ---- reading ---- */

struct text {
    const char *at, *end;
};

static bool take(struct text *t, const char *expected) {
    const size_t n = strlen(expected);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, expected, n) != 0) {
        return false;
    }
    t->at += n;
    return true;
}

/* Decimal digits without sign or leading zeros, up to max. */
static bool take_u64(struct text *t, uint64_t *out, uint64_t max) {
    const char *first = t->at;
    uint64_t value = 0;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
        const uint64_t digit = (uint64_t)(*t->at - '0');
        if (value > (max - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *out = value;
    return t->at > first && (*first != '0' || t->at == first + 1);
}

/* The inside of a string and its closing quote. */
static bool take_string(struct text *t, char *out, size_t out_bytes) {
    size_t used = 0;
    while (t->at < t->end && *t->at != '"') {
        if (*t->at == '\\') {
            t->at++;
            if (t->at == t->end || (*t->at != '"' && *t->at != '\\')) {
                return false;
            }
        }
        const size_t n = printable(t->at, (size_t)(t->end - t->at));
        if (n == 0 || used + n >= out_bytes) {
            return false;
        }
        memcpy(out + used, t->at, n);
        used += n;
        t->at += n;
    }
    out[used] = '\0';
    return take(t, "\"");
}

/* One of `names`, and the closing quote. */
static bool take_name(struct text *t, int *out, const char *const *names, int count) {
    char name[16];
    if (!take_string(t, name, sizeof name)) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

bool heartbeat_parse(struct heartbeat *out, const void *text, size_t size_bytes) {
    struct text t = {.at = text, .end = (const char *)text + size_bytes};
    int phase = 0;
    int state = 0;
    uint64_t rank = 0, world = 0, pid = 0, wait_ms = 0, still_ms = 0, lost = 0;
    memset(out, 0, sizeof *out);
    if (!take(&t, "{\"heartbeat\":1,\"rank\":") || !take_u64(&t, &rank, COMM_MAX_WORLD - 1) ||
        !take(&t, ",\"world\":") || !take_u64(&t, &world, COMM_MAX_WORLD) ||
        !take(&t, ",\"host\":\"") || !take_string(&t, out->host, sizeof out->host) ||
        !take(&t, ",\"pid\":") || !take_u64(&t, &pid, INT64_MAX) || !take(&t, ",\"start\":") ||
        !take_u64(&t, &out->start_ticks, INT64_MAX) || !take(&t, ",\"beat\":") ||
        !take_u64(&t, &out->beat, INT64_MAX) || !take(&t, ",\"step\":") ||
        !take_u64(&t, &out->step, INT64_MAX) || !take(&t, ",\"phase\":\"") ||
        !take_name(&t, &phase, phase_names, COMM_PHASE_COUNT) || !take(&t, ",\"wait_ms\":") ||
        !take_u64(&t, &wait_ms, INT64_MAX) || !take(&t, ",\"still_ms\":") ||
        !take_u64(&t, &still_ms, INT64_MAX) || !take(&t, ",\"state\":\"") ||
        !take_name(&t, &state, state_names, STATE_COUNT) || !take(&t, ",\"lost\":")) {
        return false;
    }
    const bool has_lost = !take(&t, "-1");
    if (has_lost && (state != HEARTBEAT_LOST_PEER || !take_u64(&t, &lost, COMM_MAX_WORLD - 1))) {
        return false;
    }
    out->rank = (int32_t)rank;
    out->world = (int32_t)world;
    out->pid = (int64_t)pid;
    out->wait_ms = (int64_t)wait_ms;
    out->still_ms = (int64_t)still_ms;
    out->phase = (enum comm_phase)phase;
    out->state = (enum heartbeat_state)state;
    out->lost = has_lost ? (int32_t)lost : -1;
    if (!take(&t, ",\"reason\":\"") || !take_string(&t, out->reason, sizeof out->reason) ||
        !take(&t, "}\n") || out->rank >= out->world || out->lost >= out->world) {
        return false;
    }
    while (t.at < t.end && *t.at == ' ') {
        t.at++;
    }
    return t.at == t.end;
}

/* Up to out_bytes of a file; -1 and errno if it cannot be read. */
static ssize_t read_file(const char *path, char *out, size_t out_bytes) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return -1;
    }
    const ssize_t n = read(fd, out, out_bytes);
    const int failed = errno;
    (void)close(fd);
    errno = failed;
    return n;
}

bool heartbeat_read(struct heartbeat *out, const char *path) {
    char line[HEARTBEAT_MAX_BYTES + 1];
    const ssize_t n = read_file(path, line, sizeof line);
    return n >= 0 && n <= HEARTBEAT_MAX_BYTES && heartbeat_parse(out, line, (size_t)n);
}

enum process_state process_look(int64_t pid, uint64_t *start_ticks) {
    char path[64];
    char line[1024];
    *start_ticks = 0;
    (void)snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    const ssize_t n = read_file(path, line, sizeof line - 1);
    if (n < 0 && errno != ENOENT && errno != ESRCH) {
        return PROCESS_UNKNOWN;
    }
    line[n > 0 ? n : 0] = '\0';
    /* Field 2, the name in parentheses, may contain anything; field 3 is the state. */
    const char *at = strrchr(line, ')');
    if (at == NULL || strlen(at) < 3 || at[2] == 'Z' || at[2] == 'X') {
        return PROCESS_GONE;
    }
    const bool stopped = at[2] == 'T' || at[2] == 't';
    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    *start_ticks = at != NULL ? strtoull(at, NULL, 10) : 0;
    return stopped ? PROCESS_STOPPED : PROCESS_RUNS;
}
