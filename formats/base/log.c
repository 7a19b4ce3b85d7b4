/*
 * Lines are formatted once, cleaned of control characters (messages quote names from untrusted
 * archives, and a terminal obeys escape sequences), and handed to the sink whole.
 */
#include "formats/base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "formats/base/redact.h"
#include "formats/base/utf8.h"

enum { LINE_MAX_BYTES = 1024 };

void log_write(const struct log_sink *sink, enum log_level level, const char *fmt, ...) {
    if (!sink || !sink->write || level > sink->max_level) {
        return;
    }
    char line[LINE_MAX_BYTES];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (n < 0) {
        return;
    }
    (void)redact_locations(line);
    utf8_clean(line);
    sink->write(sink->cookie, level, line);
}

static void write_stderr(void *cookie, enum log_level level, const char *text) {
    (void)level;
    /* One call, so that stdio's lock keeps the line whole. */
    fprintf(stderr, "%s: %s\n", (const char *)cookie, text);
}

struct log_sink log_stderr(const char *program, enum log_level max_level) {
    return (struct log_sink){
        .write = write_stderr,
        .cookie = (void *)(uintptr_t)program, /* only ever read */
        .max_level = max_level,
    };
}
