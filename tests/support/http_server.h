/*
 * http_server: a server on a loopback port, whose answers a test writes byte for byte.
 *
 * Threading : answers run on a thread of each connection; start and stop belong to the test.
 */
#ifndef TESTS_SUPPORT_HTTP_SERVER_H
#define TESTS_SUPPORT_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the answer to `head` (request line and headers, as text) to the socket. Returns whether
 * the connection is kept. */
typedef bool (*http_server_answer)(void *cookie, const char *head, int socket);

struct http_server; /* opaque */

/* Stops the case where it cannot listen. */
struct http_server *http_server_start(http_server_answer answer, void *cookie);
void http_server_stop(struct http_server *s); /* ends all connections */

uint16_t http_server_port(const struct http_server *s);
uint32_t http_server_most_at_once(struct http_server *s); /* requests that ran at the same time */
/* Connections accepted so far: all that were made before one with an answer, and that one. */
uint32_t http_server_connections(struct http_server *s);

/* Sends all of a printf-style text. */
void http_server_say(int socket, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
