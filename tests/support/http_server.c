#include "tests/support/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_CONNECTIONS 256

struct connection {
    struct http_server *server;
    pthread_t thread;
    int socket;
};

struct http_server {
    http_server_answer answer;
    void *cookie;
    pthread_t thread;
    int socket;
    uint16_t port;
    struct connection connections[MAX_CONNECTIONS];
    atomic_uint accepted, running, most_running;
};

static void demand(bool holds, const char *what) {
    if (!holds) {
        perror(what);
        abort();
    }
}

/* Reads up to the empty line; one request at a time. */
static bool read_head(int socket, char *out, size_t out_size) {
    size_t used = 0;
    while (used + 1 < out_size) {
        if (recv(socket, out + used, 1, 0) != 1) {
            return false;
        }
        out[++used] = '\0';
        if (used >= 4 && strcmp(out + used - 4, "\r\n\r\n") == 0) {
            return true;
        }
    }
    return false;
}

static void *serve(void *argument) {
    struct connection *c = argument;
    struct http_server *s = c->server;
    char head[8192];
    bool keep = true;
    while (keep && read_head(c->socket, head, sizeof head)) {
        const unsigned now = atomic_fetch_add(&s->running, 1) + 1;
        unsigned most = atomic_load(&s->most_running);
        while (now > most && !atomic_compare_exchange_weak(&s->most_running, &most, now)) {
        }
        keep = s->answer(s->cookie, head, c->socket);
        atomic_fetch_sub(&s->running, 1);
    }
    (void)shutdown(c->socket, SHUT_RDWR);
    return NULL;
}

static void *accept_all(void *argument) {
    struct http_server *s = argument;
    for (;;) {
        const int socket = accept(s->socket, NULL, NULL);
        if (socket < 0) {
            return NULL;
        }
        const unsigned i = atomic_load(&s->accepted);
        demand(i < MAX_CONNECTIONS, "http_server: too many connections");
        struct connection *c = &s->connections[i];
        *c = (struct connection){.server = s, .socket = socket};
        atomic_store(&s->accepted, i + 1); /* before the first answer, which a test may wait for */
        demand(pthread_create(&c->thread, NULL, serve, c) == 0, "http_server: thread");
    }
}

struct http_server *http_server_start(http_server_answer answer, void *cookie) {
    struct http_server *s = calloc(1, sizeof *s);
    demand(s != NULL, "http_server: memory");
    s->answer = answer;
    s->cookie = cookie;
    s->socket = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    demand(s->socket >= 0 && bind(s->socket, (const void *)&address, size) == 0 &&
               listen(s->socket, 128) == 0 && getsockname(s->socket, (void *)&address, &size) == 0,
           "http_server: listen");
    s->port = ntohs(address.sin_port);
    demand(pthread_create(&s->thread, NULL, accept_all, s) == 0, "http_server: thread");
    return s;
}

void http_server_stop(struct http_server *s) {
    (void)shutdown(s->socket, SHUT_RDWR);
    (void)pthread_join(s->thread, NULL);
    (void)close(s->socket);
    for (unsigned i = 0; i < atomic_load(&s->accepted); i++) {
        (void)shutdown(s->connections[i].socket, SHUT_RDWR);
        (void)pthread_join(s->connections[i].thread, NULL);
        (void)close(s->connections[i].socket);
    }
    free(s);
}

uint16_t http_server_port(const struct http_server *s) {
    return s->port;
}

uint32_t http_server_connections(struct http_server *s) {
    return atomic_load(&s->accepted);
}

uint32_t http_server_most_at_once(struct http_server *s) {
    return atomic_load(&s->most_running);
}

void http_server_say(int socket, const char *fmt, ...) {
    char *text = NULL;
    va_list arguments;
    va_start(arguments, fmt);
    const int size = vasprintf(&text, fmt, arguments);
    va_end(arguments);
    demand(size >= 0, "http_server: memory");
    for (int sent = 0; sent < size;) {
        const ssize_t n = send(socket, text + sent, (size_t)(size - sent), MSG_NOSIGNAL);
        if (n <= 0) {
            break;
        }
        sent += (int)n;
    }
    free(text);
}
