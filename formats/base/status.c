/*
 * Results and their messages. A message is formatted into the caller's struct error, so nothing is
 * allocated and nothing is shared between threads. Messages quote untrusted names, and are printed
 * on terminals.
 */
#include "formats/base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/redact.h"
#include "formats/base/utf8.h"

const char *status_text(enum status s) {
    switch (s) {
#define X(name, value, text)                                                                       \
    case STATUS_##name:                                                                            \
        return text;
        STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

enum status error_set(struct error *err, enum status s, const char *fmt, ...) {
    if (err) {
        err->status = s;
        va_list args;
        va_start(args, fmt);
        if (vsnprintf(err->text, sizeof err->text, fmt, args) < 0) {
            err->text[0] = '\0';
        }
        va_end(args);
        (void)redact_locations(err->text);
        utf8_clean(err->text);
    }
    return s;
}

static enum status status_from_errno(int code) {
    switch (code) {
    case ENOENT:
        return STATUS_NOTFOUND;
    case ENOMEM:
        return STATUS_NOMEM;
    case EEXIST:
        return STATUS_EXISTS;
    default:
        return STATUS_IO;
    }
}

enum status error_pass(struct error *err, enum status s, const struct error *why) {
    if (err) {
        *err = *why;
    }
    return s;
}

enum status error_set_errno(struct error *err, const char *fmt, ...) {
    int code = errno;
    enum status s = status_from_errno(code);
    if (err) {
        err->status = s;
        va_list args;
        va_start(args, fmt);
        int n = vsnprintf(err->text, sizeof err->text, fmt, args);
        va_end(args);
        size_t used = n < 0 ? 0 : (size_t)n;
        /* A long path must not push the reason out of the message. */
        used = used > sizeof err->text - 96 ? sizeof err->text - 96 : used;
        char reason[80];
        const char *text = strerror_r(code, reason, sizeof reason);
        snprintf(err->text + used, sizeof err->text - used, ": %s", text);
        (void)redact_locations(err->text);
        utf8_clean(err->text);
    }
    return s;
}

int status_exit_code(enum status s) {
    switch (s) {
    case STATUS_OK:
    case STATUS_END:
    case STATUS_AGAIN:
        return 0;
    case STATUS_USAGE:
        return 64;
    case STATUS_CORRUPT:
    case STATUS_VERSION:
    case STATUS_LIMIT:
    case STATUS_MISMATCH:
        return 65;
    case STATUS_NOTFOUND:
        return 66;
    case STATUS_DEVICE:
    case STATUS_UNSUPPORTED:
        return 69;
    case STATUS_INVALID:
    case STATUS_FORKED:
        return 70;
    case STATUS_NOMEM:
        return 71;
    case STATUS_EXISTS:
        return 73;
    case STATUS_IO:
    case STATUS_TIMEOUT:
        return 74;
    case STATUS_INTERRUPTED:
        return 130;
    }
    return 70;
}

#ifndef NDEBUG
void contract_broken(const char *file, int line, const char *cond) {
    fprintf(stderr, "%s:%d: contract broken: %s\n", file, line, cond);
    abort();
}
#endif
