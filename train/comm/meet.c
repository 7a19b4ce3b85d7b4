/*
 * meet: each file is created once, complete, with a name that no earlier launch can have; join is
 * replaced atomically. Files are polled every 20 ms.
 */
#include "train/comm/meet.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "train/comm/watch_internal.h"

enum {
    READ_EVERY_US = 20000,
    READ_BY_OTHERS_US = 1000000,
    PEER_BYTES = 160,
    MAX_FILE_BYTES = 4096,
    FILE_PATH_BYTES = PATH_MAX_BYTES + 16
};

/* ---- files ---- */

static const char *or_dash(const char *text) {
    return text[0] != '\0' ? text : "-";
}

static int format_peer(char *out, size_t out_bytes, const struct comm_peer *p) {
    return snprintf(out, out_bytes, "%s %s %" PRId64 " %" PRIu64 "\n", p->host, or_dash(p->boot_id),
                    p->pid, p->start_ticks);
}

static int format_own(char *out, size_t out_bytes) {
    struct comm_peer own;
    comm_this_process(&own);
    return format_peer(out, out_bytes, &own);
}

static bool parse_peer(struct comm_peer *p, const char *text) {
    memset(p, 0, sizeof *p);
    return strchr(text, '\n') != NULL && sscanf(text, "%63s %39s %" SCNd64 " %" SCNu64, p->host,
                                                p->boot_id, &p->pid, &p->start_ticks) == 4;
}

static bool of_this_host(const struct comm_peer *p) {
    struct comm_peer own;
    comm_this_process(&own);
    return strcmp(p->host, own.host) == 0 && strcmp(p->boot_id, or_dash(own.boot_id)) == 0;
}

/* A running process of this host, never this one. */
static bool lives(const struct comm_peer *p) {
    return of_this_host(p) && p->pid != (int64_t)getpid() && watch_has_process(p);
}

/* False: missing, or not complete yet. */
static bool read_bytes(char *out, size_t out_bytes, const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const ssize_t n = fd >= 0 ? read(fd, out, out_bytes - 1) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    out[n > 0 ? n : 0] = '\0';
    return n > 0 && out[n - 1] == '\n';
}

static bool read_text(char out[MAX_FILE_BYTES], const char *path) {
    return read_bytes(out, MAX_FILE_BYTES, path);
}

/* Creates a file exclusively. Returns OK, EXISTS or IO. */
static enum status make_file(const char *path, const char *text, struct error *err) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    FAIL_ERRNO_IF(fd < 0, err, "%s", path);
    const size_t n = strlen(text);
    const bool written = write(fd, text, n) == (ssize_t)n;
    const bool closed = close(fd) == 0;
    FAIL_ERRNO_IF(!written || !closed, err, "%s: cannot write", path);
    return STATUS_OK;
}

static const char *member_path(char out[FILE_PATH_BYTES], const struct meet *m, int32_t rank) {
    (void)snprintf(out, FILE_PATH_BYTES, "%s/%" PRId32, m->folder, rank);
    return out;
}

/* ---- meeting ---- */

struct joined {
    char folder[PATH_MAX_BYTES];
    struct comm_peer peer;
    bool ours; /* of this launch, as far as known */
};

static void name_folder(char out[PATH_MAX_BYTES], const struct meet *m, const char *name) {
    const int parent = (int)(strlen(m->join) - strlen("join"));
    (void)snprintf(out, PATH_MAX_BYTES, "%.*s%s", parent, m->join, name);
}

static bool read_join(struct joined *j, const struct meet *m) {
    char text[MAX_FILE_BYTES], name[32];
    int32_t world;
    uint64_t launch;
    int used = 0;
    if (!read_text(text, m->join) ||
        sscanf(text, "%" SCNd32 " %" SCNx64 " %31s %n", &world, &launch, name, &used) != 3 ||
        used == 0 || strncmp(name, "meet-", 5) != 0 || strchr(name, '/') != NULL ||
        !parse_peer(&j->peer, text + used)) {
        return false;
    }
    name_folder(j->folder, m, name);
    j->ours = world == m->world && launch == m->launch;
    return true;
}

static enum status fail_second(const struct meet *m, const struct comm_peer *p, struct error *err) {
    return error_set(err, STATUS_EXISTS,
                     "rank %" PRId32 " of %s is process %" PRId64 " on %s already, of another "
                     "launch; one at a time may train a run",
                     m->rank, m->join, p->pid, p->host);
}

/* Rank 0: creates a new folder, and publishes its name. */
static enum status invite(struct meet *m, struct error *err) {
    struct joined old;
    char text[MAX_FILE_BYTES], name[32];
    uint64_t number;
    if (read_join(&old, m)) {
        if (lives(&old.peer)) {
            return fail_second(m, &old.peer, err);
        }
        file_remove_folder(old.folder);
    }
    FAIL_ERRNO_IF(getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number, err,
                  "no random number for a folder of %s", m->join);
    (void)snprintf(name, sizeof name, "meet-%016" PRIx64, number);
    name_folder(m->folder, m, name);
    FAIL_ERRNO_IF(mkdir(m->folder, 0777) != 0, err, "%s", m->folder);
    const int n =
        snprintf(text, sizeof text, "%" PRId32 " %016" PRIx64 " %s ", m->world, m->launch, name);
    (void)format_own(text + n, sizeof text - (size_t)n);
    return file_write_atomic(file_posix(), m->join, text, strlen(text), err);
}

/* ---- processes that are lost ---- */

bool meet_find_lost(const struct meet *m, bool stopped, char *out, size_t out_bytes) {
    for (int32_t r = 0; r < m->world; r++) {
        const struct comm_peer *p = &m->peers[r];
        uint64_t start_ticks = 0;
        const bool lost = p->pid != 0 && r != m->rank &&
                          (stopped ? process_look(p->pid, &start_ticks) == PROCESS_STOPPED
                                   : !watch_has_process(p));
        if (lost) {
            (void)snprintf(out, out_bytes, "rank %" PRId32 " (host %s, pid %" PRId64 ") is %s", r,
                           p->host, p->pid, stopped ? "stopped" : "gone: its process ended");
            return true;
        }
    }
    return false;
}

/* Rank 0: writes the file that all wait for, with every process that it sees. */
static enum status write_word(const struct meet *m, const char *word, struct error *err) {
    char path[FILE_PATH_BYTES];
    const size_t text_bytes = HEARTBEAT_REASON_BYTES + (size_t)m->world * PEER_BYTES;
    char *text = malloc(text_bytes);
    TRY_MEMORY(text != NULL, err, "out of memory");
    size_t n = (size_t)snprintf(text, HEARTBEAT_REASON_BYTES, "%s\n", word);
    for (int32_t r = 1; r < m->world; r++) {
        n += (size_t)format_peer(text + n, text_bytes - n, &m->peers[r]);
    }
    const enum status s =
        file_write_atomic(file_posix(), member_path(path, m, m->world), text, n, err);
    free(text);
    return s;
}

/* Other ranks: processes that rank 0 sees are visible from here if rank 0's is. */
static enum status
read_word(struct meet *m, const struct comm_peer *first, bool *done, struct error *err) {
    char path[FILE_PATH_BYTES];
    const size_t text_bytes = HEARTBEAT_REASON_BYTES + (size_t)m->world * PEER_BYTES;
    char *text = malloc(text_bytes);
    TRY_MEMORY(text != NULL, err, "out of memory");
    *done = read_bytes(text, text_bytes, member_path(path, m, m->world));
    m->one_host = strncmp(text, "one host\n", 9) == 0;
    enum status s = STATUS_OK;
    if (*done && !m->one_host && strncmp(text, "several\n", 8) != 0) {
        s = error_set(err, STATUS_TIMEOUT, "%.*s", (int)strcspn(text, "\n"), text);
    } else if (*done) {
        m->peers[0] = *first;
        m->peers[0].pid = lives(first) ? first->pid : 0;
        const char *line = text;
        for (int32_t r = 1; r < m->world; r++) {
            line += strcspn(line, "\n");
            line += *line != '\0' ? 1 : 0;
            if (!parse_peer(&m->peers[r], line) || !of_this_host(&m->peers[r]) ||
                m->peers[0].pid == 0) {
                m->peers[r].pid = 0;
            }
        }
    }
    free(text);
    return s;
}

/* Rank 0: *done when all ranks are in the folder. */
static enum status gather(struct meet *m, bool *done, struct error *err) {
    char path[FILE_PATH_BYTES], text[MAX_FILE_BYTES], lost[HEARTBEAT_REASON_BYTES];
    struct joined now;
    struct comm_peer peer;
    bool all = true;
    m->one_host = true;
    if (read_join(&now, m) && strcmp(now.folder, m->folder) != 0) {
        return fail_second(m, &now.peer, err);
    }
    for (int32_t r = 1; r < m->world && all; r++) {
        all = read_text(text, member_path(path, m, r)) && parse_peer(&peer, text);
        if (all && m->peers[r].pid == 0) {
            m->peers[r] = peer;
            m->peers[r].pid = lives(&peer) ? peer.pid : 0;
        }
        m->one_host = m->one_host && (!all || of_this_host(&peer));
    }
    FAIL_IF(all && meet_find_lost(m, false, lost, sizeof lost), err, STATUS_TIMEOUT, "%s", lost);
    *done = all;
    return all ? write_word(m, m->one_host ? "one host" : "several", err) : STATUS_OK;
}

/* Other ranks: enter the newest folder; *done when all are there. */
static enum status follow(struct meet *m, bool *entered, bool *done, struct error *err) {
    char path[FILE_PATH_BYTES], text[MAX_FILE_BYTES];
    struct joined now;
    struct comm_peer peer;
    *done = false;
    if (!read_join(&now, m) || !now.ours) {
        const bool left = *entered && access(member_path(path, m, m->rank), F_OK) != 0;
        return left ? error_set(err, STATUS_TIMEOUT,
                                "rank 0 has ended before all %" PRId32 " ranks had joined %s",
                                m->world, m->join)
                    : STATUS_OK;
    }
    if (strcmp(m->folder, now.folder) != 0) {
        (void)snprintf(m->folder, sizeof m->folder, "%s", now.folder);
        *entered = false;
    }
    if (!*entered) {
        (void)format_own(text, sizeof text);
        struct error why = {0};
        const enum status s = make_file(member_path(path, m, m->rank), text, &why);
        if (s == STATUS_EXISTS && read_text(text, path) && parse_peer(&peer, text) &&
            lives(&peer)) {
            return fail_second(m, &peer, err);
        }
        *entered = s == STATUS_OK;
        /* A folder left by an earlier launch, or being removed, is followed by another. */
        return s == STATUS_OK || s == STATUS_EXISTS || s == STATUS_NOTFOUND
                   ? STATUS_OK
                   : error_pass(err, s, &why);
    }
    return read_word(m, &now.peer, done, err);
}

/* "rank 0", or "rank 2, 3, 7 ..." */
static void name_missing(char *out, size_t out_bytes, const struct meet *m, bool entered) {
    char path[FILE_PATH_BYTES];
    int32_t missing = 0;
    size_t n = (size_t)snprintf(out, out_bytes, "rank");
    for (int32_t r = 1; (m->rank == 0 || entered) && r < m->world; r++) {
        if (access(member_path(path, m, r), F_OK) != 0 && ++missing <= 16) {
            n += (size_t)snprintf(out + n, out_bytes - n, "%s %" PRId32, missing > 1 ? "," : "", r);
        }
    }
    (void)snprintf(out + n, out_bytes - n, "%s", missing > 16 ? " ..." : missing == 0 ? " 0" : "");
}

/* Rank 0: creates folders, which meet_end removes if they are empty. */
static enum status make_folders(struct meet *m, const char *run, struct error *err) {
    char ranks[PATH_MAX_BYTES];
    TRY(path_join(ranks, sizeof ranks, run, "ranks", err));
    TRY(file_make_parents(file_posix(), run, err));
    const char *const folders[] = {run, ranks};
    for (int i = 0; i < 2; i++) {
        const bool made = mkdir(folders[i], 0777) == 0;
        FAIL_ERRNO_IF(!made && errno != EEXIST, err, "%s", folders[i]);
        m->made_count += made ? 1 : 0;
    }
    return STATUS_OK;
}

enum status meet_all(struct meet *m,
                     const char *run,
                     int32_t rank,
                     int32_t world,
                     uint64_t launch,
                     int64_t timeout_ms,
                     bool (*should_stop)(void),
                     struct error *err) {
    const int64_t start_ns = clock_now_ns();
    const int64_t end_ns = start_ns + timeout_ms * NS_PER_MS;
    char missing[256] = "";
    bool done = false, entered = false;
    *m = (struct meet){.rank = rank, .world = world, .launch = launch};
    const int n = snprintf(m->join, sizeof m->join, "%s/ranks/join", run);
    FAIL_IF(n < 0 || n >= PATH_MAX_BYTES - 64, err, STATUS_LIMIT, "%s: the path is too long", run);
    m->peers = calloc((size_t)world, sizeof *m->peers);
    TRY_MEMORY(m->peers != NULL, err, "out of memory");
    enum status s = rank == 0 ? make_folders(m, run, err) : STATUS_OK;
    THEN(s, rank == 0 ? invite(m, err) : STATUS_OK);
    while (s == STATUS_OK && !done) {
        s = rank == 0 ? gather(m, &done, err) : follow(m, &entered, &done, err);
        const bool asked = should_stop != NULL && should_stop();
        if (s == STATUS_OK && !done && (asked || clock_now_ns() > end_ns)) {
            name_missing(missing, sizeof missing, m, entered);
            s = error_set(err, STATUS_TIMEOUT,
                          "of %" PRId32 " ranks, %s has not joined %s within %" PRId64 " s%s",
                          world, missing, m->join,
                          asked ? (clock_now_ns() - start_ns) / (1000 * NS_PER_MS)
                                : timeout_ms / 1000,
                          asked ? ", when a signal came" : "");
        }
        if (s == STATUS_OK && !done) {
            (void)usleep(READ_EVERY_US);
        }
    }
    if (s == STATUS_TIMEOUT && rank == 0 && write_word(m, err->text, NULL) == STATUS_OK) {
        (void)usleep(READ_BY_OTHERS_US);
    }
    if (s != STATUS_OK) {
        meet_end(m);
    }
    return s;
}

void meet_end(struct meet *m) {
    char at[PATH_MAX_BYTES];
    struct joined now;
    free(m->peers);
    m->peers = NULL;
    if (m->rank != 0 || m->join[0] == '\0') {
        return;
    }
    if (m->folder[0] != '\0' && read_join(&now, m) && strcmp(now.folder, m->folder) == 0) {
        (void)unlink(m->join);
    }
    file_remove_folder(m->folder);
    (void)snprintf(at, sizeof at, "%s", m->join);
    for (; m->made_count > 0 && path_directory(at, sizeof at, at, NULL) == STATUS_OK &&
           rmdir(at) == 0;
         m->made_count--) {
    }
    m->join[0] = '\0';
}
