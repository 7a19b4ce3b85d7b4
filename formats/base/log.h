/*
 * log: how libraries report. A sink is a callback with a cookie, passed at creation; NULL is
 * silence. Programs send it to stderr.
 *
 * Threading : log_stderr's sink may be called from any thread; lines are written whole.
 * Ownership : the caller's storage.
 */
#ifndef FORMATS_BASE_LOG_H
#define FORMATS_BASE_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

struct log_sink {
    void (*write)(void *cookie,
                  enum log_level level,
                  const char *text); /* text: one line, no newline */
    void *cookie;
    enum log_level max_level; /* lines above it are dropped before formatting */
};

/* Does nothing if `sink` is NULL. Lines are truncated to 1 KiB. */
void log_write(const struct log_sink *sink, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A sink that writes "PROGRAM: text" to stderr; `program` is borrowed for the sink's life. */
struct log_sink log_stderr(const char *program, enum log_level max_level);

#endif
