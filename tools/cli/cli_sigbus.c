/*
 * A mapped file, such as an index, may be truncated by others, or its disk or server may fail: then
 * the kernel sends SIGBUS. The handler finds the file in /proc/self/maps and exits with a message.
 * It uses no locks and no heap memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/status.h"
#include "tools/cli/cli.h"

static char maps[256 * 1024];
static char message[1024];
static atomic_flag entered = ATOMIC_FLAG_INIT;

/* The path of the mapping with the address; NULL: not known. */
static char *mapped_file(uintptr_t address) {
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    for (ssize_t n; fd >= 0 && used < sizeof maps - 1 &&
                    (n = read(fd, maps + used, sizeof maps - 1 - used)) > 0;) {
        used += (size_t)n;
    }
    maps[used] = '\0';
    for (char *line = maps; *line != '\0';) {
        char *end = line + strcspn(line, "\n");
        char *next = *end != '\0' ? end + 1 : end;
        char *rest = NULL;
        *end = '\0';
        const uintptr_t first = strtoull(line, &rest, 16);
        if (*rest == '-' && address >= first && address < strtoull(rest + 1, NULL, 16)) {
            return strchr(line, '/');
        }
        line = next;
    }
    return NULL;
}

static void on_sigbus(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    while (atomic_flag_test_and_set(&entered)) {
        (void)pause(); /* another thread prints the message and exits */
    }
    const char *file = mapped_file((uintptr_t)info->si_addr);
    size_t n = 0;
    const char *const parts[] = {program_invocation_short_name, ": ", file ? file : "a mapped file",
                                 ": was truncated or became unreadable while it was in use\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        for (const char *p = parts[i]; *p != '\0' && n < sizeof message - 1; p++) {
            message[n++] = (*p >= ' ' && *p < 0x7F) || *p == '\n' ? *p : '?';
        }
    }
    (void)!write(STDERR_FILENO, message, n);
    _exit(status_exit_code(STATUS_IO));
}

void cli_catch_sigbus(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGBUS, &action, NULL);
}
