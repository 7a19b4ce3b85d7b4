/*
 * fault_server: tests/net/fault_server.py, which describes its faults and options, as a child of a
 * test. It ends with the test, whatever becomes of that.
 *
 *     struct fault_server s;
 *     fault_server_start(&s, test_temp_dir(), "--seed 3 --faults reset=0.1");
 *     ... "http://127.0.0.1:PORT/FILE?fault=503:2&times=1"
 *     char *stats = fault_server_stats(&s);
 *
 * Threading : as the assertions.
 */
#ifndef TESTS_SUPPORT_FAULT_SERVER_H
#define TESTS_SUPPORT_FAULT_SERVER_H

#include <stdint.h>
#include <sys/types.h>

struct fault_server {
    pid_t pid;
    uint16_t port;
    uint16_t other_port; /* of its second origin */
};

/* Serves the files of a folder. `options` are separated by spaces; "": none. Skips the case where
 * there is no python3, fails it if the server does not start. */
void fault_server_start(struct fault_server *s, const char *folder, const char *options);

/* Fails the case unless the server ran until now. */
void fault_server_stop(struct fault_server *s);

/* The JSON of /stats since the start; free() is the caller's. Not of a server with --tls. */
char *fault_server_stats(const struct fault_server *s);

#endif
