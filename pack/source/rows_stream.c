#include "pack/source/rows_stream_internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/child_process.h"

enum { WAIT_MS = 100, NO_PYARROW = 69, MAX_NAME_BYTES = 4096, GRACE_MS = 5000 };

static const char *interpreter(void) {
    const char *named = getenv("CCSTREAM_PYTHON");
    return named && *named != '\0' ? named : "python3";
}

static enum status no_pyarrow(const struct rows_stream *s, struct error *err) {
    const char *python = interpreter();
    return error_set(err, STATUS_UNSUPPORTED,
                     "%.200s: a Parquet file is read with pyarrow, which %.80s here does not have: "
                     "%.80s -m pip install pyarrow, or CCSTREAM_PYTHON=/path/to/python of another "
                     "installation",
                     s->path, python, python);
}

/* ---- the process ---------------------------------------------------------------------------- */

static enum status start(struct rows_stream *s, struct error *err) {
    char *script = calloc(parquet_rows_text_bytes + 1, 1); /* the text has no NUL at its end */
    int ends[2];
    char python[PATH_MAX_BYTES], option[] = "-c";
    char *const arguments[] = {python, option, script, s->path, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none;
    if (!child_program_find(python, sizeof(python), interpreter())) {
        free(script);
        return no_pyarrow(s, err);
    }
    char **const environment = child_environment(false);
    if (!script || !environment || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        const bool memory = !script || !environment;
        free(script);
        free(environment);
        return memory ? error_set(err, STATUS_NOMEM, "%.200s: out of memory", s->path)
                      : error_set_errno(err, "%.200s: a socket", s->path);
    }
    memcpy(script, parquet_rows_text, parquet_rows_text_bytes);
    s->fd = ends[0];
    s->errors = memfd_create("parquet", MFD_CLOEXEC);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, s->errors, STDERR_FILENO);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP); /* no Ctrl-C */
    const int code = posix_spawn(&s->child, python, &files, &how, arguments, environment);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    close(ends[1]);
    free(script);
    free(environment);
    s->child = code == 0 ? s->child : 0;
    return code == 0 ? STATUS_OK : no_pyarrow(s, err);
}

/* Waits for the process: for `patience_ms` until it ends itself, then it is killed. */
static int end_process(struct rows_stream *s, int patience_ms) {
    int state = 0;
    bool there = s->child > 0;
    for (; there && patience_ms > 0; patience_ms -= 10) {
        there = waitpid(s->child, &state, WNOHANG) == 0;
        poll(NULL, 0, there ? 10 : 0);
    }
    if (there) {
        kill(s->child, SIGKILL);
        while (waitpid(s->child, &state, 0) < 0 && errno == EINTR) {
        }
    }
    s->child = 0;
    return state;
}

static void close_process(struct rows_stream *s) {
    if (s->fd >= 0) {
        close(s->fd);
    }
    end_process(s, 0);
    if (s->errors >= 0) {
        close(s->errors);
    }
    s->fd = s->errors = -1;
    s->began = s->ended = false;
    s->frame_row = s->frame_rows = 0;
}

/* The process sent less than it must: why. */
static enum status ended_early(struct rows_stream *s, struct error *err) {
    char text[512];
    const unsigned long long rows = s->frame_row + s->frame_rows;
    char where[48] = "";
    if (rows > 0) {
        snprintf(where, sizeof(where), "after row %llu: ", rows);
    }
    const off_t size = lseek(s->errors, 0, SEEK_END);
    const off_t from = size > (off_t)sizeof(text) - 1 ? size - ((off_t)sizeof(text) - 1) : 0;
    ssize_t n = pread(s->errors, text, sizeof(text) - 1, from);
    const int state = end_process(s, GRACE_MS);
    RETURN_IF(WIFEXITED(state) && WEXITSTATUS(state) == NO_PYARROW, no_pyarrow(s, err));
    n = n > 0 ? n : 0;
    while (n > 0 && (unsigned char)text[n - 1] <= ' ') {
        n--;
    }
    text[n] = '\0';
    const char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    FAIL_IF(WIFSIGNALED(state), err, STATUS_CORRUPT,
            "%.200s: %sthe process that reads it was killed by signal %d%s%.120s", s->path, where,
            WTERMSIG(state), n > 0 ? ": " : "", line);
    return error_set(err, STATUS_CORRUPT, "%.200s: %s%.200s", s->path, where,
                     n > 0 ? line : "its reader ended early");
}

static enum status receive(struct rows_stream *s, void *out, size_t size_bytes, struct error *err) {
    for (size_t at = 0; at < size_bytes;) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        FAIL_IF(s->stop && s->stop(s->stop_cookie), err, STATUS_INTERRUPTED, "stopped on request");
        if (poll(&p, 1, WAIT_MS) == 0) {
            continue;
        }
        const ssize_t n = read(s->fd, (uint8_t *)out + at, size_bytes - at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return ended_early(s, err);
        }
        at += (size_t)n;
    }
    return STATUS_OK;
}

static enum status wrong(const struct rows_stream *s, const char *what, struct error *err) {
    return error_set(err, STATUS_CORRUPT,
                     "%.200s: the process that reads it sent %s after row %llu", s->path, what,
                     (unsigned long long)(s->frame_row + s->frame_rows));
}

/* ---- columns -------------------------------------------------------------------------------- */

static enum status read_column(struct rows_stream *s, struct rows_column *c, struct error *err) {
    uint8_t head[5];
    char name[MAX_NAME_BYTES];
    TRY(receive(s, head, sizeof(head), err));
    const uint32_t name_bytes = load_u32(head + 1);
    if (name_bytes > sizeof(name) || !memchr("TBJLX", head[0], 5)) {
        return wrong(s, "no column", err);
    }
    TRY(receive(s, name, name_bytes, err));
    const size_t kept = name_bytes < SOURCE_MAX_NAME_BYTES ? name_bytes : SOURCE_MAX_NAME_BYTES;
    *c = (struct rows_column){.kind = (char)head[0], .wanted = c->wanted};
    memcpy(c->name, name, kept);
    return STATUS_OK;
}

static enum status read_columns(struct rows_stream *s, struct error *err) {
    uint8_t head[20];
    TRY(receive(s, head, sizeof(head), err));
    if (memcmp(head, "CCSROWS1", 8) != 0) {
        return wrong(s, "no rows", err);
    }
    s->row_count = load_u64(head + 8);
    const uint32_t count = load_u32(head + 16);
    FAIL_IF(count > TABLE_MAX_COLUMNS, err, STATUS_LIMIT, "%.200s: has more than %d columns",
            s->path, TABLE_MAX_COLUMNS);
    if (s->column_count > 0 && s->column_count != count) {
        return wrong(s, "other columns than before", err);
    }
    s->column_count = count;
    for (size_t i = 0; i < count; i++) {
        TRY(read_column(s, &s->columns[i], err));
    }
    return STATUS_OK;
}

static enum status choose_columns(struct rows_stream *s, struct error *err) {
    char line[8 * TABLE_MAX_COLUMNS] = "";
    size_t n = 0;
    for (size_t i = 0; i < s->column_count; i++) {
        n += s->columns[i].wanted ? (size_t)snprintf(line + n, sizeof(line) - n, "%zu ", i) : 0;
    }
    line[n++] = '\n';
    s->began = true;
    return send(s->fd, line, n, MSG_NOSIGNAL) == (ssize_t)n ? STATUS_OK : ended_early(s, err);
}

/* ---- frames --------------------------------------------------------------------------------- */

/* Reads a column of the frame behind what is in it; where[] are the places of its three parts. */
static enum status
read_buffers(struct rows_stream *s, uint32_t rows, size_t where[3], struct error *err) {
    struct byte_buffer *b = &s->frame;
    const size_t fixed = rows + 4 * ((size_t)rows + 1);
    TRY(byte_buffer_reserve(b, fixed, err));
    TRY(receive(s, b->data + b->size_bytes, fixed, err));
    const uint8_t *offsets = b->data + b->size_bytes + rows;
    where[0] = b->size_bytes;
    where[1] = b->size_bytes + rows;
    where[2] = b->size_bytes + fixed;
    for (size_t i = 0; i < rows; i++) {
        if (load_u32(offsets + 4 * i) > load_u32(offsets + 4 * (i + 1))) {
            return wrong(s, "values that end before they start", err);
        }
    }
    const size_t data = load_u32(offsets + 4 * (size_t)rows) - load_u32(offsets);
    if (data > ROWS_MAX_FRAME_BYTES - b->size_bytes - fixed) {
        return wrong(s, "too many bytes", err);
    }
    b->size_bytes += fixed;
    TRY(byte_buffer_reserve(b, data, err));
    TRY(receive(s, b->data + b->size_bytes, data, err));
    b->size_bytes += data;
    return STATUS_OK;
}

/* Returns OK, END or a failure. */
static enum status read_frame(struct rows_stream *s, struct error *err) {
    uint8_t head[8];
    size_t where[TABLE_MAX_COLUMNS][3];
    TRY(s->began ? STATUS_OK : choose_columns(s, err));
    TRY(receive(s, head, 4, err));
    const uint32_t rows = load_u32(head);
    s->frame_row += s->frame_rows;
    s->frame_rows = 0;
    if (rows == 0) {
        TRY(receive(s, head, 8, err));
        s->not_finite = load_u64(head);
        s->ended = true;
        return STATUS_END;
    }
    if (rows > ROWS_MAX_FRAME_ROWS) {
        return wrong(s, "too many rows", err);
    }
    s->frame.size_bytes = 0;
    for (size_t i = 0; i < s->column_count; i++) {
        TRY(s->columns[i].wanted ? read_buffers(s, rows, where[i], err) : STATUS_OK);
    }
    for (size_t i = 0; i < s->column_count; i++) {
        if (s->columns[i].wanted) {
            s->columns[i].flags = s->frame.data + where[i][0];
            s->columns[i].offsets = s->frame.data + where[i][1];
            s->columns[i].data = s->frame.data + where[i][2];
        }
    }
    s->frame_rows = rows;
    return STATUS_OK;
}

enum status rows_stream_next(struct rows_stream *s, struct error *err) {
    if (s->next_row < s->frame_row) { /* again from the first row */
        close_process(s);
        TRY(start(s, err));
        TRY(read_columns(s, err));
    }
    while (s->next_row >= s->frame_row + s->frame_rows) {
        const enum status status = s->ended ? STATUS_END : read_frame(s, err);
        if (status != STATUS_OK) {
            return status;
        }
    }
    s->next_row++;
    return STATUS_OK;
}

struct table_cell rows_stream_cell(const struct rows_stream *s, size_t column, bool *too_long) {
    const struct rows_column *c = &s->columns[column];
    const size_t i = (size_t)(s->next_row - 1 - s->frame_row);
    struct table_cell cell = {.kind = c->kind};
    if (c->wanted && c->flags[i] == 1) {
        const uint32_t begin = load_u32(c->offsets + 4 * i);
        cell.data = (const char *)c->data + (begin - load_u32(c->offsets));
        cell.size_bytes = load_u32(c->offsets + 4 * (i + 1)) - begin;
    }
    *too_long = c->wanted && c->flags[i] > 1;
    return cell;
}

/* ---- opening -------------------------------------------------------------------------------- */

static enum status create(struct rows_stream **out, const char *path, struct error *err) {
    struct rows_stream *s = calloc(1, sizeof(*s));
    *out = s;
    TRY_MEMORY(s, err, "%.200s: out of memory", path);
    s->fd = s->errors = -1;
    byte_buffer_init(&s->frame, ROWS_MAX_FRAME_BYTES);
    return path_join(s->path, sizeof(s->path), "", path, err);
}

enum status rows_stream_open(struct rows_stream **out,
                             const char *path,
                             const struct source_options *opt,
                             struct error *err) {
    struct rows_stream *s;
    enum status status = create(&s, path, err);
    if (status == STATUS_OK) {
        s->stop = opt->stop;
        s->stop_cookie = opt->stop_cookie;
        status = start(s, err);
    }
    THEN(status, read_columns(s, err));
    RETURN_CREATED(status, out, s, rows_stream_close);
}

enum status rows_stream_open_fd(struct rows_stream **out,
                                int fd,
                                int errors,
                                const char *path,
                                struct error *err) {
    struct rows_stream *s;
    enum status status = create(&s, path, err);
    if (status == STATUS_OK) {
        s->fd = fd;
        s->errors = errors;
        status = read_columns(s, err);
    }
    RETURN_CREATED(status, out, s, rows_stream_close);
}

void rows_stream_close(struct rows_stream *s) {
    if (s) {
        close_process(s);
        byte_buffer_fini(&s->frame);
        free(s);
    }
}
