/*
 * The server as a process, its ports read from its standard output.
 */
#include "tests/support/fault_server.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"

enum { STATS_MAX_BYTES = 64 << 20 };

void fault_server_start(struct fault_server *s, const char *folder, const char *options) {
    const char *script = test_source_path("tests/net/fault_server.py");
    int out[2];
    if (system("command -v python3 >/dev/null") != 0) {
        test_skip("no python3");
    }
    assert_int_equal(pipe(out), 0);
    fflush(NULL);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        dup2(out[1], STDOUT_FILENO);
        close(out[0]);
        close(out[1]);
        execl("/bin/sh", "sh", "-c", "exec python3 \"$0\" \"$1\" $2", script, folder, options,
              NULL);
        _exit(127);
    }
    close(out[1]);
    FILE *f = fdopen(out[0], "r");
    assert_non_null(f);
    const int got = fscanf(f, "%hu %hu", &s->port, &s->other_port);
    fclose(f);
    if (got != 2) {
        fail_msg("the fault server did not start: %s %s", folder, options);
    }
}

void fault_server_stop(struct fault_server *s) {
    int how = 0;
    assert_int_equal(kill(s->pid, SIGTERM), 0);
    assert_int_equal(waitpid(s->pid, &how, 0), s->pid);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0) {
        fail_msg("the fault server did not end by itself: wait status %d", how);
    }
}

char *fault_server_stats(const struct fault_server *s) {
    static const char request[] = "GET /stats HTTP/1.0\r\n\r\n";
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(s->port),
                                   .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof(to)), 0);
    assert_int_equal(send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL), sizeof(request) - 1);
    char *text = malloc(STATS_MAX_BYTES);
    size_t size_bytes = 0;
    ssize_t got = 1;
    assert_non_null(text);
    while (got > 0 && size_bytes < STATS_MAX_BYTES - 1) {
        got = recv(fd, text + size_bytes, STATS_MAX_BYTES - 1 - size_bytes, 0);
        size_bytes += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    text[size_bytes] = '\0';
    const char *body = strstr(text, "\r\n\r\n");
    assert_non_null(body);
    memmove(text, body + 4, strlen(body + 4) + 1);
    return text;
}
