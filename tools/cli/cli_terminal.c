/*
 * Progress, readable numbers and signals. On a terminal the progress line is redrawn in place with
 * a carriage return.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/utf8.h"
#include "tools/cli/cli.h"

static const int64_t DRAW_EVERY_NS = 100 * 1000 * 1000;
static const int64_t LINE_EVERY_NS = 60 * 1000 * 1000 * 1000LL;
static const int64_t FIRST_LINE_NS = 10 * 1000 * 1000 * 1000LL;

static bool draws_in_place(void) {
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) == 1 && (term == NULL || strcmp(term, "dumb") != 0);
}

void cli_progress_init(struct cli_progress *p, const char *what, bool quiet) {
    memset(p, 0, sizeof(*p));
    p->active = !quiet;
    p->in_place = draws_in_place();
    p->what = what;
    p->started_ns = clock_now_ns();
    p->drawn_ns = p->in_place ? 0 : p->started_ns + FIRST_LINE_NS - LINE_EVERY_NS;
}

/* "[#####-----] 50 % " on a terminal of `columns`; "50 % " on a narrow one or none; nothing if the
 * total is not known. */
static void draw_bar(char *out, size_t size, uint64_t done, uint64_t total, size_t columns) {
    const int length = columns >= 119 ? 20 : columns >= 99 ? 10 : 0;
    const double fraction = done < total ? (double)done / (double)total : 1;
    const int full = (int)(fraction * length);
    const int percent = (int)(100 * fraction);
    if (total == 0) {
        out[0] = '\0';
    } else if (length == 0) {
        snprintf(out, size, "%d %%  ", percent);
    } else {
        snprintf(out, size, "[%.*s%.*s] %3d %%  ", full, "####################", length - full,
                 "--------------------", percent);
    }
}

/* The line's text after the bar. */
static void describe(char *out,
                     size_t size,
                     const struct cli_progress *p,
                     uint64_t done,
                     uint64_t total,
                     uint64_t bytes,
                     const char *extra) {
    const double seconds = (double)(p->drawn_ns - p->started_ns) / 1e9;
    const uint64_t own = done > p->begun ? done - p->begun : 0;
    const double rate = seconds > 0 ? (double)own / seconds : 0;
    int n = 0;
    out[0] = '\0';
    if (p->what != NULL) {
        n = snprintf(out, size, "%s%s%s %s  %s", cli_format_count(done), total > 0 ? "/" : "",
                     total > 0 ? cli_format_count(total) : "", p->what, cli_format_rate(rate, ""));
    }
    if (bytes > 0 && seconds > 0) {
        n += snprintf(out + n, size - (size_t)n, "  %s/s",
                      cli_format_bytes((uint64_t)((double)bytes / seconds)));
    }
    if (total > done && rate > 0) {
        n += snprintf(out + n, size - (size_t)n, "%s%s left", n > 0 ? "  " : "",
                      cli_format_seconds((double)(total - done) / rate));
    }
    if (extra != NULL && extra[0] != '\0') {
        (void)snprintf(out + n, size - (size_t)n, "  %s", extra);
    }
}

void cli_progress_update(struct cli_progress *p,
                         uint64_t done,
                         uint64_t total,
                         uint64_t bytes,
                         const char *extra) {
    enum { MOST_COLUMNS = 256, COLUMNS = 120 };
    const int64_t now = clock_now_ns();
    const int64_t every_ns = p->in_place ? DRAW_EVERY_NS : LINE_EVERY_NS;
    if (!p->active || (p->drawn_ns != 0 && now - p->drawn_ns < every_ns)) {
        return;
    }
    p->drawn_ns = now;
    char text[MOST_COLUMNS];
    char bar[64];
    char line[sizeof bar + sizeof text];
    struct winsize size = {0};
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    const size_t columns = (known ? size.ws_col : COLUMNS) - 1; /* a full line might wrap */
    describe(text, sizeof text, p, done, total, bytes, extra);
    if (!p->in_place) {
        draw_bar(bar, sizeof bar, done, total, 0);
        cli_print(stderr, "%s%s\n", bar, text);
        return;
    }
    draw_bar(bar, sizeof bar, done, total, columns);
    (void)snprintf(line, sizeof line, "%s%s", bar, text);
    utf8_clean(line);
    if (columns < sizeof line) {
        line[columns] = '\0'; /* a wrapped line could not be redrawn in place */
    }
    const size_t width = strlen(line);
    const size_t blank = p->drawn_width > width ? p->drawn_width - width : 0;
    fprintf(stderr, "\r%s%*s", line, (int)blank, "");
    fflush(stderr);
    p->drawn_width = width;
}

void cli_progress_clear(struct cli_progress *p) {
    if (p->active && p->drawn_width > 0) {
        fprintf(stderr, "\r%*s\r", (int)p->drawn_width, "");
        fflush(stderr);
        p->drawn_width = 0;
    }
}

const char *cli_format(const char *format, ...) {
    enum { TEXTS = 32, TEXT_BYTES = 160 };
    static _Thread_local char texts[TEXTS][TEXT_BYTES];
    static _Thread_local unsigned last;
    char *out = texts[last++ % TEXTS];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(out, TEXT_BYTES, format, arguments);
    va_end(arguments);
    return out;
}

const char *cli_format_bytes(uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;
    double v = (double)bytes;
    while (v >= 1023.95 && unit + 1 < CLI_COUNT(units)) {
        v /= 1024;
        unit++;
    }
    return cli_format(unit == 0 ? "%.0f %s" : "%.1f %s", v, units[unit]);
}

const char *cli_format_count(uint64_t count) {
    char text[32] = "";
    size_t at = sizeof text - 1;
    for (int digits = 0; digits == 0 || count > 0; digits++, count /= 10) {
        if (digits > 0 && digits % 3 == 0) {
            text[--at] = ',';
        }
        text[--at] = (char)('0' + count % 10);
    }
    return cli_format("%s", text + at);
}

const char *cli_format_counted(uint64_t count, const char *noun) {
    return cli_format("%s %s%s", cli_format_count(count), noun, count == 1 ? "" : "s");
}

const char *cli_format_rate(double per_second, const char *noun) {
    static const struct {
        const char *name;
        double seconds;
    } spans[] = {{"s", 1}, {"min", 60}, {"h", 3600}};
    size_t i = 0;
    while (per_second > 0 && per_second * spans[i].seconds < 0.095 && i + 1 < CLI_COUNT(spans)) {
        i++;
    }
    const double rate = per_second * spans[i].seconds;
    const char *digits =
        rate >= 9.95 ? cli_format_count((uint64_t)(rate + 0.5)) : cli_format("%.2g", rate);
    return cli_format("%.24s%s%s/%s", digits, noun[0] != '\0' ? " " : "", noun, spans[i].name);
}

const char *cli_format_seconds(double seconds) {
    double limited = seconds < 0 ? 0 : seconds > 359999999 ? 359999999 : seconds;
    unsigned long whole = (unsigned long)(limited + 0.5);
    return limited < 59.95 ? cli_format("%.1fs", limited)
           : whole < 3600  ? cli_format("%lum%02lus", whole / 60, whole % 60)
                           : cli_format("%luh%02lum", whole / 3600, whole / 60 % 60);
}

/* Set by the handler, read by every thread; relaxed, because it orders no other memory. */
static atomic_int interrupted;

/* Restores the default action, so that the second signal ends the process. */
static void on_signal(int number) {
    atomic_store_explicit(&interrupted, 1, memory_order_relaxed);
    signal(number, SIG_DFL);
}

/* Handlers run on a separate stack: oneDNN's generated kernels keep data below the stack pointer,
 * beyond the red zone that the ABI protects, and a handler on their stack would overwrite it. */
static void install_stack(void) {
    static char memory[64 * 1024];
    stack_t stack;
    memset(&stack, 0, sizeof(stack));
    if (sigaltstack(NULL, &stack) == 0 && (stack.ss_flags & SS_DISABLE) != 0) {
        stack.ss_sp = memory;
        stack.ss_size = sizeof(memory);
        stack.ss_flags = 0;
        sigaltstack(&stack, NULL);
    }
}

static void install(int number) {
    struct sigaction action;
    install_stack();
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void cli_signals_install_early(bool one_of_several) {
    install(SIGUSR1); /* mpirun forwards it, and Slurm sends it on request */
    if (one_of_several) {
        install(SIGTERM);
    }
}

void cli_signals_install(void) {
    install(SIGINT);
    install(SIGTERM);
    install(SIGUSR1);
    /* A closed pipe on stdout becomes a write error with a message instead of killing the
     * process. */
    signal(SIGPIPE, SIG_IGN);
}

bool cli_interrupted(void) {
    return atomic_load_explicit(&interrupted, memory_order_relaxed) != 0;
}

bool cli_interrupted_callback(void *cookie) {
    (void)cookie;
    return cli_interrupted();
}
